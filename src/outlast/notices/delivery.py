"""Where notices for people and programs go: a command, a web hook, an apprise address, the desktop, the terminal.

What can only be reached by network is told at least once, always with the same number: if we
die between its answer and our acknowledgement, it is told again.
"""

from __future__ import annotations

import hashlib
import os
import sys

from outlast.errors import BadInput, OutlastError, Unsupported, quote
from outlast.notices import words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from outlast.notices.notice import Notice

    Deliver = Callable[[Notice], None]

_PATIENCE_S = 30.0
_COMMAND_PATIENCE_S = 300.0
_EXEC = "exec:"


class Undelivered(OutlastError):
    """The receiver did not take it; it is tried again."""

    code = "undelivered"


def subscriber(address: str) -> str:
    """The name of an address' place. Not the address: it may hold a token."""
    return f"to {_kind(address)} {hashlib.sha256(address.encode(errors='surrogatepass')).hexdigest()[:16]}"


def destination(address: str) -> Deliver:
    """What delivers to an address; wrong ones are refused at once."""
    match _kind(address):
        case "bell":
            return _ring
        case "desktop":
            return _on_desktop()
        case "exec":
            return _to_command(address.removeprefix(_EXEC))
        case "http" | "https":
            return _to_web(address)
        case "":
            raise BadInput(
                f"{quote(address)} is nowhere to tell; use bell, desktop, exec:COMMAND, an http(s) URL, or an address "
                "that apprise knows."
            )
    return _by_apprise(address)


def _kind(address: str) -> str:
    if address in ("bell", "desktop"):
        return address
    if address.startswith(_EXEC):
        return "exec"
    scheme, colon, _ = address.partition("://")
    return scheme.lower() if colon else ""


def _ring(notice: Notice) -> None:
    try:
        with open("/dev/tty", "w") as terminal:
            terminal.write("\a")
    except OSError:
        sys.stderr.write("\a")  # stderr may be a terminal
        sys.stderr.flush()


def _on_desktop() -> Deliver:
    from shutil import which

    if which("notify-send") is None:
        raise Unsupported("There is no `notify-send` for desktop notices; install libnotify (libnotify-bin).")

    def deliver(notice: Notice) -> None:
        urgent = "normal" if notice.facts.get("status") == "completed" else "critical"
        _run(
            [
                "notify-send",
                "--app-name=Outlast",
                f"--urgency={urgent}",
                "--",
                f"Outlast: {notice.task_id}",
                notice.text,
            ]
        )

    return deliver


def _to_command(command: str) -> Deliver:
    if not command.strip():
        raise BadInput("There is no command behind exec:; write exec:COMMAND.")

    def deliver(notice: Notice) -> None:
        said = {"NUMBER": notice.number, "TASK_ID": notice.task_id, "KIND": notice.kind, "TEXT": notice.text}
        env = {**os.environ, **{f"OUTLAST_NOTICE_{name}": str(value) for name, value in said.items()}}
        _run(["/bin/sh", "-c", command], env, words.as_json(notice).encode())

    return deliver


def _run(argv: list[str], env: dict[str, str] | None = None, given: bytes = b"") -> None:
    import subprocess

    try:
        ran = subprocess.run(
            argv, env=env, input=given, stdout=subprocess.DEVNULL, timeout=_COMMAND_PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Undelivered(f"{argv[0]} did not take the notice: {error}.") from None
    if ran.returncode:
        raise Undelivered(f"{argv[-1]!r} did not take the notice: exit code {ran.returncode}.")


def _to_web(url: str) -> Deliver:
    from urllib.error import HTTPError, URLError
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    class Stay(HTTPRedirectHandler):
        """A followed redirection would send no body, and take any answer for a yes."""

        def redirect_request(self, *_: object) -> None:
            return None

    opener = build_opener(Stay)

    def deliver(notice: Notice) -> None:
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "outlast",
            "Outlast-Notice": str(notice.number),  # the same one is the same notice, however often it comes
            "Idempotency-Key": f"outlast-{notice.number}-{notice.code}",
        }
        try:
            request = Request(url, words.as_json(notice).encode(), headers, method="POST")
            with opener.open(request, timeout=_PATIENCE_S):
                pass
        except HTTPError as error:
            raise Undelivered(f"The web hook answered {error.code} {error.reason}.") from None
        except (URLError, OSError, ValueError) as error:
            raise Undelivered(f"The web hook cannot be reached: {getattr(error, 'reason', error)}.") from None

    return deliver


def _by_apprise(address: str) -> Deliver:
    try:
        import apprise
    except ImportError:
        raise Unsupported(
            f"For {_kind(address)}:// the package apprise is needed; run: pip install 'outlast[apprise]'."
        ) from None
    told = apprise.Apprise()
    if not told.add(address):
        raise BadInput(
            f"apprise does not understand an address of the kind {_kind(address)}://; see its documentation."
        )

    def deliver(notice: Notice) -> None:
        good = notice.facts.get("status") == "completed" or notice.kind == "matched"
        kind = apprise.NotifyType.SUCCESS if good else apprise.NotifyType.WARNING
        if not told.notify(body=str(notice), title=f"Outlast: {notice.task_id}", notify_type=kind):
            raise Undelivered(f"{_kind(address)}:// did not take the notice.")

    return deliver
