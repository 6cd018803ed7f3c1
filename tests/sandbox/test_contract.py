"""What holds in every sandbox, whoever makes it. Where it is quick, the same is done without one: it must then work."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from outlast import Sandbox, Shell
from outlast.errors import BadInput, StartFailed
from outlast.linux import process
from outlast.sandbox.choice import able
from outlast.types import BUBBLEWRAP, LANDLOCK, Stdin
from tests.conftest import eventually
from tests.faults.support import SOURCE, directory_of, guard, replace_guard
from tests.sandbox.support import BOTH, inside, python, server

pytestmark = pytest.mark.plain_user  # a user without privileges meets other limits


@pytest.fixture(params=BOTH)
def box(request, tmp_path, monkeypatch) -> Sandbox:
    """A sandbox of each kind, in a directory of the test's own."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return inside(request.param)


@pytest.fixture
def own(monkeypatch, tmp_path_factory) -> Path:
    """The home directory: writable for everybody who is not in a sandbox."""
    path: Path = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(path))
    (path / "notes").write_text("mine\n")
    return path


# --- files -------------------------------------------------------------------------------


def test_it_writes_to_its_directory_and_nowhere_else(shell, box, own, tmp_path):
    (tmp_path / "beside").mkdir()
    places = [own / "new", tmp_path / "beside" / "new", Path("/var/lib/outlast-test"), own / "notes"]
    for place in places[:2]:
        assert shell.run(f"echo x > {place}").exit_code == 0  # without a sandbox
        place.unlink()
    for place in places:
        result = shell.run(f"echo x > {place}", sandbox=box)
        assert result.exit_code == 1, (place, result.output)
        assert not place.exists() or place.read_text() == "mine\n"
    result = shell.run("mkdir d && echo x > d/f && mv d/f f && rmdir d && cat f && : > f", sandbox=box)
    assert (result.exit_code, result.output) == (0, "x\n")
    assert Path("f").read_text() == ""
    assert shell.run(f"rm {own}/notes", sandbox=box).exit_code == 1
    assert shell.run(f"mv {own}/notes {own}/gone", sandbox=box).exit_code == 1


def test_it_writes_to_directories_that_were_named(shell, box, tmp_path):
    named = tmp_path / "named"
    named.mkdir()
    wider = Sandbox(writable=(str(named),), kind=box.kind)
    assert shell.run(f"echo x > {named}/f", sandbox=box).exit_code == 1
    task = shell.run(f"echo x > {named}/f", sandbox=wider)
    assert task.exit_code == 0, task.output
    assert (named / "f").read_text() == "x\n"
    assert str(named) in task.sandbox
    assert task.sandbox.startswith(box.kind)


def test_changing_the_directory_does_not_make_another_one_writable(shell, box, own):
    assert shell.run(f"cd {own}", sandbox=box).exit_code == 0
    result = shell.run("pwd; echo x > new", sandbox=box)
    assert result.output.startswith(f"{own}\n")
    assert result.exit_code == 1
    assert not (own / "new").exists()


def test_all_else_can_be_read_and_run(shell, box, own):
    result = shell.run(
        f"cat {own}/notes; ls /usr/bin | grep -c . ; cat /etc/passwd > /dev/null && echo ok", sandbox=box
    )
    assert result.output.split()[0] == "mine"
    assert result.output.split()[-1] == "ok"
    assert int(result.output.split()[1]) > 100


def test_temporary_files_are_its_own_and_gone_afterwards(shell, box, tmp_path):
    result = shell.run('f=$(mktemp) && echo secret > "$f" && cat "$f" && echo "$f"; test -w "$TMPDIR"', sandbox=box)
    assert result.exit_code == 0, result.output
    secret, name = result.output.split()
    assert secret == "secret"
    assert shell.run(f"cat {name}", sandbox=box).exit_code == 1
    task = shell.wait(result.task_id)
    eventually(lambda: shell.show(task.task_id).closed)
    assert not os.path.exists(name)
    assert not list(Path("/tmp").glob(f"outlast-{task.task_id}*"))
    beside = tmp_path / "beside"
    beside.write_text("x")
    assert shell.run(f"cat {beside}").exit_code == 0
    assert shell.run(f"cat {beside}", sandbox=box).exit_code == 1  # in the machine's /tmp
    assert shell.run("echo $TMPDIR").output.strip() != os.path.dirname(name)  # nothing of it stays in the session


