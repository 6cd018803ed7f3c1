"""Which programs a line runs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.program_names import roots, runs_any, simple_commands
from outlast.settings import Settings, development_commands

LINES = {
    "npm run dev": "npm",
    "cd app && FOO=1 npm run dev": "npm",
    "time -p make -j8": "make",
    "(cd x; ./gradlew build)": "gradlew",
    "npx vite": "npx",
    "{ make; cargo test; }": "make cargo",
    "if [ -f Makefile ]; then make; else ninja -C out; fi": "make ninja",
    "while true; do pytest; done": "pytest",
    "for f in npm make; do node $f; done": "node",
    "npm test | tee log": "npm tee",
    "npm test |& tee log": "npm tee",
    "! make": "make",
    "env -u A B=1 C=2 make all": "make",
    "nice -n 5 nohup make": "make",
    "nice -5 make": "make",
    "timeout -k 5 60s make": "make",
    "timeout --signal=KILL 60 make": "make",
    "sudo -u build -- make install": "make",
    "exec -a name node server.js": "node",
    "command make": "make",
    "command -v npm": "",
    "stdbuf -oL -e 0 python x.py": "python",
    "find . | xargs -n 1 -P4 node": "find node",
    "flock /tmp/lock make": "make",
    "bash -c 'cd x && npm ci'": "npm",
    'sh -ec "make"': "make",
    "bash -lc \"bash -c 'cargo build'\"": "cargo",
    "eval 'make x'": "make",
    "bash script.sh": "bash",
    "'/usr/bin/my make'": "my make",
    '"/opt/node/bin/npm" ci': "npm",
    "$HOME/bin/npm ci": "npm",
    "NPM ci": "npm",
    "\\make": "make",
    "ma\\\nke": "make",
    "make \\\n  all; node": "make node",
    ">log 2>&1 make": "make",
    "make >log 2>&1 </dev/null &": "make",
    "make &>log; node": "make node",
    "2>err make": "make",
    "# npm\nmake # node": "make",
    "echo a#b; make": "make",
    "cat <<EOF\nnpm run\nEOF\nmake": "make",
    "cat <<-'E F' | node\n\tnpm\n\tE F\nmake": "node make",
    "cat <<A <<B\nnpm\nA\nyarn\nB\nmake": "make",
    "cat <<< npm; make": "make",
    "echo npm": "",
    "git commit -m 'npm; make'": "git",
    'git commit -m "$(make x "a)b")" && node': "git node",
    "echo `make`; node": "node",
    "diff <(npm ls) <(yarn list); make": "diff make",
    "a=(npm make); node": "node",
    "x=$((1 << 2))\nmake": "make",
    "((x = 1 << 2))\nmake": "x make",
    "f() { make; }; f": "make f",
    "function f { make; }": "",
    "case $x in npm) make;; *) node;; esac": "make node",
    "[[ $x == make ]] && node": "node",
    "echo ${x:-`npm`}; make": "make",
    "python3.12 -m pytest": "python3.12",
    "echo 'unclosed": "",
    "npm 'unclosed": "npm",
    "$'ma\\'ke' x": "ma\\'ke",
    "": "",
    "&& || ; ) ( }": "",
    "make;": "make",
    "env": "",
    "VAR=x": "",
}


@pytest.mark.parametrize(("line", "found"), LINES.items())
def test_the_programs_of_a_line(line: str, found: str) -> None:
    said = roots(line)
    assert said == ([found] if " " in line and found == "my make" else found.split())


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("cd app && FOO=1 npm run dev", True),
        ("PYTHON3.12 x.py", True),
        ("pip3 install x", True),
        ("./gradlew build", True),
        ("echo npm; ls", False),
        ("sleep 100", False),
        ("git push", False),
        ("tail -f log", False),
    ],
)
def test_development_commands(line: str, expected: bool) -> None:
    assert runs_any(line, development_commands(Settings())) is expected


PIECES = st.sampled_from(
    [*" \n\t;&|()<>{}'\"`$#\\=!", "$(", "${", "<<E", "<<-", "&&", "E\n", "make", "bash -c ", "if "]
)


@given(st.one_of(st.text(max_size=60), st.lists(PIECES, max_size=40).map("".join)))
def test_it_never_fails_and_invents_nothing(text: str) -> None:
    for words in simple_commands(text):
        assert words
    for root in roots(text):
        assert isinstance(root, str)


@pytest.mark.parametrize(
    "piece",
    ["'", '"', "`", "$(", "${", "(", "<<E\n", "<<a ", "\\", "a=(", "bash -c '", "#\n", "env ", "a ", "x=1 ", '"$('],
)
def test_a_hostile_text_takes_linear_time(piece: str) -> None:
    """If it were quadratic, it would take minutes, and the bound on a test would end it."""
    assert all(isinstance(root, str) for root in roots(piece * 200_000))
