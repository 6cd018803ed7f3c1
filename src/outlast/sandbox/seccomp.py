"""No network for a process and all that it starts: no sockets but those within the machine.

Landlock closes TCP only. A filter of the kernel's looks at every system call that makes a
socket and refuses all families but unix and netlink. It knows the numbers of two
processors; on others TCP alone is closed, and that is said.
"""

from __future__ import annotations

import errno
import os
import struct

NAME = "seccomp"

# By machine: what the kernel calls it, and its number for `socket`.
_MACHINES = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
_IO_URING_SETUP = 425  # can make sockets without a system call for it
_X32 = 0x40000000  # other numbers for the same calls
_UNIX, _NETLINK = 1, 16
_NUMBER_AT, _ARCHITECTURE_AT, _FIRST_ARGUMENT_AT = 0, 4, 16
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000


def known_here() -> bool:
    """Whether there is a filter for this machine."""
    return os.uname().machine in _MACHINES


def program(machine: str) -> bytes:
    """The filter: eight bytes for each step, with how many steps to jump if it is so, and if not."""
    architecture, socket = _MACHINES[machine]
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_EQUAL, 0, 8, architecture),  # a program for another processor: its numbers are not known
        (_LOAD, 0, 0, _NUMBER_AT),
        (_AT_LEAST, 6, 0, _X32),
        (_EQUAL, 5, 0, _IO_URING_SETUP),
        (_EQUAL, 0, 5, socket),
        (_LOAD, 0, 0, _FIRST_ARGUMENT_AT),
        (_EQUAL, 3, 0, _UNIX),
        (_EQUAL, 2, 0, _NETLINK),
        (_RETURN, 0, 0, _ERROR | errno.EACCES),
        (_RETURN, 0, 0, _ERROR | errno.ENOSYS),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)
