"""Judge the same lines with two versions of the source, and list every verdict that differs.

python -m tests.policy.compare OLD_SRC [--new SRC] [--mutated COUNT] [--seed SEED] [--reasons]

OLD_SRC is the `src` directory of another checkout. Each version runs in a process of its own and is asked by
`Shell.check`, so both may be structured as they like. Every list of lines beside this file is checked under every ready
policy, the lines of a corpus also under the rules that stand with them, and the everyday lines under their own policy.
Mutated lines are checked under two ready policies each and under the rules of the fuzzer, without asking bash itself:
one process for each line would take most of the time, and a text that is the same is the same for bash.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
READY = ("allowlist", "programs", "banned", "guarded", "ask", "workspace")
_LISTS = ("corpus.jsonl", "own.jsonl", "everyday.jsonl", "everyday.txt", "bypasses.jsonl", "bypass_shell.jsonl")
Case = tuple[str, str, bool]  # the policy, the line, and whether bash is asked


def _lines(name: str) -> Iterator[dict[str, object]]:
    for text in (HERE / name).read_text().splitlines():
        yield json.loads(text) if name.endswith(".jsonl") else {"line": text}


def written(policy: object) -> str:
    """A policy as the text of a policy file."""
    assert isinstance(policy, dict)
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in sorted(policy.items()))


def listed_cases() -> Iterator[Case]:
    everyday = (HERE / "everyday.toml").read_text()
    for name in _LISTS:
        for one in _lines(name):
            line = str(one.get("command", one.get("line")))
            own = one.get("policy")
            if isinstance(own, dict):
                yield written(own), line, True
            if name.startswith("everyday"):
                yield everyday, line, True
            for policy in (*READY, written(_fuzz_rules())):
                yield policy, line, True


def _fuzz_rules() -> dict[str, object]:
    from tests.policy.fuzz import RULES

    return {"allow": list(RULES.allow), "deny": list(RULES.deny)}


def mutated_cases(count: int, seed: int) -> Iterator[Case]:
    from tests.policy.mutations import Mutator

    mutator, rules = Mutator(seed), written(_fuzz_rules())
    for number in range(count):
        line = mutator.line().encode("utf-8", "replace").decode().strip() or "true"
        for policy in (rules, "guarded", ("allowlist", "programs", "banned")[number % 3]):
            yield policy, line, False


# --- one version -------------------------------------------------------------------------


def answer(cases: str) -> None:
    """Judge the cases of a file, one answer for each line on the standard output."""
    from outlast import Shell  # the version that PYTHONPATH names

    place = os.path.dirname(cases)
    shells: dict[str, Shell] = {}
    spawn, wait = os.posix_spawn, os.waitpid
    with open(cases) as file:
        for text in file:
            policy, line, asks_bash = json.loads(text)
            if policy not in shells:
                name = policy
                if "\n" in policy:
                    name = f"{place}/{os.getpid()}-{len(shells)}.toml"
                    Path(name).write_text(policy)
                shells[policy] = Shell.open(home=f"{place}/state", policy=name, cwd=f"{place}/project")
            if asks_bash:
                os.posix_spawn, os.waitpid = spawn, wait
            else:
                os.posix_spawn, os.waitpid = (lambda *_, **__: 1), (lambda pid, _: (pid, 0))
            decision = shells[policy].check(line)
            parts = [[part.verdict, part.command, part.why] for part in decision.parts]
            print(json.dumps([decision.verdict, parts]))


def _started(src: str, cases: Path, out: Path) -> subprocess.Popen[bytes]:
    env = {**os.environ, "PYTHONPATH": os.path.abspath(src), "HOME": "/home/me"}
    command = [sys.executable, __file__, "--answer", str(cases)]
    with out.open("wb") as file:
        return subprocess.Popen(command, env=env, stdout=file, cwd=cases.parent / "project")


def compare(old: str, new: str, cases: list[Case]) -> list[tuple[Case, object, object]]:
    """The cases on which the versions differ, with both answers."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        (place / "project").mkdir()
        (place / "cases").write_text("".join(json.dumps(case) + "\n" for case in cases))
        outs = [place / "old", place / "new"]
        workers = [_started(src, place / "cases", out) for src, out in zip((old, new), outs, strict=True)]
        if sum(worker.wait() for worker in workers):
            sys.exit("one version did not answer")
        answers = [[json.loads(line) for line in out.read_text().splitlines()] for out in outs]
    return [(case, a, b) for case, a, b in zip(cases, *answers, strict=True) if a != b]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("old", nargs="?", default="")
    parser.add_argument("--new", default=str(HERE.parents[1] / "src"))
    parser.add_argument("--mutated", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--reasons", action="store_true", help="list also what is checked alike for another reason")
    parser.add_argument("--answer", default="", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.answer:
        answer(asked.answer)
        return 0
    cases = [*mutated_cases(asked.mutated, asked.seed)] if asked.mutated else [*listed_cases()]
    verdicts: Counter[str] = Counter()
    reasons = 0
    for (policy, line, _), old, new in compare(asked.old, asked.new, cases):
        assert isinstance(old, list)
        assert isinstance(new, list)
        changed = f"{old[0]} -> {new[0]}"
        if old[0] != new[0]:
            verdicts[changed] += 1
        else:
            reasons += 1
        if old[0] != new[0] or asked.reasons:
            why = " / ".join(
                dict.fromkeys(part[2] for part in [*old[1], *new[1]] if part not in old[1] or part not in new[1])
            )
            print(f"{changed}  {policy.partition(chr(10))[0][:40]}  {line!r}  ({why})")
    print(f"{len(cases)} judgements, {sum(verdicts.values())} verdicts changed {dict(verdicts)}, {reasons} reasons")
    return 1 if verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
