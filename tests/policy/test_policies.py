"""Which policy is in force, what its file may say, and that nothing but its user can widen it."""

from __future__ import annotations

import os
import re
import string
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlast import Policy, Shell
from outlast.cli.check import policy_in_force
from outlast.errors import BadInput, NeedsApproval, Refused
from outlast.policy import layers, loader, policy_file
from outlast.policy.approval import Layer
from outlast.policy.layers import evaluate_layers
from outlast.policy.loader import READY, combine_policies, load
from outlast.policy.policy_file import BadPolicy
from outlast.policy.rules import Rules
from outlast.settings import Settings
from outlast.shell.validation import build_request as request

BANNED = (
    "alias curl curlie wget axel aria2c nc ncat telnet ftp lynx w3m links http https httpie xh http-prompt "
    "chrome chromium firefox safari google-chrome"
)
LISTED = (
    "git mix elixir npm npx node yarn pnpm python python3 pip uv pytest cargo go make cmake ls cat head tail grep rg "
    "find wc sort uniq diff echo pwd date sleep true false mkdir cp mv touch"
)


def judged(line: str, policy: Policy) -> str:
    return evaluate_layers(line, policy).decision.verdict


def offered(line: str, policy: Policy) -> tuple[str, ...]:
    return layers.rules_for_always(request(line, session="s"), policy)


def ready(name: str) -> Policy:
    return load(name, Settings())


