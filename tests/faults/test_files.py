"""Fault 19: umask, planted links, foreign owners, damage, and state of other versions."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
from pathlib import Path

import pytest

from outlast import OutlastError, Shell
from outlast.errors import DamagedTask, StartFailed, StateRefused
from outlast.storage import removal
from outlast.storage.layout import FORMAT
from outlast.types import Stdin
from tests.conftest import eventually
from tests.faults.support import closed, directory_of
from tests.frozen_states import freeze

pytestmark = pytest.mark.plain_user  # a user without privileges meets other limits

FROZEN = sorted(path.parent for path in Path(freeze.__file__).parent.glob("format-*/golden.json"))
NOBODY = 65533


def modes(home: str) -> dict[str, str]:
    """The mode of everything in a state directory, itself included, that is not private."""
    wrong = {}
    for at, directories, files in os.walk(home):
        for name in [".", *directories, *files]:
            path = os.path.join(at, name)
            try:
                found = os.lstat(path)
            except FileNotFoundError:
                continue  # a file that was written aside and renamed meanwhile
            wanted = 0o700 if stat.S_ISDIR(found.st_mode) else 0o600
            if stat.S_IMODE(found.st_mode) != wanted:
                wrong[os.path.relpath(path, home)] = oct(found.st_mode)
    return wrong


@pytest.fixture(params=[0o000, 0o022, 0o077], ids="umask {:03o}".format)
def umask(request):
    """A umask of the caller's, loose or odd."""
    old = os.umask(request.param)
    yield request.param
    os.umask(old)


def test_everything_is_private_whatever_the_umask(home, umask):
    with Shell.open(home=home) as shell:
        tasks = [
            shell.start("echo a; echo b >&2; true | sleep 60", split=True),
            shell.start("sleep 60", stdin=Stdin(open=True), limit=60),
            shell.start("yes | head -c 5000000; sleep 60", stdin="text"),
            shell.run("umask 000; sleep 60 & true | false", env={"A": "b"}),
        ]
        shell.send(tasks[1].task_id, eof=True)
        eventually(lambda: os.path.getsize(tasks[2].output_file) >= 5_000_000)
        shell.read(tasks[0].task_id, new=True)
        assert modes(home) == {}
        shell.kill_all([task.task_id for task in tasks], grace=0.5)
        shell.list()
        assert modes(home) == {}
    assert modes(home) == {}


def test_bounded_output_is_private_too(home, monkeypatch):
    monkeypatch.setenv("OUTLAST_OUTPUT_LIMIT_BYTES", "4096")
    old = os.umask(0)
    try:
        with Shell.open(home=home) as shell:
            result = shell.run("yes | head -c 100000")
            assert len(os.listdir(directory_of(result))) > 8
    finally:
        os.umask(old)
    assert modes(home) == {}


def test_the_command_has_the_callers_umask_though_our_files_do_not(shell, tmp_path, umask):
    result = shell.run("umask; mkdir d; stat -c %a d", cwd=tmp_path)
    mask, mode = result.output.split()
    assert (int(mask, 8), int(mode, 8)) == (umask, 0o777 & ~umask)


def test_a_state_directory_that_was_opened_to_others_is_closed_again(home):
    with Shell.open(home=home) as shell:
        shell.run("true")
    for path in (home, os.path.join(home, "tasks"), os.path.join(home, "staging")):
        os.chmod(path, 0o777)
    with Shell.open(home=home):
        pass
    assert modes(home) == {}


# --- planted links -------------------------------------------------------------------------


def plant(path: str, target: Path) -> None:
    """Put a link in the place of what is there."""
    if os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)
    os.symlink(target, path)


