"""Which places a system cannot lose, and which the words of a command that destroys name. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from outlast.policy.bash.words import names
from outlast.policy.patterns import UNKNOWN

# What a system cannot lose. `rm -r` of any other directory right below / is refused as well.
SYSTEM = names(
    "bin boot dev etc home lib lib32 lib64 libx32 opt proc root run sbin srv sys usr var System Library Applications "
    "Users"
)
_DEEPER = names("usr/local usr/local/bin usr/local/lib var/lib var/log var/spool var/cache boot/efi")
# Trees that only a package manager writes to, and files without which the machine does not boot or allow a login.
_TREES = re.compile(
    r"(?:usr/)?(?:bin|sbin|lib(?:32|64|x32|exec)?)|usr/(?:share|include)|boot|dev|proc|sys|System|Library"
)
FILES = re.compile(r"etc/(?:passwd|shadow|group|gshadow|sudoers|fstab|crypttab|ld\.so\.\w+|inittab|pam\.conf|shells)-?")
_DATA = re.compile(r"etc/[^/]+|var/lib/[^/]+|etc/(?:systemd/system|ssl/certs|pam\.d/.*|sudoers\.d|apt/sources.*)")
_HARMLESS_DEVICES = re.compile(
    r"/dev/(null|zero|full|u?random|std(in|out|err)|tty\w*|ptmx|(fd|pts|shm|mqueue|tcp|udp)(/.*)?)"
)
_RAW = ("/proc/sysrq-trigger", "/proc/kcore")
GLOB = re.compile(r"[*?\[{]")
_BRACES = re.compile(r"\{([^{}]*)\}")
_MOST_PATHS = 64  # that braces are taken apart into
_ONLY_GLOB = re.compile(r"[*?.]*[*?][*?.]*|\.?\[[^\]]*\][*?.]*")
_OWN_HOME = re.compile(r"\A(?:~|\$HOME|\$\{HOME\})(?=/)")
HOME = re.compile(r"(~(?:\$\{?\w+\}?|[A-Za-z0-9_.-]*)|\$HOME|\$\{HOME\})")


Words = Sequence[str | None]
DESTROYERS = names(
    "rm shred unlink mv chmod chown chgrp chattr setfacl truncate dd srm rmdir wipe trash tee sponge scrub cp ln "
    "install kill"
)


class Place:
    """Where a command runs, and whose home directories count."""

    def __init__(self, homes: frozenset[str], where: str, elsewhere: bool) -> None:
        self.homes, self.where, self.elsewhere = homes, where, elsewhere

    def absolute(self, path: str) -> str:
        """A path as seen from the root; as it is if that cannot be known."""
        if path.startswith("~+"):
            path = "." + path[2:]
        if self.where and path and not path.startswith(("/", "~", "$HOME", "${HOME}", UNKNOWN)):
            path = f"{self.where}/{path}"
        return _OWN_HOME.sub(next(iter(self.homes), "~"), path) if ".." in path else path

    def is_vital(self, path: str, every_top: bool = True) -> bool:
        """Whether a path is the root, a directory right below it, a home, or all that one of these holds."""
        # The directory of a project may be right below the root, and what it holds is its own.
        every_top = every_top and not self.elsewhere and (path.startswith("/") or self.where == "/")
        return any(_is_vital(self.absolute(one), self.homes, every_top) for one in _each_of(path))

    def is_protected(self, path: str, recursive: bool = False) -> bool:
        """Whether a system needs a path that lies deeper; `recursive`: all of a directory."""
        return any(_is_protected(normal(self.absolute(one)), recursive) for one in _each_of(path))

    def is_raw(self, path: str) -> bool:
        """Whether writing there goes past every file system: a disk, the memory, the kernel's trigger."""
        path = normal(self.absolute(path))
        return path in _RAW or (path.startswith("/dev/") and not _HARMLESS_DEVICES.fullmatch(path))


def normal(path: str) -> str:
    """Return a path without `.`, `..` and doubled slashes."""
    whole = os.path.normpath(path) if path else ""
    return "/" + whole.lstrip("/") if whole.startswith("/") else whole


def _each_of(path: str) -> list[str]:
    """`/{a,b}` is `/a` and `/b`."""
    paths = [path]
    while len(paths) < _MOST_PATHS and (found := _BRACES.search(paths[0])):
        before, behind = paths[0][: found.start()], paths[0][found.end() :]
        paths = [*paths[1:], *(before + one + behind for one in found[1].split(","))]
    return paths


def _is_vital(path: str, homes: frozenset[str], every_top: bool) -> bool:
    if found := HOME.match(path):
        rest = normal("/" + path[found.end() :])[1:]
        return (path[found.end() :][:1] in ("", "/")) and (not rest or bool(_ONLY_GLOB.fullmatch(rest)))
    path = normal(path)
    if not path.startswith("/"):
        return False
    above, _, last = path.rpartition("/")
    if last and GLOB.search(last):
        if not above:
            return True  # `/*`, `/e*`: several right below the root
        if above in ("/home", "/Users"):
            return True
        if not _ONLY_GLOB.fullmatch(last) or above == "/tmp":
            return False
        path = above
    inside = path[1:]
    if "/" not in inside:
        return every_top or inside in SYSTEM or not inside
    return path in homes or inside in _DEEPER or (above in ("/home", "/Users") and "/" not in inside[len(above) :])


def _is_protected(path: str, recursive: bool) -> bool:
    if not path.startswith("/") or UNKNOWN in path:
        return False
    path = path[1:]
    above, _, last = path.rpartition("/")
    if recursive and GLOB.search(last) and _ONLY_GLOB.fullmatch(last):
        path = above
    if path.startswith(("dev/shm/", "usr/share/nginx/", "usr/lib/python", "usr/lib/node_modules/")):
        return False
    tree = _TREES.match(path)
    if tree and path[tree.end() :][:1] in ("", "/"):
        return True
    return bool(FILES.fullmatch(path)) or (recursive and bool(_DATA.fullmatch(path)))


# --- the words of commands that destroy ----------------------------------------------------


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
