"""Build the argument list of the shell that runs a command, without the command itself.

bash reads the command from the task's own file and evaluates it: `$0`, line numbers and error messages are then
as with `bash -c`, and `pkill -f` with a piece of the command finds the command's own processes, never ours.

If the command has a `|` or a `!`, bash writes the status of each stage of its last pipeline into a file that exists
for that. It takes one more line after the command, which an incomplete command would swallow (an open
here-document, a trailing `&&`). So `bash -n` checks the command first; if it finds an error, the command runs
without that line, and the statuses are absent rather than guessed.

bash starts before its task is published and waits for a line on a descriptor: so it starts while the caller still
writes the task's directory, or, as a prepared shell, long before.
"""

from __future__ import annotations

import os
import sys

GO_FD = 3  # bash waits on it for its command
# The task's directory is renamed when it is published, so bash gets the snapshot and the first dump as descriptors.
BEFORE_FD, START_FD = 4, 5
_LOCAL = os.path.dirname(os.path.abspath(__file__))
SESSION_SCRIPT = os.path.join(_LOCAL, "session.bash")
_PACKAGE = os.path.dirname(os.path.dirname(_LOCAL))
_RUNNER = os.path.join(_PACKAGE, "agents", "run.py")

# All of it is one line, so that line numbers in messages are those of the command. What follows the command works
# whatever the command did to its shell: `set -e`, traps that print, functions named like builtins.
_WAIT = f"builtin read -r -u {GO_FD} __outlast_go || builtin exit 1; exec {GO_FD}<&-; SECONDS=0; "
_IS_COMPLETE = '-e $__outlast_dir/pipes && -z $(BASH_ENV= "$BASH" -n "$__outlast_dir/command" 2>&1)'

# --- without a session -------------------------------------------------------------------

_READ = 'IFS= builtin read -r -d "" __outlast_command < "$__outlast_dir/command" || :; '
_SAVE_STAGES = 'builtin printf "%s " {} "${{__outlast_pipes[@]}}" >| "$__outlast_dir/pipes"'
_ON_EXIT = (
    """trap '{ __outlast_pipes=("$?" "${PIPESTATUS[@]}"); builtin trap "" XFSZ; """
    + _SAVE_STAGES.format("exit")
    + "; } >/dev/null 2>&1' EXIT; "
)
_AFTER = r"""{ __outlast_pipes=(\"\$?\" \"\${PIPESTATUS[@]}\"); } >/dev/null 2>&1"""
_PLAIN = (
    "__outlast_dir=$1; builtin shift; "
    + _WAIT
    + _READ
    + f"if [[ {_IS_COMPLETE} ]]; then "
    + _ON_EXIT
    + f"""builtin eval "$__outlast_command"$'\\n'"{_AFTER}"; """
    + "{ __outlast_code=$?; set +x; unset -f builtin; builtin trap - DEBUG ERR; "
    + 'builtin trap "" XFSZ; [[ -z ${__outlast_pipes-} ]] || '
    + _SAVE_STAGES.format("end")
    + "; [[ $(builtin trap -p EXIT) != *__outlast_dir* ]] || builtin trap - EXIT; } >/dev/null 2>&1; "
    + 'builtin exit "${__outlast_pipes:-$__outlast_code}"; '
    + 'else builtin eval "$__outlast_command"; fi'
)

# --- in a session; the functions are in session.bash -------------------------------------

_RESTORE = (
    f"__outlast_dir=$1; __outlast_before=/dev/fd/{BEFORE_FD}; __outlast_start=/dev/fd/{START_FD}; "
    'builtin . "$2"; builtin shift 2; { builtin . "$__outlast_before"; } 2>/dev/null; '
    '[[ ${__outlast_new-} != 1 ]] || { [[ -z ${BASH_ENV-} ]] || builtin . "$BASH_ENV"; __outlast_first "$@"; }; '
    f"exec {BEFORE_FD}<&- {START_FD}<&-; "
)
_OVERLAY = "{ __outlast_overlay; } 2>/dev/null; "
# Not `IFS= read`: IFS may be readonly.
_READ_IN_SESSION = (
    'builtin mapfile -d "" -t __outlast_command < "$__outlast_dir/command"; '
    f"[[ ! ({_IS_COMPLETE}) ]] || __outlast_tail=$__outlast_stages; "
)
_EVALUATE = '__outlast_begin; builtin eval "$__outlast_hot$__outlast_command$__outlast_tail"; '
_DUMP = (
    '{ __outlast_code=$?; unset -f builtin; [[ -z $__outlast_hot ]] || builtin eval "$__outlast_hot"; '
    "__outlast_note; "
    'builtin trap -p >&"$__outlast_out"; builtin trap - DEBUG ERR RETURN; '
    '__outlast_save end "$@"; __outlast_code=${__outlast_pipes:-$__outlast_code}; __outlast_again; } >/dev/null 2>&1; '
    # There is no code if bash had no descriptor left for the redirection above.
    'builtin exit "${__outlast_code-${PIPESTATUS-1}}"'
)
_IN_SESSION = _RESTORE + _OVERLAY + _WAIT + _READ_IN_SESSION + _EVALUATE + _DUMP


def build_bash(directory: str, state: str) -> list[str]:
    """Return the arguments of a bash that restores a session's `state`, waits, and runs `directory`/command."""
    if state:
        return ["bash", "-c", _IN_SESSION, "bash", directory, SESSION_SCRIPT]
    return ["bash", "-c", _PLAIN, "bash", directory]


def build_other_shell(shell: str, directory: str) -> list[str]:
    """Return the arguments of a shell that is not bash, its path first. It runs `directory`/command at once."""
    return [shell, os.path.join(directory, "command")]


def build_runner(shell: str, directory: str) -> list[str]:
    """Return the arguments of the program that runs an agent, or represents one elsewhere; its path first."""
    # Isolated: neither a variable of the session nor a file in the working directory decides what it imports.
    return [sys.executable, "-I", _RUNNER, shell, directory]


def list_runner_paths() -> list[str]:
    """Return the directories of this package and of the Python that runs it, with what is installed there."""
    return [_PACKAGE, os.path.dirname(os.path.dirname(os.path.abspath(sys.executable)))]


def go_line(keeps: bool) -> bytes:
    """Return the line that lets a bash in a sandbox begin: whether to dump its state."""
    return b"gd\n" if keeps else b"g\n"
