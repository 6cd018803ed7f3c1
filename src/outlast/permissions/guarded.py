"""What destroys a machine: the hazards that the policy `guarded` denies, in whatever spelling. Pure.

Each function looks at the words of one simple command (None: a word that is known only when it
runs) and says in one sentence why it must not run, or nothing.
"""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Words = Sequence[str | None]

# What a system cannot lose. `rm -r` of any other directory right below / is refused as well.
_TOP = "bin boot dev etc home lib lib32 lib64 libx32 opt proc root run sbin srv sys usr var"
_BELOW = "usr/bin usr/sbin usr/lib usr/lib32 usr/lib64 usr/local usr/share var/lib boot/efi"
SYSTEM, _DEEPER = frozenset(_TOP.split()), frozenset(_BELOW.split())
_HARMLESS_DEVICES = re.compile(
    r"/dev/(null|zero|full|u?random|std(in|out|err)|tty\w*|ptmx|(fd|pts|shm|mqueue|tcp|udp)(/.*)?)"
)
_RAW = ("/proc/sysrq-trigger", "/proc/kcore")
_GLOB = re.compile(r"[*?\[{]")
_BRACES = re.compile(r"\{([^{}]*)\}")
_MOST_PATHS = 64  # that braces are taken apart into
_ONLY_GLOB = re.compile(r"[*?.]*[*?][*?.]*|\.?\[[^\]]*\][*?.]*")
_HOME = re.compile(r"(~[A-Za-z0-9_.-]*|\$HOME|\$\{HOME\})")
# Behind the name of a function: `(){ NAME | NAME &`.
_FORK_BOMB = re.compile(r"\(\s{0,8}\)\s{0,8}[{(]\s{0,8}\\?([^\s(){}|&;]{1,64})\s{0,8}\|\s{0,8}(?:\\?\1)\s{0,8}&")


def hazard(home: str) -> Callable[[tuple[str | None, ...]], str | None]:
    """What to ask of each simple command, where `home` is the user's home directory."""
    homes = frozenset({_normal(home)} if home not in ("", "/") else ())

    def look(words: tuple[str | None, ...]) -> str | None:
        name = words[0].rpartition("/")[2] if words and words[0] else ""
        if name.startswith("mkfs"):
            return "it makes a new file system over what is there"
        found = _HAZARDS.get(name)
        return found(words[1:], homes) if found else None

    return look


def text_hazard(home: str) -> Callable[[str, Sequence[str]], str | None]:
    """What to ask of a whole line and the commands in it."""
    look = hazard(home)

    def look_at_all(line: str, commands: Sequence[str]) -> str | None:
        return _fork_bomb(line, commands) or _after_cd(look, commands)

    return look_at_all


def _fork_bomb(line: str, commands: Sequence[str]) -> str | None:
    """A function that only runs itself twice, in the background; not the text of one between quotes."""
    named = {found[1] for found in _FORK_BOMB.finditer(line) if _ends_with(line, found.start(), found[1])}
    once: set[str] = set()
    for command in commands if named else ():
        if command in named and command in once:
            return "it starts itself again and again until the machine stands still"
        once.add(command)
    return None


def _ends_with(line: str, end: int, name: str) -> bool:
    """Whether a name stands before this place, with a few blanks between at the most."""
    return line[max(0, end - 8 - len(name)) : end].rstrip().endswith(name)


def _after_cd(look: Callable[[tuple[str | None, ...]], str | None], commands: Sequence[str]) -> str | None:
    """`cd / && rm -rf *` is `rm -rf /*`."""
    where = ""
    for command in commands:
        name, *rest = command.split(" ")
        if name in ("cd", "pushd"):
            where = _joined(where, next((word for word in rest if not word.startswith("-")), "" if rest else "~"))
        elif where and name in _BY_PLACE:
            words = [word if word.startswith(("-", "(", "!")) else _joined(where, word) for word in rest]
            if why := look((name, *words)):
                return why
    return None


def _joined(where: str, path: str) -> str:
    """A path as seen from a directory; nothing if it cannot be known."""
    path = path.replace('"', "")
    if path.startswith(("/", "~", "$HOME", "${HOME}")):
        return path
    return "" if "$" in path or not path or not where else f"{where}/{path}"


_BY_PLACE = ("rm", "find")


# --- words -------------------------------------------------------------------------------


def _operands(words: Words) -> list[str]:
    """The words that are no options; all of them behind `--`."""
    plain: list[str] = []
    for number, word in enumerate(words):
        if word == "--":
            return plain + [one for one in words[number + 1 :] if one is not None]
        if word is not None and not (word.startswith("-") and len(word) > 1):
            plain.append(word)
    return plain


