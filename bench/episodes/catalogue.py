"""The ten episodes: what the user asks for, what happens meanwhile, and how to see that it was done."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.episodes.play import Observer
from bench.episodes.world import World

_SETTLE_S = 3.0  # how long a process that was just ended may still be seen


@dataclass(frozen=True)
class Episode:
    """`parts` are the functions that a strategy has for it, one after the other."""

    key: str
    title: str
    prompt: str
    check: Callable[[World, str], str]
    """What is wrong with the world, or with what the model has read; nothing if the episode is solved."""
    parts: tuple[str, ...] = ()
    uncounted: str = ""
    """The part that only brings about what the episode is about."""
    later_prompt: str = ""
    """What the user asks for after the contestant was killed."""
    kill_after: str = ""
    """The part after which the contestant is killed with SIGKILL and started again."""
    observer: Observer | None = None

    @property
    def all_parts(self) -> tuple[str, ...]:
        return self.parts or (self.key,)


def _has_read(read: str, *expected: str) -> str:
    missing = [text for text in expected if text not in read]
    return f"no reply has shown {', '.join(missing)}" if missing else ""


def _ended(world: World, *names: str) -> str:
    """Check that these programs ran, and no longer do."""
    if never := [name for name in names if not world.started(name)]:
        return f"never started: {', '.join(never)}"
    deadline = time.monotonic() + _SETTLE_S
    while (left := [name for name in names if world.running(name)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return f"still running: {', '.join(left)}" if left else ""


def _there(world: World, *names: str) -> str:
    missing = [name for name in names if not world.running(name)]
    return f"not running: {', '.join(missing)}" if missing else ""


def _first(*findings: str) -> str:
    return next((finding for finding in findings if finding), "")


# --- the watcher, and the user who edits its file ----------------------------------------------

SAVES = ("version 2\n", "version 3 with a syntax error\n", "version 4\n")


def _signs(world: World) -> list[str]:
    """What shows that each build was read, from the first one on."""
    first, _, third = SAVES
    broken = f"line {world.secrets['line']}"
    return [world.build_of("version 1\n"), world.build_of(first), broken, world.build_of(third)]


def _save_next(world: World, reply: str) -> None:
    """Save the user's next version once the model has seen the build of the last one."""
    for sign, text in zip(_signs(world), SAVES, strict=False):
        if sign in reply:
            (world.work / "src" / "main.txt").write_text(text)


def _check_watcher(world: World, read: str) -> str:
    return _first(_has_read(read, *_signs(world)[1:]), _there(world, "watch"))


# --- the others -------------------------------------------------------------------------------


def _check_install(world: World, read: str) -> str:
    path = world.work / "installed.json"
    if not path.exists():
        return "it was not installed"
    given = json.loads(path.read_text())
    wrong = "" if given == {"config": "y", "data": "n"} else f"answered {given}"
    return _first(wrong, _has_read(read, world.secrets["install"]))


def _check_two_servers(world: World, read: str) -> str:
    return _first(_ended(world, "web"), _there(world, "api"), _has_read(read, f"api version {world.secrets['api']}"))


def _check_killed(world: World, read: str) -> str:
    again = "it was built again" if world.repeats() else ""
    return _first(again, _has_read(read, f"artifact {world.secrets['build']}.tar"))


EPISODES = (
    Episode(
        "dev_server",
        "Dev server until ready, then use it",
        "Start the development server with ./serve.py web. When it is ready, ask it for /version and tell me what it "
        "says.",
        lambda world, read: _first(_there(world, "web"), _has_read(read, f"web version {world.secrets['web']}")),
    ),
    Episode(
        "failing_test",
        "Failing test: find the first error",
        "Run the tests with ./run-tests. Tell me which invoice the first failure is about, and what is wrong with it.",
        lambda world, read: _has_read(
            read, f"the positions do not add up to the total in invoice-{world.secrets['test']}"
        ),
    ),
    Episode(
        "watcher",
        "Watcher that rebuilds, three rounds",
        "Start ./watch.py, which builds src/main.txt whenever it changes. I will edit the file three times, each time "
        "when you have seen what the last build came to. Tell me what each build came to.",
        _check_watcher,
        observer=_save_next,
    ),
    Episode(
        "prompts",
        "Program with y/n prompts",
        "Run ./install.py and answer its questions: the configuration may be replaced, data must not be deleted. Tell "
        "me under which name it was installed.",
        _check_install,
    ),
    Episode(
        "large_log",
        "50 MB of log: find what matters",
        "Run ./import.py. It prints about 50 MB. Tell me whether something went wrong, and what.",
        lambda world, read: _has_read(read, f"checksum mismatch in part-{world.secrets['import']}.parquet"),
    ),
    Episode(
        "killed",
        "Agent killed and restarted",
        "Start ./build.py --core in the background; it takes about 40 s.",
        _check_killed,
        later_prompt="A build was started here before you were restarted. Find it, do not build again, and tell me "
        "which artifact it built.",
        parts=("killed", "restarted"),
        kill_after="killed",
    ),
    Episode(
        "two_servers",
        "Two servers, one is ended",
        "Start ./serve.py web and ./serve.py api side by side. When both are ready end web, then ask api for /version "
        "and tell me what it says.",
        _check_two_servers,
    ),
    Episode(
        "slow_build",
        "90 s build, calls cut at 60 s",
        "Run ./build.py, which takes about 90 s, and tell me which artifact it built.",
        lambda world, read: _has_read(read, f"artifact {world.secrets['build']}.tar"),
    ),
    Episode(
        "child_left",
        "Command leaves a child behind",
        "Run ./check.sh and tell me the number of its report. See to it that nothing keeps running afterwards.",
        lambda world, read: _first(_has_read(read, f"report {world.secrets['check']}"), _ended(world, "mock")),
    ),
    Episode(
        "clean_up",
        "Clean-up: nothing survives",
        "End everything that still runs here from what was done before; nothing may survive.",
        lambda world, read: _ended(world, "web", "cache"),
        parts=("leave_running", "clean_up"),
        uncounted="leave_running",
    ),
)