def written(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


# --- the ready ones ----------------------------------------------------------------------


def test_the_ready_policies_are_these() -> None:
    assert READY == ("workspace", "banned", "programs", "allowlist", "ask", "guarded", "yolo")


@pytest.mark.parametrize("program", BANNED.split())
def test_banned_denies_what_is_banned_however_it_is_called(program: str) -> None:
    for line in (f"{program} x", f"/usr/bin/{program} x", f"true; sudo {program} x", f"echo $({program} x)"):
        assert judged(line, ready("banned")) == "deny", line


@pytest.mark.parametrize(
    "line",
    [
        "ls -l",
        "rm x",
        "export A=1",
        "source venv/bin/activate",
        "make > log",
        "f() { ls; }",
        "A=1",
        "echo curl",
        "git clone x",
    ],
)
def test_banned_lets_the_rest_run_unasked(line: str) -> None:
    assert judged(line, ready("banned")) == "allow"


@pytest.mark.parametrize("program", LISTED.split())
def test_allowlist_allows_what_is_listed(program: str) -> None:
    assert judged(program, ready("allowlist")) == "allow" or program in ("python", "python3", "node", "elixir")


@pytest.mark.parametrize(
    "line", ["export A=1", "source x", "ls > file", "f() { ls; }", "rm x", "./ls", "cd /", "PATH=. ls"]
)
def test_allowlist_and_ask_ask_about_everything_else(line: str) -> None:
    assert judged(line, ready("allowlist")) == "ask"
    assert judged(line, ready("ask")) == "ask"


@pytest.mark.parametrize("shell", ["bash", "sh", "zsh", "dash", "ksh", "fish", "csh", "tcsh"])
def test_allowlist_denies_shells_also_behind_others(shell: str) -> None:
    for line in (
        f"{shell} -c ls",
        f"/bin/{shell} x.sh",
        f"env {shell} -c ls",
        f"echo x | xargs {shell}",
        f"sudo {shell}",
    ):
        assert judged(line, ready("allowlist")) == "deny", line


def test_the_list_is_a_setting() -> None:
    more = load("allowlist", Settings(allowed_programs="+ terraform"))
    only = load("allowlist", Settings(allowed_programs="terraform"))
    assert [judged("terraform plan", one) for one in (more, only)] == ["allow", "allow"]
    assert [judged("ls", one) for one in (more, only)] == ["allow", "ask"]


@pytest.mark.parametrize("line", ["true", "ls", ":", "[ -e x ]", "true && false"])
def test_ask_asks_about_everything(line: str) -> None:
    assert judged(line, ready("ask")) == "ask"


def test_yolo_has_nothing_to_judge_by() -> None:
    assert ready("yolo").layers == ()
    assert judged("rm -rf /", ready("yolo")) == "allow"


# --- files -------------------------------------------------------------------------------


def test_a_file_allows_denies_and_asks_about_the_rest(tmp_path: Path) -> None:
    policy = load(written(tmp_path / "p.toml", 'allow = ["git status *", "ls"]\ndeny = ["git push *"]\n'), Settings())
    lines = {"ls": "allow", "git status -s": "allow", "git push": "deny", "ls -l": "ask", "ls; git push": "deny"}
    assert {line: judged(line, policy) for line in lines} == lines


@pytest.mark.parametrize(("otherwise", "verdict"), [("allow", "allow"), ("ask", "ask"), ("deny", "deny")])
def test_what_no_rule_matches(tmp_path: Path, otherwise: str, verdict: str) -> None:
    policy = load(written(tmp_path / "p.toml", f'otherwise = "{otherwise}"\ndeny = ["rm *"]\n'), Settings())
    assert judged("ls", policy) == verdict
    assert judged("rm x", policy) == "deny"


def test_rules_as_tables_have_examples_of_their_own(tmp_path: Path) -> None:
    text = '[[rule]]\nallow = "npm run *"\nmatch = ["npm run dev"]\nnot_match = ["npm install", "npm runs"]\n'
    policy = load(written(tmp_path / "p.toml", text + '[[rule]]\ndeny = ["npm publish *"]\n'), Settings())
    assert [judged(line, policy) for line in ("npm run dev", "npm publish", "npm ci")] == ["allow", "deny", "ask"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('allow = ["ls *"]\nmatch = ["ls -l", "lsof"]', "match example 'lsof'"),
        ('allow = ["ls *"]\nnot_match = ["rm x", "ls -l"]', "not_match example 'ls -l'"),
        ('deny = ["rm *"]\nnot_match = ["sudo /bin/rm x"]', "not_match example 'sudo /bin/rm x'"),
        ('[[rule]]\nallow = "ls"\nmatch = ["ls -l"]\n[[rule]]\nallow = "ls -l"', "match example 'ls -l'"),
        ('alow = ["ls"]', "'alow'"),
        ('[[rule]]\nwhy = "x"', "'why'"),
        ("allow = [1]", "'allow'"),
        ('allow = [""]', "'allow'"),
        ('otherwise = "maybe"', "maybe"),
        ('ask_always = ["read"]', "'read'"),
        ('extends = "nothing"', "nothing"),
        ('extends = "missing.toml"', "missing.toml"),
        ("extends = 1", "extends"),
        ('rule = "x"', "[[rule]]"),
        ("allow = ", "not valid TOML"),
    ],
)
def test_what_makes_no_sense_is_an_error_that_says_where(tmp_path: Path, text: str, said: str) -> None:
    path = written(tmp_path / "p.toml", text)
    with pytest.raises(BadPolicy) as caught:
        load(path, Settings())
    assert said in caught.value.message
    assert "p.toml" in caught.value.message


def test_examples_that_are_so_are_no_error(tmp_path: Path) -> None:
    text = 'allow = ["ls *"]\ndeny = ["rm *"]\nmatch = ["ls", "ls -l", "sudo rm x"]\nnot_match = ["lsof", "ls; foo"]\n'
    assert judged("ls", load(written(tmp_path / "p.toml", text), Settings())) == "allow"


def test_a_file_extends_a_ready_policy_or_a_file(tmp_path: Path) -> None:
    written(tmp_path / "base.toml", 'extends = "guarded"\ndeny = ["git push *"]\n')
    policy = load(written(tmp_path / "p.toml", 'extends = "base.toml"\ndeny = ["npm *"]\n'), Settings())
    lines = {"ls": "allow", "rm -rf /": "deny", "git push": "deny", "npm ci": "deny"}
    assert {line: judged(line, policy) for line in lines} == lines
    more = load(written(tmp_path / "q.toml", 'extends = "allowlist"\nallow = ["terraform *"]\n'), Settings())
    assert [judged(line, more) for line in ("terraform plan", "ls", "bash x", "foo")] == [
        "allow",
        "allow",
        "deny",
        "ask",
    ]


