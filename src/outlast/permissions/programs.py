"""Small languages inside arguments: whether a sed script, an awk program or SQL only computes and prints."""

from __future__ import annotations

import re

from outlast.permissions.words import names

# --- sed -----------------------------------------------------------------------------------------

_SED_ADDRESS = re.compile(r"[0-9]+(?:~[0-9]+)?|\$|[+~][0-9]+")
_SED_PLAIN = frozenset("pPdDnNhHgGxlzF=")
_SED_FLAGS = re.compile(r"[gpiImM0-9]*")


def sed_is_plain(script: str) -> bool:
    """Whether a sed script runs no program and writes no file. What is not understood is not plain."""
    at = 0
    while at < len(script):
        at = _after_blanks(script, at)
        if at >= len(script):
            break
        at = _sed_command(script, _sed_addresses(script, at))
        if at < 0:
            return False
    return True


def _after_blanks(script: str, at: int) -> int:
    while at < len(script) and script[at] in " \t\n;{}":
        at += 1
    return at


def _sed_addresses(script: str, at: int) -> int:
    while 0 <= at < len(script):
        if script[at] in " \t,!":
            at += 1
        elif match := _SED_ADDRESS.match(script, at):
            at = match.end()
        elif script[at] == "/" or (script[at] == "\\" and at + 1 < len(script)):
            opens = at if script[at] == "/" else at + 1
            at = _sed_delimited(script, opens)
            while 0 <= at < len(script) and script[at] in "IM":
                at += 1
        else:
            return at
    return at


def _sed_delimited(script: str, at: int) -> int:
    """The place behind a part that ends with the character it begins with; -1 if it does not end."""
    delimiter = script[at]
    if delimiter in "\\\n[":
        return -1
    at += 1
    while at < len(script):
        if script[at] == "\\":
            at += 2
        elif script[at] == "[":
            # Inside brackets the delimiter may be a character or the end: sed programs differ.
            close = script.find("]", at + 2)
            if close < 0 or delimiter in script[at:close] or "\\" in script[at:close]:
                return -1
            at = close + 1
        elif script[at] == delimiter:
            return at + 1
        elif script[at] == "\n":
            return -1
        else:
            at += 1
    return -1


def _sed_command(script: str, at: int) -> int:
    if at < 0 or at >= len(script):
        return -1
    command = script[at]
    if command in _SED_PLAIN:
        return _sed_end(script, at + 1)
    if command in "{}":
        return at + 1
    if command in "sy":
        return _sed_substitute(script, at)
    if command in "qQ:btT":
        match = re.compile(r"[ \t]*[0-9]*" if command in "qQ" else r"[ \t]*[A-Za-z0-9_]*[ \t]*").match(script, at + 1)
        return _sed_end(script, match.end() if match else at + 1)
    if command == "#":
        end = script.find("\n", at)  # a backslash does not continue a comment
        return len(script) if end < 0 else end
    if command in "aic":
        # Text up to the end of the line, and on while lines end with a backslash.
        match = re.compile(r"(?:[^\n\\]|\\.)*", re.DOTALL).match(script, at + 1)
        return match.end() if match else -1
    return -1


def _sed_end(script: str, at: int) -> int:
    while at < len(script) and script[at] in " \t":
        at += 1
    return at if at >= len(script) or script[at] in ";\n}#" else -1


def _sed_substitute(script: str, at: int) -> int:
    if at + 1 >= len(script):
        return -1
    pattern = _sed_delimited(script, at + 1)
    if pattern < 0:
        return -1
    end = _sed_replacement(script, pattern, script[at + 1])
    if end < 0:
        return -1
    match = _SED_FLAGS.match(script, end) if script[at] == "s" else None
    return _sed_end(script, match.end() if match else end)


def _sed_replacement(script: str, at: int, delimiter: str) -> int:
    while at < len(script):
        if script[at] == "\\":
            at += 2
        elif script[at] == delimiter:
            return at + 1
        else:
            at += 1
    return -1


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
    if code is None or '"' in code:
        return False
    if divides:
        # A slash that divides and one that opens an expression are hard to tell apart: look at all of it.
        return "|" not in program.replace("||", "  ") and not re.search(r"print.*>", program, re.DOTALL)
    return "|" not in code and not _awk_writes(code)


def _awk_code(program: str) -> tuple[str | None, bool]:
    """The program without its strings, comments and regular expressions; and whether something is divided."""
    parts: list[str] = []
    at, before, divides = 0, "\n", False
    while at < len(program):
        if program[at] == "/":
            match = _AWK_REGEX.match(program, at)
            if match and before in _REGEX_AFTER:
                at, before = match.end(), "/"
                continue
            divides = True
        token = _AWK_TOKEN.match(program, at)
        if token is None:
            return None, divides
        text, at = token[0], token.end()
        if text.isspace():
            before = "\n" if "\n" in text else before
            parts.append(" " if "\n" not in text else "\n")
        elif text[0] == "#":
            continue
        elif text[0] == '"' and len(text) > 1:
            before = '"'
            parts.append(" \x01 ")
        else:
            before = text[-1]
            divides = divides or text == "\\"  # a continued line: what looks like the beginning of one is none
            parts.append("  " if text == "||" else text)
    return "".join(parts), divides


def _awk_writes(code: str) -> bool:
    """Whether a print goes into a file: a `>` behind it in the same statement."""
    for statement in re.split(r"[;{}\n]", code):
        match = re.search(r"\bprintf?\b", statement)
        if match and ">" in statement[match.end() :]:
            return True
    return False


# --- SQL -----------------------------------------------------------------------------------------

_SQL_BEGINS = re.compile(r"\s*(?:select|with|explain|values)\b", re.IGNORECASE)
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
    if re.search(
        r"\b(?:insert|update|delete|replace\s+into|attach|create|drop|alter|vacuum|pragma|returning)\b",
        code,
        re.IGNORECASE,
    ):
        return False
    return all(call[1].lower() in _SQL_FINE or not call[1] for call in _SQL_CALLS.finditer(code))
