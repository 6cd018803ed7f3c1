"""Which variables are secret by their name or because a setting says so."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_DECLARED = rb"^declare -[A-Za-z-]+ ([A-Za-z_]\w*)=.*$"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Anywhere in a name: PGPASSWORD, clientSecret.
_ANYWHERE = _words("PASSWORD PASSWD PASSPHRASE SECRET CREDENTIAL APIKEY ACCESSKEY PRIVATEKEY AUTHTOKEN")
# Words of a name, between underscores: not TOKENIZERS_PARALLELISM, not KEYBOARD.
_WORDS = _words("TOKEN COOKIE JWT")
_LAST = _words("KEY AUTH PASS PWD PAT DSN")  # only as the last one: not SSH_AUTH_SOCK
# A variable whose name ends so tells something about a secret and is none.
_ABOUT = _words(
    "FILE PATH DIR URL URI NAME NAMES ID IDS TYPE TTL LIMIT COUNT SIZE LENGTH LEN HEADER EXPIRY EXPIRES TIMEOUT "
    "ENDPOINT HOST PORT USER USERNAME PROVIDER ENABLED DISABLED ALGORITHM FORMAT ISSUER AUDIENCE MODE POLICY REGION "
    "STORE SOCK HELPER SCOPE SCOPES VERSION REQUIRED"
)
# Keys that are meant to be seen, or that lock nothing. GPG_KEY is a fingerprint in images of Python.
_OPEN_KEYS = _words("PUBLIC PUB GPG PGP SORT PRIMARY PARTITION FOREIGN CACHE HOT META COMPOSE HOST")
_NO_SECRET = _words("PWD OLDPWD")
_SWITCHES = _words("0 1 true false yes no on off none null") | {""}
ALWAYS_PASSED = ("*_proxy", "*_PROXY")  # often with a password in it, and without it nothing reaches the network


def looks_secret(name: str, value: str | None = None) -> bool:
    """Return whether a variable of this name is likely to hold a secret."""
    plain = name.upper()
    if plain in _NO_SECRET or (plain.startswith("OUTLAST_") and not plain.endswith("_TOKEN")):
        return False  # our settings have such words in their names
    words = plain.split("_")
    if words[-1] in _ABOUT or (value is not None and (value.lower() in _SWITCHES or is_location(value))):
        return False
    if any(part in plain for part in _ANYWHERE) or not _WORDS.isdisjoint(words):
        return True
    return len(words) > 1 and words[-1] in _LAST and words[-2] not in _OPEN_KEYS


def is_location(value: str) -> bool:
    """Return whether a value only says where something is: a path, or a web address without a password."""
    return value.startswith(("/", "~/", "./", "../")) or (
        value.startswith(("http://", "https://")) and "@" not in value
    )


def find_declared_secrets(script: bytes) -> dict[str, str]:
    """Return the variables with secret names that a session's snapshot declares."""
    import re  # most calls have no session

    from outlast.storage.snapshot import value_of

    found = {}
    for line in re.finditer(_DECLARED, script, re.MULTILINE):
        name = line[1].decode()
        value = value_of(line[0]) if looks_secret(name) else None
        if value:
            found[name] = value.decode("utf-8", "surrogateescape")
    return found


def matches_any(name: str, patterns: Iterable[str]) -> bool:
    """Return whether a name is one of these, or of one of these forms: `AWS_*`."""
    return any(_matches(name, pattern) for pattern in patterns)


def _matches(name: str, pattern: str) -> bool:
    # Not `fnmatch`, which takes long to import: every start comes by here.
    first, *middle = pattern.split("*")
    if not middle:
        return name == pattern
    last = middle.pop()
    at = len(first)
    for part in middle:
        found = name.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return name.startswith(first) and name.endswith(last) and len(name) - len(last) >= at
