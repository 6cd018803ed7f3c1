"""The nouns: what passes from one stage to the next.

    Request ─▶ Grant ─▶ Launch ─▶ Task ─▶ Slice ─▶ text
    (asked)   (allowed)  (runs)  (an id)  (bytes)

A status is never stored: it is computed from a task's files (`storage.record`), so nothing can contradict them.
"""

from __future__ import annotations

from outlast.light import fields, frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Literal

    StatusName = Literal["pending", "running", "completed", "failed", "killed"]
    Stream = Literal["stdout", "stderr"]
    Reason = Literal["exit", "signal", "timeout", "killed", "spawn-error", "lost"]

STREAMS = ("stdout", "stderr")
BUBBLEWRAP, LANDLOCK = "bubblewrap", "landlock"  # the kinds of sandbox
NO_SHELL = "none"  # as a shell: the words of the command are one program and its arguments, for the system itself
AGENT = "agent"  # as a shell: the same, by way of our runner, which understands what an agent prints
REGISTERED = "registered"  # as the format of an agent: another program started it, so it needs no slot
LOCAL = "local"  # as an executor: this machine
BRIDGE = "bridge"  # as a shell: our runner alone; no command runs, and the text of it is only shown
_NOTHING: Mapping[str, Any] = {}


# --- requests ----------------------------------------------------------------------------


@frozen
class Stdin:
    """Where a command's input comes from. Only one of the three is set; none means empty."""

    text: bytes | None = None
    file: str | None = None
    open: bool = False


@frozen
class Limits:
    """What a command may use: the memory and the processes of the whole task, the rest for each process by itself."""

    memory: float | None = None  # bytes
    processes: float | None = None
    cpu_time: float | None = None  # seconds
    file_size: float | None = None  # bytes


@frozen
class Notify:
    """What becomes a notice while a command runs."""

    lines: tuple[str, ...] = ()  # patterns
    silent_after: float | None = None  # seconds without output


@frozen
class Sandbox:
    """What a command is kept from: it writes to the caller's directory and to `writable` only, and reaches no network.

    What is `readable` is so even in /tmp, of which it has its own; what is `protected` is read-only, also in a
    writable directory. `kind` is how (none: whichever works here), `program` what does it. In a launch all of it is
    filled in.
    """

    writable: tuple[str, ...] = ()
    network: bool = False
    readable: tuple[str, ...] = ()
    kind: str = ""
    program: str = ""
    protected: tuple[str, ...] = ()


@frozen
class Request:
    """What a caller asks for, as it said it."""

    command: str
    session: str
    cwd: str
    env: Mapping[str, str]
    stdin: Stdin = Stdin()
    shell: str | None = None
    split: bool = False
    limit: float | None = None
    description: str = ""
    background: bool = True
    name: str = ""
    after: tuple[str, ...] = ()
    after_failed: str = "skip"
    pass_secrets: tuple[str, ...] = ()
    sandbox: Sandbox | None = None
    resources: Mapping[str, int] = _NOTHING
    notify: Mapping[str, Any] = _NOTHING
    agent: Mapping[str, str] = _NOTHING
    tty: tuple[int, int] | None = None  # a terminal of so many columns and rows
    like: str = ""  # the task that it runs again
    fresh: bool = False  # in a shell that neither sees the session's state nor changes it
    executor: str = LOCAL  # where it runs
    needs: Mapping[str, str] = _NOTHING  # what it asks a cluster for: cpus, memory, gpus ...
    send: tuple[str, ...] = ()  # files and directories that are copied into its directory there first
    evidence: str = ""  # how it failed in a sandbox, if it is to run outside of one


@frozen
class Grant:
    """A request that passed the policy. Only `policy.decide` makes one."""

    request: Request
    policy: str
    decision: object = None  # a `policy.rules.Decision`; none if the policy has nothing to judge by
    approved: bool = False  # a person was asked and said yes


@frozen
class Launch:
    """Exactly what runs. Only `LaunchBuilder` makes one, from a grant."""

    kind: str
    command: str
    session: str
    cwd: str
    env: Mapping[str, str]
    stdin: Stdin
    shell: str
    split: bool
    limit: float | None
    grace: float
    umask: int
    description: str
    output_limit: int
    free_floor: int
    # Tasks that were made before there was a queue, or a state, have none of these.
    background: bool = True
    name: str = ""
    after: tuple[str, ...] = ()
    after_failed: str = "skip"
    max_running: int = 10  # 0: it starts at once, however many run
    rlimits: Mapping[str, tuple[int, int]] = _NOTHING
    nice: int | None = None
    state: str = ""  # the session whose state it begins with; none: only `env` and `cwd`
    snapshot: str = ""  # which state of it that is
    keeps: bool = False  # what it changes is there for the next
    held_back: tuple[str, ...] = ()  # names of secret variables that the caller has and it has not
    sandbox: Sandbox | None = None
    resources: Mapping[str, int] = _NOTHING  # what it is held to: by `rlimits`, or by
    groups: Mapping[str, Mapping[str, str]] = _NOTHING  # control groups, by where they are made
    notify: Mapping[str, Any] = _NOTHING  # what becomes a notice while it runs: see `notices.while_running`
    trace: str = ""  # the trace that it is a part of, as a W3C traceparent
    agent: Mapping[str, str] = _NOTHING  # of an agent: its type, its prompt, how it is understood
    parent: str = ""  # the task that it was started from inside of
    judged: Mapping[str, Any] = _NOTHING  # under which policy it runs, and why: none if everything is allowed
    tty: tuple[int, int] | None = None  # the columns and rows of its terminal when it starts
    like: str = ""  # the task whose command it runs again
    given: Mapping[str, Any] = _NOTHING  # the names of variables that its caller gave (`env`) or passed (`pass`)
    executor: str = LOCAL  # where it runs: this machine, or one that the settings name
    needs: Mapping[str, str] = _NOTHING  # what it asks a cluster for
    send: tuple[str, ...] = ()  # absolute paths here that are copied into its directory there first


