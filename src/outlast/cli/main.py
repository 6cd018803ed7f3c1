"""Finds the verb, runs it, turns our errors into one sentence and an exit code."""

from __future__ import annotations

import gc
import os
import sys

from outlast import __version__
from outlast.errors import (
    AlreadyEnded,
    AmbiguousTask,
    BadInput,
    InputRefused,
    OutlastError,
    OutOfReach,
    ReaderBusy,
    SessionBusy,
    StillRunning,
    SystemRefused,
    UnknownSession,
    UnknownTask,
    named,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

WRONG_USAGE = 2
OUR_FAILURE = 125
_ABOUT_A_TASK = (
    UnknownTask,
    AmbiguousTask,
    AlreadyEnded,
    StillRunning,
    InputRefused,
    OutOfReach,
    ReaderBusy,
    UnknownSession,
    SessionBusy,
)  # ordinary answers: exit code 1

# verb: the module that has it, and what it is for
VERBS = {
    "run": ("run", "run a command, in the foreground or (--bg) in the background"),
    "ps": ("look", "list this session's running and recent tasks"),
    "tasks": ("dashboard", "the dashboard: a table of tasks for people, live with --watch"),
    "show": ("look", "show everything about one task"),
    "logs": ("logs", "print what a task printed, or follow it (-f)"),
    "wait": ("look", "wait until tasks end"),
    "kill": ("act", "end tasks, each with its whole tree of processes"),
    "send": ("act", "send text to a task's standard input"),
    "agent": ("agent", "start agents as tasks, or follow those that somebody else started"),
    "check": ("check", "say whether a command may run, and why; runs nothing"),
    "session": ("session", "show what a session remembers; reset, copy or remove it"),
    "notices": ("tell", "print, or deliver, what ended and what else there is to tell"),
    "brief": ("tell", "one paragraph for a model: what runs, what ended since the last one"),
    "verify": ("tell", "check that a notice is genuine"),
    "events": ("tell", "print what happened, or follow it (-f), one line each"),
    "clean": ("act", "remove finished tasks and their output"),
    "tools": ("tools", "print the tools for models as JSON"),
    "call": ("tools", "call a tool as a model would, and print the reply"),
    "mcp": ("mcp", "serve those tools over MCP"),
    "setup": ("setup", "make Claude Code, Codex, Gemini CLI, Cursor or VS Code use Outlast"),
    "doctor": ("doctor", "check what this machine can do"),
    "demo": ("demo", "see the main job in half a minute"),
    "completion": ("completion", "print completion for bash, zsh or fish"),
}
_EXAMPLES = """examples:
  outlast run make test                 run, see the output live, get make's exit code
  outlast run --bg 'npm run dev'        start a server and print its task id
  outlast logs -f bash-1a2b             follow it (a part of the id is enough)
  outlast kill bash-1a2b                end it and everything it started
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    _prepare_streams()
    try:
        code = _dispatch(words)
        sys.stdout.flush()
        return code
    except OutlastError as error:
        return _complain(error, words)
    except BrokenPipeError:
        return 141  # whoever read us has enough, as in `outlast logs ID | head`
    except OSError as error:
        words = words if _stdout_works() else words[:1]  # where no JSON arrives, none was asked for
        what = f": {error.filename}" if error.filename else ""
        return _complain(SystemRefused(f"The system refused what Outlast needs: {error.strerror}{what}."), words)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if not _is_of_sqlite(error):
            raise
        return _complain(SystemRefused(f"A file of the state directory cannot be used: {error}; try again."), words)
    finally:
        _stdout_works()  # or the interpreter would complain in our stead


def _is_of_sqlite(error: Exception) -> bool:
    """Whether SQLite raised it; asked without loading SQLite, which most verbs do without."""
    return any(kind.__module__ == "sqlite3" for kind in type(error).__mro__)


def _prepare_streams() -> None:
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            # The caller closed it. It gets its number back, or a file of ours would get it.
            os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))
    for stream in (sys.stdout, sys.stderr):
        # JSON is UTF-8 whatever the locale; half a character that a file name holds must not stop us.
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]


def _stdout_works() -> bool:
    try:
        sys.stdout.flush()
        return True
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is still held for it goes nowhere
        return False


def _dispatch(words: list[str]) -> int:
    verb = words[0] if words else "--help"
    if verb in ("-h", "--help", "help"):
        sys.stdout.write(overview())
        return 0
    if verb in ("-V", "--version"):
        sys.stdout.write(f"outlast {__version__}\n")
        return 0
    if verb not in VERBS:
        raise BadInput(f"There is no verb {named(verb)}{_near(verb)}; `outlast --help` lists them.")
    from importlib import import_module

    module = import_module(f"outlast.cli.{VERBS[verb][0]}")
    gc.enable()
    code: int = getattr(module, verb)(words[1:])
    return code


def overview() -> str:
    """The help for the whole program."""
    verbs = "".join(f"  {verb:<11} {what}\n" for verb, (_, what) in VERBS.items())
    return (
        "usage: outlast VERB ...\n\nThe shell for AI agents whose commands outlast the agent that ran them.\n\n"
        f"{verbs}\n`outlast VERB --help` explains a verb.\n\n{_EXAMPLES}"
    )


def _near(verb: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(verb, VERBS, n=1)
    return f" (did you mean '{near[0]}'?)" if near else ""


def _complain(error: OutlastError, words: list[str]) -> int:
    """Say it in one sentence; the exit code for it."""
    from outlast.output.redaction import Mask

    running = words[:1] == ["run"]
    error.message = Mask().text(error.message)  # what was typed may hold a token
    if _wants_json(words, running):
        from outlast.display.render import error_json

        print(error_json(error))
    else:
        print(f"outlast: {error.message}", file=sys.stderr)
    if isinstance(error, BadInput):
        return WRONG_USAGE
    return OUR_FAILURE if running or not isinstance(error, _ABOUT_A_TASK) else 1


def _wants_json(words: list[str], running: bool) -> bool:
    if not running:
        return "--json" in words
    from outlast.cli.run import wants_json  # there it may be a word of the command

    return wants_json(words[1:])
