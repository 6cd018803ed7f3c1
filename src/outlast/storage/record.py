"""What changes in a task's life, in one small file whose space is reserved at the start; and the status it means.

A full disk refuses new files and new blocks, but not a write into a block that is already there. So everything that
must be recorded at all costs (which guards watch the task, how it ended) has a fixed slot in `record`, one page long,
and is written in place. Each slot is a checksum and a JSON text, padded to its line: `cat record` shows it.

Nothing stores a status, so nothing can contradict the files: `status_of` computes it from the record and the lock.
"""

from __future__ import annotations

import errno
import os
import stat
from binascii import crc32
from fcntl import LOCK_SH

from outlast.errors import LIST_TASKS, DamagedTask, Hint, OutlastError, SystemRefused, UnknownTask
from outlast.light import json
from outlast.linux import process
from outlast.linux.files import open_locked, open_regular, read_file, unlock_and_close, write_and_close
from outlast.storage.layout import LOCK, QUEUED, STAGING
from outlast.types import Ended, Ending, Exited, Guards, Identity, Lost, NeverStarted, Pending, Running, Signalled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from outlast.linux.process import Stat
    from outlast.types import Outcome, Status

NAME = "record"
MIRROR = "mirror"  # of a task that runs elsewhere: see `mirror.py`
SIZE = 4096
SLOTS = {
    "guards": (0, 1024),  # supervisor, keeper and command: their identities, since when
    "code": (1024, 128),  # how the command ended, as its parent saw it
    "ending": (1152, 448),  # who asked for the end, by which rule
    "position": (1600, 64),  # where the output stands while it is being dropped
    "outcome": (1664, 2432),  # the end: written last, when all output before it is kept
}
PIPES = "pipes"
MOST_STAGES = 500  # the list of a longer pipeline is not kept
_TORN_READS = 100  # a torn read lasts microseconds; a slot still wrong after this many is damaged

# What reading a task's files can raise, if it was removed or is damaged.
UNREADABLE = (OSError, OutlastError, KeyError, TypeError, ValueError)

# The errors of a file that is missing, or is not what it should be. Any other error (no descriptor left, a failing
# disk) says nothing about the task.
_DAMAGED = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENXIO})


def is_damage(error: Exception) -> bool:
    """Return whether a task's file is not as it should be."""
    return not isinstance(error, OSError) or error.errno in _DAMAGED


def explain_error(directory: str, error: Exception) -> OutlastError:
    """Return the error to raise for a task whose files could not be read."""
    name = os.path.basename(os.path.abspath(directory))
    try:
        os.stat(directory)
    except FileNotFoundError:
        return UnknownTask(f"There is no task '{name}' (any more).", LIST_TASKS)
    except OSError:
        pass
    if isinstance(error, OSError) and not is_damage(error):
        return SystemRefused(f"{name} cannot be looked at now: {error.strerror}; try again.")
    return DamagedTask(
        f"The files of {name} are damaged.", Hint("`outlast clean` removes it", "`Shell.clean` removes it")
    )


