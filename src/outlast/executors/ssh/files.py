"""Copies files to and from another machine: by rsync if both have it, which sends only what changed, else by tar.

Both go over the connection by ssh that tasks share. The names of files go over standard input, never as arguments.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tarfile
import tempfile

from outlast.errors import BadInput, OutlastError
from outlast.executors.ssh.link import as_one_word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_PROBE = 'IFS= read -r d; cd "$d" && command -v rsync >/dev/null'
_UNPACK = 'IFS= read -r d; cd "$d" && exec tar -xf -'
_PACK = (
    'IFS= read -r d; cd "$d" || exit; set --; while IFS= read -r p; do set -- "$@" "$p"; done; exec tar -cf - -- "$@"'
)


# Of devices, owners and links that lead out of what is copied nothing is taken over, as by the tar of Python.
_RSYNC = ("rsync", "--recursive", "--links", "--perms", "--times", "--secluded-args", "--from0", "--files-from=-")


class CopyFailed(OutlastError, code="copy-failed"):
    """Files could not be copied to or from another machine."""


def send(ssh: Sequence[str], paths: Sequence[str], directory: str, name: str) -> None:
    """Copy files and directories into `directory` there, each under its own name. Raises `CopyFailed`."""
    for path in paths:
        _check(path)
    failure = f"Nothing was started: the files could not be sent to {name}"
    if _can_sync(ssh, directory):
        parents: dict[str, list[str]] = {}
        for path in map(os.path.normpath, paths):
            parents.setdefault(os.path.dirname(path), []).append(os.path.basename(path))
        for parent, names in parents.items():
            _sync(ssh, names, [f"{parent}/", f"{ssh[-1]}:{directory}/"], failure)
    else:
        _send_archive(ssh, paths, directory, failure)


def fetch(ssh: Sequence[str], paths: Sequence[str], directory: str, into: str, name: str) -> None:
    """Copy what is in `directory` there into `into`, and nothing to another place."""
    for path in paths:
        _check(path)
        if os.path.isabs(path) or ".." in path.split("/"):
            raise BadInput(f"{path} is not in the directory that the command began in; fetch what is.")
    failure = f"Files could not be fetched from {name}"
    if _can_sync(ssh, directory):
        _sync(ssh, paths, ["--safe-links", f"{ssh[-1]}:{directory}/", f"{os.path.abspath(into)}/"], failure)
    else:
        _fetch_archive(ssh, paths, directory, into, failure)


def _check(path: str) -> None:
    if "\n" in path:
        raise BadInput("The name of a file that is copied must not contain a line end; rename it.")


# --- rsync -------------------------------------------------------------------------------


def _can_sync(ssh: Sequence[str], directory: str) -> bool:
    """Return whether both machines have rsync, and the directory is there: rsync would make it."""
    if not shutil.which("rsync") or ":" in ssh[-1]:  # rsync separates the host from the path with it
        return False
    asked = subprocess.run(
        [*ssh, as_one_word(_PROBE)], input=_line(directory), capture_output=True, start_new_session=True, check=False
    )
    return asked.returncode == 0


def _sync(ssh: Sequence[str], names: Sequence[str], words: Sequence[str], failure: str) -> None:
    shell = shlex.join(ssh[:-2])  # without `-- HOST`, which rsync adds
    ran = subprocess.run(
        [*_RSYNC, f"--rsh={shell}", *words],
        input=b"".join(os.fsencode(name) + b"\0" for name in names),
        capture_output=True,
        start_new_session=True,
        check=False,
    )
    if ran.returncode:
        raise CopyFailed(f"{failure}: {_first_line(ran.stderr) or f'rsync ended with {ran.returncode}'}.")


# --- tar ---------------------------------------------------------------------------------


def _send_archive(ssh: Sequence[str], paths: Sequence[str], directory: str, failure: str) -> None:
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            [*ssh, as_one_word(_UNPACK)], stdin=subprocess.PIPE, stderr=errors, start_new_session=True
        )
        assert child.stdin is not None
        try:
            child.stdin.write(_line(directory))
            with tarfile.open(fileobj=child.stdin, mode="w|") as archive:
                for path in paths:
                    archive.add(path, arcname=os.path.basename(path))
            child.stdin.close()
        except BrokenPipeError:
            pass  # its message says why
        except BaseException:
            child.kill()  # half of an archive must not look whole
            child.wait()
            raise
        if child.wait():
            errors.seek(0)
            raise CopyFailed(f"{failure}: {_first_line(errors.read())}.")


def _fetch_archive(ssh: Sequence[str], paths: Sequence[str], directory: str, into: str, failure: str) -> None:
    asked = b"".join(map(_line, (directory, *paths)))
    with tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as request:
        request.write(asked)
        request.seek(0)
        child = subprocess.Popen(
            [*ssh, as_one_word(_PACK)], stdin=request, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
        )
        assert child.stdout is not None
        problem = ""
        try:
            with tarfile.open(fileobj=child.stdout, mode="r|") as archive:
                archive.extractall(into, filter="data")
            child.stdout.read()
        except tarfile.TarError as error:
            child.kill()
            problem = str(error)
        finally:
            child.stdout.close()
        if child.wait() or problem:
            errors.seek(0)
            raise CopyFailed(f"{failure}: {_first_line(errors.read()) or problem}.")


def _line(path: str) -> bytes:
    return os.fsencode(path) + b"\n"


def _first_line(said: bytes) -> str:
    lines = said.decode(errors="replace").strip().splitlines()
    return lines[0].rstrip(".") if lines else ""
