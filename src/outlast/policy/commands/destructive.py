"""What destroys a machine: the hazards that the policy `guarded` denies, in whatever spelling. Pure.

Each function looks at the words of one simple command (None: a word that is known only when it
runs) and says in one sentence why it must not run, or nothing; a `Doubtful` one asks.
"""

from __future__ import annotations

import os
import re
from itertools import pairwise, takewhile

from outlast.policy.bash.words import names
from outlast.policy.commands.destructive_words import DESTROYERS, has_option, operands_of
from outlast.policy.patterns import UNKNOWN
from outlast.policy.rules import Doubtful

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Words = Sequence[str | None]

# What a system cannot lose. `rm -r` of any other directory right below / is refused as well.
SYSTEM = names(
    "bin boot dev etc home lib lib32 lib64 libx32 opt proc root run sbin srv sys usr var System Library Applications "
    "Users"
)
_DEEPER = names("usr/local usr/local/bin usr/local/lib var/lib var/log var/spool var/cache boot/efi")
# Trees that only a package manager writes to, and files without which nobody can log in or boot.
_TREES = re.compile(
    r"(?:usr/)?(?:bin|sbin|lib(?:32|64|x32|exec)?)|usr/(?:share|include)|boot|dev|proc|sys|System|Library"
)
_FILES = re.compile(
    r"etc/(?:passwd|shadow|group|gshadow|sudoers|fstab|crypttab|ld\.so\.\w+|inittab|pam\.conf|shells)-?"
)
_DATA = re.compile(r"etc/[^/]+|var/lib/[^/]+|etc/(?:systemd/system|ssl/certs|pam\.d/.*|sudoers\.d|apt/sources.*)")
_HARMLESS_DEVICES = re.compile(
    r"/dev/(null|zero|full|u?random|std(in|out|err)|tty\w*|ptmx|(fd|pts|shm|mqueue|tcp|udp)(/.*)?)"
)
_GIVES_UP = "it gives up what a disk holds"
_STOPS = "it stops the machine"
_ENDS_ALL = "it ends every process that it can reach"
_RAW = ("/proc/sysrq-trigger", "/proc/kcore")
_RUN_BY_FIND = DESTROYERS | names("sh bash")
_GIT_LOSES = names("clean rm reset checkout restore switch stash read-tree checkout-index worktree")
_FIND_NAMES = names("-name -iname -path -ipath -wholename -regex -iregex -empty -samefile -inum")
_FIND_TESTS = tuple(names("-mtime -mmin -atime -amin -ctime -cmin -newer -size -user -group -perm"))
_ALL_UNKNOWN = re.compile(rf"{UNKNOWN}+(?:/[*.?/]*|/(?:{'|'.join(SYSTEM)})/?)?")  # all of a directory that is not known
_GLOB = re.compile(r"[*?\[{]")
_BRACES = re.compile(r"\{([^{}]*)\}")
_MOST_PATHS = 64  # that braces are taken apart into
_ONLY_GLOB = re.compile(r"[*?.]*[*?][*?.]*|\.?\[[^\]]*\][*?.]*")
_OWN_HOME = re.compile(r"\A(?:~|\$HOME|\$\{HOME\})(?=/)")
_HOME = re.compile(r"(~(?:\$\{?\w+\}?|[A-Za-z0-9_.-]*)|\$HOME|\$\{HOME\})")


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
        return any(_is_protected(_normal(self.absolute(one)), recursive) for one in _each_of(path))

    def is_raw(self, path: str) -> bool:
        """Whether writing there goes past every file system: a disk, the memory, the kernel's trigger."""
        path = _normal(self.absolute(path))
        return path in _RAW or (path.startswith("/dev/") and not _HARMLESS_DEVICES.fullmatch(path))


def make_destructive_check(home: str) -> Callable[..., str | None]:
    """What to ask of each simple command, where `home` is the user's home directory."""
    homes = frozenset({_normal(home)} if home not in ("", "/") else ())

    def look(words: tuple[str | None, ...], where: str = "", elsewhere: bool = False) -> str | None:
        name = words[0].rpartition("/")[2] if words and words[0] else ""
        if name.startswith(("mkfs", "newfs", "mkntfs")):
            return "it makes a new file system over what is there"
        found = _HAZARDS.get(name)
        return found(words[1:], Place(frozenset() if elsewhere else homes, where, elsewhere)) if found else None

    return look


# --- places ------------------------------------------------------------------------------


def _normal(path: str) -> str:
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
    if recursive and _GLOB.search(last) and _ONLY_GLOB.fullmatch(last):
        path = above
    if path.startswith(("dev/shm/", "usr/share/nginx/", "usr/lib/python", "usr/lib/node_modules/")):
        return False
    tree = _TREES.match(path)
    if tree and path[tree.end() :][:1] in ("", "/"):
        return True
    return bool(_FILES.fullmatch(path)) or (recursive and bool(_DATA.fullmatch(path)))


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
        whole = _normal(place.absolute(path))
        own = whole in place.homes or (_HOME.match(path) and ".." not in path)
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
    if _normal(target) == "/dev/null":
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
        if path and (place.is_vital(path, every_top=False) or place.is_protected(path, recursive=True)):
            chosen = _is_chosen(tests) if not _GLOB.search(path) else ""
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
            why = f"it makes git remove or replace files in {path}"
            return why if verb in ("clean", "rm") else Doubtful(why)
    return None


def _dd(words: Words, place: Place) -> str | None:
    return _onto([word[3:] for word in words if word and word.startswith("of=")], place)


