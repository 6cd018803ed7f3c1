"""`outlast run`: the command's output as it comes, and the command's own exit code."""

from __future__ import annotations

import os
import sys

from outlast.cli.arguments import Asked
from outlast.cli.common import (
    check_stdout,
    describe_wait,
    exit_code,
    hint,
    open_shell,
    task_json,
    tell_id_on_stderr,
    waited_code,
    write,
)
from outlast.cli.run_options import open_stdin, parse_environment, parse_needs, parse_terminal, read_command, run_parser
from outlast.display import render
from outlast.errors import AlreadyEnded, BadInput, Refused, SystemRefused
from outlast.light import replace, signal
from outlast.output.cleaner import inline
from outlast.shell import validation
from outlast.shell.conditions import choose_leave
from outlast.storage.task_directory import Hold
from outlast.storage.watch import Deadline
from outlast.types import STREAMS, Cursor, Limits, Notify, Waited

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

    from outlast.settings import Settings
    from outlast.shell.conditions import UnderWay
    from outlast.shell.shell import Shell
    from outlast.types import Slice, Task

__all__ = ["run", "run_parser"]

_LAST_LINES = 50  # in which a command that failed says why


def run(asked: Asked) -> int:
    """Do what `outlast run` asks; returns the exit code."""
    # The words stand in our own argument list; a `pkill -f` in the command must not find them there.
    _rename_self("outlast", "outlast run")
    command = read_command(asked.command) if asked.command or asked.like is None else ""
    if asked.stdin == "-" and asked.command[-1:] == ["-"]:
        raise BadInput("Command and input cannot both come from standard input; give one of them in another way.")
    how = {
        "cwd": asked.cwd,
        "env": parse_environment(asked.env),
        "stdin": open_stdin(asked.stdin),
        "shell": asked.shell,
        "split": asked.split,
        "like": asked.like,
        "tty": parse_terminal(asked),
        "limit": asked.limit,
        "description": asked.description,
        "executor": asked.executor,
        "needs": parse_needs(asked.need),
        "send": asked.send or None,
        "name": asked.name,
        "after": asked.after,
        "after_failed": asked.after_failed,
        "pass_secrets": asked.passed,
        "notify": Notify(tuple(asked.notify), asked.silent_after),
        "limits": Limits(asked.memory, asked.processes, asked.cpu_time, asked.file_size),
        "sandbox": asked.sandbox or bool(asked.writable) or asked.network or (False if asked.no_sandbox else None),
    }
    validation.seconds("wait", asked.wait)  # wrong is wrong, also in the background
    if (asked.startup_wait is not None or asked.ready is not None) and not asked.bg:
        raise BadInput("--startup-wait and --ready say when --bg returns; add it, or use --wait.")
    if asked.fetch and (asked.bg or not asked.executor):
        raise BadInput("--fetch copies from another machine when the command ended there; add --executor, not --bg.")
    with open_shell(asked.session, asked.policy) as shell:
        shell.context.settings = _as_a_person_says(shell, asked)
        if asked.array is not None:
            return _array(shell, command, how, asked)
        if asked.bg:
            return _background(shell, command, how, asked)
        command, how = shell.starter.repeat(command, how)
        return _Foreground(shell, asked).run(command, how)


def _array(shell: Shell, command: str, how: dict[str, Any], asked: Asked) -> int:
    from outlast.shell.arrays import parse_indexes, start_array  # for those who have a cluster

    if not asked.bg or asked.startup_wait is not None or asked.ready is not None:
        raise BadInput("--array starts tasks in the background; add --bg, without --startup-wait and --ready.")
    check_stdout()
    sandbox = how.pop("sandbox")
    if sandbox:
        raise BadInput("The tasks of an array run on a cluster, which has no sandbox; leave it out.")
    tasks = start_array(shell, command, parse_indexes(asked.array), **how)
    write("".join(task_json(shell, task) + "\n" if asked.json else f"{task.task_id}\n" for task in tasks))
    return 0


def _background(shell: Shell, command: str, how: dict[str, Any], asked: Asked) -> int:
    task = shell.start(command, startup_wait=asked.startup_wait, ready=asked.ready, **how)
    try:
        check_stdout()
        return _tell_of(shell, task, asked)
    except OSError as error:
        return tell_id_on_stderr(task, error)


