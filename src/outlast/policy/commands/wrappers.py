"""Commands that run other commands: what they run, and whether their own words can be read.

A transparent wrapper (`timeout 5 …`) adds nothing to what it runs, so the rule for the inner command is enough. An
opaque one (`sudo`, `xargs`, `sh -c`) needs a rule for itself and one for what it runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from outlast.light import replace as with_fields
from outlast.policy.bash.variables import is_safe
from outlast.policy.bash.words import Word, names, table, with_text
from outlast.policy.commands import git
from outlast.policy.commands.getopt import Grammar, Parsed, grammar, parse
from outlast.policy.commands.nested import NestedCommands, base, given_texts, is_static, join
from outlast.policy.commands.shells import SHELLS, code_of_alias, code_of_eval, code_of_shell, code_of_trap
from outlast.policy.patterns import UNKNOWN


def _grammars(table: str) -> dict[str, tuple[Grammar, int]]:
    """From lines of names, how many operands stand before the command, the short options (or -) and the long ones."""
    found: dict[str, tuple[Grammar, int]] = {}
    for line in re.findall(r"(\S.*?) (\d) (.+)", table):
        found |= dict.fromkeys(line[0].split(), (grammar(line[2]), int(line[1])))
    return found


_TRANSPARENT = _grammars("""
    time 0 -af:o:pvVq append format= output= portability verbose quiet
    timeout 1 -k:s:vfp kill-after= signal= verbose foreground preserve-status
    nice 0 -n: adjustment=
    ionice 0 -c:n:t class= classdata= ignore
    nohup builtin 0 -
    stdbuf 0 -i:o:e: input= output= error=
    setsid 0 -cfw ctty fork wait
    command 0 -pvV
""")
_GRAMMARS = _TRANSPARENT | _grammars("""
    doas 0 -C:u:n
    chroot 1 - userspec= groups= skip-chdir
    unshare 0 -m::u::i::n::p::U::C::T::frcR:w:S:G: mount=? uts=? ipc=? net=? pid=? user=? cgroup=? time=? fork \
    map-root-user map-current-user mount-proc=? kill-child=? propagation= setgroups= root= wd= setuid= setgid=
    nsenter 0 -at:m::u::i::n::p::U::C::T::S:G:r::w::F all target= mount=? uts=? ipc=? net=? pid=? user=? root=? wd=? \
    no-fork
    systemd-run 0 -tPqGrp:u:E:dH:M: user system scope pty pipe quiet collect wait same-dir remain-after-exit no-block \
    no-ask-password unit= property= slice= uid= gid= nice= setenv= working-directory= service-type= description= \
    on-active= on-boot= on-calendar=
    strace 0 -fFcCdhiknqrtTvVwxyYzZe:a:b:E:I:O:p:P:s:S:u:U:X: follow-forks summary-only summary trace= signal= quiet=?
    ltrace 0 -cCfhiLrStTVe:a:A:n:p:s:u:x:l:
    taskset 1 -ac all-tasks cpu-list
    chrt 1 -abfimorRvT:P:D: all-tasks batch fifo idle other rr reset-on-fork
    choom 0 -n: adjust=
    exec 0 -cla:
    busybox toybox catchsegv torsocks dbus-run-session 0 -
    gosu su-exec 1 -
    fakeroot 0 -ul:s:i:b: lib= faked= unknown-is-real
    chronic 0 -ve
    ifne 0 -n
    unbuffer 0 -p
    proxychains proxychains4 0 -q
    caffeinate 0 -disumt:w:
    sudo 0 -ABbEHnPSkNC:D:g:h:p:R:r:t:T:U:u: askpass background preserve-env=? set-home non-interactive \
    preserve-groups stdin reset-timestamp close-from= chdir= group= host= prompt= chroot= role= type= \
    command-timeout= other-user= user=
    env 0 -iu:C:S:v0a: ignore-environment unset= chdir= split-string= debug null argv0= block-signal=? \
    default-signal=? ignore-signal=? list-signal-handling
    xargs 0 -0rtpxoa:d:E:I:L:n:P:s:i::l::e:: null no-run-if-empty verbose interactive exit open-tty arg-file= \
    delimiter= eof=? replace=? max-lines=? max-args= max-procs= max-chars= show-limits
    ssh 0 -46AaCfGgKkMNnqsTtVvXxYyB:b:c:D:E:e:F:I:i:J:L:l:m:O:o:p:Q:R:S:W:w:
    su 0 -c:lmpPs:g:G:w: command= login shell= group= supp-group= pty preserve-environment whitelist-environment= \
    session-command=
    runuser 0 -u:g:G: user= group= supp-group=
    watch 0 -bcdegn:ptxwq: beep color differences=? errexit chgexit interval= precise no-title exec no-wrap equexit=
    script 0 -ac:eE:fI:O:B:T:m:o:qt:: append command= return echo= flush log-in= log-out= log-io= log-timing= quiet \
    timing=?
    flock 0 -sexnuw:E:oFc:v shared exclusive unlock nonblock timeout= wait= conflict-exit-code= close no-fork \
    command= verbose
    parallel 0 -j:kvqmXn:N:L:I:P:uta:0rd: jobs= keep-order verbose quote bar progress eta halt= null dry-run tag \
    group ungroup max-args= colsep= delay= no-run-if-empty will-cite delimiter=
