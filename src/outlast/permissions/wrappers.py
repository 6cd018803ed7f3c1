"""Commands that run other commands: what they run, and whether their own words can be read.

A transparent wrapper (`timeout 5 …`) adds nothing to what it runs, so the rule for the inner command is enough. An opaque
one (`sudo`, `xargs`, `sh -c`) needs a rule for itself and one for what it runs.
"""

from __future__ import annotations

import re

from outlast.permissions.getopt import Grammar, Parsed, parse
from outlast.permissions.patterns import UNKNOWN
from outlast.permissions.scan import Word
from outlast.permissions.shells import SHELLS, Inner, Run, Wrapped, base, code_of_shell, joined, words_inside
from outlast.permissions.variables import is_harmless

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
            "unit= property= slice= uid= gid= nice= setenv= working-directory= service-type= description= on-active= on-boot= on-calendar=",
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
    "setarch": (Grammar("BFILRSTXZv3"), 1),
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
            "reset-timestamp close-from= chdir= group= host= prompt= chroot= role= type= command-timeout= other-user= user=",
        ),
        0,
    ),
}
# They run what follows a sub-command, or simply what follows. Where it begins is not read with certainty.
LOOSE: dict[str, frozenset[str]] = {
    name: frozenset(triggers.split())
    for name, triggers in {
        "outlast": "run",
        "docker": "run exec create compose",
        "podman": "run exec create",
        "nerdctl": "run exec",
        "kubectl": "exec run debug",
        "oc": "exec run rsh",
        "lxc": "exec",
        "uv": "run tool",
        "poetry": "run",
        "pipenv": "run",
        "pdm": "run",
        "hatch": "run",
        "rye": "run",
        "conda": "run",
        "mamba": "run",
        "micromamba": "run",
        "bundle": "exec",
        "pnpm": "exec dlx",
        "yarn": "exec dlx node",
        "bun": "x",
        "direnv": "exec",
        "ip": "netns exec",
        "vagrant": "ssh",
        "nix": "run shell develop",
        "cmake": "-E",
        "perf": "record stat trace",
        "op": "run",
        "doppler": "run",
        "dotenv": "",
        "npx": "",
        "bunx": "",
        "pnpx": "",
        "uvx": "",
        "pipx": "run",
        "setpriv": "",
        "prlimit": "",
        "numactl": "",
        "firejail": "",
        "bwrap": "",
        "pkexec": "",
        "valgrind": "",
        "rlwrap": "",
        "xvfb-run": "",
        "ssh-agent": "",
        "tini": "",
        "dumb-init": "",
        "entr": "",
        "watchexec": "",
        "hyperfine": "",
        "sem": "",
        "linux32": "",
        "linux64": "",
        "i386": "",
        "x86_64": "",
        "start-stop-daemon": "",
        "run-parts": "",
        "tmux": "",
        "screen": "",
        "at": "",
        "batch": "",
        "cpulimit": "",
        "dbus-launch": "",
        "nix-shell": "",
        "dtach": "",
        "abduco": "",
        "daemonize": "",
        "cgexec": "",
        "systemd-inhibit": "",
        "proot": "",
        "gdb": "",
        "lldb": "",
        "rr": "record",
        "expect": "",
        "pee": "",
        "parallel-ssh": "",
        "pssh": "",
        "mosh": "",
        "sshpass": "",
        "ts-node": "",
        "make": "",
        "runcon": "",
        "capsh": "",
        "newgrp": "",
        "sg": "",
        "machinectl": "shell",
        "fakechroot": "",
        "eatmydata": "",
        "logsave": "",
        "tsp": "",
        "nq": "",
        "task-spooler": "",
        "detach": "",
        "trickle": "",
        "stress": "",
        "zsh-exec": "",
        "aa-exec": "",
        "tcpdump": "",
        "openvt": "",
        "dash-exec": "",
    }.items()
}


def unwrap(words: list[Word], bodies: list[str], fed: bool) -> Wrapped | None:
    """What a command runs besides itself; None if it is no wrapper."""
    name = base(words[0].text)
    if name in _SPECIAL:
        return _SPECIAL[name](words)
    if name in SHELLS:
        return code_of_shell(words, name, bodies)
    if name in TRANSPARENT:
        return _transparent(words, name)
    if name in _OPAQUE:
        return _opaque(words, *_OPAQUE[name])
    return None


def loose_start(words: list[Word]) -> int | None:
    """Where the inner command of a loose wrapper may begin; None if there is none."""
    triggers = LOOSE.get(base(words[0].text))
    if triggers is None:
        return None
    if not triggers:
        return 1 if len(words) > 1 else None
    found = [index for index, word in enumerate(words) if word.text in triggers]
    return found[0] + 1 if found else None


def _static(words: list[Word]) -> bool:
    return all(word.static for word in words)


