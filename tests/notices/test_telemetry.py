"""Spans and metrics, seen with OpenTelemetry's own exporters in memory."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from outlast import Shell
from outlast.telemetry import instrument
from outlast.tools import Toolbox


class Seen:
    """What was exported."""

    def __init__(self) -> None:
        self._spans, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracer_provider = TracerProvider()
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self._spans))
        self.meter_provider = MeterProvider([self._reader])

    def span(self, task_id: str) -> Any:
        (found,) = [
            span
            for span in self._spans.get_finished_spans()
            if span.attributes and span.attributes.get("outlast.task.id") == task_id and span.name.startswith("task")
        ]
        return found

    def named(self, name: str) -> list[Any]:
        return [span for span in self._spans.get_finished_spans() if span.name == name]

    def metric(self, name: str) -> list[Any]:
        data = self._reader.get_metrics_data()
        assert data is not None
        metrics = [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics]
        return [point for metric in metrics if metric.name == name for point in metric.data.data_points]


@pytest.fixture
def seen() -> Seen:
    return Seen()


def providers(seen: Seen) -> dict[str, Any]:
    return {"tracer_provider": seen.tracer_provider, "meter_provider": seen.meter_provider}


def test_a_span_for_each_task_in_its_callers_trace(shell: Shell, seen: Seen) -> None:
    shell.run("true")  # before anybody looked: not told of
    with instrument(shell, **providers(seen)):
        with seen.tracer_provider.get_tracer("test").start_as_current_span("turn") as turn:
            good = shell.run("echo $TRACEPARENT")
            bad = shell.start("exit 3")
        shell.wait(bad.task_id, timeout=30)
    span = seen.span(bad.task_id)
    assert span.parent.span_id == turn.get_span_context().span_id
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes["process.exit.code"] == 3
    assert seen.span(good.task_id).context.trace_id == turn.get_span_context().trace_id
    assert f"{turn.get_span_context().trace_id:032x}" in good.output  # and so is what the command itself does
    assert span.end_time > span.start_time
    assert len(seen.named("task bash")) == 2
    assert sum(point.value for point in seen.metric("outlast.tasks.started")) == 2
    ended = {point.attributes["status"]: point.value for point in seen.metric("outlast.tasks.ended")}
    assert ended == {"completed": 1, "failed": 1}
    assert sum(point.count for point in seen.metric("outlast.task.duration")) == 2


def test_a_span_for_each_call_of_a_tool(home: str, seen: Seen) -> None:
    with Toolbox.open(home=home, session="s") as box, instrument(box.shell, **providers(seen)):
        with seen.tracer_provider.get_tracer("test").start_as_current_span("turn") as turn:
            box.call("bash", {"command": "true"})
        box.call("bash", {"command": ""})
    first, second = seen.named("tool bash")
    assert first.parent.span_id == turn.get_span_context().span_id
    assert (first.status.status_code, second.status.status_code) == (StatusCode.UNSET, StatusCode.ERROR)
    assert second.parent is None
    assert sum(point.value for point in seen.metric("outlast.tool.calls")) == 2


def test_a_call_that_ends_or_reads_a_failed_task_is_no_error(home: str, seen: Seen) -> None:
    with Toolbox.open(home=home, session="s", profile="jido") as box, instrument(box.shell, **providers(seen)):
        task_id = box.call("bash_background", {"command": "sleep", "args": ["60"]}).data["task_id"]
        assert not box.call("kill_shell", {"shell_id": task_id}).error
        assert not box.call("bash_output", {"shell_id": task_id}).error
        assert box.call("kill_shell", {"shell_id": "nosuch"}).error
    ended, unknown = seen.named("tool kill_shell")
    (read,) = seen.named("tool bash_output")
    assert (ended.status.status_code, read.status.status_code) == (StatusCode.UNSET, StatusCode.UNSET)
    assert unknown.status.status_code == StatusCode.ERROR


def test_without_it_nothing_is_loaded(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(Exception, match=r"install 'outlast\[otel\]'"):
        instrument(shell)
