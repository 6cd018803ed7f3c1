"""Builds `outlast-guard` from its C sources: for the build hook (`hatch_build.py`) or, as a program, in place.

In a source tree `outlast.guard.client.find_guard` runs this file when a C file changed. It is no part of the package:
a wheel has the program and no sources. Standard library only.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence

DIRECTORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "src", "outlast", "guard")
NAME = "outlast-guard"
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion")
FLAGS = ("-std=c11", "-Os", "-s", "-static")
_TRY = "#include <linux/seccomp.h>\n#include <sys/signalfd.h>\nint main(void) { return 0; }\n"
_HEADERS = (
    "/usr/include",
    f"/usr/include/{os.uname().machine}-linux-gnu",
)  # of the kernel: musl-gcc knows only its own
_ZIG_NAMES = {"ppc64le": "powerpc64le", "armv7l": "arm"}


class BuildError(Exception):
    """The guard cannot be built here."""


def sources(directory: str = DIRECTORY) -> list[str]:
    """The C files, in order."""
    return sorted(os.path.join(directory, name) for name in os.listdir(directory) if name.endswith(".c"))


def find_inputs(directory: str = DIRECTORY) -> list[str]:
    """The C files and headers."""
    names = [name for name in os.listdir(directory) if name.endswith((".c", ".h"))]
    return [os.path.join(directory, name) for name in names]


def find_compiler() -> list[str] | None:
    """A C compiler of this machine that links static programs; None if there is none.

    musl first: glibc asks the processor for its features at each start, which in a virtual machine takes 0.3 ms.
    """
    musl = shlex.join(["musl-gcc", *(word for path in _HEADERS for word in ("-idirafter", path))])
    for name in filter(None, (os.environ.get("CC"), musl, "cc", "gcc", "clang")):
        words = shlex.split(name)
        if words and shutil.which(words[0]) and links_statically(words):
            return words
    return None


def links_statically(compiler: Sequence[str]) -> bool:
    with tempfile.TemporaryDirectory() as place:
        source = os.path.join(place, "try.c")
        with open(source, "w") as file:
            file.write(_TRY)
        ran = subprocess.run(
            [*compiler, *FLAGS, source, "-o", os.path.join(place, "try")], check=False, capture_output=True
        )
        return ran.returncode == 0


def zig_compiler(machine: str = "") -> list[str]:
    """The compiler of the `ziglang` package, which needs nothing else on the machine, for any architecture."""
    machine = machine or os.uname().machine
    target = f"{_ZIG_NAMES.get(machine, machine)}-linux-musl{'eabihf' if machine == 'armv7l' else ''}"
    return [sys.executable, "-m", "ziglang", "cc", "-target", target]


def build(output: str, compiler: Sequence[str], flags: Iterable[str] = FLAGS, directory: str = DIRECTORY) -> None:
    """Compile into `output`, which is replaced at once: a running guard keeps the program that it has."""
    made = f"{output}.{os.getpid()}"
    command = [*compiler, *flags, *sources(directory), "-o", made]
    ran = subprocess.run(command, check=False, capture_output=True, text=True)
    if ran.returncode:
        if os.path.exists(made):
            os.unlink(made)
        raise BuildError(f"{shlex.join(command)} failed:\n{ran.stderr}")
    os.chmod(made, 0o755)
    os.replace(made, output)


def is_stale(output: str, directory: str = DIRECTORY) -> bool:
    """Return whether `output` is missing or older than a source."""
    try:
        made = os.stat(output).st_mtime_ns
    except FileNotFoundError:
        return True
    return any(os.stat(path).st_mtime_ns > made for path in find_inputs(directory))


def build_if_stale(output: str) -> None:
    """Build a stale program under a lock, so that two processes do not do it at the same time."""
    with open(os.path.abspath(__file__), "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_stale(output):
            build(output, find_compiler() or _installed_zig())


def _installed_zig() -> list[str]:
    compiler = zig_compiler()
    if subprocess.run([*compiler[:3], "version"], check=False, capture_output=True).returncode:
        raise BuildError(
            "outlast-guard has to be built and there is no C compiler that links static programs;"
            " install gcc, clang or the Python package ziglang."
        )
    return compiler


if __name__ == "__main__":
    try:
        build_if_stale(os.path.join(DIRECTORY, NAME))
    except BuildError as error:
        sys.exit(str(error))
