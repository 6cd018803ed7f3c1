"""Two other readers of bash that must agree before a line is allowed: tree-sitter's grammar, and bash itself.

Our reader decides what a line runs. If it ever overlooked a command, that would be let through unseen; so tree-sitter
reads the same text, and both must have found the same commands in the same places. `bash -n` then says whether bash can
read it.
"""

from __future__ import annotations

import os
import re
from functools import cache, lru_cache

from outlast.policy.bash.parser import ParsedText

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tree_sitter import Parser, Query

_NAMES = "[(command name: (_) @n) (declaration_command) @n (unset_command) @n (test_command) @n]"
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_KEYWORDS = (b"time", b"coproc", b"[[", b"((")
_MOST_FUZZY = 64  # more of them than anybody writes
_MOST_ODD = 100  # with each error tree-sitter takes longer over the next
_TOO_MANY = "it has too many places that two readers of bash cannot compare"
_BASH = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash")


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
    source = _NOT_ASCII.sub("%", text.source).encode()  # one byte for each character, so that places are the same
    root = parser.parse(source).root_node
    if root.has_error and strict:
        return "two readers of bash do not agree on it: one cannot read it"
    if root.has_error:
        return ""  # a tree that is torn by an error proves nothing, and to search it may take long
    if len(text.fuzzy) > _MOST_FUZZY and strict:
        return _TOO_MANY
    nodes = QueryCursor(query).captures(root).get("n", [])
    theirs, fuzzy = {node.start_byte for node in nodes}, text.fuzzy[:_MOST_FUZZY]
    more = theirs - {one.at for one in text.commands}
    if any(not (_is_fuzzy(fuzzy, at) or source.startswith(_KEYWORDS, at)) for at in more):
        return "two readers of bash do not agree on it: one finds more commands"
    certain = {one.at for one in text.commands if one.words and not one.keyword}
    if strict and any(not _is_fuzzy(fuzzy, at) for at in certain - theirs):
        return "two readers of bash do not agree on it: one finds fewer commands"
    return ""


def _is_fuzzy(ranges: list[tuple[int, int]], at: int) -> bool:
    return any(low <= at <= high for low, high in ranges)


@lru_cache(maxsize=4096)
def bash_accepts(source: str) -> bool:
    """Whether bash can read a text, which it does not run. False where there is no bash."""
    bash = next((path for path in _BASH if os.access(path, os.X_OK)), "")
    # A file, not a pipe: a pipe may hold less than the text, and bash reads it byte by byte.
    text = os.memfd_create("line")
    try:
        os.write(text, source.encode("utf-8", "surrogateescape"))
        os.lseek(text, 0, os.SEEK_SET)
        actions = [
            (os.POSIX_SPAWN_DUP2, text, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
        ]
        pid = os.posix_spawn(bash, ["bash", "--norc", "--noprofile", "-n"], {}, file_actions=actions)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    except OSError:
        return False
    finally:
        os.close(text)
