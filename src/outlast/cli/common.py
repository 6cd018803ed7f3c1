"""What verbs share: opening the shell, writing, and what to do if an id cannot be written."""

from __future__ import annotations

import errno
import os
import sys

from outlast.shell.validation import session_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from outlast.policy.approval import Answer, Approval
    from outlast.shell.shell import Shell
    from outlast.types import Task, Waited

AFTER_LIMIT = 124  # the exit code of a command that ran into its limit
OUR_FAILURE = 125  # the exit code if Outlast itself failed


def open_shell(session: str | None = None, policy: str | None = None) -> Shell:
    """Open the shell. A caller that names no session is the operator and reaches every task."""
    from outlast.shell.shell import Shell

    ask = _ask if sys.stdin.isatty() and sys.stderr.isatty() else None
    if session is not None:
        # Also if it is empty: never the operator by accident.
        return Shell.open(session=session_name(session), policy=policy, ask=ask, prepare=False)
    # The settings have the name as well; given here, it would count as a chosen name, which makes the session remember.
    return Shell.open(policy=policy, ask=ask, operator=not os.environ.get("OUTLAST_SESSION"), prepare=False)


def _ask(approval: Approval) -> Answer:
    from outlast.cli.approve import prompt  # few calls need it

    return prompt(approval)


def task_json(shell: Shell, task: Task, **more: Any) -> str:
    """One task (or result, or wait) as JSON, with what it does if it runs."""
    from outlast.display import render

    for activity in shell.reader.activities([task]).values():
        more |= {"activity": activity, "activity_evidence": activity.evidence}
    return render.as_json(task, **more)


def describe_wait(shell: Shell, task: Waited, condition: bool) -> str:
    """What became of a wait, as a line for people."""
    from outlast.display import render

    return render.describe_wait(task, condition, shell.reader.activities([task]).get(task.task_id))


def hint(shell: Shell, task: Task) -> str:
    """How to go on with a task that was left running, for people."""
    from outlast.display import render

    return render.hint(task, shell.reader.activities([task]).get(task.task_id))


def write(text: str) -> None:
    """Write to standard output at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def check_stdout() -> None:
    """Raise OSError if the caller closed standard output: an id that goes nowhere is never told."""
    if sys.stdout.name == 1:  # opened in its place
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def tell_id_on_stderr(task: Task, error: OSError) -> int:
    """Standard output took no id. The caller must learn it all the same, to read and to end the task; the exit code."""
    sys.stderr.write(
        f"outlast: {task.task_id} is {task.status}, but its id could not be written to standard output: "
        f"{error.strerror}; `outlast show {task.task_id}` shows it.\n"
    )
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the buffer still holds the id, and the last flush would fail again
    return OUR_FAILURE


def exit_code(task: Task) -> int:
    """Return what a shell would call the end of this task."""
    if not task.finished:
        return 0
    if task.reason == "timeout":
        return AFTER_LIMIT
    if task.exit_code is not None:
        return task.exit_code
    return 128 + task.signal if task.signal else OUR_FAILURE


def waited_code(task: Waited, condition: bool) -> int:
    """Return the exit code of a wait. A script must be able to tell "ready" from "died" and from "not yet"."""
    if condition and task.met:
        return 0
    if not task.finished:
        return AFTER_LIMIT
    return exit_code(task) or int(condition)
