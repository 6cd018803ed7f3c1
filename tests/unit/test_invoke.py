"""How a text is run, with a real bash: as `bash -c` would, and with the status of each stage."""

from __future__ import annotations

import os
import subprocess
from typing import NamedTuple

import pytest

from outlast.executors.local import shell_argv
from outlast.light import frozen
from outlast.storage import record
from outlast.storage.record import PIPES

BASH = "/bin/bash"


@frozen
class Ran:
    code: int
    out: bytes
    err: bytes
    stages: tuple[int, ...] | None


class Machine(NamedTuple):
    """A directory for each run, as a task has one."""

    path: str

    def ours(self, command: str, env: dict[str, str] | None = None) -> Ran:
        directory = os.path.join(self.path, "task")
        os.mkdir(directory)
        with open(os.path.join(directory, "command"), "wb") as file:
            file.write(os.fsencode(command))
        record.create_pipes(command, directory)
        ran = self._run(shell_argv.build_bash(directory, ""), env)
        several = "|" in command or "!" in command
        stages = (
            record.parse_pipe_status(ran.returncode, self._written() if several else None)
            if ran.returncode >= 0
            else None
        )
        return Ran(ran.returncode, ran.stdout, ran.stderr, stages)

    def plain(self, command: str, env: dict[str, str] | None = None) -> Ran:
        ran = self._run(["bash", "-c", command], env)
        return Ran(ran.returncode, ran.stdout, ran.stderr, None)

    def _run(self, arguments: list[str], env: dict[str, str] | None) -> subprocess.CompletedProcess[bytes]:
        here = os.path.join(self.path, "here")
        os.makedirs(here, exist_ok=True)
        env = {**os.environ, **(env or {})}
        go, told = os.pipe()
        os.write(told, b"g\n")
        os.close(told)
        try:
            return subprocess.run(
                arguments,
                executable=BASH,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env=env,
                cwd=here,
                timeout=60,
                pass_fds=[shell_argv.GO_FD],
                preexec_fn=lambda: (os.dup2(go, shell_argv.GO_FD), None)[1],
            )
        finally:
            os.close(go)

    def _written(self) -> str:
        try:
            with open(os.path.join(self.path, "task", PIPES)) as file:
                return file.read()
        except FileNotFoundError:
            return ""


@pytest.fixture
def machine(tmp_path):
    return Machine(str(tmp_path))


# What runs, and the status of each stage of its last pipeline; None: not known, and not guessed.
SHAPES: dict[str, tuple[int, ...] | None] = {
    "true": (0,),
    "false": (1,),
    "exit 3": (3,),
    "true; (exit 9)": (9,),
    "false | true": (1, 0),
    "true | false": (0, 1),
    "true |& false": (0, 1),
    "true | false | cat | (exit 3) | cat": (0, 1, 0, 3, 0),
    "exit 5 | exit 4": (5, 4),
    "yes | head -1": (141, 0),
    "nonexisting_cmd 2>/dev/null | cat": (127, 0),
    "bash -c 'kill -9 $$' | cat": (137, 0),
    "! true": (0,),
    "! false | true": (1, 0),
    "false | true; exit 7": (7,),
    "true | false\n\n\n": (0, 1),
    "true | false;": (0, 1),
    "true | false # | the end": (0, 1),
    "# only | a comment": (0,),
    "sleep 0 | cat &": (0,),
    "true | false || true": (0,),
    "true | false && true": (0, 1),
    "{ false | true; }": (1, 0),
    "(false | true)": (0,),
    "f() { false | true; }; f": (0,),
    "f() { false | true; }; f | cat": (0, 0),
    "for i in 1 2; do false | true; done": (1, 0),
    "case a in a) true | false;; esac": (0, 1),
    "while false; do :; done | cat": (0, 0),
    "x=$(true | false)": (1,),
    "[[ a == a || b ]]": (0,),
    "eval 'false | true'": (0,),
    "time true | false": (0, 1),
    "true | cat <<E\nx\nE": (0, 0),
    "cat <<E | (cat; exit 1)\nx | y\nE": (0, 1),
    "set -e; false | true; echo a": (0,),
    "set -e; true | false; echo a": (0, 1),
    "set -eo pipefail; false | true; echo a": (1, 0),
    "set -e; exit 3 | exit 4": (3, 4),
    "set -o noclobber; true | false": (0, 1),
    "set -o posix; true | false": (0, 1),
    "umask 777; true | false": (0, 1),
    "cd /; true | false": (0, 1),
    "exec 2>&-; true | false": (0, 1),
    "exec >&-; true | false": (0, 1),
    "trap 'echo bye' EXIT; false | true": (1, 0),
    "PIPESTATUS=5; true | false": (0, 1),
    "BASH=/nowhere; true | false": (0, 1),
    "IFS=0; true | false": (0, 1),
    "IFS=1; true | false": (0, 1),
    "IFS=,17; false | (exit 17)": (1, 17),
    "set -- a b; echo $# | cat": (0, 0),
    # The shell was replaced, or somebody else decided: nobody knows.
    "true | false; exec true": None,
    "trap 'exit 9' EXIT; false | true": None,
    "cat <<E | cat\nnever closed": None,
    "echo a | cat \\": None,
    "echo a |": None,
    "set -n; true | false": None,
}

