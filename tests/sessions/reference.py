"""One long-lived bash that reads lines from a pipe: what a session has to be like."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess

from outlast import Shell
from outlast.environment import compose_environment
from outlast.storage import snapshot

# The state in the words of an ordinary user; nothing of ours helps to tell it.
TELL = """{ declare -p; echo @@; compgen -A function | (shopt -u extdebug; while read -r f
do case $f in __outlast*) ;; *) declare -F "$f"; declare -f "$f"; esac; done)
echo @@; alias -p; echo @@; shopt -p; echo @@; set +o; echo @@; umask; pwd; dirs -l -p
echo @@; printf '<%s>' "$@"; } >| FILE 2>/dev/null"""
SKIPPED = re.compile(rb"declare -\S+ (__outlast\w*|BASH\w*|[A-Z]*(?:PID|RANDOM|SECONDS|UID)|EPOCH\w+|LINENO|_)(=|$)")
OURS = (b"OUTLAST_SESSION", b"OUTLAST_TASK_ID", b"FUNCNAME", b"PIPESTATUS", b"HISTCMD", b"GROUPS", b"SHELLOPTS", b"PWD")


def _reset_signals() -> None:
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def told(data: bytes) -> list[bytes]:
    """What a bash told, without what differs between any two of them."""
    variables, *rest = data.split(b"@@\n")
    names = [line for line in variables.split(b"\n") if not SKIPPED.match(line)]
    kept = [line for line in names if line.split(b" ", 2)[-1].partition(b"=")[0] not in OURS]
    return [b"\n".join(kept), *rest]


def of_session(shell: Shell, lines: list[str], directory: str, leave: str = "") -> tuple[list[bytes], bytes]:
    """Each line a command of its own, the session begun anew before the first."""
    shell.run("true")
    os.chdir(directory)
    shell.sessions.reset()
    for line in lines:
        shell.run(line + leave)
    traps = shell.context.sessions.read(shell.session).state()
    file = os.path.join(directory, "ours")
    shell.run(TELL.replace("FILE", shlex.quote(file)))
    with open(file, "rb") as told_to:
        found = told(told_to.read())
    return found, trap_text(traps)


def of_bash(lines: list[str], directory: str) -> tuple[list[bytes], bytes]:
    """All lines in one bash."""
    file, traps = os.path.join(directory, "theirs"), os.path.join(directory, "traps")
    script = [
        "shopt -s expand_aliases",
        *lines,
        f"trap -p >| {shlex.quote(traps)}",
        "trap - ERR DEBUG RETURN",
        TELL.replace("FILE", shlex.quote(file)),
    ]
    env = {**compose_environment(os.environ, {}, "x"), "SHLVL": os.environ.get("SHLVL", "0")}
    env = {name: value for name, value in env.items() if name not in ("OUTLAST_SESSION", "PWD")}
    subprocess.run(
        ["bash", "--norc", "--noprofile"],
        input=os.fsencode("\n".join(script) + "\n"),
        env=env,
        cwd=directory,
        capture_output=True,
        timeout=60,
        preexec_fn=_reset_signals,  # whoever runs the tests may ignore some, and a bash would list those
    )
    with open(file, "rb") as told_to, open(traps, "rb") as trapped:
        # In posix mode signals without a trap are listed too.
        lines_of_traps = [line for line in trapped if not line.startswith(b"trap -- - ")]
        return told(told_to.read()), b"".join(sorted(lines_of_traps))


def trap_text(state: snapshot.State) -> bytes:
    lines = b"".join(
        b"trap -- " + action + b" " + name + b"\n" for (kind, name), action in state.items() if kind == snapshot.TRAP
    )
    return b"".join(sorted(lines.splitlines(keepends=True)))