def _tell_of(shell: Shell, task: Waited, asked: Asked) -> int:
    """Write the id of a background task, or what it is, to standard output; the exit code."""
    if asked.startup_wait is None and asked.ready is None:
        write(task_json(shell, task) + "\n" if asked.json else f"{task.task_id}\n")
        if task.status == "pending" and not asked.json:
            sys.stderr.write(f"outlast: {task.task_id} is pending: it {render.waits(task)}.\n")
        return 0
    opening = render.opening(shell.read(task.task_id), shell.reader.line_counts(task))
    condition = asked.ready is not None
    if asked.json:
        write(task_json(shell, task, ready=task.met if condition else None, **opening) + "\n")
    else:
        write(f"{task.task_id}\n")
        sys.stderr.write(
            describe_wait(shell, task, condition) + render.opening_text(opening) + _explain_missing_secret(shell, task)
        )
    # Still running is what a background command should be, unless it should be ready by now.
    return waited_code(task, condition) if task.finished or condition else 0


def _as_a_person_says(shell: Shell, asked: Asked) -> Settings:
    """Only here can a sandbox that the settings demand be widened or switched off: a call cannot."""
    settings = shell.settings
    if not (asked.sandbox or asked.writable or asked.network or settings.sandbox or shell.starter.is_confined()):
        return settings
    if asked.no_sandbox:
        if asked.sandbox or asked.writable or asked.network:
            raise BadInput("--no-sandbox contradicts --sandbox, --writable and --network; leave out one of them.")
        return replace(settings, sandbox=False)
    more = [os.path.abspath(path) for path in (*asked.writable, *([asked.cwd] if asked.cwd else []))]
    if any(":" in path for path in more):
        raise BadInput("The name of a directory that a sandbox may write to must not hold a ':'; rename it.")
    writable = ":".join([settings.sandbox_writable, *more])
    return replace(settings, sandbox_writable=writable, sandbox_network=settings.sandbox_network or asked.network)


