"""Finds the verb, runs it, turns our errors into one sentence and an exit code."""

from __future__ import annotations

import os
import sys

from outlast import __version__
from outlast.errors import BadInput, DamagedTask, OutlastError, StartFailed, StateRefused, Unsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

WRONG_USAGE = 2
OUR_FAILURE = 125

# verb: the module that has it, and what it is for
VERBS = {
    "run": ("run", "run a command, in the foreground or (--bg) in the background"),
    "ps": ("look", "list this session's running and recent tasks"),
    "show": ("look", "show everything about one task"),
    "logs": ("logs", "print what a task printed, or follow it (-f)"),
    "wait": ("look", "wait until tasks end"),
    "kill": ("act", "end tasks, each with its whole tree of processes"),
    "send": ("act", "send text to a task's standard input"),
    "clean": ("act", "remove finished tasks and their output"),
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
    try:
        return _dispatch(words)
    except OutlastError as error:
        _complain(error, "--json" in words)
        return _exit_code(error, words[:1] == ["run"])
    except BrokenPipeError:
        # Whoever read us has enough, as in `outlast logs ID | head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    except KeyboardInterrupt:
        return 130


def _dispatch(words: list[str]) -> int:
    verb = words[0] if words else "--help"
    if verb in ("-h", "--help", "help"):
        sys.stdout.write(overview())
        return 0
    if verb in ("-V", "--version"):
        sys.stdout.write(f"outlast {__version__}\n")
        return 0
    if verb not in VERBS:
        raise BadInput(f"There is no verb '{verb}'{_near(verb)}; `outlast --help` lists them.")
    from importlib import import_module

    module = import_module(f"outlast.faces.cli.{VERBS[verb][0]}")
    code: int = getattr(module, verb)(words[1:])
    sys.stdout.flush()
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


def _complain(error: OutlastError, as_json: bool) -> None:
    if as_json:
        from outlast.faces.render import error_json

        print(error_json(error))
    else:
        print(f"outlast: {error.message}", file=sys.stderr)


def _exit_code(error: OutlastError, running: bool) -> int:
    if isinstance(error, BadInput):
        return WRONG_USAGE
    if running or isinstance(error, (StateRefused, StartFailed, DamagedTask, Unsupported)):
        return OUR_FAILURE
    return 1
