"""Asking: what is asked, that a yes is for that and nothing else, and that nothing runs without one."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import outlast
from outlast import Approval, AsyncShell, OutlastError, Shell
from outlast.cli.check import policy_in_force
from outlast.errors import BadInput, NeedsApproval, Refused
from outlast.light import replace
from outlast.output.cleaner import is_invisible
from outlast.policy import YOLO
from outlast.policy.decision import decide
from outlast.policy.loader import load
from outlast.policy.rules import Overrides
from outlast.settings import Settings
from tests.conftest import end_all


class Person:
    """Somebody who is asked, and remembers what."""

    def __init__(self, *answers: str) -> None:
        self.answers, self.asked = list(answers), list[Approval]()

    def __call__(self, approval: Approval) -> str:
        self.asked.append(approval)
        return self.answers.pop(0)


def asking_policy(tmp_path: Path, text: str) -> str:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    return str(path)


# --- yes, no, always ---------------------------------------------------------------------


def test_a_yes_runs_it_once(home: str, tmp_path: Path) -> None:
    person = Person("yes", "no")
    with Shell.open(home=home, policy="allowlist", ask=person) as shell:
        assert shell.run(f"ls {tmp_path}; id -u", description="who").output == f"{os.getuid()}\n"
        (asked,) = person.asked
        assert [part.command for part in asked.parts] == ["id -u"]
        assert (asked.category, asked.command, asked.policy) == ("run", f"ls {tmp_path}; id -u", "allowlist")
        assert (asked.description, asked.session, asked.cwd) == ("who", "default", os.getcwd())
        assert asked.always == ("id -u",)
        with pytest.raises(Refused, match="no"):
            shell.run("id -u")
        assert len(shell.list()) == 1


def test_what_is_allowed_or_denied_is_not_asked(home: str) -> None:
    person = Person()
    with Shell.open(home=home, policy="allowlist", ask=person) as shell:
        assert shell.run("echo hi").output == "hi\n"
        with pytest.raises(Refused, match="allowlist denies 'bash -c ls'"):
            shell.run("bash -c ls")
    assert not person.asked


def test_always_writes_a_rule_that_answers_from_then_on(home: str) -> None:
    person = Person("always", "no")
    with Shell.open(home=home, policy="ask", ask=person) as shell:
        shell.run("echo one")
        shell.run("echo one")
        with pytest.raises(Refused):
            shell.run("echo one two")
    path = Path(home) / "policy.toml"
    assert 'allow = "echo one"' in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    with Shell.open(home=home, policy="ask") as shell:
        assert shell.run("echo one").output == "one\n"
        for other in ("echo one two", "echo one; id", "echo", "echo one > x", "(echo two)"):
            assert shell.check(other).verdict == "ask"
    assert len(person.asked) == 2


def test_always_is_never_written_into_the_project(home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "outlast.policy.toml"
    project.write_text('allow = ["echo *"]\ndeny = ["id *"]\n')
    monkeypatch.chdir(tmp_path)
    with Shell.open(home=home, policy="guarded", ask=Person("always")) as shell:
        shell.run("true && date")
        with pytest.raises(Refused, match="denies 'id'"):
            shell.run("id")
        shell.run("date")
    assert project.read_text() == 'allow = ["echo *"]\ndeny = ["id *"]\n'
    assert 'allow = "date"' in (Path(home) / "policy.toml").read_text()


def test_always_where_no_rule_can_say_it_counts_once(home: str) -> None:
    person = Person("always", "yes")
    with Shell.open(home=home, policy="ask", ask=person) as shell:
        shell.run("echo *")
        assert person.asked[0].always == ()
        assert not os.path.exists(os.path.join(home, "policy.toml"))
        shell.run("echo *")
    assert len(person.asked) == 2


def test_if_the_rule_cannot_be_written_nothing_runs(home: str, tmp_path: Path) -> None:
    with Shell.open(home=home, policy="ask", ask=Person("always")) as shell:
        os.mkdir(os.path.join(home, "policy.toml"))
        with pytest.raises(OutlastError, match="policy"):
            shell.run(f"touch {tmp_path / 'ran'}")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("answer", [True, None, "y", "", 1, "YES"])
def test_what_is_not_a_yes_is_no(home: str, tmp_path: Path, answer: object) -> None:
    with Shell.open(home=home, policy="ask", ask=lambda approval: answer) as shell:
        with pytest.raises(BadInput, match="yes, no, session or always"):
            shell.run(f"touch {tmp_path / 'ran'}")
        assert not shell.list()
    assert not (tmp_path / "ran").exists()


def test_an_exception_in_the_callback_runs_nothing(home: str) -> None:
    def ask(approval: Approval) -> str:
        raise RuntimeError("the window was closed")

    with Shell.open(home=home, policy="ask", ask=ask) as shell:
        with pytest.raises(RuntimeError, match="the window was closed"):
            shell.start("true")
        assert not shell.list()


def test_the_callers_own_trouble_is_told_as_it_is(home: str) -> None:
    def ask(approval: Approval) -> str:
        raise ConnectionResetError("the client is gone")

    with Shell.open(home=home, policy="ask", ask=ask) as shell, pytest.raises(ConnectionResetError, match="is gone"):
        shell.run("true")


def test_what_runs_outlast_by_itself_is_under_the_same_policy(home: str, tmp_path: Path) -> None:
    path = asking_policy(tmp_path, 'otherwise = "allow"\n')
    for policy, passed_on in (("guarded", "guarded"), (path, path), ("yolo", "")):
        with Shell.open(home=home, session="s", policy=policy) as shell:
            assert shell.run("echo $OUTLAST_POLICY").output == f"{passed_on}\n"
            assert shell.run("echo $OUTLAST_POLICY", env={"OUTLAST_POLICY": "ask"}).output == "ask\n"
    with Shell.open(home=home, session="s") as shell:  # the session does not remember it
        assert shell.run("echo $OUTLAST_POLICY").output == "\n"


def test_where_nobody_can_be_asked_the_refusal_says_so_and_what_would_allow_it(home: str) -> None:
    with Shell.open(home=home, policy="ask") as shell:
        with pytest.raises(NeedsApproval) as caught:
            shell.run('make "two words"')
        assert caught.value.code == "needs-approval"
        assert "no user can be asked here" in caught.value.message
        assert "allow = [\"make 'two words'\"]" in caught.value.message
        assert not shell.list()


def test_a_coroutine_function_needs_an_async_shell(home: str) -> None:
    async def ask(approval: Approval) -> str:
        return "yes"

    with Shell.open(home=home, policy="ask", ask=ask) as shell, pytest.raises(BadInput, match="AsyncShell"):
        shell.run("true")


# --- modes and what always needs a yes -----------------------------------------------------


def test_mode_yolo_asks_nothing_and_still_denies(home: str) -> None:
    person = Person()
    with Shell.open(home=home, policy="allowlist", mode="yolo", ask=person) as shell:
        assert shell.run("id -u").output == f"{os.getuid()}\n"
        with pytest.raises(Refused):
            shell.run("id; bash -c ls")
    assert not person.asked
    with pytest.raises(BadInput, match="no mode 'fast'"):
        Shell.open(home=home, mode="fast")  # type: ignore[arg-type]


def test_a_policy_can_want_a_yes_for_all_that_runs_and_ends_and_for_nothing_else(home: str, tmp_path: Path) -> None:
    path = asking_policy(tmp_path, 'extends = "banned"\nask_always = ["run", "kill"]\n')
    person = Person("yes", "no", "yes", "always", "no")
    with Shell.open(home=home, policy=path, ask=person) as shell:
        task = shell.start("echo begun; exec sleep 100")
        assert person.asked[0].parts == ()
        assert person.asked[0].always == ()
        with pytest.raises(Refused, match=task.task_id):
            shell.kill(task.task_id)
        shell.wait(task.task_id, until="begun", timeout=30)
        shell.read(task.task_id), shell.list(), shell.show(task.task_id)
        assert shell.check("ls").verdict == "ask"
        assert shell.kill(task.task_id).status == "killed"
        assert person.asked[-1].category == "kill"
        assert person.asked[-1].task_ids == (task.task_id,)
        shell.run("true")
        with pytest.raises(Refused):
            shell.run("true")
        with pytest.raises(Refused, match="curl"):
            shell.run("curl x")
    assert len(person.asked) == 5
    with Shell.open(home=home, policy=path, mode="yolo") as shell:
        assert shell.run("echo hi").output == "hi\n"
    with Shell.open(home=home, policy=path) as shell, pytest.raises(NeedsApproval, match="every command needs a yes"):
        shell.run("echo hi")


def test_killing_needs_a_yes_that_nobody_can_give(home: str, tmp_path: Path) -> None:
    path = asking_policy(tmp_path, 'otherwise = "allow"\nask_always = ["kill"]\n')
    with Shell.open(home=home, policy=path) as shell:
        task = shell.start("exec sleep 100")
        with pytest.raises(NeedsApproval, match=task.task_id):
            shell.kill(task.task_id)
        assert shell.show(task.task_id).status == "running"
    with Shell.open(home=home) as shell:
        end_all(shell)


def test_a_limit_needs_no_yes(home: str, tmp_path: Path) -> None:
    path = asking_policy(tmp_path, 'otherwise = "allow"\nask_always = ["kill"]\n')
    with Shell.open(home=home, policy=path) as shell:
        assert shell.run("sleep 100", limit=0.1).reason == "timeout"


# --- what is checked is what runs -----------------------------------------------------------


def test_a_function_of_the_session_is_not_the_program_of_its_name(home: str) -> None:
    person = Person("yes", "no", "yes", "no")
    with Shell.open(home=home, session="s", policy="allowlist", ask=person) as shell:
        assert shell.run("ls / > /dev/null").exit_code == 0
        shell.run("ls() { echo mine; }")
        with pytest.raises(Refused):
            shell.run("ls")
        assert "function ls" in person.asked[-1].parts[0].why
        assert shell.check("ls").verdict == "ask"
        shell.run("unset -f ls; alias cat='echo mine'")
        assert shell.check("ls").verdict == "allow"
        with pytest.raises(Refused):
            shell.run("cat x")
        assert person.asked[-1].always == ()
    with Shell.open(home=home, session="other", policy="allowlist") as shell:
        assert shell.check("cat x").verdict == "allow"


@pytest.mark.parametrize("change", ["PATH=$PWD:$PATH", "export LD_PRELOAD=x.so", "export GIT_SSH_COMMAND=evil"])
def test_a_session_that_was_steered_asks(home: str, change: str) -> None:
    with Shell.open(home=home, session="s", policy="allowlist", ask=Person("yes")) as shell:
        assert shell.check("git status").verdict == "allow"
        shell.run(change)
        assert shell.check("git status").verdict == "ask"


@pytest.mark.parametrize(
    "env", [{"BASH_ENV": "x"}, {"PATH": "."}, {"BASH_FUNC_ls%%": "() { id; }"}, {"LD_PRELOAD": "x"}]
)
def test_variables_of_one_call_count(home: str, env: dict[str, str]) -> None:
    with Shell.open(home=home, policy="allowlist") as shell:
        assert shell.check("ls").verdict == "allow"
        assert shell.check("ls", env={"LANG": "C"}).verdict == "allow"
        with pytest.raises(NeedsApproval):
            shell.run("ls", env=env)
        assert not shell.list()


def test_a_function_among_the_variables_of_a_call_is_judged_everywhere(home: str) -> None:
    with Shell.open(home=home, policy="guarded") as shell:
        with pytest.raises(Refused, match="denies 'rm -rf /'"):
            shell.run("ls", env={"BASH_FUNC_ls%%": "() { rm -rf /; }"})
        assert shell.check("ls", env={"BASH_FUNC_ls%%": "() { rm -rf /; }"}).verdict == "deny"
        assert shell.run("greet", env={"BASH_FUNC_greet%%": "() { echo hi; }"}).output == "hi\n"


def test_another_shell_than_bash_asks(home: str, tmp_path: Path) -> None:
    fake = tmp_path / "bash"
    fake.write_text("#!/bin/sh\necho not bash\n")
    fake.chmod(0o755)
    with Shell.open(home=home, policy="allowlist") as shell:
        assert shell.run("echo hi", shell="bash").output == "hi\n"
        with pytest.raises(NeedsApproval):
            shell.run("echo hi", shell=str(fake))


def test_a_state_that_changes_while_somebody_thinks_is_judged_again(home: str) -> None:
    """BashSyntaxCheck about one thing, and meanwhile the session gets a function with the name of another."""
    first = Shell.open(home=home, session="s")
    asked: list[Approval] = []

    def ask(approval: Approval) -> str:
        asked.append(approval)
        if len(asked) == 1:
            first.run("ls() { echo mine; }")
        return "yes" if len(asked) == 1 else "no"

    with first, Shell.open(home=home, session="s", policy="allowlist", ask=ask) as shell:
        first.run("true")
        with pytest.raises(Refused):
            shell.run("ls; id")
    assert [len(one.parts) for one in asked] == [1, 2]


def test_a_state_that_changes_after_the_last_look_is_noticed_too(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between preparing and staging: the task would begin with a state that nobody judged."""
    other = Shell.open(home=home, session="s")
    other.run("true")
    with other, Shell.open(home=home, session="s", policy="allowlist") as shell:
        prepared, changed = shell.starter._build_launch, list[int]()

        def prepare(*args: object, **how: object) -> object:
            launch = prepared(*args, **how)  # type: ignore[arg-type]
            if not changed:
                changed.append(other.run("ls() { echo mine; }").exit_code or 0)
                other.sessions.state()  # merges what the command changed
            return launch

        monkeypatch.setattr(shell.starter, "_build_launch", prepare)
        with pytest.raises(NeedsApproval, match="function ls"):
            shell.run("ls")
        assert changed
        assert [task.command for task in shell.list()] == ["ls() { echo mine; }", "true"]


