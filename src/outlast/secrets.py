"""Which variables are secret: by their name, by the form of their value, or because a setting says so.

A secret variable of the caller is held back from commands unless it is asked for, and its
value is masked wherever it would be shown.
"""

from __future__ import annotations

from outlast.light import frozen
from outlast.masking import Mask, is_place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Protocol

    class Choice(Protocol):
        """The settings that matter here."""

        @property
        def hold_secrets(self) -> bool: ...
        @property
        def mask_secrets(self) -> bool: ...
        @property
        def secret_names(self) -> str: ...
        @property
        def pass_secrets(self) -> str: ...


__all__ = ["Apart", "Mask", "apart", "hidden", "looks_secret", "names_of_secrets", "secret_values"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Parts of a name, wherever they stand in it: PGPASSWORD, clientSecret.
_ANYWHERE = _words("PASSWORD PASSWD PASSPHRASE SECRET CREDENTIAL APIKEY ACCESSKEY PRIVATEKEY AUTHTOKEN")
# Words of a name, between underscores: not TOKENIZERS_PARALLELISM, not KEYBOARD.
_WORDS = _words("TOKEN COOKIE JWT")
_LAST = _words("KEY AUTH PASS PWD PAT DSN")  # only as the last one: not SSH_AUTH_SOCK
# What a name that ends so tells is about a secret, and none.
_ABOUT = _words(
    "FILE PATH DIR URL URI NAME NAMES ID IDS TYPE TTL LIMIT COUNT SIZE LENGTH LEN HEADER EXPIRY EXPIRES TIMEOUT "
    "ENDPOINT HOST PORT USER USERNAME PROVIDER ENABLED DISABLED ALGORITHM FORMAT ISSUER AUDIENCE MODE POLICY REGION "
    "STORE SOCK HELPER SCOPE SCOPES VERSION REQUIRED"
)
# Keys that are meant to be seen, or that lock nothing. GPG_KEY is a fingerprint in images of Python.
_OPEN_KEYS = _words("PUBLIC PUB GPG PGP SORT PRIMARY PARTITION FOREIGN CACHE HOT META COMPOSE HOST")
_NO_SECRET = _words("PWD OLDPWD")
_SWITCHES = _words("0 1 true false yes no on off none null") | {""}
_ALWAYS = ("*_proxy", "*_PROXY")  # often with a password in it, and without it nothing reaches the network


@frozen
class Apart:
    """The caller's variables, with the secret ones apart."""

    open: Mapping[str, str]  # those that are no secrets
    passed: Mapping[str, str]  # secrets that a command gets, by a setting
    asked: Mapping[str, str]  # what this call asks for by name
    held: frozenset[str]  # the rest


def apart(
    environ: Mapping[str, str], settings: Choice, asked: Iterable[str] = (), secret: Iterable[str] | None = None
) -> Apart:
    """Part the variables of a caller; one that is asked for by name and not there is left out.

    `secret` are the names of those that are, if they are known already.
    """
    found = names_of_secrets(environ, settings) if secret is None else secret
    names = frozenset(found) if settings.hold_secrets else frozenset()
    asked, usual = tuple(asked), (*settings.pass_secrets.split(), *_ALWAYS)
    now = {name for name in names if _among(name, asked)} | {name for name in asked if name in environ}
    passed = {name for name in names - now if _among(name, usual)}
    return Apart(
        open={name: value for name, value in environ.items() if name not in names and name not in now},
        passed={name: environ[name] for name in passed},
        asked={name: environ[name] for name in now},
        held=names - now - passed,
    )


def hidden(environ: Mapping[str, str], settings: Choice, asked: Iterable[str] = ()) -> frozenset[str]:
    """The names of the caller's variables that a command does not get."""
    return apart(environ, settings, asked).held


def names_of_secrets(environ: Mapping[str, str], settings: Choice) -> list[str]:
    """The names of all variables that are secret."""
    named = settings.secret_names.split()
    tokens = _with_token(environ)
    return [
        name
        for name, value in environ.items()
        if name in tokens or looks_secret(name, value) or (named and _among(name, named))
    ]


def secret_values(environ: Mapping[str, str], settings: Choice) -> set[str]:
    """What to mask because it is the value of a secret variable."""
    return {environ[name] for name in names_of_secrets(environ, settings)}


def looks_secret(name: str, value: str | None = None) -> bool:
    """Whether a variable of this name is likely to hold a secret."""
    plain = name.upper()
    if plain in _NO_SECRET or (plain.startswith("OUTLAST_") and not plain.endswith("_TOKEN")):
        return False  # our settings have such words in their names
    words = plain.split("_")
    if words[-1] in _ABOUT or (value is not None and (value.lower() in _SWITCHES or is_place(value))):
        return False
    if any(part in plain for part in _ANYWHERE) or not _WORDS.isdisjoint(words):
        return True
    return len(words) > 1 and words[-1] in _LAST and words[-2] not in _OPEN_KEYS


def _among(name: str, patterns: Iterable[str]) -> bool:
    return any(_matches(name, pattern) for pattern in patterns)


def _matches(name: str, pattern: str) -> bool:
    """Whether a name is this one, or of this form: `AWS_*`. Not `fnmatch`: every start comes by here."""
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


def _with_token(environ: Mapping[str, str]) -> set[str]:
    """The variables whose value has the form of a well-known token."""
    # All at once: mostly there is none.
    formats = Mask()
    everything = "\n".join(environ.values())
    if formats.text(everything) == everything:
        return set()
    return {name for name, value in environ.items() if formats.text(value) != value}
