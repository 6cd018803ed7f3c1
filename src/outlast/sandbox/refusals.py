"""Whether a command failed because of its sandbox: by the words of the system in its last lines. Pure."""

from __future__ import annotations

import os

from outlast.types import LANDLOCK

LAST_LINES = 30  # in which a command that failed says why
_LONGEST = 200
_NOT_EXECUTABLE = 126  # the exit code of a shell
_OF_A_SERVER = "permission denied (publickey"  # that ssh reached
_READ_ONLY = ("read-only file system", "erofs", "errno 30", "os error 30")
_DENIED = ("permission denied", "eacces", "errno 13", "os error 13")
_BUSY = ("device or resource busy", "ebusy")  # a protected file is mounted, and git would replace it
_PRIVILEGES = ("no new privileges", "'nosuid' option", "cannot connect to the docker daemon")
_NETWORK = tuple(
    """could not resolve|couldn't resolve|unable to resolve|cannot resolve|temporary failure resolving|name resolution
name or service not known|failed to lookup address|no address associated|no such host|network is unreachable
enetunreach|eai_again|getaddrinfo|dial tcp: lookup""".replace("\n", "|").split("|")
)


def find_refusal(sandbox: str, output: str, exit_code: int | None = 1) -> str:
    """The last line that shows that the sandbox refused something; empty if none does.

    `sandbox` is as a task describes its own. "Permission denied" may also be the file's own mode: in a bubblewrap it
    counts for root alone, to whom no mode says no outside, and never if a program could not be executed.
    """
    signs = [*_READ_ONLY, *_PRIVILEGES]
    if (sandbox.startswith(LANDLOCK) or os.geteuid() == 0) and exit_code != _NOT_EXECUTABLE:
        signs += _DENIED
    if not sandbox.split(", ", maxsplit=1)[0].endswith(": network"):
        signs += _NETWORK
    for line in reversed(output.splitlines()[-LAST_LINES:]):
        plain = line.lower()
        if _OF_A_SERVER in plain:
            continue
        if any(sign in plain for sign in signs) or (".git" in plain and any(sign in plain for sign in _BUSY)):
            return " ".join(line.split())[:_LONGEST]
    return ""
