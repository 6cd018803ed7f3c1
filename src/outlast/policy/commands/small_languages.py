"""Small languages inside arguments: whether a sed script, an awk program or SQL only computes and prints."""

from __future__ import annotations

import re

from outlast.policy.bash.words import names

# --- sed -----------------------------------------------------------------------------------------

# A part between delimiters, up to the second one. Inside brackets the delimiter may be a character or the end, because
# sed programs differ: such a part is not read. `{0}` names the group of the delimiter.
_PART = r"(?P<{0}>[^\\\n\[])(?:\\.|\[(?!(?P={0}))[^\\](?:(?!(?P={0}))[^\\\]])*+\]|(?!(?P={0}))[^\\\n\[])*+(?P={0})"
_REPLACEMENT = r"(?:\\.|(?!(?P={0}))[^\\])*+(?P={0})"
_ADDRESS = rf"[ \t,!]|[0-9]++(?:~[0-9]+)?|\$|[+~][0-9]+|(?:(?=/)|\\){_PART.format('address')}[IM]*+"
_ENDED = "|".join(
    [  # commands that end with their line, at a `;`, at a `}` or at a comment
        r"[pPdDnNhHgGxlzF=]",
        rf"s{(_PART + _REPLACEMENT).format('s')}[gpiImM0-9]*+",
        rf"y{(_PART + _REPLACEMENT).format('y')}",
        r"[qQ][ \t]*+[0-9]*+",
        r"[:btT][ \t]*+[A-Za-z0-9_]*+",
    ]
)
_COMMAND = rf"(?:{_ENDED})[ \t]*+(?=[;\n}}#]|\Z)|[{{}}]|#[^\n]*+|[aic](?:[^\n\\]|\\.)*+"
_SED = rf"(?:[ \t\n;{{}}]*+(?:{_ADDRESS})*+(?:{_COMMAND}))*+[ \t\n;{{}}]*+"  # compiled when there is a script


def sed_is_plain(script: str) -> bool:
    """Whether a sed script runs no program and writes no file. What is not parse_values is not plain."""
    return re.fullmatch(_SED, script, re.DOTALL) is not None


# --- awk -----------------------------------------------------------------------------------------

_AWK_RUNS = re.compile(r"system|getline|@|/inet|\brequire\b|\bload\b")
_AWK_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|#[^\n]*|\|\||\s+|[A-Za-z_][A-Za-z0-9_]*|.', re.DOTALL)
_AWK_REGEX = re.compile(r"/(?:[^/\\\n]|\\.)*/")
_REGEX_AFTER = frozenset("(,{};!&|~\n")


def awk_is_plain(program: str) -> bool:
    """Whether an awk program runs nothing, reads no command and writes no file."""
    if _AWK_RUNS.search(program):
        return False
    code, divides = _awk_code(program)
    if '"' in code:
        return False
    if divides:
        # A slash that divides and one that opens an expression are hard to tell apart: look at all of it.
        return "|" not in program.replace("||", "  ") and not re.search(r"print.*>", program, re.DOTALL)
    return "|" not in code and not re.search(r"\bprintf?\b[^;{}\n]*>", code)  # it prints into a file


def _awk_code(program: str) -> tuple[str, bool]:
    """The program without its strings, comments and regular expressions; and whether something is divided."""
    parts: list[str] = []
    at, before, divides = 0, "\n", False
    while at < len(program):
        regex = _AWK_REGEX.match(program, at) if before in _REGEX_AFTER else None
        if regex:
            at, before = regex.end(), "/"
            continue
        token = _AWK_TOKEN.match(program, at)
        assert token is not None  # it matches any character
        text, at = token[0], token.end()
        if text.isspace():
            before = "\n" if "\n" in text else before
            parts.append(" " if "\n" not in text else "\n")
        elif text[0] == '"' and len(text) > 1:
            before = '"'
            parts.append(" \x01 ")
        elif text[0] != "#":
            before = text[-1]
            divides = divides or text in ("/", "\\")  # behind a continued line no regular expression is certain
            parts.append("  " if text == "||" else text)
    return "".join(parts), divides


# --- SQL -----------------------------------------------------------------------------------------

_SQL_BEGINS = re.compile(r"\s*(?:select|with|explain|values)\b", re.IGNORECASE)
_SQL_CHANGES = re.compile(
    r"\b(?:insert|update|delete|replace\s+into|attach|create|drop|alter|vacuum|pragma|returning)\b", re.IGNORECASE
)
_SQL_CALLS = re.compile(r"""([\w"'`\])]*)\s*\(""")
_SQL_TEXT = re.compile(r"'(?:[^']|'')*'")
_SQL_FINE = names("""
    abs avg cast changes char coalesce concat concat_ws count date datetime format group_concat ifnull iif instr json
    json_array json_each json_extract json_group_array json_group_object json_object json_tree julianday
    last_insert_rowid length like lower ltrim max min nullif printf quote random rank replace round row_number rtrim
    sign strftime string_agg substr substring sum time total trim typeof unicode unixepoch upper over in as values
    from join and or not where select on exists when then else by having union all case partition_by lag lead
    first_value ntile dense_rank filter using limit offset
""")


def sql_is_plain(text: str) -> bool:
    """Whether an SQL text only reads: one that asks, and calls nothing but known functions."""
    code = _SQL_TEXT.sub(" ", text)
    if "'" in code or "--" in code or "/*" in code or not _SQL_BEGINS.match(code):
        return False
    if any(part.strip() and not _SQL_BEGINS.match(part) for part in code.split(";")):
        return False
    if _SQL_CHANGES.search(code):
        return False
    return all(call[1].lower() in _SQL_FINE or not call[1] for call in _SQL_CALLS.finditer(code))