def test_a_yes_is_for_one_line_under_one_judgement() -> None:
    from outlast.shell.validation import build_request as request

    policy = load("ask", Settings())
    with pytest.raises(NeedsApproval) as caught:
        decide(request("make", session="s"), policy)
    approval = caught.value.approval
    assert isinstance(approval, Approval)
    assert decide(request("make", session="s"), policy, approved=approval).approved
    for command, known, other in (
        ("make install", Overrides(), policy),
        ("make", Overrides(functions=frozenset(["make"])), policy),
        ("make", Overrides(), replace(policy, name="another")),
    ):
        with pytest.raises(NeedsApproval):
            decide(request(command, session="s"), other, known, approved=approval)
    with pytest.raises(Refused, match="denies"):
        decide(
            request("bash x", session="s"), load("allowlist", Settings()), approved=replace(approval, command="bash x")
        )


def test_a_grant_says_by_which_policy_and_why() -> None:
    from outlast.shell.validation import build_request as request

    grant = decide(request("ls", session="s"), load("guarded", Settings()))
    assert (grant.policy, grant.decision.verdict, grant.approved) == ("guarded", "allow", False)  # type: ignore[attr-defined]
    grant = decide(request("rm -rf /", session="s"), YOLO)
    assert (grant.policy, grant.decision) == ("yolo", None)