# What only has to be as with `bash -c`: output, messages and exit code.
AS_BASH = [
    "echo $0 $# $@",
    "echo $0 $# $@ | cat",
    "\n\nnonexisting_cmd",
    "\n\nnonexisting_cmd; true | true",
    "echo $LINENO\necho $LINENO | cat",
    "set -u; echo $nope",
    "set -u; echo $nope | cat; echo after",
    "return 3",
    "break | cat",
    "echo a \\",
    "cat <<E\nhi",
    "cat <<E\nhi\nE",
    "sleep 0 &",
    "sleep 0 & # in the background",
    "printf 'a\\0b' | od -c",
    "kill -9 $$",
    "true | kill -9 $$",
    "kill -TERM $$ | cat",
    "coproc cat; true | false",
    "builtin() { :; }; true | false",
    "printf() { echo p; }; true | false",
    "exit() { echo e; }; true | false",
    "trap() { echo t; }; true | false",
    "eval() { echo v; }; true | false",
    "trap 'echo debug' DEBUG; true | false",
    "set -T; trap 'echo debug $BASH_COMMAND' DEBUG; f() { true | false; }; f",
    "trap 'echo err' ERR; false",
    "trap 'echo err' ERR; true | false",
    "trap 'echo return' RETURN; f() { true | false; }; f",
    "set -e; trap 'echo err' ERR; true | false; echo no",
    "ulimit -f 0; true | false",
    "ulimit -f 0; true | false; exit 3",
    "enable -n printf; true | false",
    "alias x='echo a |'; shopt -s expand_aliases\nx cat",
    "declare -f | cat",
    "cat; echo $? | cat",
    "echo '\u00e9\U0001f600' | cat",
    "echo '\udcff\udc80' | cat",
    "echo trailing  \n\n",
]


@pytest.mark.parametrize("command", SHAPES)
def test_each_stage_of_the_last_pipeline_has_its_status(machine, command):
    ran = machine.ours(command)
    assert ran.stages == SHAPES[command]
    if ran.stages and len(ran.stages) > 1 and "!" not in command and "pipefail" not in command:
        assert ran.stages[-1] == ran.code


@pytest.mark.parametrize("command", [*AS_BASH, *(c for c in SHAPES if not c.endswith("|") and "time" not in c)])
def test_a_text_runs_as_with_bash_c(machine, command):
    ours, plain = machine.ours(command), machine.plain(command)
    assert (ours.code, ours.out, ours.err) == (plain.code, plain.out, plain.err)


@pytest.mark.parametrize(
    "command", ["echo )", "echo 'a", "if true; then", "echo a |", "echo a &&", "a | ) b", "x | ! y"]
)
def test_a_syntax_error_shows_the_users_text_and_nothing_of_ours(machine, command):
    ours, plain = machine.ours(command), machine.plain(command)
    assert (ours.code, ours.out) == (plain.code, plain.out)
    assert ours.err.replace(b"eval:", b"-c:") == plain.err
    assert b"outlast" not in ours.err


@pytest.mark.parametrize("command", ["set -x; echo a | cat >/dev/null", "set -x; true"])
def test_a_trace_shows_only_the_users_commands(machine, command):
    assert b"outlast" not in machine.ours(command).err


@pytest.mark.parametrize(
    "env",
    [
        {"SHELLOPTS": "errexit"},
        {"SHELLOPTS": "nounset:pipefail"},
        {"SHELLOPTS": "noclobber"},
        {"POSIXLY_CORRECT": "1"},
        {"BASHOPTS": "extglob"},
        {"BASH_FUNC_read%%": "() { echo not me; }"},
        {"BASH_FUNC_eval%%": "() { echo not me; }"},
        {"BASH_FUNC_shift%%": "() { echo not me; }"},
        {"BASH_ENV": "/dev/null"},
        {"IFS": "0123456789"},
    ],
    ids=str,
)
@pytest.mark.parametrize("command", ["echo hi", "false; echo b", "true | false; echo c", "true | false"])
def test_an_inherited_variable_changes_only_what_it_would_change_anyway(machine, env, command):
    ours, plain = machine.ours(command, env), machine.plain(command, env)
    assert (ours.code, ours.out, ours.err) == (plain.code, plain.out, plain.err)


def test_the_text_is_in_no_argument():
    words = [*shell_argv.build_bash("/tasks/x", ""), *shell_argv.build_bash("/tasks/x", "s")]
    assert not any("secret-word" in word for word in words)
    assert shell_argv.build_other_shell("/bin/dash", "/tasks/x") == ["/bin/dash", "/tasks/x/command"]


def test_a_long_text_with_a_long_pipeline_runs(machine):
    count = 300
    ran = machine.ours("#" + "x" * 200_000 + "\n" + " | ".join(["true"] * count) + " | false")
    assert ran.code == 1
    assert ran.stages == (0,) * count + (1,)


@pytest.mark.parametrize(
    ("command", "code", "written", "expected"),
    [
        ("a", 4, "", (4,)),
        ("a", 4, "end 0 0 ", (4,)),  # no pipeline of several stages: nobody had to write anything
        ("a | b", 0, "end 0 3 0 ", (3, 0)),
        ("a | b", 0, "", None),
        ("a | b", 0, "end", None),
        ("a | b", 0, "end 0", None),
        ("a | b", 1, "end 0 3 0 ", None),  # what was written is not how it ended
        ("a | b", 0, "end 0 3 x ", None),
        ("a | b", 0, "end 0 256 0 ", None),
        ("a | b", 0, "end 0 -1 0 ", None),
        ("a | b", 0, "end 0 \u00b2 0 ", None),
        ("a | b; exit 5", 5, "exit 5 0 0 ", (5,)),
        ("set -e; a | b", 2, "exit 2 0 2 ", (0, 2)),
    ],
)
def test_what_the_shell_wrote_is_believed_only_if_it_makes_sense(command, code, written, expected):
    assert record.parse_pipe_status(code, written if "|" in command else None) == expected
