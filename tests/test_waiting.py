"""Waiting for a line, a port, a URL, silence: what comes true, what does not, and who is told."""

from __future__ import annotations

import asyncio
import os
import shlex
import socket
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from outlast import AsyncShell, Shell, Waited
from outlast.errors import BadInput, BadPattern
from outlast.shell import conditions
from outlast.types import Stdin
from tests.conftest import end_all, eventually

PATIENCE_S = 30.0
LONG = "; exec sleep 1000"


def gated(go: Path, then: str) -> str:
    """A command that goes on when the file is there."""
    return f"until [ -e {go} ]; do sleep 0.02; done; {then}"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


# --- a line ------------------------------------------------------------------------------


def test_a_line_that_is_there_already(shell: Shell) -> None:
    task = shell.run("seq 100")
    found = shell.wait(task.task_id, until="^7.$")
    assert isinstance(found, Waited)
    assert (found.met, found.matched, found.status) == (True, "70", "completed")


def test_a_line_that_comes(shell: Shell, tmp_path: Path) -> None:
    task = shell.start(gated(tmp_path / "go", r"printf '\033[32mListening\033[0m on 3000\n'" + LONG))
    assert not shell.wait(task.task_id, 0.05, until="Listening").met
    threading.Timer(0.2, (tmp_path / "go").touch).start()
    found = shell.wait(task.task_id, PATIENCE_S, until="^Listening on [0-9]+$")
    assert (found.met, found.matched, found.status) == (True, "Listening on 3000", "running")


def test_an_unfinished_line_as_it_stands_on_the_screen(shell: Shell) -> None:
    task = shell.start(r"printf 'one\ntwo\rpassword: '" + LONG)
    assert shell.wait(task.task_id, PATIENCE_S, until="^password: $").matched == "password: "
    assert not shell.wait(task.task_id, 0, until="two").met


def test_a_line_of_stderr_apart(shell: Shell) -> None:
    task = shell.start("echo out; echo up >&2" + LONG, split=True)
    assert shell.wait(task.task_id, PATIENCE_S, until="^up$").met


def test_from_a_cursor_on(shell: Shell) -> None:
    task = shell.run("echo one; echo two")
    assert not shell.wait(task.task_id, until="one", cursor="4").met
    assert shell.wait(task.task_id, until="two", cursor="4").met
    with pytest.raises(BadInput, match="cursor"):
        shell.wait(task.task_id, cursor="4")


def test_a_line_beyond_what_is_kept(shell: Shell, home: str) -> None:
    os.environ["OUTLAST_OUTPUT_LIMIT_BYTES"] = "4096"
    try:
        with Shell.open(home=home) as small:
            task = small.run("seq 100000; echo the end")
    finally:
        del os.environ["OUTLAST_OUTPUT_LIMIT_BYTES"]
    assert shell.wait(task.task_id, until="^the end$").met
    assert not shell.wait(task.task_id, until="^50000$").met


def test_a_task_that_dies_first_ends_the_wait(shell: Shell, tmp_path: Path) -> None:
    task = shell.start(gated(tmp_path / "go", "exit 3"))
    threading.Timer(0.2, (tmp_path / "go").touch).start()
    found = shell.wait(task.task_id, until="ready")
    assert (found.met, found.matched, found.exit_code) == (False, None, 3)


def test_what_a_command_left_running_may_still_become_ready(shell: Shell, tmp_path: Path) -> None:
    task = shell.run(f"({gated(tmp_path / 'go', 'echo up')}) &")
    assert task.status == "completed"
    threading.Timer(0.2, (tmp_path / "go").touch).start()
    assert shell.wait(task.task_id, PATIENCE_S, until="^up$").met


def test_bad_patterns_start_nothing(shell: Shell) -> None:
    for pattern in ("(", ""):
        with pytest.raises(BadPattern):
            shell.start("true", ready=pattern)
    assert shell.list() == []


# --- silence -----------------------------------------------------------------------------


def test_quiet(shell: Shell, tmp_path: Path) -> None:
    task = shell.start(f"until [ -e {tmp_path}/go ]; do echo x; sleep 0.02; done" + LONG)
    assert not shell.wait(task.task_id, 0.3, quiet=20).met
    (tmp_path / "go").touch()
    found = shell.wait(task.task_id, PATIENCE_S, quiet=0.5)
    assert (found.met, found.matched, found.status) == (True, "no output for 0.5 s", "running")


def test_what_is_over_is_quiet(shell: Shell) -> None:
    task = shell.run("exit 2")
    assert (shell.wait(task.task_id, quiet=1000).met, task.exit_code) == (True, 2)


