"""A policy in a TOML file: read and checked, and extended by a rule that a user said "always" to.

allow, deny      patterns, each compared with the canonical text of one simple command
write            globs of files that commands may write, seen from the directory of the command
match, not_match lines that some rule of this file must match, and must not
otherwise        allow, ask or deny: what no rule matches
extends          the name of a ready policy, or a file, whose rules are added to
ask_always       "run", "kill": needs a yes whatever the rules say
[[rule]]         allow or deny with a match and not_match of their own
"""

from __future__ import annotations

import errno
import os
import stat

from outlast.errors import BadInput, quote
from outlast.light import frozen
from outlast.policy.approval import CATEGORIES
from outlast.policy.layers import STRICTNESS
from outlast.policy.rules import Rules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from outlast.policy.approval import Category
    from outlast.policy.rules import Verdict

_KEYS = ("allow", "deny", "write", "match", "not_match", "otherwise", "extends", "ask_always", "rule")
_RULE_KEYS = ("allow", "deny", "write", "match", "not_match")
_MOST_BYTES = 1 << 20


class BadPolicy(BadInput):
    """A policy that cannot be read, or makes no sense. Whatever it would allow is asked about."""

    code = "bad-policy"


@frozen
class PolicyFile:
    """What one file says by itself."""

    path: str
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    otherwise: Verdict | None = None
    extends: str = ""
    ask_always: tuple[Category, ...] = ()


# --- reading -----------------------------------------------------------------------------


def read(path: str) -> PolicyFile:
    """A policy file that makes sense, and whose examples are as they say."""
    return parse_values(path, _parse(path, _text(path)))


def _text(path: str) -> str:
    try:
        # Without waiting: a pipe in its place has no end.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise BadPolicy(f"the policy file {path} is not a regular file")
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise BadPolicy(f"the policy file {path} cannot be read: {error.strerror}") from None
    if len(data) > _MOST_BYTES:
        raise BadPolicy(f"the policy file {path} has more than {_MOST_BYTES} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BadPolicy(f"the policy file {path} is not UTF-8 text") from None


def _parse(path: str, text: str) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadPolicy(f"the policy file {path} is not valid TOML: {error}") from None


def parse_values(path: str, values: Mapping[str, Any]) -> PolicyFile:
    """The meaning of a file's values."""
    _only(path, values, _KEYS)
    rules = values.get("rule", [])
    if not isinstance(rules, list) or not all(isinstance(one, dict) for one in rules):
        raise BadPolicy(f"a rule in {path} is not a table; write [[rule]] above it")
    for one in rules:
        _only(path, one, _RULE_KEYS)
        _check_examples(path, one, _rules(path, one))
    whole = _rules(path, values, *rules)
    _check_examples(path, values, whole)
    otherwise, extends = values.get("otherwise"), values.get("extends", "")
    if otherwise not in (None, *STRICTNESS):
        raise BadPolicy(f"'otherwise' in {path} must be allow, ask or deny, not {otherwise!r}")
    if not isinstance(extends, str):
        raise BadPolicy(f"'extends' in {path} must be the name of a policy, or a file")
    if "/" in extends or extends.endswith(".toml"):
        extends = os.path.join(os.path.dirname(path), os.path.expanduser(extends))
    asks = _texts(path, values, "ask_always")
    for one in asks:
        if one not in CATEGORIES:
            raise BadPolicy(f"'ask_always' in {path} can hold {' and '.join(CATEGORIES)}, not {quote(one)}")
    return PolicyFile(path, whole.allow, whole.deny, whole.write, otherwise, extends, asks)  # type: ignore[arg-type]


def _only(path: str, values: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in values:
        if key not in known:
            raise BadPolicy(f"{path} has {quote(key)}, which no policy knows; known are {', '.join(known)}")


def _texts(path: str, values: Mapping[str, Any], key: str) -> tuple[str, ...]:
    given = values.get(key, [])
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not all(isinstance(text, str) and text.strip() for text in texts):
        raise BadPolicy(f"{quote(key)} in {path} must be a list of texts, none of them empty")
    return tuple(texts)


def _rules(path: str, *tables: Mapping[str, Any]) -> Rules:
    def of(key: str) -> tuple[str, ...]:
        return tuple(text for table in tables for text in _texts(path, table, key))

    return Rules(of("allow"), of("deny"), write=of("write"))


def _check_examples(path: str, values: Mapping[str, Any], rules: Rules) -> None:
    from outlast.policy.evaluator import evaluate  # loaded when a line is judged

    for key, wanted, by in (("match", True, "no"), ("not_match", False, "a")):
        for line in _texts(path, values, key):
            # Whether the rules alone deny a line, or allow the whole of it.
            denied = rules.deny and evaluate(line, Rules(deny=rules.deny, otherwise="allow")).verdict == "deny"
            alone = Rules(allow=rules.allow, write=rules.write)
            if bool(denied or (rules.allow and evaluate(line, alone).verdict == "allow")) != wanted:
                raise BadPolicy(f"the {key} example {quote(line)} in {path} is matched by {by} rule")


# --- the rule that "always" writes -------------------------------------------------------


def add_allow_rules(path: str, patterns: tuple[str, ...], said: str) -> None:
    """Add allow rules at the end of a policy file, whatever else it holds; `said` stands above them."""
    from outlast.linux.files import FileLock  # most check only

    path = os.path.realpath(path)  # a link stays one
    directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_CLOEXEC)
    try:
        with FileLock(directory):  # two answers at the same time are both kept
            before = _text(path) if os.path.lexists(path) else ""
            after = _with_rules(path, before, patterns, said)
            if after != before:
                _replace(path, after)
    except OSError as error:
        raise BadPolicy(f"The rule cannot be written to {path}: {error.strerror}; answer yes for this time.") from None


def _with_rules(path: str, before: str, patterns: tuple[str, ...], said: str) -> str:
    from json import dumps  # a TOML string has the same escapes

    values = _parse(path, before)
    known = parse_values(path, values).allow
    new = [pattern for pattern in dict.fromkeys(patterns) if pattern not in known]
    if not new:
        return before
    tables = "".join(f"\n[[rule]] # {said}\nallow = {dumps(pattern, ensure_ascii=False)}\n" for pattern in new)
    after = before + ("" if before.endswith("\n") or not before else "\n") + tables.removeprefix("" if before else "\n")
    # Nothing but these rules may have changed, whatever stands in the file and in the patterns.
    expected = {**values, "rule": [*values.get("rule", []), *({"allow": pattern} for pattern in new)]}
    if _parse(path, after) != expected:
        raise OSError(errno.EINVAL, "it would not say what was meant")
    return after


def _replace(path: str, text: str) -> None:
    from outlast.linux.files import remove_file

    aside = f"{path}.{os.urandom(4).hex()}"
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(aside, flags, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.rename(aside, path)
    except BaseException:
        remove_file(aside)
        raise
