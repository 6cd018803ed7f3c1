"""A launch that is made from the last one is the one that would have been made anew, whatever changed in between."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from outlast import asking, current_task, launch_builder
from outlast.launch_cache import Preparing
from outlast.permissions import YOLO, decide
from outlast.secrets import names_of_secrets
from outlast.settings import Settings
from outlast.storage.sessionfile import Sessions
from outlast.types import Grant, Launch

Change = Callable[[pytest.MonkeyPatch, Path], None]


def _set_limit(_patch: pytest.MonkeyPatch, _place: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0 if hard else hard, hard))


def _new_bash(patch: pytest.MonkeyPatch, place: Path) -> None:
    (place / "bin").mkdir()
    (place / "bin" / "bash").symlink_to("/bin/bash")
    patch.setenv("PATH", f"{place}/bin:{os.environ['PATH']}")


def _new_state(patch: pytest.MonkeyPatch, place: Path) -> None:
    found = Sessions(str(place / "sessions"))
    patch.setenv("OTHER", "value")
    found.reset("s", launch_builder.first_snapshot(dict(os.environ), "s"))


CHANGES: dict[str, Change] = {
    "nothing": lambda _patch, _place: None,
    "a variable": lambda patch, _: patch.setenv("OUTLAST_TRIED", "1"),
    "a secret": lambda patch, _: patch.setenv("MY_API_TOKEN", "0123456789abcdef"),
    "a trace": lambda patch, _: patch.setenv("TRACEPARENT", "00-" + "1" * 32 + "-" + "2" * 16 + "-01"),
    "the umask": lambda _patch, _place: (os.umask(0o027), None)[1],
    "a limit": _set_limit,
    "the way to bash": _new_bash,
    "the session's state": _new_state,
    "its directory is gone": lambda _patch, place: (place / "here").rmdir(),
    "the task it is inside of": lambda patch, _: patch.setenv(current_task.TASK_ID, "bash-12345678"),
}


class Prepares:
    """One way beside the other."""

    def __init__(self, place: Path) -> None:
        self._place = launch_builder.Place(Sessions(str(place / "sessions")), "s", True)
        self._settings, self._home = Settings(), str(place)
        self.preparing = Preparing(self._settings, self._home)

    def both(self, command: str, **how: object) -> tuple[Launch, Launch]:
        grant = self._grant(command, how)
        environ = dict(os.environ)
        secret = names_of_secrets(environ, self._settings)
        anew = launch_builder.prepare(grant, self._settings, environ, self._place, self._home, secret)
        return self.preparing.launch(grant, self.preparing.environ(), self._place, secret), anew

    def _grant(self, command: str, how: dict[str, object]) -> Grant:
        asked = asking.request(command, session="s", background=False, **how)  # type: ignore[arg-type]
        return decide(asked, YOLO)


@pytest.fixture
def prepares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "sessions").mkdir()
    mask, limit = os.umask(0o022), resource.getrlimit(resource.RLIMIT_CORE)
    made = Prepares(tmp_path)
    made.both("true")  # which begins the session
    monkeypatch.chdir(tmp_path)
    yield made
    os.umask(mask)
    resource.setrlimit(resource.RLIMIT_CORE, limit)


@pytest.mark.parametrize("what", CHANGES)
def test_it_is_as_if_it_were_made_anew(prepares: Prepares, monkeypatch, tmp_path, what):
    for command in ("echo 1", "echo 2"):
        made, anew = prepares.both(command, description=command)
        assert made == anew
    CHANGES[what](monkeypatch, tmp_path)
    made, anew = prepares.both("echo 3")
    assert made == anew
    assert made.command == "echo 3"


@pytest.mark.parametrize(
    "how",
    [{"cwd": "/"}, {"env": {"A": "b"}}, {"stdin": "text"}, {"split": True}, {"limit": 5.0}, {"shell": "/bin/sh"}],
    ids=str,
)
def test_what_is_asked_otherwise_is_made_otherwise(prepares: Prepares, how):
    ways: tuple[dict[str, object], ...] = ({}, how, how, {})
    for again in ways:
        made, anew = prepares.both("echo 1", **again)
        assert made == anew


def test_only_the_text_is_made_anew(prepares: Prepares, monkeypatch):
    prepares.both("echo 1")
    grant = prepares._grant("echo 2", {})
    environ = prepares.preparing.environ()
    monkeypatch.setattr(launch_builder, "prepare", lambda *_: pytest.fail("it was made anew"))
    made = prepares.preparing.launch(grant, environ, prepares._place, names_of_secrets(environ, Settings()))
    assert made.command == "echo 2"
