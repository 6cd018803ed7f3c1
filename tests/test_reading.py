"""Reading a task's output: cursors, each reader's place, tail, lines, streams, filters, and what a model sees."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from outlast import Shell
from outlast.errors import BadInput, BadPattern, ReaderBusy
from outlast.storage import reader_cursors
from outlast.storage.output import Source
from outlast.types import Cursor, Result, Stdin, Task
from tests.conftest import Cli, eventually

BUDGET = 30_000


def kept(shell: Shell, task: Task, stream: str = "stdout") -> bytes:
    """The bytes that are kept of a stream."""
    return b"".join(piece.data for piece in shell.executor.source(task.task_id, stream).chunks())


class Talker:
    """A task that prints what it is told to, and is then known to have printed it."""

    def __init__(self, shell: Shell, command: str = "cat", **how: Any) -> None:
        self._shell = shell
        self.task = shell.start(command, stdin=Stdin(open=True), **how)
        self.said = b""

    def say(self, data: bytes) -> None:
        self._shell.send(self.task.task_id, data)
        self.said += data
        eventually(lambda: kept(self._shell, self.task) == self.said, what="the words of a task")

    def end(self) -> Task:
        self._shell.send(self.task.task_id, eof=True)
        eventually(lambda: self._shell.show(self.task.task_id).closed)
        return self._shell.show(self.task.task_id)

    def new(self, **what: Any) -> Result:
        return self._shell.read(self.task.task_id, new=True, **what)


@pytest.fixture
def talker(shell: Shell) -> Talker:
    return Talker(shell)


# --- cursors -------------------------------------------------------------------------------


def test_reading_from_a_cursor_is_repeatable(shell: Shell) -> None:
    task = shell.run("seq 1 10")
    assert task.output == "".join(f"{n}\n" for n in range(1, 11))
    for _ in range(2):
        again = shell.read(task.task_id, cursor="4")
        assert again.output == "".join(f"{n}\n" for n in range(3, 11))
        assert again.cursor == task.cursor == "21"


def test_pieces_from_cursor_to_cursor_are_the_whole(shell: Shell, talker: Talker) -> None:
    cursor, text = "0", ""
    for words in (b"one\n", b"two ", b"three\nfour\n", b"", b"five"):
        talker.say(words)
        piece = shell.read(talker.task.task_id, cursor=cursor)
        text, cursor = text + piece.output, piece.cursor
    assert text.encode() == talker.said
    assert cursor == str(len(talker.said))


def test_nothing_is_beyond_the_end(shell: Shell) -> None:
    task = shell.run("echo hello")
    for cursor in (task.cursor, Cursor(6), "1000"):
        result = shell.read(task.task_id, cursor=cursor)
        assert (result.output, result.cursor, result.dropped_bytes) == ("", str(cursor), 0)


@pytest.mark.parametrize("cursor", ["x", "-1", "1;2", "", "1,2,3", "0x10"])
def test_a_cursor_that_nobody_handed_out_is_refused(shell: Shell, cursor: str) -> None:
    task = shell.run("echo hello")
    with pytest.raises(BadInput, match="is not a cursor"):
        shell.read(task.task_id, cursor=cursor)


def test_a_cursor_of_a_split_task_has_a_place_in_each_stream(shell: Shell) -> None:
    task = shell.run("echo out; echo error >&2", split=True)
    assert task.cursor == "4,6"
    result = shell.read(task.task_id, cursor="1,3")
    assert (result.stdout, result.stderr, result.output, result.cursor) == ("ut\n", "or\n", "ut\nor\n", "4,6")


# --- each reader's place -------------------------------------------------------------------


def test_what_is_new_is_read_once(talker: Talker) -> None:
    assert talker.new().output == ""
    talker.say(b"one\n")
    assert talker.new().output == "one\n"
    assert talker.new().output == ""
    talker.say(b"two\n")
    talker.say(b"three\n")
    assert talker.new().output == "two\nthree\n"


def test_each_reader_has_a_place_of_its_own(talker: Talker) -> None:
    talker.say(b"one\n")
    assert talker.new(reader="anna").output == "one\n"
    talker.say(b"two\n")
    assert talker.new(reader="anna").output == "two\n"
    assert talker.new(reader="otto").output == "one\ntwo\n"
    assert talker.new().output == "one\ntwo\n"


def test_other_reads_do_not_move_a_place(shell: Shell, talker: Talker) -> None:
    talker.say(b"one\n")
    shell.read(talker.task.task_id)
    shell.read(talker.task.task_id, tail=1)
    shell.read(talker.task.task_id, cursor="2")
    assert talker.new().output == "one\n"


def test_a_place_is_on_disk_and_outlives_the_reader(home: str, shell: Shell, talker: Talker) -> None:
    """Another process, under the same name, reads on where this one stopped."""
    code = (
        "import sys; from outlast import Shell\n"
        "with Shell.open(sys.argv[1]) as shell:\n"
        "    print(shell.read(sys.argv[2], new=True, reader='anna').output, end='')"
    )

    def elsewhere() -> str:
        words = [sys.executable, "-c", code, home, talker.task.task_id]
        return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout

    talker.say(b"one\n")
    assert elsewhere() == "one\n"
    talker.say(b"two\n")
    assert talker.new(reader="anna").output == "two\n"
    talker.say(b"three\n")
    assert elsewhere() == "three\n"
    assert elsewhere() == ""


def test_sessions_do_not_share_a_place(home: str, talker: Talker) -> None:
    talker.say(b"one\n")
    assert talker.new().output == "one\n"
    with Shell.open(home, session="other", operator=True) as other:
        assert other.read(talker.task.task_id, new=True).output == "one\n"


def test_what_is_new_of_one_stream_leaves_the_other_where_it_was(shell: Shell) -> None:
    task = shell.run("echo out; echo err >&2", split=True)
    assert shell.read(task.task_id, new=True, stream="stderr").output == "err\n"
    assert shell.read(task.task_id, new=True, stream="stderr").output == ""
    assert shell.read(task.task_id, new=True, stream="stdout").output == "out\n"
    both = shell.read(task.task_id, new=True)
    assert (both.stdout, both.stderr) == ("", "")
    assert shell.read(task.task_id, cursor="2,3", stream="stderr").cursor == "2,4"


def test_what_is_new_cannot_also_start_elsewhere(shell: Shell) -> None:
    task = shell.run("echo hello")
    for start in ({"cursor": "0"}, {"tail": 1}, {"lines": (1, 2)}):
        with pytest.raises(BadInput, match="new starts where the last read ended"):
            shell.read(task.task_id, new=True, **start)


@pytest.mark.parametrize(
    "text",
    ["é日😀\n" * 20, "\x1b[1;31mred\x1b[0m plain\x1b]0;title\x07 \x1b(Bend\x1b[K\n" * 5],
    ids=["characters", "sequences"],
)
def test_byte_by_byte_the_text_is_the_same(shell: Shell, talker: Talker, text: str) -> None:
    """No half character and no half escape sequence ever shows."""
    seen = ""
    for byte in text.encode():
        talker.say(bytes([byte]))
        seen += talker.new().output
    talker.end()
    seen += talker.new().output
    assert seen == shell.read(talker.task.task_id).output


def test_half_a_character_at_the_very_end_is_shown_as_invalid(talker: Talker) -> None:
    talker.say("é".encode()[:1])
    assert talker.new().output == ""
    talker.end()
    assert talker.new().output == "\ufffd"
    assert talker.new().output == ""


def test_an_escape_sequence_without_an_end_does_not_hide_what_follows(talker: Talker) -> None:
    for start in (b"\x1b]0;", b"\x1b["):
        talker.new()
        talker.say(start)
        talker.new()
        talker.say(b"x" * 10_000 + b"\n" + b"after\n")
        assert talker.new().output.endswith("after\n")


# --- parts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["", "\n", "\n\n", "rest"])
def test_the_last_lines(shell: Shell, ending: str) -> None:
    task = shell.run(f"seq 1 50; printf '{ending}'")
    lines = task.output.splitlines(keepends=True)
    for count in (0, 1, 2, 10, 50, 51, 1000):
        result = shell.read(task.task_id, tail=count)
        assert result.output == "".join(lines[-count:] if count else [])
        assert result.cursor == task.cursor


def test_the_last_lines_of_a_task_that_goes_on_printing_are_as_many_as_asked_for(shell: Shell) -> None:
    task = shell.start("while :; do echo line; done")
    eventually(lambda: len(kept(shell, task)) > 100_000)
    for count in (1, 7, 100):
        assert shell.read(task.task_id, tail=count).output.count("\n") in (count - 1, count)


def test_the_last_lines_are_those_of_one_moment(shell: Shell, talker: Talker, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes between two looks at the files neither hides the lines nor adds to them."""
    talker.say(b"one\ntwo\nthree\n")
    look = Source.end

    def look_and_go_on(source: Source) -> int:
        end = look(source)
        monkeypatch.undo()
        talker.say(b"late\n" * 5)
        return end

    monkeypatch.setattr(Source, "end", look_and_go_on)
    assert shell.read(talker.task.task_id, tail=2).output == "two\nthree\n"


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [((1, 1), "1\n"), ((3, 5), "3\n4\n5\n"), ((9, None), "9\n10\n"), ((10, 99), "10\n"), ((11, 12), "")],
)
def test_a_range_of_lines(shell: Shell, lines: tuple[int, int | None], wanted: str) -> None:
    task = shell.run("seq 1 10")
    assert shell.read(task.task_id, lines=lines).output == wanted