# --- a port, a URL -----------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_port_that_opens(shell: Shell, tmp_path: Path, host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.socket(family).bind((host, 0))
    except OSError:
        pytest.skip(f"no {host} here")
    port = free_port()
    listen = (
        f"import socket,time; s=socket.socket({int(family)}); s.bind(({host!r},{port})); s.listen(); time.sleep(1000)"
    )
    task = shell.start(gated(tmp_path / "go", f"exec {sys.executable} -c {shlex.quote(listen)}"))
    assert not shell.wait(task.task_id, 0.1, port=port).met
    threading.Timer(0.2, (tmp_path / "go").touch).start()
    assert shell.wait(task.task_id, PATIENCE_S, port=port).met
    assert shell.wait(task.task_id, PATIENCE_S, port=f"{f'[{host}]' if ':' in host else host}:{port}").met


def test_a_task_that_dies_before_its_port_opens(shell: Shell) -> None:
    task = shell.start("exit 4")
    found = shell.wait(task.task_id, port=free_port())
    assert (found.met, found.exit_code) == (False, 4)


class Answers(BaseHTTPRequestHandler):
    codes: ClassVar[list[int]] = []

    def do_GET(self) -> None:
        self.send_response(self.codes.pop(0) if len(self.codes) > 1 else self.codes[0])
        self.send_header("Location", "http://192.0.2.1/")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Answers) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{made.server_port}/"
        made.shutdown()


