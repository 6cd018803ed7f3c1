"""A launch says what is true when it is built, whatever changed since the last one of the same builder."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from outlast.environment import TASK_ID, compose_first_snapshot
from outlast.launch_builder import LaunchBuilder, SessionScope
from outlast.policy import YOLO
from outlast.policy.decision import decide
from outlast.settings import Settings
from outlast.shell import validation
from outlast.storage.sessions import Sessions
from outlast.types import Launch

Build = Callable[..., Launch]
TRACE = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Build]:
    """Build a launch in a session that began in tmp_path/here."""
    (tmp_path / "here").mkdir()
    (tmp_path / "sessions").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.delenv(TASK_ID, raising=False)
    umask, limit = os.umask(0o022), resource.getrlimit(resource.RLIMIT_CORE)
    builder = LaunchBuilder(Settings(), str(tmp_path))
    scope = SessionScope(Sessions(str(tmp_path / "sessions")), "s", True)

    def build_one(command: str = "echo 1", **how: object) -> Launch:
        request = validation.build_request(command, session="s", background=False, **how)  # type: ignore[arg-type]
        return builder.build(decide(request, YOLO), dict(os.environ), scope)

    build_one()  # which begins the session
    monkeypatch.chdir(tmp_path)
    yield build_one
    os.umask(umask)
    resource.setrlimit(resource.RLIMIT_CORE, limit)


def test_nothing_but_the_text_differs_if_nothing_changed(build: Build) -> None:
    one, other = build("echo 1"), build("echo 2")
    assert (one.command, other.command) == ("echo 1", "echo 2")
    assert {**one.__dict__, "command": ""} == {**other.__dict__, "command": ""}


def test_it_has_the_limits_and_the_umask_of_now(build: Build) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    os.umask(0o027)
    launch = build()
    assert launch.umask == 0o027
    assert launch.rlimits["RLIMIT_CORE"] == (0, hard)


def test_it_has_the_callers_trace_and_task_of_now(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEPARENT", TRACE)
    monkeypatch.setenv(TASK_ID, "bash-12345678")
    launch = build()
    assert (launch.trace, launch.parent) == (TRACE, "bash-12345678")


def test_a_new_secret_is_held_back(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_TOKEN", "0123456789abcdef")
    assert "MY_API_TOKEN" in build().held_back
    assert "0123456789abcdef" not in build().env.values()


def test_it_finds_the_bash_of_now(build: Build, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "bash").symlink_to("/bin/bash")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    assert build().shell == f"{tmp_path}/bin/bash"


def test_it_begins_with_the_snapshot_of_now(build: Build, tmp_path: Path) -> None:
    before = build().snapshot
    sessions = Sessions(str(tmp_path / "sessions"))
    sessions.reset("s", compose_first_snapshot(dict(os.environ), "s", str(tmp_path), 0o022))
    after = build()
    assert after.snapshot == sessions.peek("s").mark != before
    assert after.cwd == str(tmp_path)


def test_a_directory_that_is_gone_is_replaced_by_its_nearest_parent(build: Build, tmp_path: Path) -> None:
    assert build().cwd == str(tmp_path / "here")
    (tmp_path / "here").rmdir()
    assert build().cwd == str(tmp_path)


def test_another_shell_gets_what_the_session_exports(build: Build) -> None:
    launch = build(shell="/bin/sh")
    assert (launch.state, launch.snapshot, launch.keeps) == ("", "", False)
    assert launch.env["PATH"] == os.environ["PATH"]