@pytest.mark.parametrize("lines", [(0, 1), (3, 2), (-1, None)])
def test_what_is_no_range_is_refused(shell: Shell, lines: tuple[int, int | None]) -> None:
    task = shell.run("seq 1 10")
    with pytest.raises(BadInput, match="are no range"):
        shell.read(task.task_id, lines=lines)


def test_only_one_thing_can_say_where_to_start(shell: Shell) -> None:
    task = shell.run("seq 1 10")
    for start in ({"cursor": "1", "tail": 1}, {"tail": 1, "lines": (1, 2)}, {"cursor": "1", "lines": (1, 2)}):
        with pytest.raises(BadInput, match="Only one of"):
            shell.read(task.task_id, **start)
    with pytest.raises(BadInput, match="0 or more"):
        shell.read(task.task_id, tail=-1)


def test_streams_of_a_split_task(shell: Shell) -> None:
    task = shell.run("echo out; echo err >&2; printf end", split=True)
    assert (task.stdout, task.stderr, task.output) == ("out\nend", "err\n", "out\nend\nerr\n")
    only = shell.read(task.task_id, stream="stderr")
    assert (only.output, only.stdout, only.stderr) == ("err\n", None, "err\n")
    assert shell.read(task.task_id, stream="stdout", tail=1).output == "end"