def test_devices_that_every_program_needs_are_there(shell, box):
    result = shell.run("echo x > /dev/null && head -c 3 /dev/zero | wc -c && echo e > /dev/stderr", sandbox=box)
    assert (result.exit_code, result.output) == (0, "3\ne\n")


# --- Outlast's own state ------------------------------------------------------------------


def test_the_state_directory_is_neither_read_nor_written(shell, box, home):
    Path(home, "config.toml").write_text("retention_hours = 2\n")
    secret = shell.run("echo secret")
    for command in (
        f"cat {home}/config.toml",
        f"cat {secret.output_file}",
        f"ls {home}/sessions/* | grep snapshot",
        f"echo 'policy = 1' > {home}/config.toml",
        f"echo x > {home}/new",
        f"rm {home}/config.toml",
        f"mv {home} {home}.gone",
        f"rm -rf {home}/tasks",
    ):
        result = shell.run(command, sandbox=box)
        assert result.exit_code != 0, (command, result.output)
        assert "secret" not in result.output
    assert shell.run(f"cat {home}/config.toml").output == "retention_hours = 2\n"
    assert shell.read(secret.task_id).output == "secret\n"
    assert os.listdir(home).count("new") == 0


def test_it_cannot_change_what_is_written_down_about_itself(shell, box, home):
    for name in ("command", "record", "launch.json", "output", "lock"):
        result = shell.run(f"echo x > {home}/tasks/$OUTLAST_TASK_ID/{name}; rm {home}/tasks/*/command", sandbox=box)
        assert result.exit_code == 1
        assert shell.show(result.task_id).command.startswith("echo x > ")


def test_a_session_left_among_temporary_files_goes_on(shell, box):
    assert shell.run(f'mkdir "$TMPDIR/d"; cd "$TMPDIR/d"; pwd > {os.getcwd()}/f', sandbox=box).exit_code == 0
    assert shell.run("cat f", cwd=os.getcwd(), sandbox=box).exit_code == 0
    assert shell.run("pwd", sandbox=box).exit_code == 0


def test_the_state_directory_cannot_be_the_place_to_work_in(shell, box, home):
    with pytest.raises(Exception, match="own state directory"):
        shell.run("true", cwd=home, sandbox=box)
    with pytest.raises(Exception, match="own state directory"):
        shell.run("true", sandbox=Sandbox(writable=(f"{home}/tasks",), kind=box.kind))
    with pytest.raises(Exception, match="may write to /"):
        shell.run("true", cwd="/", sandbox=box)
    assert [task.command for task in shell.list()] == []


def test_a_place_is_not_shown_because_a_command_wants_to_be_there(shell, box, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "secret").write_text("hunter2\n")
    assert shell.run(f"cd {other}").exit_code == 0  # without a sandbox; inside of one a command could pretend to it
    result = shell.run("pwd; cat secret", sandbox=box)
    assert (result.exit_code, result.output.splitlines()[0]) == (1, "/tmp")
    imposed = Sandbox(kind=box.kind)
    with (
        Shell.open(home=os.path.dirname(os.path.dirname(directory_of(result))), sandbox=imposed) as another,
        pytest.raises(BadInput, match="not to be seen in the sandbox"),
    ):
        another.run("cat secret", cwd=other)
    shell.run(f"cd {other}")
    shown = Sandbox(readable=(str(other),), kind=box.kind)
    result = shell.run("cat secret; echo x > new", sandbox=shown)
    assert (result.exit_code, result.output.split()[0]) == (1, "hunter2")


def test_its_input_is_not_a_way_into_the_state_directory(shell, box, home):
    Path(home, "config.toml").write_text("retention_hours = 2\n")
    Path("link").symlink_to(f"{home}/config.toml")
    for path in (f"{home}/config.toml", "link"):
        with pytest.raises(BadInput, match="own state directory"):
            shell.run("cat", stdin=Stdin(file=path), sandbox=box)


def test_a_directory_that_is_reached_by_a_link(shell, box, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "work")
    result = shell.run("echo x > f; cat f", cwd=tmp_path / "link", sandbox=box)
    assert (result.exit_code, result.output) == (0, "x\n")


def test_a_state_directory_inside_of_the_working_one_stays_protected(shell, box, home, monkeypatch):
    above = os.path.dirname(os.path.dirname(home))
    between = os.path.dirname(home)
    command = f"cat {home}/format || mv {between} {between}.away || mv {home} {home}.away || echo safe"
    if box.kind == LANDLOCK:
        with pytest.raises(Exception, match="Landlock cannot keep a command from it"):
            shell.run(command, cwd=between, sandbox=box)
        return
    result = shell.run(command, cwd=above, sandbox=box)
    assert result.output.endswith("safe\n")
    assert shell.run(f"echo x > {between}/f", cwd=above, sandbox=box).exit_code == 0
    assert os.path.exists(f"{home}/format")


