"""The directory of a task as a whole: create it under a new id, measure it, remove it."""

from __future__ import annotations

import os
import time

from outlast.errors import DamagedTask, StartFailed
from outlast.storage import launchfile, layout, sessions
from outlast.storage.locks import is_held, lock_for_removal, unlock_and_close
from outlast.storage.sessions import Sessions
from outlast.storage.status import explain_error, has_guard, is_damage, is_pending

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.storage.layout import Home
    from outlast.types import Launch

_ID_TRIES = 5
_STALE_S = 3600.0  # a process that prepares or removes a task does not take this long


def stage(home: Home, kind: str, around: Launch) -> tuple[str, str]:
    """Create a directory for a task under a new id; return its path, and the path at which it will be published.

    In a session it also gets the snapshot that its shell begins with.
    """
    for _ in range(_ID_TRIES):
        task_id = f"{kind}-{layout.random_token()}"
        if not os.access(home.task(task_id), os.F_OK):
            staged = f"{home.staging}/{task_id}.{layout.random_token()}"
            os.mkdir(staged, 0o700)
            try:
                if around.state:
                    Sessions(home.sessions).link(around.state, staged, around.snapshot)
            except BaseException:
                remove_tree(staged)
                raise
            return staged, home.task(task_id)
    raise StartFailed("No free task id was found; `outlast clean` removes finished tasks.")


def measure_size(directory: str) -> int:
    """Return the bytes that a task takes on disk, without the files that go when its session is used next."""
    size = os.stat(directory).st_blocks * 512
    with os.scandir(directory) as entries:
        for entry in entries:
            try:
                if entry.name in sessions.TEMPORARY_FILES:
                    continue
                is_directory = entry.is_dir(follow_symlinks=False)
                size += measure_size(entry.path) if is_directory else entry.stat(follow_symlinks=False).st_blocks * 512
            except FileNotFoundError:
                continue  # the guard or a reader removed it
    return size


def is_removable(directory: str) -> bool:
    """Return whether a task has no guard and no hold, and this version may remove it."""
    try:
        in_use = is_pending(directory) or has_guard(directory) or is_held(directory)
        return not in_use and not launchfile.is_newer(directory)
    except DamagedTask:
        return True
    except OSError as error:
        if not is_damage(error):
            raise explain_error(directory, error) from None
        return True


def rename_unless_held(directory: str, moved: str) -> bool:
    """Rename a task before it is removed, so that no reader sees half of it; return False if it is held."""
    try:
        lock = lock_for_removal(directory)
    except OSError as error:
        if not is_damage(error):
            raise explain_error(directory, error) from None
        lock = -1  # without a launch.json there is no hold
    if lock is None:
        return False
    try:
        os.rename(directory, moved)
    finally:
        if lock >= 0:
            unlock_and_close(lock)
    return True


def sweep_staging(staging: str) -> None:
    """Remove the staging directories of processes that died."""
    with os.scandir(staging) as entries:
        for entry in entries:
            try:
                is_old = entry.stat(follow_symlinks=False).st_mtime < time.time() - _STALE_S
                if is_old and not _is_prepared_shell(entry.path):
                    remove_tree(entry.path)
            except FileNotFoundError:
                continue


def _is_prepared_shell(staged: str) -> bool:
    try:
        return has_guard(staged)
    except OSError:
        return False


def remove_tree(directory: str) -> None:
    """Remove a directory that is no task (any more)."""
    from shutil import rmtree  # takes 4 ms to import

    try:
        os.unlink(directory)  # a planted link is not followed
    except OSError:
        rmtree(directory, ignore_errors=True)