def snapshot(directory: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below a directory, with its mode and its bytes."""
    return {
        str(path.relative_to(directory)): (path.stat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in directory.rglob("*")
    }


@pytest.fixture
def elsewhere(tmp_path):
    """A place that a planted link leads to. It must be left as it is."""
    place = tmp_path / "elsewhere"
    place.mkdir()
    (place / "file").write_text("1\n")
    place.joinpath("file").chmod(0o644)
    before = snapshot(place)
    yield place
    assert snapshot(place) == before


@pytest.mark.parametrize("name", [".", "tasks", "staging"])
def test_a_link_in_the_place_of_a_directory_is_refused(home, elsewhere, name):
    if name != ".":
        Shell.open(home=home).close()
    else:
        os.makedirs(os.path.dirname(home), exist_ok=True)
    plant(os.path.normpath(os.path.join(home, name)), elsewhere)
    with pytest.raises(StateRefused, match="symbolic link"):
        Shell.open(home=home)


def test_a_link_in_the_place_of_the_version_is_refused(home, elsewhere):
    Shell.open(home=home).close()
    plant(os.path.join(home, "format"), elsewhere / "file")
    with pytest.raises(StateRefused, match="symbolic link"):
        Shell.open(home=home)


def test_a_link_that_leads_nowhere_is_refused_and_not_followed(home, elsewhere):
    Shell.open(home=home).close()
    plant(os.path.join(home, "format"), elsewhere / "new")
    with pytest.raises(StateRefused):
        Shell.open(home=home)


@pytest.mark.parametrize("target", ["file", "new"])
def test_a_link_in_the_place_of_the_index_is_not_followed(home, elsewhere, target):
    with Shell.open(home=home) as shell:
        done = shell.run("echo kept")
        eventually(lambda: shell.show(done.task_id).closed)
    for ending in ("-wal", "-shm"):
        if os.path.exists(os.path.join(home, "index.sqlite" + ending)):
            os.unlink(os.path.join(home, "index.sqlite" + ending))
    plant(os.path.join(home, "index.sqlite"), elsewhere / target)
    with Shell.open(home=home) as shell:
        with pytest.raises(StartFailed, match=r"index\.sqlite is not a file of its own; remove it"):
            shell.run("true")
        assert shell.read(done.task_id).output == "kept\n"
        assert os.listdir(os.path.join(home, "staging")) == []
    os.unlink(os.path.join(home, "index.sqlite"))
    with Shell.open(home=home) as shell:
        assert shell.run("echo again").output == "again\n"
        assert len(shell.list()) == 2


@pytest.mark.parametrize("name", ["record", "launch.json", "command", "lock", "output", "bell.0"])
def test_a_link_in_a_task_is_isolated(home, elsewhere, name):
    with Shell.open(home=home, operator=True) as shell:
        broken, sound = shell.run("echo a; exit 3"), shell.run("echo sound")
        for task in (broken, sound):
            eventually(lambda task=task: shell.show(task.task_id).closed)  # type: ignore[misc]
    target = elsewhere / "file"
    plant(os.path.join(directory_of(broken), name), target)
    with Shell.open(home=home, operator=True) as shell:
        ask = shell.read if name != "bell.0" else lambda part: list(shell.follow(part))
        with pytest.raises(DamagedTask):
            ask(broken.task_id)
        assert shell.read(sound.task_id).output == "sound\n"
        assert sound.task_id in {task.task_id for task in shell.list()}
        assert shell.run("exit 4").exit_code == 4
        shell.clean(all_finished=True)
        assert not os.path.lexists(directory_of(broken))


def test_a_link_in_the_place_of_a_task_is_no_task(home, elsewhere):
    with Shell.open(home=home, operator=True) as shell:
        shell.run("true")
        os.symlink(elsewhere, os.path.join(home, "tasks", "bash-00000bad"))
    os.unlink(os.path.join(home, "index.sqlite"))
    with Shell.open(home=home, operator=True) as shell:
        assert len(shell.list()) == 1
        with pytest.raises(OutlastError):
            shell.read("bash-00000bad")
        shell.clean(all_finished=True)


def test_a_link_in_staging_is_swept_and_not_followed(home, elsewhere, monkeypatch):
    Shell.open(home=home).close()
    link = os.path.join(home, "staging", "bash-00000000.11111111")
    os.symlink(elsewhere, link)
    monkeypatch.setattr(removal, "_STALE_S", -1.0)
    with Shell.open(home=home) as shell:
        shell.clean()
        assert not os.path.lexists(link)


def test_a_running_task_goes_on_though_its_files_are_links(shell, elsewhere):
    """Whoever can plant a link is the user; what counts is that nothing is written through it."""
    task = shell.start("sleep 60", stdin=Stdin(open=True))
    plant(os.path.join(directory_of(task), "stdin"), elsewhere / "file")
    with pytest.raises(DamagedTask):
        shell.send(task.task_id, "x")
    plant(os.path.join(directory_of(task), "stdin.eof"), elsewhere / "new")
    with pytest.raises(OutlastError):
        shell.send(task.task_id, eof=True)
    assert shell.kill(task.task_id).status == "killed"


# --- not a directory, not ours -------------------------------------------------------------


def test_a_file_in_the_place_of_a_directory_is_refused(home):
    os.makedirs(os.path.dirname(home), exist_ok=True)
    Path(home).write_text("")
    with pytest.raises(StateRefused, match="not a directory"):
        Shell.open(home=home)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
@pytest.mark.parametrize("name", [".", "tasks", "staging"])
def test_a_foreign_owner_is_refused(home, name):
    Shell.open(home=home).close()
    path = os.path.normpath(os.path.join(home, name))
    os.chown(path, NOBODY, NOBODY)
    try:
        with pytest.raises(StateRefused, match=f"belongs to another user \\(uid {NOBODY}\\)"):
            Shell.open(home=home)
    finally:
        os.chown(path, os.geteuid(), os.getegid())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_may_not_be_written_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(StateRefused, match="cannot be used: Permission denied"):
            Shell.open(home=tmp_path / "state")
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.skipif(os.geteuid() == 0, reason="the plain user meets root's directory")
def test_roots_directory_is_refused():
    with pytest.raises(StateRefused):
        Shell.open(home="/usr")


# --- other versions ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("2\n", "newer than this version of Outlast knows"),
        ("999\n", "newer than this version of Outlast knows"),
        ("", "no state directory"),
        ("one\n", "no state directory"),
        ("\x00\x01", "no state directory"),
    ],
)
def test_a_version_that_is_not_known_says_so_in_one_sentence(home, text, says):
    Shell.open(home=home).close()
    Path(home, "format").write_text(text)
    with pytest.raises(StateRefused, match=says) as caught:
        Shell.open(home=home)
    assert "\n" not in caught.value.message
    assert caught.value.message.endswith(".")
    assert Path(home, "format").read_text() == text


def thaw(frozen: Path, home: str) -> None:
    """A frozen state directory as it was: private, with its named pipes."""
    shutil.copytree(frozen / "state", home, copy_function=shutil.copyfile)
    os.mkdir(os.path.join(home, "staging"))
    for at, directories, files in os.walk(home):
        os.chmod(at, 0o700)
        for name in files:
            os.chmod(os.path.join(at, name), 0o600)
        if at == os.path.join(home, "tasks"):
            for name in directories:
                for bell in ("bell.0", "bell.1"):
                    os.mkfifo(os.path.join(at, name, bell), 0o600)


@pytest.mark.parametrize("index", ["its index", "no index"])
@pytest.mark.parametrize("frozen", FROZEN, ids=lambda path: path.name)
def test_the_state_of_an_older_version_opens(home, frozen, index, monkeypatch):
    monkeypatch.setenv("OUTLAST_RETENTION_HOURS", "1000000")
    golden = json.loads((frozen / "golden.json").read_text())
    thaw(frozen, home)
    if index == "no index":
        os.unlink(os.path.join(home, "index.sqlite"))
    with Shell.open(home=home, session="frozen") as shell:
        assert [task.task_id for task in shell.list()] == golden["order"]
        for name, seen in golden["tasks"].items():
            task_id = seen["task"]["task_id"]
            found = freeze.look(shell, task_id)
            found["task"] = {one: found["task"][one] for one in seen["task"]}  # a newer version tells more
            assert found == seen, name
            assert shell.show(task_id).output_file == os.path.join(home, "tasks", task_id, "output")
        for task in shell.list():
            assert task.output_file == os.path.join(home, "tasks", task.task_id, "output")
        completed = golden["tasks"]["completed"]["task"]["task_id"]
        assert shell.read(completed, new=True, reader="half way").output == "two\nthree\n"
        # And it is not only to be looked at.
        assert shell.run("exit 5").exit_code == 5
        assert len(shell.list()) == len(golden["order"]) + 1
        assert shell.clean(all_finished=True) >= len(golden["order"])
    assert modes(home) == {}


def test_there_is_a_frozen_state_of_every_format():
    assert [path.name for path in FROZEN] == [f"format-{number}" for number in range(1, FORMAT + 1)]


def test_a_state_directory_can_be_moved(home):
    with Shell.open(home=home) as shell:
        result = shell.run("echo here")
        eventually(lambda: shell.show(result.task_id).closed)
        shell.list()
    os.rename(home, home + "-moved")
    with Shell.open(home=home + "-moved") as shell:
        (task,) = shell.list()
        assert task.output_file == os.path.join(home + "-moved", "tasks", task.task_id, "output")
        assert shell.reader.line_counts(task) == (1, 0)
        assert shell.read(task.task_id).output == "here\n"


# --- planted FIFOs -------------------------------------------------------------------------

_READ_BY = [
    ["ps", "--all"],
    ["show"],
    ["logs"],
    ["logs", "--new"],
    ["logs", "--new", "--json"],
    ["logs", "--tail", "3"],
    ["wait", "--timeout", "0.1"],
    ["kill", "--grace", "0"],
    ["clean"],
    ["clean", "--all-finished"],
]
PATIENCE_S = 15


@pytest.mark.parametrize("known", [True, False], ids=["in the index", "not in the index"])
@pytest.mark.parametrize(
    "file", ["record", "launch.json", "command", "output", "stderr", "order", "lock", "readers/command%20.line"]
)
def test_a_fifo_in_place_of_a_file_of_an_ended_task_holds_nobody_up(cli, home, file, known):
    with Shell.open(home=home) as shell:
        task = shell.run("for i in 1 2 3; do echo out; echo err >&2; done", split=True)
        shell.read(task.task_id, new=True, reader="command line")
        closed(shell, task)
        if known:
            shell.list()
    if not known:
        for path in Path(home).glob("index.sqlite*"):
            path.unlink()
    plant_fifo(directory_of(task), file)
    check_that_nothing_hangs(cli, task)


@pytest.mark.parametrize(
    "file", ["record", "launch.json", "command", "lock", "queued", "environ", "moved", "stdin.eof"]
)
def test_a_fifo_in_place_of_a_file_of_a_pending_task_holds_nobody_up(cli, home, file, monkeypatch):
    monkeypatch.setenv("OUTLAST_MAX_RUNNING", "1")
    with Shell.open(home=home) as shell:
        first = shell.start("sleep 1000")
        task = shell.start("echo second", stdin=Stdin(open=True))
        plant_fifo(directory_of(task), file)
        check_that_nothing_hangs(cli, task)
        shell.kill(first.task_id, grace=0)
        assert shell.run("echo third").output == "third\n"


@pytest.mark.parametrize("file", ["record", "launch.json", "command", "output", "lock", "stdin.eof", "moved"])
def test_a_fifo_in_place_of_a_file_of_a_running_task_holds_nobody_up(cli, home, file, tmp_path):
    with Shell.open(home=home) as shell:
        task = shell.start(f"echo $$ > {tmp_path}/pid; echo hello; exec sleep 1000", stdin=Stdin(open=True))
        eventually(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        kept = os.path.join(directory_of(task), file + ".kept")
        if os.path.exists(os.path.join(directory_of(task), file)):
            os.link(os.path.join(directory_of(task), file), kept)
        plant_fifo(directory_of(task), file)
        try:
            # Its end is for the guards to record, which have the files open.
            check_that_nothing_hangs(
                cli, task, [*(words for words in _READ_BY if words[0] != "kill"), ["send", "--eof"]]
            )
        finally:
            if os.path.exists(kept):
                os.rename(kept, os.path.join(directory_of(task), file))
            os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def plant_fifo(directory: str, file: str) -> None:
    path = os.path.join(directory, file)
    if os.path.exists(path):
        os.unlink(path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.mkfifo(path)


def check_that_nothing_hangs(cli, task, calls=_READ_BY) -> None:
    for words in calls:
        about_one = words[0] != "ps" and "--all-finished" not in words
        every = [*cli.command, *words, *([task.task_id] if about_one else [])]
        ran = subprocess.run(every, env=cli.env, capture_output=True, text=True, timeout=PATIENCE_S)
        assert "Traceback" not in ran.stderr, (words, ran.stderr)
        assert ran.returncode in (0, 1, 124, 125), (words, ran)