# --- network and other processes ---------------------------------------------------------

_TCP = 'import socket; socket.create_connection(("127.0.0.1", {port}), 5).sendall(b"hello")'
_UDP = 'import socket; socket.socket(2, socket.SOCK_DGRAM).sendto(b"hello", ("127.0.0.1", {port}))'


@pytest.mark.parametrize("protocol", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_there_is_no_network_unless_it_is_allowed(shell, box, protocol):
    code = _TCP if protocol == socket.SOCK_STREAM else _UDP
    if not able(box.kind).program and protocol == socket.SOCK_DGRAM:
        pytest.skip("Landlock alone knows no UDP; docs/sandbox.md says so")
    with server(protocol) as (port, got):
        result = shell.run(python(code.format(port=port)), sandbox=box)
        assert result.exit_code != 0 or protocol == socket.SOCK_DGRAM  # nobody tells who sends to nowhere
        assert got == []
        allowed = Sandbox(network=True, kind=box.kind)
        result = shell.run(python(code.format(port=port)), sandbox=allowed)
        assert result.exit_code == 0, result.output
        eventually(lambda: got == [b"hello"])
    assert "no " not in result.sandbox


def test_sockets_within_the_sandbox_work(shell, box):
    pair = 'import socket; a, b = socket.socketpair(); a.send(b"x"); print(len(b.recv(1)))'
    assert shell.run(python(pair), sandbox=box).output == "1\n"
    named = 'import socket; s = socket.socket(socket.AF_UNIX); s.bind("own"); s.listen(); print("listens")'
    result = shell.run(python(named), sandbox=box)
    # Landlock cannot tell a socket of its own from one of the machine's services, so it has none but pairs.
    assert (result.output == "listens\n") is (box.kind == BUBBLEWRAP), result.output


def test_no_signal_reaches_a_process_outside(shell, box):
    with subprocess.Popen(["sleep", "300"]) as outside:
        # Only this one is aimed at: if the sandbox were broken, nobody else must come to harm.
        result = shell.run(f"kill -9 {outside.pid}; kill -0 {os.getpid()} && echo reached; echo done", sandbox=box)
        assert result.output.endswith("done\n")
        assert "reached" not in result.output
        assert outside.poll() is None
        assert shell.run(f"kill -9 {outside.pid}").exit_code == 0  # without a sandbox
        assert outside.wait(10) == -signal.SIGKILL


@pytest.mark.skipif(os.geteuid() != 0, reason="others may not do it anyway")
def test_root_changes_nothing_of_the_machine(shell, box):
    for command in (
        "x=$(cat /proc/sys/kernel/core_pattern) && echo $x > /proc/sys/kernel/core_pattern",
        "test -e /proc/sysrq-trigger && : >> /proc/sysrq-trigger",
        "mknod disk b 254 0",
        "mount -t tmpfs none .",
        "mkdir /sys/fs/cgroup/outlast-test || rmdir /sys/fs/cgroup/none",
    ):
        assert shell.run(command, sandbox=box).exit_code != 0, command
    assert int(shell.run("grep CapEff /proc/self/status", sandbox=box).output.split()[1], 16) == 0
    if box.kind == BUBBLEWRAP:  # of Landlock the file's permissions know nothing
        processes = "-path '/proc/[0-9]*' -prune -o -path /proc/self -prune -o -path /proc/thread-self -prune"
        found = shell.run(f"find /proc /sys {processes} -o -type f -writable -print 2>/dev/null", sandbox=box)
        assert found.output == ""


# --- the life of a task ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "code", "number", "pipes"),
    [
        ("exit 3", 3, None, (3,)),
        ("exit 137", 137, None, (137,)),
        ("kill -9 $$", None, 9, None),
        ("kill -TERM $$", None, 15, None),
        ("(exit 2) | (exit 4) | true", 0, None, (2, 4, 0)),
        ("sh -c 'kill -9 $$'", 137, None, (137,)),
        ("echo x | grep y", 1, None, (0, 1)),
    ],
)
@pytest.mark.parametrize("session", [False, True])
def test_how_it_ended_is_the_truth(shell, box, command, code, number, pipes, session):
    begun = shell.run(command, sandbox=box) if session else shell.start(command, sandbox=box)
    result = shell.wait(begun.task_id)
    assert (result.exit_code, result.signal, result.pipe_status) == (code, number, pipes)


