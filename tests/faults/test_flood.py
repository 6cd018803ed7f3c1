"""Fault 12: floods. Disk and memory stay bounded, time stays linear, and what is kept is exact.

The short form prints tens of megabytes, the full one 10 GB and a line of 100 MB.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from outlast import Shell
from outlast.output.head_tail import BUDGET
from outlast.types import Task
from tests.conftest import eventually
from tests.faults.support import closed, dice, python
from tests.test_output import check_bounded, kept, on_disk, pieces, with_settings

MB = 1_000_000
HOST_MEMORY_BYTES = 100 << 20
SECONDS_A_MB = 3.0  # of CPU for any kind of read of any bytes; most take a hundredth of it

# What floods are made of; each is printed again and again.
FLOODS = {
    "lines": b"".join(b"%d bottles of beer on the wall\n" % n for n in range(1000)),
    "one line": b"x" * 4096,
    "NUL": b"\0" * 4096,
    "invalid UTF-8": bytes(range(128, 256)) * 8 + b"\n",
    "half characters": "é日😀".encode() * 100 + "😀".encode()[:2],
    "progress bars": b"".join(b"\r%3d%% [%-50s]" % (n, b"#" * (n // 2)) for n in range(100)),
    "colours": b"\x1b[1;31mred\x1b[0m and \x1b[32mgreen\x1b[0m\n" * 50,
    "ESC ]": b"\x1b]" * 2048,
    "titles": b"\x1b]0;" + b"t" * 65536,
    "carriage returns": b"\r" * 1000 + b"\b" * 1000,
}

READ = """
import json, time
from outlast import Shell
home, task_id, size = sys.argv[1:]

def memory():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024

asked = {
    "all": {}, "tail": {"tail": 50}, "lines": {"lines": (10, 20)}, "new": {"new": True},
    "filter": {"filter": "(x+x+)+y|(a|a|b)*c$|bottles"}, "exclude": {"exclude": ".*.*.*=.*"},
}
told = {}
with Shell.open(home) as shell:
    for name, what in asked.items():
        began = time.process_time()
        result = shell.read(task_id, **what)
        told[name] = {
            "chars": len(result.output), "end": result.output[-80:], "cursor": result.cursor,
            "dropped": result.dropped_bytes, "cpu": time.process_time() - began,
        }
    for piece in shell.follow(task_id):
        pass
    told["followed"] = piece.next
print(json.dumps({**told, "memory": memory()}))
"""

RUN = """
import json
from outlast import Shell
home, command = sys.argv[1:]

def memory():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024

seen = {"bytes": 0, "dropped": 0}
def take(piece):
    seen["bytes"] += len(piece.data)
    seen["dropped"] += piece.dropped
with Shell.open(home) as shell:
    result = shell.run(command, on_output=take)
