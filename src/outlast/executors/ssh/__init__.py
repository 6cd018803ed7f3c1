"""Tasks on another machine, by the system's `ssh`. A guard there needs no connection to us."""

from outlast.executors.ssh.executor import KEYS, SshExecutor

__all__ = ["KEYS", "SshExecutor"]
