"""Commands that run other commands: what they run, and whether their own words can be read.

A transparent wrapper (`timeout 5 …`) adds nothing to what it runs, so the rule for the inner command is enough. An
opaque one (`sudo`, `xargs`, `sh -c`) needs a rule for itself and one for what it runs.
"""

from __future__ import annotations

import re

from outlast.permissions.getopt import Grammar, parse
from outlast.permissions.openers import OPENERS
from outlast.permissions.shells import SHELLS, code_of_shell
from outlast.permissions.words import Word, names
from outlast.permissions.wrapping import Run, Wrapped, base, doubt_of, opaque

TRANSPARENT: dict[str, tuple[Grammar, int]] = {
    "time": (Grammar("af:o:pvVq", "append format= output= portability verbose quiet"), 0),
    "timeout": (Grammar("k:s:vfp", "kill-after= signal= verbose foreground preserve-status"), 1),
    "nice": (Grammar("n:", "adjustment="), 0),
    "ionice": (Grammar("c:n:t", "class= classdata= ignore"), 0),
    "nohup": (Grammar(), 0),
    "stdbuf": (Grammar("i:o:e:", "input= output= error="), 0),
    "setsid": (Grammar("cfw", "ctty fork wait"), 0),
    "command": (Grammar("pvV"), 0),
    "builtin": (Grammar(), 0),
}
_OPAQUE: dict[str, tuple[Grammar, int]] = {
    "doas": (Grammar("C:u:n"), 0),
    "chroot": (Grammar("", "userspec= groups= skip-chdir"), 1),
    "unshare": (
        Grammar(
            "m::u::i::n::p::U::C::T::frcR:w:S:G:",
            "mount=? uts=? ipc=? net=? pid=? user=? cgroup=? time=? fork map-root-user "
            "map-current-user mount-proc=? kill-child=? propagation= setgroups= root= wd= setuid= setgid=",
        ),
        0,
    ),
    "nsenter": (
        Grammar(
            "at:m::u::i::n::p::U::C::T::S:G:r::w::F",
            "all target= mount=? uts=? ipc=? net=? pid=? user=? root=? wd=? no-fork",
        ),
        0,
    ),
    "systemd-run": (
        Grammar(
            "tPqGrp:u:E:dH:M:",
            "user system scope pty pipe quiet collect wait same-dir remain-after-exit no-block no-ask-password "
            "unit= property= slice= uid= gid= nice= setenv= working-directory= service-type= description= on-active= "
            "on-boot= on-calendar=",
        ),
        0,
    ),
    "strace": (
        Grammar(
            "fFcCdhiknqrtTvVwxyYzZe:a:b:E:I:O:p:P:s:S:u:U:X:",
            "follow-forks summary-only summary trace= signal= quiet=?",
        ),
        0,
    ),
    "ltrace": (Grammar("cCfhiLrStTVe:a:A:n:p:s:u:x:l:"), 0),
    "taskset": (Grammar("ac", "all-tasks cpu-list"), 1),
    "chrt": (Grammar("abfimorRvT:P:D:", "all-tasks batch fifo idle other rr reset-on-fork"), 1),
    "choom": (Grammar("n:", "adjust="), 0),
    "exec": (Grammar("cla:"), 0),
    "busybox": (Grammar(), 0),
    "toybox": (Grammar(), 0),
    "gosu": (Grammar(), 1),
    "su-exec": (Grammar(), 1),
    "fakeroot": (Grammar("ul:s:i:b:", "lib= faked= unknown-is-real"), 0),
    "chronic": (Grammar("ve"), 0),
    "ifne": (Grammar("n"), 0),
    "unbuffer": (Grammar("p"), 0),
    "catchsegv": (Grammar(), 0),
    "proxychains": (Grammar("q"), 0),
    "proxychains4": (Grammar("q"), 0),
    "torsocks": (Grammar(), 0),
    "dbus-run-session": (Grammar(), 0),
    "caffeinate": (Grammar("disumt:w:"), 0),
    "sudo": (
        Grammar(
            "ABbEHnPSkNC:D:g:h:p:R:r:t:T:U:u:",
            "askpass background preserve-env=? set-home non-interactive preserve-groups stdin "
            "reset-timestamp close-from= chdir= group= host= prompt= chroot= role= type= command-timeout= other-user= "
            "user=",
        ),
        0,
    ),
}
_WRAPPERS = frozenset([*OPENERS, *SHELLS, *TRANSPARENT, *_OPAQUE])
_DIRECT = names("""
    dotenv npx bunx pnpx uvx setpriv prlimit numactl firejail bwrap pkexec valgrind rlwrap xvfb-run ssh-agent
    tini dumb-init entr watchexec hyperfine sem linux32 linux64 start-stop-daemon run-parts tmux screen at batch
    cpulimit dbus-launch nix-shell dtach abduco daemonize cgexec systemd-inhibit proot gdb lldb expect pee pssh
    mosh sshpass runcon capsh newgrp sg fakechroot eatmydata logsave tsp nq task-spooler detach trickle aa-exec
    openvt setarch i386 i486 i586 i686 x86_64 aarch64 uname26 faketime nocache waypipe annotate-output ld.so
    ld-linux-x86-64.so.2 ld-linux.so.2 ld-linux-aarch64.so.1 ld-musl-x86_64.so.1
""")
# They run what follows a sub-command, or simply what follows. Where it begins is not read with certainty.
LOOSE: dict[str, frozenset[str]] = {
    "outlast": names("run"),
    "jobs": names("-x"),
    "docker": names("run exec create compose"),
    "podman": names("run exec create"),
    "nerdctl": names("run exec"),
    "kubectl": names("exec run debug"),
    "oc": names("exec run rsh"),
    "lxc": names("exec"),
    "uv": names("run tool"),
    "poetry": names("run"),
    "pipenv": names("run"),
    "pdm": names("run"),
    "hatch": names("run"),
    "rye": names("run"),
    "conda": names("run"),
    "mamba": names("run"),
    "micromamba": names("run"),
    "bundle": names("exec"),
    "pnpm": names("exec dlx"),
    "yarn": names("exec dlx node"),
    "bun": names("x"),
    "direnv": names("exec"),
    "ip": names("netns exec"),
    "vagrant": names("ssh"),
    "nix": names("run shell develop"),
    "cmake": names("-E"),
    "perf": names("record stat trace"),
    "op": names("run"),
    "doppler": names("run"),
    "pipx": names("run"),
    "rr": names("record"),
    "machinectl": names("shell"),
    **dict.fromkeys(_DIRECT, frozenset[str]()),
}


