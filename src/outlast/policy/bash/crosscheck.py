"""Two other readers of bash that must agree before a line is allowed: tree-sitter's grammar, and bash itself.

Our reader decides what a line runs. If it ever overlooked a command, that would be let through unseen; so tree-sitter
reads the same text, and both must have found the same commands in the same places. `bash -n` then says whether bash can
read it.
"""

from __future__ import annotations

import os
from functools import cache
from itertools import accumulate

from outlast.policy.bash.parser import ParsedText

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tree_sitter import Parser, Query

_NAMES = "[(command name: (_) @n) (declaration_command) @n (unset_command) @n (test_command) @n]"
_KEYWORDS = (b"time", b"coproc", b"[[", b"((")
_REMEMBERED = 4096
_AT_ONCE = 4
_MOST_FUZZY = 64  # more of them than anybody writes
_MOST_ODD = 100  # with each error tree-sitter takes longer over the next
_TOO_MANY = "it has too many places that two readers of bash cannot compare"
_BASH = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash", "/opt/homebrew/bin/bash")


@cache
def _grammar() -> tuple[Parser, Query]:
    """tree-sitter's parser, loaded when it is first needed, and what finds the names of commands."""
    import tree_sitter_bash
    from tree_sitter import Language, Parser, Query

    language = Language(tree_sitter_bash.language())
    return Parser(language), Query(language, _NAMES)


def find_disagreement(text: ParsedText, *, strict: bool) -> str:
    """Why tree-sitter sees something else; "" if it agrees. Not `strict`: only more commands than ours count."""
    if text.odd > _MOST_ODD:
        return _TOO_MANY
    from tree_sitter import QueryCursor

    parser, query = _grammar()
    source = text.source.encode("utf-8", "surrogatepass")
    root = parser.parse(source).root_node
    if root.has_error and strict:
        return "two readers of bash do not agree on it: one cannot read it"
    if root.has_error:
        return ""  # a tree that is torn by an error proves nothing, and to search it may take long
    if len(text.fuzzy) > _MOST_FUZZY and strict:
        return _TOO_MANY
    nodes = QueryCursor(query).captures(root).get("n", [])
    return _compared(text, source, {node.start_byte for node in nodes}, strict)


def _compared(text: ParsedText, source: bytes, theirs: set[int], strict: bool) -> str:
    """What is different between our commands and theirs."""
    place = _offsets(text.source)
    lows, highs = ([both[end] for both in text.fuzzy[:_MOST_FUZZY]] for end in (0, 1))
    fuzzy = [*zip(_placed(lows, place), _placed(highs, place), strict=True)]
    ours = set(_placed([one.at for one in text.commands], place))
    more = [at for at in theirs - ours if not _is_fuzzy(fuzzy, at) and not source.startswith(_KEYWORDS, at)]
    if more:
        return "two readers of bash do not agree on it: one finds more commands"
    certain = set(_placed([one.at for one in text.commands if one.words and not one.keyword], place))
    if strict and any(not _is_fuzzy(fuzzy, at) for at in certain - theirs):
        return "two readers of bash do not agree on it: one finds fewer commands"
    return ""


def _offsets(source: str) -> Sequence[int]:
    """For each place in the text the place in its bytes."""
    if source.isascii():
        return range(len(source) + 1)
    return list(accumulate((len(char.encode("utf-8", "surrogatepass")) for char in source), initial=0))


def _placed(ats: list[int], place: Sequence[int]) -> list[int]:
    last = len(place) - 1
    if isinstance(place, range):  # it is the same place, and to look it up takes longer
        return [at if at < last else last for at in ats]
    return [place[at if at < last else last] for at in ats]


def _is_fuzzy(ranges: list[tuple[int, int]], at: int) -> bool:
    return any(low <= at <= high for low, high in ranges)


_read: dict[str, bool] = {}


class BashSyntaxCheck:
    """Texts that bash is to read, without running them. It reads while we do something else."""

    def __init__(self, sources: Iterable[str]) -> None:
        self._due = [one for one in dict.fromkeys(sources) if one not in _read]
        self._asked: dict[str, int] = {}
        self._ask_more()

    def _ask_more(self) -> None:
        while len(self._asked) < _AT_ONCE and self._due:
            source = self._due.pop(0)
            self._asked[source] = _ask_bash(source.encode("utf-8", "surrogateescape"))

    def accepts(self, source: str) -> bool:
        """Whether bash accepts the text. False where there is no bash."""
        if source not in _read:
            if len(_read) >= _REMEMBERED:
                _read.clear()
            pid = self._asked.pop(source, None) or _ask_bash(source.encode("utf-8", "surrogateescape"))
            _read[source] = _answered(pid)
            self._ask_more()
        return _read[source]

    def close(self) -> None:
        """Nobody wants to know the rest."""
        for pid in self._asked.values():
            _answered(pid)
        self._asked = {}


def _ask_bash(source: bytes) -> int:
    """Its pid; 0 if there is no bash."""
    bash = next((path for path in _BASH if os.access(path, os.X_OK)), "")
    if not bash:
        return 0
    # A file, not a pipe: a pipe may hold less than the text, and bash reads it byte by byte.
    text = _file(source)
    try:
        actions = [
            (os.POSIX_SPAWN_DUP2, text, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
        ]
        return os.posix_spawn(bash, ["bash", "--norc", "--noprofile", "-n"], {}, file_actions=actions)
    except OSError:
        return 0
    finally:
        os.close(text)


def _answered(pid: int) -> bool:
    try:
        return pid > 0 and os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    except OSError:
        return False


def _file(content: bytes) -> int:
    """A descriptor of a nameless file with this content."""
    if hasattr(os, "memfd_create"):
        text = os.memfd_create("line")
    else:
        import tempfile

        text, name = tempfile.mkstemp()
        os.unlink(name)
    os.write(text, content)
    os.lseek(text, 0, os.SEEK_SET)
    return text
