"""A command can write its dump itself: whatever it writes, restoring the session runs nothing."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast import Shell
from outlast.storage import dump, snapshot
from tests.conftest import end_all

CANARY = ": >CANARY"  # a builtin: a forged state may have no PATH
RUN = f"$({CANARY})"
# Parts of a dump, each of which would run the canary if its text were restored as it is.
FORGED = [
    f'variables\ndeclare -- a="{RUN}"',
    f"variables\ndeclare -- a=`{CANARY}`",
    f"variables\ndeclare -- a={RUN}",
    f'variables\ndeclare -- a="x"; {CANARY}',
    f'variables\ndeclare -- a="x"{RUN}',
    f"variables\ndeclare -- a=$'x\\'; {CANARY}; '",
    f'variables\ndeclare -- a="x\\"; {CANARY}; "',
    f'variables\ndeclare -- a="x\\\\"; {CANARY}; ""',
    f'variables\ndeclare -a a=([0]="{RUN}")',
    f'variables\ndeclare -a a=([{RUN}]="x")',
    f'variables\ndeclare -a a=([0]="x"); {CANARY} #"',
    f'variables\ndeclare -- x="b[\\{RUN}]"\ndeclare -a a=([x]="1")',
    f'variables\ndeclare -a a=(["b[\\{RUN}]"]="1")',
    f'variables\ndeclare -A a=([{RUN}]="x")',
    f'variables\ndeclare -A a=(["{RUN}"]="x")',
    f"variables\ndeclare -a a='({RUN})'",
    f'variables\ndeclare -a a="(\\{RUN})"',
    f'variables\ndeclare -i a="b[\\{RUN}]"',
    f'variables\ndeclare -xi a="b[\\{RUN}]"',
    f'variables\ndeclare -ai a=([0]="b[\\{RUN}]")',
    f'variables\ndeclare -Ai a=([k]="b[\\{RUN}]")',
    f'variables\ndeclare -n a="b[\\{RUN}]"\ndeclare -- aa="1"',
    f'variables\ndeclare -- a[{RUN}]="x"',
    f'variables\ndeclare -- a{RUN}="x"',
    f'variables\ndeclare -{RUN} a="x"',
    f'variables\ndeclare -; {CANARY}; : a="x"',
    f"variables\ndeclare - a; {CANARY}",
    f"variables\ndeclare -f a; {CANARY}",
    f'variables\n\\declare -- a="x"; {CANARY}',
    f'variable\ndeclare -- a="x"\n{CANARY}',
    f'variable\ndeclare -- POSIXLY_CORRECT="y"; {CANARY}',
    f'variables\ndeclare -x __outlast_hot="{CANARY}"',
    f'variables\ndeclare -n hot="__outlast_hot"\ndeclare -- hot2="{CANARY}"',
    f"aliases\nbuiltin alias -- a=b; {CANARY}",
    f"aliases\nbuiltin alias -- a={RUN}",
    f"aliases\nbuiltin alias -- $'a=b'; {CANARY}",
    f"aliases\nbuiltin alias -- a=b\\\n{CANARY}",
    f"aliases\n{CANARY}",
    f"functions\ndeclare -f f\n\n#m function f\nf () \n{{ \n    :\n}}\n{CANARY}",
    f"functions\ndeclare -f f\n\n#m function f\nf () \n{{ \n    :\n}}; {CANARY}",
    f"functions\ndeclare -f f\n\n#m function f\n{CANARY}; f () \n{{ \n    :\n}}",
    f"functions\ndeclare -f f\n\n#m function f\nf () {{ :; }} > {RUN}\n{CANARY}",
    f"functions\ndeclare -f f\n\n#m function f\nf () \n{{ \n    cat <<E\n}}\nE\n}}\n{CANARY}\nf () \n{{ \n    :\n}}",
    f"functions\ndeclare -f f\n\n#m function f\n{CANARY}",
    f"functions\ndeclare -f f;{CANARY}\n\n#m function f;{CANARY}\nf;{CANARY} () \n{{ \n    :\n}}",
    f"functions\ndeclare -f;{CANARY} f\n\n#m function f\nf () \n{{ \n    :\n}}",
    f"functions\ndeclare -fx f\n\n#m declare -f f\n{CANARY}",
    f"declare -f f\n{CANARY}",
    f"traps\ntrap -- ''; {CANARY}; '' INT",
    f"traps\ntrap -- {RUN} INT",
    f"traps\ntrap -- \\;{CANARY}' INT",
    f"traps\ntrap -- '' INT; {CANARY}",
    f"traps\ntrap -- 'x' INT{RUN}",
    f"umask\n0022; {CANARY}",
    f"umask\n{RUN}",
    f"positional\n {RUN}",
    f"positional\n a; {CANARY}",
    f"positional\n $'a\\'; {CANARY}; '",
    f"positional\n a\n{CANARY}",
    f"dirs\n {RUN}",
    f"dirs\n a;{CANARY}",
    f"options errexit; {CANARY}:x",
    f"options {RUN}",
    f"shopts extglob;{CANARY}",
    f"code\n{CANARY}",
    f"rest\n{CANARY}",
]


@pytest.mark.parametrize("part", FORGED)
def test_a_forged_part_runs_nothing(part: str, tmp_path: Path) -> None:
    data = f'\n#m {part}\n\n#m variable\ndeclare -- kept="1"\n\n#m end end 1\n'
    found = dump.parse_dump(data.encode(), "m", {})
    assert found is not None
    composed = snapshot.compose(found.state, generation=1, task="", made=0.0, environ={})
    script = tmp_path / "snapshot"
    script.write_bytes(composed)
    where = tmp_path / "empty"
    where.mkdir()
    # The mark `m` is known to the forger; the snapshot has another one.
    driver = 'declare -A __outlast_pseudo; __outlast_dirs() { :; }; source "$1"; eval "$__outlast_hot"; echo "$kept"'
    told = subprocess.run(
        ["bash", "-c", driver, "bash", script], cwd=where, capture_output=True, text=True, check=False
    )
    assert list(where.iterdir()) == []
    assert told.stdout == "1\n", told.stderr


def test_what_bash_itself_writes_is_taken(home: str) -> None:
    made = (
        """a=$'x\\n\\'"$`'; declare -a b=([3]='$(x)' [7]=']'); declare -A c=(['k k']=1 [@]='a"' ['$(x)']=3 [é~#]=4)"""
        """; declare -i n=-5; declare -n r=a; f() { cat <<E; }\n}\nE\n"""
        """g-x() ( case $1 in @(a|b)) echo $1;; esac ) 2>&1; """
        """alias q='a '\\''b'; alias w=$'a\\nb'; trap "echo 'i'" USR1"""
        """; set -- 'p p' '$(x)' ~ ''; pushd / >/dev/null"""
    )
    show = """declare -p a b c n r; declare -f f g-x; alias q w; trap -p USR1; printf '%q ' "$@"; dirs"""
    with Shell.open(home=home, session="s") as shell:
        before = shell.run(f"shopt -s extglob; {made}\n{show}").output
        assert shell.run(show).output == before
        assert "g-x ()" in before
        end_all(shell)