def test_streams_that_are_not_there_are_refused(shell: Shell) -> None:
    task = shell.run("echo out; echo err >&2")
    assert (task.stdout, task.stderr) == (None, None)
    with pytest.raises(BadInput, match="without --split"):
        shell.read(task.task_id, stream="stderr")
    with pytest.raises(BadInput, match="no stream 'stdin'"):
        shell.read(task.task_id, stream="stdin")  # type: ignore[arg-type]
    assert shell.read(task.task_id, stream="stdout").output == "out\nerr\n"


# --- filters -------------------------------------------------------------------------------


def test_filter_and_exclude(shell: Shell) -> None:
    task = shell.run("printf 'error one\\nwarning two\\nfine\\nERROR three\\nerror: ignored\\n'")
    result = shell.read(task.task_id, filter="error|warn")
    assert result.output == "error one\nwarning two\nerror: ignored\n"
    assert result.hidden_lines == 2
    result = shell.read(task.task_id, filter="error", exclude="ignored$", ignore_case=True)
    assert (result.output, result.hidden_lines) == ("error one\nERROR three\n", 3)
    result = shell.read(task.task_id, exclude="^[a-z]")
    assert (result.output, result.hidden_lines) == ("ERROR three\n", 4)


def test_what_was_not_matched_is_not_lost(shell: Shell) -> None:
    task = shell.run("seq 1 10")
    result = shell.read(task.task_id, filter="^1$", new=True)
    assert (result.output, result.hidden_lines, result.cursor) == ("1\n", 9, task.cursor)
    assert shell.read(task.task_id, cursor="2").output == "".join(f"{n}\n" for n in range(2, 11))


