"""What one command leaves, the next one finds: one table, each row a session of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from outlast import Shell
from outlast.storage import snapshot
from outlast.types import Result
from tests.conftest import end_all

Run = Callable[..., Result]


@pytest.fixture
def run(home: str) -> Iterator[Run]:
    """A command of session `s`, each time as another process would: with a `Shell` of its own."""

    def one(command: str, **how: Any) -> Result:
        with Shell.open(home=home, session="s") as shell:
            return shell.run(command, **how)

    yield one
    with Shell.open(home=home, session="s") as shell:
        end_all(shell)


# What is run one after the other, and what the last one prints.
ROWS: dict[str, tuple[list[str], str]] = {
    "a variable": (["a=1", "echo $a"], "1\n"),
    "not exported is not exported": (["a=1", "env | grep -c ^a= ; true"], "0\n"),
    "exported": (["export a=1", "env | grep ^a="], "a=1\n"),
    "newline and quotes": (["a=$'x\\ny\"\\'z'", 'printf %s "$a"'], "x\ny\"'z"),
    "every byte": (
        ['for i in {1..255}; do printf -v h %02x $i; printf -v c "\\\\x$h"; a+=$c; done', 'printf %s "$a" | cksum'],
        subprocess.run(["cksum"], input=bytes(range(1, 256)), capture_output=True).stdout.decode(),
    ),
    "array with holes": (["a=(1 [5]=x)", "declare -p a"], 'declare -a a=([0]="1" [5]="x")\n'),
    "associative": (["declare -A m=([a b]=c)", 'echo "${m[a b]}"'], "c\n"),
    "integer": (["declare -i n=2", "n+=3; echo $n"], "5\n"),
    "readonly": (["readonly r=1", "r=2; echo no", "echo $r"], "1\n"),
    "an attribute after the value": (["a=b-; declare -i a; b=Ab; declare -u b", "a=$a", "echo $a $b"], "b- Ab\n"),
    "arithmetic is not evaluated again": (
        ["a='x[$(echo ran >&2)]'; declare -i a", "true", "echo $a"],
        "x[$(echo ran >&2)]\n",
    ),
    "descriptors that bash closes": (
        ["shopt -s varredir_close; a=1", "a+=1", "echo $a; shopt varredir_close"],
        "11\nvarredir_close \ton\n",
    ),
    "unset stays unset": (["unset HOME", "echo ${HOME-none}"], "none\n"),
    "a usual variable stays unset": (["unset TERM", "echo ${TERM-none}"], "none\n"),
    "function with a here-document": (["f() { cat <<E\n$1 'x\nE\n}", "f 1"], "1 'x\n"),
    "function calls function": (["f() { g; }", "g() { echo g; }", "f"], "g\n"),
    "function of a builtin's name": (['cd() { builtin cd "$@" && echo in; }', "cd /"], "in\n"),
    "functions named as what we use": (
        ["printf() { echo p; }; declare() { echo d; }; eval() { :; }; a=1", "echo $a"],
        "1\n",
    ),
    "builtin itself as a function": (["builtin() { :; }; a=1", "echo $a"], "1\n"),
    "exported function": (["f() { echo f; }; export -f f", "bash -c f"], "f\n"),
    "function with extglob": (["shopt -s extglob\nf() { case $1 in !(a)) echo no;; esac; }", "f b"], "no\n"),
    "extglob function, extglob off": (
        ["shopt -s extglob\nf() { [[ $1 == +(a) ]] && echo y; }", "shopt -u extglob", "f aa"],
        "y\n",
    ),
    "alias": (["alias hi='echo hello'", "hi"], "hello\n"),
    "alias does not change functions": (["f() { true; }; alias true='echo changed'", "f", "f"], ""),
    "alias of what we use": (["alias builtin=false set=false; a=1", "a=2; exit 3", "echo $a"], "2\n"),
    "options": (["set -o pipefail; shopt -s nullglob", "false | true; echo $? /nowhere*"], "1\n"),
    "noclobber": (["set -C", "a=1", "echo $a $-"], "1 hBCc\n"),
    "noglob and IFS": (["set -f; IFS=0123456789", "a=1", 'echo "$a" *'], "1 *\n"),
    "readonly IFS": (["IFS=x; readonly IFS", "a=1", "echo $a"], "1\n"),
    "errexit": (["set -e", "a=1; false; a=2", "echo $a"], "1\n"),
    "errexit and nounset": (["set -eu; a=1", "a=2; echo $nothing; a=3", "echo $a"], "2\n"),
    "errexit in a pipeline": (["set -eo pipefail; a=1", "a=2; false | true; a=3", "echo $a"], "2\n"),
    "trace": (["set -x", "a=1", "set +x", "echo $a"], "1\n"),
    "trace to a descriptor": (["exec 5>/dev/null; BASH_XTRACEFD=5; set -x; a=1", "set +x", "echo $a"], "1\n"),
    "allexport": (["set -a", "a=1", "env | grep ^a="], "a=1\n"),
    "posix": (["set -o posix; a=1", "trap - INT; a=2; export b=3", "echo $a$b"], "23\n"),
    "noexec locks nobody out": (["a=1", "set -n", "echo $a"], "1\n"),
    "monitor is not carried on": (["set -m", "[[ $- == *m* ]] || echo off"], "off\n"),
    "umask": (["umask 027", "umask"], "0027\n"),
    "umask 777": (["umask 777; a=1", "umask; echo $a"], "0777\n1\n"),
    "directory": (["cd /usr", "pwd"], "/usr\n"),
    "cd -": (["cd /usr", "cd /etc", "cd - >/dev/null; pwd"], "/usr\n"),
    "pushd": (["pushd /usr /dev/null >/dev/null; cd /; pushd /etc; pushd /usr", "popd", "popd >/dev/null; pwd"], "/\n"),
    "positional parameters": (["set -- 'a b' '' c", 'printf "<%s>" "$@"'], "<a b><><c>"),
    "a trap": (["trap 'echo got' USR1", "kill -USR1 $$; true"], "got\n"),
    "an ignored signal": (["trap '' TERM", "kill $$; echo here"], "here\n"),
    "a trap removed": (["trap 'echo got' USR1", "trap - USR1", "trap"], ""),
    "ERR": (["trap 'echo err' ERR", "false", "false; true"], "err\n"),
    "ERR removed": (["trap 'echo err' ERR", "trap - ERR", "false; echo $?"], "1\n"),
    "ERR removed beside an EXIT trap": (["trap 'echo err' ERR", "trap - ERR; trap : EXIT", "false; echo $?"], "1\n"),
    "DEBUG": (["trap 'echo d' DEBUG", "true"], "d\n"),
    "a DEBUG trap that exits": (["a=1", "trap 'exit 9' DEBUG", "echo $a"], "1\n"),
    "RETURN": (["trap 'echo r' RETURN", "f() { :; }; f", "trap - RETURN; f"], ""),
    "exit": (["a=1; cd /usr; f() { echo f; }; exit 3", "echo $a; pwd; f"], "1\n/usr\nf\n"),
    "exit in a function": (["a=1; f() { local b=2; a=3; exit 1; }; f", "echo $a ${b-none}"], "3 none\n"),
    "exit in nested functions": (
        ["a=1 b=1", "g() { local a=9; exit; }; f() { local b=8; c=4; g; }; set -- x; f y", "echo $a $b $c $1"],
        "1 1 4\n",
    ),
    "exit where a local's name is not written": (["a=1", 'f() { local "$1=2"; exit; }; f a', "echo $a"], "1\n"),
    "exit in a sourced file": (
        ["cd /tmp; echo 'a=5; exit 4' > $BASHPID.sh; F=$PWD/$BASHPID.sh; . $F", "echo $a; rm $F"],
        "5\n",
    ),
    "exit in a subshell ends nothing": (["(a=2; exit 4); a=1", "echo $a"], "1\n"),
    "a syntax error": (["a=1; echo )", "a=2", "echo $a"], "2\n"),
    "a syntax error with a trace": (["set -x; a=1", "echo )", "echo $a 2>&1", "set +x", "echo $-"], "hBc\n"),
    "an incomplete text": (["a=1", "cat <<E\n$a", "echo $a"], "1\n"),
    "exec": (["a=1", "a=2; exec true", "echo $a"], "1\n"),
    "exec of a redirection": (["exec 3>&1 >/dev/null; a=1", "echo $a"], "1\n"),
    "exec that fails": (["a=1", "a=2; exec /nowhere", "echo $a"], "1\n"),
    "killed with -9": (["a=1; cd /usr", "a=2; cd /; kill -9 $$", "echo $a; pwd"], "1\n/usr\n"),
    "killed with TERM": (["a=1", "a=2; kill $$; sleep 5", "echo $a"], "2\n"),
    "closed outputs": (["exec >&- 2>&-; a=1", "echo $a"], "1\n"),
    "no file may be written": (["a=1", "a=2; ulimit -f 0", "echo $a"], "1\n"),
    "a user's EXIT trap": (["trap 'echo bye' EXIT; a=1", "echo $a"], "1\n"),
    "a user's EXIT trap and exit": (["trap 'echo bye' EXIT; a=1; exit 3", "echo $a"], "1\n"),
    "an EXIT trap of a function": (["f() { trap 'echo bye' EXIT; }", "f; a=1; exit 3", "echo $a"], "1\n"),
    "an EXIT trap that exits": (["trap 'exit 7' EXIT; a=1", "echo $a"], "1\n"),
    "an EXIT trap that was unset": (["trap 'echo no' EXIT; trap - EXIT; a=1", "echo $a"], "1\n"),
    "an EXIT trap of a subshell": (["(trap 'echo sub' 0; exit 2); a=1", "echo $a"], "1\n"),
    "BASH_ENV is a variable": (["export BASH_ENV=/dev/null", "echo $BASH_ENV"], "/dev/null\n"),
    "a value that looks like a border": (["f() { cat <<E\n#x variables\nE\n}; a=$'\\n#x end'", "f"], "#x variables\n"),
    "nothing of ours reaches a program": (["a=1; set -a", "env | grep -c __outlast; true"], "0\n"),
    "not exported any more": (["export -n SHLVL; unset OLDPWD; cd /", "env | grep -c -e SHLVL -e OLDPWD; true"], "0\n"),
    "SHLVL": (["echo $SHLVL > /dev/null; a=$SHLVL", "[[ $SHLVL == $a ]] && echo same"], "same\n"),
    "getopts": (["set -- -a -b; getopts ab o", "getopts ab o; echo $o"], "b\n"),
    "a name that begins with BASH": (["BASHED=1", "echo $BASHED"], "1\n"),
    "locale": (["export LC_ALL=C; a=é", "echo $a"], "é\n"),
}


@pytest.mark.parametrize("row", ROWS)
def test_the_next_command_finds_it(run: Run, row: str) -> None:
    commands, expected = ROWS[row]
    results = [run(command) for command in commands]
    assert results[-1].output == expected


@pytest.mark.parametrize(
    ("command", "code", "printed"),
    [
        ("trap 'echo bye $?' EXIT; exit 3", 3, "bye 3\n"),
        ("trap 'echo bye $?' EXIT; (exit 4)", 4, "bye 4\n"),
        ("trap 'echo bye' 0; false | true", 0, "bye\n"),
        ("trap 'exit 7' EXIT; true", 7, ""),
        ("trap 'echo bye' EXIT; trap -p EXIT", 0, "trap -- 'echo bye' EXIT\nbye\n"),
        ("set -e; trap 'echo bye; x=$y' EXIT; false", 1, "bye\n"),
        ("trap -p", 0, ""),
        ("trap 'echo a' USR1; trap", 0, "trap -- 'echo a' SIGUSR1\n"),
        ("trap \"echo 'q'\" ERR; trap -p ERR", 0, "trap -- 'echo '\\''q'\\''' ERR\n"),
        ("echo $- $0 $# $LINENO", 0, "hBc bash 0 1\n"),
        ("declare -F; alias", 0, ""),
        ("exit 3", 3, ""),
        ("return 3 2>/dev/null", 2, ""),
    ],
)
def test_a_command_of_a_session_runs_as_any_other(run: Run, command: str, code: int, printed: str) -> None:
    result = run(command)
    shown = "".join(line for line in result.output.splitlines(keepends=True) if "__outlast" not in line)
    assert (result.exit_code, shown) == (code, printed)


@pytest.mark.parametrize(("end", "code"), [("true", 0), ("false", 1), ("(exit 4)", 4), ("exit 5", 5)])
def test_the_exit_code_is_true_without_a_descriptor_for_the_state(run: Run, end: str, code: int) -> None:
    run("a=1")
    assert run(f"ulimit -n 3; a=2; {end}").exit_code == code
    assert run("echo $a").output == "1\n"


@pytest.mark.parametrize("end", ["true", "exit 3"])
def test_no_descriptor_of_ours_is_left_to_anybody(run: Run, end: str) -> None:
    for _ in range(2):
        result = run(f"ls /proc/$$/fd; trap 'ls /proc/$$/fd' EXIT; {end}")
        assert result.output.split() == ["0", "1", "2"] * 2


def test_an_exit_trap_belongs_to_its_command(run: Run) -> None:
    assert run("trap 'echo bye' EXIT; a=1").output == "bye\n"
    assert run("echo $a").output == "1\n"


def test_a_virtual_environment_stays_active(run: Run, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "v")], check=True, timeout=60)
    run(f"source {tmp_path}/v/bin/activate")
    assert run("command -v python; echo $VIRTUAL_ENV").output == f"{tmp_path}/v/bin/python\n{tmp_path}/v\n"
    run("deactivate")
    assert run("echo ${VIRTUAL_ENV-none}; declare -F deactivate || echo gone").output == "none\ngone\n"


def test_a_version_manager_like_nvm(run: Run, tmp_path: Path) -> None:
    for version in ("18", "20"):
        (tmp_path / version).mkdir()
        tool = tmp_path / version / "tool"
        tool.write_text(f"#!/bin/sh\necho {version}\n")
        tool.chmod(0o755)
    script = tmp_path / "nvm.sh"
    script.write_text(
        f"""export NVM_DIR={tmp_path}