def test_what_was_prepared_in_advance_runs_only_what_was_judged(home: str) -> None:
    with Shell.open(home=home, policy="allowlist") as shell:
        for number in range(4):
            assert shell.run(f"echo {number}").output == f"{number}\n"
        with pytest.raises(NeedsApproval):
            shell.run("id")
        assert shell.run("echo last").output == "last\n"
        assert {task.command for task in shell.list()} == {*(f"echo {number}" for number in range(4)), "echo last"}


def test_what_is_queued_or_found_by_name_was_judged(home: str) -> None:
    with Shell.open(home=home, policy="allowlist") as shell:
        first = shell.start("sleep 100", name="server")
        assert shell.start("sleep 100", name="server").task_id == first.task_id
        pending = shell.start("echo after", after=[first.task_id])
        for how in ({"name": "server"}, {"after": [first.task_id]}):
            with pytest.raises(NeedsApproval):
                shell.start("id", **how)
        assert {task.task_id for task in shell.list()} == {first.task_id, pending.task_id}
        end_all(shell)


def test_only_one_place_makes_a_grant_and_only_one_a_launch() -> None:
    source = Path(outlast.__file__).parent
    makers = {
        noun: sorted(str(path.relative_to(source)) for path in source.rglob("*.py") if f" {noun}(" in _code(path))
        for noun in ("Grant", "Launch")
    }
    assert makers == {
        "Grant": ["policy/decision.py"],
        "Launch": ["launch_builder.py"],
    }