def _transparent(words: list[Word], name: str) -> Wrapped:
    grammar, operands = TRANSPARENT[name]
    start = 2 if name == "nice" and len(words) > 1 and re.fullmatch(r"--?[0-9]+", words[1].text) else 1
    parsed = parse(words, start, grammar, first=True)
    at = parsed.operands[operands] if len(parsed.operands) > operands else None
    if name == "command" and any(option.name in "vV" for option in parsed.options):
        return Wrapped([], transparent=False)
    doubt = _doubt(words, parsed, at)
    if name == "time" and any(option.name in ("o", "output") for option in parsed.options):
        doubt = doubt or "-o writes a file"
    if at is None:
        return Wrapped([], transparent=False, doubt=doubt, suffixes=1)
    return Wrapped([Run(words[at:])], transparent=True, doubt=doubt, suffixes=1 if doubt else 0)


def _doubt(words: list[Word], parsed: Parsed, at: int | None) -> str:
    before = words[1 : len(words) if at is None else at]
    if parsed.strange and (at is None or parsed.strange[0] < at):
        return f"what {words[parsed.strange[0]].text.replace(UNKNOWN, '…')} means is not known"
    if not _static(before):
        return "its own words are not static"
    return ""


def _opaque(words: list[Word], grammar: Grammar, operands: int) -> Wrapped:
    parsed = parse(words, 1, grammar, first=True)
    at = parsed.operands[operands] if len(parsed.operands) > operands else None
    doubt = _doubt(words, parsed, at)
    name = base(words[0].text)
    if at is None:
        # `sudo -i`, `chroot dir`, `unshare` alone: an interactive shell.
        silent = name in ("exec", "busybox", "toybox") and not doubt
        return Wrapped([], doubt="" if silent else doubt or "it starts a shell", suffixes=1)
    while at < len(words) - 1 and name in ("sudo", "doas") and re.match(r"[A-Za-z_]\w*=", words[at].text):
        if not (words[at].static and is_harmless(words[at].text.partition("=")[0])):
            doubt = doubt or f"it sets {words[at].text.partition('=')[0]}"
        at += 1
    return Wrapped([Run(words[at:])], doubt=doubt, suffixes=1 if doubt else 0)


# --- those with a grammar of their own ---------------------------------------------------------

_ENV = Grammar(
    "iu:C:S:v0a:",
    "ignore-environment unset= chdir= split-string= debug null argv0= block-signal=? default-signal=? "
    "ignore-signal=? list-signal-handling",
)


def _env(words: list[Word]) -> Wrapped:
    parsed = parse(words, 1, _ENV, first=True)
    split = [option for option in parsed.options if option.name in ("S", "split-string")]
    rest = list(parsed.operands)
    if rest and words[rest[0]].text == "-":
        rest.pop(0)
    doubt = ""
    while rest and "=" in words[rest[0]].lead:
        word = words[rest.pop(0)]
        name = word.text.partition("=")[0]
        if not (word.static and is_harmless(name)):
            doubt = doubt or f"it sets {name}"
    at = rest[0] if rest else None
    doubt = _doubt(words, parsed, at) if parsed.strange or parsed.unsure else doubt
    if split:
        return _split(words, split[0].text, at)
    if at is None:
        return Wrapped([], doubt=doubt, suffixes=1 if doubt else 0)
    return Wrapped([Run(words[at:])], transparent=True, doubt=doubt, suffixes=1 if doubt else 0)


def _split(words: list[Word], text: str | None, at: int | None) -> Wrapped:
    if text is None:
        return Wrapped([], doubt="the text of -S is not static", hides=True, suffixes=1)
    # Like a shell's words, but with rules of its own for $ and backslashes: those are not read.
    inner = words_inside(text)
    doubt = "the text of -S cannot be read" if "$" in text or "\\" in text or "#" in text else ""
    rest = [] if at is None else words[at:]
    while inner and re.match(r"[A-Za-z_]\w*=|-", inner[0].text):
        doubt = doubt or "the text of -S has options or variables"
        inner.pop(0)
    command = inner + rest
    return Wrapped([Run(command)] if command else [], doubt=doubt, suffixes=1 if doubt else 0)


_XARGS = Grammar(
    "0rtpxoa:d:E:I:L:n:P:s:i::l::e::",
    "null no-run-if-empty verbose interactive exit open-tty arg-file= delimiter= eof=? "
    "replace=? max-lines=? max-args= max-procs= max-chars= show-limits",
)