@frozen
class Place:
    """Where a command begins on another machine: what this process has by itself on this one."""

    executor: str
    environ: Mapping[str, str]  # of a login there
    home: str
    shell: str  # the path of bash, or of /bin/sh
    umask: int


# --- what is known of a task -------------------------------------------------------------


@frozen
class Identity:
    """One process for good: a pid is handed out again, a start tick within one boot and pid namespace is not."""

    pid: int
    tick: int
    boot: str


@frozen
class Guards:
    """Who watches a task, and the command itself, since when."""

    task_id: str
    supervisor: Identity
    keeper: Identity | None
    command: Identity
    started: float
    monotonic: float
    recoveries: int

    @property
    def scattered(self) -> bool:
        """Whether orphans of the command may have gone to init: after the second death of a guard."""
        return self.recoveries > 1


@frozen
class Exited:
    """The command exited with this code."""

    code: int


@frozen
class Signalled:
    """The command died of this signal."""

    signal: int


@frozen
class NeverStarted:
    """The command could not be started."""

    why: str


@frozen
class Ending:
    """Who asked for the end, and by which rule: `kill` or `limit`."""

    by: str
    rule: str
    at: float


@frozen
class Pending:
    """It waits for a slot, or for other tasks; it has no guards yet."""

    since: float


@frozen
class Running:
    """The command runs, or is being started."""

    since: float


@frozen
class Ended:
    """The command has ended, and how."""

    since: float
    until: float
    elapsed: float
    outcome: Outcome
    ending: Ending | None
    pipe_status: tuple[int, ...] | None
    cpu: float | None
    caller_gone: bool = True  # no caller waited for it in the foreground when it ended
    left_no_processes: bool = False  # none of its processes ran when it ended; False: look for them
    without_memory: int = 0  # so many of its processes the kernel ended, because there was no more for all of them


@frozen
class Lost:
    """Both guards died before they recorded how it ended; it cannot be known any more."""

    since: float


if TYPE_CHECKING:
    Outcome = Exited | Signalled | NeverStarted
    Status = Pending | Running | Ended | Lost


@frozen
class Task:
    """One task as it was seen at one moment, flat, under the names that others rely on."""

    task_id: str
    kind: str
    category: str
    status: StatusName
    reason: Reason | None
    exit_code: int | None
    signal: int | None
    pipe_status: tuple[int, ...] | None
    ended_by: str | None
    error: str | None
    command: str
    description: str
    name: str
    session: str
    cwd: str
    shell: str
    executor: str
    pid: int | None
    pgid: int | None
    started_at: float
    ended_at: float | None
    elapsed_ms: int
    cpu_ms: int | None
    limit: float | None
    resources: str | None
    sandbox: str | None
    children: tuple[int, ...]
    waits_for: tuple[str, ...]
    held_back: tuple[str, ...]
    split: bool
    tty: str | None
    """The size of its terminal now, such as "80x24"; None if it has none."""
    closed: bool
    output_file: str
    parent: str
    like: str | None
    """The earlier task whose command, directory and options it was started with again."""
    background: bool
    """Started in the background, or moved there because its caller stopped waiting."""
    metadata: Mapping[str, Any] | None
    """Of an agent: its type and prompt, and what it reported: result, tokens, cost."""

    @property
    def finished(self) -> bool:
        return self.status not in ("pending", "running")

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the names that `--json` has."""
        return fields(self)


# --- reading -----------------------------------------------------------------------------


@frozen
class Cursor:
    """A place in a task's output, held by the reader: a byte offset in each stream."""

    stdout: int = 0
    stderr: int = 0

    def __str__(self) -> str:
        return f"{self.stdout},{self.stderr}" if self.stderr else str(self.stdout)

    def at(self, stream: str) -> int:
        return self.stderr if stream == "stderr" else self.stdout


START = Cursor()


@frozen
class Slice:
    """Bytes of one stream from a cursor on. `dropped` bytes were lost to the bound before `data`."""

    stream: str
    start: int
    data: bytes
    dropped: int
    next: int


@frozen
class Result(Task):
    """A task together with what was read of its output, as text."""

    output: str
    stdout: str | None
    stderr: str | None
    truncated: bool
    dropped_bytes: int
    hidden_lines: int
    cursor: str


@frozen
class Waited(Task):
    """A task after a wait: whether what the call waited for came true, and what showed it."""

    met: bool
    matched: str | None


@frozen
class Receipt(Task):
    """A task that was to end: every pid that ended, and any that survived."""

    ended: tuple[int, ...]
    survivors: tuple[int, ...]