@pytest.mark.parametrize("code", [200, 302, 404])
def test_a_url_that_answers_in_the_end(shell: Shell, server: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://192.0.2.1:9")  # not for loopback
    Answers.codes = [503, 500, code]
    task = shell.start("exec sleep 1000")
    found = shell.wait(task.task_id, PATIENCE_S, url=server)
    assert (found.met, found.matched) == (True, f"HTTP status {code}")
    assert Answers.codes == [code]


def test_a_url_that_does_not_answer(shell: Shell) -> None:
    task = shell.start("exec sleep 1000")
    found = shell.wait(task.task_id, 0.2, url=f"http://localhost:{free_port()}/")
    assert (found.met, found.status) == (False, "running")


def test_a_server_that_never_answers_does_not_hold_us(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditions, "LONGEST_TRY_S", 10_000.0)  # longer than any test may take
    task = shell.start("exec sleep 1000")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        assert not shell.wait(task.task_id, 0.3, url=url).met
        assert not shell.wait(task.task_id, 0, url=url).met


@pytest.mark.parametrize(
    "what",
    [{"port": 0}, {"port": 70000}, {"port": True}, {"port": "a:b"}, {"url": "x"}, {"url": "http://a:b/"}, {"url": 3}],
)
def test_nonsense_gets_one_sentence(shell: Shell, what: dict) -> None:
    task = shell.run("true")
    with pytest.raises(BadInput):
        shell.wait(task.task_id, **what)


def test_one_condition_at_a_time(shell: Shell) -> None:
    task = shell.run("true")
    with pytest.raises(BadInput, match="Only one of until and quiet"):
        shell.wait(task.task_id, until="a", quiet=1)


# --- many waiters, and asyncio -----------------------------------------------------------


def test_any_number_of_waiters(home: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncShell.open(home=home) as shell:
            task = await shell.start(gated(tmp_path / "go", "echo ready" + LONG))
            waits = [asyncio.create_task(shell.wait(task.task_id, PATIENCE_S, until="^ready$")) for _ in range(50)]
            port = asyncio.create_task(shell.wait(task.task_id, 0.1, port=free_port()))
            quiet = asyncio.create_task(shell.wait(task.task_id, PATIENCE_S, quiet=0.3))
            assert (not (await port).met, (await quiet).met) == (True, True)
            (tmp_path / "go").touch()
            assert all(found.met and found.matched == "ready" for found in await asyncio.gather(*waits))
            end = asyncio.create_task(shell.wait(task.task_id, until="never"))
            await shell.kill(task.task_id, grace=0.2)
            assert not (await end).met

    asyncio.run(main())


def test_starting_and_waiting_for_ready_with_asyncio(home: str) -> None:
    async def main() -> None:
        async with AsyncShell.open(home=home) as shell:
            task = await shell.start("echo up" + LONG, ready="^up$")
            assert isinstance(task, Waited)
            assert task.met
            result = await shell.run("echo no; exit 3", ready="^up$")
            assert (result.output, result.exit_code) == ("no\n", 3)
            assert (await shell.start("exit 5", startup_wait=PATIENCE_S)).exit_code == 5
            with pytest.raises(BadInput):
                await shell.run("true", ready="a", wait=1)
            await shell.kill(task.task_id, grace=0.2)

    asyncio.run(main())


# --- startup -----------------------------------------------------------------------------


def test_a_start_that_waits(shell: Shell) -> None:
    plain = shell.start("true")
    assert (type(plain), plain.met) == (Waited, False)
    died = shell.start("echo no >&2; exit 3", startup_wait=PATIENCE_S)
    assert (died.status, died.exit_code) == ("failed", 3)
    up = shell.start("echo up" + LONG, startup_wait=PATIENCE_S, ready="^up$")
    assert isinstance(up, Waited)
    assert (up.met, up.matched, up.status) == (True, "up", "running")
    late = shell.start("exec sleep 1000", startup_wait=0.1, ready="up")
    assert isinstance(late, Waited)
    assert (late.met, late.status) == (False, "running")
    result = shell.run("echo up" + LONG, ready="^up$")
    assert (result.status, result.output, result.limit) == ("running", "up\n", None)
    with pytest.raises(BadInput, match="leave out `wait`"):
        shell.run("true", startup_wait=1, wait=1)
    eventually(lambda: shell.show(plain.task_id).finished)
    end_all(shell)


# --- automatic background ----------------------------------------------------------------

SERVES = "cd / && X=1 python3 -c 'import os, time; os.write(1, b\"1\\n\"); time.sleep(1000)'"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLAST_AUTO_BACKGROUND_AFTER_S", "0.1")


@pytest.fixture
def hasty(quick: None, home: str) -> Iterator[Shell]:
    with Shell.open(home=home) as made:
        yield made
        end_all(made)


def test_a_development_command_that_prints_is_left_running(hasty: Shell) -> None:
    result = hasty.run(SERVES, auto_background=True)
    assert (result.status, result.output, result.limit) == ("running", "1\n", None)
    pieces: list[bytes] = []
    result = hasty.run(SERVES, auto_background=True, on_output=lambda piece: pieces.append(piece.data))
    assert (result.status, b"".join(pieces)) == ("running", b"1\n")


def test_it_is_not_left_before_it_prints(hasty: Shell, tmp_path: Path) -> None:
    command = f"python3 -V >/dev/null; {gated(tmp_path / 'go', 'echo late' + LONG)}"
    assert hasty.run(command, auto_background=True, wait=0.5).output == ""  # the wait ran out, not the silence
    threading.Timer(0.5, (tmp_path / "go").touch).start()
    result = hasty.run(command, auto_background=True, wait=PATIENCE_S)
    assert (result.status, result.output) == ("running", "late\n")


def test_what_is_not_left_running(hasty: Shell, tmp_path: Path) -> None:
    assert hasty.run("python3 -c 'exit(3)'", auto_background=True).exit_code == 3
    for command, on in (("echo 1; sleep 0.4", True), ("python3 -V; sleep 0.4", None), ("python3 -V; sleep 0.4", False)):
        assert hasty.run(command, auto_background=on).status == "completed"


def test_automatic_background_is_a_setting(quick: None, home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLAST_AUTO_BACKGROUND", "true")
    monkeypatch.setenv("OUTLAST_DEVELOPMENT_COMMANDS", "+ printenv")
    with Shell.open(home=home) as made:
        for command in (SERVES, "printenv HOME" + LONG):
            assert made.run(command).status == "running"
        assert made.run(f"echo 1; {SERVES}", auto_background=False, wait=0.5).status == "running"
        end_all(made)


def test_automatic_background_with_asyncio(quick: None, home: str) -> None:
    async def main() -> None:
        async with AsyncShell.open(home=home) as shell:
            pieces: list[bytes] = []
            first = shell.run(SERVES, auto_background=True, on_output=lambda piece: pieces.append(piece.data))
            for result in await asyncio.gather(first, shell.run(SERVES, auto_background=True)):
                assert (result.status, result.output) == ("running", "1\n")
                await shell.kill(result.task_id, grace=0.2)
            assert pieces == [b"1\n"]
            assert (await shell.run("python3 -c 'exit(3)'", auto_background=True)).exit_code == 3

    asyncio.run(main())


def test_what_was_read_is_not_waited_for_again(shell: Shell) -> None:
    task = shell.start("echo build 1; read a; echo build 2; read b", stdin=Stdin(open=True))
    assert shell.wait(task.task_id, timeout=30, until="build", new=True).matched == "build 1"
    assert shell.wait(task.task_id, timeout=0, until="build", new=True).met  # it was not read yet
    shell.read(task.task_id, new=True)
    assert not shell.wait(task.task_id, timeout=0, until="build", new=True).met
    assert shell.wait(task.task_id, timeout=0, until="build", new=True, cursor="0").met
    shell.send(task.task_id, "\n")
    assert shell.wait(task.task_id, timeout=30, until="build", new=True).matched == "build 2"


def test_a_line_that_is_written_in_two_parts_is_whole(shell: Shell) -> None:
    task = shell.start("printf 'ready on '; sleep 0.05; echo http://127.0.0.1:8000; exec sleep 60")
    assert shell.wait(task.task_id, timeout=30, until="ready on").matched == "ready on http://127.0.0.1:8000"
    task = shell.start("printf 'name? '; exec sleep 60")  # a prompt has no end
    assert shell.wait(task.task_id, timeout=30, until="name").matched == "name? "
    assert shell.wait(task.task_id, timeout=0, until="name").met
