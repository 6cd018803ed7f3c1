"""Which sandbox a command gets, who may switch it on, off or widen it, and what is said where none works."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from outlast import AsyncShell, Sandbox, Shell, Task
from outlast.errors import BadInput, StartFailed, Unsupported
from outlast.linux import process
from outlast.sandbox import bubblewrap, choice, landlock
from outlast.sandbox.choice import Ability, able, available
from outlast.settings import Settings, load
from outlast.types import BUBBLEWRAP, LANDLOCK, Stdin
from tests.conftest import eventually
from tests.sandbox.support import inside

pytestmark = pytest.mark.plain_user  # a user without privileges meets other limits


@pytest.fixture
def work(tmp_path, monkeypatch) -> Path:
    path: Path = tmp_path / "work"
    path.mkdir()
    monkeypatch.chdir(path)
    return path


@pytest.fixture
def imposed(home: str, work) -> str:
    """A state directory whose owner demands a sandbox."""
    inside(available()[0])
    os.makedirs(home, 0o700)
    Path(home, "config.toml").write_text("sandbox = true\n")
    return home


@pytest.fixture
def own(monkeypatch, tmp_path_factory) -> Path:
    """The home directory: writable for everybody who is not in a sandbox."""
    path: Path = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(path))
    return path


# --- who decides -------------------------------------------------------------------------


def test_what_the_file_switches_on_no_variable_switches_off(tmp_path):
    (tmp_path / "config.toml").write_text('sandbox = true\nsandbox_writable = "/srv"\n')
    wider = {"OUTLAST_SANDBOX": "off", "OUTLAST_SANDBOX_NETWORK": "on", "OUTLAST_SANDBOX_WRITABLE": "/"}
    assert load(str(tmp_path), wider) == Settings(sandbox=True, sandbox_writable="/srv")
    (tmp_path / "config.toml").write_text("sandbox = false\n")
    assert load(str(tmp_path), {"OUTLAST_SANDBOX": "on"}).sandbox is True
    assert load(str(tmp_path), {"OUTLAST_SANDBOX": "off"}).sandbox is False


def test_an_imposed_sandbox_is_for_every_command(imposed, work, own):
    with Shell.open(home=imposed) as shell:
        result = shell.run(f"echo x > f; echo x > {own}/g")
        assert result.exit_code == 1
        assert "no network" in (result.sandbox or "")
        assert shell.wait(shell.start(f"echo x > {own}/g").task_id).exit_code == 1
    assert (work / "f").exists()
    assert not (own / "g").exists()


def test_no_call_switches_off_or_widens_an_imposed_sandbox(imposed, work, own):
    with Shell.open(home=imposed) as shell:
        for asked in (False, Sandbox(network=True), Sandbox(writable=(str(own),)), Sandbox(readable=("/tmp",))):
            with pytest.raises(BadInput, match="imposed"):
                shell.run("true", sandbox=asked)
        assert shell.list() == []
        # A directory that a call names is where it runs, and stays read-only.
        result = shell.run("pwd; echo x > g", cwd=own)
        assert result.output.startswith(f"{own}\n")
        assert result.exit_code == 1
        assert shell.run("echo x > f", sandbox=Sandbox(writable=(str(work),))).exit_code == 0
    assert not (own / "g").exists()


def test_a_host_imposes_one_on_all_its_calls(home, work, own):
    box = inside(available()[0])
    with Shell.open(home=home, sandbox=box) as shell:
        assert shell.run(f"echo x > {own}/g").exit_code == 1
        with pytest.raises(BadInput, match="imposed"):
            shell.run("true", sandbox=False)

    async def twin() -> int | None:
        async with AsyncShell.open(home=home, sandbox=True) as shell:
            return (await shell.run(f"echo x > {own}/g", cwd=own)).exit_code

    assert asyncio.run(twin()) == 1


def test_a_person_can_do_without_it_and_widen_it(cli, imposed, work, own):
    assert cli("run", f"echo x > {own}/g").returncode == 1
    assert cli("run", "--no-sandbox", f"echo x > {own}/g").returncode == 0
    assert cli("run", "--writable", str(own), f"echo x > {own}/h").returncode == 0
    assert cli("run", "--cwd", str(own), "echo x > i").returncode == 0
    refused = cli("run", "--no-sandbox", "--network", "true", check=2)
    assert refused.stderr.count("\n") == 1
    assert "contradicts" in refused.stderr
    assert cli("run", "--sandbox", "--writable", str(own / "none"), "true", check=2).stderr.count("\n") == 1


def test_the_command_line_says_how_it_was_confined(cli, work):
    inside(available()[0])
    task = json.loads(cli("run", "--json", "--sandbox", "--network", "true").stdout)
    assert task["sandbox"].startswith(available()[0] + ": network")
    assert str(work) in task["sandbox"]
    assert f"sandbox      {available()[0]}" in cli("show", task["task_id"]).stdout
    assert "sandbox" not in cli("show", cli("run", "--bg", "true").stdout.strip()).stdout


def test_bad_choices_get_one_sentence(shell, work):
    for bad in ("yes", 1, ["x"]):
        with pytest.raises(BadInput):
            shell.run("true", sandbox=bad)
    with pytest.raises(BadInput, match="no kind of sandbox"):
        shell.run("true", sandbox=Sandbox(kind="jail"))
    with pytest.raises(BadInput, match="list of paths"):
        shell.run("true", sandbox=Sandbox(writable="/tmp"))  # type: ignore[arg-type]
    assert shell.list() == []


# --- where it does not work ----------------------------------------------------------------


@pytest.fixture
def abilities(monkeypatch) -> dict[str, Ability]:
    """What this machine can do, to be changed by the test."""
    known = {kind: able(kind) for kind in (BUBBLEWRAP, LANDLOCK)}
    monkeypatch.setattr(choice, "_known", known)
    return known


def test_landlock_takes_over_where_namespaces_are_forbidden(shell, work, abilities):
    inside(LANDLOCK)
    abilities[BUBBLEWRAP] = Ability(False, "No permissions to create new namespace")
    assert shell.run("true", sandbox=True).sandbox.startswith("landlock")


def test_where_neither_works_nothing_runs(shell, work, abilities):
    abilities[BUBBLEWRAP] = Ability(False, "bwrap is not installed")
    abilities[LANDLOCK] = Ability(False, "the kernel has none")
    with pytest.raises(Unsupported) as caught:
        shell.run("echo x > f", sandbox=True)
    assert "bwrap is not installed" in caught.value.message
    assert "install bubblewrap" in caught.value.message
    assert not (work / "f").exists()
    assert shell.list() == []


def test_a_sandbox_that_cannot_be_made_is_told_of_and_leaves_nothing(shell, home, work, tmp_path, abilities):
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho 'bwrap: Creating new namespace failed' >&2\nexit 1\n")
    program.chmod(0o755)
    abilities[BUBBLEWRAP] = Ability(True, "", str(program))
    with pytest.raises(StartFailed, match="the sandbox cannot be made: bwrap: Creating new namespace failed"):
        shell.run("echo x > f", sandbox=Sandbox(kind=BUBBLEWRAP))
    assert shell.list() == []
    assert not (work / "f").exists()
    eventually(lambda: os.listdir(os.path.join(home, "staging")) == [])


def test_a_pending_one_whose_sandbox_cannot_be_made_ends_unrun(shell, work, tmp_path, abilities):
    abilities[BUBBLEWRAP] = Ability(True, "", str(tmp_path / "no-bwrap"))
    first = shell.start("true")
    second = shell.start("echo x > f", after=[first.task_id], sandbox=Sandbox(kind=BUBBLEWRAP))
    ended = shell.wait(second.task_id, 30)
    assert (ended.reason, ended.exit_code) == ("spawn-error", None)
    assert "sandbox cannot be made" in (ended.error or "")
    assert not (work / "f").exists()


def test_the_doctor_says_what_works(cli):
    found = {one["what"]: one for one in json.loads(cli("doctor", "--json").stdout)}
    assert "bubblewrap: " in found["sandbox"]["detail"]
    assert "landlock: " in found["sandbox"]["detail"]


# --- what bubblewrap and Landlock are told -------------------------------------------------


def outer_bubblewrap(task: Task) -> int:
    """The process that the guard started: the parent of the sandbox's own init, which is the parent of the shell."""
    assert task.pid is not None
    shell = process.stat_of(task.pid)
    assert shell is not None
    init = process.stat_of(shell.parent)
    assert init is not None
    return init.parent