nvm_strip() {{ command printf %s "$1" | command sed -e "s#$NVM_DIR/[^:]*:##g"; }}
nvm() {{
  local IFS=' ' version=$2
  case $1 in
    use) export PATH="$NVM_DIR/$version:$(nvm_strip "$PATH")"; export NVM_BIN="$NVM_DIR/$version"; hash -r ;;
    current) basename "$NVM_BIN" ;;
  esac
}}
"""
    )
    run(f". {script}")
    run("nvm use 18")
    assert run("tool; nvm current").output == "18\n18\n"
    run("nvm use 20")
    assert run("tool").output == "20\n"


def test_an_environment_manager_like_conda(run: Run, tmp_path: Path) -> None:
    exe = tmp_path / "conda"
    exe.write_text(
        "#!/bin/sh\n[ $2 = activate ] && printf '%s\\n' \"export CONDA_PREFIX='/envs/$3'\" \"export CONDA_SHLVL='1'\" "
        "\"PS1='($3) '\" \". '$0.d'\" || printf '%s\\n' 'unset CONDA_PREFIX' \"export CONDA_SHLVL='0'\"\n"
    )
    exe.chmod(0o755)
    (tmp_path / "conda.d").write_text("hook() { echo hook $CONDA_PREFIX; }\n")
    run(
        f"""export CONDA_EXE={exe}
