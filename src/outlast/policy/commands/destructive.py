"""What destroys a machine: the hazards that the policy `guarded` denies, in whatever spelling. Pure.

Each function looks at the words of one simple command (None: a word that is known only when it
runs) and says in one sentence why it must not run, or nothing; a `Doubtful` one asks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise, takewhile

from outlast.policy.bash.words import names
from outlast.policy.commands.places import (
    DESTROYERS,
    FILES,
    GLOB,
    HOME,
    SYSTEM,
    Place,
    Words,
    has_option,
    normal,
    operands_of,
)
from outlast.policy.patterns import UNKNOWN
from outlast.policy.rules import Doubtful

Look = Callable[[Words, Place], str | None]
_GIVES_UP = "it gives up what a disk holds"
_STOPS = "it stops the machine"
_ENDS_ALL = "it ends every process that it can reach"
_UNMOUNTS = "it takes away file systems that are in use"
_DIVIDES = "it changes how a disk is divided"
_EMPTIES = "it removes the whole crontab"
_IN_PLACE = "-[A-Za-z0-9]*i|--in-place"
_LISTS = r"-[^-]*[ldp]|--(?:l|li|lis|list|dump|print)\b|print\Z"
_TAKES_BACK = "-[^-]*[ckw]|--(?:help|version|wtmp-only)"  # or it says so, or only writes it down
_RUN_BY_FIND = DESTROYERS | names("sh bash")
_GIT_LOSES = names("clean rm reset checkout restore switch stash read-tree checkout-index worktree")
_OUTPUTS = names("-o -O -out --output --output-document -fprint -fprint0 -fprintf -fls")
_FIND_NAMES = names("-name -iname -path -ipath -wholename -regex -iregex -empty -samefile -inum")
_FIND_TESTS = tuple(names("-mtime -mmin -atime -amin -ctime -cmin -newer -size -user -group -perm"))
_ALL_UNKNOWN = re.compile(rf"{UNKNOWN}+(?:/[*.?/]*|/(?:{'|'.join(SYSTEM)})/?)?")  # all of a directory that is not known


def make_destructive_check(home: str) -> Callable[..., str | None]:
    """What to ask of each simple command, where `home` is the user's home directory."""
    homes = frozenset({normal(home)} if home not in ("", "/") else ())

    def look(words: tuple[str | None, ...], where: str = "", elsewhere: bool = False) -> str | None:
        name = words[0].rpartition("/")[2] if words and words[0] else ""
        if name.startswith(("mkfs", "newfs", "mkntfs")):
            return "it makes a new file system over what is there"
        found, place = _HAZARDS.get(name), Place(frozenset() if elsewhere else homes, where, elsewhere)
        return (found(words[1:], place) if found else None) or _writes_to(words[1:], place)

    return look


# --- hazards -----------------------------------------------------------------------------


def _unclear(words: Words, place: Place) -> str | None:
    """`$X/*` is `/*` if there is no X, and `$(dirname $X)` may be any directory."""
    found = any(word and (UNKNOWN in word or _ALL_UNKNOWN.fullmatch(place.absolute(word))) for word in words)
    return Doubtful("it may be the root directory, which is known only when it runs") if found else None


def _rm(words: Words, place: Place) -> str | None:
    if has_option(words, "", "no-preserve-root", 3):
        return "it removes even the root directory"
    recursive = has_option(words, "rR", "recursive")
    for path in operands_of(words):
        if recursive and place.is_vital(path):
            return f"it removes {path} with all that is in it"
        if place.is_protected(path, recursive):
            return f"it removes {path}, which the system needs"
    return _unclear(words, place) if recursive else None


def _over_everything(words: Words, place: Place) -> str | None:
    """chmod, chown and their kin."""
    recursive = has_option(words, "R", "recursive")
    for path in operands_of(words)[1:] or operands_of(words):
        whole = normal(place.absolute(path))
        own = whole in place.homes or (HOME.match(path) and ".." not in path)
        if recursive and not own and place.is_vital(path, every_top=False):
            return f"it changes who may use {path} and all that is in it"
        if whole in ("/", "/etc", "/var", "/home") or place.is_protected(path, recursive):
            return f"it changes who may use {path}, which the system needs"
    return _unclear(words, place) if recursive else None