""")
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
    outlast uv poetry pipenv pdm hatch rye conda mamba micromamba op doppler pipx: run; lxc bundle direnv: exec
    docker nerdctl: run exec create; podman: run exec create unshare; docker-compose: run exec; oc: exec run rsh
    kubectl: exec run debug
    mix: cmd run; pnpm: exec dlx; yarn: exec dlx node; bun: x; ip: netns exec; vagrant: ssh; nix: run shell develop
    cmake: -E; perf: record stat trace; rr: record; machinectl: shell; systemd-nspawn: -D -i -M; jobs: -x
"""
UNPARSED_WRAPPERS: dict[str, frozenset[str]] = dict.fromkeys(_DIRECT, frozenset[str]()) | table(_TRIGGERS)
_DIRECTORY = {  # options that choose another one
    "env": ("C", "chdir"),
    "sudo": ("D", "chdir", "R", "chroot"),
    "unshare": ("w", "wd", "R", "root"),
    "systemd-run": ("working-directory", "p", "property"),
}
_SHELL = "it starts a shell"
_REMOTE_SHELL = "it starts a shell on another machine"


def is_wrapper(name: str) -> bool:
    """Whether a program of this base name may run other commands."""
    return name in _GRAMMARS or name in _WRAPPER_PARSERS or name in SHELLS or name in UNPARSED_WRAPPERS


def nested_commands(words: list[Word], bodies: list[str]) -> NestedCommands | None:
    """What a command runs besides itself; None if it is no wrapper."""
    name = base(words[0].text)
    if name in _WRAPPER_PARSERS:
        return _WRAPPER_PARSERS[name](words)
    if name in SHELLS:
        return code_of_shell(words, name, bodies)
    return _simple(words) if name in _GRAMMARS else None


def find_inner_start(words: list[Word]) -> int | None:
    """Where the inner command of a loose wrapper may begin; None if there is none."""
    triggers = UNPARSED_WRAPPERS.get(base(words[0].text))
    if triggers is None or len(words) < 2:
        return None
    return next((at + 1 for at, word in enumerate(words) if word.text in triggers), None if triggers else 1)


# --- a wrapper as its grammar reads it ---------------------------------------------------


class _Call:
    """The options of a wrapper, where what it runs begins, and why that is not certain."""

    def __init__(self, words: list[Word], start: int = 1) -> None:
        self.name = base(words[0].text)
        known, skipped = _GRAMMARS[self.name]
        self.words, self.parsed = words, parse(words, start, known, first=True)
        self.at = next(iter(self.parsed.operands[skipped:]), None)
        self.doubt = _doubt_of(words, self.parsed, self.at)
        self.rest = [] if self.at is None else words[self.at :]

    def has(self, *names: str) -> bool:
        return any(option.name in names for option in self.parsed.options)


def _doubt_of(words: list[Word], parsed: Parsed, at: int | None) -> str:
    before = words[1 : len(words) if at is None else at]
    if parsed.strange and (at is None or parsed.strange[0] < at):
        return f"what {words[parsed.strange[0]].text.replace(UNKNOWN, '…')} means is not known"
    if not is_static(before):
        return "its own words are not static"
    return ""


def _runs(words: list[Word], doubt: str, *, transparent: bool = False) -> NestedCommands:
    return NestedCommands([words] if words else [], transparent, doubt, suffixes=1 if doubt else 0)


def _set_variable(word: Word, doubt: str) -> str:
    name = word.text.partition("=")[0]
    return doubt if word.static and is_safe(name) else doubt or f"it sets {name}"


