"""`Shell`: the one object that a user holds.

    with Shell.open() as shell:
        result = shell.run("make test")
        server = shell.start("npm run dev")
        print(shell.read(server.task_id).output)

Its verbs are in the modules beside this one, each of which needs those before it:
`opened`, `looking`, `waiting`, `acting`, `running`, `noticing`.
"""

from __future__ import annotations

from outlast.shell.acting import describe_end
from outlast.shell.looking import shorter
from outlast.shell.noticing import Noticing
from outlast.shell.running import Patience, refuse_to_wait
from outlast.shell.waiting import Startup

__all__ = ("Patience", "Shell", "Startup", "describe_end", "refuse_to_wait", "shorter")


class Shell(Noticing):
    """Commands of one session in one state directory. Use `Shell.open`."""
