"""`make bench`: the table on the screen, and the figures as JSON in `bench/results.json`."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from bench.memory import for_each_task
from bench.rows import all_rows
from outlast import Shell

RESULTS = Path(__file__).parent / "results.json"


def main() -> None:
    rows = []
    os.environ.setdefault("OUTLAST_MAX_RUNNING", "10000")  # what is measured is a start, not a wait for a place
    with tempfile.TemporaryDirectory(prefix="outlast-bench-") as home, Shell.open(f"{home}/state") as shell:
        print(f"{'what':<34} {'ours ms':>9} {'p95':>9} {'raw ms':>9} {'ratio':>7} {'goal':>5}  beside")
        for row in all_rows(shell):
            rows.append(row.as_dict())
            goal = f"{row.goal:g}" if row.goal else "-"
            print(
                f"{row.what:<34} {row.ours.median * 1000:9.2f} {row.ours.p95 * 1000:9.2f} {row.raw.median * 1000:9.2f} "
                f"{row.ratio:7.2f} {goal:>5}  {row.raw_is} {row.verdict}",
                flush=True,
            )
        for tasks in (100, int(os.environ.get("OUTLAST_BENCH_TASKS", "100"))):
            mib = for_each_task(shell, tasks)
            rows.append({"what": f"private memory for each of {tasks} tasks", "mib": round(mib, 2), "goal": 1.0})
            print(f"private memory for each of {tasks} running tasks: {mib:.2f} MiB (goal 1)")
    RESULTS.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