def _simple(words: list[Word]) -> NestedCommands:
    """A wrapper that runs the words behind its own."""
    name = base(words[0].text)
    is_number = name == "nice" and len(words) > 1 and re.fullmatch(r"--?[0-9]+", words[1].text)
    call = _Call(words, 2 if is_number else 1)
    doubt, at = call.doubt, call.at
    # Behind a word that is not known -v may be an argument: `command $X -v ls` runs $X.
    if name == "command" and any(one.name in "vV" for one in call.parsed.options if at is None or one.index < at):
        return NestedCommands([])
    if name == "time" and call.has("o", "output"):
        doubt = doubt or "-o writes a file"
    directory = _directory(call)
    if directory != "":
        doubt = doubt or "it runs in another directory"
    if at is None:
        # `sudo -i`, `chroot dir`, `unshare` alone: an interactive shell.
        alone = name in _TRANSPARENT or name in ("exec", "busybox", "toybox")
        return NestedCommands([], doubt=doubt if alone else doubt or _SHELL, suffixes=1)
    while at < len(words) - 1 and name in ("sudo", "doas") and re.match(r"[A-Za-z_]\w*=", words[at].text):
        doubt = _set_variable(words[at], doubt)
        at += 1
    return with_fields(_runs(words[at:], doubt, transparent=name in _TRANSPARENT), directory=directory)


def _directory(call: _Call) -> str | None:
    """The directory that its options choose: "" if none, None if it is not known."""
    names = _DIRECTORY.get(call.name, ())
    return next((option.text for option in call.parsed.options if option.name in names), "")


# --- wrappers with a grammar of their own ------------------------------------------------


def anything(after: Word) -> Word:
    """Words that only a run can tell."""
    word = Word(UNKNOWN, after.end, after.end)
    word.unknown = word.splits = True
    word.lead = ""
    return word


def replace_mark(word: Word, mark: str) -> Word:
    """The word with its mark replaced by something that is not known."""
    if mark not in word.text:
        return word
    changed = with_text(word, word.text.replace(mark, UNKNOWN))
    changed.unknown, changed.lead = True, word.lead.partition(mark)[0]
    return changed


def exec_ranges(words: list[Word]) -> list[tuple[int, int]]:
    """Where `find` is given commands: from each `-exec` to what ends it."""
    found, start = [], 0
    for index, word in enumerate(words):
        if not start and word.text in ("-exec", "-execdir", "-ok", "-okdir"):
            start = index
        elif start and (word.text == ";" or (word.text == "+" and words[index - 1].text == "{}")):
            found.append((start, index))
            start = 0
    return [*found, (start, len(words))] if start else found


def _env(words: list[Word]) -> NestedCommands:
    call = _Call(words)
    rest = call.parsed.operands
    if rest and words[rest[0]].text == "-":
        rest = rest[1:]
    doubt = ""
    while rest and "=" in words[rest[0]].lead:
        doubt = _set_variable(words[rest[0]], doubt)
        rest = rest[1:]
    at = rest[0] if rest else len(words)
    directory = _directory(call)
    if directory != "":
        doubt = doubt or "it runs in another directory"
    if call.parsed.strange or call.parsed.unsure:
        doubt = _doubt_of(words, call.parsed, at)
    for option in call.parsed.options:
        if option.name in ("S", "split-string"):
            return _split(None if call.parsed.unsure else option.text, words[at:])
    return with_fields(_runs(words[at:], doubt, transparent=at < len(words)), directory=directory)


def _split(text: str | None, rest: list[Word]) -> NestedCommands:
    if text is None:
        return NestedCommands([], doubt="the text of -S is not static", hides=True, suffixes=1)
    # Like a shell's words, but with rules of its own for $ and backslashes: those are not read.
    inner = _words_inside(text)
    escaped = "$" in text or "\\" in text
    doubt = "the text of -S cannot be read" if escaped or "#" in text else ""
    while inner and re.match(r"[A-Za-z_]\w*=|-", inner[0].text):
        doubt = doubt or "the text of -S has options or variables"
        inner.pop(0)
    command = inner + rest
    return NestedCommands([command] if command else [], doubt=doubt, hides=escaped, suffixes=1 if doubt else 0)


def _words_inside(text: str) -> list[Word]:
    """The words of a text that is split as a shell does it."""
    from outlast.policy.bash.parser import read

    commands = read(text).commands
    words = commands[0].words if len(commands) == 1 else []
    return [*words] if words or not text.strip() else [Word(part, 0, 0) for part in text.split()]


def _xargs(words: list[Word]) -> NestedCommands:
    call = _Call(words)
    marks = [option.text or "{}" for option in call.parsed.options if option.name in ("I", "i", "replace")]
    if marks:
        return _runs([replace_mark(word, marks[-1]) for word in call.rest], call.doubt)
    return _runs([*call.rest, anything(words[-1])] if call.rest else [], call.doubt)


