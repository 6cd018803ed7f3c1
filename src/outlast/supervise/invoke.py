"""How a shell is told to run a text that appears in no argument list.

bash reads the text from the task's own file and evaluates it: `$0`, line numbers and
error messages are then as with `bash -c`, and `pkill -f` with a piece of the text finds
the command's own processes, never ours.

If the text has a `|` or a `!`, the status of each stage of its last pipeline is written
beside it. That takes one line after the text, which a text that is not complete would
swallow (an open here-document, a trailing `&&`); so `bash -n` looks first, and what it
does not like runs without. The list is then absent rather than guessed.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

PIPES = "pipes"

# One line each, so that line numbers in messages are the text's own.
_READ = '__outlast_dir=$1; shift; IFS= read -r -d "" __outlast_command < "$__outlast_dir/command"; '
_PLAIN = _READ + 'eval "$__outlast_command"'
_ON_EXIT = (
    """trap '{ builtin printf "%s " exit "$?" "${PIPESTATUS[@]}" >| "$__outlast_dir/pipes"; } 2>/dev/null' EXIT; """
)
_AFTER = """{ __outlast_pipes=("\\$?" "\\${PIPESTATUS[@]}"); } 2>/dev/null"""
_PIPES = (
    _READ
    + 'if [[ -z $(BASH_ENV= "$BASH" -n "$__outlast_dir/command" 2>&1) ]]; then '
    + _ON_EXIT
    + f"""eval "$__outlast_command"$'\\n'"{_AFTER}"; """
    + """{ __outlast_code=$?; set +x; [[ -z $__outlast_pipes ]] || """
    + """builtin printf "%s " end "${__outlast_pipes[@]}" >| "$__outlast_dir/pipes"; """
    + """[[ $(builtin trap -p EXIT) != *__outlast_dir* ]] || builtin trap - EXIT; } 2>/dev/null; """
    + 'builtin exit "${__outlast_pipes:-$__outlast_code}"; '
    + 'else eval "$__outlast_command"; fi'
)


def arguments(shell: str, command: str, directory: str) -> list[str]:
    """The argument list that runs the text in `directory`/command."""
    if os.path.basename(shell) != "bash":
        return [shell, os.path.join(directory, "command")]
    return ["bash", "-c", _PIPES if wants_pipes(command) else _PLAIN, "bash", directory]


def wants_pipes(command: str) -> bool:
    """Whether the last pipeline can have a status of its own that differs from the exit code."""
    return ("|" in command or "!" in command) and not command.rstrip("\n").endswith("\\")


def stages(shell: str, command: str, code: int, written: str) -> tuple[int, ...] | None:
    """The status of each stage of the last pipeline, if it is known."""
    if "|" not in command and "!" not in command:
        return (code,)
    words = written.split()
    if len(words) < 3 or not _are_codes(words[1:]):
        return None
    said, *each = map(int, words[1:])
    if words[0] == "exit" and code not in each:
        return (code,)  # the last thing it did was `exit 3`, a pipeline of one stage
    return tuple(each) if said == code else None


def _are_codes(words: Sequence[str]) -> bool:
    return all(word.isdigit() and int(word) < 256 for word in words)