def _xargs(words: list[Word]) -> Wrapped:
    parsed = parse(words, 1, _XARGS, first=True)
    at = parsed.operands[0] if parsed.operands else None
    doubt = _doubt(words, parsed, at)
    if at is None:
        return Wrapped([], doubt=doubt, suffixes=1 if doubt else 0)
    marks = [option.text or "{}" for option in parsed.options if option.name in ("I", "i", "replace")]
    inner = [_replaced(word, marks[-1]) for word in words[at:]] if marks else [*words[at:], _anything(words[-1])]
    return Wrapped([Run(inner)], doubt=doubt, suffixes=1 if doubt else 0)


def _anything(after: Word) -> Word:
    """Words that only a run can tell."""
    word = Word(UNKNOWN, after.end, after.end)
    word.unknown = word.splits = True
    word.lead = ""
    return word


def _replaced(word: Word, mark: str) -> Word:
    """The word with its mark replaced by something that is not known."""
    if mark not in word.text:
        return word
    changed = Word(word.text.replace(mark, UNKNOWN), word.at, word.end)
    changed.unknown = True
    changed.lead = word.lead.partition(mark)[0]
    changed.splits = word.splits
    return changed


_FIND_EXEC = frozenset(["-exec", "-execdir", "-ok", "-okdir"])


def _find(words: list[Word]) -> Wrapped | None:
    inners: list[Inner] = []
    index = 1
    while index < len(words):
        if words[index].text in _FIND_EXEC:
            end = next((at for at in range(index + 1, len(words)) if _ends_exec(words, at)), len(words))
            if end > index + 1:
                # A path that find prints begins as its starting point does, which is no option.
                inners.append(Run([_replaced(word, "{}") for word in words[index + 1 : end]]))
            index = end
        index += 1
    return Wrapped(inners) if inners else None


def _ends_exec(words: list[Word], at: int) -> bool:
    return words[at].text == ";" or (words[at].text == "+" and words[at - 1].text == "{}")


def _fd(words: list[Word]) -> Wrapped | None:
    for index, word in enumerate(words):
        flag, attached, value = word.text.partition("=")
        if flag in ("-x", "-X", "--exec", "--exec-batch") or re.fullmatch(r"-[a-zA-Z0]*[xX]", flag):
            inner = ([Word(value, word.at, word.end)] if attached else []) + words[index + 1 :]
            inner = [_replaced(one, "{") if "{" in one.text else one for one in inner]
            if inner:
                return Wrapped([Run([*inner, _anything(words[-1])])])
    return None


_SSH = Grammar("46AaCfGgKkMNnqsTtVvXxYyB:b:c:D:E:e:F:I:i:J:L:l:m:O:o:p:Q:R:S:W:w:")


def _ssh(words: list[Word]) -> Wrapped:
    parsed = parse(words, 1, _SSH, first=True)
    if len(parsed.operands) < 2:
        doubt = _doubt(words, parsed, None)
        return Wrapped(
            [],
            doubt=doubt or ("" if parsed.options and not parsed.operands else "it starts a shell on another machine"),
        )
    # Options may follow the host.
    again = parse(words, parsed.operands[0] + 1, _SSH, first=True)
    at = again.operands[0] if again.operands else None
    doubt = _doubt(words, parsed, parsed.operands[0])
    if at is None:
        return Wrapped([], doubt=doubt or "it starts a shell on another machine")
    return Wrapped([joined(words[at:], "sh")], doubt=doubt)


_SU = Grammar(
    "c:lmpPs:g:G:w:",
    "command= login shell= group= supp-group= pty preserve-environment whitelist-environment= session-command=",
)


def _su(words: list[Word]) -> Wrapped:
    parsed = parse(words, 1, _SU)
    texts = [option for option in parsed.options if option.name in ("c", "command", "session-command")]
    doubt = _doubt(words, parsed, None) if parsed.strange else ""
    if any(option.name in ("s", "shell") for option in parsed.options):
        doubt = doubt or "it chooses a shell"
    if not texts:
        return Wrapped([], doubt=doubt or "it starts a shell", suffixes=1)
    return Wrapped([joined([_as_word(option.value, words)], "sh") for option in texts], doubt=doubt)


def _as_word(value: Word | str | None, words: list[Word]) -> Word:
    if isinstance(value, Word):
        return value
    return _anything(words[-1]) if value is None else Word(value, words[0].at, words[0].end)


def _runuser(words: list[Word]) -> Wrapped:
    if any(word.text in ("-u", "--user") or word.text.startswith("--user=") for word in words):
        return _opaque(words, Grammar("u:g:G:", "user= group= supp-group="), 0)
    return _su(words)


_WATCH = Grammar(
    "bcdegn:ptxwq:", "beep color differences=? errexit chgexit interval= precise no-title exec no-wrap equexit="
)


def _watch(words: list[Word]) -> Wrapped:
    parsed = parse(words, 1, _WATCH, first=True)
    at = parsed.operands[0] if parsed.operands else None
    doubt = _doubt(words, parsed, at)
    if at is None:
        return Wrapped([], doubt=doubt)
    if any(option.name in ("x", "exec") for option in parsed.options):
        return Wrapped([Run(words[at:])], doubt=doubt)
    return Wrapped([joined(words[at:], "sh")], doubt=doubt)