def reserve(directory: str) -> None:
    """Create an empty record with its space."""
    fd = os.open(f"{directory}/{NAME}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, SIZE)
        os.pwrite(fd, b"".join(b" " * (size - 1) + b"\n" for _, size in SLOTS.values()), 0)
    finally:
        os.close(fd)


def write(slot: str, value: Mapping[str, object], directory: str) -> None:
    """Put `value` into its slot. This cannot fail for want of space."""
    line = encode(slot, value)
    fd = open_regular(f"{directory}/{NAME}", os.O_WRONLY)
    try:
        os.pwrite(fd, line, SLOTS[slot][0])
    finally:
        os.close(fd)


def replace_slot(page: bytes, slot: str, value: Mapping[str, object]) -> bytes:
    """Return a page with another value in a slot."""
    start, size = SLOTS[slot]
    return page[:start] + encode(slot, value) + page[start + size :]


def encode(slot: str, value: Mapping[str, object]) -> bytes:
    """Return what a slot holds that has this value."""
    _, size = SLOTS[slot]
    text = json.dumps(value).encode()
    line = b"%08x %s" % (crc32(text), text)
    if len(line) >= size:
        raise ValueError(f"{slot} takes {size - 10} bytes, not {len(text)}")
    return line.ljust(size - 1) + b"\n"


def read(directory: str, slots: Iterable[str] = SLOTS) -> dict[str, Any]:
    """Return those of the `slots` that were written, by name."""
    fd = open_regular(f"{directory}/{NAME}")
    try:
        for _ in range(_TORN_READS):
            try:
                return parse(os.pread(fd, SIZE, 0), slots)
            except ValueError:
                continue
    finally:
        os.close(fd)
    raise explain_error(directory, ValueError())


def parse(page: bytes, slots: Iterable[str] = SLOTS) -> dict[str, Any]:
    """Return the slots of one page; ValueError if one is torn or damaged."""
    if len(page) != SIZE:
        raise ValueError("not a whole record")
    found = {}
    for name in slots:
        start, size = SLOTS[name]
        # Search from the end: the value is an object, and stripping two thousand blanks would take far longer.
        end = page.rfind(b"}", start, start + size) + 1
        if end or page[start] not in b" \n\0":
            checksum, _, text = page[start:end].partition(b" ")
            if int(checksum, 16) != crc32(text):
                raise ValueError(f"torn slot {name}")
            found[name] = json.loads(text)
    return found


# --- the status --------------------------------------------------------------------------


def status_of(directory: str) -> tuple[Status, Guards | None, bool]:
    """Return the status, the guards, and whether the task is closed: no more output will come."""
    found = read(directory)
    if "guards" not in found:
        # Do not probe the lock here: our shared lock would make a starter believe that another starter holds the task.
        return _status_without_guards(directory, found), None, "outcome" in found
    guarded = has_guard(directory) if "outcome" not in found else None
    # The guards record the ending before they release the lock, so read the record again after the probe: a free
    # lock without an ending can only mean that both guards died.
    if guarded is False:
        found = read(directory)
    guards = _parse_guards(directory, found)
    if "outcome" in found:
        return _parse_ended(directory, guards.started, found), guards, not has_guard(directory)
    if guarded:
        return Running(guards.started), guards, False
    if "code" in found:  # the exit code is recorded, but both guards died before they recorded when
        last_change = os.stat(f"{directory}/{NAME}").st_mtime
        return _parse_ended(directory, guards.started, found, last_change), guards, True
    return Lost(guards.started), guards, True


def _status_without_guards(directory: str, found: dict[str, Any]) -> Status:
    """A task without guards waits in the queue, or left it without having run."""
    try:
        since = os.stat(f"{directory}/{QUEUED}").st_mtime
    except FileNotFoundError:
        mirror = read_mirror(directory)  # its start is not confirmed yet
        since = float(mirror["created"])
        if "outcome" in found:
            return _parse_ended(directory, since, found)
        return Pending(since) if mirror["alive"] else Lost(since)
    if "outcome" in found:
        return _parse_ended(directory, since, found)
    path = f"{directory}/{LOCK}"
    if not stat.S_ISREG(os.lstat(path).st_mode):
        raise OSError(errno.ENXIO, "It is not a regular file", path)  # it can neither begin nor be ended
    return Pending(since)


def is_pending(directory: str) -> bool:
    """Return whether a task has not begun yet."""
    return isinstance(status_of(directory)[0], Pending)


def has_outcome(directory: str) -> bool:
    """Return whether the end is recorded. This is the cheapest check; a lost task ends without a record."""
    return "outcome" in read(directory, ("outcome",))


def has_guard(directory: str) -> bool:
    """Return whether a guard holds the task's lock."""
    try:
        fd = open_locked(f"{directory}/{LOCK}", LOCK_SH)  # shared: two probes must not take each other for a guard
    except FileNotFoundError:
        return bool(read_mirror(directory)["alive"])  # its guards are elsewhere
    if fd is not None:
        unlock_and_close(fd)
    return fd is None


def read_mirror(directory: str) -> dict[str, Any]:
    """Return what is known here of a task that runs elsewhere; FileNotFoundError if it is a task of this machine."""
    found: dict[str, Any] = json.loads(read_file(f"{directory}/{MIRROR}"))
    return found


def guards_of(directory: str) -> Guards:
    """Return the guards of a task; KeyError if it has none."""
    return _parse_guards(directory, read(directory))


def is_foreign_guard(stat: Stat, task_id: str) -> bool:
    """Return whether a process is a guard of another task than this one. Its name alone proves nothing."""
    if not stat.name.startswith("outlast-"):
        return False
    directory = ""
    try:
        directory = os.readlink(f"/proc/{stat.pid}/cwd")
        guards = guards_of(directory)
        if os.path.basename(os.path.dirname(directory)) == STAGING:
            return False  # a prepared shell, which has no task yet
    except KeyError:
        # The guard that is about to start a pending task: a process of another task may have started it.
        return os.path.basename(directory) != task_id and os.path.exists(f"{directory}/{QUEUED}")
    except (OSError, OutlastError, TypeError, ValueError):
        return False
    recorded = [(guard.pid, guard.tick) for guard in (guards.supervisor, guards.keeper) if guard]
    return guards.task_id != task_id and (stat.pid, stat.tick) in recorded


def is_in_task(pid: int) -> bool:
    """Return whether a task started this process, or one of its ancestors: guards are above all that it started."""
    stat = process.stat_of(pid) if pid else None
    while stat is not None and not is_foreign_guard(stat, ""):
        stat = process.stat_of(stat.parent) if stat.parent else None
    return stat is not None


def write_ending(by: str, rule: str, at: float, directory: str) -> None:
    """Record who asks for the end, before the task is ended; the first one stays."""
    if "ending" not in read(directory):
        write("ending", {"by": by, "rule": shorten(rule, 360), "at": at}, directory)


def write_never_started(why: str, at: float, directory: str) -> None:
    """Record that a pending task ended without having run."""
    write("code", {"spawn": shorten(why, 100)}, directory)
    write("outcome", {"ended": at, "elapsed": 0.0, "pipes": None}, directory)


def shorten(text: str, most: int) -> str:
    """Cut `text` to what takes `most` bytes in a record, where one character can take twelve."""
    while len(json.dumps(text)) > most:
        text = text[: min(len(text) - 1, most)]
    return text


def _parse_ended(directory: str, since: float, found: dict[str, Any], fallback: float = 0.0) -> Ended:
    outcome = found.get("outcome", {})
    until = float(outcome.get("ended", fallback))
    ending = found.get("ending")
    return Ended(
        since=since,
        until=until,
        elapsed=float(outcome.get("elapsed", max(0.0, until - since))),
        outcome=parse_outcome(found["code"]),
        ending=Ending(**ending) if ending else None,
        pipe_status=_pipe_status(directory, found["code"].get("exit"), outcome),
        cpu=found["code"].get("cpu"),
        without_memory=outcome.get("oom", 0),
        caller_gone=bool(outcome.get("unheard", "ended" not in outcome)),
        left_no_processes=bool(outcome.get("alone")),
    )


def parse_outcome(code: dict[str, object]) -> Outcome:
    """Return what the slot `code` says."""
    match code:
        case {"exit": int(number)}:
            return Exited(number)
        case {"signal": int(number)}:
            return Signalled(number)
    return NeverStarted(str(code.get("spawn")))


def _parse_guards(directory: str, found: dict[str, Any]) -> Guards:
    slot = found["guards"]
    boot = f"{slot['boot']}:{slot['pidns']}" if "pidns" in slot else slot["boot"]
    names = [name for name in ("supervisor", "keeper", "command") if name in slot]
    known: dict[str, Any] = {"keeper": None, **{name: Identity(slot[name][0], slot[name][1], boot) for name in names}}
    known |= {name: slot[name] for name in ("started", "monotonic", "recoveries")}
    return Guards(task_id=os.path.basename(os.path.abspath(directory)), **known)


def _pipe_status(directory: str, code: int | None, outcome: dict[str, Any]) -> tuple[int, ...] | None:
    if "pipes" in outcome:  # older guards recorded it
        return tuple(outcome["pipes"]) if outcome["pipes"] else None
    if code is None:
        return None
    try:
        # Without a file, or with an empty one, it was one command.
        return parse_pipe_status(code, read_file(f"{directory}/{PIPES}", 4096).decode("ascii") or None)
    except FileNotFoundError:
        return (code,)
    except (OSError, ValueError):
        return None


def create_pipes(command: str, directory: str) -> None:
    """Create the file for the statuses of a pipeline. The shell's own would get the mode of the command's umask."""
    if ("|" in command or "!" in command) and not command.rstrip("\n").endswith("\\"):
        # An empty one is that of a prepared shell, whose command is no pipeline.
        write_and_close(open_regular(f"{directory}/{PIPES}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), b"\n")


def parse_pipe_status(code: int, written: str | None) -> tuple[int, ...] | None:
    """Return the exit code of each stage of the last pipeline, if it is known.

    The command can write to the file as well, so nothing in it is trusted that contradicts the exit `code`.
    """
    if written is None:
        return (code,)
    words = written.split()
    if not 3 <= len(words) <= MOST_STAGES + 2 or not all(word.isdecimal() and int(word) < 256 for word in words[1:]):
        return None
    last, *stages = map(int, words[1:])
    if words[0] == "exit" and code not in stages:
        return (code,)  # the last thing it did was `exit 3`, a pipeline of one stage
    return tuple(stages) if last == code else None
