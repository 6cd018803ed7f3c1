"""The benchmarks run and write what they promise; how fast anything is, is no test's business."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parent.parent


def bench(*words: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    return subprocess.run(
        [sys.executable, "-m", "bench", *words], cwd=ROOT, env=env, capture_output=True, text=True, timeout=100
    )


def test_a_quick_run_without_peers_writes_table_figures_page_and_picture(tmp_path: Path):
    into = tmp_path / "into"
    ran = bench("--quick", "--peer", "", "--into", str(into), tmp_path=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "background start until durable" in ran.stdout

    found = json.loads((into / "results.json").read_text())
    rows = {row["key"]: row for row in found["rows"]}
    assert {
        "foreground",
        "start",
        "wake-up",
        "new-lines",
        "new-lines-much",
        "first-page",
        "tree",
        "typed-ps",
    } <= rows.keys()
    for row in rows.values():
        assert "trouble" not in row["contestants"]["outlast"], row
    assert rows["start"]["contestants"]["outlast"]["times"] == 3
    assert rows["start"]["contestants"]["raw"]["ms"] > 0

    page = (into / "bench.md").read_text()
    assert "## What misses its goal" in page
    assert all(row["what"] in page for row in rows.values())
    picture = ElementTree.parse(into / "bench.svg").getroot()
    assert picture.tag.endswith("svg")
    assert "outlast" in [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert [entry for entry in os.listdir(tmp_path) if entry.startswith("outlast-bench-")] == []


def test_an_unknown_row_is_named_with_those_that_exist(tmp_path: Path):
    ran = bench("--only", "nonsense", tmp_path=tmp_path)
    assert ran.returncode == 1
    assert "foreground" in ran.stderr