def test_files_that_extend_each_other_are_an_error(tmp_path: Path) -> None:
    written(tmp_path / "a.toml", 'extends = "b.toml"\n')
    with pytest.raises(BadPolicy, match="extends itself"):
        load(written(tmp_path / "b.toml", 'extends = "a.toml"\n'), Settings())


def test_what_is_named_and_not_there_is_an_error(home: str, tmp_path: Path) -> None:
    for wrong in ("gaurded", str(tmp_path / "missing.toml"), "missing.toml"):
        with pytest.raises(BadInput, match="There is no policy"):
            Shell.open(home=home, policy=wrong)


def test_the_example_in_the_documentation_is_one(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "policies.md").read_text()
    (example,) = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    policy = load(written(tmp_path / "p.toml", example), Settings())
    assert [judged(line, policy) for line in ("npm run dev", "git push", "make")] == ["allow", "deny", "ask"]


# --- which are in force ------------------------------------------------------------------


@pytest.mark.parametrize("setting", ["gaurded", "/nowhere/policy.toml"])
def test_a_setting_that_names_nothing_asks_about_everything_and_says_why(home: str, setting: str) -> None:
    policy = combine_policies(home, Settings(policy=setting), None)
    for line in ("true", "ls"):
        assert judged(line, policy) == "ask"
    assert setting in evaluate_layers("ls", policy).broken


@pytest.mark.parametrize("text", ["allow = ", 'allow = ["ls"]\nmatch = ["lsof"]\n', "\xff"])
def test_a_broken_file_asks_about_everything(home: str, tmp_path: Path, text: str) -> None:
    path = tmp_path / "p.toml"
    path.write_bytes(text.encode("latin-1"))
    with Shell.open(home=home, policy=str(path)) as shell:
        assert shell.check("ls").verdict == "ask"
        with pytest.raises(NeedsApproval, match=r"p\.toml"):
            shell.run("true")
        assert policy_in_force(shell)[1]
    with Shell.open(home=home, policy=str(path), mode="yolo") as shell, pytest.raises(Refused, match="cannot be used"):
        shell.run("true")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_asks_about_everything(home: str, tmp_path: Path) -> None:
    path = written(tmp_path / "p.toml", 'otherwise = "allow"\n')
    os.chmod(path, 0)
    with Shell.open(home=home, policy=path) as shell:
        assert shell.check("ls").verdict == "ask"


def test_a_pipe_or_a_directory_is_no_policy_and_holds_nobody(home: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "dir.toml").mkdir()
    for name in ("pipe.toml", "dir.toml"):
        with Shell.open(home=home, policy=str(tmp_path / name)) as shell:
            assert shell.check("ls").verdict == "ask"


def test_the_strictest_of_user_and_call_wins(home: str, tmp_path: Path) -> None:
    user, call = (
        written(tmp_path / "u.toml", 'deny = ["a *"]\notherwise = "allow"'),
        'deny = ["b *"]\nallow = ["c", "a"]',
    )
    policy = combine_policies(home, Settings(policy=user), written(tmp_path / "c.toml", call))
    assert {line: judged(line, policy) for line in ("a", "b", "c", "d")} == {
        "a": "deny",
        "b": "deny",
        "c": "allow",
        "d": "ask",
    }
    assert judged("rm -rf /", combine_policies(home, Settings(policy="guarded"), "yolo")) == "deny"