_SCRIPT = Grammar(
    "ac:eE:fI:O:B:T:m:o:qt::", "append command= return echo= flush log-in= log-out= log-io= log-timing= quiet timing=?"
)


def _script(words: list[Word]) -> Wrapped:
    parsed = parse(words, 1, _SCRIPT)
    texts = [option for option in parsed.options if option.name in ("c", "command")]
    if not texts:
        return Wrapped([], doubt="it starts a shell", suffixes=1)
    doubt = _doubt(words, parsed, None) if parsed.strange else ""
    return Wrapped([joined([_as_word(option.value, words)], "sh") for option in texts], doubt=doubt)


_FLOCK = Grammar(
    "sexnuw:E:oFc:v",
    "shared exclusive unlock nonblock timeout= wait= conflict-exit-code= close no-fork command= verbose",
)


def _flock(words: list[Word]) -> Wrapped:
    parsed = parse(words, 1, _FLOCK, first=True)
    at = parsed.operands[0] if parsed.operands else None
    doubt = _doubt(words, parsed, at)
    if at is None or at + 1 >= len(words):
        return Wrapped([], doubt=doubt)
    if words[at + 1].text in ("-c", "--command") and at + 2 < len(words):
        return Wrapped([joined(words[at + 2 : at + 3], "sh")], doubt=doubt)
    return Wrapped([Run(words[at + 1 :])], doubt=doubt)


def _parallel(words: list[Word]) -> Wrapped:
    grammar = Grammar(
        "j:kvqmXn:N:L:I:P:uta:0rd:",
        "jobs= keep-order verbose quote bar progress eta halt= null dry-run tag group ungroup "
        "max-args= colsep= delay= no-run-if-empty will-cite delimiter=",
    )
    parsed = parse(words, 1, grammar, first=True)
    at = parsed.operands[0] if parsed.operands else len(words)
    ends = next((index for index in range(at, len(words)) if words[index].text.startswith(":::")), len(words))
    doubt = _doubt(words, parsed, at if at < len(words) else None)
    if at < ends:
        inner = [_replaced(word, "{") if "{" in word.text else word for word in words[at:ends]]
        return Wrapped([joined([*inner, _anything(words[-1])], "sh")], doubt=doubt, suffixes=1 if doubt else 0)
    # Without a command the arguments are commands.
    texts = [joined([word], "sh") for word in words[ends + 1 :] if not word.text.startswith(":::")]
    return Wrapped(texts, doubt=doubt or "its commands come from its input", hides=True, suffixes=1)


def _eval(words: list[Word]) -> Wrapped:
    rest = words[2:] if len(words) > 1 and words[1].text == "--" else words[1:]
    return Wrapped([joined(rest, "bash")] if rest else [])


def _trap(words: list[Word]) -> Wrapped:
    rest = words[1:]
    if rest and rest[0].text == "--":
        rest = rest[1:]
    if not rest or rest[0].text in ("-", "", "-l", "-p", "-P") or (len(rest) == 1 and rest[0].static):
        return Wrapped([])
    return Wrapped([joined(rest[:1], "bash")])


def _alias(words: list[Word]) -> Wrapped:
    bodies = []
    for word in words[1:]:
        _, set_, body = word.text.partition("=")
        if set_:
            inner = Word(body, word.at, word.end)
            inner.unknown = word.unknown
            bodies.append(joined([inner], "bash"))
    return Wrapped(bodies, doubt="an alias changes what later commands mean" if bodies else "")


def _git(words: list[Word]) -> Wrapped | None:
    from outlast.permissions.git import inner_commands

    return inner_commands(words)


def _npm(words: list[Word]) -> Wrapped | None:
    texts = []
    for index, word in enumerate(words):
        flag, attached, value = word.text.partition("=")
        if flag in ("-c", "--call"):
            texts.append(
                Word(value, word.at, word.end) if attached else words[index + 1] if index + 1 < len(words) else word
            )
    wanted = base(words[0].text) == "npx" or any(word.text in ("exec", "x") for word in words)
    return Wrapped([joined([text], "sh") for text in texts]) if texts and wanted else None


_SPECIAL = {
    "env": _env,
    "xargs": _xargs,
    "find": _find,
    "gfind": _find,
    "fd": _fd,
    "fdfind": _fd,
    "ssh": _ssh,
    "su": _su,
    "runuser": _runuser,
    "watch": _watch,
    "script": _script,
    "flock": _flock,
    "parallel": _parallel,
    "eval": _eval,
    "trap": _trap,
    "alias": _alias,
    "git": _git,
    "npm": _npm,
    "npx": _npm,
}
