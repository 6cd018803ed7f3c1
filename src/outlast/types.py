"""The nouns: what passes from one stage to the next.

    Request ─▶ Grant ─▶ Launch ─▶ Task ─▶ Slice ─▶ text
    (asked)   (allowed) (exactly  (an id)  (bytes)
                         what runs)

Nothing in here does anything. A status is never stored: it is derived from a task's
files (`store.registry`), so nothing can contradict them.
"""

from __future__ import annotations

from outlast.frozen import fields, frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Literal

    StatusName = Literal["pending", "running", "completed", "failed", "killed"]
    Reason = Literal["exit", "signal", "timeout", "killed", "spawn-error", "lost"]

STREAMS = ("stdout", "stderr")
BUBBLEWRAP, LANDLOCK = "bubblewrap", "landlock"  # the kinds of sandbox
NO_SHELL = "none"  # as a shell: the words of the command are one program and its arguments, for the system itself
AGENT = "agent"  # as a shell: the same, by way of our runner, which understands what an agent prints
REGISTERED = "registered"  # as the format of an agent: somebody else started it, so it takes no place here
BRIDGE = "bridge"  # as a shell: our runner alone; no command runs, and the text of it is only shown
_NO_LIMITS: Mapping[str, tuple[int, int]] = {}
_NO_RESOURCES: Mapping[str, int] = {}
_NO_GROUPS: Mapping[str, Mapping[str, str]] = {}
_NOTHING: Mapping[str, Any] = {}
_NO_AGENT: Mapping[str, str] = {}


# --- asking ------------------------------------------------------------------------------


@frozen
class Stdin:
    """Where a command's input comes from. Only one of the three is set; none means empty."""

    text: bytes | None = None
    file: str | None = None
    open: bool = False


@frozen
class Sandbox:
    """What a command is kept from: it writes to the caller's directory and to `writable` only, and reaches no network.

    What is `readable` is so even in /tmp, of which it has its own. `kind` is how (none: whichever works here),
    `program` what does it. In a launch all of it is filled in.
    """

    writable: tuple[str, ...] = ()
    network: bool = False
    readable: tuple[str, ...] = ()
    kind: str = ""
    program: str = ""


def as_sandbox(values: Mapping[str, Any] | None) -> Sandbox | None:
    """A sandbox as it comes out of JSON."""
    if values is None:
        return None
    return Sandbox(**{**values, **{name: tuple(values[name]) for name in ("writable", "readable")}})


@frozen
class Request:
    """What somebody asks for, as they said it."""

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
    resources: Mapping[str, int] = _NO_RESOURCES
    notify: Mapping[str, Any] = _NOTHING
    agent: Mapping[str, str] = _NO_AGENT
    fresh: bool = False  # in a shell that neither sees the session's state nor changes it


@frozen
class Grant:
    """A request that passed the policy. Only `permissions.decide` makes one."""

    request: Request
    policy: str
    judgement: object = None  # a `permissions.judge.Judgement`; none if the policy has nothing to judge by
    approved: bool = False  # somebody was asked and said yes


@frozen
class Launch:
    """Exactly what runs. Only `sessions.prepare` makes one, from a grant."""

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
    rlimits: Mapping[str, tuple[int, int]] = _NO_LIMITS
    nice: int | None = None
    state: str = ""  # the session whose state it begins with; none: only `env` and `cwd`
    snapshot: str = ""  # which state of it that is
    keeps: bool = False  # what it changes is there for the next
    held_back: tuple[str, ...] = ()  # names of secret variables that the caller has and it has not
    sandbox: Sandbox | None = None
    resources: Mapping[str, int] = _NO_RESOURCES  # what it is held to: by `rlimits`, or by
    groups: Mapping[str, Mapping[str, str]] = _NO_GROUPS  # control groups, by where they are made
    notify: Mapping[str, Any] = _NOTHING  # what somebody is to be told of while it runs: see `notices.watching`
    trace: str = ""  # the trace that it is a part of, as a W3C traceparent
    agent: Mapping[str, str] = _NO_AGENT  # of an agent: its type, its prompt, how it is understood
    parent: str = ""  # the task that it was started from inside of


