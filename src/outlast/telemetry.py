"""OpenTelemetry: a span for each task and each call of a tool, metrics beside them, made from the events.

    from outlast.telemetry import instrument

    with Shell.open() as shell, instrument(shell):
        shell.run("make test")

Needs `opentelemetry-api`, and a host that has set up where spans and metrics go. A task's span
has its parent in the trace that the task was started in, whichever process makes the span, and whenever:
a task that outlasts its host is told of by the next one.
"""

from __future__ import annotations

import threading

from outlast import __version__
from outlast.errors import Unsupported
from outlast.notices.stop_event import StopEvent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

    from outlast.notices.notice import Event
    from outlast.shell.shell import Shell

_NS = 1_000_000_000
_COMMAND = 200  # characters of a command that a span repeats


def instrument(
    shell: Shell, *, tracer_provider: Any = None, meter_provider: Any = None, after: int | None = None
) -> Telemetry:
    """Make spans and metrics of what this shell sees from now on (or `after` an event), in a thread, until closed.

    Commands become a part of the span that is current where they are started.
    """
    return Telemetry(shell, Instruments(tracer_provider, meter_provider), after)


class Instruments:
    """Where spans and metrics go."""

    def __init__(self, tracer_provider: Any = None, meter_provider: Any = None) -> None:
        try:
            from opentelemetry import metrics, trace
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError:
            raise Unsupported("The package opentelemetry-api is needed; run: pip install 'outlast[otel]'.") from None
        self._status = trace.Status
        self._codes = trace.StatusCode
        self._propagator = TraceContextTextMapPropagator()
        self._tracer = trace.get_tracer("outlast", __version__, tracer_provider)
        meter = metrics.get_meter("outlast", __version__, meter_provider)
        self._started = meter.create_counter("outlast.tasks.started", description="tasks that began")
        self._ended = meter.create_counter("outlast.tasks.ended", description="tasks that ended")
        self._took = meter.create_histogram("outlast.task.duration", "s", "how long tasks ran")
        self._calls = meter.create_counter("outlast.tool.calls", description="calls of tools")
        self._call_took = meter.create_histogram("outlast.tool.duration", "s", "how long calls of tools took")

    def current(self) -> dict[str, str]:
        """The variables that make a command a part of the current span; none if there is no such span."""
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier)
        return {name.upper(): value for name, value in carrier.items()}

    def take(self, event: Event) -> None:
        """Make of an event what there is to make of it."""
        facts = event.facts
        match event.type:
            case "task.started":
                self._started.add(1, {"kind": facts["kind"], "session": event.session})
            case "task.ended":
                how = {"kind": facts["kind"], "status": facts["status"], "reason": facts["reason"] or ""}
                self._ended.add(1, how)
                self._took.record(facts["elapsed_ms"] / 1000, how)
                ended = facts["ended_at"] or event.at
                bad = facts["status"] in ("failed", "killed")
                self._span(event, f"task {facts['category']}", (facts["started_at"], ended), self._of_task(event), bad)
            case "tool.call":
                how = {"tool": facts["tool"], "profile": facts["profile"], "failed": facts["failed"]}
                self._calls.add(1, how)
                self._call_took.record(facts["elapsed_ms"] / 1000, how)
                named = {"outlast.tool": facts["tool"], "outlast.profile": facts["profile"]}
                known = {"outlast.task.id": event.task_id} if event.task_id else {}
                began = event.at - facts["elapsed_ms"] / 1000
                # A call that reads of a failed task, or ends one, is itself a success.
                self._span(event, f"tool {facts['tool']}", (began, event.at), {**named, **known}, facts["failed"])

    def _of_task(self, event: Event) -> dict[str, Any]:
        facts = event.facts
        found = {
            "outlast.task.id": event.task_id,
            "outlast.task.kind": facts["kind"],
            "outlast.task.status": facts["status"],
            "outlast.task.reason": facts["reason"],
            "outlast.command": facts["command"][:_COMMAND],
            "process.exit.code": facts["exit_code"],
            "process.pid": facts["pid"],
        }
        return {name: value for name, value in found.items() if value is not None}

    def _span(self, event: Event, name: str, when: tuple[float, float], known: dict[str, Any], bad: bool) -> None:
        began, ended = when
        parent = self._propagator.extract({"traceparent": event.traceparent}) if event.traceparent else None
        known["outlast.session"] = event.session
        span = self._tracer.start_span(name, context=parent, start_time=round(began * _NS), attributes=known)
        if bad:
            span.set_status(self._status(self._codes.ERROR, str(event.facts.get("reason") or "")))
        span.end(end_time=round(max(began, ended) * _NS))


class Telemetry:
    """Follows the events of a shell in a thread."""

    def __init__(self, shell: Shell, instruments: Instruments, after: int | None) -> None:
        self._shell, self._instruments = shell, instruments
        self._over = StopEvent()
        self._following = shell.notice_board.following(after)
        self._look()  # so that what happens from here on is not missed
        shell.context.trace = instruments.current
        self._thread = threading.Thread(target=self._run, name="outlast-telemetry", daemon=True)
        self._thread.start()

    def _look(self) -> bool:
        events = self._following.look()
        for event in events:
            self._instruments.take(event)
        return bool(events)

    def _run(self) -> None:
        while not self._over.is_set:
            if not self._look():
                self._following.watch.wait(None, self._over.fd)

    def close(self) -> None:
        """Make what there is to make until now, and stop."""
        self._shell.context.trace = None
        self._over.set()
        self._thread.join()
        self._over.close()
        while self._look():
            pass
        self._following.close()

    def __enter__(self) -> Telemetry:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
