"""`outlast notices`, `brief`, `verify` and `events`: notices about tasks, and the log of events."""

from __future__ import annotations

import sys
import time

from outlast.cli.arguments import Asked, Parser, seconds, whole
from outlast.cli.common import open_shell, write
from outlast.errors import BadInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from outlast.notices.notice import Event, Notice
    from outlast.notices.subscription import Subscription
    from outlast.shell.shell import Shell

_NAME = "terminal"
_MODEL = "model"
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0  # between two tries to deliver
_TRIES = 3  # unless we follow: then for ever
_NOT_DELIVERED = 1
_LISTED = 100


def notices_parser() -> Parser:
    """Return the options of `outlast notices`."""
    made = Parser(
        "notices",
        "Print new notices (a task ended, a line matched --notify, silence ...) and\n"
        "acknowledge them: each reader gets each notice once. Notices wait until they are\nread.",
        "  outlast notices                          what is new for you\n"
        "  outlast notices -f --to bell             as it happens, with the terminal's bell\n"
        "  outlast notices -f --to https://host/hook    to a web hook: a POST of JSON for each\n"
        "  outlast notices -f --to 'exec:mail -s done me'   to a command, as JSON on its input\n"
        "  outlast notices -f --to ntfy://topic     to a service that apprise knows\n"
        "  outlast notices --all --json             the last 100, also acknowledged ones\n"
        "  outlast notices --for-model              as the text for a model's next turn",
    )
    add = made.add
    add("-f", "--follow", action="store_true", help="go on, and wait for more by event")
    add("--to", action="append", default=[], metavar="WHERE", help="deliver there instead (may be repeated)")
    add("--name", metavar="NAME", help=f"the reader whose position moves on (default: {_NAME})")
    add("--from-now", action="store_true", help="if the name (or address) is new: leave out what is old")
    add("--all", action="store_true", help=f"the last {_LISTED}, without claiming any")
    add("--for-model", action="store_true", help="one text for a model, within its budget")
    add("--timeout", type=seconds, metavar="SEC", help="with -f: stop after this long")
    return made.takes_session().takes_json()


def notices(asked: Asked) -> int:
    """Do what `outlast notices` asks; returns the exit code."""
    _refuse_contradictions(asked)
    with open_shell(asked.session) as shell:
        if asked.all:
            for notice in shell.notices(_LISTED):
                write(_format_notice(notice, asked.json))
            return 0
        if asked.for_model:
            with shell.subscribe(_MODEL if asked.name is None else asked.name, from_now=asked.from_now) as subscription:
                write(subscription.text(shell.settings.notice_chars))
                subscription.confirm_text()
            return 0
        if asked.to:
            return _deliver_all(shell, asked)
        with shell.subscribe(_NAME if asked.name is None else asked.name, from_now=asked.from_now) as subscription:
            return _each(subscription, asked, lambda notice: write(_format_notice(notice, asked.json)))


def _refuse_contradictions(asked: Asked) -> None:
    ways = [name for name in ("all", "for_model", "to") if getattr(asked, name)]
    if len(ways) > 1 or (asked.follow and ways and ways != ["to"]):
        raise BadInput("--all, --for-model, --to and -f do not go together, but for -f --to; use one of them.")
    if asked.name is not None and asked.to:
        raise BadInput("Each address of --to has a place of its own; leave out --name.")
    if asked.timeout is not None and not asked.follow:
        raise BadInput("--timeout says when -f stops; add -f, or leave it out.")


def _format_notice(notice: Notice, as_json: bool) -> str:
    if as_json:
        from outlast.notices.words import as_json as rendered

        return rendered(notice) + "\n"
    return f"{time.strftime('%H:%M:%S', time.localtime(notice.at))} {notice}\n"


def _each(subscription: Subscription, asked: Asked, tell: Callable[[Notice], None]) -> int:
    deadline = None if asked.timeout is None else time.monotonic() + asked.timeout
    while True:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        for notice in subscription.wait(left) if asked.follow else subscription.take():
            tell(notice)
            subscription.acknowledge(notice)
        if not asked.follow and not subscription.is_any():
            return 0
        if left == 0.0:
            return 0


def _deliver_all(shell: Shell, asked: Asked) -> int:
    from outlast.notices.delivery import destination, subscriber

    places = [(destination(address), subscriber(address)) for address in asked.to]
    codes: list[int] = []

    def deliver(tell: Callable[[Notice], None], name: str) -> None:
        with shell.subscribe(name, from_now=asked.from_now) as subscription:
            codes.append(_each_delivered(subscription, asked, tell))

    if len(places) == 1:
        deliver(*places[0])
        return codes[0]
    from threading import Thread

    threads = [Thread(target=deliver, args=place, daemon=True) for place in places]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return max(codes, default=_NOT_DELIVERED)


