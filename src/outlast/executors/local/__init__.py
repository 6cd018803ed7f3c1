"""Tasks on this machine: `LocalExecutor`, and what each step of a start or an end needs."""

from outlast.executors.local.executor import LocalExecutor

__all__ = ("LocalExecutor",)
