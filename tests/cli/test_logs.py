"""`outlast logs`: all of it, a part of it, what is new, or as it comes."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli import ran
from tests.conftest import Cli, eventually

PRINTS = r"printf 'one\ntwo error\n\033[31mthree\033[0m\nfour Error\nfive'"


@pytest.fixture(autouse=True)
def _as_usual(cli: Cli) -> None:
    """What is not flushed is not seen, unless the environment says otherwise."""
    cli.env.pop("PYTHONUNBUFFERED", None)


@pytest.fixture
def done(cli: Cli) -> str:
    """A finished task that printed five lines, the third in red and the last without an end."""
    return str(ran(cli, PRINTS)["task_id"])


@pytest.fixture
def apart(cli: Cli) -> str:
    """A finished task whose streams were kept apart."""
    return str(ran(cli, "--split", "echo out1; echo err1 >&2; echo out2; echo err2 >&2")["task_id"])


PARTS: list[tuple[list[str], str]] = [
    ([], "one\ntwo error\nthree\nfour Error\nfive"),
    (["--tail", "2"], "four Error\nfive"),
    (["--tail", "0"], ""),
    (["--tail", "100"], "one\ntwo error\nthree\nfour Error\nfive"),
    (["--lines", "2:3"], "two error\nthree\n"),
    (["--lines", "4:"], "four Error\nfive"),
    (["--lines", ":2"], "one\ntwo error\n"),
    (["--lines", "3"], "three\n"),
    (["--lines", "9:"], ""),
    (["--filter", "error"], "two error\n"),
    (["--filter", "error", "-i"], "two error\nfour Error\n"),
    (["--filter", "^(one|three)$"], "one\nthree\n"),
    (["--exclude", "o"], "three\nfive"),
    (["--filter", "r", "--exclude", "err"], "three\nfour Error\n"),
    (["--from", "4"], "two error\nthree\nfour Error\nfive"),
    (["--from", "1000"], ""),
    (["--stream", "stdout"], "one\ntwo error\nthree\nfour Error\nfive"),
    (["--raw"], "one\ntwo error\n\x1b[31mthree\x1b[0m\nfour Error\nfive"),
    (["--raw", "--tail", "1"], "five"),
    (["-f"], "one\ntwo error\nthree\nfour Error\nfive"),
    (["-f", "--tail", "1"], "five"),
]


def test_the_part_that_was_asked_for(cli: Cli, done: str) -> None:
    for options, shown in PARTS:
        assert cli("logs", *options, done, check=0).stdout == shown, options


def test_options_may_follow_the_id_and_a_part_of_it_is_enough(cli: Cli, done: str) -> None:
    assert cli("logs", done.removeprefix("bash-")[:6], "--tail", "1", check=0).stdout == "five"


def test_lines_that_are_not_shown_are_counted(cli: Cli, done: str) -> None:
    assert cli("logs", "--filter", "error", done).stderr == "[outlast: 4 lines are not shown]\n"
    assert cli("logs", done).stderr == ""


def test_json_gives_the_next_cursor(cli: Cli, done: str) -> None:
    first = cli.json("logs", done, "--lines", "1:2")
    assert first["output"] == "one\ntwo error\n"
    assert cli.json("logs", done, "--from", first["cursor"])["output"] == ""
    rest = cli.json("logs", done, "--from", "4", "--filter", "five")
    assert (rest["output"], rest["hidden_lines"], rest["truncated"], rest["status"]) == ("five", 3, False, "completed")


def test_json_of_a_long_output_is_cut_in_the_middle(cli: Cli) -> None:
    task = ran(cli, "seq 100000")
    shown = cli.json("logs", task["task_id"])
    assert shown["truncated"]
    assert len(shown["output"]) <= 30_000
    assert shown["output"].startswith("1\n2\n")
    assert shown["output"].endswith("\n99999\n100000\n")
    assert task["output_file"] in shown["output"], "it says where the whole is"
    assert cli("logs", task["task_id"]).stdout == "".join(f"{n}\n" for n in range(1, 100_001)), "people get all of it"


def test_streams_go_where_they_belong(cli: Cli, apart: str) -> None:
    shown = cli("logs", apart, check=0)
    assert (shown.stdout, shown.stderr) == ("out1\nout2\n", "err1\nerr2\n")


@pytest.mark.parametrize("options", [[], ["--raw"], ["-f"]])
def test_a_stream_that_was_asked_for_alone_can_be_piped(cli: Cli, apart: str, options: list[str]) -> None:
    shown = cli("logs", "--stream", "stderr", *options, apart, check=0)
    assert (shown.stdout, shown.stderr) == ("err1\nerr2\n", "")
    assert cli("logs", "--stream", "stdout", *options, apart).stdout == "out1\nout2\n"


def test_bytes_are_given_back_as_they_were_printed(cli: Cli, tmp_path: Path) -> None:
    data = bytes(range(256)) * 3000
    (tmp_path / "data").write_bytes(data)
    task_id = ran(cli, f"cat {tmp_path}/data")["task_id"]
    shown = subprocess.run([*cli.command, "logs", "--raw", task_id], env=cli.env, capture_output=True, timeout=60)
    assert shown.stdout == data


def test_what_was_dropped_is_said_where_it_was(cli: Cli) -> None:
    cli.env["OUTLAST_OUTPUT_LIMIT_BYTES"] = "20000"
    task_id = ran(cli, "seq 10000")["task_id"]
    shown = cli("logs", task_id).stdout
    assert shown.startswith("1\n2\n")
    assert shown.endswith("\n10000\n")
    head, said, tail = shown.partition("\n[outlast: ")
    dropped = int(said and tail.split()[0])
    text = "".join(f"{n}\n" for n in range(1, 10_001))
    kept = tail.partition("bytes were dropped here]\n")[2]
    assert (head, kept) == (text[: len(head)], text[len(head) + dropped :])


# --- what is new -------------------------------------------------------------------------


@pytest.fixture
def talker(cli: Cli, tmp_path: Path) -> Path:
    """A running task that prints whatever is written to its pipe; its id is in `talker.name`."""
    pipe = tmp_path / "say"
    os.mkfifo(pipe)
    command = (
        f'exec 3<>{shlex.quote(str(pipe))}; while read -r line <&3; do [ "$line" = bye ] && exit; echo "$line"; done'
    )
    task_id = cli("run", "--bg", command, check=0).stdout.strip()
    (tmp_path / task_id).touch()
    return tmp_path / task_id


def say(talker: Path, text: str) -> None:
    with open(talker.parent / "say", "w") as file:
        file.write(f"{text}\n")


def test_what_is_new_is_shown_once(cli: Cli, talker: Path) -> None:
    task_id = talker.name
    say(talker, "one")
    eventually(lambda: cli("logs", task_id).stdout == "one\n")
    assert cli("logs", "--new", task_id).stdout == "one\n"
    assert cli("logs", "--new", task_id).stdout == ""
    say(talker, "two")
    eventually(lambda: cli("logs", task_id).stdout == "one\ntwo\n")
    assert cli.json("logs", "--new", task_id)["output"] == "two\n", "JSON or not, it is the same reader"
    assert cli("logs", "--new", task_id).stdout == ""
    assert cli("logs", task_id).stdout == "one\ntwo\n"


def sleeps(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"S"


def test_what_was_followed_until_an_interrupt_is_not_new(cli: Cli, talker: Path) -> None:
    following = cli.start("logs", "-f", "--new", talker.name)
    assert following.stdout is not None
    for word in ("one", "two"):
        say(talker, word)
        assert following.stdout.readline() == f"{word}\n".encode()
    eventually(lambda: sleeps(following.pid), what="it waits for more")
    following.send_signal(signal.SIGINT)
    following.communicate(timeout=60)
    assert following.returncode == 130
    say(talker, "three")
    eventually(lambda: cli("logs", talker.name).stdout.endswith("three\n"))
    assert cli("logs", "--new", talker.name).stdout == "three\n"


# --- as it comes -------------------------------------------------------------------------


def test_following_shows_lines_as_they_come_and_ends_with_the_task(cli: Cli, talker: Path) -> None:
    """Each line is said only after the one before was seen."""
    following = cli.start("logs", "-f", talker.name)
    assert following.stdout is not None
    for word in ("one", "two", "three"):
        say(talker, word)
        assert following.stdout.readline() == f"{word}\n".encode()
        assert following.poll() is None
    say(talker, "bye")
    assert following.communicate(timeout=60) == (b"", b"")
    assert following.returncode == 0


def test_following_filters_line_by_line(cli: Cli, talker: Path) -> None:
    following = cli.start("logs", "-f", "--filter", "e$", talker.name)
    assert following.stdout is not None
    for word in ("one", "two", "three"):
        say(talker, word)
    assert [following.stdout.readline() for _ in range(2)] == [b"one\n", b"three\n"]
    say(talker, "bye")
    assert following.communicate(timeout=60) == (b"", b"[outlast: 1 line is not shown]\n")


def test_following_one_stream(cli: Cli, tmp_path: Path) -> None:
    command = f"echo out; echo err >&2; until [ -e {tmp_path}/go ]; do sleep 0.02; done; echo more >&2"
    task_id = cli("run", "--bg", "--split", command).stdout.strip()
    following = cli.start("logs", "-f", "--stream", "stderr", task_id)
    assert following.stdout is not None
    assert following.stdout.readline() == b"err\n"
    (tmp_path / "go").touch()
    assert following.communicate(timeout=60) == (b"more\n", b"")


def test_following_goes_on_to_the_end_of_the_output(cli: Cli, tmp_path: Path) -> None:
    """A child that the command left behind still prints."""
    command = f"(until [ -e {tmp_path}/go ]; do sleep 0.02; done; echo late) & echo early"
    task_id = ran(cli, command)["task_id"]
    following = cli.start("logs", "-f", task_id)
    assert following.stdout is not None
    assert following.stdout.readline() == b"early\n"
    (tmp_path / "go").touch()
    assert following.communicate(timeout=60)[0] == b"late\n"


def test_a_reader_that_has_enough_is_no_error(cli: Cli) -> None:
    task_id = ran(cli, "seq 100000")["task_id"]
    line = f"{shlex.join([*cli.command, 'logs', task_id])} | head -1"
    shown = subprocess.run(["bash", "-c", line], env=cli.env, capture_output=True, text=True, timeout=60)
    assert (shown.stdout, shown.stderr) == ("1\n", "")