@pytest.mark.parametrize(("option", "pattern"), [("filter", "a("), ("exclude", "[z-a]"), ("filter", r"(?=look)")])
def test_a_bad_pattern_is_told(shell: Shell, option: str, pattern: str) -> None:
    task = shell.run("echo abc")
    what: dict[str, Any] = {option: pattern}
    with pytest.raises(BadPattern) as caught:
        shell.read(task.task_id, new=True, **what)
    assert pattern in caught.value.message
    assert caught.value.code == "bad-pattern"
    assert shell.read(task.task_id, new=True).output == "abc\n", "a refused read moved the place"


def test_a_line_that_is_still_being_printed_is_matched_when_it_is_whole(talker: Talker) -> None:
    talker.say(b"fine\nerr")
    result = talker.new(filter="error")
    assert (result.output, result.hidden_lines) == ("", 1)
    talker.say(b"or: it failed\nfine ag")
    result = talker.new(filter="error")
    assert (result.output, result.hidden_lines) == ("error: it failed\n", 0)
    talker.say(b"ain, error")
    talker.end()
    assert talker.new(filter="error").output == "fine again, error"


def test_filters_see_the_text_that_a_model_sees(shell: Shell) -> None:
    task = shell.run(r"printf '\033[31mred\033[0m alert\n10%%\r20%%\rdone\n'")
    assert shell.read(task.task_id, filter="^red alert$|^done$").output == "red alert\ndone\n"


# --- what a model sees ---------------------------------------------------------------------


def test_text_is_cleaned(shell: Shell) -> None:
    task = shell.run(r"printf '\033[1;32mgreen\033[0m\n'; printf '1%%\r50%%\r100%%\n'; printf 'bad \xff byte\n\0nul\n'")
    assert task.output == "green\n100%\nbad \ufffd byte\nnul\n"
    assert Path(task.output_file).read_bytes().startswith(b"\x1b[1;32mgreen"), "the file has it as it was printed"


def test_exactly_the_budget_is_shown_whole(shell: Shell) -> None:
    task = shell.run(f"head -c {BUDGET} /dev/zero | tr '\\0' x")
    assert (len(task.output), task.truncated) == (BUDGET, False)


def test_past_the_budget_head_and_tail_are_shown(shell: Shell) -> None:
    task = shell.run("seq 1 20000")
    whole = kept(shell, task).decode()
    head, marker, tail = task.output.partition("[...")
    marker, _, tail = tail.partition("...]\n")
    assert task.truncated
    assert BUDGET - 1000 < len(task.output) <= BUDGET
    assert whole.startswith(head)
    assert whole.endswith(tail)
    assert len(head) > BUDGET * 0.4
    assert len(tail) > BUDGET * 0.4
    left_out = int(marker.split()[0].replace(",", ""))
    assert left_out == len(whole) - len(head) - len(tail)
    assert task.output_file in marker
    assert task.dropped_bytes == 0


