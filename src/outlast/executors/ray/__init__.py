"""Tasks as jobs of a Ray cluster, by its Jobs API over HTTP."""

from outlast.executors.ray.executor import KEYS, RayExecutor

__all__ = ["KEYS", "RayExecutor"]