def test_bubblewrap_itself_gets_no_variables_and_its_words_no_secrets(shell, work):
    box = inside(BUBBLEWRAP)
    task = shell.start("sleep 300", env={"SECRET": "hunter2", "LD_LIBRARY_PATH": str(work)}, sandbox=box)
    parent = outer_bubblewrap(task)
    assert Path(f"/proc/{parent}/environ").read_bytes() == b""
    assert b"hunter2" not in Path(f"/proc/{parent}/cmdline").read_bytes()
    assert b"sleep 300" not in Path(f"/proc/{parent}/cmdline").read_bytes()
    assert b"SECRET=hunter2" in Path(f"/proc/{task.pid}/environ").read_bytes()
    shell.kill(task.task_id, grace=1)


def test_a_command_outlives_the_bubblewrap_that_started_it(shell, work):
    box = inside(BUBBLEWRAP)
    task = shell.start("echo on; read line; exit 6", stdin=Stdin(open=True), sandbox=box)
    eventually(lambda: shell.read(task.task_id).output == "on\n")
    outer = outer_bubblewrap(task)
    os.kill(outer, signal.SIGKILL)
    eventually(lambda: process.stat_of(outer) is None)
    assert shell.show(task.task_id).status == "running"
    shell.send(task.task_id, "x\n")
    assert shell.wait(task.task_id, 30).exit_code == 6


def test_directories_on_the_way_to_the_state_are_pinned():
    assert bubblewrap.pins("/home/u/.local/state/outlast", ["/home/u"]) == ["/home/u/.local", "/home/u/.local/state"]
    assert bubblewrap.pins("/home/u/.local/state/outlast", ["/home/u/.local/state"]) == []
    assert bubblewrap.pins("/home/u/.local/state/outlast", ["/srv"]) == []


def test_a_link_on_the_way_to_the_state_is_refused(work, tmp_path):
    (tmp_path / "real").mkdir()
    (work / "link").symlink_to(tmp_path / "real")
    with (
        Shell.open(home=work / "link" / "state") as shell,
        pytest.raises(BadInput, match="leads through the link"),
    ):
        shell.run("true", sandbox=inside(available()[0]))


def test_what_surrounds_a_hidden_place_is_named(tmp_path):
    for name in ("a/hidden/x", "a/b", "c"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "a" / "link").symlink_to(tmp_path)
    top = str(tmp_path)
    assert sorted(landlock.around(top, [f"{top}/a/hidden"])) == [f"{top}/a/b", f"{top}/c"]
    assert list(landlock.around(top, [])) == [top]
    assert list(landlock.around(top, [top])) == []
