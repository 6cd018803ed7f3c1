"""What Prometheus reads: numbers of one state directory, in its text format."""

from __future__ import annotations

from collections import Counter

from outlast import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from outlast.web.place import Place

    Samples = Iterable[tuple[Mapping[str, str], float]]

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_STATUSES = ("pending", "running", "completed", "failed", "killed")


def render(place: Place) -> str:
    """Return all metrics. What tasks use is measured while a page is open, and is left out otherwise."""
    live = place.live
    by_status = Counter(one.status for one in live.catalogue.entries())
    running = set(live.catalogue.running()) if live.has_viewers else set[str]()
    used = {task: one for task, one in live.usage.latest.items() if task in running}
    lines = [
        *_gauge("info", "The version of Outlast", [({"version": __version__}, 1)]),
        *_gauge("tasks", "Tasks that are kept, by status", [({"status": one}, by_status[one]) for one in _STATUSES]),
        *_gauge("kept_bytes", "Bytes that tasks take or reserve", [({}, live.kept_bytes())]),
        *_gauge("max_running", "Background tasks that may run at once", [({}, live.plain.settings.max_running)]),
        *_gauge("approvals_pending", "Questions that wait for an answer", [({}, len(place.approvals.pending()))]),
        *_gauge("viewers", "Pages that are open", [({}, len(live.overview.viewers))]),
        *_gauge("task_memory_bytes", "Memory of a task's processes", _of_tasks(used, "memory")),
        *_gauge("task_cpu_cores", "Cores that a task uses", _of_tasks(used, "cpu", 0.01)),
    ]
    return "\n".join(lines) + "\n"


def _of_tasks(used: Mapping[str, Mapping[str, float | None]], name: str, scale: float = 1) -> Samples:
    return [({"task": task}, value * scale) for task, one in used.items() if (value := one[name]) is not None]


def _gauge(name: str, what: str, samples: Samples) -> list[str]:
    found = [f"outlast_{name}{_labels(labels)} {value:.10g}" for labels, value in samples]
    return [f"# HELP outlast_{name} {what}.", f"# TYPE outlast_{name} gauge", *found] if found else []


def _labels(labels: Mapping[str, str]) -> str:
    """Return labels; none of them is a text that a command chose."""
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}" if labels else ""