def test_the_session_goes_on(shell, box):
    shell.run("x=1; export y=2; f() { echo f$x; }; alias ll='ls -l'; umask 027; a=(1 '2 3')", sandbox=box)
    result = shell.run("f; echo $y ${a[1]}; umask; alias ll; exit 3", sandbox=box)
    assert result.output == "f1\n2 2 3\n0027\nalias ll='ls -l'\n"
    shell.run("x=7; exit 5", sandbox=box)
    assert shell.run("f").output == "f7\n"
    background = shell.start("x=9; f", sandbox=box)
    shell.wait(background.task_id)
    assert shell.read(background.task_id).output == "f9\n"
    assert shell.run("f", sandbox=box).output == "f7\n"


def test_input_comes_in_every_way(shell, box, tmp_path):
    assert shell.run("cat", stdin="text\n", sandbox=box).output == "text\n"
    (tmp_path / "f").write_text("file\n")
    assert shell.run("cat", stdin=Stdin(file=str(tmp_path / "f")), sandbox=box).output == "file\n"
    task = shell.start("cat", stdin=Stdin(open=True), sandbox=box)
    shell.send(task.task_id, "later\n", eof=True)
    assert shell.wait(task.task_id, 30).exit_code == 0
    assert shell.read(task.task_id).output == "later\n"


def test_the_two_streams_are_apart(shell, box):
    result = shell.run("echo out; echo err >&2", split=True, sandbox=box)
    assert (result.stdout, result.stderr) == ("out\n", "err\n")


def test_another_shell(shell, box):
    result = shell.run("echo $TMPDIR > f; echo out; echo err >&2; exit 3", shell="sh", sandbox=box)
    assert (result.exit_code, result.output) == (3, "out\nerr\n")
    assert Path("f").exists()


def test_a_limit_ends_all_of_it(shell, box):
    result = shell.run("sleep 300 & setsid sleep 300 & sleep 300", limit=0.5, sandbox=box)
    assert (result.status, result.reason) == ("killed", "timeout")
    eventually(lambda: shell.show(result.task_id).closed)
    assert shell.show(result.task_id).children == ()


def test_a_kill_ends_all_of_it_whatever_it_did_to_escape(shell, box):
    stubborn = "(setsid sh -c 'trap \"\" TERM; while :; do sleep 0.1; done' &)"
    command = f"trap '' TERM; {stubborn}; env -i setsid sleep 300 & sleep 300"
    task = shell.start(command + "; echo on; sleep 300", sandbox=box)
    eventually(lambda: len(process.children_of(task.pid)) >= 2)
    receipt = shell.kill(task.task_id, grace=0.3)
    assert receipt.survivors == ()
    assert task.pid in receipt.ended
    assert len(receipt.ended) >= 4
    assert receipt.status == "killed"
    assert not any(process.stat_of(pid) for pid in receipt.ended if pid != task.pid)


def test_it_is_given_no_descriptor_but_its_own(shell, box):
    command = "ls /proc/self/fd"
    usual = shell.run(command).output
    assert shell.run(command, sandbox=box).output == usual == "0\n1\n2\n3\n"
    assert shell.run(command, sandbox=box, shell="sh").output == usual


_CHAIN = """
import os, time
while True:
    os.setsid()
    if os.fork():
        os._exit(0)
    time.sleep(0.002)
"""


def test_not_even_what_forks_all_the_time_escapes_from_a_namespace(home, tmp_path, monkeypatch):
    inside(BUBBLEWRAP)
    work = tmp_path / "work"
    work.mkdir()
    (work / "chain.py").write_text("import os\nif os.fork(): os._exit(0)\n" + _CHAIN)
    program = python("")[: -len(" -c ''")] + " chain.py"
    code = f"""
from outlast.linux import process
from outlast import Sandbox, Shell
with Shell.open(home={home!r}, prepare=False) as shell:
    task = shell.start({program!r} + "; sleep 300", sandbox=Sandbox(kind="bubblewrap"))
    first = {{stat.pid for stat in process.Table().by_pid.values() if "python" in stat.name}}
    while not {{stat.pid for stat in process.Table().by_pid.values() if "python" in stat.name}} - first:
        pass
    receipt = shell.kill(task.task_id, grace=0.2)
    left = [s for s in process.Table().by_pid.values() if s.name in ("sleep", "bwrap") and not s.dead]
    print(receipt.status, receipt.survivors, left)
"""
    env = {**os.environ, "PYTHONPATH": SOURCE}
    words = ["unshare", "-p", "-f", "--mount-proc", "--kill-child", sys.executable, "-c", code]
    if os.geteuid():
        words[1:1] = ["-U", "--map-current-user"]
    ran = subprocess.run(words, cwd=work, env=env, capture_output=True, text=True, timeout=60)
    assert ran.stdout == "killed () []\n", ran.stderr


