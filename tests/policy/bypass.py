"""Lines that try to get past a policy: each is checked, and run in a cage if it is allowed. No canary may sing.

A line is an object in a file of JSON lines: `line`, the `policy` that it is for (a ready one, or one of `POLICIES`),
and its `class`. The canaries are a program P that leaves a mark, and files that must stay as they are.

python -m tests.policy.bypass [FILE...]
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from outlast.policy import Policy
from outlast.policy.approval import Layer
from outlast.policy.layers import evaluate_layers
from outlast.policy.loader import combine_policies
from outlast.policy.rules import Decision, Overrides, Rules
from outlast.settings import Settings

HERE = Path(__file__).parent
FILES = tuple(sorted(HERE.glob("bypasses*.jsonl")))
PROJECT = "/tmp/proj"  # as the cage sees it
STATE = f"{PROJECT}/state"
_PROGRAMS = """
    git npm npx node yarn pnpm python python3 pip uv pytest cargo go make cmake mix ls cat head tail grep rg find
    wc sort uniq diff echo pwd date mkdir cp mv touch tar sed awk mawk gawk sqlite3 env timeout nice tee dd ln
    install rsync zip curl wget jq ssh gcc docker kubectl tsc eslint xargs cd export
"""
POLICIES = {
    "broad": Rules(
        allow=tuple(f"{name} *" for name in _PROGRAMS.split()),
        deny=("rm *", "git push *", "npm publish *", "docker rm *", "kubectl delete *"),
    )
}
# Nothing of these may be made, changed or removed by a line that was allowed.
_GUARDED = """
    F Makefile GNUmakefile makefile package.json conftest.py setup.py CMakeLists.txt .bashrc .bash_profile .envrc
    .npmrc .gitconfig .gitattributes .git/config .git/hooks/pre-commit .git/hooks/post-checkout
    .git/hooks/pre-push .ssh/authorized_keys jest.config.js build.rs test_evil.py evil.js .cargo/config.toml
    node_modules/.bin/jest state/policy.toml state/config.toml
"""
_CANARY = '#!/bin/sh\necho "$(/bin/cat /tmp/cage/now) P $*" >> /tmp/cage/hits\n'
_DRIVER = f"""
for line in /tmp/cage/lines/*; do
    cd /tmp
    find /tmp/proj -mindepth 1 -delete
    cp -a /tmp/cage/template/. /tmp/proj/
    cd /tmp/proj
    echo "${{line##*/}}" > /tmp/cage/now
    timeout -k 1 10 bash --norc --noprofile "$line" </dev/null >/dev/null 2>&1
    for file in {" ".join(_GUARDED.split())}; do
        if [ -e "/tmp/cage/template/$file" ]; then
            cmp -s "/tmp/cage/template/$file" "/tmp/proj/$file" || echo "${{line##*/}} changed $file" >> /tmp/cage/hits
        elif [ -e "/tmp/proj/$file" ]; then
            echo "${{line##*/}} made $file" >> /tmp/cage/hits
        fi
    done