__conda_exe() ( "$CONDA_EXE" "$@" )
__conda_activate() {{ local ask; ask="$(__conda_exe shell.posix "$@")" || return; eval "$ask"; }}
conda() {{ \\local cmd="${{1-__missing__}}"; case "$cmd" in activate|deactivate) __conda_activate "$@";; esac; }}"""
    )
    run("conda activate base")
    assert run('echo "$CONDA_PREFIX $CONDA_SHLVL $PS1"; hook').output == "/envs/base 1 (base) \nhook /envs/base\n"
    run("conda deactivate")
    assert run("echo ${CONDA_PREFIX-none} $CONDA_SHLVL").output == "none 0\n"


def test_a_directory_that_is_gone_ends_no_session(run: Run, tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    run(f"cd {deep}; x=1")
    shutil.rmtree(tmp_path / "a")
    assert run("pwd; echo $x").output == f"{tmp_path}\n1\n"


def test_a_directory_of_any_name(run: Run, tmp_path: Path) -> None:
    odd = os.fsencode(tmp_path) + b"/a\n'\xff \n"
    os.mkdir(odd)
    run(f"cd {tmp_path}/a*; x=1")
    assert run("printf '%q' \"${PWD##*/}\"; echo $x").output == "$'a\\n\\'\\377 \\n'1\n"


def test_a_link_to_a_directory_stays_one(run: Run, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    run(f"cd {tmp_path}/link")
    assert run("pwd; pwd -P").output == f"{tmp_path}/link\n{tmp_path}/real\n"


def test_a_large_state_is_whole(run: Run) -> None:
    body = "\n".join(f"  echo line {number} \"$1\" '{number}'" for number in range(10))
    text = "\n".join(f"function_{number}() {{\n{body}\n}}" for number in range(500))
    run(text)
    assert run("declare -F | grep -c function_; function_499 x | tail -1").output == "500\nline 9 x 9\n"


def test_another_shell_gets_the_variables_and_changes_nothing(run: Run) -> None:
    run("export A=1; B=2; cd /usr; export C=$'x\\ny'")
    assert run('echo "$A ${B-none} $C"; pwd; A=9; cd /', shell="/bin/sh").output == "1 none x\ny\n/usr\n"
    assert run("echo $A; pwd").output == "1\n/usr\n"


def test_a_function_that_the_caller_exported_is_the_sessions_own(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BASH_FUNC_given%%", "() {  echo given\n}")
    monkeypatch.setenv("odd.name", "1")
    run("a=1")
    assert run("given; env | grep odd").output == "given\nodd.name=1\n"
    run("unset -f given")
    assert run("given 2>/dev/null || echo gone; env | grep odd").output == "gone\nodd.name=1\n"


def test_what_bash_env_sets_is_there(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "env").write_text("from_env=1; times+=x; helper() { echo help; }\n")
    monkeypatch.setenv("BASH_ENV", str(tmp_path / "env"))
    assert run("echo $from_env; helper").output == "1\nhelp\n"
    assert run("echo $times; helper").output == "x\nhelp\n"


@pytest.mark.parametrize("name", ["PATH", "HOME", "LANG"])
def test_the_caller_has_no_say_in_a_session_that_is_there(run: Run, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    before = run(f"echo ${name}; a=1").output
    monkeypatch.setenv(name, os.environ.get(name, "") + "x")
    assert run(f"echo ${name}").output == before


def test_nothing_of_a_state_is_left_in_a_task(run: Run, home: str) -> None:
    task = run("SECRET=1; true").task_id
    run("true")  # the next command merges the one before it
    assert not {"before", "start", "state", "environ"} & set(os.listdir(os.path.join(home, "tasks", task)))
    kept = os.path.join(home, "sessions", "s", "snapshot")
    assert os.stat(kept).st_mode & 0o777 == 0o600
    assert os.stat(os.path.dirname(kept)).st_mode & 0o777 == 0o700


def test_what_did_not_change_is_not_written(run: Run, home: str) -> None:
    run("a=1")
    run("true")
    path = os.path.join(home, "sessions", "s", "snapshot")
    before = os.stat(path).st_ino
    run("true; ls / | cat >/dev/null; (a=2)")
    run("true")
    assert os.stat(path).st_ino == before
    with open(path, "rb") as file:
        assert snapshot.parse(file.read()).generation == 1
