"""Streamable HTTP: who is let in, and that the same things work there."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import resource
import signal
import socket
import stat
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from outlast.errors import StateRefused
from outlast.listener import Guard, hosts
from outlast.mcp.http import token as token_of
from tests.conftest import eventually
from tests.mcp_server import LEGACY, MODERN, PATIENCE_S, Holding, ended, lines, play, server, session_of, shell, text

TOKEN = "t0ken-for-tests-only"


@contextmanager
def listening(home: str, *words: str, where: str = "127.0.0.1:0", token: str = TOKEN) -> Iterator[tuple[str, Any]]:
    """A server, its address, and what it says there is to say."""
    how = server(home, "--http", where, *words, OUTLAST_HTTP_TOKEN=token)
    running = subprocess.Popen(
        [how.command, *how.args], env=how.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert running.stdout is not None
        said = running.stdout.readline()
        found = re.match(r"http://(.*)/mcp \((.*)\)\n", said)
        assert found, said
        yield found[1], running
    finally:
        running.send_signal(signal.SIGTERM)
        out, err = running.communicate(timeout=PATIENCE_S)
        assert not token or token not in said + out + err


def asked(address: str, headers: dict[str, str], method: str = "POST") -> tuple[int, str]:
    """The status that a request with these headers gets, and the text."""
    line = http.client.HTTPConnection(address, timeout=PATIENCE_S)
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INIT}
    usual = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    line.request(method, "/mcp", json.dumps(body) if method == "POST" else None, {**usual, **headers})
    answer = line.getresponse()
    told = (answer.status, answer.read().decode() if answer.status != 200 else "")
    line.close()
    return told


INIT = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


def test_who_is_let_in(place: str) -> None:
    good = {"Authorization": f"Bearer {TOKEN}"}
    with listening(place) as (address, _):
        port = address.rpartition(":")[2]
        assert asked(address, good)[0] == 200
        assert asked(address, {**good, "Host": f"localhost:{port}"})[0] == 200
        assert asked(address, {**good, "Origin": f"http://{address}"})[0] == 200
        for headers, status in (
            ({}, 401),
            ({"Authorization": "Bearer wrong"}, 401),
            ({"Authorization": TOKEN}, 401),
            ({"Authorization": f"Bearer {TOKEN} "}, 200),  # blanks at the end of a header do not count
            ({**good, "Origin": "https://evil.example"}, 403),
            ({**good, "Origin": f"http://evil.example:{port}"}, 403),
            ({**good, "Origin": "http://localhost:3000"}, 403),
            ({**good, "Origin": "null"}, 403),
            ({**good, "Host": "evil.example"}, 403),
            ({**good, "Host": f"evil.example:{port}"}, 403),
            ({**good, "Host": "127.0.0.1:1"}, 403),
            ({**good, "Host": f"127.0.0.1:{port}.evil.example"}, 403),
        ):
            found, said = asked(address, headers)
            assert found == status, (headers, said)
            assert TOKEN not in said
        for method in ("GET", "DELETE", "OPTIONS"):
            assert asked(address, {}, method)[0] == 401
        # A modern request is no way around.
        assert asked(address, {"MCP-Protocol-Version": MODERN})[0] == 401


def test_the_guard_stands_before_everything() -> None:
    async def never(*_: Any) -> Any:
        raise AssertionError("it was let through")

    async def status_of(*headers: tuple[bytes, bytes]) -> int:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        await Guard(never, TOKEN, hosts("::1", 80))({"type": "http", "headers": list(headers)}, receive, send)
        return int(sent[0]["status"])

    assert asyncio.run(status_of()) == 403
    assert asyncio.run(status_of((b"host", b"[::1]:80"))) == 401
    # Twice the same header: it is not for us to choose.
    assert asyncio.run(status_of((b"host", b"[::1]:80"), (b"host", b"evil.example"))) == 403
    assert asyncio.run(status_of((b"host", b"evil.example"), (b"host", b"[::1]:80"))) == 403


@pytest.mark.parametrize("mode", [LEGACY, MODERN])
def test_the_same_tools_over_http(place: str, mode: str) -> None:
    async def scene(address: str) -> None:
        async with client_of(address, mode) as client:
            ran = await client.call_tool(*shell("echo hi; export SEEN=1"))
            assert "hi" in text(ran)
            assert "1" in text(await client.call_tool(*shell("echo $SEEN")))
            told: list[str | None] = []

            async def progress(progress: float, total: float | None, message: str | None) -> None:
                told.append(message)

            name, given = shell("echo working; sleep 1.5")
            await client.call_tool(name, given, progress_callback=progress)
            assert told == ["working"]
            session = session_of(place, ran)
        async with client_of(address, mode) as client:  # the same client again
            assert session_of(place, await client.call_tool(*shell("true"))) == session
        async with client_of(address, mode, {"Outlast-Session": "mine"}) as client:
            ran = await client.call_tool(*shell("echo none$SEEN"))
            assert session_of(place, ran) == "mine"
            assert "none" in lines(ran)
            [listed] = (await client.call_tool("bash_list", {})).structured_content["tasks"]
            assert listed["task_id"] == ran.structured_content["task_id"]  # and none of the other session
        async with client_of(address, mode, {"Outlast-Session": "../mine"}) as client:
            with pytest.raises(MCPError, match="no name for a session"):
                await client.call_tool(*shell("true"))

    with listening(place) as (address, _):
        play(scene(address))


def client_of(address: str, mode: str, headers: dict[str, str] | None = None, how: Any = None) -> Client:
    line = httpx2.AsyncClient(
        headers={"Authorization": f"Bearer {TOKEN}", **(headers or {})}, timeout=PATIENCE_S, follow_redirects=True
    )
    transport = streamable_http_client(f"http://{address}/mcp", http_client=line)
    return Client(transport, mode=mode, **(how or {}))


def test_tasks_outlive_an_http_server(place: str) -> None:
    holds = Holding()

    async def before(address: str) -> None:
        async with client_of(address, MODERN, how={"extensions": [holds]}) as client:
            await client.call_tool(*shell("sleep 2; echo done", background=True))

    async def after(address: str) -> None:
        async with client_of(address, MODERN, how={"extensions": [holds]}) as client:
            state = await ended(client, holds.held[0].task_id)
            assert "done" in state.result["content"][0]["text"]  # type: ignore[index]

    with listening(place) as (address, running):
        play(before(address))
        running.kill()
    with listening(place) as (address, _):
        play(after(address))


def test_a_token_of_its_own_is_kept_and_private(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with listening(place, token="") as (address, _):
        path = os.path.join(place, "mcp", "token")
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        with open(path) as file:
            token = file.read().strip()
        assert len(token) >= 32
        assert asked(address, {"Authorization": f"Bearer {token}"})[0] == 200
        assert asked(address, {"Authorization": "Bearer "})[0] == 401
    monkeypatch.delenv("OUTLAST_HTTP_TOKEN", raising=False)
    assert token_of(place) == (token, path)  # the next one has the same
    os.chmod(path, 0o644)
    with pytest.raises(StateRefused, match="Others can read"):
        token_of(place)


# --- abuse ---------------------------------------------------------------------------------

SHOWN = f"Authorization: Bearer {TOKEN}\r\n"
JSON = "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
# What somebody sends, and how the answer may begin; HOST stands for the server's own name. Nothing: it is closed.
ABUSE: dict[str, tuple[str, tuple[str, ...]]] = {
    "nothing at all": ("", ("",)),
    "half a request line": ("POST /mc", ("",)),
    "headers without an end": ("POST /mcp HTTP/1.1\r\nHost: HOST\r\nX-More: ", ("",)),
    "a header of 200 KB": ("POST /mcp HTTP/1.1\r\nX-Long: " + "x" * 200_000, ("HTTP/1.1 400", "")),
    "a request line of 200 KB": ("GET /" + "x" * 200_000, ("HTTP/1.1 400", "")),
    "another protocol": ("\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", ("HTTP/1.1 400", "")),
    "HTTP of the future": ("GET /mcp HTTP/9.9\r\n\r\n", ("HTTP/1.1 40", "")),
    "no Host": ("POST /mcp HTTP/1.1\r\n" + SHOWN + "\r\n", ("HTTP/1.1 400",)),
    "a body that never comes, without the token": (
        "POST /mcp HTTP/1.1\r\nHost: HOST\r\nContent-Length: 99999999\r\n\r\nx",
        ("HTTP/1.1 401",),
    ),
    "chunks that are none, without the token": (
        "POST /mcp HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nxx",
        ("HTTP/1.1 4", ""),
    ),
    "two lengths": (
        "POST /mcp HTTP/1.1\r\nHost: HOST\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\nabcde",
        ("HTTP/1.1 400",),
    ),
    "a second request behind the first, without the token": (
        "GET /mcp HTTP/1.1\r\nHost: HOST\r\n\r\n" * 50,
        ("HTTP/1.1 401",),
    ),
    "a web socket": (
        "GET /mcp HTTP/1.1\r\nHost: HOST\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
        ("HTTP/1.1 401",),
    ),
    "a web socket with the token": (
        f"GET /mcp HTTP/1.1\r\nHost: HOST\r\n{SHOWN}Upgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
        ("HTTP/1.1 40",),
    ),
    "deep JSON": (
        f"POST /mcp HTTP/1.1\r\nHost: HOST\r\n{SHOWN}{JSON}Content-Length: 100000\r\n\r\n" + "[" * 100_000,
        ("HTTP/1.1 400",),
    ),
    "JSON of another shape": (
        f"POST /mcp HTTP/1.1\r\nHost: HOST\r\n{SHOWN}{JSON}Content-Length: 2\r\n\r\n{{}}",
        ("HTTP/1.1 400",),
    ),
    "another path": (f"GET /%ff%fe/../etc/passwd HTTP/1.1\r\nHost: HOST\r\n{SHOWN}\r\n", ("HTTP/1.1 404",)),
    "another method": (f"TRACE /mcp HTTP/1.1\r\nHost: HOST\r\n{SHOWN}\r\n", ("HTTP/1.1 405",)),
    "a Host that is no text": ("GET /mcp HTTP/1.1\r\nHost: \xff\xfe\r\n\r\n", ("HTTP/1.1 40",)),
    "the token in the address": (f"GET /mcp?token={TOKEN} HTTP/1.1\r\nHost: HOST\r\n\r\n", ("HTTP/1.1 401",)),
    "the token twice": (f"GET /mcp HTTP/1.1\r\nHost: HOST\r\n{SHOWN}{SHOWN}\r\n", ("HTTP/1.1 401",)),
}
WAITS = ("nothing at all", "half a request line", "headers without an end")  # until the server has had enough


@pytest.fixture(scope="module")
def abused(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Any]]:
    """One server for all of it: it must still be there for the last one."""
    with listening(str(tmp_path_factory.mktemp("abused") / "home")) as (address, running):
        yield address, running


def connected(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), PATIENCE_S)


def first_of(line: socket.socket) -> str:
    """The beginning of the answer; nothing if the connection was closed without one."""
    try:
        return line.recv(200).decode("latin-1")
    except ConnectionError:
        return ""


@pytest.mark.parametrize("leaves", ["waits", "closes", "resets"])
@pytest.mark.parametrize("name", ABUSE)
def test_abuse_is_answered_or_cut_off(abused: tuple[str, Any], name: str, leaves: str) -> None:
    address, running = abused
    sent, expected = ABUSE[name]
    if leaves == "waits" and name in WAITS[1:]:
        pytest.skip("one that waits for the server to have enough is as good as three")
    with connected(address) as line:
        try:
            line.sendall(sent.replace("HOST", address).encode("latin-1"))
        except ConnectionError:
            pass  # it has had enough before the end
        if leaves == "waits":
            answer = first_of(line)
            assert any(answer.startswith(one) if one else not answer for one in expected), answer
            assert TOKEN not in answer
        elif leaves == "resets":
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert asked(address, {"Authorization": f"Bearer {TOKEN}"})[0] == 200
    assert running.poll() is None


def test_a_thousand_half_open_connections_keep_nobody_out_and_leave_nothing(place: str) -> None:
    good = {"Authorization": f"Bearer {TOKEN}"}
    with raised_limit(2000), listening(place) as (address, running):

        def descriptors() -> int:
            return len(os.listdir(f"/proc/{running.pid}/fd"))

        async def scene() -> None:
            async with client_of(address, MODERN) as client:
                assert "served" in text(await client.call_tool(*shell("echo served")))

        play(scene())
        before = descriptors()
        lines = [connected(address) for _ in range(1000)]
        for line in lines[::2]:
            try:
                line.sendall(b"POST /mcp HTTP/1.1\r\nHost: x\r\nX-")
            except ConnectionError:
                pass  # its place was taken by another
        eventually(lambda: before < descriptors() < before + 300)
        for _ in range(5):
            assert asked(address, good)[0] == 200
        play(scene())
        for line in lines:
            line.close()
        eventually(lambda: descriptors() <= before + 10)  # the session's own may be a few more


def test_abuse_writes_no_log(place: str) -> None:
    with listening(place) as (address, running):
        for _ in range(3):
            for sent, _expected in ABUSE.values():
                with connected(address) as line:
                    try:
                        line.sendall(sent.replace("HOST", address).encode("latin-1"))
                        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    except ConnectionError:
                        pass
        assert asked(address, {"Authorization": f"Bearer {TOKEN}"})[0] == 200
        running.send_signal(signal.SIGTERM)
        assert running.stderr is not None
        assert running.stderr.read() == ""


@contextmanager
def raised_limit(descriptors: int) -> Iterator[None]:
    """As many descriptors for this process as the test needs; skips where the system allows fewer."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < descriptors:
        pytest.skip(f"only {hard} descriptors are allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, descriptors), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