@pytest.mark.parametrize("name", [".outlast/policy.toml", "outlast.policy.toml"])
def test_a_project_can_narrow_and_never_widen(
    home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    (tmp_path / "repo" / "deep").mkdir()
    text = 'allow = ["rm -rf / *", "curl *", "make *"]\ndeny = ["git push *"]\notherwise = "allow"\n'
    written(tmp_path / "repo" / name, text)
    monkeypatch.chdir(tmp_path / "repo" / "deep")
    for policy, lines in {
        "banned": {"curl x": "deny", "git push": "deny", "ls": "allow"},
        "guarded": {"rm -rf /": "deny", "git push": "deny", "make": "allow"},
        "ask": {"make": "ask", "git push": "deny"},
        "allowlist": {"terraform": "ask", "ls": "allow", "git push": "deny", "bash -c ls": "deny"},
        "yolo": {"git push": "deny", "curl x": "allow"},
    }.items():
        with Shell.open(home=home, policy=policy) as shell:
            assert {line: shell.check(line).verdict for line in lines} == lines, policy


def test_what_a_project_only_allows_is_all_that_runs_unasked_there(home: str, tmp_path: Path) -> None:
    path = written(tmp_path / "outlast.policy.toml", 'allow = ["make *"]\n')
    policy = combine_policies(home, Settings(), "guarded", [path])
    assert [judged(line, policy) for line in ("make", "ls", "rm -rf /")] == ["allow", "ask", "deny"]
    path = written(tmp_path / "outlast.policy.toml", 'deny = ["make *"]\n')
    policy = combine_policies(home, Settings(), "guarded", [path])
    assert [judged(line, policy) for line in ("make", "ls", "rm -rf /")] == ["deny", "allow", "deny"]


def test_a_project_ends_at_its_repository_and_cd_does_not_leave_it(
    home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "outlast.policy.toml", 'deny = ["echo *"]\n')
    inside = tmp_path / "repo" / "deep"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    with Shell.open(home=home) as shell:  # no repository: only the directory itself counts
        assert shell.check("echo x").verdict == "allow"
    (tmp_path / "repo" / ".git").touch()  # as in a worktree
    written(tmp_path / "repo" / "outlast.policy.toml", 'deny = ["wc *"]\n')
    with Shell.open(home=home) as shell:
        assert [shell.check(line).verdict for line in ("echo x", "wc x")] == ["allow", "deny"]
        shell.run("cd /")
        with pytest.raises(Refused, match="wc"):
            shell.run("wc /etc/passwd")
        with pytest.raises(Refused, match="wc"):
            shell.run("wc /etc/passwd", cwd="/")
        assert shell.check("echo x", cwd=str(tmp_path)).verdict == "deny"  # that directory has rules of its own
    monkeypatch.chdir("/")
    with Shell.open(home=home) as shell:
        assert [shell.check("wc x", cwd=cwd).verdict for cwd in (None, str(inside))] == ["allow", "deny"]


def test_own_rules_answer_for_every_policy_and_deny_under_each(home: str, tmp_path: Path) -> None:
    written(Path(home) / "policy.toml", 'allow = ["make test", "curl *"]\ndeny = ["git push *"]\notherwise = "allow"\n')
    for name, lines in {
        "ask": {"make test": "allow", "make": "ask", "git push": "deny"},
        "banned": {"curl x": "deny", "git push": "deny"},
        "yolo": {"git push": "deny", "make": "allow"},
    }.items():
        with Shell.open(home=home, policy=name) as shell:
            assert {line: shell.check(line).verdict for line in lines} == lines, name


def test_own_rules_that_are_broken_ask_about_everything(home: str) -> None:
    written(Path(home) / "policy.toml", 'deny = ["git push *"\n')
    for name in ("guarded", "yolo", None):
        with Shell.open(home=home, policy=name) as shell:
            assert shell.check("ls").verdict == "ask"


def test_a_policy_can_be_made_in_python(home: str) -> None:
    policy = Policy("mine", (Layer("mine", Rules(allow=("echo *",), deny=("rm *",))),))
    with Shell.open(home=home, policy=policy) as shell:
        assert shell.run("echo hi").output == "hi\n"
        with pytest.raises(Refused, match="mine denies 'rm x'"):
            shell.run("rm x")
        assert policy_in_force(shell)[0] == "mine"


def test_the_setting_is_read_from_the_environment(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLAST_POLICY", "banned")
    with Shell.open(home=home) as shell:
        assert policy_in_force(shell)[0] == "banned"
        with pytest.raises(Refused):
            shell.start("curl x")
    with Shell.open(home=home, policy="yolo") as shell, pytest.raises(Refused):  # a call does not widen it
        shell.run("curl x")


# --- the rule that "always" writes ---------------------------------------------------------

words = st.text(
    st.sampled_from(string.ascii_letters + string.digits + "_-./=:,@+ '\"\\$;&|<>(){}#~é*?[]!%^\t\n"), max_size=8
)
lines = st.lists(words, min_size=1, max_size=4).map(lambda parts: " ".join(quoted(part) for part in ("prog", *parts)))


def quoted(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"


@settings(max_examples=150, deadline=None)
@given(lines, lines)
def test_an_always_rule_matches_exactly_what_was_asked(line: str, other: str) -> None:
    policy = ready("ask")
    rules = offered(line, policy)
    allowed = layers.with_rules(policy, rules)
    if rules:
        assert judged(line, allowed) == "allow"
        for more in (
            f"{line} x",
            f"{line}; prog2",
            f"{line} > file",
            f"{line} && {other} 1 2 3",
            f"x{line}",
            f"{line}x",
        ):
            assert judged(more, allowed) == "ask", (rules, more)
        if parts(other, policy) != parts(line, policy):
            assert judged(other, allowed) == "ask"
    else:
        assert "*" in line or not all(part.isprintable() for part in parts(line, policy))


def parts(line: str, policy: Policy) -> list[str]:
    return [part.command for part in evaluate_layers(line, policy).decision.parts]


@settings(max_examples=100, deadline=None)
@given(lines)
def test_an_always_rule_widens_no_deny(line: str) -> None:
    denying = Policy("no", (Layer("no", Rules(deny=("prog *",))),))
    assert offered(line, denying) == ()
    asked = offered(line, ready("ask"))
    assert judged(line, layers.with_rules(denying, asked)) == "deny"


@pytest.mark.parametrize(
    "line", ["ls *.py", "$x", "make > out", "PATH=. ls", "f() { ls; }", 'eval "$x"', "ls 'a", "source x"]
)
def test_where_no_exact_rule_helps_always_is_not_offered(line: str) -> None:
    assert offered(line, ready("ask")) == ()


def test_every_part_that_asks_gets_a_rule_of_its_own() -> None:
    assert offered("make all && ./deploy --now | cat", ready("allowlist")) == ("./deploy --now",)


def test_remembering_keeps_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    before = '# mine\nallow = ["ls"] # yes\n\n[[rule]]\ndeny = "rm *" # no\nmatch = ["rm x"]'
    path.write_text(before)
    policy_file.add_allow_rules(str(path), ("make 'a \"b\" c'", "ls", "é \\"), "always, today")
    text = path.read_text()
    assert text.startswith(before)
    assert path.stat().st_mode & 0o777 == 0o600
    assert policy_file.read(str(path)).allow == ("ls", "make 'a \"b\" c'", "é \\")
    assert policy_file.read(str(path)).deny == ("rm *",)
    policy_file.add_allow_rules(str(path), ("ls",), "again")
    assert path.read_text() == text
    assert os.listdir(tmp_path) == ["policy.toml"]


def test_remembering_never_touches_a_file_it_does_not_understand(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text("allow = [")
    with pytest.raises(BadPolicy):
        policy_file.add_allow_rules(str(path), ("ls",), "x")
    assert path.read_text() == "allow = ["


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(min_size=1).filter(lambda text: text.isprintable() and text.strip()), min_size=1, max_size=3))
def test_what_is_written_is_what_is_read(patterns: list[str]) -> None:
    text = policy_file._with_rules("p", "", tuple(patterns), "x")
    assert policy_file.parse_values("p", policy_file._parse("p", text)).allow == tuple(dict.fromkeys(patterns))


def test_names_and_files_are_told_apart() -> None:
    assert [loader.is_file(one) for one in ("guarded", "x.toml", "./x", "~/x", "ask")] == [
        False,
        True,
        True,
        True,
        False,
    ]