def _has(words: Words, short: str, long: str = "", least: int = 1) -> bool:
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


# --- places ------------------------------------------------------------------------------


def _normal(path: str) -> str:
    whole = os.path.normpath(path)
    return "/" + whole.lstrip("/") if whole.startswith("/") else whole


def _is_vital(path: str, homes: frozenset[str], every_top: bool = True) -> bool:
    """Whether a path is the root, a directory right below it, a home, or all that one of these holds."""
    return any(_is_one_vital(one, homes, every_top) for one in _each_of(path))


def _each_of(path: str) -> list[str]:
    """`/{a,b}` is `/a` and `/b`."""
    paths = [path]
    while len(paths) < _MOST_PATHS and (found := _BRACES.search(paths[0])):
        before, behind = paths[0][: found.start()], paths[0][found.end() :]
        paths = [*paths[1:], *(before + one + behind for one in found[1].split(","))]
    return paths


def _is_one_vital(path: str, homes: frozenset[str], every_top: bool) -> bool:
    if found := _HOME.match(path):
        rest = _normal("/" + path[found.end() :])[1:]
        return (path[found.end() :][:1] in ("", "/")) and (not rest or bool(_ONLY_GLOB.fullmatch(rest)))
    path = _normal(path)
    if not path.startswith("/"):
        return False
    above, _, last = path.rpartition("/")
    if last and _GLOB.search(last):
        if not above:
            return True  # `/*`, `/e*`: several right below the root
        if not _ONLY_GLOB.fullmatch(last) or above == "/tmp":
            return False
        path = above
    inside = path[1:]
    if "/" not in inside:
        return every_top or inside in SYSTEM or not inside
    return path in homes or inside in _DEEPER or (above in ("/home", "/Users") and "/" not in inside[len(above) :])


def _is_raw(path: str) -> bool:
    """Whether writing there goes past every file system: a disk, the memory, the kernel's trigger."""
    path = _normal(path)
    return path in _RAW or (path.startswith("/dev/") and not _HARMLESS_DEVICES.fullmatch(path))


# --- hazards -----------------------------------------------------------------------------


def _rm(words: Words, homes: frozenset[str]) -> str | None:
    if _has(words, "", "no-preserve-root", 3):
        return "it removes even the root directory"
    if _has(words, "rR", "recursive"):
        for path in _operands(words):
            if _is_vital(path, homes):
                return f"it removes {path} with all that is in it"
    return None


def _over_everything(words: Words, homes: frozenset[str]) -> str | None:
    """chmod, chown and their kin."""
    if _has(words, "R", "recursive"):
        for path in _operands(words)[1:] or _operands(words):
            if _is_vital(path, frozenset(), every_top=False) and not _HOME.match(path):
                return f"it changes who may use {path} and all that is in it"
    return None


def _mv(words: Words, homes: frozenset[str]) -> str | None:
    *sources, target = _operands(words) or [""]
    if _has(words, "t", "target-directory", 1):
        sources.append(target)
    for path in sources:
        if _is_vital(path, homes, every_top=False):
            return f"it moves {path} away"
    if _normal(target) == "/dev/null":
        return "it replaces /dev/null"
    return _onto_device([target], homes)


def _find(words: Words, homes: frozenset[str]) -> str | None:
    starts: list[str] = []
    for word in words:
        if word is None or word.startswith(("-", "(", "!")):
            break
        starts.append(word)
    chosen = any(word and word.startswith(_FIND_TESTS) for word in words)
    removes = "-delete" in words or any(word in ("rm", "/bin/rm", "shred") for word in words)
    if removes and not chosen:
        for path in starts:
            if _is_vital(path, homes, every_top=False):
                return f"it removes everything below {path}"
    return None


_TESTS = (
    "-name -iname -path -ipath -wholename -regex -iregex -mtime -mmin -atime -amin -ctime -cmin -newer -size -user "
    "-group -inum -empty -perm -samefile"
)
_FIND_TESTS = tuple(_TESTS.split())


def _dd(words: Words, homes: frozenset[str]) -> str | None:
    for word in words:
        if word and word.startswith("of=") and _is_raw(word[3:]):
            return f"it writes over {word[3:]}"
    return None


def _onto_device(words: Words, homes: frozenset[str]) -> str | None:
    """Those that write to what they name."""
    for path in _operands(words):
        if _is_raw(path):
            return f"it writes over {path}"
    return None


