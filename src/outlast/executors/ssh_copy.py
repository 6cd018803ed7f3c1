"""Copies files to and from another machine: `tar` over ssh. Paths go over standard input, never as arguments."""

from __future__ import annotations

import os
import subprocess
import tarfile
import tempfile

from outlast.errors import BadInput, OutlastError
from outlast.executors.ssh_link import as_one_word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_UNPACK = 'IFS= read -r d; cd "$d" && exec tar -xf -'
_PACK = (
    'IFS= read -r d; cd "$d" || exit; set --; while IFS= read -r p; do set -- "$@" "$p"; done; exec tar -cf - -- "$@"'
)


class CopyFailed(OutlastError, code="copy-failed"):
    """Files could not be copied to or from another machine."""


def send(ssh: Sequence[str], paths: Sequence[str], directory: str, name: str) -> None:
    """Copy files and directories into `directory` there, each under its own name. Raises `CopyFailed`."""
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
            raise CopyFailed(f"Nothing was started: the files could not be sent to {name}: {_first_line(errors)}.")


def fetch(ssh: Sequence[str], paths: Sequence[str], directory: str, into: str, name: str) -> None:
    """Copy what is in `directory` there into `into`. What is in the archive cannot lead out of it."""
    for path in paths:
        if os.path.isabs(path) or ".." in path.split("/"):
            raise BadInput(f"{path} is not in the directory that the command began in; fetch what is.")
    asked = b"".join(map(_line, (directory, *paths)))
    with tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as request:
        request.write(asked)
        request.seek(0)
        child = subprocess.Popen(
            [*ssh, as_one_word(_PACK)], stdin=request, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
        )
        assert child.stdout is not None
        try:
            with tarfile.open(fileobj=child.stdout, mode="r|") as archive:
                archive.extractall(into, filter="data")
            child.stdout.read()
        except tarfile.TarError as error:
            child.kill()
            child.wait()
            raise CopyFailed(f"Files could not be fetched from {name}: {_first_line(errors) or error}.") from None
        finally:
            child.stdout.close()
        if child.wait():
            raise CopyFailed(f"Files could not be fetched from {name}: {_first_line(errors)}.")


def _line(path: str) -> bytes:
    if "\n" in path:
        raise BadInput("The name of a file that is copied must not contain a line end; rename it.")
    return os.fsencode(path) + b"\n"


def _first_line(errors: object) -> str:
    errors.seek(0)  # type: ignore[attr-defined]
    lines = errors.read().decode(errors="replace").strip().splitlines()  # type: ignore[attr-defined]
    return lines[0].rstrip(".") if lines else ""
