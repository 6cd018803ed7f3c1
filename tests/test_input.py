"""A command's input: none, text, bytes, a file, or kept open and fed; and what of it stays on disk."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from outlast import Shell
from outlast.errors import AlreadyEnded, BadInput, InputRefused
from outlast.executors.local import stdin
from outlast.types import Stdin, Task
from tests.conftest import eventually
from tests.faults.support import dice

pytestmark = pytest.mark.plain_user  # a user without privileges meets other limits

OPEN = Stdin(open=True)
PIPE_BYTES = 64 * 1024


def directory_of(task: Task) -> str:
    return os.path.dirname(task.output_file)


def everything_below(directory: str) -> bytes:
    """Every byte in every plain file of a state directory."""
    found = b""
    for at, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(at, name)
            if os.path.isfile(path) and not os.path.islink(path):
                with open(path, "rb") as file:
                    found += file.read()
    return found


# --- given at the start --------------------------------------------------------------------


def test_there_is_no_input_by_default(shell):
    result = shell.run("cat; echo $?; [ -t 0 ] || echo no terminal")
    assert result.output == "0\nno terminal\n"


@pytest.mark.parametrize(
    ("stdin", "size"),
    [
        ("", 0),
        (b"", 0),
        ("text\n", 5),
        ("\u00e9", 2),
        (b"\x00\xff\n\x00", 4),
        ("no newline", 10),
        (b"x" * 1_000_000, 1_000_000),
        ("\udcff", 1),
    ],
    ids=["no text", "no bytes", "text", "accent", "binary", "no newline", "a megabyte", "a lone byte"],
)
def test_text_and_bytes_arrive_as_they_are(shell, tmp_path, stdin, size):
    result = shell.run(f"cat > {tmp_path}/got", stdin=stdin)
    assert result.exit_code == 0
    wanted = stdin if isinstance(stdin, bytes) else stdin.encode(errors="surrogateescape")
    assert (tmp_path / "got").read_bytes() == wanted
    assert len(wanted) == size


def test_what_is_not_read_of_a_text_is_no_error(shell):
    assert shell.run("head -c 3; exec true", stdin="x" * 1_000_000).output == "xxx"


def test_text_can_be_opened_again(shell):
    assert shell.run("cat /dev/stdin", stdin="again\n").output == "again\n"


def test_every_stage_shares_the_input(shell):
    assert shell.run("read -r a; read -r b; echo $b $a", stdin="1\n2\n").output == "2 1\n"


def test_a_file_is_read_from_where_the_command_runs(shell, tmp_path):
    (tmp_path / "in").write_bytes(b"from a file\n")
    assert shell.run("cat", stdin=Stdin(file="in"), cwd=tmp_path).output == "from a file\n"
    assert shell.run("cat", stdin=Stdin(file=str(tmp_path / "in"))).output == "from a file\n"
    assert shell.run("wc -c", stdin=Stdin(file="/dev/null")).output == "0\n"


def test_a_file_that_cannot_be_read_is_refused(shell, home, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, why in (("nowhere", "does not exist"), (".", "directory"), ("pipe", "pipe")):
        with pytest.raises(BadInput, match=why):
            shell.run("cat", stdin=Stdin(file=path), cwd=tmp_path)
    assert os.listdir(os.path.join(home, "tasks")) == []


# --- kept open -----------------------------------------------------------------------------


def test_an_open_input_is_fed_and_ended(shell):
    task = shell.start('while read -r line; do echo "got $line"; done; echo end', stdin=OPEN)
    shell.send(task.task_id, "one\n")
    eventually(lambda: shell.read(task.task_id).output == "got one\n")
    shell.send(task.task_id, b"two\nthr")
    shell.send(task.task_id, "ee\n")
    eventually(lambda: shell.read(task.task_id).output == "got one\ngot two\ngot three\n")
    assert shell.show(task.task_id).status == "running"
    shell.send(task.task_id, eof=True)
    assert shell.wait(task.task_id, timeout=30).exit_code == 0
    assert shell.read(task.task_id).output.endswith("end\n")


def test_the_last_text_and_the_end_can_be_sent_together(shell):
    task = shell.start("cat", stdin=OPEN)
    shell.send(task.task_id, "last words", eof=True)
    assert shell.wait(task.task_id, timeout=30).exit_code == 0
    assert shell.read(task.task_id).output == "last words"


def test_an_open_input_is_the_one_end_not_a_race(shell):
    """The command starts reading before anybody sent anything, and must not see an end."""
    task = shell.start("read -r line; echo $? $line", stdin=OPEN)
    eventually(lambda: shell.show(task.task_id).elapsed_ms > 200)
    shell.send(task.task_id, "late\n")
    assert shell.wait(task.task_id, timeout=30).exit_code == 0
    assert shell.read(task.task_id).output == "0 late\n"


def test_sending_nothing_is_nothing(shell):
    task = shell.start("cat", stdin=OPEN)
    shell.send(task.task_id)
    shell.send(task.task_id, "")
    assert shell.show(task.task_id).status == "running"
    shell.send(task.task_id, eof=True)
    assert shell.wait(task.task_id, timeout=30).exit_code == 0


def test_a_lot_of_input_goes_through_to_a_task_that_reads(shell):
    data = dice().randbytes(3_000_000)
    task = shell.start("sha256sum", stdin=OPEN)
    shell.send(task.task_id, data, eof=True)
    shell.wait(task.task_id, timeout=60)
    from hashlib import sha256

    assert shell.read(task.task_id).output.split()[0] == sha256(data).hexdigest()


def test_what_takes_no_input_says_so(shell):
    task = shell.start("sleep 60")
    with pytest.raises(InputRefused, match="takes no input"):
        shell.send(task.task_id, "x")
    texts = shell.start("sleep 60", stdin="given")
    with pytest.raises(InputRefused, match="takes no input"):
        shell.send(texts.task_id, eof=True)


def test_an_input_that_was_ended_takes_no_more(shell):
    task = shell.start("cat; sleep 60", stdin=OPEN)
    shell.send(task.task_id, eof=True)
    with pytest.raises(InputRefused, match="ended before"):
        shell.send(task.task_id, "more")


def test_a_task_that_ended_takes_no_more(shell):
    task = shell.start("exit 3", stdin=OPEN)
    shell.wait(task.task_id, timeout=30)
    with pytest.raises(AlreadyEnded, match="has ended"):
        shell.send(task.task_id, "more")
    with pytest.raises(AlreadyEnded):
        shell.send(task.task_id, eof=True)


def test_a_task_that_closed_its_input_refuses_it(shell):
    task = shell.start("exec 0<&-; echo closed; sleep 60", stdin=OPEN)
    eventually(lambda: shell.read(task.task_id).output)
    with pytest.raises(InputRefused, match="closed its input"):
        shell.send(task.task_id, "too late")


def test_a_task_that_closes_its_input_while_it_is_fed_refuses_the_rest(shell):
    task = shell.start("head -c 10 > /dev/null; exec 0<&-; sleep 60", stdin=OPEN)
    with pytest.raises(InputRefused, match="closed its input after"):
        shell.send(task.task_id, b"x" * (8 << 20))


@pytest.mark.parametrize("wrong", [5, None, ["x"], "\ud800"], ids=str)
def test_what_is_no_input_is_refused(shell, wrong):
    task = shell.start("cat", stdin=OPEN)
    with pytest.raises(BadInput):
        shell.send(task.task_id, wrong)
    assert shell.show(task.task_id).status == "running"


# --- to a task that does not read ----------------------------------------------------------


def flood(shell, task: Task, size: int, patience: float) -> None:
    """Send `size` bytes in pieces to a task that does not read: refused in time, with a reason, nothing grows."""
    piece = b"x" * min(size, 16 << 20)
    began = time.monotonic()
    for _ in range(0, size, len(piece)):
        with pytest.raises(InputRefused, match=r"does not read its input: \d+ of \d+ bytes were taken"):
            shell.send(task.task_id, piece)
    assert time.monotonic() - began < patience
    on_disk = sum(os.path.getsize(os.path.join(directory_of(task), name)) for name in os.listdir(directory_of(task)))
    assert on_disk < 1 << 20
    assert shell.show(task.task_id).status == "running"


def test_more_input_than_a_task_reads_is_refused_and_holds_nobody(shell, monkeypatch):
    monkeypatch.setattr(stdin, "INPUT_PATIENCE_S", 0.2)
    task, other = shell.start("sleep 60", stdin=OPEN), shell.start("cat", stdin=OPEN)
    flood(shell, task, size=10 << 20, patience=10)
    shell.send(other.task_id, "fine", eof=True)
    assert shell.wait(other.task_id, timeout=30).exit_code == 0
    receipt = shell.kill(task.task_id)
    assert (receipt.status, receipt.survivors) == ("killed", ())


def test_an_end_can_be_sent_to_a_task_that_does_not_read(shell, monkeypatch):
    monkeypatch.setattr(stdin, "INPUT_PATIENCE_S", 0.2)
    task = shell.start("sleep 0.8; wc -c", stdin=OPEN)
    with pytest.raises(InputRefused, match="does not read"):
        shell.send(task.task_id, b"x" * (1 << 20))
    shell.send(task.task_id, eof=True)
    assert shell.wait(task.task_id, timeout=30).exit_code == 0
    assert 0 < int(shell.read(task.task_id).output) <= 2 * PIPE_BYTES


def test_a_slow_reader_gets_everything(shell):
    task = shell.start("sleep 0.5; wc -c", stdin=OPEN)
    shell.send(task.task_id, b"x" * 500_000, eof=True)
    shell.wait(task.task_id, timeout=30)
    assert shell.read(task.task_id).output == "500000\n"


def test_many_send_at_once_and_no_line_is_torn(shell):
    task = shell.start("cat", stdin=OPEN)
    lines = [f"{n:04d}" * 100 + "\n" for n in range(100)]
    threads = [threading.Thread(target=shell.send, args=(task.task_id, line)) for line in lines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    shell.send(task.task_id, eof=True)
    shell.wait(task.task_id, timeout=30)
    with open(task.output_file) as file:
        assert sorted(file) == lines


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_gigabyte_of_input_to_a_task_that_does_not_read(shell):
    task = shell.start("sleep 600", stdin=OPEN)
    flood(shell, task, size=1 << 30, patience=300)
    shell.kill(task.task_id)


# --- what stays ----------------------------------------------------------------------------


def test_neither_environment_nor_input_stays_on_disk(shell, home):
    canaries = [b"canary-in-the-environment", b"canary-in-the-input"]
    env = {"TOKEN": canaries[0].decode()}
    task = shell.start("sleep 60; echo $TOKEN | wc -c; cat", env=env, stdin=canaries[1])
    assert not {"environ", "input"} & set(os.listdir(directory_of(task)))
    assert not any(canary in everything_below(home) for canary in canaries)
    shell.kill(task.task_id)
    assert not any(canary in everything_below(home) for canary in canaries)


def test_what_could_not_be_started_leaves_no_secret_either(shell, home, tmp_path):
    broken = tmp_path / "broken"
    broken.write_text("#!/nowhere\n")
    broken.chmod(0o755)
    result = shell.run("true", shell=str(broken), env={"TOKEN": "canary-one"}, stdin="canary-two")
    assert result.reason == "spawn-error"
    assert b"canary" not in everything_below(home)


def test_what_is_sent_stays_nowhere(shell, home):
    task = shell.start("cat > /dev/null", stdin=OPEN)
    shell.send(task.task_id, "canary-sent", eof=True)
    shell.wait(task.task_id, timeout=30)
    assert b"canary" not in everything_below(home)


def test_the_environment_of_our_processes_holds_no_secret(shell, monkeypatch):
    """Nor do the guards carry what the command was given."""
    monkeypatch.setenv("HOST_TOKEN", "canary-host")
    task = shell.start("sleep 60", env={"TOKEN": "canary-one"})
    from outlast.storage import record

    guards = record.guards_of(directory_of(task))
    for who in (guards.supervisor, guards.keeper):
        assert who is not None
        for name in ("environ", "cmdline"):
            with open(f"/proc/{who.pid}/{name}", "rb") as file:
                assert b"canary" not in file.read()


# --- input and what the program does with it ----------------------------------------------


def test_what_the_program_answers_is_waited_for(shell: Shell) -> None:
    task = shell.start('echo begin; while read line; do echo "got $line"; done', stdin=Stdin(open=True))
    shell.wait(task.task_id, timeout=30, until="begin")
    waited = shell.send_and_wait(task.task_id, "one\n", 30)
    assert waited.met
    assert shell.read(task.task_id).output == "begin\ngot one\n"
    assert shell.send_and_wait(task.task_id, eof=True, timeout=30).status == "completed"


def test_a_program_that_says_nothing_and_reads_on_has_reacted(shell: Shell, tmp_path: Path) -> None:
    task = shell.start(f"cat > {tmp_path}/file", stdin=Stdin(open=True))
    waited = shell.send_and_wait(task.task_id, "one\n", 30)
    assert (waited.met, waited.status) == (True, "running")
    assert (tmp_path / "file").read_text() == "one\n"


def test_a_program_that_sleeps_before_it_goes_on_is_waited_for(shell: Shell) -> None:
    task = shell.start("read a; echo thinking; sleep 0.6; echo next; read b", stdin=Stdin(open=True))
    shell.send_and_wait(task.task_id, "one\n", 30)
    assert shell.read(task.task_id).output == "thinking\nnext\n"


def test_only_a_line_after_the_input_counts(shell: Shell) -> None:
    task = shell.start("echo ready; read a; sleep 0.3; echo ready again; read b", stdin=Stdin(open=True))
    shell.wait(task.task_id, timeout=30, until="ready")
    waited = shell.send_and_wait(task.task_id, "one\n", 30, until="ready")
    assert waited.matched == "ready again"
    waited = shell.send_and_wait(task.task_id, "x", 0.05, until="never")
    assert not waited.met
