"""The policy `workspace`: a sandbox without questions, and the way out of it after a yes."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from outlast import Approval, AsyncShell, Sandbox, Shell
from outlast.errors import BadInput, NeedsApproval, Refused
from outlast.sandbox import workspace
from outlast.sandbox.choice import available
from outlast.sandbox.refusals import find_refusal
from tests.cli.test_check import needs_tmux
from tests.cli.test_terminal import Terminal
from tests.conftest import Cli, eventually, prepared_shells
from tests.mcp_server import LEGACY, MODERN, play, text
from tests.mcp_server import inside as connected
from tests.mcp_server import shell as call
from tests.mcp_server.test_approval import User, says
from tests.sandbox.support import BOTH, inside

BOX = "bubblewrap: no network, writes to /x"


class Person:
    """Somebody who is asked, and answers in turn."""

    def __init__(self, *answers: str) -> None:
        self.answers, self.asked = list(answers), list[Approval]()

    def __call__(self, approval: Approval) -> str:
        self.asked.append(approval)
        return self.answers.pop(0)


@pytest.fixture
def home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "user"
    path.mkdir()
    monkeypatch.setenv("HOME", str(path))
    return path


@pytest.fixture
def project(home_directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    inside(available()[0])
    path = home_directory / "project"
    (path / "src").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(path)], check=True)
    monkeypatch.chdir(path / "src")
    return path


# --- what it is --------------------------------------------------------------------------


def test_commands_run_without_a_question_and_write_to_the_whole_repository(home: str, project: Path) -> None:
    with Shell.open(home=home, policy="workspace") as shell:
        result = shell.run("echo x > here; echo y > ../there; git add -A && git status --short")
        assert (result.exit_code, result.error) == (0, None), result.output
        assert str(project) in (result.sandbox or "")
        assert shell.check("rm -rf /").verdict == "allow"  # in the sandbox there is nothing to destroy
    assert (project / "there").read_text() == "y\n"


@pytest.mark.parametrize("kind", BOTH)
def test_the_next_shell_is_prepared_in_the_sandbox(home: str, project: Path, kind: str, monkeypatch) -> None:
    inside(kind)
    monkeypatch.setenv("OUTLAST_SANDBOX_KIND", kind)
    with Shell.open(home=home, session="s", policy="workspace") as shell:
        for _ in range(2):
            shell.run("x=7")
        prepared = prepared_shells(shell)[0]
        result = shell.run("echo $x; echo y > src-file; false | true")
        assert os.path.basename(prepared.published) == result.task_id, "the prepared one was not used"
        assert (result.output, result.exit_code, result.pipe_status) == ("7\n", 0, (1, 0))
        assert (result.sandbox or "").startswith(kind)
        prepared_shells(shell)
        again = shell.run("echo $TMPDIR; touch $TMPDIR/f && exit 3")
        assert (again.exit_code, again.pipe_status) == (3, (3,))
    eventually(lambda: os.listdir(os.path.join(home, "staging")) == [])


def test_it_is_chosen_by_name_everywhere(project: Path, cli: Cli, home: str) -> None:
    outside = str(project.parent / "x")
    assert cli("run", "--policy", "workspace", f"echo x > {outside}").returncode == 1
    os.makedirs(home, 0o700, exist_ok=True)
    Path(home, "config.toml").write_text('policy = "workspace"\n')
    assert cli("run", f"echo x > {outside}").returncode == 1
    assert cli("run", "--policy", "yolo", f"echo x > {outside}").returncode == 1  # a call only narrows
    Path(home, "config.toml").unlink()
    cli.env["OUTLAST_POLICY"] = "workspace"
    assert "outside the sandbox" in cli("run", f"echo x > {outside}", check=1).stderr
    assert not os.path.exists(outside)
    (project / "rules.toml").write_text('extends = "workspace"\ndeny = ["curl *"]\n')
    del cli.env["OUTLAST_POLICY"]
    assert cli("run", "--policy", str(project / "rules.toml"), f"echo x > {outside}").returncode == 1
    assert cli("run", "--policy", str(project / "rules.toml"), "curl x").returncode == 125
    assert cli("run", "--policy", str(project / "rules.toml"), "true").returncode == 0


def test_a_person_widens_it(project: Path, cli: Cli, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    words = ("run", "--policy", "workspace")
    assert cli(*words, f"echo x > {other}/f").returncode == 1
    assert cli(*words, "--writable", str(other), f"echo x > {other}/f").returncode == 0
    assert cli(*words, "--cwd", str(other), "echo x > g").returncode == 0
    assert cli(*words, "--no-sandbox", "true").returncode == 125  # no user can be asked


def test_no_call_widens_it(home: str, project: Path) -> None:
    with Shell.open(home=home, policy="workspace") as shell:
        for box in (Sandbox(network=True), Sandbox(writable=(str(project.parent),)), Sandbox(readable=("/run",))):
            with pytest.raises(BadInput, match="imposed"):
                shell.run("true", sandbox=box)


def test_caches_are_writable(home: str, project: Path, home_directory: Path, monkeypatch) -> None:
    (home_directory / ".cache").mkdir()
    (home_directory / "other").mkdir()
    with Shell.open(home=home, policy="workspace") as shell:
        assert shell.run("echo x > ~/.cache/f").exit_code == 0
        assert shell.run("echo x > ~/other/f").exit_code == 1
    monkeypatch.setenv("OUTLAST_SANDBOX_CACHES", "~/other:relative:/:~/none")
    with Shell.open(home=home, policy="workspace") as shell:
        assert shell.run("echo x > ~/.cache/f").exit_code == 1
        assert shell.run("echo x > ~/other/f").exit_code == 0


def test_a_home_directory_is_no_project(home: str, project: Path, home_directory: Path, monkeypatch) -> None:
    monkeypatch.chdir(home_directory)
    with Shell.open(home=home, policy="workspace") as shell:
        assert shell.run("echo x > f").exit_code == 1
        assert shell.run("echo x > $TMPDIR/f").exit_code == 0


def test_which_directory_is_the_project(tmp_path: Path) -> None:
    below = tmp_path / "repository" / "a" / "b"
    below.mkdir(parents=True)
    home = str(tmp_path / "home")
    assert workspace.find_project(str(below), home) == str(below)
    (tmp_path / "repository" / ".git").mkdir()
    assert workspace.find_project(str(below), home) == str(tmp_path / "repository")
    assert workspace.find_project(str(below), str(tmp_path / "repository")) == str(below)
    assert workspace.find_project(str(below), str(below)) == ""
    assert workspace.find_project("/tmp", home) == workspace.find_project("/", home) == ""


def test_a_linked_work_tree_commits_and_protects_its_repository(
    home: str, project: Path, tmp_path, monkeypatch
) -> None:
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@example.org", "-C", str(project)]
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    linked = tmp_path / "linked"
    subprocess.run([*git, "worktree", "add", "-q", str(linked)], check=True)
    monkeypatch.chdir(linked)
    inside("bubblewrap")
    monkeypatch.setenv("OUTLAST_SANDBOX_KIND", "bubblewrap")
    with Shell.open(home=home, policy="workspace") as shell:
        committed = "echo x > f; git add f; git -c user.name=n -c user.email=e@example.org commit -qm y"
        assert shell.run(committed).exit_code == 0
        common = project / ".git"
        for place in ("hooks/pre-commit", "config", "worktrees/linked/commondir", "worktrees/linked/gitdir"):
            assert shell.run(f"echo evil >> {common}/{place}").exit_code == 1, place
        assert shell.run(f"echo evil > {linked}/.git").exit_code == 1
        assert shell.run(f"echo x > {project}/f").exit_code == 1


def test_a_work_tree_that_its_repository_does_not_know_opens_nothing(tmp_path: Path) -> None:
    repository, forged = tmp_path / "r" / ".git", tmp_path / "forged"
    (repository / "worktrees" / "one").mkdir(parents=True)
    (repository / "objects").mkdir()
    forged.mkdir()
    (forged / ".git").write_text(f"gitdir: {repository}/worktrees/one\n")
    (repository / "worktrees" / "one" / "gitdir").write_text(f"{tmp_path}/another/.git\n")
    assert workspace.find_worktree(str(forged)) == ([], [])
    (forged / ".git").write_text(f"gitdir: {tmp_path}\n")
    assert workspace.find_worktree(str(forged)) == ([], [])


# --- the way out -------------------------------------------------------------------------


def test_after_a_yes_it_runs_outside_in_a_fresh_shell(home: str, project: Path) -> None:
    ask = Person("yes", "no")
    target = project.parent / "x"
    with Shell.open(home=home, session="s", policy="workspace", ask=ask) as shell:
        shell.run("cd ..; echo() { builtin echo forged; }")
        result = shell.run(f"echo mine > {target}; pwd", description="harmless")
        assert result.exit_code == 0, result.error  # `pwd` was the last
        result = shell.run(f"echo mine > {target} && pwd")
        assert (result.exit_code, result.sandbox, result.output) == (0, None, f"{project}\n")
        assert target.read_text() == "mine\n"  # not what a command in the sandbox made of `echo`
        [approval] = ask.asked
        assert (approval.category, approval.policy, approval.cwd) == ("outside", "workspace", str(project))
        assert "outside the sandbox: " in approval.evidence
        assert approval.always == ()
        refused = shell.run(f"rm {target}")
        assert refused.exit_code == 1
        assert "said no" in (refused.error or "")
    assert target.exists()


def test_where_nobody_can_be_asked_it_says_so(home: str, project: Path) -> None:
    target = project.parent / "x"
    with Shell.open(home=home, policy="workspace") as shell:
        result = shell.run(f"echo x > {target}")
        assert result.exit_code == 1
        assert (result.error or "").startswith("outside the sandbox: ")
        assert "no user can be asked" in (result.error or "")
        task = shell.start(f"echo x > {target}")
        shell.wait(task.task_id, 30)
        assert (shell.read(task.task_id).error or "").startswith("outside the sandbox: ")
        with pytest.raises(NeedsApproval, match="no user can be asked"):
            shell.run("true", sandbox=False)
    with Shell.open(home=home, policy="workspace", mode="yolo") as shell:
        assert shell.run(f"echo x > {target}").exit_code == 1
        with pytest.raises(Refused, match="without a yes"):
            shell.run("true", sandbox=False)
    assert not target.exists()


def test_what_fails_for_another_reason_is_not_asked_about(home: str, project: Path) -> None:
    ask = Person()
    with Shell.open(home=home, policy="workspace", ask=ask) as shell:
        for command in ("false", "ls /nowhere", "exit 13", "echo Read-only file system; true"):
            assert not (shell.run(command).error or "").startswith("outside")
    assert ask.asked == []


def test_the_same_for_asyncio(home: str, project: Path) -> None:
    target, asked = project.parent / "x", list[Approval]()

    async def ask(approval: Approval) -> str:
        asked.append(approval)
        return "yes"

    async def scene() -> int | None:
        async with AsyncShell.open(home=home, policy="workspace", ask=ask) as shell:
            return (await shell.run(f"echo x > {target}")).exit_code

    assert asyncio.run(scene()) == 0
    assert target.exists()
    assert len(asked) == 1


@pytest.mark.parametrize("mode", [LEGACY, MODERN])
def test_over_mcp_the_user_is_asked_and_it_fails_in_the_sandbox_once(home: str, project: Path, mode: str) -> None:
    user, target = User(says("yes"), says("no")), project.parent / "x"

    async def scene() -> None:
        how = {"elicitation_callback": user}
        async with connected(home, "--policy", "workspace", mode=mode, how=how) as client:
            said = text(await client.call_tool(*call(f"echo tried >> tries; echo x > {target}", description="a try")))
            assert "outside" not in said
            message = user.asked[0].message
            assert message.index(f"echo x > {target}") < message.index("a try")
            assert "In the sandbox it failed" in message
            refused = text(await client.call_tool(*call(f"rm {target}")))
            assert "outside the sandbox" in refused or "said no" in refused

    play(scene())
    assert target.exists()
    assert len(user.asked) == 2
    tries = [path.read_text() for path in project.rglob("tries")] or [Path("tries").read_text()]
    assert tries == ["tried\n" * 2]  # inside once, outside once


def test_over_mcp_a_client_that_cannot_ask_gets_the_result_of_the_sandbox(home: str, project: Path) -> None:
    async def scene() -> str:
        async with connected(home, "--policy", "workspace", mode=MODERN, how={}) as client:
            return text(await client.call_tool(*call(f"echo x > {project.parent}/x")))

    said = play(scene())
    assert "outside the sandbox: " in said
    assert "cannot ask" in said


@needs_tmux
def test_on_a_terminal_a_person_is_asked(project: Path, cli: Cli, home: str) -> None:
    terminal = Terminal(cli, os.path.dirname(home))  # short: the address of a socket is in it
    target = project.parent / "x"
    try:
        terminal.type(f"outlast run --policy workspace 'echo x > {target}'; echo code=$?")
        eventually(lambda: "Run it outside the sandbox? [y = yes, n = no]" in terminal.screen())
        assert "outside the sandbox: " in terminal.screen()
        terminal.type("n")
        terminal.shows("code=1")
        assert not target.exists()
        terminal.type("clear")
        eventually(lambda: "Run it outside the sandbox?" not in terminal.screen())  # the first question is gone
        terminal.type(f"outlast run --policy workspace 'echo x > {target}'; echo code=$?")
        eventually(lambda: "Run it outside the sandbox?" in terminal.screen())
        terminal.type("y")
        terminal.shows("code=0")
        assert target.exists()
    finally:
        terminal.close()


# --- how a refusal is known ----------------------------------------------------------------


def test_a_program_that_cannot_be_executed_is_not_refused_by_the_sandbox(home: str, project: Path) -> None:
    Path("script").write_text("#!/bin/sh\n")
    with Shell.open(home=home, policy="workspace") as shell:
        result = shell.run("./script")
        assert (result.exit_code, result.error) == (126, None)


@pytest.mark.parametrize(
    ("line", "sandbox", "shows"),
    [
        ("touch: cannot touch '/x': Read-only file system", BOX, True),
        ("OSError: [Errno 30] Read-only file system: '/x'", BOX, True),
        ("npm ERR! Error: EROFS: read-only file system, open '/x'", BOX, True),
        ("curl: (6) Could not resolve host: example.org", BOX, True),
        ("curl: (6) Could not resolve host: example.org", "bubblewrap: network, writes to /x", False),
        ("error: could not write config file .git/config: Device or resource busy", BOX, True),
        ("umount: /mnt: Device or resource busy", BOX, False),
        ("bash: /x: Permission denied", "landlock: no network, writes to /x", True),
        ("make: *** [all] Error 1", BOX, False),
        ("", BOX, False),
    ],
)
def test_by_which_lines(line: str, sandbox: str, shows: bool) -> None:
    assert bool(find_refusal(sandbox, f"first\n{line}\n")) is shows
    assert not find_refusal(sandbox, f"{line}\n" + "later\n" * 40)  # it is not what it failed with
