"""Wrong uses: each gets one sentence that says what to do, and leaves nothing behind.

The sentences are in `tests/golden/bad_input.txt`, to be read as a user would read them.
After a change on purpose: `OUTLAST_GOLDEN=write pytest tests/cli/test_bad_input.py`,
as root and as a plain user, because each sees some that the other cannot.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from outlast import OutlastError, Shell
from outlast.cli.main import main
from outlast.storage import record
from outlast.types import Stdin
from tests.cli import GOLDEN, agreed, the_running
from tests.conftest import Cli, end_all, eventually, processes_of

pytestmark = pytest.mark.plain_user  # a user without privileges meets other limits

FILE = "bad_input.txt"
ROOT = os.geteuid() == 0
NO_JSON = ("send", "completion", "frob", "shw", "--frob")
LONG = 1_100_000

HEAD = """\
Wrong uses and their answers: what was asked, the exit code (or the error's code in Python), the sentence.
What differs from run to run stands in braces.
"""


@dataclass(frozen=True)
class Wrong:
    """One wrong use of the command line. Braces in words and variables name what the scene has."""

    what: str
    words: str
    env: dict[str, str] = field(default_factory=dict)
    stdin: bytes = b""
    needs: str = ""


WRONG = [
    # --- run: the command ---
    Wrong("an empty command", "run ''"),
    Wrong("a blank command", "run '   '"),
    Wrong("no command", "run"),
    Wrong("no command behind --", "run --bg --"),
    Wrong("an empty command from standard input", "run -"),
    Wrong("a NUL byte in the command", "run -", stdin=b"echo a\0b"),
    Wrong("a command that is too long", "run -", stdin=b"echo " + b"x" * LONG),
    Wrong("command and input both from standard input", "run --stdin - -"),
    # --- run: where and how ---
    Wrong("a missing directory", "run --cwd {tmp}/missing true"),
    Wrong("a directory that is a file", "run --cwd {tmp}/file true"),
    Wrong("a directory below a file", "run --cwd {tmp}/file/x true"),
    Wrong("a directory without a name", "run --cwd '' true"),
    Wrong("a directory that may not be entered", "run --cwd {tmp}/closed true", needs="plain"),
    Wrong("a variable without =", "run --env A true"),
    Wrong("a variable without a name", "run --env =1 true"),
    Wrong("an unknown shell", "run --shell nosuchshell true"),
    Wrong("a shell that is a directory", "run --shell {tmp} true"),
    Wrong("a shell that is not executable", "run --shell {tmp}/file true"),
    Wrong("a shell without a name", "run --shell '' true"),
    Wrong("an unknown shell in the settings", "run true", env={"OUTLAST_SHELL": "nosuchshell"}),
    Wrong("a missing input file", "run --stdin {tmp}/missing cat"),
    Wrong("an input file that is a directory", "run --stdin {tmp} cat"),
    Wrong("an input file that may not be read", "run --stdin {tmp}/secret cat", needs="plain"),
    Wrong("an input without a name", "run --stdin '' cat"),
    Wrong("a description that is too long", "run --description {long} true"),
    # --- run: numbers and names ---
    Wrong("a negative limit", "run --limit -1 true"),
    Wrong("a limit of nothing", "run --limit 0 true"),
    Wrong("a limit that is not a number", "run --limit nan true"),
    Wrong("a limit that is a word", "run --limit soon true"),
    Wrong("a negative wait", "run --wait -1 true"),
    Wrong("a negative wait in the background", "run --bg --wait -1 true"),
    Wrong("a session with a bad name", "run --session 'a b' true"),
    Wrong("a session without a name", "run --session '' true"),
    Wrong("a session with a bad name in the environment", "ps", env={"OUTLAST_SESSION": "../up"}),
    # --- verbs and options ---
    Wrong("an unknown verb", "frob"),
    Wrong("a mistyped verb", "shw"),
    Wrong("an option instead of a verb", "--frob"),
    Wrong("an unknown option", "run --frob true"),
    Wrong("an option of another verb", "ps --grace 1"),
    Wrong("an option without its value", "run --cwd"),
    Wrong("a part of an option's name", "logs --fil x {done}"),
    Wrong("a missing id", "show"),
    Wrong("a missing id among several", "kill"),
    Wrong("one word too many", "show {done} {running}"),
    Wrong("a completion for an unknown shell", "completion tcsh"),
    # --- ids ---
    Wrong("an unknown id", "show nosuchtask"),
    Wrong("a mistyped id", "show {mistyped}"),
    Wrong("an empty id", "show ''"),
    Wrong("an id that is a path", "show ../../etc"),
    Wrong("an id that is the directory above", "show .."),
    Wrong("an id with a line end and a control sequence", "show 'a\nb\x1b[2J'"),
    Wrong("an id as long as a novel", "show {long}"),
    Wrong("an ambiguous id", "logs bash-"),
    Wrong("an id of another session", "logs {other}", env={"OUTLAST_SESSION": "default"}),
    Wrong("one unknown id among several", "wait {done} nosuchtask"),
    # --- logs ---
    Wrong("a bad pattern", "logs --filter 'a(b' {done}"),
    Wrong("a bad pattern to leave out", "logs --exclude '[a-' {done}"),
    Wrong("a look-ahead", "logs --filter 'a(?=b)' {done}"),
    Wrong("a back-reference", "logs --filter '(a)\\1' {done}"),
    Wrong("a negative tail", "logs --tail -1 {done}"),
    Wrong("a tail that is a word", "logs --tail all {done}"),
    Wrong("a bad cursor", "logs --from here {done}"),
    Wrong("a negative cursor", "logs --from -1 {done}"),
    Wrong("an empty cursor", "logs --from '' {done}"),
    Wrong("a bad range of lines", "logs --lines a:b {done}"),
    Wrong("a range of lines without a number", "logs --lines '' {done}"),
    Wrong("a line before the first", "logs --lines 0:5 {done}"),
    Wrong("a range of lines that ends before it starts", "logs --lines 5:3 {done}"),
    Wrong("an unknown stream", "logs --stream stdlog {done}"),
    Wrong("stderr of a task whose streams are merged", "logs --stream stderr {done}"),
    Wrong("JSON that goes on for ever", "logs --json -f {done}"),
    Wrong("JSON of raw bytes", "logs --json --raw {done}"),
    Wrong("new since the last time, and from a cursor", "logs --new --from 0 {done}"),
    Wrong("from a cursor, and the last lines", "logs --from 0 --tail 1 {done}"),
    Wrong("raw bytes, but only some lines", "logs --raw --filter a {done}"),
    # --- ps, wait ---
    Wrong("an unknown status", "ps --status busy"),
    Wrong("an unknown filter of the dashboard", "tasks busy"),
    Wrong("a dashboard that is watched as JSON", "tasks --watch --json"),
    Wrong("two things to wait for", "wait --until a --port 80 {running}"),
    Wrong("a bad pattern to wait for", "wait --until '(' {running}"),
    Wrong("an empty pattern to wait for", "wait --until '' {running}"),
    Wrong("a port out of range", "wait --port 65536 {running}"),
    Wrong("a port that is no number", "wait --port http {running}"),
    Wrong("a URL of something else", "wait --url ftp://localhost/ {running}"),
    Wrong("a URL without a host", "wait --url 'http://' {running}"),
    Wrong("no quiet at all", "wait --quiet 0 {running}"),
    Wrong("an endless quiet", "wait --quiet inf {running}"),
    Wrong("ready in the foreground", "run --ready up true"),
    Wrong("a bad pattern for ready", "run --bg --ready '[' true"),
    Wrong("a setting that is neither true nor false", "run true", env={"OUTLAST_AUTO_BACKGROUND": "perhaps"}),
    Wrong("a negative startup wait", "run --bg --startup-wait -1 true"),
    Wrong("a negative timeout", "wait --timeout -1 {running}"),
    Wrong("a timeout that is not a number", "wait --timeout nan {running}"),
    Wrong("a timeout that is a word", "wait --timeout soon {running}"),
    # --- kill, send, clean ---
    Wrong("kill of an ended task", "kill {done}"),
    Wrong("kill of a running and an ended task", "kill {running} {done}"),
    Wrong("a negative grace", "kill --grace -1 {running}"),
    Wrong("a grace that is not a number", "kill --grace nan {running}"),
    Wrong("nothing to send", "send {fed}"),
    Wrong("send to a task that takes no input", "send {running} hello"),
    Wrong("send after the end of the input", "send {deaf} hello"),
    Wrong("send to an ended task", "send {gone} hello"),
    Wrong("an age that is a word", "clean --older-than old"),
    Wrong("an age that is not a number", "clean --older-than nan"),
    Wrong("a negative age", "clean --older-than -1"),
    Wrong("an age, and all of them", "clean --older-than 1 --all-finished"),
    # --- damaged tasks ---
    Wrong("a damaged record", "show {torn}"),
    Wrong("a damaged launch", "logs {broken}"),
    Wrong("a task without its files", "wait {empty}"),
    Wrong("a task of a newer version", "show {newer}"),
    # --- the state directory ---
    Wrong("a state directory that cannot be made", "ps", env={"OUTLAST_HOME": "/proc/outlast"}),
    Wrong("a state directory that may not be made", "run true", env={"OUTLAST_HOME": "/outlast"}, needs="plain"),
    Wrong("a state directory that is a file", "ps", env={"OUTLAST_HOME": "{tmp}/file"}),
    Wrong("a state directory below a file", "run true", env={"OUTLAST_HOME": "{tmp}/file/x"}),
    Wrong("a state directory that is a link", "ps", env={"OUTLAST_HOME": "{tmp}/link"}),
    Wrong("a state directory of somebody else", "run true", env={"OUTLAST_HOME": "{foreign}"}, needs="foreign"),
    Wrong("a state directory that holds other things", "run true", env={"OUTLAST_HOME": "{tmp}/full"}),
    Wrong("a link inside the state directory", "ps", env={"OUTLAST_HOME": "{tmp}/linked"}),
    Wrong("a newer format", "run true", env={"OUTLAST_HOME": "{tmp}/newer"}),
    Wrong("a format that is no number", "ps", env={"OUTLAST_HOME": "{tmp}/strange"}),
    # --- settings ---
    Wrong("a pattern to notify of that is none", "run --notify '(' true"),
    Wrong("an empty pattern to notify of", "run --notify '' true"),
    Wrong("a silence that is no time", "run --silent-after -1 true"),
    Wrong("nowhere to tell", "notices --to nowhere"),
    Wrong("a command to tell that is empty", "notices --to exec:"),
    Wrong("two ways to show notices", "notices --all --for-model"),
    Wrong("a name beside an address", "notices --name me --to bell"),
    Wrong("a time to stop without following", "notices --timeout 5"),
    Wrong("a subscriber without a name", "notices --name ''"),
    Wrong("events after less than nothing", "events --after -1"),
    Wrong("a time to stop that follows nothing", "events --timeout 5"),
    Wrong("events of an unknown profile", "events --profile nobody"),
    Wrong("no notice to verify", "verify"),
    Wrong("a settings file that is not TOML", "ps", env={"OUTLAST_HOME": "{tmp}/not-toml"}),
    Wrong("a settings file that is a directory", "ps", env={"OUTLAST_HOME": "{tmp}/directory"}),
    Wrong("a settings file that may not be read", "ps", env={"OUTLAST_HOME": "{tmp}/unreadable"}, needs="plain"),
    Wrong("an unknown setting", "ps", env={"OUTLAST_HOME": "{tmp}/unknown"}),
    Wrong("a setting that is not a number", "run true", env={"OUTLAST_HOME": "{tmp}/word"}),
    Wrong("a setting that is yes or no", "run true", env={"OUTLAST_HOME": "{tmp}/yes"}),
    Wrong("a negative setting", "run true", env={"OUTLAST_HOME": "{tmp}/negative"}),
    Wrong("a setting that is not text", "run true", env={"OUTLAST_HOME": "{tmp}/number"}),
    Wrong("a variable that is not a number", "run true", env={"OUTLAST_RETENTION_HOURS": "a day"}),
    Wrong("a variable that is not a whole number", "run true", env={"OUTLAST_OUTPUT_LIMIT_BYTES": "1.5"}),
    Wrong("a variable that is too small", "run true", env={"OUTLAST_OUTPUT_LIMIT_BYTES": "1"}),
    Wrong("a variable that is negative", "run true", env={"OUTLAST_FOREGROUND_LIMIT_S": "-1"}),
]

CONFIGS = {
    "not-toml": "retention_hours = = 1\n",
    "unreadable": "retention_hours = 1\n",
    "unknown": "retention_days = 1\n",
    "word": 'kill_grace_s = "long"\n',
    "yes": "kill_grace_s = true\n",
    "negative": "retention_hours = -1\n",
    "number": "session = 5\n",
}

# What the command line cannot even ask for.
IN_PYTHON = {
    "a NUL byte in the command": r"shell.run('a\0b')",
    "half a character in the command": r"shell.run('\ud800')",
    "a command that is bytes": "shell.run(b'true')",
    "a NUL byte in the directory": r"shell.run('true', cwd='a\0b')",
    "a NUL byte in a variable": r"shell.run('true', env={'A': '\0'})",
    "= in a variable's name": "shell.run('true', env={'A=B': ''})",
    "a variable that is a number": "shell.run('true', env={'A': 1})",
    "a limit that is text": "shell.run('true', limit='5')",
    "a limit that is yes": "shell.run('true', limit=True)",
    "a wait that is text": "shell.run('true', wait='5')",
    "an input that is a number": "shell.run('cat', stdin=5)",
    "an input with half a character": r"shell.run('cat', stdin='\ud800')",
    "an input from a pipe": "shell.run('cat', stdin=Stdin(file=tmp + '/pipe'))",
    "a description that is a number": "shell.run('true', description=5)",
    "an unknown policy": "Shell.open(tmp + '/new', policy='maybe')",
    "a session that is a number": "Shell.open(tmp + '/new', session=5)",
    "an id that is a number": "shell.show(5)",
    "new since the last time, and a tail": "shell.read(done, new=True, tail=1)",
    "fewer characters than one": "shell.read(done, max_chars=0)",
    "an age that is text": "shell.clean(older_than_hours='1')",
    "a number to send": "shell.send(fed, 5)",
}


# --- the scene ---------------------------------------------------------------------------


class Scene:
    """A state directory with tasks of every kind, and beside it everything that can be wrong with one."""

    def __init__(self, top: str) -> None:
        self.tmp = Path(top, "tmp")
        self.home = str(Path(top, "state"))
        self.cli = Cli(self.home)
        self.names = {"tmp": str(self.tmp), "long": "x" * 3000}

    def set_up(self) -> None:
        self._make_files()
        self._make_homes()
        with Shell.open(home=self.home) as shell:
            self._make_tasks(shell)
        with Shell.open(home=self.home, session="other") as shell:
            self.names["other"] = shell.run("true").task_id

    def _make_files(self) -> None:
        self.tmp.mkdir()
        (self.tmp / "file").write_text("")
        (self.tmp / "closed").mkdir(mode=0)
        (self.tmp / "secret").touch(mode=0)
        os.mkfifo(self.tmp / "pipe")

    def _make_homes(self) -> None:
        for name, text in CONFIGS.items():
            (self.tmp / name).mkdir()
            (self.tmp / name / "config.toml").write_text(text)
        (self.tmp / "unreadable" / "config.toml").chmod(0)
        (self.tmp / "directory" / "config.toml").mkdir(parents=True)
        for name, text in {"newer": "99\n", "strange": "one\n"}.items():
            (self.tmp / name).mkdir(mode=0o700)
            (self.tmp / name / "format").write_text(text)
        (self.tmp / "link").symlink_to(self.tmp / "elsewhere")
        (self.tmp / "elsewhere").mkdir()
        (self.tmp / "linked").mkdir()
        (self.tmp / "linked" / "format").write_text("1\n")
        (self.tmp / "linked" / "tasks").symlink_to(self.tmp / "elsewhere")
        (self.tmp / "full").mkdir()
        (self.tmp / "full" / "thesis.txt").write_text("")
        self.names["foreign"] = self._foreign()

    def _foreign(self) -> str:
        """A directory of another user: made by root, found by everybody else."""
        if ROOT:
            path = self.tmp / "foreign"
            path.mkdir(mode=0o700)
            os.chown(path, 65534, 65534)
            return str(path)
        places = ("/root", "/var/lib/private", "/lost+found", "/var/cache/ldconfig")
        return next((place for place in places if os.path.isdir(place) and not os.access(place, os.R_OK)), "")

    def _make_tasks(self, shell: Shell) -> None:
        ids = self.names
        ids["done"] = shell.run("printf 'a\\nb\\n'").task_id
        ids["gone"] = shell.run("true", stdin=Stdin(open=True)).task_id
        for name in ("torn", "broken", "empty", "newer"):
            ids[name] = shell.run("true").task_id
        for name in ("running", "fed", "deaf"):
            ids[name] = shell.start("exec sleep 1000", stdin=Stdin(open=name != "running")).task_id
        shell.send(ids["deaf"], eof=True)
        ids["mistyped"] = ids["done"][:-1] + ("0" if ids["done"][-1] != "0" else "1")
        for name in ("torn", "broken", "empty", "newer"):
            self._damage(name, Path(shell.show(ids[name]).output_file).parent)

    def _damage(self, how: str, directory: Path) -> None:
        launch = directory / "launch.json"
        match how:
            case "torn":
                start, _ = record.SLOTS["outcome"]
                with open(directory / record.NAME, "r+b") as file:
                    file.seek(start)
                    file.write(b"00000000 {")
            case "broken":
                launch.write_text("{")
            case "empty":
                shutil.rmtree(directory)
                directory.mkdir()
            case "newer":
                launch.write_text(json.dumps({**json.loads(launch.read_text()), "format": 99}))

    def tear_down(self) -> None:
        with Shell.open(home=self.home, operator=True) as shell:
            end_all(shell)

    def fill(self, text: str) -> str:
        """`text` with its braces filled."""
        for name, value in self.names.items():
            text = text.replace(f"{{{name}}}", value)
        return text

    def hide(self, text: str) -> str:
        """`text` without what differs from run to run."""
        for name, value in sorted(self.names.items(), key=lambda item: -len(item[1])):
            if value:
                text = text.replace(value, f"{{{name}}}")
        text = re.sub(r"near it are .*\.$", "near it are {near}.", text)
        text = re.sub(r"fits \d+ tasks: .*;", "fits {number} tasks: {some} and {number} more;", text)
        return re.sub(r"uid \d+", "uid {uid}", text)

    def skips(self, wrong: Wrong) -> str:
        """Why this cannot be tried here."""
        if wrong.needs == "plain" and ROOT:
            return "root may do it"
        if wrong.needs == "foreign" and not self.names["foreign"]:
            return "there is no directory here that only somebody else can read"
        return ""

    def words(self, wrong: Wrong) -> list[str]:
        return shlex.split(self.fill(wrong.words))

    def environment(self, wrong: Wrong) -> dict[str, str]:
        return {**self.cli.env, **{name: self.fill(value) for name, value in wrong.env.items()}}

    def contents(self) -> dict[str, list[str]]:
        """What there is on disk."""
        return {
            str(path): sorted(entry.name for entry in path.iterdir())
            for path in [*Path(self.home).iterdir(), self.tmp, *self.tmp.iterdir()]
            if path.is_dir() and os.access(path, os.R_OK)
        }


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    top = tempfile.mkdtemp(prefix="outlast-wrong-")
    made = Scene(top)
    try:
        made.set_up()
        yield made
    finally:
        made.tear_down()
        eventually(lambda: not processes_of(made.home), what="nothing runs any more")
        for path in Path(top).rglob("*"):
            if path.is_dir() and not path.is_symlink() and path.stat().st_uid == os.geteuid():
                path.chmod(0o700)
        shutil.rmtree(top)


# --- the tests ---------------------------------------------------------------------------


def one_sentence(text: str) -> bool:
    """Whether it reads as one sentence for people, and nothing of ours shows through."""
    ours = ("Traceback", "Errno", "None", "<class", "object at", "\\n\\n")
    return text.endswith(".") and text == text.strip() and ". " not in text and not any(word in text for word in ours)


def test_every_wrong_use_gets_its_sentence(scene: Scene) -> None:
    before, running = scene.contents(), processes_of(scene.home).keys()
    entries = {}
    for wrong in WRONG:
        if scene.skips(wrong):
            continue
        code, out, err = _forked(scene.words(wrong), scene.environment(wrong), scene.tmp, wrong.stdin)
        sentence = json.loads(out)["message"] if "--json" in wrong.words else _told(out, err)
        assert one_sentence(sentence), (wrong.what, sentence)
        assert code in (1, 2, 125), (wrong.what, code)
        entries[wrong.what] = _entry(wrong.what, _asked(wrong), str(code), scene.hide(sentence))
    entries |= {f"in Python: {what}": text for what, text in _in_python(scene).items()}
    _compare(entries)
    assert scene.contents() == before, "something was left behind"
    eventually(lambda: processes_of(scene.home).keys() <= running, what="no process was left behind")
    with Shell.open(home=scene.home) as shell:
        assert {shell.show(scene.names[name]).status for name in ("running", "fed", "deaf")} == {"running"}


def _told(out: bytes, err: bytes) -> str:
    """The sentence; it is all that was printed."""
    said = err.decode()
    assert out == b""
    assert said.startswith("outlast: ")
    assert said.count("\n") == 1
    return said.removeprefix("outlast: ").rstrip("\n")


def _in_python(scene: Scene) -> dict[str, str]:
    entries = {}
    with Shell.open(home=scene.home) as shell:
        known = {"shell": shell, "Shell": Shell, "Stdin": Stdin, **scene.names}
        for what, asked in IN_PYTHON.items():
            with pytest.raises(OutlastError) as caught:
                eval(asked, known)
            assert one_sentence(caught.value.message), (what, caught.value.message)
            answer = scene.hide(caught.value.message)
            entries[what] = _entry(f"in Python: {what}", f">>> {asked}", caught.value.code, answer)
    return entries


def _asked(wrong: Wrong) -> str:
    given = "".join(f"{name}={shlex.quote(value) if ' ' in value else value} " for name, value in wrong.env.items())
    typed = f" < {len(wrong.stdin)} bytes" if wrong.stdin else ""
    shown = "".join(char if char.isprintable() else repr(char)[1:-1] for char in wrong.words)
    return f"$ {given}outlast {shown}{typed}"


def _entry(what: str, asked: str, code: str, sentence: str) -> str:
    return f"# {what}\n{asked}\n{code}: {sentence}\n"


def _compare(entries: dict[str, str]) -> None:
    """Each entry against the golden file; what cannot be tried here keeps what others agreed on."""
    path = GOLDEN / FILE
    known = _parsed(path.read_text()) if path.exists() else {}
    wanted = [wrong.what for wrong in WRONG] + [f"in Python: {what}" for what in IN_PYTHON]
    now = {what: entries.get(what) or known.get(what, f"# {what}\n(never tried)\n") for what in wanted}
    text = HEAD + "".join(f"\n{now[what]}" for what in wanted)
    assert agreed(FILE, text) == text


def _parsed(text: str) -> dict[str, str]:
    return {
        part[2:].partition("\n")[0]: part.rstrip("\n") + "\n" for part in re.split(r"^(?=# )", text, flags=re.M)[1:]
    }


def test_there_are_at_least_fifty_and_no_two_are_called_the_same() -> None:
    assert len(WRONG) >= 50
    assert len({wrong.what for wrong in WRONG}) == len(WRONG)


def test_as_json_an_error_has_a_code_and_the_same_sentence(scene: Scene) -> None:
    known = _parsed((GOLDEN / FILE).read_text())
    for wrong in WRONG:
        verb, *words = scene.words(wrong)
        if verb in NO_JSON or scene.skips(wrong):
            continue
        code, out, err = _forked([verb, "--json", *words], scene.environment(wrong), scene.tmp, wrong.stdin)
        assert err == b"", (wrong.what, err)
        said = json.loads(out)
        assert set(said) == {"error", "message"}, wrong.what
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", said["error"]), wrong.what
        assert f"\n{code}: {scene.hide(said['message'])}\n" in known[wrong.what], (wrong.what, said)


def test_json_is_not_ours_if_it_is_a_word_of_the_command(scene: Scene) -> None:
    words = ["run", "--cwd", f"{scene.tmp}/missing", "echo", "--json"]
    _, out, err = _forked(words, scene.cli.env, scene.tmp, b"")
    assert "does not exist" in _told(out, err)


@pytest.mark.parametrize("wrong", WRONG[::12], ids=lambda wrong: wrong.what)
def test_a_process_of_its_own_says_the_same(scene: Scene, wrong: Wrong) -> None:
    if scene.skips(wrong):
        pytest.skip(scene.skips(wrong))
    words = [*scene.cli.command, *scene.words(wrong)]
    env = scene.environment(wrong)
    ran = subprocess.run(words, input=wrong.stdin, env=env, cwd=scene.tmp, capture_output=True, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == _forked(scene.words(wrong), env, scene.tmp, wrong.stdin)


def _forked(words: list[str], env: dict[str, str], cwd: Path, given: bytes) -> tuple[int, bytes, bytes]:
    """The command line in a fork of ours: as in a process of its own, without the time that its start takes."""
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        stdin.write(given)
        stdin.seek(0)
        pid = os.fork()
        if pid == 0:
            try:
                for number, file in enumerate((stdin, out, err)):
                    os.dup2(file.fileno(), number)
                sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)
                os.chdir(cwd)
                os.environ.clear()
                os.environ.update(env)
                code = main(words)
                sys.stdout.flush()
                os._exit(code)
            finally:
                os._exit(99)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return code, os.pread(out.fileno(), 1 << 20, 0), os.pread(err.fileno(), 1 << 20, 0)


# --- what is wrong around us -------------------------------------------------------------


def test_a_command_in_a_directory_that_was_removed_is_told_so(cli: Cli, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    words = shlex.join([*cli.command, "run", "true"])
    ran = subprocess.run(
        ["bash", "-c", f"rmdir {gone}; {words}"], cwd=gone, env=cli.env, capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 2
    assert ran.stderr == "outlast: The current directory does not exist any more; name another one to run in.\n"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_reason_to_fail(cli: Cli, tmp_path: Path, closed: str) -> None:
    words = shlex.join([*cli.command, "run", "--stdin", "-", "cat; echo out; echo err >&2; exit 3"])
    ran = subprocess.run(
        ["bash", "-c", f"{words} {closed}"], stdin=subprocess.DEVNULL, env=cli.env, capture_output=True
    )
    assert ran.returncode == 3, ran.stderr
    assert b"Traceback" not in ran.stdout + ran.stderr
    (task,) = cli("ps", "--json").stdout.splitlines()
    assert cli("logs", json.loads(task)["task_id"]).stdout == "out\nerr\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")
@pytest.mark.parametrize("verb", ["run 'echo hi'", "ps", "--help"])
def test_an_output_that_takes_nothing_is_told_in_one_sentence(cli: Cli, verb: str) -> None:
    words = f"{shlex.join(cli.command)} {verb}"
    ran = subprocess.run(["bash", "-c", f"{words} >/dev/full"], env=cli.env, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 125
    assert ran.stderr.startswith("outlast: ")
    assert "No space left on device" in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_text_that_the_locale_cannot_show_is_shown_anyway(cli: Cli) -> None:
    cli.env |= {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ran = subprocess.run([*cli.command, "run", "--json", "echo é \udcff"], env=cli.env, capture_output=True, timeout=60)
    said = json.loads(ran.stdout.decode("utf-8"))
    assert said["output"] == "é �\n"
    assert os.fsencode(said["command"]) == "echo é ".encode() + b"\xff"
    assert cli("ps", check=0).stderr == ""


def test_the_command_line_can_be_killed_and_its_task_goes_on(cli: Cli) -> None:
    running = cli.start("run", "exec sleep 1000")
    task = the_running(cli)
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=30)
    assert cli.json("show", task["task_id"])["status"] == "running"
