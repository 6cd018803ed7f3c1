"""What a task was asked for, so that the same can be asked for again.

A launch keeps what its caller gave, except the values of variables and an input that was given as text: any of them may
be a secret, and none stays on disk once the command has it, so they have to be given again.
"""

from __future__ import annotations

import os

from outlast.errors import BadInput
from outlast.shell.gate import POLICY
from outlast.types import LOCAL, Limits, Notify, Sandbox, Stdin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from outlast.types import Launch

_NOT_GIVEN: tuple[object, ...] = (None, "", (), [], {}, False, Stdin(), Limits(), Notify())


def merge(task_id: str, launch: Launch, command: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return a command and options as those of this task; what the caller gives now counts first."""
    if launch.agent:
        raise BadInput(f"{task_id} is an agent; start one again with `outlast agent start` or `Shell.agent.start`.")
    given = {name: value for name, value in options.items() if _is_given(name, value)}
    before, env = launch.given, given.get("env", {})
    # The gate, not the caller, gave the policy's name, and gives it again.
    if missing := [name for name in before.get("env", ()) if name not in env and name != POLICY]:
        raise BadInput(
            f"{task_id} was given {', '.join(missing)} as a variable, and values are not kept; give it again with "
            f"env (--env {missing[0]}=VALUE)."
        )
    if launch.stdin.text is not None and "stdin" not in given and not given.get("tty"):
        raise BadInput(f"The input of {task_id} was given as text, which is not kept; give it again with stdin.")
    found = {**_options_of(launch), **given, "env": env, "like": task_id}
    found["pass_secrets"] = [*before.get("pass", ()), *given.get("pass_secrets", ())]
    if found.get("tty"):
        found.pop("split", None)
        found.pop("stdin", None)
    return command or launch.command, {name: value for name, value in found.items() if _is_given(name, value)}


def _is_given(name: str, value: object) -> bool:
    # A number is never left out: 0 is wrong, and has to be said to be. To run outside of a sandbox is asked for.
    return type(value) in (int, float) or (name == "sandbox" and value is False) or value not in _NOT_GIVEN


def _options_of(launch: Launch) -> dict[str, Any]:
    file = launch.stdin.file
    resources: Any = launch.resources
    return {
        **{name: getattr(launch, name) for name in ("cwd", "limit", "description", "name", "shell", "split", "tty")},
        "stdin": Stdin(file=os.path.join(launch.cwd, file)) if file is not None else Stdin(open=launch.stdin.open),
        "limits": Limits(**resources),
        "notify": Notify(tuple(launch.notify.get("patterns", ())), launch.notify.get("silent")),
        "sandbox": _sandbox_of(launch.sandbox),
        **({} if launch.executor == LOCAL else {name: getattr(launch, name) for name in ("executor", "needs", "send")}),
    }


def _sandbox_of(sandbox: Sandbox | None) -> Sandbox | None:
    if sandbox is None:
        return None
    return Sandbox(writable=sandbox.writable, network=sandbox.network, readable=sandbox.readable)
