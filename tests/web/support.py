"""A real `outlast serve`, and clients that speak to it over real HTTP."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.conftest import PATIENCE_S, eventually

LINK = re.compile(r"http://127\.0\.0\.1:(\d+)/\?token=([0-9a-f]{48})\n")


class Page:
    """One server, and what a browser and a program that know its link can do."""

    def __init__(self, process: subprocess.Popen[str], port: int, token: str) -> None:
        self.process, self.port, self.token = process, port, token
        self.host = f"127.0.0.1:{port}"
        self.bearer = {"Authorization": f"Bearer {token}"}

    def request(
        self, method: str, path: str, headers: dict[str, str] | None = None, body: bytes | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of one request with exactly these headers."""
        line = http.client.HTTPConnection(self.host, timeout=PATIENCE_S)
        try:
            line.request(method, path, body, headers or {})
            answer = line.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        finally:
            line.close()

    def call(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        """As a program with the token; the JSON of the answer."""
        headers = {**self.bearer, **({"Content-Type": "application/json"} if method != "GET" else {})}
        data = None if method == "GET" else json.dumps(body or {}).encode()
        found, _, text = self.request(method, path, headers, data)
        assert found == status, (found, text)
        return json.loads(text)

    def get(self, path: str, status: int = 200) -> Any:
        return self.call("GET", path, status=status)

    def post(self, path: str, body: Any = None, status: int = 200) -> Any:
        return self.call("POST", path, body, status)

    def start(self, command: str, **options: Any) -> str:
        return str(self.post("/api/tasks", {"command": command, **options})["task"]["task_id"])

    def browser(self) -> dict[str, str]:
        """The headers that a page has after the link was opened: the cookie, and the key."""
        status, headers, _ = self.request("GET", f"/?token={self.token}")
        assert status == 303, status
        key = headers["location"].removeprefix("/#key=")
        cookie = headers["set-cookie"].partition(";")[0]
        return {"Cookie": cookie, "X-Outlast-Key": key, "Origin": f"http://{self.host}"}


@contextmanager
def serving(home: str, *words: str, **variables: str) -> Iterator[Page]:
    """A server of a state directory, and at its end proof that the token is in nothing that it said."""
    env = {**os.environ, "OUTLAST_HOME": home, **variables}
    running = subprocess.Popen(
        [sys.executable, "-m", "outlast", "serve", "--port", "0", *words],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert running.stdout is not None
        first = running.stdout.readline()
        found = LINK.fullmatch(first)
        assert found, (first, running.stderr.read() if running.stderr and not first else "")
        page = Page(running, int(found[1]), found[2])
        yield page
    finally:
        if running.poll() is None:
            running.send_signal(signal.SIGTERM)
        out, err = running.communicate(timeout=PATIENCE_S)
    assert page.token not in out + err
    assert err == ""


class Stream:
    """Server-sent events, as they come, in a thread."""

    def __init__(self, page: Page, path: str) -> None:
        self._line = http.client.HTTPConnection(page.host, timeout=PATIENCE_S)
        self._line.request("GET", path, headers=page.bearer)
        self._answer = self._line.getresponse()
        assert self._answer.status == 200
        self.events: list[tuple[str, Any]] = []
        self.is_over = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        name = ""
        try:
            for line in self._answer:
                text = line.decode().rstrip("\r\n")
                if text.startswith("event: "):
                    name = text[7:]
                elif text.startswith("data: "):
                    self.events.append((name, json.loads(text[6:])))
        except (OSError, ValueError, AttributeError, http.client.HTTPException):
            pass
        self.is_over = True

    def of(self, name: str) -> list[Any]:
        return [value for event, value in list(self.events) if event == name]

    def until(self, name: str, fits: Any = lambda value: True) -> Any:
        """The first event of this name that fits."""
        return eventually(lambda: next((one for one in self.of(name) if fits(one)), None), what=f"event {name}")

    def close(self) -> None:
        if self._line.sock is not None:  # closing it would wait for the thread that reads
            self._line.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(PATIENCE_S)
        self._line.close()


@contextmanager
def streaming(page: Page, path: str) -> Iterator[Stream]:
    stream = Stream(page, path)
    try:
        yield stream
    finally:
        stream.close()


def ended(page: Page, task_id: str) -> dict[str, Any]:
    """The task once it is closed."""
    found: dict[str, Any] = eventually(lambda: (t := page.get(f"/api/tasks/{task_id}")["task"])["closed"] and t)
    return found
