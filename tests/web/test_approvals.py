"""What a policy asks about in one process is answered by a person at a page of another."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outlast import NeedsApproval, Shell
from outlast.errors import Refused
from tests.conftest import PATIENCE_S, Cli, eventually
from tests.web.support import LINK, Page, serving, streaming

ASK = ("--policy", "ask")


@pytest.fixture
def page(cli: Cli, home: str) -> Iterator[Page]:
    with serving(home, *ASK) as served:
        yield served


def waiting(page: Page) -> dict[str, Any]:
    found: list[dict[str, Any]] = eventually(lambda: page.get("/api/approvals")["pending"], what="a question")
    assert len(found) == 1
    return found[0]


def answer(page: Page, what: str) -> dict[str, Any]:
    question = waiting(page)
    assert page.post(f"/api/approvals/{question['id']}", {"answer": what}) == {}
    return question


def said(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out.decode(), err.decode()


def test_what_the_page_starts_is_asked_about_there(page: Page) -> None:
    with streaming(page, "/api/events") as overview:
        reply = page.post("/api/tasks", {"command": "echo hi", "description": "say hi"}, status=202)
        [question] = overview.until("approvals", lambda one: one["pending"])["pending"]
        assert question["id"] == reply["approval"]
        assert (question["category"], question["command"], question["policy"]) == ("run", "echo hi", "ask")
        assert question["parts"][0]["verdict"] == "ask"
        assert question["from"] == f"outlast serve, pid {page.process.pid}"
        assert page.get("/api/tasks")["total"] == 0
        page.post(f"/api/approvals/{reply['approval']}", {"answer": "yes"})
        overview.until("tasks", lambda one: [t for t in one["changed"] if t["command"] == "echo hi"])
        overview.until("approvals", lambda one: not one["pending"])
    assert page.post(f"/api/approvals/{reply['approval']}", {"answer": "yes"}, status=404)["error"] == "unknown-task"
    task = page.get("/api/tasks")["tasks"][0]["task_id"]
    assert page.get(f"/api/tasks/{task}")["judged"]["approved"] is True
    again = page.post(f"/api/tasks/{task}/again", status=202)
    page.post(f"/api/approvals/{again['approval']}", {"answer": "no"})
    eventually(lambda: not page.get("/api/approvals")["pending"])
    assert page.get("/api/tasks")["total"] == 1


def test_another_process_is_answered_once_for_a_session_or_always(page: Page, cli: Cli, home: str) -> None:
    def run(command: str, session: str = "s") -> subprocess.Popen[bytes]:
        return cli.start("run", *ASK, "--session", session, command)

    one = run("echo once")
    assert answer(page, "yes")["session"] == "s"
    assert said(one) == (0, "once\n", "")
    two = run("echo once")
    answer(page, "no")
    code, out, err = said(two)
    assert (code, out) == (125, "")
    assert "said no" in err
    three = run("echo session")
    answer(page, "session")
    assert said(three)[:2] == (0, "session\n")
    assert not os.path.exists(f"{home}/policy.toml")
    assert said(run("echo session"))[:2] == (0, "session\n")  # not asked again
    other = run("echo session", "other")
    answer(page, "always")
    assert said(other)[:2] == (0, "session\n")
    assert "echo session" in Path(home, "policy.toml").read_text()
    assert said(run("echo session", "third"))[:2] == (0, "session\n")


def test_what_was_allowed_for_a_session_ends_with_it(page: Page, cli: Cli, home: str) -> None:
    one = cli.start("run", *ASK, "--session", "s", "echo hi")
    answer(page, "session")
    assert said(one)[0] == 0
    cli("session", "reset", "s", check=0)
    two = cli.start("run", *ASK, "--session", "s", "echo hi")
    answer(page, "session")
    assert said(two)[0] == 0
    rules = Path(home, "approvals", "s.json")
    assert rules.stat().st_mode & 0o777 == 0o600
    rules.write_text(json.dumps(dict.fromkeys(json.loads(rules.read_text()), 1.0)))  # long over
    three = cli.start("run", *ASK, "--session", "s", "echo hi")
    answer(page, "no")
    assert said(three)[0] == 125


def test_python_is_asked_about(page: Page, home: str) -> None:
    results: list[object] = []

    def work() -> None:
        with Shell.open(home, "py", "ask") as shell:
            try:
                results.append(shell.run("echo from python").output)
            except Refused as error:
                results.append(error.code)

    thread = threading.Thread(target=work)
    thread.start()
    answer(page, "yes")
    thread.join(PATIENCE_S)
    assert results == ["from python\n"]


def test_a_question_goes_with_either_side(page: Page, cli: Cli, home: str) -> None:
    asker = cli.start("run", *ASK, "echo hi")
    waiting(page)
    asker.send_signal(signal.SIGKILL)
    asker.communicate(timeout=PATIENCE_S)
    eventually(lambda: not page.get("/api/approvals")["pending"], what="the question is gone")
    asker = cli.start("run", *ASK, "echo hi")
    waiting(page)
    os.kill(page.process.pid, signal.SIGKILL)
    code, out, err = said(asker)
    assert (code, out) == (125, "")
    assert "no user can be asked here" in err
    # The socket of the server that was killed holds up nothing.
    assert said(cli.start("run", *ASK, "echo hi"))[0] == 125
    assert not [name for name in os.listdir(f"{home}/approvals") if name.endswith(".socket")]


def test_without_a_page_nothing_waits(cli: Cli, home: str) -> None:
    with Shell.open(home, policy="ask") as shell, pytest.raises(NeedsApproval, match="no user can be asked"):
        shell.run("echo hi")


def test_no_wait_by_a_setting(page: Page, cli: Cli) -> None:
    cli.env["OUTLAST_APPROVAL_WAIT_S"] = "0"
    assert said(cli.start("run", *ASK, "echo hi"))[0] == 125
    cli.env["OUTLAST_APPROVAL_WAIT_S"] = "0.2"
    assert said(cli.start("run", *ASK, "echo hi"))[0] == 125


def test_nothing_in_a_question_hides(page: Page, cli: Cli) -> None:
    asker = cli.start("run", *ASK, "echo a\u202e\u200b; \x1b[2K echo <b>")
    question = answer(page, "no")
    assert question["command"] == "echo a\\u202e\\u200b; \\x1b[2K echo <b>"
    assert question["always"] == []
    assert said(asker)[0] == 125
    asker = cli.start("run", *ASK, "echo a\u202e")
    waiting_one = waiting(page)
    assert page.post(f"/api/approvals/{waiting_one['id']}", {"answer": "always"}, status=400)["error"] == "bad-input"
    assert page.post(f"/api/approvals/{waiting_one['id']}", {"answer": "maybe"}, status=400)["error"] == "bad-input"
    answer(page, "no")
    assert said(asker)[0] == 125


@pytest.mark.parametrize(
    "message",
    [b"", b"null\n", b"[]\n", b"{}\n", b"x" * 200_000, b'{"command": 1}\n', b'{"parts": [1], "always": 2}\n'],
)
def test_what_is_no_question_is_dropped(page: Page, home: str, message: bytes) -> None:
    [name] = [name for name in os.listdir(f"{home}/approvals") if name.endswith(".socket")]
    directory = os.open(f"{home}/approvals", os.O_PATH)
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(f"/proc/self/fd/{directory}/{name}")
        os.close(directory)
        try:
            line.sendall(message)
            line.shutdown(socket.SHUT_WR)
            assert line.recv(10) == b""
        except (BrokenPipeError, ConnectionResetError):
            pass
    assert page.get("/api/approvals")["pending"] == []


@pytest.mark.parametrize("policy", ["guarded", "allowlist"])
def test_no_command_that_is_judged_reaches_the_place_of_questions(home: str, policy: str) -> None:
    with serving(home, "--policy", policy) as page:
        for command in (
            f"echo x > {home}/approvals/s.json",
            f"cp /tmp/x {home}/approvals/s.json",
            f"cd {home}/approvals && touch s.json",
            f"ln -s /tmp/x {home}/approvals/1.socket",
        ):
            assert page.post("/api/check", {"command": command})["verdict"] != "allow", command


def test_a_server_inside_a_task_is_not_asked(cli: Cli, home: str) -> None:
    """A command that serves a page itself, or its own socket, cannot say yes to what it asks for."""
    task = cli("run", "--bg", " ".join([*cli.command, "serve", "--port", "0"])).stdout.strip()
    printed = eventually(lambda: "inside a task" in (text := cli("logs", task).stdout) and text)
    assert LINK.match(printed)
    assert said(cli.start("run", *ASK, "echo hi"))[0] == 125
    os.makedirs(f"{home}/approvals", exist_ok=True)
    fake = (
        "import os, socket; os.chdir('" + home + "/approvals'); s = socket.socket(socket.AF_UNIX); s.bind('x.socket');"
        " s.listen(); print('listens', flush=True); c, _ = s.accept(); c.recv(10); c.sendall(b'{\"answer\":\"yes\"}')"
    )
    other = cli("run", "--bg", f"{sys.executable} -c {shlex.quote(fake)}").stdout.strip()
    eventually(lambda: "listens" in cli("logs", other).stdout)
    assert said(cli.start("run", *ASK, "echo hi"))[0] == 125


def test_a_page_of_one_session_sees_nothing_of_another(home: str, cli: Cli) -> None:
    other = cli("run", "--bg", "--session", "other", "echo secret").stdout.strip()
    with serving(home, *ASK, OUTLAST_SESSION="mine") as page:
        assert page.get("/api/tasks")["total"] == 0
        assert page.get("/api/state")["sessions"] == []
        for path in ("", "/lines", "/log", "/search?q=s", "/first-error", "/screen", "/follow"):
            assert page.request("GET", f"/api/tasks/{other}{path}", page.bearer)[0] == 404, path
        for path in ("kill", "send", "again"):
            assert page.post(f"/api/tasks/{other}/{path}", status=404)["error"] == "unknown-task"
        assert page.call("DELETE", f"/api/tasks/{other}", status=404)["error"] == "unknown-task"
        assert page.get("/api/notices")["notices"] == []
        assert page.get("/api/timeline")["tasks"] == []
        body = {"command": "true", "session": "other"}
        assert page.post("/api/tasks", body, status=400)["error"] == "bad-input"
        assert said(cli.start("run", *ASK, "--session", "other", "echo hi"))[0] == 125  # it is not asked
        asker = cli.start("run", *ASK, "--session", "mine", "echo hi")
        answer(page, "yes")
        assert said(asker)[0] == 0


def test_deep_state_directories_have_sockets_too(cli: Cli, tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["d" * 40] * 4, "state")
    with serving(str(deep), *ASK) as page:
        cli.env["OUTLAST_HOME"] = str(deep)
        asker = cli.start("run", *ASK, "echo hi")
        answer(page, "yes")
        assert said(asker)[:2] == (0, "hi\n")