class _Foreground:
    """A task in the foreground, whose output is copied to the terminal."""

    def __init__(self, shell: Shell, asked: Asked) -> None:
        self._shell, self._asked = shell, asked
        self._interrupts = 0
        self._task_id = ""
        self._at: dict[str, int] = {}
        self._leave: UnderWay | None = None

    def run(self, command: str, how: dict[str, object]) -> int:
        limit: Any = how.get("limit")
        seconds, then_end = self._shell.flows.foreground_wait(self._asked.wait, limit)
        # A person waits as long as they like: only the default limit and --wait end this.
        timeout = seconds if then_end or self._asked.wait is not None else None
        signal.signal(signal.SIGINT, self._interrupt)
        with Hold() as hold:
            return self._attend(command, {**how, "hold": hold}, timeout, then_end)

    def _attend(self, command: str, how: dict[str, Any], timeout: float | None, then_end: bool) -> int:
        # Without a session's name each call stands for itself.
        context, launch = self._shell.context, self._shell.starter.launch
        task, ours = context.call(lambda: launch(command, background=False, keeps=context.named, **how))
        self._task_id = task.task_id
        if self._asked.auto_bg or context.settings.auto_background:
            self._leave = choose_leave(command, context.settings)
        self._at = dict.fromkeys(STREAMS if task.split else STREAMS[:1], 0)
        if self._interrupts:
            self._end_as_asked()
        try:
            if task.status == "pending":
                timeout = self._await_begin(task, timeout)
            if self._is_typed_at(task):
                from outlast.cli.attach import attend

                attend(self._shell, task)
            else:
                self._show(timeout, then_end and ours)
            if ours:
                self._shell.control.release(self._task_id)
        except OSError as error:
            self._report_broken_output(error)
            raise
        self._fetch()
        return self._report(command, how)

    def _is_typed_at(self, task: Task) -> bool:
        """Whether a person at our terminal uses the program, which only a limit that was asked for ends then."""
        is_at_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        return task.tty is not None and is_at_terminal and self._asked.wait is None and not self._asked.json

    def _fetch(self) -> None:
        """Copy back what was asked for, also if the command failed: that is when its logs are wanted."""
        if not self._asked.fetch:
            return
        if self._is_running():
            sys.stderr.write(f"outlast: nothing is fetched while {self._task_id} runs.\n")
        else:
            self._shell.control.fetch(self._task_id, self._asked.fetch, os.getcwd())

    def _await_begin(self, task: Task, timeout: float | None) -> float | None:
        """Wait until it runs, as long as a person waits: the default limit is for running. How long to wait then."""
        sys.stderr.write(f"outlast: {task.task_id} {render.waits(task)}.\n")
        patience = Deadline(validation.seconds("wait", self._asked.wait))
        self._shell.driver.drive(self._shell.flows.wait_for_phase(task.task_id, "begun", patience.left()))
        return timeout if self._asked.wait is None else patience.left()

    def _show(self, timeout: float | None, then_end: bool) -> None:
        """What is printed until the command ends or we stop waiting."""
        follow = self._shell.flows.follow(self._task_id, None, self._leave, timeout=timeout, to_end_of="command")
        for piece in self._shell.driver.stream(follow):
            self._at[piece.stream] = piece.next
            self._copy(piece)
        if then_end and not (self._leave and self._leave.met) and self._is_running():
            self._shell.control.end_for_limit(self._task_id)
            for piece in self._shell.follow(self._task_id, cursor=Cursor(**self._at), to_end_of="command"):
                self._copy(piece)

    def _is_running(self) -> bool:
        executor = self._shell.executor
        return executor.has_reached(self._task_id, "begun") and not executor.has_reached(self._task_id, "ended")

    def _copy(self, piece: Slice) -> None:
        if not self._asked.json:
            copy(piece)

    def _report_broken_output(self, error: OSError) -> None:
        """Our reader may be an agent that was killed; the command goes on."""
        if not isinstance(error, BrokenPipeError):
            why = f"The output of {self._task_id} cannot be shown here: {error.strerror}"
            raise SystemRefused(f"{why}; `outlast logs -f {self._task_id}` has it.") from None
        task = self._shell.show(self._task_id)
        if not task.finished:
            sys.stderr.write(hint(self._shell, task))

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self._interrupts += 1
        if self._task_id:  # otherwise it is just being started
            self._end_as_asked()

    def _end_as_asked(self) -> None:
        try:
            if self._interrupts == 1:
                self._shell.executor.interrupt(self._task_id)
            else:
                self._end()
        except AlreadyEnded:
            pass  # it was quicker

    def _end(self) -> None:
        # The second Ctrl-C is the consent.
        if not self._shell.executor.has_reached(self._task_id, "ended"):
            self._shell.control.end_now([self._task_id], self._shell.settings.kill_grace_s)

    def _report(self, command: str, how: dict[str, Any]) -> int:
        if self._asked.json:
            result = self._shell.read(self._task_id)
            write(task_json(self._shell, result) + "\n")
            return exit_code(result)
        task = self._shell.show(self._task_id)
        if not task.finished:
            sys.stderr.write(hint(self._shell, task))
        elif task.reason != "exit":
            sys.stderr.write(f"outlast: {task.task_id} {task.status}: {render.ending(task)}\n")
        sys.stderr.write(_explain_missing_secret(self._shell, task))
        if task.status == "failed" and task.sandbox and (why := self._shell.read(self._task_id, tail=1).error):
            sys.stderr.write(f"outlast: {inline(why, 300)}\n")
            if self._shell.starter.can_ask and self._shell.starter.is_kept_inside(how):
                return self._again_outside(command, {**how, "sandbox": False, "evidence": why}, exit_code(task))
        return exit_code(task)

    def _again_outside(self, command: str, how: dict[str, Any], code: int) -> int:
        """Ask whether to run it again, without the sandbox that it failed in; the exit code, `code` after a no."""
        try:
            return self.run(command, how)
        except Refused as refused:
            sys.stderr.write(f"outlast: {refused.message}\n")
            return code


def _explain_missing_secret(shell: Shell, task: Task) -> str:
    """If a command failed and seems to miss a secret that was held back: a line that says so."""
    if task.status != "failed" or not task.held_back:
        return ""
    return render.explain_missing_secret(task, shell.read(task.task_id, tail=_LAST_LINES).output)


def copy(piece: Slice) -> None:
    """What the command printed, to where it would have gone without us."""
    stream = sys.stderr.buffer if piece.stream == "stderr" else sys.stdout.buffer
    if piece.dropped:
        stream.write(b"\n[outlast: %d bytes were dropped here]\n" % piece.dropped)
    stream.write(piece.data)
    stream.flush()


def _rename_self(name: str, title: str) -> None:
    """Show `name` and `title` to ps and pkill instead of our interpreter and its arguments."""
    try:
        with open("/proc/self/stat", "rb") as file:
            part = file.read().rpartition(b")")[2].split()
        start, end = int(part[45]), int(part[46])
        with open("/proc/self/comm", "wb", 0) as file:
            file.write(name[:15].encode())
        with open("/proc/self/mem", "r+b", 0) as file:
            file.seek(start)
            file.write(title.encode()[: end - start - 1].ljust(end - start, b"\0"))
    except (OSError, IndexError, ValueError):
        pass  # only looks: hardened kernels forbid it