done
echo end > /tmp/cage/now
"""
_FILES = {
    "Makefile": "all:\n\t@true\n",
    "evil.mk": "all:\n\t@P\n",
    "evil/Makefile": "all:\n\t@P\n",
    "package.json": '{"name": "x", "version": "1.0.0", "scripts": {"test": "true", "x": "true"}}\n',
    "evil/package.json": '{"name": "evil", "version": "1.0.0", "scripts": {"test": "P", "x": "P", "install": "P"}}\n',
    "evil/npmrc": "script-shell=P\n",
    "evil.sed": "1e P\n",
    "evil.awk": 'BEGIN{system("P")}\n',
    "evil.sql": ".shell P\n",
    "evil.py": 'import os\nos.system("P")\n',
    "evil/setup.py": 'import os\nos.system("P")\n',
    "evil/test_evil.py": 'import os\nos.system("P")\n',
    "evil.cmake": "execute_process(COMMAND P)\n",
    "evil/CMakeLists.txt": "execute_process(COMMAND P)\n",
    "evil.rc": 'output = "F"\n',
    "evil.txt": "-e ./evil\n",
    "evil.patch": "--- /dev/null\n+++ b/conftest.py\n@@ -0,0 +1 @@\n+x\n",
    "pre-commit": "#!/bin/sh\nP\n",
    "list": "a\n",
    ".bashrc": "",
    "state/policy.toml": "",
    "state/config.toml": "",
    "sub/a": "a\n",
    **dict.fromkeys(("a", "b", "f", "x", "Make", "a.c"), "all:\n\t@P\n"),
}


def read(files: Iterable[Path] = FILES) -> list[dict[str, str]]:
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def evaluate_by(policy: str, line: str, directory: str = PROJECT) -> Decision:
    """What a policy, with all that is in force beside it, says of a line in a directory."""
    known = POLICIES.get(policy)
    call = Policy(policy, (Layer(policy, known),)) if known else policy
    place = Overrides(directory=directory, values={"HOME": directory})
    return evaluate_layers(line, combine_policies(f"{directory}/state", Settings(), call), place).decision


class Cage:
    """A throw-away sandbox, made anew for each line."""

    def __init__(self, place: Path) -> None:
        self.state, self.work = place / "cage", place / "work"
        for directory in (self.state / "lines", self.state / "bin", self.state / "template", self.work):
            directory.mkdir(parents=True)
        self.template = template = self.state / "template"
        for name, text in _FILES.items():
            (template / name).parent.mkdir(parents=True, exist_ok=True)
            (template / name).write_text(text)
        for path in (self.state / "bin" / "P", template / "P", template / "evil/P"):
            path.write_text(_CANARY)
            path.chmod(0o755)
        (self.state / "driver").write_text(_DRIVER)
        self._repositories(template)

    def _repositories(self, template: Path) -> None:
        def git(*words: str) -> None:
            who = ["-c", "user.name=x", "-c", "user.email=x@x"]
            subprocess.run(["git", *who, *words], cwd=template, check=True, capture_output=True)

        git("init", "-q")
        git("add", "a", "b", "f")
        git("commit", "-qm", "x")
        git("clone", "-q", "--bare", ".", "repo")
        git("init", "-q", "evil")
        git("-C", "evil", "config", "core.fsmonitor", "P")
        (template / "repo/hooks/pre-receive").write_text(_CANARY)
        (template / "repo/hooks/pre-receive").chmod(0o755)
        subprocess.run(["tar", "-cf", "a.tar", "a"], cwd=template, check=True)

    def hits(self, lines: Sequence[str]) -> dict[int, list[str]]:
        """What each line set off, by its number."""
        for old in (self.state / "lines").iterdir():
            old.unlink()
        for number, line in enumerate(lines):
            (self.state / "lines" / f"{number:05}").write_text(line)
        (self.state / "hits").write_text("")
        command = [
            "bwrap",
            "--ro-bind",
            "/",
            "/",
            "--dev",
            "/dev",
            "--proc",
            "/proc",
            "--tmpfs",
            "/tmp",
            "--tmpfs",
            "/var/tmp",
        ]
        command += ["--bind", str(self.state), "/tmp/cage", "--bind", str(self.work), "/tmp/proj"]
        command += ["--ro-bind", str(self.state / "template"), "/tmp/cage/template"]
        command += ["--unshare-all", "--die-with-parent", "--new-session", "--clearenv"]
        env = {
            "PATH": "/tmp/cage/bin:/usr/local/bin:/usr/bin:/bin",
            "HOME": "/tmp/proj",
            "OUTLAST_HOME": STATE,
            "X": "-exec P {} ;",
        }
        for name, value in env.items():
            command += ["--setenv", name, value]
        subprocess.run(
            [*command, "bash", "/tmp/cage/driver"], timeout=60 + 20 * len(lines), check=False, capture_output=True
        )
        assert (self.state / "now").read_text() == "end\n", "the cage did not run to its end"
        found: dict[int, list[str]] = {}
        for hit in (self.state / "hits").read_text().splitlines():
            place, _, what = hit.partition(" ")
            found.setdefault(int(place), []).append(what)
        return found


def cage_works(cage: Cage) -> bool:
    """Whether every canary sings when it should."""
    lines = ["P", "true", "make -f evil.mk", "echo > F", "cp x Makefile", "git -C evil status"]
    try:
        return sorted(cage.hits(lines)) == [0, 2, 3, 4, 5]
    except (OSError, AssertionError, subprocess.SubprocessError):
        return False


def bypasses(cage: Cage, lines: Sequence[dict[str, str]]) -> tuple[int, list[str]]:
    """How many lines were allowed and run, and what each bypass among them did."""
    place = str(cage.template)
    allowed = [
        line
        for line in lines
        if evaluate_by(line["policy"], line["line"].replace(PROJECT, place), place).verdict == "allow"
    ]
    found = cage.hits([line["line"] for line in allowed]) if allowed else {}
    return len(allowed), [
        f"{allowed[n]['policy']}: {allowed[n]['line']!r}: {', '.join(what)}" for n, what in found.items()
    ]


def main() -> int:
    lines = read([Path(name) for name in sys.argv[1:]] or FILES)
    with tempfile.TemporaryDirectory() as place:
        cage = Cage(Path(place))
        if not cage_works(cage):
            print("the sandbox does not work here: bubblewrap and git are needed")
            return 1
        ran, found = bypasses(cage, lines)
    for one in found:
        print("BYPASS", one)
    for policy, count in sorted(Counter(line["policy"] for line in lines).items()):
        print(f"{policy}: {count} lines")
    print(f"{len(lines)} lines, {ran} allowed and run, {len(found)} bypasses")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
