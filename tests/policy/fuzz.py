"""A fuzzer: what the evaluator allows is run in a sandbox where every denied program is a canary. None may sing.

python -m tests.policy.fuzz [LINES] [SEED]
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from outlast.policy.evaluator import evaluate
from outlast.policy.rules import Rules
from tests.policy.mutations import Mutator

BATCH = 200
CHUNK = 10_000
AT_ONCE = 8
_TOOLS = """
    ls echo cat grep wc head tail sed awk sort uniq find xargs tar diff cut tr tee env timeout bash sh eval trap
    command printf read cd test date jq mkdir touch cp flock script busybox builtin mapfile compgen hash unset set
    export declare alias time nice pytest python3 perl less man make kill let local readonly shopt nohup setsid stdbuf
    watch parallel su sudo rg git exec
"""
RULES = Rules(
    allow=(*(f"{name} *" for name in _TOOLS.split()), "pwd", "npm run *", "git status *"),
    deny=("rm *", "curl *", "git push *"),
)
# Values that do harm wherever they are taken for code, an option or a program.
_EVALUATED = "a[$(rm x)]"
EVIL = {"X": "rm x", "x": _EVALUATED, "F": "--output=./o", "a": "x[$(rm x)]", "f": "-exec rm {} ;", "i": _EVALUATED}
EVIL |= {"y": "$(rm x)", "line": "rm x", "USER": "$(rm x)"}
_CANARY = '#!/bin/sh\necho "$(/bin/cat /tmp/state/now) $0 $*" >> /tmp/state/hits\n'
_GIT = """#!/bin/sh
skip=
for word in "$@"; do
    case $skip$word in
        -C | -c) skip=1; continue ;;
        -*) continue ;;
        push) exec /tmp/state/canary git push ;;
        1*) skip= ;;
        *) break ;;
    esac
done
exec /tmp/state/git.real "$@"
"""
_DRIVER = r"""
cd /tmp/proj
for line in /tmp/state/lines/*; do
    echo "${line##*/}" > /tmp/state/now
    timeout -k 0.2 0.7 bash --norc --noprofile "$line" </dev/null >/dev/null 2>&1
    case $(jobs -p) in ?*) kill -9 $(jobs -p) ;; esac
done
echo end > /tmp/state/now
"""


class Cage:
    """A sandbox in which `rm`, `curl`, `git push` and `./pwn` are canaries."""

    def __init__(self, place: Path) -> None:
        self.state = place / "state"
        self.work = place / "work"
        (self.state / "lines").mkdir(parents=True)
        self._write(self.state / "canary", _CANARY)
        self._write(self.state / "git", _GIT)
        self._write(self.state / "driver", _DRIVER)
        shutil.copy(shutil.which("git") or "/bin/true", self.state / "git.real")

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)

    def _fresh(self) -> None:
        shutil.rmtree(self.work, ignore_errors=True)
        (self.work / "src").mkdir(parents=True)
        for name in (
            "a",
            "b",
            "f",
            "x",
            "a.txt",
            "notes.txt",
            "in.txt",
            "--checkpoint=1",
            "--checkpoint-action=exec=rm x",
            "src/a.py",
        ):
            (self.work / name).write_text("rm x\n$(rm x)\n")
        shutil.copy(self.state / "canary", self.work / "pwn")

    def _command(self) -> list[str]:
        binds = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--tmpfs", "/var/tmp"]
        binds += ["--bind", str(self.state), "/tmp/state", "--bind", str(self.work), "/tmp/proj"]
        for program in ("rm", "curl"):
            for directory in ("/bin", "/usr/bin"):
                real = os.path.realpath(f"{directory}/{program}")
                if os.path.exists(real):
                    binds += ["--ro-bind", str(self.state / "canary"), real]
        if git := shutil.which("git"):
            binds += ["--ro-bind", str(self.state / "git"), os.path.realpath(git)]
        return ["bwrap", *binds, "--unshare-all", "--die-with-parent", "--new-session", "--clearenv"]

    def hits(self, lines: list[str]) -> list[str]:
        """The lines that ran a canary."""
        self._fresh()
        for old in (self.state / "lines").iterdir():
            old.unlink()
        for number, line in enumerate(lines):
            (self.state / "lines" / f"{number:05}").write_bytes(line.encode("utf-8", "surrogateescape"))
        (self.state / "hits").write_text("")
        command = self._command()
        for name, value in {**EVIL, "PATH": "/usr/bin:/bin", "HOME": "/tmp/proj"}.items():
            command += ["--setenv", name, value]
        limits = "ulimit -u 4000 -f 4096 -v 4000000; exec bash /tmp/state/driver"
        subprocess.run([*command, "bash", "-c", limits], timeout=BATCH * 2, check=False, capture_output=True)
        assert (self.state / "now").read_text() == "end\n", "the sandbox did not run to its end"
        numbers = {hit.split(" ")[0] for hit in (self.state / "hits").read_text().splitlines()}
        return [lines[int(number)] for number in sorted(numbers) if number.isdigit()]


def cage_works(cage: Cage) -> bool:
    """Whether a canary sings when it should."""
    try:
        return cage.hits(["rm x", "ls", "echo $(curl x)", "git push", "./pwn"]) == [
            "rm x",
            "echo $(curl x)",
            "git push",
            "./pwn",
        ]
    except (OSError, AssertionError, subprocess.SubprocessError):
        return False


def fuzz(cages: Sequence[Cage], count: int, seed: int) -> tuple[int, list[str]]:
    """How many of so many lines were allowed and run, and those that ran what is denied.

    Many a line waits until its time is up, so several cages run at once.
    """
    mutator, allowed, found, ran = Mutator(seed), [], [], 0
    with ThreadPoolExecutor(len(cages)) as pool:
        running: list[Future[list[str]]] = []
        for number in range(count):
            line = mutator.line()
            if evaluate(line, RULES).verdict == "allow":
                allowed.append(line)
            if len(allowed) == BATCH or (allowed and number == count - 1):
                cage = cages[len(running) % len(cages)]
                if len(running) >= len(cages):
                    running[-len(cages)].result()  # its cage is free again
                running.append(pool.submit(cage.hits, allowed))
                ran, allowed = ran + len(allowed), []
        for one in running:
            found += one.result()
    return ran, found


def main() -> int:
    count, seed = (int(word) for word in (*sys.argv[1:], *("100000", "1")[len(sys.argv) - 1 :]))
    with tempfile.TemporaryDirectory() as place:
        cages = [Cage(Path(place) / str(number)) for number in range(AT_ONCE)]
        if not cage_works(cages[0]):
            print("the sandbox does not work here: bubblewrap is needed")
            return 1
        start, total, escaped = time.monotonic(), 0, 0
        for done in range(0, count, CHUNK):
            ran, found = fuzz(cages, min(CHUNK, count - done), seed * 1_000_003 + done)
            total += ran
            escaped += len(found)
            for line in found:
                print("ESCAPED", repr(line), flush=True)
            seconds = time.monotonic() - start
            lines = min(done + CHUNK, count)
            print(f"{lines} lines, {total} allowed and run, {escaped} escaped, {seconds:.0f} s", flush=True)
    return 1 if escaped else 0


if __name__ == "__main__":
    sys.exit(main())
