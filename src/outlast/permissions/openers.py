"""Wrappers with a grammar of their own: what each of them runs."""

from __future__ import annotations

import re
from collections.abc import Callable

from outlast.permissions import git
from outlast.permissions.getopt import Grammar, parse
from outlast.permissions.variables import is_harmless
from outlast.permissions.words import Word
from outlast.permissions.wrapping import (
    Inner,
    Run,
    Wrapped,
    anything,
    as_word,
    base,
    doubt_of,
    joined,
    opaque,
    replaced,
    words_inside,
)

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
    if any(option.name in ("C", "chdir") for option in parsed.options):
        doubt = doubt or "it runs in another directory"
    doubt = doubt_of(words, parsed, at) if parsed.strange or parsed.unsure else doubt
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
    escaped = "$" in text or "\\" in text
    doubt = "the text of -S cannot be read" if escaped or "#" in text else ""
    rest = [] if at is None else words[at:]
    while inner and re.match(r"[A-Za-z_]\w*=|-", inner[0].text):
        doubt = doubt or "the text of -S has options or variables"
        inner.pop(0)
    command = inner + rest
    return Wrapped([Run(command)] if command else [], doubt=doubt, hides=escaped, suffixes=1 if doubt else 0)


_XARGS = Grammar(
    "0rtpxoa:d:E:I:L:n:P:s:i::l::e::",
    "null no-run-if-empty verbose interactive exit open-tty arg-file= delimiter= eof=? "
    "replace=? max-lines=? max-args= max-procs= max-chars= show-limits",
)


def _xargs(words: list[Word]) -> Wrapped:
    parsed = parse(words, 1, _XARGS, first=True)
    at = parsed.operands[0] if parsed.operands else None
    doubt = doubt_of(words, parsed, at)
    if at is None:
        return Wrapped([], doubt=doubt, suffixes=1 if doubt else 0)
    marks = [option.text or "{}" for option in parsed.options if option.name in ("I", "i", "replace")]
    inner = [replaced(word, marks[-1]) for word in words[at:]] if marks else [*words[at:], anything(words[-1])]
    return Wrapped([Run(inner)], doubt=doubt, suffixes=1 if doubt else 0)


_FIND_EXEC = frozenset(["-exec", "-execdir", "-ok", "-okdir"])


def _find(words: list[Word]) -> Wrapped | None:
    inners: list[Inner] = []
    index = 1
    while index < len(words):
        if words[index].text in _FIND_EXEC:
            end = next((at for at in range(index + 1, len(words)) if _ends_exec(words, at)), len(words))
            if end > index + 1:
                # A path that find prints begins as its starting point does, which is no option.
                inners.append(Run([replaced(word, "{}") for word in words[index + 1 : end]]))
            index = end
        index += 1
    return Wrapped(inners) if inners else None


def _ends_exec(words: list[Word], at: int) -> bool:
    return words[at].text == ";" or (words[at].text == "+" and words[at - 1].text == "{}")


def _fd(words: list[Word]) -> Wrapped | None:
    for index, word in enumerate(words[1:], 1):
        match = re.fullmatch(r"(?:--exec(?:-batch)?=?|-[a-zA-Z0]*?[xX])(.*)", word.text, re.DOTALL)
        if match is None:
            continue
        inner = ([Word(match[1], word.at, word.end)] if match[1] else []) + words[index + 1 :]
        inner = [replaced(one, "{") if "{" in one.text else one for one in inner]
        if inner:
            return Wrapped([Run([*inner, anything(words[-1])])])
    return None


_SSH = Grammar("46AaCfGgKkMNnqsTtVvXxYyB:b:c:D:E:e:F:I:i:J:L:l:m:O:o:p:Q:R:S:W:w:")


def _ssh(words: list[Word]) -> Wrapped:
    parsed = parse(words, 1, _SSH, first=True)
    if len(parsed.operands) < 2:
        doubt = doubt_of(words, parsed, None)
        return Wrapped(
            [],
            doubt=doubt or ("" if parsed.options and not parsed.operands else "it starts a shell on another machine"),
        )
    # Options may follow the host.
    again = parse(words, parsed.operands[0] + 1, _SSH, first=True)
    at = again.operands[0] if again.operands else None
    doubt = doubt_of(words, parsed, parsed.operands[0])
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
    doubt = doubt_of(words, parsed, None) if parsed.strange else ""
    if any(option.name in ("s", "shell") for option in parsed.options):
        doubt = doubt or "it chooses a shell"
    if not texts:
        return Wrapped([], doubt=doubt or "it starts a shell", suffixes=1)
    return Wrapped([joined([as_word(option.value, words)], "sh") for option in texts], doubt=doubt)


_RUNUSER = Grammar("u:g:G:", "user= group= supp-group=")


def _runuser(words: list[Word]) -> Wrapped:
    if any(word.text in ("-u", "--user") or word.text.startswith("--user=") for word in words):
        return opaque(words, _RUNUSER, 0)
    return _su(words)


_WATCH = Grammar(
    "bcdegn:ptxwq:", "beep color differences=? errexit chgexit interval= precise no-title exec no-wrap equexit="
)


def _watch(words: list[Word]) -> Wrapped:
    parsed = parse(words, 1, _WATCH, first=True)
    at = parsed.operands[0] if parsed.operands else None
    doubt = doubt_of(words, parsed, at)
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
    doubt = doubt_of(words, parsed, None) if parsed.strange else ""
    return Wrapped([joined([as_word(option.value, words)], "sh") for option in texts], doubt=doubt)


_FLOCK = Grammar(
    "sexnuw:E:oFc:v",
    "shared exclusive unlock nonblock timeout= wait= conflict-exit-code= close no-fork command= verbose",
)


def _flock(words: list[Word]) -> Wrapped:
    parsed = parse(words, 1, _FLOCK, first=True)
    at = parsed.operands[0] if parsed.operands else None
    doubt = doubt_of(words, parsed, at)
    if at is None or at + 1 >= len(words):
        return Wrapped([], doubt=doubt)
    if words[at + 1].text in ("-c", "--command") and at + 2 < len(words):
        return Wrapped([joined(words[at + 2 : at + 3], "sh")], doubt=doubt)
    return Wrapped([Run(words[at + 1 :])], doubt=doubt)


_PARALLEL = Grammar(
    "j:kvqmXn:N:L:I:P:uta:0rd:",
    "jobs= keep-order verbose quote bar progress eta halt= null dry-run tag group ungroup "
    "max-args= colsep= delay= no-run-if-empty will-cite delimiter=",
)


def _parallel(words: list[Word]) -> Wrapped:
    parsed = parse(words, 1, _PARALLEL, first=True)
    at = parsed.operands[0] if parsed.operands else len(words)
    ends = next((index for index in range(at, len(words)) if words[index].text.startswith(":::")), len(words))
    doubt = doubt_of(words, parsed, at if at < len(words) else None)
    if at < ends:
        inner = [replaced(word, "{") if "{" in word.text else word for word in words[at:ends]]
        return Wrapped([joined([*inner, anything(words[-1])], "sh")], doubt=doubt, suffixes=1 if doubt else 0)
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


OPENERS: dict[str, Callable[[list[Word]], Wrapped | None]] = {
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
    "git": git.inner_commands,
    "npm": _npm,
    "npx": _npm,
}