def _code(path: Path) -> str:
    return "\n".join(line for line in path.read_text().splitlines() if not line.startswith("class "))


def test_commands_side_by_side_in_one_session_are_all_judged_and_all_run(home: str) -> None:
    with Shell.open(home=home, session="s", policy="guarded") as shell:
        with ThreadPoolExecutor(8) as threads:
            codes = list(threads.map(lambda number: shell.run(f"v{number}=1").exit_code, range(16)))
        assert codes == [0] * 16
        assert shell.run("set | grep -c '^v[0-9]*=1'").output == "16\n"


def test_yolo_reads_no_policy(home: str) -> None:
    with Shell.open(home=home) as shell:
        assert policy_in_force(shell)[0] == "yolo"
        assert shell.check("rm -rf /").verdict == "allow"
        assert shell.starter.gate() is None


# --- asyncio ------------------------------------------------------------------------------


def test_a_coroutine_is_asked_in_its_own_loop(home: str) -> None:
    async def main() -> None:
        loop, asked = asyncio.get_running_loop(), list[str]()

        async def ask(approval: Approval) -> str:
            assert asyncio.get_running_loop() is loop
            asked.append(approval.command)
            await asyncio.sleep(0)
            return "yes" if "yes" in approval.command else "no"

        async with AsyncShell.open(home=home, policy="ask", ask=ask) as shell:
            answers = [shell.run(f"echo {word} {n}") for n in range(3) for word in ("yes", "no")]
            done = await asyncio.gather(*answers, return_exceptions=True)
            assert [getattr(one, "output", "refused") for one in done] == [
                *("yes 0\n", "refused", "yes 1\n", "refused", "yes 2\n", "refused")
            ]
            assert all(isinstance(one, Refused) for one in done[1::2])
            task = await shell.start("echo yes")
            assert (await shell.wait(task.task_id, 30)).status == "completed"
            assert (await shell.check("echo")).verdict == "ask"
        assert len(asked) == 7

    asyncio.run(main())


