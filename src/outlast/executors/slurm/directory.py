"""A task's directory on the shared file system: what the job needs to start it, and what comes back from there.

launch      what the guard is told, without the variables that only the job has; the job removes it as it starts
claimed/    made by the one job that runs the task, or by the process that ended it before
refused     why the guard could not start the command
"""

from __future__ import annotations

import errno
import os
from functools import cache
from shutil import copyfile

from outlast.executors.far_launch import describe
from outlast.executors.local import shell_argv
from outlast.guard.client import HEADER, encode_items, find_guard
from outlast.linux.files import create_file, open_regular, read_file, remove_file
from outlast.storage import mirror, record, sessions
from outlast.storage.layout import random_token

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from outlast.guard.client import Item
    from outlast.types import Launch

HERE = os.path.dirname(os.path.abspath(__file__))
_CLAIMED, _REFUSED, _SESSION_SCRIPT = "claimed", "refused", "session.bash"
_JOB, _ELEMENT = "job", "element"  # in the mirror
_OUTPUTS = ("output", "stderr", "order")
_PIECE_BYTES = 1 << 20


# --- in the mirror -----------------------------------------------------------------------


def read_name(near: str) -> str:
    """Return the name of a task's job and directory: its id, or in an array the first one's and an index."""
    try:
        return read_file(f"{near}/{_ELEMENT}").decode()
    except FileNotFoundError:
        return os.path.basename(near)


def write_name(near: str, name: str) -> None:
    """Record the name of the directory on the cluster."""
    mirror.replace_file(near, _ELEMENT, name.encode())


def read_job(near: str) -> tuple[str, float, str]:
    """Return the number of a task's job, when it was submitted, and its node if that was seen. FileNotFoundError."""
    number, submitted, *node = read_file(f"{near}/{_JOB}").decode().split()
    return number, float(submitted), node[0] if node else ""


def write_job(near: str, number: str, submitted: float, node: str = "") -> None:
    """Record which Slurm job a task is."""
    mirror.replace_file(near, _JOB, f"{number} {submitted} {node}".encode())


def has_job(near: str) -> bool:
    """Return whether a task is a Slurm job by now."""
    return os.path.exists(f"{near}/{_JOB}")


# --- before the job ----------------------------------------------------------------------


def install(root: str) -> tuple[str, str]:
    """Put the guard and the job script into the shared directory, unless these versions are there; their paths."""
    return _install(root, find_guard(), "outlast-guard"), _install(root, f"{HERE}/job.sh", "job")


@cache
def _hash_program(path: str) -> str:
    from hashlib import sha256

    return sha256(read_file(path)).hexdigest()[:16]


def _install(root: str, source: str, name: str) -> str:
    path = f"{root}/bin/{_hash_program(source)}/{name}"
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        temporary = f"{path}.{random_token()}"
        create_file(temporary, read_file(source))
        os.chmod(temporary, 0o700)
        os.rename(temporary, path)
    return path


def prepare(path: str, near: str, task_id: str, launch: Launch, on_node: str) -> None:
    """Make the directory of a task complete, or not at all. `on_node` is its path on the node."""
    made = f"{path}.{random_token()}"
    os.makedirs(made, 0o700)
    create_file(f"{made}/command", os.fsencode(launch.command))
    for name in (record.PIPES, *([sessions.BEFORE, sessions.START, sessions.STATE] if launch.state else [])):
        if os.path.exists(f"{near}/{name}"):
            copyfile(f"{near}/{name}", f"{made}/{name}")
    if launch.state:
        copyfile(shell_argv.SESSION_SCRIPT, f"{made}/{_SESSION_SCRIPT}")
    if launch.stdin.text is not None:
        create_file(f"{made}/input", launch.stdin.text)
    create_file(f"{made}/launch", HEADER + encode_items(_describe(task_id, on_node, launch)))
    os.rename(made, path)


def _describe(task_id: str, path: str, launch: Launch) -> Iterator[Item]:
    """Yield the items of the launch description, for a guard that the job starts in this directory."""
    yield "directory", path
    for key, value in describe(task_id, launch, path, f"{path}/{_SESSION_SCRIPT}"):
        # Of a job that this process is in; the job that it submits adds its own.
        if key in ("publish", "stdin-text") or (key == "env" and str(value).startswith(("SLURM_", "SLURMD_"))):
            continue
        number, is_inherited, _ = str(value).partition(" inherit ")
        if key == "fd" and is_inherited:
            yield key, f"{number} inherit {number}"  # `sh` opens no others than the first ten
        else:
            yield key, f"file {path}/input" if (key, value) == ("stdin", "text") else value


def forget_launch(path: str) -> None:
    """Remove what a job has taken along: it has the variables of the command, and its input."""
    for name in ("launch", "input"):
        remove_file(f"{path}/{name}")


def claim(path: str) -> bool:
    """Keep a job from running the task from now on; False if one runs it, or ran it."""
    try:
        os.mkdir(f"{path}/{_CLAIMED}", 0o700)
    except FileExistsError:
        return False
    return True


def read_claim(path: str) -> str | None:
    """Return the number of the job that runs the task; nothing if that is not written yet, None if there is none."""
    try:
        return (read_file(f"{path}/{_CLAIMED}/job").decode().split() or ["", ""])[1]
    except FileNotFoundError:
        return "" if os.path.exists(f"{path}/{_CLAIMED}") else None


# --- what comes back ---------------------------------------------------------------------


def read_page(path: str) -> bytes | None:
    """Return the record as it is now; None if no guard has written one."""
    try:
        page = read_file(f"{path}/{record.NAME}", record.SIZE)
        record.parse(page)
    except (OSError, ValueError):
        return None  # not yet whole: the next look sees it
    return page


def read_refusal(path: str) -> str:
    """Return why the guard could not start the command; nothing if it could."""
    try:
        return read_file(f"{path}/{_REFUSED}", 4096).decode(errors="replace").partition(" ")[2]
    except OSError:
        return ""


def copy_output(path: str, near: str) -> bool:
    """Copy what was printed since the last time; returns whether there was anything."""
    names = [name for name in os.listdir(path) if name.partition(".")[0] in _OUTPUTS]
    copied = [_copy_rest(path, near, name) for name in sorted(names)]
    for name in os.listdir(near):
        if "." in name and name.partition(".")[0] in _OUTPUTS and name not in names:
            os.unlink(f"{near}/{name}")  # a segment that was dropped there
    return any(copied)


def _copy_rest(path: str, near: str, name: str) -> bool:
    try:
        fd = open_regular(f"{path}/{name}")
    except FileNotFoundError:
        return False  # dropped since the listing
    try:
        at = start = _size(f"{near}/{name}")
        if at == 0 and os.fstat(fd).st_size == 0:
            mirror.write_output(near, name, 0, b"")
        while data := os.pread(fd, _PIECE_BYTES, at):
            mirror.write_output(near, name, at, data)
            at += len(data)
        return at > start
    finally:
        os.close(fd)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def copy_rest(path: str, near: str, launch: Launch) -> None:
    """Copy what the shell left for its session and about its last pipeline, at the end of the command."""
    for name in (record.PIPES, *([sessions.START, sessions.STATE] if launch.state else [])):
        try:
            mirror.replace_file(near, name, read_file(f"{path}/{name}"))
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENXIO):
                raise
