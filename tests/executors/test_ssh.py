"""What only a machine that ssh reaches has: files that go there and back, settings, doctor."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from outlast import Shell
from outlast.errors import BadInput, OutlastError, Unsupported
from outlast.executors.ssh.files import CopyFailed
from outlast.executors.ssh.link import hash_program
from outlast.guard.client import find_guard
from tests.cli.test_terminal import Terminal
from tests.conftest import Cli, end_all, eventually
from tests.executors.conftest import Bench, write_settings
from tests.executors.sshd import Sshd
from tests.web.support import serving, streaming


def test_a_person_is_attached_to_a_task_there(cli: Cli, home: str, sshd: Sshd, tmp_path: Path) -> None:
    if not shutil.which("tmux"):
        pytest.skip("tmux is not installed")
    write_settings(home, sshd.settings())
    keys = 'while read -r line; do echo "got $line in $(stty size)"; done; exit 3'
    task_id = cli("run", "--bg", "--tty", "--executor", "box", f"echo ready; {keys}", check=0).stdout.strip()
    window = Terminal(cli, str(tmp_path), (90, 20))
    try:
        window.type(f"clear; outlast attach {task_id}; echo code=$?")
        eventually(lambda: "ready" in window.screen(), what="what it printed")
        window.type("words")
        eventually(lambda: "got words in 20 90" in window.screen(), what="the answer, in the size of the window")
        window.press("C-]")
        eventually(lambda: "code=0" in window.screen(), what="detached")
        window.type(f"clear; outlast attach {task_id}; echo code=$?")
        eventually(lambda: "got words" in window.screen(), what="the screen as it was")
        window.press("C-d")
        eventually(lambda: "code=3" in window.screen(), what="its end")
    finally:
        window.close()


@pytest.mark.parametrize("by", ["rsync", "tar"])
def test_files_go_there_and_back(far: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    if by == "rsync" and not shutil.which("rsync"):
        pytest.skip("needs rsync")
    which = shutil.which
    monkeypatch.setattr("shutil.which", lambda name: None if name == "rsync" and by == "tar" else which(name))
    near, there = tmp_path / "near", tmp_path / "there dir"
    (near / "src").mkdir(parents=True)
    there.mkdir()
    (near / "src" / "a b.txt").write_text("from here\n")
    monkeypatch.chdir(near)
    far.run("cat 'src/a b.txt' >result; mkdir logs; echo log >logs/one", send=["src"], cwd=str(there))
    assert (there / "result").read_text() == "from here\n"
    (task,) = far.shell.list()
    far.shell.control.fetch(task.task_id, ["result", "logs"], str(near))
    assert (near / "result").read_text() == "from here\n"
    assert (near / "logs" / "one").read_text() == "log\n"
    with pytest.raises(CopyFailed, match="missing"):
        far.shell.control.fetch(task.task_id, ["missing"], str(near))
    with pytest.raises(BadInput):
        far.shell.control.fetch(task.task_id, ["../x"], str(near))
    with pytest.raises(BadInput, match="cannot be sent"):
        far.run("true", send=["missing"])
    with pytest.raises(CopyFailed):
        far.run("true", send=["src"], cwd="/no/such/place")
    with pytest.raises(BadInput, match="another machine"):
        far.shell.run("true", send=["src"])
    assert len(far.shell.list()) == 1


def test_rsync_takes_no_link_that_leads_out_and_no_pattern(far: Bench, tmp_path: Path) -> None:
    if not shutil.which("rsync"):
        pytest.skip("needs rsync")
    near, there = tmp_path / "near", tmp_path / "there"
    near.mkdir()
    there.mkdir()
    made = far.run("mkdir d; ln -s /etc/passwd d/out; ln -s in d/link; echo 1 >d/in; echo 2 >'*'", cwd=str(there))
    far.shell.control.fetch(made.task_id, ["d", "*"], str(near))
    assert sorted(str(path.relative_to(near)) for path in near.rglob("*")) == ["*", "d", "d/in", "d/link"]
    with pytest.raises(CopyFailed, match="no such thing"):
        far.shell.control.fetch(made.task_id, ["no such thing"], str(near))


def test_the_command_line(far: Bench, cli: Cli, tmp_path: Path) -> None:
    cli.env["OUTLAST_HOME"] = far.home
    ran = cli("run", "--executor", "box", "echo out; echo err >&2; exit 3")
    assert (ran.returncode, ran.stdout) == (3, "out\nerr\n")
    task_id = cli("run", "--executor", "box", "--bg", "sleep 60").stdout.strip()
    assert "remote" in cli("tasks").stdout
    shown = cli("show", task_id).stdout
    assert "box" in shown
    assert "box" in cli("ps").stdout
    assert cli("kill", task_id).returncode == 0
    found = cli("doctor").stdout
    assert "executor box" in found
    assert "x86_64" in found or "aarch64" in found


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('[executors.bad]\nkind = "telnet"\n', "needs a kind"),
        ('[executors.bad]\nkind = "ssh"\n', "needs a host"),
        ('[executors.bad]\nkind = "ssh"\nhost = "-oProxyCommand=touch x"\n', "needs a host"),
        ('[executors.bad]\nkind = "ssh"\nhost = 5\n', "must be text"),
        ('[executors.bad]\nkind = "ssh"\nhost = "x"\nprot = 5\n', "no key 'prot'"),
        ('[executors.other]\nkind = "ssh"\nhost = "x"\n', "known are local, other"),
    ],
)
def test_wrong_settings_are_one_sentence(home: str, table: str, message: str) -> None:
    write_settings(home, table)
    with Shell.open(home=home) as shell:
        with pytest.raises(BadInput, match=message):
            shell.run("true", executor="bad")
        assert shell.run("echo here").output == "here\n"
        assert len(shell.list()) == 1


def test_what_cannot_be_had_there_is_refused(far: Bench) -> None:
    with pytest.raises(Unsupported, match="no sandbox on box"):
        far.run("true", sandbox=True)
    with pytest.raises(Unsupported, match="cannot wait for others"):
        far.start("true", after=[far.run("true").task_id])
    assert len(far.shell.list()) == 1


def test_a_machine_that_cannot_be_reached(sshd: Sshd, home: str) -> None:
    write_settings(home, sshd.settings(port=1))
    with Shell.open(home=home, session="s") as shell:
        with pytest.raises(OutlastError, match=r"box cannot be reached: .*refused"):
            shell.run("true", executor="box")
        assert shell.list() == []


def test_a_machine_without_a_guard_says_so(sshd: Sshd, home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write_settings(home, sshd.settings())
    monkeypatch.setattr("outlast.executors.ssh.executor.find_guards", lambda given: {"s390x": shutil.which("true")})
    with (
        Shell.open(home=home) as shell,
        pytest.raises(Unsupported, match=r"no guard for it here .*\[executors.box\]"),
    ):
        shell.run("true", executor="box")


def test_a_guard_that_is_damaged_there_is_copied_again(far: Bench, sshd: Sshd) -> None:
    far.run("true")
    guard = sshd.home / ".cache/outlast" / f"guard-{hash_program(find_guard())}"
    whole = guard.read_bytes()
    guard.unlink()  # a running one cannot be written to
    guard.write_bytes(whole[:1000])
    with far.open("another") as shell:
        assert shell.run("echo fine", executor="box").output == "fine\n"
    assert guard.read_bytes() == whole
    assert guard.stat().st_mode & 0o777 == 0o700


def test_nothing_of_a_command_stands_in_an_argument_list(far: Bench) -> None:
    task = far.start("sleep 60 # canary-in-arguments", env={"X": "canary-in-environment"})
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert "canary-in" not in listed
    assert far.shell.show(task.task_id).status == "running"


def test_a_session_has_a_state_of_its_own_there(far: Bench) -> None:
    far.shell.run("X=here")
    far.run("X=there")
    assert list(far.shell.sessions.names()) == ["bench", "bench@box"]
    assert far.shell.sessions.state("bench@box").variables["X"] == '"there"'
    assert far.shell.sessions.state().variables["X"] == '"here"'
    far.shell.sessions.reset("bench@box")
    assert far.run("echo [${X-}]").output == "[]\n"
    assert far.shell.run("echo $X").output == "here\n"
    with pytest.raises(BadInput):
        far.shell.sessions.state("other@box")
    far.shell.sessions.remove()
    assert list(far.shell.sessions.names()) == []


def test_many_looks_at_a_machine_that_does_not_answer_wait_once(
    sshd: Sshd, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_settings(home, sshd.settings(shared=False))
    with Shell.open(home=home, session="s") as shell:
        ids = [shell.start("exec sleep 300", executor="box").task_id for _ in range(5)]
    write_settings(home, sshd.settings(shared=False).replace("options = [", 'options = ["ProxyCommand=sleep 60", '))
    monkeypatch.setattr("outlast.executors.ssh.executor._LOOK_S", 0.6)
    with Shell.open(home=home, session="s") as shell:
        began = time.monotonic()
        found = [shell.show(task_id) for task_id in ids]
        took = time.monotonic() - began
    assert [(task.status, "does not answer" in (task.error or "")) for task in found] == [("running", True)] * 5
    assert 0.6 <= took < 2.0
    write_settings(home, sshd.settings())
    with Shell.open(home=home, session="s") as shell:
        end_all(shell)


def test_a_page_sees_what_becomes_of_a_task_there(far: Bench) -> None:
    """No process but the server looks at it."""
    release = far.scratch / "go"
    task = far.start(f"until [ -e {release} ]; do sleep 0.02; done; exit 7").task_id
    far.shell.close()
    with serving(far.home) as page, streaming(page, "/api/events") as overview:
        overview.until("hello")
        release.touch()
        ended = overview.until("tasks", lambda one: [t for t in one["changed"] if t["exit_code"] == 7])
        assert [(one["task_id"], one["executor"]) for one in ended["changed"]] == [(task, "box")]
    far.shell = far.open()
