"""The runner: the process that an agent's task runs, started by its keeper as `python -I run.py SHELL DIRECTORY`.

It runs the agent's own command and understands what that prints; or, as a bridge, stands for
an agent that runs elsewhere. Either way it ends as the agent ended.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    # Isolated Python knows nothing of where we are, and in a sandbox it may not look around there. So it is told where
    # the package is, and not by way of `sys.path`, where another version could stand. That is for what is beside us.
    _PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    _outlast = type(sys)("outlast")
    _outlast.__path__ = [_PACKAGE]
    sys.modules["outlast"] = _outlast
    sys.path.append(os.path.dirname(_PACKAGE))

from outlast.errors import OutlastError
from outlast.storage import task_directory
from outlast.types import AGENT, REGISTERED

NOT_RUN = 127


def main() -> int:
    """Run the agent of a task, in the place of its shell; returns the exit code."""
    shell, directory = sys.argv[1:]
    try:
        launch, _ = task_directory.read_launch(directory)
    except OutlastError as error:
        print(f"outlast: {error.message}", file=sys.stderr)
        return NOT_RUN
    agent = launch.agent or {}
    format = agent.get("format", "")
    if shell == AGENT:
        import shlex

        words = shlex.split(launch.command)
        if format == "acp":
            from outlast.agents import overacp

            return overacp.run(words, directory)
        from outlast.agents import piped

        return piped.run(words, format, directory)
    if format == "hosted":
        from outlast.agents import hosted

        return hosted.stand_for(agent["socket"], directory)
    if format == REGISTERED:
        from outlast.agents import registered

        return registered.follow(agent["output_file"], directory)
    print("outlast: there is no agent that this could stand for", file=sys.stderr)
    return NOT_RUN


if __name__ == "__main__":
    sys.exit(main())