@frozen
class Surroundings:
    """What a shell needs before it knows its command: a launch without what is only decided at the last moment."""

    shell: str
    cwd: str
    env: Mapping[str, str]
    umask: int
    stdin: Stdin
    split: bool
    rlimits: Mapping[str, tuple[int, int]] = _NO_LIMITS
    nice: int | None = None
    state: str = ""
    snapshot: str = ""
    sandbox: Sandbox | None = None
    groups: Mapping[str, Mapping[str, str]] = _NO_GROUPS


def surroundings(launch: Launch) -> Surroundings:
    """The part of a launch that a task can be prepared with in advance."""
    return Surroundings(**{name: launch.__dict__[name] for name in Surroundings.__match_args__})


@frozen
class Terms:
    """What of a launch its guards need once it begins. The rest they have known since they prepared it."""

    limit: float | None
    grace: float
    output_limit: int
    free_floor: int
    keeps: bool
    stages: bool  # the command may be a pipeline


def terms(launch: Launch) -> Terms:
    """The part of a launch that is only decided at the last moment, but for the text of the command."""
    given = {name: launch.__dict__[name] for name in Terms.__match_args__ if name != "stages"}
    return Terms(**given, stages="|" in launch.command or "!" in launch.command)


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
        """Whether orphans of the command may have gone to init.

        The first death of a guard leaves no trace: the other one is an ancestor of
        everything. After a second one, what is left is found by its environment.
        """
        return self.recoveries > 1


@frozen
class Exited:
    code: int


@frozen
class Signalled:
    signal: int


@frozen
class NeverStarted:
    why: str


if TYPE_CHECKING:
    Outcome = Exited | Signalled | NeverStarted


@frozen
class Ending:
    """Who asked for the end, and by which rule: `kill` or `limit`."""

    by: str
    rule: str
    at: float


@frozen
class Pending:
    """It waits for a place, or for other tasks; it has no guards yet."""

    since: float


@frozen
class Running:
    since: float


@frozen
class Ended:
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
    """Nobody recorded how it ended, and nobody can know."""

    since: float


if TYPE_CHECKING:
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
    closed: bool
    output_file: str
    parent: str
    background: bool
    """Started in the background, or moved there because its caller stopped waiting."""
    metadata: Mapping[str, Any] | None
    """Of an agent: its type and prompt, and what it told: result, tokens, cost."""

    @property
    def finished(self) -> bool:
        return self.status not in ("pending", "running")

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the names that `--json` has."""
        return fields(self)


@frozen
class SessionState:
    """What a session remembers. Values are as bash would print them, on one line each."""

    name: str
    directory: str
    umask: str
    generation: int
    updated_at: float
    last_task: str
    variables: Mapping[str, str]  # those that are not as they were when the session began
    removed: tuple[str, ...]  # those that it began with and has no more
    functions: tuple[str, ...]
    aliases: Mapping[str, str]
    options: tuple[str, ...]
    traps: Mapping[str, str]
    damaged: tuple[str, ...]  # snapshots that were found damaged and set aside


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
    """A task that somebody waited for: whether what they waited for came true, and what showed it."""

    met: bool
    matched: str | None


@frozen
class Usual:
    """How long a command took when it went well: the middle of its latest runs."""

    elapsed_ms: int
    runs: int


@frozen
class Receipt(Task):
    """A task that was told to end: every pid that ended, and any that survived."""

    ended: tuple[int, ...]
    survivors: tuple[int, ...]


# --- telling -----------------------------------------------------------------------------


@frozen
class Notice:
    """What somebody is told: one line of text, with a number and a code that `verify` checks.

    `kind` is ended, matched, silenced, silent, limit-near, left-behind or waits-for-input. `repeated`: who claimed it
    before died or gave it back without having acknowledged it.
    """

    number: int
    code: str
    kind: str
    task_id: str
    session: str
    at: float
    text: str
    facts: Mapping[str, Any]
    repeated: bool = False

    def __str__(self) -> str:
        return f"[outlast notice {self.number}, code {self.code}] {self.text}"


@frozen
class Event:
    """What happened: to a task (task.queued, .started, .background, .ended), or that a tool was called (tool.call)."""

    number: int
    type: str
    at: float
    session: str
    task_id: str
    traceparent: str
    facts: Mapping[str, Any]


@frozen
class Agent(Task):
    """An agent, as those see it who know only running, completed and failed: what was stopped shows as failed."""

    id: str
    type: str


@frozen
class Stopped:
    """What became of a wish to stop an agent."""

    success: bool
    message: str
    id: str
    status: str