def _mv(words: Words, place: Place) -> str | None:
    *sources, target = operands_of(words) or [""]
    if has_option(words, "t", "target-directory", 1):
        sources.append(target)
    for path in sources:
        if place.is_vital(path, every_top=False) or place.is_protected(path):
            return f"it moves {path} away"
    if normal(target) == "/dev/null":
        return "it replaces /dev/null"
    return _onto([target], place) or _unclear(sources, place)


def _find(words: Words, place: Place) -> str | None:
    rest = list(words)
    while rest and rest[0] and (rest[0] in ("-L", "-H", "-P") or rest[0].startswith(("-O", "-D"))):
        rest = rest[2:] if rest[0] == "-D" else rest[1:]
    starts = [*takewhile(lambda word: word is not None and not word.startswith(("-", "(", "!", ")")), rest)]
    tests, starts = rest[len(starts) :], starts or ["."]
    if "-prune" not in tests:
        paths = [(at, one) for at, (word, one) in enumerate(pairwise(tests)) if word in ("-path", "-wholename") and one]
        named = [one for at, one in paths if not (at and tests[at - 1] in ("!", "-not")) and place.is_vital(one)]
        starts = [*named, *starts]
    runs = [run for word, run in pairwise(tests) if word in ("-exec", "-execdir", "-ok", "-okdir")]
    destroys = any(one and one.rpartition("/")[2] in _RUN_BY_FIND for one in runs)
    if not destroys and {"-delete", "rm", "/bin/rm", "shred"}.isdisjoint(tests):
        return None
    for path in starts:
        if path and place.is_raw(f"{path}/sda"):
            return f"it writes over what is in {path}"
        if path and any(name and place.is_protected(f"{path}/{name}") for name in tests):
            return f"it removes a file below {path}, which the system needs"
        if path and any(place.is_vital(f"{path}/{name}", False) for word, name in pairwise(tests) if word == "-name"):
            return f"it removes what the system needs right below {path}"
        if path and (place.is_vital(path, every_top=False) or place.is_protected(path, recursive=True)):
            chosen = _is_chosen(tests) if not GLOB.search(path) else ""
            if not chosen:
                return f"it removes everything below {path}"
            return None if chosen == "name" else Doubtful(f"it removes a good part of what is below {path}")
    return _unclear(starts, place)


def _is_chosen(tests: Words) -> str:
    """Whether the tests of find choose some files, and not all but some: by "name", or by something "else"."""
    chosen = ""
    for at, word in enumerate(tests):
        value = tests[at + 1] if at + 1 < len(tests) else ""
        if word in ("-o", "-or", ","):
            return ""
        if at and tests[at - 1] in ("!", "-not"):
            continue
        if word in _FIND_NAMES and value and not re.fullmatch(r"[*?./\[\]^$+]*", value):
            chosen = "name"
        elif word and word.startswith(_FIND_TESTS):
            chosen = chosen or "else"
    return chosen


def _git(words: Words, place: Place) -> str | None:
    """What makes a work tree as it was: all that was not kept in it is lost."""
    rest, tree = list(words), ""
    while rest and rest[0] and rest[0].startswith("-"):
        option, _, value = (rest.pop(0) or "").partition("=")
        if option in ("-C", "-c", "--work-tree", "--git-dir") and not value and rest:
            value = rest.pop(0) or ""
        key, _, setting = value.partition("=")
        if option == "-C":
            place = Place(place.homes, place.absolute(value), place.elsewhere)
        elif option == "--work-tree" or (option == "-c" and key.lower() == "core.worktree"):
            tree = setting if option == "-c" else value
        elif option == "--git-dir" and value.endswith("/.git"):
            tree = tree or value[:-4]
    verb, paths = (
        next(iter(rest), ""),
        [one for one in operands_of(rest[1:]) if "/" in one or "~" in one or UNKNOWN in one],
    )
    if verb == "config" and "core.worktree" in rest:
        return _unclear(paths, place) or _git_in(paths, place, "")
    if verb not in _GIT_LOSES or (verb == "clean" and has_option(rest, "n", "dry-run")):
        return None
    return _git_in([tree or ".", *paths], place, verb or "") or (_unclear([tree or ".", *paths], place))


def _git_in(paths: list[str], place: Place, verb: str) -> str | None:
    for path in paths:
        if place.is_vital(path, every_top=False) or place.is_protected(path, recursive=True):
            where = normal(place.absolute(path)) if path == "." else path
            why = f"it makes git remove or replace files in {where}"
            return why if verb in ("clean", "rm") else Doubtful(why)
    return None


