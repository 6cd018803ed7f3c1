"""What Slurm and Ray say is read line by line: whatever stands in it, only what is ours counts."""

from __future__ import annotations

import base64
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast import Shell
from outlast.errors import BadInput, StartFailed
from outlast.executors.ray.executor import RayExecutor, _parse_amount
from outlast.executors.slurm.client import Job, explain, parse_job
from outlast.storage import mirror
from tests.executors.conftest import write_settings

WORDS = st.text(st.characters(blacklist_characters="|\n\r", blacklist_categories=("C", "Z")), min_size=1)


@given(st.integers(1, 999).map(str), st.tuples(WORDS, WORDS, WORDS, WORDS, WORDS))
def test_a_line_of_squeue(number: str, words: tuple[str, str, str, str, str]) -> None:
    raw, name, *rest = words
    assert parse_job("|".join((number, *words))) == Job(number, *words)
    assert parse_job("|".join((f"{number}_7", *words))) == Job(f"{number}_7", raw, f"{name}_7", *rest)


@given(st.text())
def test_any_line_of_squeue_is_a_job_or_none(line: str) -> None:
    job = parse_job(line)
    assert (job is not None) == (line.count("|") == 5)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (
            "sbatch: error: invalid partition\nsbatch: error: Batch job submission failed: No such thing\n",
            "No such thing",
        ),
        ("srun: error: Unable to confirm allocation", "Unable to confirm allocation"),
        ("odd", "odd"),
        ("", ""),
    ],
)
def test_what_slurm_complains_about(said: str, why: str) -> None:
    assert explain(said) == why


@pytest.mark.parametrize(
    ("name", "value", "amount"), [("memory", "2G", 2 << 30), ("memory", "5", 5), ("gpus", "0.5", 0.5)]
)
def test_amounts(name: str, value: str, amount: float) -> None:
    assert _parse_amount(name, value) == amount


@pytest.mark.parametrize("value", ["", "many", "-1", "nan", "inf", "G", "1e999"])
def test_no_amounts(value: str) -> None:
    with pytest.raises(BadInput):
        _parse_amount("memory", value)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A function that takes over a log and returns the output that was in it."""
    with Shell.open(home=str(tmp_path_factory.mktemp("ray") / "state")) as shell:
        shell.run("true")
        table = {"address": "http://127.0.0.1:1"}
        made = RayExecutor("rays", table, shell.executor.registry, shell.context.settings)
        directory = tmp_path_factory.mktemp("home") / "tasks" / "bash-1"
        directory.mkdir(parents=True)
        mirror.create(str(directory))
        made.near = lambda task_id: str(directory)  # type: ignore[method-assign]

        def take(pieces: list[str]) -> bytes:
            (directory / "output").write_bytes(b"")
            for end in range(1, len(pieces) + 1):
                made._take("bash-1", "".join(pieces[:end]), is_over=False)
            made._read.clear()
            return (directory / "output").read_bytes()

        yield take


NOISE = st.text().filter(lambda text: not text.startswith("outlast ")).map(lambda text: text.replace("\n", " ") + "\n")


@given(st.lists(st.one_of(st.binary(max_size=40), NOISE), max_size=20), st.lists(st.integers(0, 500), max_size=5))
def test_output_is_exact_among_the_lines_of_ray(log: Any, parts: list[bytes | str], cuts: list[int]) -> None:
    """It is read in pieces that end anywhere, and each piece begins with all that was there before."""
    text, output = "", b""
    for part in parts:
        if isinstance(part, bytes):
            text += f"outlast piece output {len(output)} {base64.b64encode(part).decode()}\n"
            output += part
        else:
            text += part
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[start:end] for start, end in pairwise(places)]
    assert log(pieces) == output


@given(st.text())
def test_no_line_of_ray_breaks_the_reader(log: Any, text: str) -> None:
    whole = f"outlast piece output 0 {base64.b64encode(b'whole').decode()}\n"
    assert log([f"outlast piece {text}\noutlast file {text}\noutlast record {text}\n{whole}"]) == b"whole"


def test_a_cluster_that_is_not_there_refuses(home: str) -> None:
    write_settings(home, '[executors.rays]\nkind = "ray"\naddress = "http://127.0.0.1:1"\n')
    with Shell.open(home=home) as shell:
        with pytest.raises(StartFailed, match=r"Ray at http://127\.0\.0\.1:1 does not answer: .*Connection refused"):
            shell.run("true", executor="rays")
        assert shell.list() == []
        ((name, _, error),) = shell.executor.examine()
        assert name == "rays"
        assert error is not None


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ('kind = "ray"', "needs an address"),
        ('kind = "ray"\naddress = "localhost"', "needs an address"),
        ('kind = "slurm"\nshared_dir = "here"', "must be an absolute path"),
        ('kind = "slurm"\npartitoin = "p"', "has no key 'partitoin'"),
        ('kind = "slurm"\ncpus = "two"', "must be a whole number"),
    ],
)
def test_wrong_settings_say_what_is_wrong(home: str, table: str, why: str) -> None:
    write_settings(home, f"[executors.c]\n{table}\n")
    with Shell.open(home=home) as shell, pytest.raises(BadInput, match=why):
        shell.run("true", executor="c")


def test_without_slurm_on_this_machine(home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_settings(home, '[executors.c]\nkind = "slurm"\n')
    monkeypatch.setenv("PATH", str(tmp_path))
    with Shell.open(home=home) as shell:
        with pytest.raises(BadInput, match="There is no sbatch on this machine"):
            shell.run("true", executor="c", shell="/bin/sh")
        assert shell.list() == []
        assert json.dumps([str(error) for _, _, error in shell.executor.examine()])