def test_a_split_task_shares_the_budget(shell: Shell) -> None:
    task = shell.run("seq 1 20000; seq 1 20000 >&2", split=True)
    assert task.stdout is not None
    assert task.stderr is not None
    assert len(task.stdout) <= BUDGET // 2
    assert len(task.stderr) <= BUDGET // 2
    assert task.truncated


def test_a_smaller_budget_can_be_asked_for(shell: Shell) -> None:
    task = shell.run("seq 1 2000")
    result = shell.read(task.task_id, max_chars=500)
    assert len(result.output) <= 500
    assert result.output.startswith("1\n")
    assert result.output.endswith("2000\n")


def test_every_reply_says_how_it_stands(shell: Shell) -> None:
    names = ("elapsed_ms", "truncated", "exit_code", "status", "error")
    ended = shell.run("exit 3")
    assert [getattr(ended, name) for name in names[1:]] == [False, 3, "failed", None]
    task = shell.start("sleep 60")
    running = shell.read(task.task_id)
    assert [getattr(running, name) for name in names[1:]] == [False, None, "running", None]
    eventually(lambda: shell.read(task.task_id).elapsed_ms > running.elapsed_ms)


# --- the command line ----------------------------------------------------------------------


def test_logs_in_all_its_forms(cli: Cli) -> None:
    task_id = cli("run", "--bg", "seq 1 10; echo err >&2", check=0).stdout.strip()
    cli("wait", task_id, check=0)
    whole = "".join(f"{n}\n" for n in range(1, 11)) + "err\n"
    assert cli("logs", task_id, check=0).stdout == whole
    assert cli("logs", "--tail", "2", task_id, check=0).stdout == "10\nerr\n"
    assert cli("logs", "--lines", "2:3", task_id, check=0).stdout == "2\n3\n"
    assert cli("logs", "--lines", ":2", task_id, check=0).stdout == "1\n2\n"
    assert cli("logs", "--lines", "11", task_id, check=0).stdout == "err\n"
    assert cli("logs", "--from", "21", task_id, check=0).stdout == "err\n"
    assert cli("logs", "--new", task_id, check=0).stdout == whole
    assert cli("logs", "--new", task_id, check=0).stdout == ""
    assert cli("logs", "-f", task_id, check=0).stdout == whole
    filtered = cli("logs", "--filter", "^1", "--exclude", "0", task_id, check=0)
    assert (filtered.stdout, filtered.stderr) == ("1\n", "[outlast: 10 lines are not shown]\n")
    assert cli("logs", "--filter", "(", task_id, check=2).stderr.startswith("outlast: The pattern '('")


def test_logs_as_json(cli: Cli) -> None:
    task = json.loads(cli("run", "--json", "--split", "echo out; echo err >&2; exit 3", check=3).stdout)
    result = cli.json("logs", task["task_id"])
    wanted = {"stdout": "out\n", "stderr": "err\n", "output": "out\nerr\n", "truncated": False, "cursor": "4,4"}
    assert {name: result[name] for name in wanted} == wanted
    assert (result["exit_code"], result["status"], result["error"]) == (3, "failed", None)
    assert result["elapsed_ms"] >= 0
    assert cli.json("logs", "--stream", "stderr", task["task_id"])["output"] == "err\n"
    assert cli.json("logs", "--from", result["cursor"], task["task_id"])["output"] == ""
    refused = json.loads(cli("logs", "--json", "--filter", "[", task["task_id"], check=2).stdout)
    assert refused["error"] == "bad-pattern"


def test_raw_logs_are_the_bytes(cli: Cli) -> None:
    command = r"printf '\033[31m\xff\0\r\n'; printf 'e\xff' >&2"
    task_id = cli("run", "--bg", "--split", command, check=0).stdout.strip()
    cli("wait", task_id, check=0)
    raw = subprocess.run([*cli.command, "logs", "--raw", task_id], env=cli.env, capture_output=True, timeout=60)
    assert (raw.stdout, raw.stderr) == (b"\033[31m\xff\0\r\n", b"e\xff")


