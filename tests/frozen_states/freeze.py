"""Freezes a state directory as this version writes it, for the tests of all later versions.

    python -m tests.frozen_states.freeze

makes `format-N` beside this file, with what must always be read off it in `golden.json`.
Do this once for each format, when it is new; what is frozen is never changed again.
Named pipes cannot be kept in a repository: the test makes them, as it restores the modes.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import tempfile
import time
from pathlib import Path
from typing import Any, cast

from outlast import Shell, Task
from outlast.light import fields
from outlast.storage import layout, record
from outlast.storage.layout import FORMAT

HERE = Path(__file__).parent
HOME = os.path.join(tempfile.gettempdir(), "outlast-frozen", "state")
BEGAN = 1_700_000_000.0
BOOT = "00000000-0000-4000-8000-000000000000"

COMMANDS = {
    "completed": "echo one; echo two; echo three",
    "failed": "echo oops; (exit 3) | (exit 4)",
    "killed": "echo running; sleep 600",
    "timeout": "echo slow; sleep 600",
    "split": "echo to stdout; echo to stderr >&2",
    "bounded": "for i in {1000..1999}; do echo line $i; done",
    "spawn": "true",
    "lost": "echo not for long; sleep 600",
}


def main() -> None:
    """Run one task of each sort, take off what belongs to this machine, and keep the rest."""
    shutil.rmtree(os.path.dirname(HOME), ignore_errors=True)
    tasks = _run_all()
    for number, task in enumerate(tasks.values()):
        _scrub(Path(task.output_file).parent, BEGAN + 100 * number, number)
    _keep(_golden(tasks))


def _run_all() -> dict[str, Task]:
    os.environ.clear()
    os.environ.update({"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"})
    numbers = iter(range(1, 100))
    layout.random_token = lambda: f"{next(numbers):08x}"
    tasks = {}
    for name, command in COMMANDS.items():
        os.environ["OUTLAST_OUTPUT_LIMIT_BYTES"] = "1024" if name == "bounded" else "100000"
        with Shell.open(home=HOME, session="frozen") as shell:
            tasks[name] = _run_one(shell, name, command)
            while not shell.show(tasks[name].task_id).closed:
                time.sleep(0.01)
    return tasks


def _run_one(shell: Shell, name: str, command: str) -> Task:
    launcher = os.path.join(os.path.dirname(HOME), "no-shell")
    Path(launcher).write_text("#!/nowhere\n")
    os.chmod(launcher, 0o755)
    task = shell.start(
        command,
        cwd="/tmp",
        description=f"a task that is {name}",
        shell=launcher if name == "spawn" else "/bin/bash",
        split=name == "split",
        limit=0.5 if name == "timeout" else None,
    )
    if name in ("killed", "lost"):
        while not shell.read(task.task_id).output:
            time.sleep(0.01)
        shell.kill(task.task_id)
    shell.wait(task.task_id)
    if name == "completed":
        shell.read(task.task_id, new=True, reader="half way")
        Path(task.output_file).parent.joinpath("readers").iterdir().__next__().write_text("4 0".ljust(47) + "\n")
    return task


def _scrub(directory: Path, began: float, number: int) -> None:
    """Pids, times and the boot of no machine."""
    found = record.read(str(directory))
    guards = found["guards"]
    for place, name in enumerate(("supervisor", "keeper", "command")):
        if name in guards:
            guards[name] = [4_000_001 + 10 * number + place, 1000 + number]
    record.write("guards", {**guards, "boot": BOOT, "started": began, "monotonic": 100.0 + number}, str(directory))
    if "cpu" in found["code"]:
        record.write("code", {**found["code"], "cpu": 0.25}, str(directory))
    record.write("outcome", {**found["outcome"], "ended": began + 1.5, "elapsed": 1.5}, str(directory))
    if "ending" in found:
        rule = found["ending"]["rule"].replace(str(os.getpid()), "4000000")
        record.write("ending", {**found["ending"], "rule": rule, "at": began + 1}, str(directory))
    launch = json.loads((directory / "launch.json").read_text())
    if "lost" in launch["description"]:
        blank(directory, "code", "ending", "outcome")
    launch["shell"] = launch["shell"].replace(os.path.dirname(HOME), "/tmp")
    (directory / "launch.json").write_text(json.dumps({**launch, "created": began}))


def blank(directory: Path, *slots: str) -> None:
    """Take back what was written into some slots of a task's record."""
    with open(directory / record.NAME, "r+b") as file:
        for slot in slots:
            start, size = record.SLOTS[slot]
            file.seek(start)
            file.write(b" " * (size - 1) + b"\n")


def _golden(tasks: dict[str, Task]) -> dict[str, object]:
    for ending in ("", "-wal", "-shm"):
        Path(HOME, "index.sqlite" + ending).unlink(missing_ok=True)
    with Shell.open(home=HOME, session="frozen") as shell:
        order = [task.task_id for task in shell.list()]
        seen = {name: look(shell, task.task_id) for name, task in tasks.items()}
    db = sqlite3.connect(os.path.join(HOME, "index.sqlite"))
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    return {"order": order, "tasks": seen}


def look(shell: Shell, task_id: str) -> dict[str, Any]:
    """What must always be read off a task; not how a sentence about it is worded."""
    task = shell.show(task_id)
    facts = {name: value for name, value in fields(task).items() if name not in ("error", "category", "output_file")}
    kept: dict[str, list[tuple[int, str]]] = {"stdout": [], "stderr": []}
    for piece in shell.follow(task_id):
        kept[piece.stream].append((piece.start, piece.data.decode()))
    seen = {"task": facts, "kept": kept, "lines": shell.reader.line_counts(task)}
    return cast(dict[str, Any], json.loads(json.dumps(seen)))


def _keep(golden: dict[str, object]) -> None:
    target = HERE / f"format-{FORMAT}"
    shutil.rmtree(target, ignore_errors=True)
    pipes = shutil.ignore_patterns("bell.*", "stdin", "index.sqlite-*")
    shutil.copytree(HOME, target / "state", ignore=pipes)
    (target / "state" / "staging").rmdir()
    for path in target.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    (target / "golden.json").write_text(json.dumps(golden, indent=1, sort_keys=True) + "\n")
    shutil.rmtree(os.path.dirname(HOME))


if __name__ == "__main__":
    main()
