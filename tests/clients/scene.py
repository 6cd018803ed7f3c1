"""What the scripted model does with every agent: a command, one that fails, one in the background, and its end."""

from __future__ import annotations

import time

from bench.model_api import Call, Say
from tests.clients.figures import Figures
from tests.clients.place import Place, task_in
from tests.clients.scripted import Line, Model, Request

PATIENCE_S = 60.0
PROMPT = "please build it"
BUILD = "echo building; sleep 3; echo the build is done"

_BEGINNING: list[Line] = [
    Call("bash", {"command": "echo hello; export SEEN=1"}),
    Call("bash", {"command": "echo $SEEN; exit 3"}),
    Call("bash", {"command": BUILD, "background": True, "description": "the build"}),
]
TOLD = 4  # which request tells the model that the build is done, counted from 0


def _wait_for_it(request: Request) -> Call:
    return Call("bash_output", {"task_id": task_in(request.last), "wait": 30})


WOKEN: list[Line] = [
    *_BEGINNING,
    Say("It runs; I will go on when it ends."),
    Call("bash_list", {}),
    Say("It is built."),
]
"""For an agent that holds MCP tasks: the model ends its turn, and is woken."""

WAITING: list[Line] = [*_BEGINNING, _wait_for_it, Say("It is built.")]
"""For all others."""


FAILING = "echo first; sleep 2; echo second; exit 3"
CANCELLED = "sleep 300"
FAILED: list[Line] = [
    Call("bash", {"command": FAILING, "background": True}),
    Say("It runs; I will go on when it ends."),
    Call("bash", {"command": CANCELLED}),
]
"""For an agent that holds MCP tasks: the model is woken by a failure, and its next command is cancelled."""

ASKED: list[Line] = [
    Call("bash", {"command": "touch allowed"}),
    Call("bash", {"command": "touch refused"}),
    Say("It is built."),
]
"""For an agent whose user can be asked: the first is allowed, the second is not."""


def played(scripted: Model, seen: str) -> None:
    """See that the script was played to its end."""
    if not scripted.ended(0):
        said = f"only {len(scripted.requests)} of {len(scripted.script)} lines were asked for"
        raise AssertionError(f"{said}, and {len(scripted.aside)} other things:\n{seen}")


def counted(client: str, version: str, here: Place, scripted: Model, began: float) -> Figures:
    """What came of it."""
    figures = Figures(client, version, seconds=time.time() - began)
    figures.take(scripted, began)
    [build] = [task for task in here.tasks() if task.command == BUILD]
    assert build.ended_at is not None
    figures.woken_ms = (scripted.requests[TOLD].at - build.ended_at) * 1000
    figures.holds_tasks = "server-side task" in figures.heard[TOLD - 1]
    figures.notes = [f"it also asked for {path}" for path in sorted(set(scripted.strangers))]
    return figures