def test_what_asks_to_end_gets_its_time(shell, box):
    task = shell.start("trap 'echo bye; exit 0' TERM; echo on; while :; do sleep 0.05; done", sandbox=box)
    eventually(lambda: "on" in shell.read(task.task_id).output)
    receipt = shell.kill(task.task_id, grace=20)
    assert (receipt.status, receipt.exit_code) == ("killed", 0)
    assert shell.read(task.task_id).output.endswith("bye\n")


def test_an_interrupt_is_the_commands_to_handle(shell, box):
    task = shell.start("trap 'echo caught; exit 4' INT; echo on; sleep 100", sandbox=box)
    eventually(lambda: "on" in shell.read(task.task_id).output)
    assert shell.executor.interrupt(task.task_id)
    assert shell.wait(task.task_id, 30).exit_code == 4


def test_what_it_leaves_behind_is_listed_captured_and_ended(shell, box):
    result = shell.run("(sleep 0.3; echo late; exec sleep 300) & echo early", sandbox=box)
    assert (result.exit_code, result.output) == (0, "early\n")
    eventually(lambda: shell.read(result.task_id).output == "early\nlate\n")
    left = eventually(lambda: [one for one in [shell.show(result.task_id).children] if len(one) == 1])[0]
    eventually(lambda: getattr(process.stat_of(left[0]), "name", "") == "sleep", what="it became another program")
    receipt = shell.kill(result.task_id, grace=0.2)
    assert left[0] in receipt.ended
    assert receipt.survivors == ()


@pytest.mark.parametrize("who", ["supervisor", "keeper"])
def test_it_outlives_either_guard(shell, box, who):
    task = shell.start("echo on; read line; echo $line; exit 6", stdin=Stdin(open=True), sandbox=box)
    eventually(lambda: shell.read(task.task_id).output == "on\n")
    replace_guard(task, who)
    shell.send(task.task_id, "still here\n")
    assert shell.wait(task.task_id, 30).exit_code == 6
    assert shell.read(task.task_id).output == "on\nstill here\n"


def test_one_after_the_other_is_in_a_sandbox_of_its_own(shell, box):
    tasks = [shell.run("echo $OUTLAST_TASK_ID", sandbox=box) for _ in range(4)]
    assert [one.output.strip() for one in tasks] == [one.task_id for one in tasks]
    plain = shell.run("echo x > $HOME/.outlast-test && rm $HOME/.outlast-test")
    assert (plain.exit_code, plain.sandbox) == (0, None)  # never one that was prepared for another


def test_a_pending_one_keeps_its_sandbox(home, box, own, monkeypatch):
    monkeypatch.setenv("OUTLAST_MAX_RUNNING", "1")
    with Shell.open(home=home) as shell:
        first = shell.start("read x", stdin=Stdin(open=True))
        second = shell.start(f"echo x > {own}/f || echo refused", sandbox=box)
        assert second.status == "pending"
        shell.send(first.task_id, "go\n")
        ended = shell.wait(second.task_id, 30)
    assert (ended.exit_code, (ended.sandbox or "").split(":")[0]) == (0, box.kind)
    assert not (own / "f").exists()


def test_a_shell_that_cannot_be_started_is_not_the_commands_failure(shell, box, tmp_path):
    broken = tmp_path / "work" / "broken"
    broken.write_text("#!/nowhere\n")
    broken.chmod(0o755)
    with pytest.raises(StartFailed, match="needs /nowhere"):
        shell.run("true", shell=str(broken), sandbox=box)
    assert shell.list() == []
    if box.kind == LANDLOCK:
        broken.write_bytes(b"\x7fELF and no more")
        task = shell.run("true", shell=str(broken), sandbox=box)
        assert (task.reason, task.exit_code) == ("spawn-error", None)
        assert "Exec format error" in (task.error or "")


def test_the_guards_are_not_confined(shell, box):
    task = shell.start("sleep 300", sandbox=box)
    assert process.is_alive(guard(task, "supervisor"))
    assert shell.kill(task.task_id, grace=1).survivors == ()
    assert "sandbox" in Path(directory_of(task), "launch.json").read_text()
