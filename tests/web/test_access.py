"""Fault 18 over every route: foreign Host, foreign Origin, no token, wrong content type, GET that changes, XSS."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outlast.web.routes import ROUTES, Route
from tests.conftest import PATIENCE_S
from tests.web.support import Page, ended, serving

JSON = {"Content-Type": "application/json"}
PAGES = [("GET", "/"), ("GET", "/openapi.json"), ("GET", "/static/index.html")]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with serving(str(tmp_path_factory.mktemp("web") / "state")) as served:
        yield served


@pytest.fixture(scope="module")
def task_id(page: Page) -> str:
    found = page.start("echo hi")
    ended(page, found)
    return found


def paths(task_id: str) -> list[tuple[str, str]]:
    return [*PAGES, *((route.method, route.path.replace("{id}", task_id)) for route in ROUTES)]


def status(page: Page, method: str, path: str, headers: dict[str, str]) -> int:
    body = b"{}" if method != "GET" else None
    return page.request(method, path, {**({} if method == "GET" else JSON), **headers}, body)[0]


def test_every_route_refuses_what_is_not_ours(page: Page, task_id: str) -> None:
    browser = page.browser()
    cookie = {"Cookie": browser["Cookie"]}
    for method, path in paths(task_id):
        own = {**browser, "Host": page.host}
        for headers, expected in (
            ({}, 401),
            ({"Authorization": "Bearer wrong"}, 401),
            ({"Cookie": f"outlast-{page.port}=wrong"}, 401),
            ({"Cookie": f"{browser['Cookie']}; {browser['Cookie']}"}, 401),
            ({**page.bearer, "Host": "evil.example"}, 403),
            ({**page.bearer, "Host": f"evil.example:{page.port}"}, 403),
            ({**page.bearer, "Host": f"{page.host}.evil.example"}, 403),
            ({**page.bearer, "Host": "127.0.0.1:1"}, 403),
            ({**page.bearer, "Origin": "https://evil.example"}, 403),
            ({**page.bearer, "Origin": "null"}, 403),
            ({**page.bearer, "Origin": f"https://{page.host}"}, 403),
            ({**own, "Origin": "http://localhost:3000"}, 403),
            ({**own, "Host": "evil.example"}, 403),
            ({**own, "Sec-Fetch-Site": "cross-site"}, 403),
            ({**own, "Sec-Fetch-Site": "same-site"}, 403),  # another port of this machine
        ):
            assert status(page, method, path, headers) == expected, (method, path, headers)
        if method != "GET":
            # The cookie alone goes to every port of this machine: it must not change anything.
            origin = {"Origin": browser["Origin"]}
            for headers, expected in (
                (cookie, 403),
                ({**cookie, **origin}, 403),
                ({**cookie, **origin, "X-Outlast-Key": "0" * 64}, 403),
                ({**browser, "Content-Type": "text/plain"}, 415),
                ({**browser, "Content-Type": "application/x-www-form-urlencoded"}, 415),
                ({**page.bearer, "Content-Type": "multipart/form-data; boundary=x"}, 415),
            ):
                assert status(page, method, path, headers) == expected, (method, path, headers)
    assert page.get("/api/tasks")["total"] == 1  # none of it did anything


def test_a_refusal_reaches_a_client_that_still_sends(page: Page) -> None:
    body = b" " * 2_000_000
    head = f"POST /api/tasks HTTP/1.1\r\nHost: {page.host}\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", page.port), PATIENCE_S) as line:
        line.sendall(head.encode() + body)
        answer = b"".join(iter(lambda: line.recv(65536), b""))  # to its end: a connection that is reset raises
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert b'"no-token"' in answer


def test_the_page_gets_in_with_its_cookie_and_changes_with_its_key(page: Page) -> None:
    browser = page.browser()
    found, headers, _ = page.request("GET", f"/?token={page.token}")
    assert found == 303
    assert "HttpOnly; SameSite=Strict; Path=/" in headers["set-cookie"]
    assert page.token not in json.dumps(headers)
    assert status(page, "GET", "/", {"Cookie": browser["Cookie"], "Sec-Fetch-Site": "none"}) == 200
    body = json.dumps({"command": "true"}).encode()
    assert page.request("POST", "/api/check", {**browser, **JSON}, body)[0] == 200
    for wrong in ("", "x" * 48, page.token[:-1], page.token + "0", f"{page.token}&x=1"):
        assert page.request("GET", f"/?token={wrong}")[0] == 401
    assert page.request("GET", f"/?token={page.token}", {"Host": "evil.example"})[0] == 403
    assert page.request("GET", f"/?token={page.token}", {"Origin": "https://evil.example"})[0] == 403
    assert page.request("POST", f"/?token={page.token}", JSON, b"{}")[0] == 401


def test_every_answer_has_the_headers_that_keep_it_inert(page: Page, task_id: str) -> None:
    streams = [route.path for route in ROUTES if route.replies == "text/event-stream"]
    for method, path in (*paths(task_id), ("GET", "/nothing"), ("GET", "/static/../app.py")):
        if method != "GET" or path.replace(task_id, "{id}") in streams:
            continue
        for headers in (page.bearer, {}):
            _, found, body = page.request(method, path, headers)
            assert "default-src 'none'; script-src 'self'; style-src 'self'" in found["content-security-policy"], path
            assert "unsafe" not in found["content-security-policy"]
            assert found["x-content-type-options"] == "nosniff"
            assert found["x-frame-options"] == "DENY"
            assert found["referrer-policy"] == "no-referrer"
            assert found["cross-origin-resource-policy"] == "same-origin"
            assert "cache-control" in found
            assert "access-control-allow-origin" not in found
            assert "server" not in found
            assert page.token.encode() not in body


def test_nothing_of_ours_is_served_but_the_page(page: Page) -> None:
    for path in (
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/static//etc/passwd",
        "/static/",
    ):
        assert page.request("GET", path, page.bearer)[0] in (404, 405), path
    text = page.request("GET", "/", page.bearer)[2].decode()
    assert "<script>" not in text
    assert "style=" not in text
    assert " onclick" not in text


@pytest.mark.parametrize("route", [one for one in ROUTES if one.method != "GET"], ids=lambda one: one.handler.__name__)
def test_no_get_changes_anything(page: Page, task_id: str, route: Route) -> None:
    path = route.path.replace("{id}", task_id)
    before = page.get("/api/tasks")["total"]
    others = {one.method for one in ROUTES if one.path == route.path}
    for method in ("GET", "HEAD", "PUT", "PATCH", "OPTIONS"):
        if method not in others and not (method == "HEAD" and "GET" in others):
            headers = {**page.bearer, **JSON}
            assert page.request(method, path, headers, b'{"command":"touch x"}')[0] == 405, (method, path)
    assert page.get("/api/tasks")["total"] == before


def test_what_a_command_says_stays_data(page: Page) -> None:
    evil = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'`</title>javascript:alert(3)"
    quoted = evil.replace("'", "'\\''")
    found = page.start(
        f"printf '%s\\n\\033]0;{quoted}\\007\\033]8;;javascript:alert(4)\\033\\\\link' '{quoted}'", description=evil
    )
    ended(page, found)
    for path in (f"/api/tasks/{found}", "/api/tasks", f"/api/tasks/{found}/lines", "/api/notices", "/api/timeline"):
        code, headers, body = page.request("GET", path, page.bearer)
        assert (code, headers["content-type"]) == (200, "application/json"), path
        json.loads(body)
    _, headers, body = page.request("GET", f"/api/tasks/{found}/log", page.bearer)
    assert headers["content-type"].startswith("text/plain")
    assert headers["content-disposition"].startswith("attachment")
    assert evil.encode() in body
    lines = page.get(f"/api/tasks/{found}/lines")["lines"]
    assert [one["text"] for one in lines] == [evil, "link"]  # no title, no link, no escape sequence is left


def test_what_an_error_repeats_is_json(page: Page) -> None:
    for path in ("/api/tasks?q=<script>&nothing=<b>", "/api/tasks/<script>alert(1)</script>", "/<script>"):
        code, headers, body = page.request("GET", path.replace("<", "%3C").replace(">", "%3E"), page.bearer)
        assert code in (400, 404)
        assert headers["content-type"] == "application/json"
        assert set(json.loads(body)) == {"error", "message"}


def test_the_token_is_nowhere_on_disk(tmp_path: Path) -> None:
    home = tmp_path / "state"
    with serving(str(home)) as page:
        ended(page, page.start("env; tr '\\0' '\\n' </proc/$PPID/cmdline; true"))
        page.browser()
        for file in home.rglob("*"):
            if file.is_file():
                assert page.token.encode() not in file.read_bytes(), file
        for name in ("cmdline", "environ"):
            assert page.token.encode() not in Path(f"/proc/{page.process.pid}/{name}").read_bytes()


def test_a_token_can_be_given(tmp_path: Path) -> None:
    token = "0123456789abcdef" * 3
    with serving(str(tmp_path / "state"), OUTLAST_HTTP_TOKEN=token) as page:
        assert page.token == token
        assert page.get("/api/state")["policy"] == "yolo"


def test_it_listens_on_loopback_only(page: Page) -> None:
    inodes: list[Any] = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and int(words[1].rpartition(":")[2], 16) == page.port:
                inodes.append(words[1].partition(":")[0])
    assert inodes == [f"{int.from_bytes(socket.inet_aton('127.0.0.1'), 'little'):08X}"]
