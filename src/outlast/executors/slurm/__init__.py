"""Tasks on a Slurm cluster, with a directory that this machine and its nodes share."""

from outlast.executors.slurm.executor import KEYS, SlurmExecutor

__all__ = ["KEYS", "SlurmExecutor"]
