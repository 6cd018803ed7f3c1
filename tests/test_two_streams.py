"""Both streams of a split task as one text, in the order they came; and a command without a shell."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from outlast import Shell
from outlast.errors import BadInput, StartFailed
from outlast.output.text_stream import MARKS
from outlast.storage.output import ORDER, ORDER_BYTES, read_order
from outlast.types import NO_SHELL
from tests.guard_files import Order

ALTERNATING = "for n in 1 2 3; do echo out $n; sleep 0.05; echo err $n >&2; sleep 0.05; done; printf end"


def test_in_the_order_they_came(shell: Shell) -> None:
    task_id = shell.run(ALTERNATING, split=True).task_id
    both = shell.read(task_id, interleaved=True)
    assert both.output == "out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\nend\n"
    assert (both.stdout, both.stderr) == ("out 1\nout 2\nout 3\nend", "err 1\nerr 2\nerr 3\n")


def test_without_a_note_of_the_order_one_comes_after_the_other(shell: Shell) -> None:
    task = shell.run(ALTERNATING, split=True)
    os.unlink(os.path.join(os.path.dirname(task.output_file), ORDER))
    both = shell.read(task.task_id, interleaved=True).output
    assert both == "out 1\nout 2\nout 3\nerr 1\nerr 2\nerr 3\nend\n"


def test_one_stream_is_as_it_was(shell: Shell) -> None:
    task = shell.run("echo a; echo b >&2")
    assert shell.read(task.task_id, interleaved=True).output == "a\nb\n"
    assert not os.path.exists(os.path.join(os.path.dirname(task.output_file), ORDER))


def test_what_selects_a_part_is_refused(shell: Shell) -> None:
    task_id = shell.run("echo a", split=True).task_id
    with pytest.raises(BadInput, match="shown whole"):
        shell.read(task_id, interleaved=True, filter="a")


def test_the_order_on_disk_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written = Order()
    for number in range(1, 10_000):
        written.came("stdout", number)
        written.came("stderr", number)
    assert (tmp_path / ORDER).stat().st_size == ORDER_BYTES
    ends = {"stdout": 9_999, "stderr": 9_999}
    found = read_order(str(tmp_path), ends)
    assert found[:3] == [("stdout", 1), ("stderr", 1), ("stdout", 2)]
    assert sorted(found[-2:]) == [("stderr", 9_999), ("stdout", 9_999)]


def test_a_successor_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for start in (0, 10):
        written = Order()
        written.came("stdout", start + 1)
        written.came("stderr", start + 2)
        written.came("stdout", start + 3)
    found = read_order(str(tmp_path), {"stdout": 13, "stderr": 12})
    assert found == [("stdout", 1), ("stderr", 2), ("stdout", 11), ("stderr", 12), ("stdout", 13), ("stderr", 12)]


def test_our_lines_in_a_text_are_marked(shell: Shell) -> None:
    task = shell.run(
        "seq 1000; printf '\\036[... 1 character left out ...]\\037'", show={"marked": True, "max_chars": 400}
    )
    before, after = MARKS
    assert task.output.count(before) == task.output.count(after) == 1
    assert task.output.partition(before)[2].partition(after)[0].startswith("[... ")
    assert len(task.output) <= 400
    assert before not in shell.read(task.task_id, max_chars=400).output


# --- no shell ----------------------------------------------------------------------------


def test_words_go_to_the_system_as_they_are(shell: Shell) -> None:
    shell.run("echo() { builtin echo function; }; export -f echo; A=1; export B=2")
    words = ["printf", "%s|", "a b", "$A", "*", "'", "", "ä\n"]
    assert shell.run(shlex.join(words), shell=NO_SHELL).output == "a b|$A|*|'||ä\n|"
    assert shell.run("env", shell=NO_SHELL).output.splitlines().count("B=2") == 1


def test_a_program_that_is_not_there(shell: Shell) -> None:
    with pytest.raises(StartFailed, match="No such file"):
        shell.run("nosuchprogram", shell=NO_SHELL)
    assert not shell.list()
    with pytest.raises(BadInput, match="close the quotes"):
        shell.run("echo 'open", shell=NO_SHELL)


def test_what_no_shell_reads_is_shown_as_it_was_understood(shell: Shell) -> None:
    """A word that a shell would take for a comment is a word: whoever judges it sees it as one."""
    result = shell.run("echo a # b $HOME;c", shell=NO_SHELL)
    assert result.output == "a # b $HOME;c\n"
    assert result.command == "echo a '#' b '$HOME;c'"


def test_how_long_a_command_usually_takes(shell: Shell) -> None:
    assert shell.reader.usual("sleep 0.1") is None
    for command in ("sleep 0.1", "sleep 0.1", "sleep 0.1; false", 'echo \'"command":"sleep 0.1","description":\''):
        shell.run(command, description='"command":"sleep 0.1","description":')
    usual = shell.reader.usual("sleep 0.1")
    assert usual is not None
    assert usual.runs == 2
    assert 100 <= usual.elapsed_ms < 5000
    assert shell.reader.usual("sleep 0.1; false") is None  # it did not go well


def test_the_newest_are_kept(shell: Shell) -> None:
    running = shell.start("sleep 60")
    foreground = shell.run("true")
    done = [shell.start(f"echo {number}") for number in range(4)]
    for task in (foreground, *done):
        shell.control._await_closed(task.task_id)
    others = [foreground.task_id, running.task_id]  # the one is not counted, the other is never removed
    assert shell.control.keep_newest(3) == 2
    assert [task.task_id for task in shell.list()] == [done[3].task_id, done[2].task_id, *others]
    assert shell.control.keep_newest(0) == 2
    assert [task.task_id for task in shell.list()] == others
