"""The checked lines through the command line: `outlast check` says of each what the evaluator says."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from outlast.cli import main
from tests.policy.lines import read_lines

CORPUS = read_lines("corpus.jsonl")


@pytest.fixture
def check(home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """`outlast check -`, in this process: each line would else cost the start of another."""
    monkeypatch.setenv("OUTLAST_HOME", home)
    monkeypatch.chdir(tmp_path)

    def checked(line: dict[str, Any]) -> dict[str, Any]:
        policy = tmp_path / "rules.toml"
        policy.write_text("".join(f"{name} = {json.dumps(line['policy'][name])}\n" for name in ("allow", "deny")))
        monkeypatch.setattr(
            sys, "stdin", io.TextIOWrapper(io.BytesIO(line["command"].encode("utf-8", "surrogatepass")))
        )
        code = main.main(["check", "-", "--json", "--policy", str(policy)])
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert code == {"allow": 0, "deny": 1, "ask": 3}[found["verdict"]]
        return found

    return checked


def test_the_corpus(check: Any) -> None:
    verdicts = {line["id"]: check(line)["verdict"] for line in CORPUS}
    right = {line["id"]: [line["expected"], *line.get("also_ok", [])] for line in CORPUS}
    assert {name: verdict for name, verdict in verdicts.items() if verdict not in right[name]} == {}


@pytest.mark.parametrize("command", ["ls\0", "ls " + "x" * 70_000])
def test_what_could_not_even_run_is_asked_about(check: Any, command: str) -> None:
    found = check({"command": command, "policy": {"allow": ["ls *"], "deny": []}})
    assert found["verdict"] == "ask"
    assert found["reasons"][0]["why"]
