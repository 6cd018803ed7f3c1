"""The catalogue of programs: each entry makes sense; what of everyday work is asked about; what may be written."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from outlast.policy.commands import catalog, sensitive_files
from outlast.policy.evaluator import evaluate
from outlast.policy.layers import evaluate_layers
from outlast.policy.loader import combine_policies, load
from outlast.policy.rules import Overrides, Rules
from outlast.settings import Settings

HERE = Path(__file__).parent
ENTRIES = tomllib.loads(Path(catalog.__file__).with_name("commands.toml").read_text())
EVERYDAY = (HERE / "everyday.txt").read_text().splitlines()
KINDS = {"read", "target", "output", "run", "package", "remote", "command", "none"}
KEYS = {"also", "options", "common", "flags", "values", "operands", "match", "verbs", "behind", "stops", "dash", "free"}
_OPTION = re.compile(r"-(?:[^\s:>!-](?:::|[:>!])?)+|[A-Za-z0-9][\w.-]*(?:=\?|[=>!])?|\*")


@pytest.mark.parametrize("key", ENTRIES)
def test_each_entry_makes_sense(key: str) -> None:
    said = ENTRIES[key]
    assert said.keys() <= KEYS
    program, _, sub = key.rpartition(" ")
    assert not sub or not program or program in ENTRIES or program == "git", "its program has no entry"
    assert next(iter(said)) == "also" or "also" not in said, "also must stand first"
    for word in f"{said.get('options', '')} {said.get('common', '')}".split():
        assert _OPTION.fullmatch(word), word
    assert set(said.get("operands", "read").split()) <= KINDS
    entry = catalog.find(key)
    assert entry is not None
    assert entry.key == key
    for name in entry.values:
        assert {f"-{name}", f"--{name}"} & entry.options.keys(), f"{name} has values and is no option"


def test_no_name_has_two_entries() -> None:
    names = [
        f"{key.rpartition(' ')[0]} {name}".strip()
        for key, said in ENTRIES.items()
        for name in (key.rpartition(" ")[2], *said.get("also", "").split())
    ]
    assert sorted(names) == sorted(set(names))
    assert set(names) == set(catalog.all_names())


# --- everyday work -----------------------------------------------------------------------


def asked(policy: str) -> list[str]:
    place = Overrides(directory="/home/me/project")
    return [
        line for line in EVERYDAY if evaluate_layers(line, load(policy, Settings()), place).decision.verdict == "ask"
    ]


def test_everyday_work_is_hardly_asked_about() -> None:
    assert len(EVERYDAY) >= 150
    guarded, listed = asked("guarded"), asked(str(HERE / "everyday.toml"))
    print(f"of {len(EVERYDAY)} everyday commands guarded asks about {guarded}, a list of 74 patterns about {listed}")
    assert len(guarded) <= 3
    assert len(tomllib.loads((HERE / "everyday.toml").read_text())["allow"]) == 74
    assert len(listed) <= 8


@pytest.mark.parametrize(
    "line",
    ["make -j$(nproc)", 'make -j"$(nproc)" all', "export NODE_ENV=test && npm test", "VERSION=$(git describe --tags)"],
)
def test_what_only_looks_unknown_is_understood(line: str) -> None:
    rules = Rules(allow=("make *", "npm *", "git *"))
    assert evaluate(line, rules).verdict == "allow", evaluate(line, rules).parts


@pytest.mark.parametrize("line", ["docker logs nc", "uv add httpie", "conda install curl", "docker compose logs nc"])
def test_a_name_that_is_no_program_is_not_banned(line: str) -> None:
    assert evaluate_layers(line, load("banned", Settings())).decision.verdict == "allow"
    for runs in ("docker exec c curl x", "uv run curl x", "conda run curl x", "docker compose exec web nc x"):
        assert evaluate_layers(runs, load("banned", Settings())).decision.verdict == "deny"


def test_a_rule_for_an_unknown_program_says_that_it_trusts_it() -> None:
    rules = Rules(allow=("frobnicate *", "ls *", "git status"))
    (part,) = evaluate("frobnicate --exec x", rules).parts
    assert part.verdict == "allow"
    assert "trusts frobnicate with any arguments" in part.why
    assert [part.why for part in evaluate("ls -l; git status", rules).parts] == [
        "allowed by ls *",
        "allowed by git status",
    ]


# --- files that are written --------------------------------------------------------------


WRITE = Rules(
    allow=("echo *", "cp *", "sort *", "tee *", "cd *", "make *"), write=("src/**", "*.log", "Makefile.inc", "/tmp/x/*")
)


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ("echo x > src/a.py", "allow"),
        ("echo x >> src/deep/er/a.py", "allow"),
        ("echo x > build.log", "allow"),
        ("echo x > logs/build.log", "allow"),
        ("make &> build.log", "allow"),
        ("sort -o src/out src/in", "allow"),
        ("cp x src/a.py", "allow"),
        ("tee src/a.sh < x", "allow"),
        ("echo x > /tmp/x/y", "allow"),
        ("echo x > Makefile.inc", "allow"),
        ("echo x > a.py", "ask"),
        ("echo x > src/../a.py", "ask"),
        ("echo x > ../src/a.py", "ask"),
        ("echo x > /src/a.py", "ask"),
        ("echo x > /tmp/y", "ask"),
        ("echo x > /tmp/x/../y", "ask"),
        ("echo x > ~/src/a.py", "ask"),
        ("echo x > src/Makefile", "ask"),
        ("echo x > src/conftest.py", "ask"),
        ("echo x > src/.git/hooks/pre-commit", "ask"),
        ("echo x > src/.bashrc", "ask"),
        ("echo x > src/$X", "ask"),
        ("echo x > src/*", "ask"),
        ("cd /etc && echo x > src/a.py", "ask"),
        ("echo x <> src/a.py", "ask"),
        ("cp x a.py", "ask"),
    ],
)
def test_a_write_rule_allows_files_below_the_project(line: str, verdict: str) -> None:
    assert evaluate(line, WRITE).verdict == verdict, evaluate(line, WRITE).parts


@pytest.mark.parametrize(
    "path",
    [
        *("Makefile", "sub/GNUmakefile", "x.mk", ".git/hooks/pre-commit", ".git/config", "package.json", "conftest.py"),
        *("setup.py", "CMakeLists.txt", ".envrc", "~/.bashrc", ".profile", ".zshenv", ".ssh/authorized_keys", "HEAD"),
        *("vite.config.ts", "Dockerfile", "node_modules/x/y", "a.py", "a.sh", "/etc/x"),
    ],
)
def test_what_is_run_later_is_asked_about(path: str) -> None:
    assert sensitive_files.runs_later(path)
    assert evaluate(f"tee {path} < x", Rules(allow=("tee *",))).verdict == "ask"


def test_ordinary_files_may_be_written_by_programs_that_are_for_that() -> None:
    rules = Rules(allow=("cp *", "mv *", "tee *"))
    for line in ("cp a b", "mv a.txt docs/a.txt", "cp src/a.py src/b.py", "echo x | tee log", "tee /dev/null"):
        assert evaluate(line, Rules(allow=(*rules.allow, "echo *"))).verdict == "allow", line


@pytest.mark.parametrize("policy", ["guarded", "banned", "programs", "allowlist", "ask"])
def test_no_policy_lets_its_own_rules_be_written(policy: str, tmp_path: Path) -> None:
    whole = combine_policies(str(tmp_path / "state"), Settings(), policy)
    for line in (
        f"echo x > {tmp_path}/state/policy.toml",
        "echo x >> $OUTLAST_HOME/config.toml",
        f"cp x {tmp_path}/state//policy.toml",
        f"cd {tmp_path}/state",
    ):
        assert evaluate_layers(line, whole).decision.verdict == "deny", line
    assert evaluate_layers(f"cat {tmp_path}/state/policy.toml", whole).decision.verdict != "deny"
