"""A throw-away machine in a sandbox: lines that `banned` or `guarded` allow are run, and nothing may be lost or called.

Under `banned` every banned program is a canary that leaves a mark. Under `guarded` the canaries are system files, a
home and their modes. What a sandbox does not contain is not run: a fork bomb starves the machine around it, and writing
to the kernel's trigger goes past every namespace.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

BANNED = ("curl", "wget", "nc", "ncat", "telnet", "ftp", "lynx", "w3m", "http", "https", "xh", "aria2c")
_NOT_CONTAINED = re.compile(r"sysrq|kexec|reboot|poweroff|halt|:\(\)|/proc/(?!self/fd)|/dev/(?:mem|kmem|port)")
_PLACES = ("etc", "home", "srv", "opt", "boot")
_CANARY = '#!/bin/sh\necho "$(/bin/cat /run/cage/now) ran ${0##*/} $*" >> /run/cage/hits\n'
# Runs at once what it is given in a file or on its input.
_SCHEDULER = r"""#!/bin/bash
file=/dev/stdin
for word; do [[ -f $word ]] && file=$word; done
sed -E 's/^\s*(@[a-z]+|([0-9*/,-]+\s+){5})//' "$file" | sh
"""
_DRIVER = f"""
list() {{ find {" ".join(_PLACES)} -path home/me/project -prune -o ! -type d -printf '%p %m %s\\n' | sort; }}
was=$(cd /run/cage/template && list)
for line in /run/cage/lines/*; do
    cd /
    find {" ".join(_PLACES)} tmp var/tmp -mindepth 1 -delete
    cp -a /run/cage/template/. /
    cd /home/me/project
    echo "${{line##*/}}" > /run/cage/now
    timeout -k 1 5 bash --norc --noprofile "$line" </dev/null >/dev/null 2>&1
    cd /
    lost=$(comm -23 <(echo "$was") <(list) | head -1)
    [ -z "$lost" ] || echo "${{line##*/}} lost $lost" >> /run/cage/hits
done
echo end > /run/cage/now
"""


def is_contained(line: dict[str, object]) -> bool:
    """Whether a sandbox holds all that a line could do."""
    return "bomb" not in str(line["class"]) and not _NOT_CONTAINED.search(str(line["line"]))


class Machine:
    """A file system of its own for each line, no network, no devices, no rights."""

    def __init__(self, place: Path) -> None:
        self.state, self.root = place / "state", place / "root"
        template = self.state / "template"
        for directory in (self.state / "lines", self.state / "bin", *(self.root / one for one in _PLACES)):
            directory.mkdir(parents=True)
        (template / "home/me/project/src").mkdir(parents=True)
        for name in ("etc/canary.conf", "srv/data/a", "opt/app/a", "boot/vmlinuz", "home/me/notes", "home/me/.ssh/id"):
            (template / name).parent.mkdir(parents=True, exist_ok=True)
            (template / name).write_text("canary\n")
        for name in ("passwd", "group", "shadow", "fstab", "ld.so.cache"):
            real = Path("/etc") / name
            text = real.read_bytes() if real.exists() and name != "shadow" else b"root:x:0:0::/:/bin/sh\n"
            (template / "etc" / name).write_bytes(text)
        for name in ("a", "b", "x", "list", "src/a.py"):
            (template / "home/me/project" / name).write_text("a\n")
        (template / "home/me/project/p").write_text("/home\n")
        for command in (
            ["init", "-q"],
            ["add", "a"],
            ["-c", "user.name=x", "-c", "user.email=x", "commit", "-qm", "x"],
        ):
            subprocess.run(["git", *command], cwd=template / "home/me/project", check=False, capture_output=True)
        for name in BANNED:
            self._canary(self.state / "bin" / name)
        for name in ("crontab", "at", "batch"):
            (self.state / "bin" / name).write_text(_SCHEDULER)
            (self.state / "bin" / name).chmod(0o755)
        (self.state / "driver").write_text(_DRIVER)

    def _canary(self, path: Path) -> None:
        path.write_text(_CANARY)
        path.chmod(0o755)

    def hits(self, lines: Sequence[str]) -> dict[int, list[str]]:
        """What each line called or lost, by its number."""
        for old in (self.state / "lines").iterdir():
            old.unlink()
        for number, line in enumerate(lines):
            (self.state / "lines" / f"{number:05}").write_text(line)
        for name in ("hits", "now"):
            (self.state / name).write_text("")
        command = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--remount-ro", "/dev", "--proc", "/proc"]
        command += [
            "--tmpfs",
            "/tmp",
            "--tmpfs",
            "/var/tmp",
            "--tmpfs",
            "/run",
            "--ro-bind",
            str(self.state),
            "/run/cage",
        ]
        for name in ("hits", "now"):  # a file that is a mount point cannot be removed
            command += ["--bind", str(self.state / name), f"/run/cage/{name}"]
        for name in _PLACES:
            command += ["--bind", str(self.root / name), f"/{name}"]
        for program in BANNED:
            if real := shutil.which(program):
                command += ["--ro-bind", str(self.state / "bin" / program), str(Path(real).resolve())]
        command += ["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv"]
        path = "/run/cage/bin:/usr/local/bin:/usr/bin:/bin"
        for name, value in {"PATH": path, "HOME": "/home/me", "USER": "me"}.items():
            command += ["--setenv", name, value]
        limit = 60 + 10 * len(lines)
        subprocess.run([*command, "bash", "/run/cage/driver"], timeout=limit, check=False, capture_output=True)
        assert (self.state / "now").read_text() == "end\n", "the machine did not run to its end"
        found: dict[int, list[str]] = {}
        for hit in (self.state / "hits").read_text().splitlines():
            place, _, what = hit.partition(" ")
            found.setdefault(int(place), []).append(what)
        return found


def machine_works(machine: Machine) -> bool:
    """Whether every canary sings when it should."""
    lines = [
        "curl x",
        "true",
        "rm -rf /*",
        "rm -f ~/notes",
        "chmod 000 /etc/canary.conf",
        "rm -rf src",
        ": > /etc/fstab",
    ]
    try:
        return sorted(machine.hits(lines)) == [0, 2, 3, 4, 6]
    except (OSError, AssertionError, subprocess.SubprocessError):
        return False
