"""The words of commands that destroy: operands, options, and files that another command lists. Pure."""

from __future__ import annotations

from outlast.policy.bash.words import names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    Words = Sequence[str | None]

DESTROYERS = names(
    "rm shred unlink mv chmod chown chgrp chattr setfacl truncate dd srm rmdir wipe trash tee sponge scrub cp ln "
    "install kill"
)


def operands_of(words: Words) -> list[str]:
    """The words that are no options; all of them behind `--`."""
    plain: list[str] = []
    for number, word in enumerate(words):
        if word == "--":
            return plain + [one for one in words[number + 1 :] if one is not None]
        if word is not None and not (word.startswith("-") and len(word) > 1):
            plain.append(word)
    return plain


def has_option(words: Words, short: str, long: str = "", least: int = 1) -> bool:
    """Whether an option is there: in a bundle, or long and abbreviated to no less than `least` characters."""
    for word in words:
        if word is None:
            continue
        if word == "--":
            return False
        if word.startswith("--"):
            given = word[2:].partition("=")[0]
            if long and len(given) >= least and long.startswith(given):
                return True
        elif word.startswith("-") and any(letter in word[1:] for letter in short):
            return True
    return False


def as_one_command(listing: Words, words: Words) -> list[tuple[str | None, ...]]:
    """A program that is given what `listing` prints, as the command that does the same without it."""
    name, *rest = listing
    if (name or "").rpartition("/")[2] in ("find", "gfind"):
        return [(*listing, "-exec", *words, "{}", ";")]
    if name == "pgrep":
        return [("pkill", *rest)]
    operands = operands_of(rest) or ["*"]
    tree = ("find", *operands, "-exec", *words, "{}", ";")
    return [(*words, *operands), *([tree] if operands and not (name or "").endswith(("echo", "printf")) else [])]