def _find(words: list[Word]) -> NestedCommands | None:
    # A path that find prints begins as its starting point does, which is no option.
    ranges = [(start, end) for start, end in exec_ranges(words) if end > start + 1]
    inners = [[replace_mark(word, "{}") for word in words[start + 1 : end]] for start, end in ranges]
    return NestedCommands(inners) if inners else None


def _fd(words: list[Word]) -> NestedCommands | None:
    for index, word in enumerate(words[1:], 1):
        match = re.fullmatch(r"(?:--exec(?:-batch)?=?|-[a-zA-Z0]*?[xX])(.*)", word.text, re.DOTALL)
        if match is None:
            continue
        inner = ([Word(match[1], word.at, word.end)] if match[1] else []) + words[index + 1 :]
        if inner:
            return NestedCommands([[*(replace_mark(one, "{") for one in inner), anything(words[-1])]])
    return None


def _ssh(words: list[Word]) -> NestedCommands:
    call = _Call(words)
    operands = call.parsed.operands
    if not operands and call.parsed.options:
        return NestedCommands([], doubt=call.doubt)
    if len(operands) < 2:
        return NestedCommands([], doubt=_doubt_of(words, call.parsed, None) or _REMOTE_SHELL)
    again = _Call(words, operands[0] + 1)  # options may follow the host
    if not again.rest:
        return NestedCommands([], doubt=call.doubt or _REMOTE_SHELL)
    return NestedCommands([join(again.rest, "sh")], doubt=call.doubt)


def _gives_text(words: list[Word]) -> NestedCommands:
    """su, runuser and script: an option gives a text; without one they start a shell."""
    name = "script" if words[0].text.endswith("script") else "su"
    parsed = parse(words, 1, _GRAMMARS[name][0])
    texts = given_texts(words, parsed, "c", "command", "session-command")
    doubt = _doubt_of(words, parsed, None) if parsed.strange or parsed.unsure else ""
    if any(one.name in ("s", "shell") for one in parsed.options):
        doubt = doubt or "it chooses a shell"
    return NestedCommands(texts, doubt=doubt or ("" if texts else _SHELL), suffixes=0 if texts else 1)


def _runuser(words: list[Word]) -> NestedCommands:
    as_user = any(word.text in ("-u", "--user") or word.text.startswith("--user=") for word in words)
    return _simple(words) if as_user else _gives_text(words)


def _watch(words: list[Word]) -> NestedCommands:
    call = _Call(words)
    if not call.rest:
        return NestedCommands([], doubt=call.doubt)
    return NestedCommands([call.rest if call.has("x", "exec") else join(call.rest, "sh")], doubt=call.doubt)


def _flock(words: list[Word]) -> NestedCommands:
    call = _Call(words)
    command = call.rest[1:]
    if len(command) > 1 and command[0].text in ("-c", "--command"):
        return NestedCommands([join(command[1:2], "sh")], doubt=call.doubt)
    return NestedCommands([command] if command else [], doubt=call.doubt)


def _parallel(words: list[Word]) -> NestedCommands:
    call = _Call(words)
    doubt, at = call.doubt, len(words) - len(call.rest)
    ends = next((index for index in range(at, len(words)) if words[index].text.startswith(":::")), len(words))
    if at < ends:
        inner = [*(replace_mark(word, "{") for word in words[at:ends]), anything(words[-1])]
        return NestedCommands([join(inner, "sh")], doubt=doubt, suffixes=1 if doubt else 0)
    # Without a command the arguments are commands.
    texts = [join([word], "sh") for word in words[ends + 1 :] if not word.text.startswith(":::")]
    return NestedCommands(texts, doubt=doubt or "its commands come from its input", hides=True, suffixes=1)


def _npm(words: list[Word]) -> NestedCommands | None:
    texts = given_texts(words, parse(words, 1, grammar("-c: call=")), "c", "call")
    wanted = base(words[0].text) == "npx" or any(word.text in ("exec", "x") for word in words)
    return NestedCommands(texts) if texts and wanted else None


_WRAPPER_PARSERS: dict[str, Callable[[list[Word]], NestedCommands | None]] = {
    "env": _env,
    "xargs": _xargs,
    **dict.fromkeys(("find", "gfind"), _find),
    **dict.fromkeys(("fd", "fdfind"), _fd),
    "ssh": _ssh,
    "su": _gives_text,
    "runuser": _runuser,
    "watch": _watch,
    "script": _gives_text,
    "flock": _flock,
    "parallel": _parallel,
    "eval": code_of_eval,
    "trap": code_of_trap,
    "alias": code_of_alias,
    "git": git.inner_commands,
    "npm": _npm,
    "npx": _npm,
}
