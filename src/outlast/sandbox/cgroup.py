"""What a whole task is held to by the kernel, where control groups can be made: memory, and processes.

Limits of a process (`ulimit`) hold for each one alone, and root not at all in the number of
processes. A group holds for all of a task together. It is made beside the one that the
caller is in, or above it, wherever that is permitted, and is removed with the task.

Version 2 has one tree for all; in version 1 (still found on some machines) each controller
has its own.
"""

from __future__ import annotations

import os

from outlast.errors import OutlastError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Groups = Mapping[str, Mapping[str, str]]
    """By the directory that a group is made in: what is written into which of its files."""

_FILES = {  # what to hold, by which controller, in version 2 and in version 1
    "memory": ("memory", {"memory.max": "{}", "memory.swap.max": "0"}, {"memory.limit_in_bytes": "{}"}),
    "processes": ("pids", {"pids.max": "{}"}, {"pids.max": "{}"}),
}
_OPTIONAL = ("memory.swap.max",)  # a kernel without swap has no such file


def plan_groups(resources: Mapping[str, int]) -> dict[str, dict[str, str]]:
    """The groups that would hold a task to this; none if they cannot all be made."""
    wanted = {name: value for name, value in resources.items() if name in _FILES}
    controllers = {_FILES[name][0] for name in wanted}
    return _in_one_tree(wanted, controllers) or _each_in_its_own(wanted) if wanted else {}


def _in_one_tree(wanted: Mapping[str, int], controllers: set[str]) -> dict[str, dict[str, str]]:
    for path in _own_and_above("cgroup2", ""):
        if os.access(path, os.W_OK) and controllers <= set(_read(path, "cgroup.subtree_control").split()):
            files = [(file, text.format(wanted[name])) for name in wanted for file, text in _FILES[name][1].items()]
            return {path: dict(files)}
    return {}


def _each_in_its_own(wanted: Mapping[str, int]) -> dict[str, dict[str, str]]:
    found = {}
    for name, value in wanted.items():
        controller, _, files = _FILES[name]
        path = next(_own_and_above("cgroup", controller), "")
        if not path or not os.access(path, os.W_OK):
            return {}
        found[path] = {file: text.format(value) for file, text in files.items()}
    return found


def _own_and_above(kind: str, controller: str) -> Iterator[str]:
    """The directories of our own group, and of those above it, in the tree that has this controller."""
    for line in _read("/proc/self", "mountinfo").splitlines():
        fields, _, tail = line.partition(" - ")
        root, top = fields.split()[3:5]
        if tail.split()[0] != kind or (controller and controller not in tail.split()[-1].split(",")):
            continue
        path = _own(controller)
        if not path.startswith(root):
            return  # ours is not below what is mounted here
        path = os.path.normpath(top + "/" + path.removeprefix(root.rstrip("/")))
        while os.path.isdir(path) and (path == top or path.startswith(top + "/")):
            yield path
            path = os.path.dirname(path)
        return


def _own(controller: str) -> str:
    for line in _read("/proc/self", "cgroup").splitlines():
        _, names, path = line.split(":", 2)
        if (controller in names.split(",")) if controller else not names:
            return path
    return "/"


def make(groups: Groups, task_id: str) -> list[str]:
    """Make the groups of a task, with their limits; returns their paths."""
    paths = _of(groups, task_id)
    try:
        for path in paths:
            os.makedirs(path, exist_ok=True)
            for name, text in groups[os.path.dirname(path)].items():
                if name not in _OPTIONAL or os.path.exists(os.path.join(path, name)):
                    _write(path, name, text)
    except OSError as error:
        remove(groups, task_id)
        raise OutlastError(f"its resources cannot be limited: {error.strerror}: {error.filename}") from None
    return paths


def remove(groups: Groups, task_id: str) -> None:
    """When nothing of the task is left."""
    for path in _of(groups, task_id):
        try:
            os.rmdir(path)
        except OSError:
            pass  # it is gone, or something survived in it


def _of(groups: Groups, task_id: str) -> list[str]:
    return [os.path.join(parent, f"outlast-{task_id}") for parent in groups]


def _read(directory: str, name: str) -> str:
    try:
        with open(os.path.join(directory, name)) as file:
            return file.read()
    except OSError:
        return ""


def _write(directory: str, name: str, text: str) -> None:
    fd = os.open(os.path.join(directory, name), os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.path.join(directory, name)) from None
    finally:
        os.close(fd)
