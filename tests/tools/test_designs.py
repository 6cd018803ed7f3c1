"""Each profile against its design: what is called, and what the reply must say.

The scenarios are in `tests/tools/designs`, written from the designs and not recorded from the program, so that a reply
that drifts away from its design fails here even if the golden texts drift with it.
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from outlast.tools import Toolbox
from tests.agent_tasks import settings
from tests.conftest import end_all
from tests.tools.scenarios import TELLER

DESIGNS = sorted((Path(__file__).parent / "designs").glob("*.toml"))
CASES = [(path.stem, case) for path in DESIGNS for case in tomllib.loads(path.read_text())["case"]]


@pytest.fixture
def place(home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    settings(home, teller=TELLER)
    (tmp_path / "app").mkdir()
    return tmp_path


@pytest.mark.parametrize(("profile", "case"), CASES, ids=[f"{name}: {case['says']}" for name, case in CASES])
def test_a_design(home: str, place: Path, profile: str, case: dict[str, Any]) -> None:
    with Toolbox.open(home=home, session="s", profile=profile, consent=True, cwd=place / "app") as box:
        ids: list[str] = []
        try:
            for number, step in enumerate(case["step"], 1):
                _play(box, step, ids, f"{case['says']}, step {number}")
        finally:
            end_all(box.shell)


def _play(box: Toolbox, step: dict[str, Any], ids: list[str], where: str) -> None:
    given = {key: _filled(value, ids) for key, value in step.get("give", {}).items()}
    if "creates" in step:  # not by a command, whose reply might already tell of an end
        Path("app", step["creates"]).touch()
    if after := step.get("after"):
        task_id = ids[step.get("of", len(ids)) - 1]
        box.shell.wait(task_id, timeout=30, until=None if after == "end" else after)
    reply = box.call(step["call"], given)
    for _ in range(step.get("times", 1) - 1):
        reply = box.call(step["call"], given)
    if reply.data.get("task_id") and reply.data["task_id"] not in ids:
        ids.append(reply.data["task_id"])
    assert reply.error == step.get("error", False), f"{where}: {reply.text}"
    if "user" in step:
        assert re.search(step["user"], reply.user), f"{where}: {reply.user}"
    for pattern in step.get("has", ()):
        assert re.search(_filled(pattern, ids), reply.text), f"{where}: {pattern!r} is not in\n{reply.text[:3000]}"
    for pattern in step.get("lacks", ()):
        assert not re.search(_filled(pattern, ids), reply.text), f"{where}: {pattern!r} is in\n{reply.text[:3000]}"
    _check_json(step, reply.text, ids, where)


def _check_json(step: dict[str, Any], text: str, ids: list[str], where: str) -> None:
    if not any(key in step for key in ("keys", "json", "count")):
        return
    value = json.loads(text)
    if "count" in step:
        assert len(value) == step["count"], f"{where}: {value}"
    if "keys" in step:
        one = value[0] if isinstance(value, list) else value
        assert [key for key in one if key != "notices"] == step["keys"], f"{where}: {one}"
    for key, wanted in step.get("json", {}).items():
        found = value[0][key] if isinstance(value, list) else value[key]
        if isinstance(wanted, str) and wanted.startswith("~"):
            assert re.search(_filled(wanted[1:], ids), str(found)), f"{where}: {key} is {found!r}"
        else:
            assert found == _filled(wanted, ids), f"{where}: {key} is {found!r}"


def _filled(value: Any, ids: list[str]) -> Any:
    """`<1>` is the id of the first task of this case."""
    if isinstance(value, str):
        return re.sub(r"<(\d+)>", lambda found: ids[int(found[1]) - 1], value)
    return value