def _onto(words: Words, place: Place) -> str | None:
    """Those that write to what they name."""
    for path in operands_of(words):
        if place.is_raw(path):
            return f"it writes over {path}"
        if place.is_protected(path) and not path.endswith("/") and not place.absolute(path).startswith("/dev/"):
            return f"it writes over {path}, which the system needs"
    return None


def _truncate(words: Words, place: Place) -> str | None:
    return _onto([word for at, word in enumerate(words) if not (at and words[at - 1] in ("-s", "-r"))], place)


def _last_onto(words: Words, place: Place) -> str | None:
    """Those that write to the last thing they name, as `cp` does."""
    for word in words:
        option, _, value = (word or "").partition("=")
        if option == "--target-directory" and place.is_raw(value):
            return f"it writes over {value}"
    target = operands_of(words)[-1:]
    why = _onto(target, place)
    # A new program in /usr/bin is how some are installed; what is there already may be lost by it.
    return Doubtful(why) if why and target and not place.is_raw(target[0]) and not _FILES.match(target[0][1:]) else why


def _rsync(words: Words, place: Place) -> str | None:
    *_, target = operands_of(words) or [""]
    if any(word and word.startswith("--del") for word in words) and (
        place.is_vital(target, every_top=False) or place.is_protected(target, recursive=True)
    ):
        return f"it removes from {target} what the other side does not have"
    if "--remove-source-files" in words and (why := _removes(operands_of(words)[:-1], place)):
        return why
    return _last_onto(words, place)


def _edits(words: Words, place: Place) -> str | None:
    """sed and perl change files in place with -i."""
    given = [word for word in words if word and re.match(r"-[A-Za-z0-9]*i|--in-place", word)]
    why = _onto(words, place) if given else None
    return Doubtful(why) if why else None


def _tar(words: Words, place: Place) -> str | None:
    inside = next((one for before, one in pairwise(words) if before in ("-C", "--directory", "-d") and one), "")
    if "--remove-files" in words:
        return _removes([f"{inside}/{one}" if inside else one for one in operands_of(words)], place)
    if inside and _normal(place.absolute(inside)) in ("/", "/etc", "/usr", "/var", "/boot", "/bin", "/lib"):
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


def _umount(words: Words, place: Place) -> str | None:
    return "it takes away file systems that are in use" if has_option(words, "a", "all") or "/" in words else None


def _mount(words: Words, place: Place) -> str | None:
    again = any(word and "remount" in word for word in words)
    over = any(place.is_vital(one, every_top=False) for one in operands_of(words)[-1:]) and len(operands_of(words)) > 1
    return Doubtful("it changes what the system sees in its places") if over or (again and "/" in words) else None


def _partitions(words: Words, place: Place) -> str | None:
    looks = (
        has_option(words, "ldp", "list")
        or has_option(words, "", "dump")
        or has_option(words, "", "print")
        or "print" in words
    )
    return None if looks or not any(map(place.is_raw, operands_of(words))) else "it changes how a disk is divided"


def _wipefs(words: Words, place: Place) -> str | None:
    return (
        "it erases what says where a file system is"
        if operands_of(words) and not has_option(words, "n", "no-act")
        else None
    )


def _with(options: str, why: str = _GIVES_UP, first: int | None = 2) -> Callable[[Words, Place], str | None]:
    """Those that do harm only with one of these options, or with one of these among their first operands."""
    given = options.split()

    def look(words: Words, place: Place) -> str | None:
        found = any(word and word.startswith(one) for word in words for one in given if one.startswith("-"))
        return why if found or set(given) & {*operands_of(words)[:first]} else None

    return look


def _halts(words: Words, place: Place) -> str | None:
    if has_option(words, "ckw", "wtmp-only") or has_option(words, "", "help") or has_option(words, "", "version"):
        return None  # it takes one back, says so, or only writes it down
    return _STOPS


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
    removes = any(
        word and re.match(r"remove|purge|erase|autoremove|--purge|--remove|-[er]\b|-R", word) for word in words
    )
    return "it removes what every program needs" if removes and not _ESSENTIAL.isdisjoint(words) else None


_ESSENTIAL = names("bash coreutils libc6 glibc libc-bin dpkg apt rpm systemd util-linux base-files filesystem login")
_STOPPING = "poweroff reboot halt kexec soft-reboot rescue emergency suspend hibernate"
_DISCARDING = (
    "blkdiscard mke2fs mkswap pvremove vgremove lvremove pvcreate vgreduce lvreduce zerofree fsfreeze "
    "sg_format diskpart"
)
_HAZARDS: dict[str, Callable[[Words, Place], str | None]] = {
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
        "dd dcfldd dc3dd": _dd,
        "tee shred sponge badblocks ddrescue scrub nwipe >": _onto,
        "truncate": _truncate,
        "sed gsed perl": _edits,
        "tar gtar bsdtar": _tar,
        "pkill killall": _kills_by_name,
        "umount": _umount,
        "mount": _mount,
        "userdel deluser usermod passwd": _with("root", "it removes or closes the account root", first=None),
        "rclone": lambda words, place: _removes(operands_of(words)[1:], place) if "purge" in words else None,
        "cp install ln": _last_onto,
        "rsync": _rsync,
        "fdisk sfdisk cfdisk gdisk sgdisk cgdisk parted": _partitions,
        "wipefs": _wipefs,
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
        "shutdown reboot halt poweroff": _halts,
        "init telinit": _with("0 1 6 s S", _STOPS, first=None),
        "systemctl loginctl": _with(_STOPPING, _STOPS, first=1),
        "crontab": lambda words, place: "it removes the whole crontab" if has_option(words, "r") else None,
        "kill": _kill,
        "killall5": lambda words, place: _ENDS_ALL,
    }.items()
    for name in programs.split()
}
