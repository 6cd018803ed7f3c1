"""No secret in anything that is shown: every verb, live or not, however the output was cut."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from outlast import AsyncShell, Shell
from outlast.errors import BadInput, UnknownTask
from outlast.types import Slice
from tests.cli import ran
from tests.conftest import Cli, eventually
from tests.secrecy import CANARIES, TOKENS, key_block, leaks, told

pytestmark = pytest.mark.plain_user  # a user without privileges meets other limits

TOKEN = told("GitHub")
SECRET = TOKENS["GitHub"][1]


@pytest.fixture
def printing(tmp_path: Path) -> str:
    """A command that prints every kind of token and every canary, and holds none of them in its text."""
    file = tmp_path / "said"
    file.write_text("\n".join((*(told(kind) for kind in TOKENS), *CANARIES.values())) + "\n")
    return f"cat {file}"


def secrets_in(text: str | bytes) -> list[str]:
    data = text.encode() if isinstance(text, str) else text
    parts = [line for _, secret in TOKENS.values() for line in secret.split("\n") if len(line) > 15]
    return [part for part in parts if part.encode() in data] + leaks(data)


def test_what_python_reads(home, printing, monkeypatch):
    for name, value in CANARIES.items():
        monkeypatch.setenv(name, value)
    with Shell.open(home) as shell:
        pieces: list[Slice] = []
        result = shell.run(printing, on_output=pieces.append)
        assert not secrets_in(result.output)
        assert result.output.count("***") >= len(TOKENS)
        assert not secrets_in(b"".join(piece.data for piece in pieces))
        assert not secrets_in(shell.read(result.task_id, tail=3).output)
        assert not secrets_in(shell.read(result.task_id, new=True).output)
        assert not secrets_in(b"".join(piece.data for piece in shell.follow(result.task_id)))
        # The file is as it was printed, and only ours.
        kept = Path(result.output_file).read_bytes()
        assert len(secrets_in(kept)) > len(TOKENS)
        assert os.stat(result.output_file).st_mode & 0o777 == 0o600
        assert b"".join(piece.data for piece in shell.follow(result.task_id, raw=True)) == kept
        assert int(result.cursor) == pieces[-1].next == len(kept)


def test_off_by_setting(home, printing, monkeypatch):
    monkeypatch.setenv("OUTLAST_MASK_SECRETS", "no")
    with Shell.open(home) as shell:
        result = shell.run(printing)
        assert SECRET in result.output
        assert shell.run(f"echo {TOKEN}").command == f"echo {TOKEN}"


def test_every_cursor_is_safe(shell, tmp_path):
    text = f"begin {TOKEN} middle\n{key_block(lines=3)}\nurl {told('URL')} end\n".encode()
    (tmp_path / "said").write_bytes(text)
    task = shell.run(f"cat {tmp_path}/said")
    for place in range(len(text)):
        shown = shell.read(task.task_id, cursor=str(place)).output
        assert all(part in task.output for part in shown.split("***")), (place, shown)
        followed = b"".join(piece.data for piece in shell.follow(task.task_id, cursor=str(place))).decode()
        assert all(part in task.output for part in followed.split("***")), (place, followed)


def test_a_filter_does_not_tell_a_secret(shell, tmp_path):
    (tmp_path / "said").write_text(f"a {TOKEN}\nb\n")
    task = shell.run(f"cat {tmp_path}/said")
    assert shell.read(task.task_id, filter=SECRET[:4]).output == ""
    assert shell.read(task.task_id, filter="ghp_").output == "a ghp_***\n"


def in_two_halves(tmp_path: Path, cut: int) -> str:
    """A command that prints a token in two writes, the second when the file `go` is there."""
    (tmp_path / "one").write_text(f"first {TOKEN}"[:cut])
    (tmp_path / "two").write_text(f"first {TOKEN}\nlast\n"[cut:])
    return f"cd {tmp_path}; cat one; until [ -e go ]; do sleep 0.01; done; cat two"


@pytest.mark.parametrize("cut", [7, 9, 10, 20, 45])
def test_a_secret_in_two_halves_is_masked_in_every_reply(shell, tmp_path, cut):
    task = shell.start(in_two_halves(tmp_path, cut))
    eventually(lambda: Path(task.output_file).stat().st_size == cut)
    first = shell.read(task.task_id)
    pieces: list[Slice] = list(shell.follow(task.task_id, timeout=0))
    assert first.output == b"".join(piece.data for piece in pieces).decode() == f"first {TOKEN}"[: min(cut, 10)]
    assert int(first.cursor) == pieces[-1].next == min(cut, 10)
    (tmp_path / "go").touch()
    shell.wait(task.task_id)
    rest = shell.read(task.task_id, cursor=first.cursor).output
    assert first.output + rest in ("first ghp_***\nlast\n", f"first {'ghp_'[: cut - 6]}***\nlast\n")
    whole = b"".join(piece.data for piece in shell.follow(task.task_id))
    assert whole == b"first ghp_***\nlast\n"


def test_live_output_comes_at_once_and_adds_up(shell, tmp_path):
    command = in_two_halves(tmp_path, 20)
    said: list[bytes] = []

    def listen(piece: Slice) -> None:
        said.append(piece.data)
        (tmp_path / "go").touch()  # the second half is only printed when the first was shown

    shell.run(command, on_output=listen)
    assert said[0] == b"first ghp_"
    assert b"".join(said) == b"first ghp_***\nlast\n"


def test_asyncio_is_the_same(home, tmp_path):
    async def go() -> tuple[list[Slice], str]:
        said: list[Slice] = []

        def listen(piece: Slice) -> None:
            said.append(piece)
            (tmp_path / "go").touch()

        async with AsyncShell.open(home) as shell:
            result = await shell.run(in_two_halves(tmp_path, 20), on_output=listen)
            found = await shell.wait(result.task_id, until="ghp_[A-Za-z]")
            assert found.matched == "first ghp_***"
            return said, result.output

    said, output = asyncio.run(go())
    assert b"".join(piece.data for piece in said).decode() == output == "first ghp_***\nlast\n"
    assert [piece.start for piece in said[1:]] == [piece.next for piece in said[:-1]]


def test_commands_descriptions_and_what_matched_are_masked(shell):
    task = shell.start(f"echo {TOKEN}; exec sleep 100", description=f"with {TOKEN}")
    found = shell.wait(task.task_id, until="ghp_")
    seen = [task, found, shell.show(task.task_id), shell.list()[0], shell.read(task.task_id), shell.kill(task.task_id)]
    assert not secrets_in(repr(seen))
    assert found.matched == "ghp_***"
    assert all(one.command == "echo ghp_***; exec sleep 100" for one in seen)
    assert all(one.description == "with ghp_***" for one in seen)


def test_errors_are_masked(shell):
    with pytest.raises(UnknownTask) as unknown:
        shell.show(TOKEN)
    with pytest.raises(BadInput) as bad:
        shell.run("true", cwd=f"/nowhere/{TOKEN}")
    for error in (unknown.value, bad.value):
        assert SECRET.lower() not in error.message.lower()
        assert SECRET.lower() not in str(error).lower()


def test_a_session_knows_its_own_secrets(home):
    with Shell.open(home, session="work") as shell:
        shell.run("export API_TOKEN=sesame-open-1; alias up='curl -u me:sesame-open-1'; plain=visible")
        state = shell.sessions.state()
        assert state.variables == {"API_TOKEN": "***", "plain": '"visible"'}
        assert state.aliases == {"up": "curl\\ -u\\ me:***"}
        task = shell.run("echo $API_TOKEN $plain")
        assert task.output == "*** visible\n"
    with Shell.open(home, operator=True) as other:  # another process would know it from the session's state
        assert other.read(task.task_id).output == "*** visible\n"
        assert other.sessions.state("work").variables["API_TOKEN"] == "***"


def test_what_a_call_was_given_is_masked_in_its_shell(shell):
    task = shell.run("echo $DB_PASSWORD $LEVEL", env={"DB_PASSWORD": "open-sesame-2", "LEVEL": "verbose-logging"})
    assert task.output == "*** verbose-logging\n"


# --- the command line --------------------------------------------------------------------


def test_every_verb_of_the_command_line(cli: Cli, printing):
    cli.env.update(CANARIES)
    ended = ran(cli, printing)
    task_id = ended["task_id"]
    command = f"{printing}; echo {TOKEN}"
    said = [
        json.dumps(ended),
        cli("run", command).stdout,
        cli("run", "--split", f"({command}) >&2").stderr,
        cli("run", "--bg", "--startup-wait", "30", command).stderr,
        cli("run", "--description", TOKEN, "true").stdout,
    ]
    for words in (
        ("ps",),
        ("ps", "--all", "--json"),
        ("tasks",),
        ("tasks", "--json"),
        ("show", task_id),
        ("show", task_id, "--json"),
        ("logs", task_id),
        ("logs", "-f", task_id),
        ("logs", "--new", task_id),
        ("logs", "--tail", "2", task_id),
        ("logs", "--from", "9", task_id),
        ("logs", "--lines", "1:3", task_id),
        ("logs", "--filter", ".", task_id),
        ("logs", "--json", task_id),
        ("wait", task_id),
        ("wait", "--until", "ghp_", "--json", task_id),
        ("kill", task_id),
        ("show", TOKEN),
        ("show", TOKEN, "--json"),
        ("run", "--env", TOKEN, "true"),
        (TOKEN,),
    ):
        out = cli(*words)
        said += [out.stdout, out.stderr]
    for text in said:
        assert not secrets_in(text), text
        assert SECRET.lower() not in text.lower()
    assert said[0].count("***") >= len(TOKENS)


def test_raw_is_raw(cli: Cli, printing):
    task = ran(cli, printing)
    assert cli("logs", "--raw", task["task_id"]).stdout == Path(task["output_file"]).read_text()
    assert (
        cli("logs", "--raw", "-f", "--from", "9", task["task_id"]).stdout == Path(task["output_file"]).read_text()[9:]
    )


@pytest.mark.parametrize("words", [("run",), ("logs", "-f")])
def test_a_secret_in_two_halves_on_the_command_line(cli: Cli, tmp_path, words):
    command = in_two_halves(tmp_path, 20)
    what = command if words == ("run",) else cli("run", "--bg", command).stdout.strip()
    running = cli.start(*words, what)
    assert running.stdout is not None
    assert os.read(running.stdout.fileno(), 100) == b"first ghp_"  # at once, without the half
    (tmp_path / "go").touch()
    rest, _ = running.communicate(timeout=30)
    assert rest == b"***\nlast\n"


def test_plain_logs_of_a_running_task_show_no_half(cli: Cli, tmp_path):
    task_id = cli("run", "--bg", in_two_halves(tmp_path, 20)).stdout.strip()
    output = Path(cli.json("show", task_id)["output_file"])
    eventually(lambda: output.stat().st_size == 20)
    assert cli("logs", task_id).stdout == cli("logs", "--new", task_id).stdout == "first ghp_"
    (tmp_path / "go").touch()
    cli("wait", task_id)
    assert cli("logs", "--new", task_id).stdout == "***\nlast\n"


def test_a_limit_ends_with_a_masked_rest(cli: Cli, tmp_path):
    cli.env["OUTLAST_FOREGROUND_LIMIT_S"] = "1"
    (tmp_path / "said").write_text(TOKEN)
    ended = cli("run", f"cat {tmp_path}/said; exec sleep 100", check=124)
    assert ended.stdout == "ghp_***"
