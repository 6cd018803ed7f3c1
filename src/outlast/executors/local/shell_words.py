"""How a shell is told to run a text that appears in no argument list.

bash reads the text from the task's own file and evaluates it: `$0`, line numbers and
error messages are then as with `bash -c`, and `pkill -f` with a piece of the text finds
the command's own processes, never ours.

If the text has a `|` or a `!`, the status of each stage of its last pipeline is written
beside it, into a file that is there for that. It takes one line after the text, which a
text that is not complete would swallow (an open here-document, a trailing `&&`); so `bash
-n` looks first, and what it does not like runs without. The list is then absent rather
than guessed.

bash is started before there is a task, and waits: its own start then goes on beside
everything else, or is long over when the command comes.
"""

from __future__ import annotations

import os

from outlast.linux.files import open_regular
from outlast.storage.status import PIPES

READY = 3  # the descriptor on which bash waits for its command

# One line each, so that line numbers in messages are the text's own. What is ours goes on
# whatever the text did to its shell: `set -e`, traps that print, functions named as builtins.
_BEGIN = "__outlast_dir=$1; builtin shift; "
_WAIT = f"builtin read -r -u {READY} __outlast_go || builtin exit 1; exec {READY}<&-; SECONDS=0; "
_READ = 'IFS= builtin read -r -d "" __outlast_command < "$__outlast_dir/command" || :; '
_SAVE = 'builtin printf "%s " {} "${{__outlast_pipes[@]}}" >| "$__outlast_dir/pipes"'
_ON_EXIT = (
    """trap '{ __outlast_pipes=("$?" "${PIPESTATUS[@]}"); builtin trap "" XFSZ; """
    + _SAVE.format("exit")
    + "; } >/dev/null 2>&1' EXIT; "
)
_AFTER = r"""{ __outlast_pipes=(\"\$?\" \"\${PIPESTATUS[@]}\"); } >/dev/null 2>&1"""
_EVAL = (
    _READ
    + 'if [[ -e "$__outlast_dir/pipes" && -z $(BASH_ENV= "$BASH" -n "$__outlast_dir/command" 2>&1) ]]; then '
    + _ON_EXIT
    + f"""builtin eval "$__outlast_command"$'\\n'"{_AFTER}"; """
    + "{ __outlast_code=$?; set +x; unset -f builtin; builtin trap - DEBUG ERR; "
    + 'builtin trap "" XFSZ; [[ -z ${__outlast_pipes-} ]] || '
    + _SAVE.format("end")
    + "; [[ $(builtin trap -p EXIT) != *__outlast_dir* ]] || builtin trap - EXIT; } >/dev/null 2>&1; "
    + 'builtin exit "${__outlast_pipes:-$__outlast_code}"; '
    + 'else builtin eval "$__outlast_command"; fi'
)

# The same in a session, whose functions are in session.bash. Four steps: bring back the state,
# take what only this call has, evaluate the text, dump the state.
SESSION = os.path.join(os.path.dirname(os.path.abspath(__file__)), "session.bash")
# Before there is a task its directory has another name, so what it begins with comes as descriptors.
BEFORE, START = 4, 5
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_RUNNER = os.path.join(_PACKAGE, "agents", "run.py")
_RESTORE = (
    f"__outlast_dir=$1; __outlast_before=/dev/fd/{BEFORE}; __outlast_start=/dev/fd/{START}; "
    'builtin . "$2"; builtin shift 2; { builtin . "$__outlast_before"; } 2>/dev/null; '
    '[[ ${__outlast_new-} != 1 ]] || { [[ -z ${BASH_ENV-} ]] || builtin . "$BASH_ENV"; __outlast_first "$@"; }; '
    f"exec {BEFORE}<&- {START}<&-; "
)
_OVERLAY = "{ __outlast_overlay; } 2>/dev/null; "
# Not `IFS= read`: IFS may be readonly.
_TAKE = (
    'builtin mapfile -d "" -t __outlast_command < "$__outlast_dir/command"; '
    '[[ ! -e $__outlast_dir/pipes || -n $(BASH_ENV= "$BASH" -n "$__outlast_dir/command" 2>&1) ]] || '
    "__outlast_tail=$__outlast_stages; "
)
_EVALUATE = '__outlast_begin; builtin eval "$__outlast_hot$__outlast_command$__outlast_tail"; '
_DUMP = (
    '{ __outlast_code=$?; unset -f builtin; [[ -z $__outlast_hot ]] || builtin eval "$__outlast_hot"; '
    "__outlast_note; "
    'builtin trap -p >&"$__outlast_out"; builtin trap - DEBUG ERR RETURN; '
    '__outlast_save end "$@"; __outlast_code=${__outlast_pipes:-$__outlast_code}; __outlast_again; } >/dev/null 2>&1; '
    # Without a code the line above could not be begun, for want of a descriptor.
    'builtin exit "${__outlast_code-${PIPESTATUS-1}}"'
)


def waiting(directory: str, state: str) -> list[str]:
    """The argument list of a bash that gets itself ready, waits for a go, and runs the text in `directory`/command."""
    return _bash(directory, state, _WAIT)


def go(keeps: bool) -> bytes:
    """The line that lets a bash in a sandbox begin: whether to dump its state."""
    return b"g" + b"d" * keeps + b"\n"


def arguments(shell: str, directory: str, state: str = "") -> list[str]:
    """The argument list that runs the text in `directory`/command at once, in a session's `state` if there is one."""
    if os.path.basename(shell) != "bash":
        return [shell, os.path.join(directory, "command")]
    return _bash(directory, state, "")


def _bash(directory: str, state: str, wait: str) -> list[str]:
    if state:
        return ["bash", "-c", _RESTORE + _OVERLAY + wait + _TAKE + _EVALUATE + _DUMP, "bash", directory, SESSION]
    return ["bash", "-c", _BEGIN + wait + _EVAL, "bash", directory]


def runner(shell: str, directory: str) -> list[str]:
    """The argument list of what runs an agent, or stands for one that runs elsewhere; its path first."""
    import sys

    # Isolated: neither a variable of the session nor a file in the working directory decides what it imports.
    return [sys.executable, "-I", _RUNNER, shell, directory]


def needed_by_runner() -> list[str]:
    """The directories of our package and of the Python that runs it, with what is installed there."""
    import sys

    return [_PACKAGE, os.path.dirname(os.path.dirname(os.path.abspath(sys.executable)))]


def wants_pipes(command: str) -> bool:
    """Whether the last pipeline can have a status of its own that differs from the exit code."""
    return ("|" in command or "!" in command) and not command.rstrip("\n").endswith("\\")


def make_room(command: str, directory: str) -> None:
    """Put the file in place that the shell writes to: its own would have the mode that the command's umask gives."""
    if wants_pipes(command):
        os.close(open_regular(os.path.join(directory, PIPES), os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
