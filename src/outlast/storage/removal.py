"""Removal of tasks: by id, by age, and to make room for a new one.

A task is renamed to `staging/` before its files are removed, so that no reader sees half of it.
"""

from __future__ import annotations

import os
import time

from outlast.errors import OutlastError, SessionBusy
from outlast.linux.files import open_locked, remove_tree, unlock_and_close
from outlast.storage import sessions, task_directory
from outlast.storage.layout import FORMAT, LAUNCH, random_token
from outlast.storage.queue import Queue
from outlast.storage.record import UNREADABLE, explain_error, has_guard, is_damage, is_pending
from outlast.storage.sessions import Sessions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.storage.task_events import TaskFiles

AT_ONCE = 20  # tasks that one start removes at most, so that no start waits long for a clean-up
_STALE_S = 3600.0  # a process that prepares or removes a task does not take this long


def remove(registry: TaskFiles, task_id: str) -> bool:
    """Remove a task that has no guard and no hold; return whether it was removed."""
    directory = registry.home.task(task_id)
    if not is_removable(directory) or not _is_merged(registry, task_id):
        return False
    put_notices = None
    if registry.index.is_notice_due(task_id):
        from outlast.storage.task_events import save_before_removal  # rarely needed

        put_notices = save_before_removal(registry, task_id)
    moved = f"{registry.home.staging}/{task_id}.{random_token()}"
    try:
        Queue(registry.home.path).remember_end(task_id)
    except OSError:
        return False  # the disk is full: a pending task that waits for this one would take it for failed
    try:
        if not rename_unless_held(directory, moved):
            return False
    except FileNotFoundError:
        registry.index.forget(task_id)
        return False
    registry.index.forget(task_id)
    remove_tree(moved)
    if put_notices is not None:
        put_notices()  # there was no space for them before
    return True


def _is_merged(registry: TaskFiles, task_id: str) -> bool:
    """Merge what a finished task changed into its session; False if that is not possible now."""
    if not os.path.exists(f"{registry.home.task(task_id)}/{sessions.BEFORE}"):
        return True  # it is merged, or has no session
    try:
        launch = registry.launch_of(task_id)
        if launch.state and launch.keeps:
            Sessions(registry.home.sessions).merge(launch.state)
    except (OSError, SessionBusy):
        return False
    except (OutlastError, ValueError):
        pass  # the task or the snapshot is damaged
    return True


def make_room(registry: TaskFiles, wanted: int, least: int, most: int, total: int) -> None:
    """Remove the tasks that ended first, until `wanted` bytes fit into `most`, or `least` into `total`."""
    kept, finished = registry.index.kept_bytes(), registry.index.finished_bytes()
    for number, task_id in enumerate(registry.index.ended_before(time.time(), -1)):
        # Running tasks reserve more than most of them use. Before a finished task is removed for that, the new
        # task gets a smaller share, unless the finished tasks keep more than half of the limit.
        may_shrink = finished <= total // 2 or number >= AT_ONCE
        if kept + wanted <= most or (may_shrink and kept + least <= total):
            return
        row = registry.index.row(task_id)
        if remove(registry, task_id) and row is not None:
            kept, finished = kept - row.kept_bytes, finished - row.kept_bytes


def is_removable(directory: str) -> bool:
    """Return whether a task has no guard, is not pending, and may be removed by this version."""
    for is_in_use in (lambda task: task_directory.read_values(task)["format"] > FORMAT, is_pending, has_guard):
        try:
            if is_in_use(directory):
                return False
        except UNREADABLE as error:
            if not is_damage(error):
                raise explain_error(directory, error) from None
    return True


def rename_unless_held(directory: str, moved: str) -> bool:
    """Rename a task before it is removed, so that no reader sees half of it; return False if it is held."""
    try:
        fd = open_locked(f"{directory}/{LAUNCH}", flags=os.O_RDWR)
    except OSError as error:
        if not is_damage(error):
            raise explain_error(directory, error) from None
        os.rename(directory, moved)  # without a launch.json there is no hold
        return True
    if fd is None:
        return False
    try:
        os.rename(directory, moved)
    finally:
        unlock_and_close(fd)
    return True


def sweep_staging(staging: str) -> None:
    """Remove the staging directories of processes that died."""
    for name in os.listdir(staging):
        path = f"{staging}/{name}"
        try:
            if os.lstat(path).st_mtime < time.time() - _STALE_S and not _is_prepared_shell(path):
                remove_tree(path)
        except FileNotFoundError:
            continue


def _is_prepared_shell(staged: str) -> bool:
    try:
        return has_guard(staged)
    except OSError:
        return False