def test_a_plain_function_is_asked_as_well_and_does_not_hold_the_loop(home: str) -> None:
    async def main() -> None:
        answered = threading.Event()

        def ask(approval: Approval) -> str:
            assert answered.wait(30)
            return "yes"

        async with AsyncShell.open(home=home, policy="ask", ask=ask) as shell:
            run = asyncio.create_task(shell.run("echo hi"))
            assert await shell.list() == []  # the loop goes on
            answered.set()
            assert (await run).output == "hi\n"

    asyncio.run(main())


def test_if_the_call_is_cancelled_so_is_the_question_and_nothing_runs(home: str, tmp_path: Path) -> None:
    async def main() -> None:
        begun, ended = asyncio.Event(), list[str]()

        async def ask(approval: Approval) -> str:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("cancelled")
            return "yes"

        async with AsyncShell.open(home=home, policy="ask", ask=ask) as shell:
            run = asyncio.create_task(shell.run(f"touch {tmp_path / 'ran'}"))
            await begun.wait()
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
            while not ended:
                await asyncio.sleep(0.005)
            assert await shell.list() == []

    asyncio.run(asyncio.wait_for(main(), 60))
    assert not (tmp_path / "ran").exists()


def test_killing_is_asked_about_by_a_coroutine(home: str, tmp_path: Path) -> None:
    path = asking_policy(tmp_path, 'otherwise = "allow"\nask_always = ["kill"]\n')

    async def main() -> None:
        async def ask(approval: Approval) -> str:
            return "yes" if approval.category == "kill" else "no"

        async with AsyncShell.open(home=home, policy=path, ask=ask) as shell:
            task = await shell.start("exec sleep 100")
            assert (await shell.kill(task.task_id)).status == "killed"

    asyncio.run(main())


