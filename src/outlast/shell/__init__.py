"""`Shell`: the one object that a user holds.

    with Shell.open() as shell:
        result = shell.run("make test")
        server = shell.start("npm run dev")
        print(shell.read(server.task_id).output)

`shell.py` has its methods; its parts share a `Context`: `starter` starts commands, `reader` reads, `flows` waits,
`control` ends and removes, `notices` and `agents` do what they say.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.shell.shell import Shell

__all__ = ("Shell",)


def __getattr__(name: str) -> object:
    # Loaded when first used: importing one of the parts must not load them all.
    if name != "Shell":
        raise AttributeError(f"module 'outlast.shell' has no attribute {name!r}")
    from outlast.shell.shell import Shell

    return Shell
