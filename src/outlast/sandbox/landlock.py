"""A sandbox of Landlock: what a process and all that it starts may still do to files, TCP and strangers.

For machines on which bubblewrap is forbidden to make namespaces. The three system calls are
made through ctypes: supervisors run without any packages, so no library is there for them.
Landlock only ever allows: what is not below an allowed place is refused, and a place inside of
an allowed one cannot be taken out. So everything around what has to stay hidden is named.

https://docs.kernel.org/userspace-api/landlock.html
"""

from __future__ import annotations

import os
import struct

from outlast.sandbox.bubblewrap import is_within

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from ctypes import CDLL

    from outlast.types import Sandbox

LEAST_ABI = 3  # before that a file could be emptied that must not be written to
TCP_ABI, SCOPES_ABI = 4, 6

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
REMOVE_DIR, REMOVE_FILE, MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK, MAKE_FIFO = (1 << bit for bit in range(4, 11))
MAKE_BLOCK, MAKE_SYM, REFER, TRUNCATE, IOCTL_DEV = (1 << bit for bit in range(11, 16))
_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
READ = EXECUTE | READ_FILE | READ_DIR
# Not MAKE_CHAR and MAKE_BLOCK: the disk itself is a device.
WRITE = READ | WRITE_FILE | TRUNCATE | REFER | MAKE_DIR | MAKE_REG | MAKE_SOCK | MAKE_FIFO | MAKE_SYM
WRITE |= REMOVE_DIR | REMOVE_FILE
_TCP = 1 | 2  # bind, connect
_SCOPES = 1 | 2  # abstract sockets, signals

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")  # not pts: other terminals are there
_HIDDEN = ("/tmp", "/var/tmp", "/dev")
_CREATE_RULESET, _ADD_RULE = 444, 445
_VERSION = 1
_PATH_BENEATH = 1


def _libc() -> CDLL:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc


def _call(name: str, *args: object) -> int:
    import ctypes

    found: int = getattr(_libc(), name)(*args)
    if found < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"Landlock: {os.strerror(number)}")
    return found


def abi() -> int:
    """Which version of Landlock the kernel has; 0 if it has none, or it is switched off."""
    try:
        return _call("syscall", _CREATE_RULESET, None, 0, _VERSION)
    except OSError:
        return 0


def list_allowed(sandbox: Sandbox, home: str, files: Iterable[tuple[str, int]] = ()) -> Iterator[tuple[str, int]]:
    """The places a command may use, and how."""
    home = os.path.realpath(home)
    for path in around("/", [home, *_HIDDEN]):
        yield path, READ
    for place in sandbox.readable:
        for path in around(place, [home]):
            yield path, READ
    for name in _DEVICES:
        yield f"/dev/{name}", READ_FILE | READ_DIR | WRITE_FILE | IOCTL_DEV
    for place in sandbox.writable:
        # SessionOverrides a protected place what is there can be written to, and nothing can be created beside it.
        for path in around(place, list(sandbox.protected)):
            yield path, WRITE
    yield from files


def around(path: str, hidden: list[str]) -> Iterator[str]:
    """`path` without what is hidden in it: the fewest places that together are all the rest."""
    if path in hidden:
        return
    if not any(is_within(one, [path]) for one in hidden):
        yield path
        return
    try:
        entries = list(os.scandir(path))
    except OSError:
        return  # what cannot be listed cannot be told apart, and stays closed
    for entry in entries:
        if not entry.is_symlink():  # it is allowed by where it leads to, or not
            yield from around(entry.path, hidden)


def make_ruleset(places: Iterable[tuple[str, int]], network: bool) -> int:
    """A descriptor of the rules, for a process to restrict itself to them."""
    version = abi()
    files = _known_files(version)
    ruleset = _create(files, 0 if network or version < TCP_ABI else _TCP, _SCOPES if version >= SCOPES_ABI else 0)
    for path, rights in places:
        _allow(ruleset, path, rights & files)
    return ruleset


def make_scopes() -> int:
    """Rules about strangers alone: no signals to them, no abstract sockets of theirs."""
    return _create(0, 0, _SCOPES)


def _create(files: int, tcp: int, scopes: int) -> int:
    import ctypes

    attributes = struct.pack("QQQ", files, tcp, scopes)
    return _call("syscall", _CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)


def _known_files(version: int) -> int:
    known = (1 << 13) - 1 | REFER | TRUNCATE
    return known | IOCTL_DEV if version >= 5 else known


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # there is nothing to allow
    try:
        if not os.path.isdir(f"/proc/self/fd/{fd}"):
            rights &= _OF_FILES
        if rights:
            _call("syscall", _ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, fd), 0)
    finally:
        os.close(fd)