def _perhaps(why: str | None) -> str | None:
    return Doubtful(why) if why else None


def _onto(words: Words, place: Place) -> str | None:
    """Those that write to what they name."""
    for path in operands_of(words):
        if place.is_raw(path):
            return f"it writes over {path}"
        if place.is_protected(path) and not path.endswith("/") and not place.absolute(path).startswith("/dev/"):
            return f"it writes over {path}, which the system needs"
    return None


def _writes_to(words: Words, place: Place) -> str | None:
    """Whatever program it is: the file that an option names as its output."""
    named = [path for option, path in pairwise(words) if option in _OUTPUTS and path]
    named += [word.partition("=")[2] for word in words if word and word.partition("=")[0] in _OUTPUTS]
    vital = [path for path in named if FILES.fullmatch(normal(place.absolute(path))[1:])]
    return f"it writes over {vital[0]}, which the system needs" if vital else None


def _last_onto(words: Words, place: Place) -> str | None:
    """Those that write to the last thing they name, as `cp` does."""
    for word in words:
        option, _, value = (word or "").partition("=")
        if option == "--target-directory" and place.is_raw(value):
            return f"it writes over {value}"
    if into := next((one for option, one in pairwise(words) if option == "-t" and one), ""):
        return _onto([f"{into}/{one.rpartition('/')[2]}" for one in operands_of(words)], place)
    target = operands_of(words)[-1:]
    why = _onto(target, place)
    # A new program in /usr/bin is how some are installed; what is there already may be lost by it.
    return Doubtful(why) if why and target and not place.is_raw(target[0]) and not FILES.match(target[0][1:]) else why


def _rsync(words: Words, place: Place) -> str | None:
    *_, target = operands_of(words) or [""]
    if any(word and word.startswith("--del") for word in words):
        if place.is_vital(target, every_top=False) or place.is_protected(target, recursive=True):
            return f"it removes from {target} what the other side does not have"
        if why := _unclear([target], place):
            return why
    if "--remove-source-files" in words and (why := _removes(operands_of(words)[:-1], place)):
        return why
    return _last_onto(words, place)


def _tar(words: Words, place: Place) -> str | None:
    inside = next((one for before, one in pairwise(words) if before in ("-C", "--directory", "-d") and one), "")
    if "--remove-files" in words:
        return _removes([f"{inside}/{one}" if inside else one for one in operands_of(words)], place)
    if inside and normal(place.absolute(inside)) in ("/", "/etc", "/usr", "/var", "/boot", "/bin", "/lib"):
        return Doubtful(f"it may replace anything in {inside}")
    return None


def _removes(words: Words, place: Place) -> str | None:
    """Those that remove what they name, and all that is in it."""
    return _rm(["-r", *words], place)


def _moves_into(words: Words, place: Place) -> str | None:
    """Archivers and copiers that remove what they have taken."""
    archiving = has_option([one for one in words if one and one[:2] != "--"], "m", "move") or "-sdel" in words
    return _removes(operands_of(words), place) if archiving else _tar(words, place)


def _kills_by_name(words: Words, place: Place) -> str | None:
    operands = operands_of(words)
    of_user = has_option(words, "uUG", "euid") and len(operands) < 2
    return _ENDS_ALL if of_user or any(re.fullmatch(r"[.^$*+?]*", one) for one in operands) else None


def _mount(words: Words, place: Place) -> str | None:
    again = any(word and "remount" in word for word in words)
    over = any(place.is_vital(one, every_top=False) for one in operands_of(words)[-1:]) and len(operands_of(words)) > 1
    return Doubtful("it changes what the system sees in its places") if over or (again and "/" in words) else None


def _with(options: str, why: str = _GIVES_UP, first: int | None = 2) -> Look:
    """Those that do harm only with one of these options, or with one of these among their first operands."""
    given = options.split()

    def look(words: Words, place: Place) -> str | None:
        found = any(word and word.startswith(one) for word in words for one in given if one.startswith("-"))
        return why if found or set(given) & {*operands_of(words)[:first]} else None

    return look


def _kill(words: Words, place: Place) -> str | None:
    rest = list(words)
    if rest and rest[0] in ("-s", "-n", "--signal"):
        rest = rest[2:]
    elif len(rest) > 1 and rest[0] and rest[0] != "--" and re.fullmatch(r"-(\d+|[A-Za-z].*|-signal=.*)", rest[0]):
        rest = rest[1:]
    if "-1" in rest:
        return _ENDS_ALL
    return "it ends the first process, and all others with it" if "1" in rest else None