def _last_onto_device(words: Words, homes: frozenset[str]) -> str | None:
    """Those that write to the last thing they name, as `cp` does."""
    for word in words:
        if word and word.startswith("--target-directory=") and _is_raw(word.partition("=")[2]):
            return f"it writes over {word.partition('=')[2]}"
    return _onto_device(_operands(words)[-1:], homes)


def _rsync(words: Words, homes: frozenset[str]) -> str | None:
    *_, target = _operands(words) or [""]
    if any(word and word.startswith("--del") for word in words) and _is_vital(target, homes, every_top=False):
        return f"it removes from {target} what the other side does not have"
    return _last_onto_device(words, homes)


def _partitions(words: Words, homes: frozenset[str]) -> str | None:
    if _has(words, "ld", "list") or _has(words, "", "dump") or "print" in words:
        return None
    return "it changes how a disk is divided" if any(_is_raw(path) for path in _operands(words)) else None


def _wipefs(words: Words, homes: frozenset[str]) -> str | None:
    return "it erases what says where a file system is" if _operands(words) and not _has(words, "n", "no-act") else None


def _on_disk(words: Words, homes: frozenset[str]) -> str | None:
    return "it gives up what a disk holds" if _operands(words) else None


def _subcommand(*names: str) -> Callable[[Words, frozenset[str]], str | None]:
    def look(words: Words, homes: frozenset[str]) -> str | None:
        given = _operands(words)
        return "it gives up what a disk holds" if any(name in given[:2] for name in names) else None

    return look


def _halts(words: Words, homes: frozenset[str]) -> str | None:
    if _has(words, "ckw", "wtmp-only") or _has(words, "", "help") or _has(words, "", "version"):
        return None  # it takes one back, says so, or only writes it down
    return "it stops the machine"


def _init(words: Words, homes: frozenset[str]) -> str | None:
    return "it stops the machine" if any(one in ("0", "1", "6", "s", "S") for one in _operands(words)) else None


def _systemctl(words: Words, homes: frozenset[str]) -> str | None:
    stops = {"poweroff", "reboot", "halt", "kexec", "soft-reboot", "rescue", "emergency", "suspend", "hibernate"}
    return "it stops the machine" if stops & {*_operands(words)[:1]} else None


def _crontab(words: Words, homes: frozenset[str]) -> str | None:
    return "it removes the whole crontab" if _has(words, "r") else None


def _kill(words: Words, homes: frozenset[str]) -> str | None:
    rest = list(words)
    if rest and rest[0] in ("-s", "-n", "--signal"):
        rest = rest[2:]
    elif len(rest) > 1 and rest[0] and rest[0] != "--" and re.fullmatch(r"-(\d+|[A-Za-z].*|-signal=.*)", rest[0]):
        rest = rest[1:]
    if "-1" in rest:
        return "it ends every process that it can reach"
    return "it ends the first process, and all others with it" if "1" in rest else None


def _all_processes(words: Words, homes: frozenset[str]) -> str | None:
    return "it ends every process that it can reach"


def _redirection(words: Words, homes: frozenset[str]) -> str | None:
    return _onto_device(words, homes)


_HAZARDS: dict[str, Callable[[Words, frozenset[str]], str | None]] = {
    "rm": _rm,
    "find": _find,
    "mv": _mv,
    **dict.fromkeys(("chmod", "chown", "chgrp", "chattr", "setfacl"), _over_everything),
    **dict.fromkeys(("dd", "dcfldd", "dc3dd"), _dd),
    **dict.fromkeys(("tee", "shred", "truncate", "sponge", "badblocks", "ddrescue", "srm", "scrub"), _onto_device),
    **dict.fromkeys(("cp", "install", "ln"), _last_onto_device),
    "rsync": _rsync,
    **dict.fromkeys(("fdisk", "sfdisk", "cfdisk", "gdisk", "sgdisk", "parted"), _partitions),
    "wipefs": _wipefs,
    **dict.fromkeys(("blkdiscard", "mke2fs", "mkswap", "pvremove", "vgremove", "lvremove", "pvcreate"), _on_disk),
    "cryptsetup": _subcommand("luksFormat", "erase", "luksErase", "reencrypt"),
    "nvme": _subcommand("format", "sanitize"),
    "zpool": _subcommand("destroy", "labelclear"),
    **dict.fromkeys(("shutdown", "reboot", "halt", "poweroff"), _halts),
    **dict.fromkeys(("init", "telinit"), _init),
    **dict.fromkeys(("systemctl", "loginctl"), _systemctl),
    "crontab": _crontab,
    "kill": _kill,
    "killall5": _all_processes,
    **dict.fromkeys((">", ">>", ">|", "&>", "&>>", "<>"), _redirection),
}
