"""Functions that a dump holds, read by a bash of our own that runs nothing of them.

A dump is input from a stranger: behind the closing brace of a function there may be commands, which bash would run
while it restores the session. bash imports a function from its environment without running anything, and refuses a text
that is not one function; what it prints then is that function and nothing else.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_BASH = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash", "/opt/homebrew/bin/bash")
_LARGEST = 120_000  # the kernel passes on no larger variable
_MOST_BYTES = 1 << 20  # in one environment
# `builtin` is never imported, so no function replaces what stands here.
_PRINT = 'for name; do builtin printf "\\n#%s %s\\n" "$0" "$name"; builtin declare -f -- "$name"; done'


def reprint(functions: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the functions as a trusted bash prints them; without those that are something else."""
    found: dict[bytes, bytes] = {}
    for group in _groups(functions):
        mark = os.urandom(8).hex()
        pieces = _run_bash(group, mark).split(b"\n#" + mark.encode() + b" ")[1:]
        found.update((name, body) for name, _, body in (piece.partition(b"\n") for piece in pieces) if body)
    return found


def _groups(functions: Mapping[bytes, bytes]) -> Iterable[dict[bytes, bytes]]:
    """Yield the definitions, in the form in which bash passes them on, as many at once as an environment can hold."""
    group: dict[bytes, bytes] = {}
    size = 0
    for name, text in functions.items():
        head, _, body = text.partition(b"{")
        if head.strip() != name + b" ()" or b"/" in name or len(body) > _LARGEST:
            continue
        group[name] = b"() {" + body
        size += len(body)
        if size > _MOST_BYTES - _LARGEST:
            yield group
            group, size = {}, 0
    if group:
        yield group


def _run_bash(group: Mapping[bytes, bytes], mark: str) -> bytes:
    bash = next((path for path in _BASH if os.access(path, os.X_OK)), "bash")
    env = {b"BASH_FUNC_" + name + b"%%": body for name, body in group.items()}
    argv = [bash, "--norc", "--noprofile", "-O", "extglob", "-c", _PRINT, mark, *map(os.fsdecode, group)]
    reader, writer = os.pipe2(os.O_CLOEXEC)
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, writer, 1),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    with open(reader, "rb") as output:
        try:
            pid = os.posix_spawnp(bash, argv, env, file_actions=actions)
        finally:
            os.close(writer)
        text = output.read()
        os.waitpid(pid, 0)
    return text
