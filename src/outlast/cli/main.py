"""Finds the verb, runs it, and turns errors of ours into one sentence and an exit code."""

from __future__ import annotations

import gc
import os
import sys

from outlast import __version__
from outlast.cli.arguments import HelpWanted
from outlast.cli.common import OUR_FAILURE
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
    quote,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

WRONG_USAGE = 2
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

# Of each group of verbs: the module that has the verb, and what it is for.
GROUPS = {
    "run and look": {
        "run": ("run", "run a command, in the foreground or (--bg) in the background"),
        "ps": ("tasks", "list this session's running and recent tasks"),
        "tasks": ("dashboard", "the dashboard: a table of tasks for people, live with --watch"),
        "top": ("top", "all tasks on one full-screen page, with their output and keys to act"),
        "show": ("tasks", "show everything about one task"),
        "logs": ("logs", "print what a task printed, or follow it (-f)"),
        "wait": ("tasks", "wait until tasks end, or are ready"),
        "kill": ("tasks", "end tasks, each with its whole tree of processes"),
        "send": ("tasks", "send text to a task's standard input"),
        "attach": ("attach", "see a task live, and type at it, as if it ran in your terminal"),
        "screen": ("terminal", "print the screen of a task's terminal"),
        "resize": ("terminal", "change the size of a task's terminal"),
        "clean": ("tasks", "remove finished tasks and their output"),
        "serve": ("serve", "serve a web page with all tasks, on this machine only"),
    },
    "sessions, agents and policies": {
        "session": ("session", "show what a session remembers; reset, copy or remove it"),
        "agent": ("agent", "start agents as tasks, or follow those that another program started"),
        "check": ("check", "say whether a policy allows a command, and why; runs nothing"),
    },
    "notices and events": {
        "notices": ("notices", "print or deliver notices: a task ended, a line matched ..."),
        "brief": ("notices", "one paragraph for a model: what runs, what ended since the last one"),
        "verify": ("notices", "check that a notice is genuine"),
        "events": ("notices", "print what happened, or follow it (-f), one line each"),
    },
    "for models": {
        "setup": ("setup", "make Claude Code, Codex, Gemini CLI, Cursor or VS Code use Outlast"),
        "mcp": ("mcp", "serve the tools for models over MCP"),
        "tools": ("tools", "print the tools for models as JSON"),
        "call": ("tools", "call a tool as a model would, and print the reply"),
    },
    "this program": {
        "doctor": ("doctor", "check what this machine can do"),
        "demo": ("demo", "see the main job in half a minute"),
        "completion": ("completion", "print completion for bash, zsh or fish"),
    },
}
VERBS = {verb: it for group in GROUPS.values() for verb, it in group.items()}
_EXAMPLES = """examples:
  outlast run make test                 run, see the output live, get make's exit code
  outlast run --bg 'npm run dev'        start a server and print its task id
  outlast logs -f bash-1a2b             follow it (a part of the id is enough)
  outlast kill bash-1a2b                end it and everything it started
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    _prepare_streams()
    call = _Call(words)
    try:
        code = call.run()
        sys.stdout.flush()
        return code
    except OutlastError as error:
        return call.complain(error)
    except BrokenPipeError:
        return 141  # the reader of our output has enough, as in `outlast logs ID | head`
    except OSError as error:
        call.wants_json = call.wants_json and _stdout_works()
        what = f": {error.filename}" if error.filename else ""
        return call.complain(SystemRefused(f"The system refused what Outlast needs: {error.strerror}{what}."))
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if not _is_of_sqlite(error):
            raise
        return call.complain(SystemRefused(f"A file of the state directory cannot be used: {error}; try again."))
    finally:
        _stdout_works()  # or the interpreter would complain when it ends


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


class _Call:
    """One call of the command line."""

    def __init__(self, words: list[str]) -> None:
        self.verb, self.words = words[0] if words else "--help", words[1:]
        self.wants_json = "--json" in words

    def run(self) -> int:
        if self.verb in ("-h", "--help", "help"):
            sys.stdout.write(overview())
            return 0
        if self.verb in ("-V", "--version"):
            sys.stdout.write(f"outlast {__version__}\n")
            return 0
        if self.verb not in VERBS:
            raise BadInput(f"There is no verb {quote(self.verb)}{_near(self.verb)}; `outlast --help` lists them.")
        module = module_of(self.verb)
        gc.enable()
        try:
            asked = getattr(module, f"{self.verb}_parser")().parse(self.words)
        except HelpWanted as help:
            sys.stdout.write(str(help))
            return 0
        self.wants_json = getattr(asked, "json", False)  # in the words it may be a part of a command
        code: int = getattr(module, self.verb)(asked)
        return code

    def complain(self, error: OutlastError) -> int:
        """Print an error in one sentence; return the exit code for it."""
        from outlast.output.redaction import Mask

        error.message = Mask().text(error.message)  # what was typed may hold a token
        if self.wants_json:
            from outlast.display.render import error_json

            print(error_json(error))
        else:
            print(f"outlast: {error.message}", file=sys.stderr)
        if isinstance(error, BadInput):
            return WRONG_USAGE
        return 1 if isinstance(error, _ABOUT_A_TASK) and self.verb != "run" else OUR_FAILURE


def module_of(verb: str) -> ModuleType:
    """Return the module that has a verb."""
    name = f"outlast.cli.{VERBS[verb][0]}"
    __import__(name)  # `import_module` would load importlib and warnings, half a millisecond
    return sys.modules[name]


def overview() -> str:
    """Return the help for the whole program."""
    groups = "".join(
        f"{title}:\n" + "".join(f"  {verb:<11} {what}\n" for verb, (_, what) in verbs.items()) + "\n"
        for title, verbs in GROUPS.items()
    )
    return (
        "usage: outlast VERB ...\n\nThe shell for AI agents whose commands outlast the agent that ran them.\n\n"
        f"{groups}`outlast VERB --help` explains a verb.\n\n{_EXAMPLES}"
    )


def _near(verb: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(verb, VERBS, n=1)
    return f" (did you mean '{near[0]}'?)" if near else ""