def is_wrapper(name: str) -> bool:
    """Whether a program of this base name may run other commands."""
    return name in _WRAPPERS or name in LOOSE


def unwrap(words: list[Word], bodies: list[str]) -> Wrapped | None:
    """What a command runs besides itself; None if it is no wrapper."""
    name = base(words[0].text)
    if name not in _WRAPPERS:
        return None
    if name in OPENERS:
        return OPENERS[name](words)
    if name in SHELLS:
        return code_of_shell(words, name, bodies)
    if name in TRANSPARENT:
        return _transparent(words, name)
    return opaque(words, *_OPAQUE[name])


def loose_start(words: list[Word]) -> int | None:
    """Where the inner command of a loose wrapper may begin; None if there is none."""
    triggers = LOOSE.get(base(words[0].text))
    if triggers is None:
        return None
    if not triggers:
        return 1 if len(words) > 1 else None
    found = [index for index, word in enumerate(words) if word.text in triggers]
    return found[0] + 1 if found else None


def _transparent(words: list[Word], name: str) -> Wrapped:
    grammar, operands = TRANSPARENT[name]
    start = 2 if name == "nice" and len(words) > 1 and re.fullmatch(r"--?[0-9]+", words[1].text) else 1
    parsed = parse(words, start, grammar, first=True)
    at = parsed.operands[operands] if len(parsed.operands) > operands else None
    # Behind a word that is not known -v may be an argument: `command $X -v ls` runs $X.
    if name == "command" and any(option.name in "vV" for option in parsed.options if at is None or option.index < at):
        return Wrapped([], transparent=False)
    doubt = doubt_of(words, parsed, at)
    if name == "time" and any(option.name in ("o", "output") for option in parsed.options):
        doubt = doubt or "-o writes a file"
    if at is None:
        return Wrapped([], transparent=False, doubt=doubt, suffixes=1)
    return Wrapped([Run(words[at:])], transparent=True, doubt=doubt, suffixes=1 if doubt else 0)