def _packages(words: Words, place: Place) -> str | None:
    removes = _has(words, r"remove|purge|erase|autoremove|--purge|--remove|-[er]\b|-R")
    return "it removes what every program needs" if removes and not _ESSENTIAL.isdisjoint(words) else None


def _has(words: Words, pattern: str) -> bool:
    return any(word and re.match(pattern, word) for word in words)


_ESSENTIAL = names("bash coreutils libc6 glibc libc-bin dpkg apt rpm systemd util-linux base-files filesystem login")
_STOPPING = "isolate poweroff reboot halt kexec soft-reboot rescue emergency suspend hibernate"
_DISCARDING = (
    "blkdiscard mke2fs mkswap pvremove vgremove lvremove pvcreate vgreduce lvreduce zerofree fsfreeze "
    "sg_format diskpart"
)
_HAZARDS: dict[str, Look] = {
    name: look
    for programs, look in {
        "rm unlink rmdir srm wipe": _rm,
        "trash trash-put rimraf del-cli gio": _removes,
        "zip 7z 7za 7zr unzip": _moves_into,
        "apt apt-get aptitude dpkg rpm yum dnf pacman": _packages,
        "find": _find,
        "git": _git,
        "mv": _mv,
        "chmod chown chgrp chattr setfacl": _over_everything,
        "dd dcfldd dc3dd": lambda words, place: _onto(
            [word[3:] for word in words if word and word[:3] == "of="], place
        ),
        "tee shred sponge badblocks ddrescue scrub nwipe >": _onto,
        "truncate": lambda words, place: _onto(
            [two for one, two in pairwise(("", *words)) if one not in ("-s", "-r")], place
        ),
        "ed ex vi vim nvim patch rename fallocate gzip bzip2 xz zstd lzma split xxd": lambda words, place: _perhaps(
            _onto(words, place)
        ),
        "sed gsed perl": lambda words, place: _perhaps(_onto(words, place)) if _has(words, _IN_PLACE) else None,
        "tar gtar bsdtar": _tar,
        "pkill killall": _kills_by_name,
        "umount": lambda words, place: _UNMOUNTS if has_option(words, "a", "all") or "/" in words else None,
        "mount": _mount,
        "userdel deluser usermod passwd": _with("root", "it removes or closes the account root", first=None),
        "rclone": lambda words, place: _removes(operands_of(words)[1:], place) if "purge" in words else None,
        "cp install ln": _last_onto,
        "rsync": _rsync,
        "fdisk sfdisk cfdisk gdisk sgdisk cgdisk parted": lambda words, place: (
            None if _has(words, _LISTS) or not any(map(place.is_raw, operands_of(words))) else _DIVIDES
        ),
        "wipefs": lambda words, place: (
            _GIVES_UP if operands_of(words) and not has_option(words, "n", "no-act") else None
        ),
        _DISCARDING: lambda words, place: _GIVES_UP if operands_of(words) else None,
        "cryptsetup": _with("luksFormat erase luksErase reencrypt luksKillSlot luksRemoveKey format"),
        "nvme": _with("format sanitize write-zeroes dsm"),
        "zpool": _with("destroy labelclear split"),
        "zfs": _with("destroy rollback"),
        "btrfs": _with("delete"),
        "hdparm": _with(
            "--security-erase --security-set --trim-sector --make-bad --write-sector --dco --security-mode"
        ),
        "mdadm": _with("--zero-superblock --stop --remove --create -S"),
        "diskutil": _with("eraseDisk eraseVolume reformat zeroDisk secureErase partitionDisk"),
        "dmsetup": _with("remove remove_all wipe_table"),
        "shutdown reboot halt poweroff": lambda words, place: None if _has(words, _TAKES_BACK) else _STOPS,
        "init telinit": _with("0 1 6 s S", _STOPS, first=None),
        "systemctl loginctl": _with(_STOPPING, _STOPS, first=1),
        "crontab": lambda words, place: _EMPTIES if has_option(words, "r") or "/dev/null" in words else None,
        "kill": _kill,
        "killall5": lambda words, place: _ENDS_ALL,
    }.items()
    for name in programs.split()
}
