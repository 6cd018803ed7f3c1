"""A filter of system calls, for what neither namespaces nor Landlock close.

The kernel asks the filter about every system call of a process and of all that it starts. A filter sees numbers, not
what a pointer points to: it can refuse a family of sockets, never one path. It knows the numbers of two processors;
on others there is none, and that is said.
"""

from __future__ import annotations

import errno
import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    Step = tuple[int, int, int, int]

NAME = "seccomp"
_MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # as the kernel calls them
_X32 = 0x40000000  # other numbers for the same calls
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_CREATES = 0o100 | 0o20000000  # O_CREAT, O_TMPFILE
_SET_ID = 0o6000  # set-user-ID and set-group-ID
_TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: type into a terminal, paste into a console

_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW = (_RETURN, 0, 0, 0x7FFF0000)

# Name: its number on x86_64 and on aarch64 (0: the processor has none).
_SOCKET, _SOCKETPAIR, _IOCTL, _PRLIMIT = (41, 198), (53, 199), (16, 29), (302, 261)
_KEYS = ((248, 217), (249, 218), (250, 219))  # add_key, request_key, keyctl: no namespace holds keyrings
# What io_uring does passes no filter. What openat2 is asked for stands in memory. Programs do without both.
_UNSEEN = ((425, 425), (426, 426), (427, 427), (437, 437))
_CHMODS = (((90, 0), 1), ((91, 52), 1), ((268, 53), 2), ((452, 452), 2))  # each with the argument that is the mode
_MKNODS = (((85, 0), 1), ((133, 0), 1), ((259, 33), 2))  # creat, mknod, mknodat
_OPENS = (((2, 0), 1), ((257, 56), 2))  # each with the argument that is the flags; the mode is behind it
_XATTRS = ((188, 5), (189, 6), (190, 7), (197, 14), (198, 15), (199, 16), (463, 463), (466, 466))
_SYSTEM_V = (
    (29, 194),
    (30, 196),
    (64, 190),
    (68, 186),
    (240, 180),
    (241, 181),
)  # shm, sem, msg, and mq_open, mq_unlink


def known_here() -> bool:
    """Whether there is a filter for this machine."""
    return os.uname().machine in _MACHINES


def program(machine: str, *, namespaces: bool, network: bool) -> bytes:
    """The filter as the kernel takes it. Where there are no `namespaces`, it has more to refuse."""
    sockets = (_NETLINK, *((_UNIX,) if namespaces else ()), *((_INET, _INET6) if namespaces or network else ()))
    rules: list[tuple[tuple[int, int], list[Step]]] = [
        (_SOCKET, _only(0, sockets)),
        (_SOCKETPAIR, _only(0, (_UNIX,))),
        (
            _IOCTL,
            [_argument(1), *((_EQUAL, 2 - n, 0, one) for n, one in enumerate(_TERMINAL_INPUT)), _ALLOW, _refuse()],
        ),
        *((number, [_refuse()]) for number in _KEYS),
        *((number, [_refuse(errno.ENOSYS)]) for number in _UNSEEN),
        *(
            (number, [_argument(at), (_ANY_BIT, 1, 0, _SET_ID), _ALLOW, _refuse()])
            for number, at in (*_CHMODS, *_MKNODS)
        ),
        *((number, _open(at)) for number, at in _OPENS),
    ]
    if not namespaces:
        rules.append((_PRLIMIT, _only(0, (0,))))  # of the caller itself
        rules += ((number, [_refuse(errno.EOPNOTSUPP)]) for number in _XATTRS)
        rules += ((number, [_refuse()]) for number in _SYSTEM_V)
    column = list(_MACHINES).index(machine)
    steps: list[Step] = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_EQUAL, 1, 0, _MACHINES[machine]),
        _refuse(errno.ENOSYS),  # a program for another processor: its numbers are not known
        (_LOAD, 0, 0, _NUMBER_AT),
        (_AT_LEAST, 0, 1, _X32),
        _refuse(errno.ENOSYS),
    ]
    for numbers, answer in rules:
        if numbers[column]:
            steps += ((_EQUAL, 0, len(answer), numbers[column]), *answer)
    return b"".join(struct.pack("=HBBI", *step) for step in (*steps, _ALLOW))


def _refuse(number: int = errno.EPERM) -> Step:
    return _RETURN, 0, 0, 0x00050000 | number


def _argument(at: int) -> Step:
    """Load an argument: its lower half, which is all that the kernel looks at for an `int`."""
    return _LOAD, 0, 0, _ARGUMENTS_AT + 8 * at


def _only(at: int, values: Iterable[int]) -> list[Step]:
    """Refuse the call unless this argument is one of the values."""
    known = list(values)
    return [
        _argument(at),
        *((_EQUAL, len(known) - n, 0, value) for n, value in enumerate(known)),
        _refuse(errno.EACCES),
        _ALLOW,
    ]


def _open(flags_at: int) -> list[Step]:
    """Refuse to create a file that runs as its owner. Without O_CREAT the mode is whatever a register held."""
    return [
        _argument(flags_at),
        (_ANY_BIT, 1, 0, _CREATES),
        _ALLOW,
        _argument(flags_at + 1),
        (_ANY_BIT, 1, 0, _SET_ID),
        _ALLOW,
        _refuse(),
    ]
