"""What a command may use: from the request and the settings to rlimits and control groups."""

from __future__ import annotations

import os
import resource

from outlast.errors import Unsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from outlast.settings import Settings
    from outlast.types import Request

_RESOURCES = {  # the limits that a command can have: the setting and the rlimit of each
    "memory": ("memory_limit_bytes", "RLIMIT_AS"),
    "processes": ("process_limit", "RLIMIT_NPROC"),
    "cpu_time": ("cpu_limit_s", "RLIMIT_CPU"),
    "file_size": ("file_size_limit_bytes", "RLIMIT_FSIZE"),
}
_RLIMITS = {name: getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}
_AFTER_XCPU_S = 5


def select_resources(request: Request, settings: Settings) -> Mapping[str, int]:
    """Return the limits of a command: those of the request, otherwise those of the settings."""
    limits = {name: getattr(settings, setting) for name, (setting, _) in _RESOURCES.items()} | dict(request.resources)
    return {name: value for name, value in limits.items() if value}


def plan_groups(resources: Mapping[str, int]) -> dict[str, dict[str, str]]:
    """Return the control groups that hold a command to its limits; none where they cannot be made."""
    from outlast.sandbox import cgroup  # most commands have no limits

    found = cgroup.plan_groups(resources)
    if "processes" in resources and not found and os.geteuid() == 0:
        raise Unsupported(
            "The kernel holds root to a number of processes only where control groups can be made, and here they "
            "cannot; run it as another user, or leave it out."
        )
    return found


def read_rlimits() -> dict[str, tuple[int, int]]:
    """Return this process' limits: the one that starts a pending command may have others."""
    return {name: resource.getrlimit(number) for name, number in _RLIMITS.items()}


def compute_rlimits(resources: Mapping[str, int], groups: Mapping[str, object]) -> dict[str, tuple[int, int]]:
    """Return the soft and hard limits for resources that no control group limits."""
    found = {}
    for name, value in resources.items():
        if groups and name in ("memory", "processes"):
            continue
        rlimit = _RESOURCES[name][1]
        _, hard = resource.getrlimit(getattr(resource, rlimit))
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        # At the soft limit of CPU time the kernel sends SIGXCPU, which says why; at the hard limit SIGKILL.
        beyond = most + _AFTER_XCPU_S if name == "cpu_time" else most
        found[rlimit] = (most, beyond if hard == resource.RLIM_INFINITY else min(beyond, hard))
    return found


def limit_elsewhere(resources: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Return the limits on another machine, whose own are not known here."""
    beyond = {"cpu_time": _AFTER_XCPU_S}
    return {_RESOURCES[name][1]: (most, most + beyond.get(name, 0)) for name, most in resources.items()}