def _each_delivered(subscription: Subscription, asked: Asked, deliver: Callable[[Notice], None]) -> int:
    from outlast.notices.delivery import Undelivered

    def tell(notice: Notice) -> None:
        pause = _FIRST_PAUSE_S
        for attempt in range(1, sys.maxsize):
            try:
                deliver(notice)
                return
            except Undelivered as error:
                if not asked.follow and attempt >= _TRIES:
                    raise
                sys.stderr.write(f"outlast: notice {notice.number}: {error.message} Trying again in {pause:g} s.\n")
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_S)

    try:
        return _each(subscription, asked, tell)
    except Undelivered as error:
        sys.stderr.write(f"outlast: {error.message} It stays in the outbox.\n")
        return _NOT_DELIVERED


# --- brief, verify -------------------------------------------------------------------------


def brief_parser() -> Parser:
    """Return the options of `outlast brief`."""
    made = Parser(
        "brief",
        "One paragraph for a model that has forgotten its tasks: what runs in this\n"
        "session, and what ended since the last brief.",
        "  outlast brief\n  outlast brief --session chat-7",
    )
    return made.takes_session()


def brief(asked: Asked) -> int:
    """Do what `outlast brief` asks; returns the exit code."""
    with open_shell(asked.session) as shell:
        write(shell.brief())
    return 0


def verify_parser() -> Parser:
    """Return the options of `outlast verify`."""
    made = Parser(
        "verify",
        "Check that a notice is genuine: that Outlast wrote exactly this text under this\nnumber. Exits with 1 if not.",
        "  outlast verify '[outlast notice 7, code x3k2m5qa] bash-1a2b3c4d (\"make\") ...'\n"
        "  outlast verify '7 x3k2m5qa'              by number and code alone; prints the text",
    )
    made.add("notice", nargs="+", metavar="NOTICE", help="the whole line, or number and code; - reads it")
    return made.takes_session().takes_json()


def verify(asked: Asked) -> int:
    """Do what `outlast verify` asks; returns the exit code."""
    said = sys.stdin.read() if asked.notice == ["-"] else " ".join(asked.notice)
    with open_shell(asked.session) as shell:
        notice = shell.verify(said)
    if asked.json:
        import json

        shown = {"genuine": notice is not None, **({"number": notice.number, "text": notice.text} if notice else {})}
        write(json.dumps(shown) + "\n")
    elif notice is None:
        sys.stderr.write("outlast: not genuine: number, code and text do not fit a notice that you may see.\n")
    else:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(notice.at))
        write(f"Genuine: notice {notice.number} of {at}: {notice.text}\n")
    return 0 if notice else 1


# --- events --------------------------------------------------------------------------------


def events_parser() -> Parser:
    """Return the options of `outlast events`."""
    made = Parser(
        "events",
        "Print what happened to tasks and which tools were called, oldest first, one line each.",
        "  outlast events\n"
        "  outlast events -f --json | jq -c 'select(.type == \"task.ended\")'\n"
        "  outlast events -f --json --after 1042    go on where you stopped\n"
        "  outlast events --profile jido --json     under the names of that design",
    )
    add = made.add
    add("-f", "--follow", action="store_true", help="go on, and wait for more by event")
    add("--after", type=whole, default=0, metavar="N", help="only what comes behind this number")
    add("--profile", metavar="P", help="name them as that profile does; only those that it knows")
    add("--timeout", type=seconds, metavar="SEC", help="with -f: stop after this long")
    return made.takes_session().takes_json()


def events(asked: Asked) -> int:
    """Do what `outlast events` asks; returns the exit code."""
    if asked.timeout is not None and not asked.follow:
        raise BadInput("--timeout says when -f stops; add -f, or leave it out.")
    if asked.after < 0:
        raise BadInput(f"--after is the number of an event, 0 or more, not {asked.after}.")
    named = _named_by(asked.profile)
    with open_shell(asked.session) as shell:
        for event in shell.events(after=asked.after, follow=asked.follow, timeout=asked.timeout):
            if (shown := named(event)) is not None:
                write(_event(shown, asked.json))
    return 0


def _named_by(profile: str | None) -> Callable[[Event], Event | None]:
    if profile is None:
        return lambda event: event
    from outlast.tools.call_log import event_as
    from outlast.tools.profiles import profile_named

    found = profile_named(profile)
    return lambda event: event_as(found, event)


def _event(event: Event, as_json: bool) -> str:
    if as_json:
        from outlast.notices.notice import event_json

        return event_json(event) + "\n"
    from outlast.output.cleaner import inline

    at = time.strftime("%H:%M:%S", time.localtime(event.at))
    what = event.facts.get("label") or event.facts.get("description") or event.facts.get("command") or ""
    status = event.facts.get("status") or ""
    return f"{event.number:>6} {at} {event.type:<15} {event.task_id or '-':<14} {status:<9} {inline(what, 80)}\n"