print(json.dumps({**seen, "code": result.exit_code, "chars": len(result.output), "memory": memory()}))
"""


def elsewhere(code: str, *arguments: str, timeout: float = 100) -> dict[str, Any]:
    """What a program tells that runs in a process of its own."""
    ran = subprocess.run(python(code, *arguments), capture_output=True, text=True, timeout=timeout)
    assert ran.returncode == 0, ran.stderr
    told: dict[str, Any] = json.loads(ran.stdout)
    return told


def printing(unit: bytes, size: int, place: Path) -> str:
    """A command that prints `unit` over and over, `size` bytes in all, then a last line, and ends with 3."""
    (place / "unit").write_bytes(unit * (16 * MB // len(unit)))
    return f"while cat {place}/unit; do :; done 2>/dev/null | head -c {size}; printf '\\nthe last line\\n'; exit 3"


def printed(unit: bytes, size: int) -> bytes:
    return (unit * (size // len(unit) + 1))[:size] + b"\nthe last line\n"


def flood(shell: Shell, home: str, command: str, limit: int) -> Task:
    """Run it to its end while the disk is watched."""
    sizes = [0]
    over = threading.Event()
    task = shell.start(command)

    def watch() -> None:
        while not over.is_set():
            sizes.append(on_disk(task))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        eventually(lambda: shell.executor.has_reached(task.task_id, "ended"), patience=3600)
    finally:
        over.set()
        watcher.join(10)
    assert max(sizes) <= limit, "more than the bound, if only for a moment"
    assert closed(shell, task).exit_code == 3
    return task


def check_reads(told: dict[str, Any], total: int, dropped: int, read_mb: float) -> None:
    """What a reader in another process was told about a flood."""
    assert told["memory"] < HOST_MEMORY_BYTES
    assert told["followed"] == total
    for name in ("all", "new", "exclude"):
        assert told[name]["dropped"] == dropped
        assert told[name]["end"].endswith("the last line\n")
    assert told["tail"]["end"].endswith("the last line\n")
    for name in ("all", "tail", "lines", "new", "filter", "exclude"):
        assert told[name]["chars"] <= BUDGET
        assert told[name]["cursor"] == str(total)
        assert told[name]["cpu"] < SECONDS_A_MB * max(1, read_mb), name


@pytest.mark.parametrize("kind", FLOODS)
def test_a_flood(home: str, tmp_path: Path, kind: str) -> None:
    limit, size = 1 * MB, 20 * MB
    with with_settings(home, output_limit_bytes=limit) as shell:
        task = flood(shell, home, printing(FLOODS[kind], size, tmp_path), limit)
        whole = printed(FLOODS[kind], size)
        check_bounded(shell, task, whole, limit)
        told = elsewhere(READ, home, task.task_id, str(size))
        check_reads(told, len(whole), len(whole) - len(kept(shell, task)), limit / MB)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", FLOODS)
def test_a_flood_of_10_gb(home: str, tmp_path: Path, kind: str) -> None:
    limit, size = 100 * MB, 10_000 * MB
    with Shell.open(home) as shell:
        task = flood(shell, home, printing(FLOODS[kind], size, tmp_path), limit)
        found = pieces(shell, task)
        have = sum(len(piece.data) for piece in found)
        assert have + sum(piece.dropped for piece in found) == size + len(b"\nthe last line\n")
        unit = FLOODS[kind]
        for piece in found:
            turn = piece.start % len(unit)
            whole = (unit * (len(piece.data) // len(unit) + 2))[turn : turn + len(piece.data)]
            assert piece.data == whole or piece.data.endswith(b"\nthe last line\n")
        told = elsewhere(READ, home, task.task_id, str(size), timeout=3600)
        check_reads(told, size + len(b"\nthe last line\n"), size + len(b"\nthe last line\n") - have, limit / MB)


def check_one_line(shell: Shell, home: str, tmp_path: Path, size: int) -> None:
    """A line longer than anything that is held of it: begun, found, shown at both ends."""
    (tmp_path / "program").write_text(
        f"import sys; out = sys.stdout; out.write('needle'); out.write('x' * {size}); out.write('end\\nlast\\n')"
    )
    task = shell.run(f"python3 {tmp_path}/program")
    assert task.exit_code == 0
    assert task.truncated
    assert len(task.output) <= BUDGET
    assert task.output.startswith("needlexxx")
    assert task.output.endswith("xxxend\nlast\n")
    assert shell.read(task.task_id, filter="needle", tail=2).output.endswith("xxxend\n")
    assert shell.read(task.task_id, filter="last").output == "last\n"
    assert shell.read(task.task_id, tail=1).output == "last\n"
    assert shell.reader.line_counts(task) == (2, 0)
    told = elsewhere(READ, home, task.task_id, str(size), timeout=600)
    assert told["memory"] < HOST_MEMORY_BYTES
    assert told["all"]["cpu"] < SECONDS_A_MB * size / MB


def test_a_line_of_20_mb(shell: Shell, home: str, tmp_path: Path) -> None:
    check_one_line(shell, home, tmp_path, 20 * MB)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_line_of_100_mb(home: str, tmp_path: Path) -> None:
    with with_settings(home, output_limit_bytes=200 * MB) as shell:
        check_one_line(shell, home, tmp_path, 100 * MB)


@pytest.mark.parametrize(
    "size", [60 * MB, pytest.param(10_000 * MB, marks=[pytest.mark.soak, pytest.mark.timeout(7200)])]
)
def test_a_host_that_follows_a_flood_stays_small(home: str, tmp_path: Path, size: int) -> None:
    with with_settings(home, output_limit_bytes=4 * MB):
        told = elsewhere(RUN, home, printing(FLOODS["lines"], size, tmp_path), timeout=3600)
    assert told["code"] == 3
    assert told["bytes"] + told["dropped"] == size + len(b"\nthe last line\n")
    assert told["memory"] < HOST_MEMORY_BYTES


@pytest.mark.parametrize(
    "pattern", ["(x+x+)+y", "(a|a)*b", "^(([a-z])+.)+[A-Z]([a-z])+$", ".*.*.*=.*", "(x{1,50}){1,15}y"]
)
def test_no_pattern_takes_more_than_linear_time(shell: Shell, home: str, tmp_path: Path, pattern: str) -> None:
    """Two megabytes at which other engines would still be searching tomorrow."""
    (tmp_path / "unit").write_bytes((b"x" * 5000 + b"\n" + b"a" * 5000 + b"!\n") * 100 + b"x" * MB + b"\n")
    task = shell.run(f"cat {tmp_path}/unit")
    code = (
        "import time; from outlast import Shell\n"
        "with Shell.open(sys.argv[1]) as shell:\n"
        "    began = time.process_time()\n"
        "    hidden = shell.read(sys.argv[2], filter=sys.argv[3]).hidden_lines\n"
        '    print(\'{"hidden": %d, "seconds": %f}\' % (hidden, time.process_time() - began))'
    )
    told = elsewhere(code, home, task.task_id, pattern)
    assert told["hidden"] == 201
    assert told["seconds"] < 10


def test_what_is_new_of_a_flood_adds_up(shell: Shell, tmp_path: Path) -> None:
    """Characters of all sizes in odd pieces, read while they are printed: each once, none broken."""
    chance = dice()
    text = "".join(chance.choice("aé日😀\n") for _ in range(200_000))
    (tmp_path / "program").write_text(
        "import os, sys\n"
        "data, at = sys.stdin.buffer.read(), 0\n"
        "while at < len(data):\n"
        "    at += os.write(1, data[at : at + 7 + at % 1000])"
    )
    task = shell.start(f"python3 {tmp_path}/program", stdin=text)
    seen = []
    while True:
        over = shell.executor.has_reached(task.task_id, "closed")
        seen.append(shell.read(task.task_id, new=True, max_chars=10 * MB).output)
        if over:
            break
    assert len(seen) > 2, "it was over before it was read"
    assert "".join(seen) == text


@pytest.mark.parametrize(
    ("flood_of", "after"),
    [
        (b"\x1b]" * 32768, b"\nafter\n"),
        (b"\x1b]" + b"x" * 65536, b"after\n"),
        (b"\x1b[" + b"1;" * 32768, b"mafter\n"),
        (b"\x1bP" * 32768, b"\nafter\n"),
        (b"\x9b" * 65536, b"after\n"),
    ],
    ids=["ESC ] again and again", "a title without an end", "a colour without an end", "ESC P", "invalid CSI"],
)
def test_64_kb_of_an_escape_sequence_hide_nothing(shell: Shell, tmp_path: Path, flood_of: bytes, after: bytes) -> None:
    (tmp_path / "unit").write_bytes(b"before\n" + flood_of + after)
    task = shell.run(f"cat {tmp_path}/unit")
    assert task.output.startswith("before\n")
    assert task.output.endswith("after\n")
    assert "\x1b" not in task.output
    assert os.stat(task.output_file).st_size == len(b"before\n" + flood_of + after)