def test_logs_new_keeps_half_a_character_and_half_a_line_for_the_next_time(cli: Cli, home: str) -> None:
    with Shell.open(home) as shell:
        talker = Talker(shell)
        talker.say(b"fine\ncaf" + "é".encode()[:1])
        assert cli("logs", "--new", talker.task.task_id, check=0).stdout == "fine\ncaf"
        talker.say("é".encode()[1:] + b"\nerr")
        assert cli("logs", "--new", talker.task.task_id, check=0).stdout == "é\nerr"
        talker.say(b"or\nerr")
        assert cli("logs", "--new", "--filter", "^or", talker.task.task_id, check=0).stdout == "or\n"
        talker.say(b"or!\n")
        assert cli("logs", "--new", "--filter", "error", talker.task.task_id, check=0).stdout == "error!\n"
        talker.end()


def test_logs_follow_a_task_as_it_prints(cli: Cli, home: str) -> None:
    with Shell.open(home) as shell:
        talker = Talker(shell)
        follower = cli.start("logs", "-f", talker.task.task_id)
        assert follower.stdout is not None
        try:
            for words in (b"one\n", b"two\n"):
                talker.say(words)
                assert follower.stdout.readline() == words
            talker.end()
            assert follower.wait(30) == 0
            assert follower.stdout.read() == b""
        finally:
            follower.kill()
            follower.communicate()


def test_a_follower_learns_of_new_output_at_once(shell: Shell, talker: Talker) -> None:
    """By event: most of the time it takes a millisecond or two."""
    stream = shell.follow(talker.task.task_id, timeout=60)
    waits = []
    for number in range(20):
        said = time.monotonic()
        shell.send(talker.task.task_id, f"{number}\n".encode())
        assert next(stream).data == b"%d\n" % number
        waits.append(time.monotonic() - said)
    assert sorted(waits)[10] < 0.2


# --- several readers of one name -----------------------------------------------------------


def test_two_threads_that_read_as_one_reader_get_each_line_once(shell: Shell) -> None:
    task = shell.start("for i in $(seq 3000); do echo $i; done")
    seen: list[str] = []

    def read() -> None:
        while True:
            closed = shell.show(task.task_id).closed
            seen.extend(shell.read(task.task_id, new=True, reader="both").output.splitlines())
            if closed:
                return

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    # A line that was half printed is read in two parts.
    assert sum(map(len, seen)) == sum(len(str(number)) for number in range(1, 3001))


def test_command_lines_that_read_what_is_new_at_once_get_each_line_once(cli: Cli, tmp_path: Path) -> None:
    count, rounds = 30_000, 6
    task_id = cli("run", "--bg", f"seq -f line-%.0f- {count}", check=0).stdout.strip()
    cli("wait", task_id, check=0)
    files = [tmp_path / str(number) for number in range(rounds)]
    readers = [cli.start("logs", "--new", task_id, stdout=file.open("wb")) for file in files]
    assert [reader.wait(60) for reader in readers] == [0] * rounds
    assert b"".join(file.read_bytes() for file in files).split() == [
        b"line-%d-" % number for number in range(1, count + 1)
    ]


def test_a_reader_that_another_one_holds_up_says_so(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    task_id = cli("run", "--bg", "--stdin", "open", "echo begun; read -r line", check=0).stdout.strip()
    follower = cli.start("logs", "-f", "--new", task_id)
    assert follower.stdout is not None
    assert follower.stdout.readline() == b"begun\n"
    monkeypatch.setattr(reader_cursors, "LOCK_TIMEOUT_S", 0.1)
    with Shell.open(home=cli.env["OUTLAST_HOME"]) as shell:
        with pytest.raises(ReaderBusy, match="another process is reading"):
            shell.read(task_id, new=True, reader="command line")
        shell.send(task_id, "\n")
        assert follower.wait(60) == 0
        assert shell.read(task_id, new=True, reader="command line").output == ""
    follower.communicate()