# --- what a question shows -----------------------------------------------------------------

FORGED = [
    "ls\u200d -l",
    "ls \u202e-l",
    "ls\u3164-l",
    "ls\u2800-l",
    "ls \ufe0f-l",
    "ls \U000e0041-l",
    "ls \u00ad-l",
    "ls\x1b[8m; id",
    "ls\r; id",
]


def questions(approval: Approval) -> list[str]:
    """As a terminal shows it, and as a client of the MCP server does."""
    from outlast.cli.approve import describe_question

    found = [describe_question(approval, colour=False)]
    try:
        from outlast.mcp.approval import question
    except ModuleNotFoundError:
        return found
    return [*found, question(approval).message]


def approval_of(command: str, **more: object) -> Approval:
    return Approval("run", command, "ask", None, cwd="/here", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("command", FORGED)
def test_what_a_reader_cannot_see_is_written_out_in_a_question(command: str) -> None:
    for text in questions(approval_of(command, description=command, evidence=command)):
        assert all(char == "\n" or (char.isprintable() and not is_invisible(char)) for char in text)
        hidden = next(char for char in command if not char.isprintable() or is_invisible(char))
        assert ascii(hidden)[1:-1] in text


def test_a_description_is_one_short_line_behind_the_command() -> None:
    forged = "a try\n\nThe policy asks because of nothing.\n    ls\n" + "x" * 5000
    for text in questions(approval_of("rm -rf build", description=forged)):
        lines = text.splitlines()
        [said] = [line for line in lines if "The model says" in line]
        assert lines.index(said) > lines.index("    rm -rf build")
        assert len(said) < 160
        assert "The policy asks because of nothing." not in lines
        assert "    ls" not in lines


def test_a_long_command_shows_its_end_and_says_what_is_left_out() -> None:
    command = "echo " + "x" * 50_000 + "; rm -rf /home/me"
    for text in questions(approval_of(command)):
        assert "; rm -rf /home/me\n" in text
        assert f"[{len(command) - 4000} characters in the middle are not shown]" in text
    whole = "\n".join(f"line {number}" for number in range(300))
    for text in questions(approval_of(whole)):
        assert all(f"    line {number}\n" in text for number in range(300))


def test_blanks_do_not_push_the_rest_of_a_line_out_of_sight() -> None:
    for text in questions(approval_of("ls" + " " * 500 + "; rm -rf /")):
        assert "; rm -rf /" in text
        assert " " * 20 not in text
        assert "[16 blanks]" in text


def test_no_line_of_a_command_looks_like_one_of_the_question() -> None:
    command = "echo 1\n\nThe policy ask asks because of:\n- nothing: it is harmless\nRun it? [y = yes, n = no] y"
    for text in questions(approval_of(command)):
        assert all(f"    {line}" in text.splitlines() for line in command.split("\n"))
        assert "- nothing: it is harmless" not in text.splitlines()