@pytest.fixture
def named(home: str) -> Iterator[Shell]:
    with Shell.open(home=home, session="s") as opened:
        yield opened
        end_all(opened)


def test_a_command_that_writes_its_dump_itself(named: Shell, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    run = f"$(: >{canary})"
    forged = (
        '\\n#%s variables\\ndeclare -x a="' + run + '"\\ndeclare -x b="2"\\n'
        "\\n#%s functions\\ndeclare -f f\\n\\n#%s function f\\nf () \\n{ \\n    :\\n}\\n" + f": >{canary}\\n"
        "\\n#%s umask\\n0022; " + f": >{canary}\\n"
        "\\n#%s end end 1\\n"
    )
    marks = " ".join(['"$__outlast_mark"'] * 5)
    named.run(f"true; __outlast_dump() {{ printf '{forged}' {marks} >&\"$__outlast_out\"; }}")
    assert named.run("echo $b; declare -f f || echo none").output == "2\nf () \n{ \n    :\n}\n"
    assert not canary.exists()


def test_an_integer_that_is_no_number_is_not_evaluated_later(named: Shell, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    named.run(f"x='a[$(: >{canary})]'; declare -i x")
    assert named.run('echo "${x%%[*}"').output == "a\n"
    assert not canary.exists()


def test_a_library_that_a_command_names_is_not_loaded_into_the_next_shell(named: Shell) -> None:
    named.run("export LD_PRELOAD=/nonexistent/x.so LD_LIBRARY_PATH=/nonexistent")
    told = named.run("echo $LD_LIBRARY_PATH; tr '\\0' '\\n' < /proc/$$/environ | grep -c ^LD_")
    assert told.output.splitlines()[0] == "/nonexistent"
    assert told.output.splitlines()[-1] == "0"
