"""The API with real tasks: what is listed, streamed, searched, started and ended."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outlast import Shell
from tests.conftest import Cli, eventually
from tests.web.support import Page, ended, serving, streaming


@pytest.fixture
def page(cli: Cli, home: str) -> Iterator[Page]:
    with serving(home) as served:
        yield served


def test_the_link_comes_first_and_the_usual_port_gives_way(home: str, cli: Cli) -> None:
    with serving(home) as one, serving(home) as other:
        assert one.port != other.port
        assert one.get("/api/state")["home"] == other.get("/api/state")["home"] == home
        taken = cli("serve", "--port", str(one.port))
        assert taken.returncode == 125
        assert f"Cannot listen on 127.0.0.1:{one.port}" in taken.stderr
    assert cli("serve", "--port", "70000").returncode == 2
    assert cli("serve", "--port", "x").returncode == 2


def test_a_task_from_its_start_to_its_end(page: Page) -> None:
    with streaming(page, "/api/events") as overview:
        assert overview.until("hello")["now"] > 0
        assert overview.until("approvals") == {"pending": []}
        task_id = page.start("echo begun; read line; echo got $line", stdin_open=True, description="d", cwd="/tmp")
        begun = overview.until("tasks", lambda one: [t for t in one["changed"] if t["task_id"] == task_id])
        assert begun["changed"][0]["status"] == "running"
        with streaming(page, f"/api/tasks/{task_id}/follow") as follow:
            assert follow.until("task")["cwd"] == "/tmp"
            follow.until("lines", lambda one: one == {"total": 1, "complete": False})
            used = overview.until("usage", lambda one: one["tasks"].get(task_id, {}).get("last_line") == "begun")
            assert used["tasks"][task_id]["memory"] > 0
            assert used["tasks"][task_id]["activity"] == "waiting for input"
            shown = page.get(f"/api/tasks/{task_id}")
            assert [one["command"] for one in shown["processes"]] == ["echo begun; read line; echo got $line"]
            assert shown["judged"]["verdict"] == "allow"
            assert shown["environment"]["OUTLAST_TASK_ID"] == task_id
            assert page.post(f"/api/tasks/{task_id}/send", {"text": "hello\n"}) == {}
            assert follow.until("end")["status"] == "completed"
            eventually(lambda: follow.is_over, what="the stream ends with the task")
        over = overview.until("tasks", lambda one: [t for t in one["changed"] if t["status"] == "completed"])
        assert over["changed"][0]["exit_code"] == 0
        assert overview.until("notice")["task_id"] == task_id
        lines = page.get(f"/api/tasks/{task_id}/lines")
        assert [one["text"] for one in lines["lines"]] == ["begun", "got hello"]
        assert lines["complete"]
        assert lines["lines"][1]["at"] == pytest.approx(time.time(), abs=20)  # it was seen to come
        assert [one["type"] for one in page.get(f"/api/tasks/{task_id}")["events"]] == ["task.started", "task.ended"]
        assert page.call("DELETE", f"/api/tasks/{task_id}") == {}
        overview.until("tasks", lambda one: task_id in one["removed"])
    assert page.get("/api/tasks")["total"] == 0
    assert page.get(f"/api/tasks/{task_id}", status=404)["error"] == "unknown-task"


def test_what_other_processes_start_and_remove_is_seen(page: Page, cli: Cli) -> None:
    with streaming(page, "/api/events") as overview:
        overview.until("hello")
        task_id = cli("run", "--bg", "--session", "other", "echo hi").stdout.strip()
        overview.until("tasks", lambda one: [t for t in one["changed"] if t["status"] == "completed"])
        assert page.get("/api/state")["sessions"] == ["other"]
        cli("clean", task_id, check=0)
        overview.until("tasks", lambda one: task_id in one["removed"])


def test_lists_are_filtered_sorted_and_paged(page: Page) -> None:
    with Shell.open(home=page.get("/api/state")["home"], session="a") as shell:
        for number in range(5):
            shell.run(f"echo {number}", description="even" if number % 2 == 0 else "odd")
        shell.run("exit 3")
    eventually(lambda: page.get("/api/tasks")["total"] == 6)
    assert [t["command"] for t in page.get("/api/tasks?limit=2&offset=1")["tasks"]] == ["echo 4", "echo 3"]
    assert page.get("/api/tasks?limit=2&offset=1")["total"] == 6
    assert [t["command"] for t in page.get("/api/tasks?q=EVEN%20echo&sort=oldest")["tasks"]] == [
        "echo 0",
        "echo 2",
        "echo 4",
    ]
    assert [t["exit_code"] for t in page.get("/api/tasks?status=error")["tasks"]] == [3]
    assert page.get("/api/tasks?session=b")["total"] == 0
    assert page.get("/api/tasks?sort=command")["tasks"][0]["command"] == "echo 0"
    for wrong in ("limit=0", "limit=x", "sort=best", "nothing=1", "limit=1&limit=2", "status=done"):
        assert page.get(f"/api/tasks?{wrong}", status=400)["error"] == "bad-input", wrong


def test_a_task_that_another_one_started_is_below_it(page: Page, cli: Cli) -> None:
    inner = " ".join([*cli.command, "run", "--bg", "'sleep 30'"])
    outer = page.start(f"{inner}; sleep 30")
    below = eventually(lambda: page.get(f"/api/tasks/{outer}")["task"]["children_tasks"])
    assert page.get(f"/api/tasks/{below[0]}")["task"]["parent"] == outer
    receipt = page.post(f"/api/tasks/{outer}/kill", {"grace": 1})
    assert receipt["survivors"] == []
    assert receipt["task"]["status"] == "killed"
    assert page.get(f"/api/tasks/{below[0]}")["task"]["status"] == "running"  # a task outlasts the one that started it
    assert page.post(f"/api/tasks/{below[0]}/kill")["ended"]
    assert page.post(f"/api/tasks/{outer}/kill", status=409)["error"] == "already-ended"


def test_search_and_first_error(page: Page) -> None:
    task_id = page.start(
        "for i in $(seq 2000); do echo line $i; done; printf '\\033[31mTraceback (most recent call last):\\033[0m\\n'; "
        "printf '  File \"a.py\", line 1, in <module>\\nValueError: no\\n'; exit 1"
    )
    ended(page, task_id)
    at = f"/api/tasks/{task_id}"
    assert page.get(f"{at}/first-error") == {"n": 2001, "count": 3}
    assert page.get(f"{at}/search?q=LINE%20200") == {
        "matches": [{"n": 200, "start": 0, "end": 8}, {"n": 2000, "start": 0, "end": 8}],
        "more": False,
    }
    assert page.get(f"{at}/search?q=LINE&case=1")["matches"] == []
    assert page.get(f"{at}/search?q=line&limit=3")["more"]
    assert page.get(f"{at}/search?q=%5Eline%20.9%24&regex=1")["matches"][0]["n"] == 19
    assert page.get(f"{at}/search?q=recent%20call")["matches"] == [{"n": 2001, "start": 16, "end": 27}]
    assert page.get(f"{at}/search?q=(&regex=1", status=400)["error"] == "bad-pattern"
    assert page.get(f"{at}/search", status=400)["error"] == "bad-input"
    [line] = page.get(f"{at}/lines?from=2001&count=1")["lines"]
    assert line["text"] == "\x1b[31mTraceback (most recent call last):\x1b[0m"
    assert [one["n"] for one in page.get(f"{at}/lines?from=-2")["lines"]] == [2002, 2003]


def test_both_streams_stand_in_the_order_they_came(page: Page, cli: Cli) -> None:
    cli("run", "--split", "echo a; sleep 0.1; echo b >&2; sleep 0.1; echo c; sleep 0.1; printf d >&2", check=0)
    [task] = eventually(lambda: page.get("/api/tasks")["tasks"])
    at = f"/api/tasks/{task['task_id']}"
    both = [(one["n"], one["stream"], one["text"]) for one in page.get(f"{at}/lines")["lines"]]
    assert both == [(1, "stdout", "a"), (2, "stderr", "b"), (3, "stdout", "c"), (4, "stderr", "d")]
    assert [one["text"] for one in page.get(f"{at}/lines?stream=stderr")["lines"]] == ["b", "d"]
    assert page.request("GET", f"{at}/log?stream=stderr", page.bearer)[2] == b"b\nd"


def test_a_terminal_its_screen_and_keys(page: Page) -> None:
    task_id = page.start("read -p 'name? ' name; printf '\\033[2J\\033[Hhello %s' $name; sleep 30", tty=[40, 5])
    with streaming(page, f"/api/tasks/{task_id}/follow") as follow:
        follow.until("screen", lambda one: one["cells"][0][0][0].startswith("name? "))
        page.post(f"/api/tasks/{task_id}/send", {"keys": "you<Enter>"})
        follow.until("screen", lambda one: one["cells"][0][0][0].startswith("hello you"))
    page.post(f"/api/tasks/{task_id}/resize", {"columns": 60, "rows": 10})
    screen = eventually(lambda: (s := page.get(f"/api/tasks/{task_id}/screen"))["columns"] == 60 and s)
    assert screen["rows"] == 10
    page.post(f"/api/tasks/{task_id}/kill")
    assert page.get(f"/api/tasks/{page.start('true')}/screen", status=409)["error"] == "input-refused"


def test_again_runs_the_same_in_the_same_place(page: Page, tmp_path: Path) -> None:
    first = page.start("pwd", cwd=str(tmp_path), description="where")
    ended(page, first)
    again = page.post(f"/api/tasks/{first}/again")["task"]
    assert again["task_id"] != first
    assert (again["command"], again["cwd"], again["description"]) == ("pwd", str(tmp_path), "where")


def test_secrets_are_in_nothing_that_is_sent(home: str, cli: Cli) -> None:
    secret = "hunter2-canary-8d1f"
    with serving(home, MY_API_TOKEN=secret) as page:
        task_id = page.start(f"echo {secret}; echo x{secret[:6]}'{secret[6:]}'; sleep 30", description=secret, name="n")
        eventually(lambda: page.get(f"/api/tasks/{task_id}/lines")["total"] == 2)
        for path in ("", "/lines", "/log", f"/search?q={secret}", "/search?q=canary"):
            body = page.request("GET", f"/api/tasks/{task_id}{path}", page.bearer)[2]
            assert secret.encode() not in body, path
        for path in ("/api/tasks", "/api/notices", "/api/timeline", "/metrics"):
            assert secret.encode() not in page.request("GET", path, page.bearer)[2], path
        assert "MY_API_TOKEN" not in page.get(f"/api/tasks/{task_id}")["environment"]
        assert page.get(f"/api/tasks/{task_id}/search?q={secret}")["matches"] == []
        page.post(f"/api/tasks/{task_id}/kill")


def test_a_server_that_is_killed_takes_no_task_along(home: str, cli: Cli) -> None:
    with serving(home) as page:
        task_id = page.start("echo begun; sleep 1; echo done")
        with streaming(page, f"/api/tasks/{task_id}/follow") as follow:
            follow.until("lines", lambda one: one["total"] == 1)
            os.kill(page.process.pid, signal.SIGKILL)
            page.process.wait()
    assert cli.json("wait", task_id)["status"] == "completed"
    with serving(home) as page:
        assert [one["text"] for one in page.get(f"/api/tasks/{task_id}/lines")["lines"]] == ["begun", "done"]


def test_a_command_is_checked_without_running(home: str, cli: Cli) -> None:
    with serving(home, "--policy", "guarded") as page:
        found = page.post("/api/check", {"command": "echo a; rm -rf /"})
        assert found["verdict"] == "deny"
        assert [one["verdict"] for one in found["reasons"]] == ["allow", "deny"]
        assert page.post("/api/tasks", {"command": "rm -rf /"}, status=403)["error"] == "refused"
        wrongs: list[Any] = [
            {},
            {"command": ""},
            {"command": 1},
            {"command": "true", "nothing": 1},
            {"command": "a\0b"},
            [],
        ]
        for wrong in wrongs:
            assert page.post("/api/tasks", wrong or {"x": 1}, status=400)["error"] == "bad-input", wrong
        assert page.get("/api/tasks")["total"] == 0


def test_metrics_are_what_prometheus_reads(page: Page) -> None:
    ended(page, page.start("true"))
    eventually(lambda: page.get("/api/tasks?status=completed")["total"])  # the server has heard of the end
    code, headers, body = page.request("GET", "/metrics", page.bearer)
    assert (code, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    samples = [line for line in body.decode().splitlines() if not line.startswith("#")]
    assert 'outlast_tasks{status="completed"} 1' in samples
    assert all(len(line.split(" ")) == 2 and float(line.split(" ")[1]) >= 0 for line in samples)
