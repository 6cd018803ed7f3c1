"""What is damaged, gone, or in the way must not lock a session out."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outlast import Shell
from outlast.storage import dump, snapshot
from outlast.storage.sessions import Sessions
from tests.conftest import Cli, end_all


@pytest.fixture
def named(home: str) -> Iterator[Shell]:
    with Shell.open(home=home, session="s", prepare=False) as opened:
        yield opened
        end_all(opened)


def path_of(home: str) -> Path:
    Sessions(os.path.join(home, "sessions")).read("s")  # once it has what the last command changed
    return Path(home, "sessions", "s", "snapshot")


DAMAGES = {
    "empty": lambda data: b"",
    "no header": lambda data: data[20:],
    "cut": lambda data: data[:-50],
    "one byte": lambda data: data[:-30] + b"?" + data[-29:],
    "other text": lambda data: b"rm -rf nothing\n",
    "header of something else": lambda data: b'#outlast-session {"format": 1}\n',
    "newer": lambda data: data.replace(b'"format":1', b'"format":99'),
    "not JSON": lambda data: b"#outlast-session {\n",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_snapshot_is_set_aside(named: Shell, home: str, damage: str) -> None:
    named.run("a=1")
    path = path_of(home)
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    assert named.run("echo ${a-none}; b=2").output == "none\n"
    assert named.run("echo $b").output == "2\n"
    (aside,) = named.sessions.state().damaged
    assert Path(aside).name.startswith("snapshot.damaged-")
    named.sessions.reset()
    assert named.sessions.state().damaged == ()


def test_one_that_breaks_in_the_middle_loses_only_what_it_could_not_bring_back(named: Shell, home: str) -> None:
    named.run("a=1; f() { :; }")
    found = named.context.sessions.read("s")
    state = found.state()
    state[snapshot.FUNCTION, b"bad"] = b"-f bad () { ( ;"
    named.context.sessions.reset("s", snapshot.compose(state, generation=5, task="", made=0.0, environ={}))
    assert named.run("echo $a; b=2").output == "1\n"
    assert named.run("echo $a $b").output == "1 2\n"
    assert "f" in named.sessions.state().functions


def test_a_removed_session_takes_nothing_back(named: Shell, home: str, tmp_path: Path) -> None:
    named.run("a=1")
    os.mkfifo(tmp_path / "g")
    task = named.starter.launch(f"read -r _ < {tmp_path}/g; a=2", background=False, keeps=True)[0]
    named.context.sessions.remove("s")
    (tmp_path / "g").write_text("\n")
    assert named.wait(task.task_id, 30).exit_code == 0
    assert named.sessions.names() == []
    assert named.run("echo ${a-none}").output == "none\n"


def test_a_reset_while_a_command_runs(named: Shell, tmp_path: Path) -> None:
    named.run("a=1; b=1")
    os.mkfifo(tmp_path / "g")
    task = named.starter.launch(f"read -r _ < {tmp_path}/g; b=2", background=False, keeps=True)[0]
    named.sessions.reset()
    (tmp_path / "g").write_text("\n")
    named.wait(task.task_id, 30)
    assert named.run("echo ${a-none} $b; shopt -q sourcepath && echo on").output == "none 2\non\n"


def test_a_directory_that_cannot_be_written_harms_no_record(named: Shell, home: str) -> None:
    named.run("a=1")
    # Not by its mode: root may write anywhere.
    path = path_of(home)
    kept = path.read_bytes()
    path.unlink()
    path.mkdir()
    assert named.sessions.names() == ["s"]
    path.rmdir()
    path.write_bytes(kept)
    os.rename(path.parent / "lock", path.parent / "unlocked")
    (path.parent / "lock").mkdir()
    assert named.run("a=2; exit 3").exit_code == 3
    (path.parent / "lock").rmdir()
    assert named.run("echo $a").output == "2\n"


def test_merging_twice_changes_once(named: Shell, home: str, tmp_path: Path) -> None:
    """A process that was killed after it replaced the snapshot left the task and its entry behind."""
    task = named.starter.launch("n=1; list+=(x)", background=False, keeps=True)[0]
    named.wait(task.task_id, 30)
    kept, session = tmp_path / "kept", Path(home, "sessions", "s")
    subprocess.run(["cp", "-a", home, kept], check=True)
    found = named.context.sessions.read("s")
    assert os.listdir(session / "pending") == []
    for part in (f"tasks/{task.task_id}", "sessions/s/pending"):
        subprocess.run(["cp", "-a", f"{kept}/{part}/.", f"{home}/{part}"], check=True)
    assert len(os.listdir(session / "pending")) == 1
    assert named.context.sessions.read("s") == found
    assert os.listdir(session / "pending") == []
    assert named.run("echo $n ${list[*]}").output == "1 x\n"


def test_a_torn_dump_is_no_dump() -> None:
    whole = b'\n#m variables\ndeclare -- n="2"\n\n#m end end 1\n'
    assert dump.parse_dump(whole, "m") is not None
    for cut in range(len(whole) - 10):
        assert dump.parse_dump(whole[:cut], "m") is None


# --- pure ----------------------------------------------------------------------------------

texts = st.binary(max_size=30).map(lambda data: data.replace(b"\0", b"?"))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(env=st.dictionaries(st.from_regex(r"[a-z_][a-z0-9_]{0,6}\Z", fullmatch=True), texts, max_size=6))
def test_a_snapshot_is_read_back_as_it_was_written(env: dict[str, bytes]) -> None:
    given_env = {name: os.fsdecode(value) for name, value in env.items()}
    state = snapshot.compose_first_state(given_env, "/a\nb", 0o27)
    data = snapshot.compose(state, generation=3, task="t", made=1.5, environ=given_env, first=True)
    found = snapshot.parse(data)
    assert found.state() == state
    assert (found.directory, found.generation, found.task) == ("/a\nb", 3, "t")
    kept = {name: value for name, value in given_env.items() if name != "_"}
    assert {
        name: value for name, value in snapshot.exported_variables(found.state()).items() if name != "SHLVL"
    } == kept


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=200), where=st.integers(0, 10_000))
def test_no_change_of_a_snapshot_goes_unnoticed(data: bytes, where: int) -> None:
    whole = snapshot.compose(
        snapshot.compose_first_state({"A": "1"}, "/", 0o22), generation=0, task="", made=0.0, environ={}, first=True
    )
    at = whole.index(b"\n") + 1 + where % (len(whole) - whole.index(b"\n") - 1)
    changed = whole[:at] + data + whole[at + len(data) :]
    if changed != whole:
        with pytest.raises(snapshot.DamagedSnapshot):
            snapshot.parse(changed)


keys = st.tuples(st.just(snapshot.ALIAS), st.sampled_from([b"a", b"b", b"c"]))
states = st.dictionaries(keys, st.sampled_from([b"1", b"2", b"3"]))


@given(current=states, start=states, end=states)
def test_merging_takes_what_changed_and_nothing_else(current: dict, start: dict, end: dict) -> None:
    merged = dump.apply_changes(current, start, end)
    for key in current.keys() | start.keys() | end.keys():
        expected = current.get(key) if start.get(key) == end.get(key) else end.get(key)
        assert merged.get(key) == expected
    assert dump.apply_changes(start, start, end) == end


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (b"local a=1 b; c=2", {b"a", b"b"}),
        (b"declare -i n=3; typeset -r m", {b"n", b"m"}),
        (b"declare -g x=1", set()),
        (b"local a=\"b c=d\" e='f g'", {b"a", b"e"}),
        (b"if :; then local deep; fi", {b"deep"}),
        (b"echo local a", {b"a"}),  # rather too many than too few
        (b"locale a", set()),
    ],
)
def test_the_locals_of_a_function(body: bytes, names: set[bytes]) -> None:
    assert dump.find_local_names(b"-f f () \n{ \n    " + body + b"\n}") == names


# --- the command line -----------------------------------------------------------------------------


def test_a_session_is_listed_shown_copied_reset_and_removed(cli: Cli) -> None:
    cli("run", "--session", "a", "cd /usr; API_TOKEN=swordfish; x=1; f() { :; }; alias l=ls; unset EDITOR", check=0)
    assert cli("session", "list").stdout == "a\n"
    text = cli("session", "show", "a", check=0).stdout
    assert "/usr" in text
    assert 'x="1"' in text
    assert "swordfish" not in text
    state = cli.json("session", "show", "a")
    assert state["variables"] == {"API_TOKEN": "***", "x": '"1"'}
    assert (state["functions"], state["aliases"], state["removed"]) == (["f"], {"l": "ls"}, ["EDITOR"])
    cli("session", "copy", "a", "b", check=0)
    cli("session", "reset", "a", check=0)
    assert cli("run", "--session", "a", "pwd; echo ${x-none}").stdout == f"{os.getcwd()}\nnone\n"
    assert cli("run", "--session", "b", "pwd; echo $x $OUTLAST_SESSION").stdout == "/usr\n1 b\n"
    cli("session", "remove", "a", check=0)
    assert cli.json("session", "list") == ["b"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["show", "wrok"], 1, "There is no session 'wrok' with a state; near it are work."),
        (["remove", "zzz"], 1, "There is no session 'zzz' with a state; `outlast session list` lists them."),
        (["reset", "zzz"], 1, "There is no session 'zzz'"),
        (["copy", "zzz", "new"], 1, "There is no session 'zzz'"),
        (["copy", "work", "work"], 1, "There is a session 'work' already"),
        (["copy", "work"], 2, "required: NEW"),
        (["list", "work"], 2, "Unrecognized arguments: work"),
        (["show", "../x"], 2, "is no name for a session"),
        (["copy", "work", ".x"], 2, "is no name for a session"),
        (["burn", "work"], 2, "There is no `outlast session burn`"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(cli: Cli, words: list[str], code: int, said: str) -> None:
    cli("run", "--session", "work", "a=1", check=0)
    told = cli("session", *words, check=code)
    assert said in told.stderr
    assert len(told.stderr.splitlines()) == 1
    assert cli("session", "list").stdout == "work\n"


def test_a_session_with_a_running_task_is_not_removed(cli: Cli) -> None:
    cli("run", "--session", "s", "a=1", check=0)
    task = cli("run", "--session", "s", "--bg", "sleep 60").stdout.strip()
    assert task in cli("session", "remove", "s", check=1).stderr
    cli("kill", task, check=0)
    cli("session", "remove", "s", check=0)


def test_a_session_reaches_only_itself(home: str, cli: Cli) -> None:
    with Shell.open(home=home, session="a") as a, Shell.open(home=home, session="b") as b:
        a.run("x=1")
        b.run("x=2")
        assert list(a.sessions.names()) == ["a"]
        with pytest.raises(Exception, match="cannot reach 'b'"):
            a.sessions.state("b")
    cli.env["OUTLAST_SESSION"] = "a"
    assert "cannot reach" in cli("session", "remove", "b", check=2).stderr
