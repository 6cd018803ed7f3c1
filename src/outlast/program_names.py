"""Which programs a shell line runs: its simple commands, read as a shell would read them.

Good enough to guess what a command is for (`cd app && FOO=1 npm run dev` runs npm); what
it may do is judged by a real grammar elsewhere. It never fails: what is no proper shell
is read as far as it makes sense. Pure, and linear in the length of the text.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

DEEPEST = 4  # texts within texts: bash -c 'sh -c "..."'

_BLANKS = " \t\r"
_ENDS_WORD = frozenset(" \t\r\n;&|()<>")
_OPERATORS = ("&&", "||", ";;", "|&", ";&", "&", "|", ";", "\n", "(", ")")
_REDIRECTIONS = ("&>>", "<<<", "<<-", "&>", ">>", "<<", "<>", ">&", "<&", ">|", "<", ">")
_OPENERS = {"$(": ")", "${": "}", "<(": ")", ">(": ")", "`": "`", '"': '"'}


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_BEFORE_A_COMMAND = _names("! { } if then elif else fi do done while until coproc esac")
_NO_COMMAND = _names("for select case function [[")
# They prepare or report, and are never what a line is for.
TRIVIAL = _names(
    ". : [ alias cat cd clear declare dirname echo exit export false hash local ls mkdir popd printf pushd pwd "
    "read readonly return set shift shopt sleep source test touch trap true type typeset ulimit umask unalias unset "
    "wait which"
)
_SHELLS = _names("bash sh dash zsh ksh ash mksh fish")
# What stands before another command: the options that take a value, and how many words come before the command.
_WRAPPERS: dict[str, tuple[frozenset[str], int]] = {
    "builtin": (_names(""), 0),
    "busybox": (_names(""), 0),
    "chronic": (_names(""), 0),
    "command": (_names(""), 0),
    "doas": (_names("-u -C"), 0),
    "env": (_names("-u -C -S --unset --chdir"), 0),
    "exec": (_names("-a"), 0),
    "flock": (_names("-w -E --timeout --wait --conflict-exit-code"), 1),
    "ionice": (_names("-c -n -p -P -u --class --classdata"), 0),
    "nice": (_names("-n --adjustment"), 0),
    "nohup": (_names(""), 0),
    "setsid": (_names(""), 0),
    "stdbuf": (_names("-i -o -e --input --output --error"), 0),
    "strace": (_names("-e -o -p -s -u -P -E"), 0),
    "sudo": (_names("-u -g -p -C -D -R -T -h -r -t -U --user --group --chdir --prompt"), 0),
    "taskset": (_names(""), 1),
    "time": (_names("-f -o --format --output"), 0),
    "timeout": (_names("-k -s --kill-after --signal"), 1),
    "unbuffer": (_names(""), 0),
    "watch": (_names("-n --interval"), 0),
    "xargs": (_names("-a -d -E -I -L -n -P -s --arg-file --delimiter --max-args --max-procs --max-lines --replace"), 0),
}


def runs_any(command: str, names: Collection[str]) -> bool:
    """Whether one of the commands in a line is one of these programs, by its base name, case ignored."""
    return any(name in names or name.rstrip("0123456789.-") in names for name in roots(command))


def roots(command: str) -> list[str]:
    """The base names of the programs that a line runs, in lower case, without trivial ones."""
    return [root for root in _roots(command, DEEPEST) if root not in TRIVIAL]


def _roots(text: str, deeper: int) -> Iterator[str]:
    for words in simple_commands(text):
        rest = unwrap(words)
        if not rest:
            continue
        root = rest[0].rstrip("/").rpartition("/")[2].lower()
        inner = _inner_text(root, rest)
        if inner is None or not deeper:
            yield root
        else:
            yield from _roots(inner, deeper - 1)


def _inner_text(root: str, words: list[str]) -> str | None:
    """The text that a command runs as another shell line."""
    if root == "eval":
        return " ".join(words[1:])
    if root in _SHELLS:
        for number, word in enumerate(words[1:-1], 1):
            if word[:1] == "-" and word[1:2] != "-" and "c" in word:
                return words[number + 1]
    return None


def unwrap(words: list[str]) -> list[str]:
    """A simple command without assignments and without the programs that only run another one."""
    at = _behind_assignments(words, 0)
    while at < len(words):
        name = words[at].rpartition("/")[2].lower()
        if name not in _WRAPPERS:
            return words[at:]
        valued, positional = _WRAPPERS[name]
        at, asks = _behind_options(words, at + 1, valued)
        if name == "command" and asks:
            return []  # `command -v npm` runs nothing
        at = _behind_assignments(words, at + positional)
    return []


def _behind_options(words: list[str], at: int, valued: frozenset[str]) -> tuple[int, bool]:
    asks = False
    while at < len(words) and words[at][:1] == "-":
        word = words[at]
        at += 2 if word in valued else 1
        if word == "--":
            break
        asks = asks or word in ("-v", "-V")
    return at, asks


def _behind_assignments(words: list[str], at: int) -> int:
    while at < len(words) and _is_assignment(words[at]):
        at += 1
    return at


def _is_assignment(word: str) -> bool:
    name, equals, _ = word.partition("=")
    return bool(equals) and name.removesuffix("+").partition("[")[0].isidentifier()


# --- a text to its simple commands -------------------------------------------------------


def simple_commands(text: str) -> list[list[str]]:
    """The words of each simple command, without quotes, redirections, comments and the shell's own words."""
    found: list[list[str]] = []
    words: list[str] = []
    depth = 0
    for kind, token in _tokens(text):
        if kind == "word":
            if words or token not in _BEFORE_A_COMMAND:
                words.append(token)
            continue
        if kind == "quoted":
            words.append(token)
            continue
        # `name (` defines a function; a `)` that nothing opened ends a pattern of `case`.
        if words and words[0] not in _NO_COMMAND and token != "(" and not (token == ")" and depth == 0):
            found.append(words)
        words = []
        depth += (token == "(") - (token == ")" and depth > 0)
    if words and words[0] not in _NO_COMMAND:
        found.append(words)
    return found


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Words, quoted words and operators; redirections, comments and here-documents are left out."""
    at, drop = 0, False
    documents: list[tuple[str, bool]] = []  # that begin in the next line
    here: str | None = None  # the operator of a here-document whose delimiter comes next
    while at < len(text):
        if (behind := _behind_blanks(text, at)) > at:
            at = behind
        elif redirection := _redirection(text, at):
            at += len(redirection)
            drop, here = True, redirection if redirection in ("<<", "<<-") else None
        elif operator := next((one for one in _OPERATORS if text.startswith(one, at)), ""):
            at += len(operator)
            if operator == "\n":
                for delimiter, tabs in documents:
                    at = _behind_document(text, at, delimiter, tabs)
                documents = []
            drop, here = False, None
            yield "operator", operator
        else:
            word, quoted, at = _word(text, at)
            if here and not word.isdigit():  # a shift, as in $((1 << 2)), is no document
                documents.append((word, here == "<<-"))
            elif not drop and not (word.isdigit() and text[at : at + 1] in ("<", ">")):
                yield "quoted" if quoted else "word", word
            drop, here = False, None


def _behind_blanks(text: str, at: int) -> int:
    """Past a blank, a continued line or a comment."""
    if text[at] == "#":
        return _end_of_line(text, at)
    return at + 1 if text[at] in _BLANKS else at + 2 if text.startswith("\\\n", at) else at


def _redirection(text: str, at: int) -> str:
    if text[at] not in "<>&" or text[at : at + 2] in ("<(", ">(", "&&"):
        return ""
    return next((one for one in _REDIRECTIONS if text.startswith(one, at)), "")


def _end_of_line(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _behind_document(text: str, at: int, delimiter: str, tabs: bool) -> int:
    while at < len(text):
        end = _end_of_line(text, at)
        line = text[at:end]
        at = end + 1
        if (line.lstrip("\t") if tabs else line) == delimiter:
            break
    return min(at, len(text))


def _word(text: str, at: int) -> tuple[str, bool, int]:
    """The word that begins here, without its quotes; whether it had any; where it ends."""
    parts: list[str] = []
    start, quoted = at, False
    while at < len(text):
        char = text[at]
        if char in _ENDS_WORD and not (char in "<>" and text[at + 1 : at + 2] == "(" and at == start):
            if not (char == "(" and parts and parts[-1] == "="):
                break
            at = _end_of(text, at + 1, ")")  # a list, as in a=(1 2)
        elif char == "\\":
            parts.append(text[at + 1 : at + 2].strip("\n"))
            at, quoted = at + 2, True
        elif char == "'" or text.startswith("$'", at):
            at, quoted = _in_single_quotes(text, at, parts), True
        elif char == '"':
            end = _end_of(text, at + 1, '"')
            parts.append(_without_escapes(text[at + 1 : end - 1]))
            at, quoted = end, True
        elif closer := _OPENERS.get(text[at : at + 2]) or _OPENERS.get(char):
            end = _end_of(text, at + (1 if char == "`" else 2), closer)
            parts.append(text[at:end])
            at = end
        else:
            parts.append(char)
            at += 1
    return "".join(parts), quoted, min(at, len(text))


def _in_single_quotes(text: str, at: int, parts: list[str]) -> int:
    if text[at] == "'":
        end = text.find("'", at + 1)
        end = len(text) if end < 0 else end
        parts.append(text[at + 1 : end])
        return end + 1
    start = at = at + 2
    while at < len(text) and text[at] != "'":
        at += 2 if text[at] == "\\" else 1
    parts.append(text[start:at])
    return at + 1


def _without_escapes(text: str) -> str:
    if "\\" not in text:
        return text
    for escaped, plain in (('\\"', '"'), ("\\$", "$"), ("\\`", "`"), ("\\\n", ""), ("\\\\", "\\")):
        text = text.replace(escaped, plain)
    return text


def _end_of(text: str, at: int, closer: str) -> int:
    """The place behind what closes a quotation or a substitution, past all that is inside of it."""
    stack = [closer]
    while at < len(text):
        char, inner = text[at], stack[-1]
        if inner == "'":
            end = text.find("'", at)
            at = len(text) if end < 0 else end + 1
            stack.pop()
        elif char == "\\":
            at += 2
        elif char == inner:
            stack.pop()
            at += 1
            if not stack:
                return at
        else:
            at += _open(text, at, inner, stack)
    return len(text)


def _open(text: str, at: int, inner: str, stack: list[str]) -> int:
    """Enter what begins here, if anything; how many characters it takes."""
    char = text[at]
    if text[at : at + 2] in ("$(", "${"):
        stack.append(_OPENERS[text[at : at + 2]])
        return 2
    if char == "`":
        stack.append("`")
    elif inner != '"':
        if char in "'\"":
            stack.append(char)
        elif char == "(" and inner == ")":
            stack.append(")")
    return 1
