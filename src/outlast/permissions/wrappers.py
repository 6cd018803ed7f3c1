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


def _grammars(table: str) -> dict[str, tuple[Grammar, int]]:
    """From lines of a name, how many operands stand before the command, the short options (or -) and the long ones."""
    found: dict[str, tuple[Grammar, int]] = {}
    for line in table.strip().splitlines():
        name, operands, short, *long = line.split()
        found[name] = (Grammar(short.strip("-"), " ".join(long)), int(operands))
    return found


TRANSPARENT = _grammars("""
    time 0 af:o:pvVq append format= output= portability verbose quiet
    timeout 1 k:s:vfp kill-after= signal= verbose foreground preserve-status
    nice 0 n: adjustment=
    ionice 0 c:n:t class= classdata= ignore
    nohup 0 -
    stdbuf 0 i:o:e: input= output= error=
    setsid 0 cfw ctty fork wait
    command 0 pvV
    builtin 0 -
""")
_OPAQUE = _grammars("""
    doas 0 C:u:n
    chroot 1 - userspec= groups= skip-chdir
    unshare 0 m::u::i::n::p::U::C::T::frcR:w:S:G: mount=? uts=? ipc=? net=? pid=? user=? cgroup=? time=? fork \
    map-root-user map-current-user mount-proc=? kill-child=? propagation= setgroups= root= wd= setuid= setgid=
    nsenter 0 at:m::u::i::n::p::U::C::T::S:G:r::w::F all target= mount=? uts=? ipc=? net=? pid=? user=? root=? wd=? \
    no-fork
    systemd-run 0 tPqGrp:u:E:dH:M: user system scope pty pipe quiet collect wait same-dir remain-after-exit no-block \
    no-ask-password unit= property= slice= uid= gid= nice= setenv= working-directory= service-type= description= \
    on-active= on-boot= on-calendar=
    strace 0 fFcCdhiknqrtTvVwxyYzZe:a:b:E:I:O:p:P:s:S:u:U:X: follow-forks summary-only summary trace= signal= quiet=?
    ltrace 0 cCfhiLrStTVe:a:A:n:p:s:u:x:l:
    taskset 1 ac all-tasks cpu-list
    chrt 1 abfimorRvT:P:D: all-tasks batch fifo idle other rr reset-on-fork
    choom 0 n: adjust=
    exec 0 cla:
    busybox 0 -
    toybox 0 -
    gosu 1 -
    su-exec 1 -
    fakeroot 0 ul:s:i:b: lib= faked= unknown-is-real
    chronic 0 ve
    ifne 0 n
    unbuffer 0 p
    catchsegv 0 -
    proxychains 0 q
    proxychains4 0 q
    torsocks 0 -
    dbus-run-session 0 -
    caffeinate 0 disumt:w:
    sudo 0 ABbEHnPSkNC:D:g:h:p:R:r:t:T:U:u: askpass background preserve-env=? set-home non-interactive \
    preserve-groups stdin reset-timestamp close-from= chdir= group= host= prompt= chroot= role= type= \
    command-timeout= other-user= user=
""")
_WRAPPERS = frozenset([*OPENERS, *SHELLS, *TRANSPARENT, *_OPAQUE])
_DIRECT = names("""
    dotenv npx bunx pnpx uvx setpriv prlimit numactl firejail bwrap pkexec valgrind rlwrap xvfb-run ssh-agent tini
    dumb-init entr watchexec hyperfine sem setarch linux32 linux64 i386 i486 i586 i686 x86_64 aarch64 armv7l armv8l
    ppc ppc32 ppc64 ppc64le s390 s390x sparc mips uname26 personality start-stop-daemon run-parts tmux screen at batch
    cpulimit dbus-launch nix-shell dtach abduco daemonize cgexec systemd-inhibit proot gdb lldb expect pee pssh mosh
    sshpass runcon capsh newgrp sg fakechroot eatmydata logsave tsp nq task-spooler detach trickle aa-exec openvt
    faketime nocache waypipe annotate-output ld.so ld-linux-x86-64.so.2 ld-linux.so.2 ld-linux-aarch64.so.1
    ld-musl-x86_64.so.1
""")
# They run what follows one of these words, or simply what follows. Where it begins is not read with certainty.
_TRIGGERS = """
    outlast uv poetry pipenv pdm hatch rye conda mamba micromamba op doppler pipx: run
    docker podman nerdctl: run exec create
    docker-compose: run exec
    kubectl: exec run debug
    oc: exec run rsh
    lxc bundle direnv: exec
    jobs: -x
    mix: cmd run
    pnpm: exec dlx
    yarn: exec dlx node
    bun: x
    ip: netns exec
    vagrant: ssh
    nix: run shell develop
    cmake: -E
    perf: record stat trace
    rr: record
    machinectl: shell
"""
LOOSE: dict[str, frozenset[str]] = dict.fromkeys(_DIRECT, frozenset[str]()) | {
    name: names(line.partition(":")[2])
    for line in _TRIGGERS.strip().splitlines()
    for name in line.partition(":")[0].split()
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
