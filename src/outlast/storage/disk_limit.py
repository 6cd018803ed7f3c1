"""The limit of the whole state directory: how many bytes of output each task may keep."""

from __future__ import annotations

import time

from outlast.errors import StartFailed
from outlast.storage.index import NOTICE_DUE, NOTICE_IF_CALLER_DIED, Row

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.storage.registry import Registry
    from outlast.types import Launch

LEAST_SHARE_BYTES = 32 * 1024  # what a task may keep at least: about what one reply shows
LARGEST_PART = 4  # no task gets more than a quarter of the whole limit
SPARE_PART = 8  # an eighth of the limit is for tasks that get only the least share
OVERHEAD_BYTES = 64 * 1024  # what a task takes besides its output: its other files, and blocks that are not full
REMOVED_AT_ONCE = 20  # tasks that one start removes at most, so that no start waits long for a clean-up


def reserve_share(registry: Registry, task_id: str, launch: Launch, created: float, total: int) -> int:
    """Insert the task into the index with its share of what all tasks may keep."""
    wanted = min(launch.output_limit, total // LARGEST_PART)
    least = min(wanted, LEAST_SHARE_BYTES)
    overhead = OVERHEAD_BYTES + len(launch.command) + len(launch.stdin.text or b"")
    most = total - total // SPARE_PART

    def all_of_it(taken: int) -> int:
        return wanted if taken + wanted + overhead <= most else 0

    def what_fits(taken: int) -> int:
        share = max(least, min(wanted, most - taken - overhead))
        return share if taken + share + overhead <= total else 0

    row = Row(task_id, launch.session, created, overhead, None, None)
    # A caller that waits for a foreground task gets its result, and needs no notice.
    notice = NOTICE_DUE if launch.background or launch.notify else NOTICE_IF_CALLER_DIED
    share = registry.index.reserve(row, notice, all_of_it)
    if not share:
        _make_room(registry, wanted + overhead, least + overhead, total)
        share = registry.index.reserve(row, notice, what_fits)
    if not share:
        raise StartFailed(
            f"The tasks in {registry.home.path} take all of the {total} bytes that they may, and none of them is over; "
            "end some of them, or raise OUTLAST_STATE_LIMIT_BYTES."
        )
    return share


def _make_room(registry: Registry, wanted: int, least: int, total: int) -> None:
    """Free what ended tasks reserved and did not use; then remove the tasks that ended first."""
    most = total - total // SPARE_PART
    registry.refresh_some()
    kept, finished = registry.index.sums()
    for number, task_id in enumerate(registry.index.ended_before(time.time(), -1)):
        # Running tasks reserve more than most of them use. Before a finished task is removed for that, the new
        # task gets a smaller share, unless the finished tasks keep more than half of the limit.
        may_shrink = finished <= total // 2 or number >= REMOVED_AT_ONCE
        if kept + wanted <= most or (may_shrink and kept + least <= total):
            return
        row = registry.index.row(task_id)
        registry.remove(task_id)
        freed = row.kept_bytes if row and registry.index.row(task_id) is None else 0
        kept, finished = kept - freed, finished - freed
