"""The n-th system call of a kind fails: the task is refused with its reason, or it is complete. It never hangs."""

from __future__ import annotations

import os
import select
import shutil

import pytest

from tests.guard.harness import Launcher

MOST = 12  # more calls of one kind than a guard process makes at its start
FAULTS = [
    ("pipe2", "EMFILE"),
    ("openat", "EMFILE"),
    ("openat", "ENOSPC"),
    ("clone", "EAGAIN"),
    ("pidfd_open", "EMFILE"),
    ("socketpair", "EMFILE"),
    ("recvmsg", "EIO"),
    ("signalfd4", "EMFILE"),
    ("mknodat", "ENOSPC"),
    ("pwrite64", "EIO"),
    ("fallocate", "ENOSPC"),
    ("mmap", "ENOMEM"),
    ("rename", "ENOSPC"),
    ("flock", "ENOLCK"),
    ("fcntl", "EINVAL"),
    ("dup2", "EMFILE"),
    ("chdir", "EACCES"),
    ("setsid", "EPERM"),
    ("splice", "EIO"),
    ("splice", "ENOSPC"),
    ("splice", "EINVAL"),
    ("poll", "EINTR"),
    ("poll", "ENOMEM"),
    ("read", "EINTR"),
    ("read", "EIO"),
    ("write", "EIO"),
    ("waitid", "EINTR"),
    ("sendto", "ENOBUFS"),
    ("ioctl", "EINVAL"),
    ("prctl", "EINVAL"),
]


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
@pytest.mark.parametrize(("call", "error"), FAULTS)
def test_a_call_that_fails(launcher: Launcher, call: str, error: str) -> None:
    refused = 0
    for number in range(1, MOST + 1):
        for name in ("ran", "more"):
            (launcher.place / name).unlink(missing_ok=True)
        inject = f"inject={call}:error={error}:when={number}"
        # Detached from the command when that begins: only calls of the guard fail.
        launcher.wrapper = ["strace", "-f", "-b", "execve", "-o", "/dev/null", "-e", f"trace={call}", "-e", inject]
        task = launcher.start("touch ran; echo text; exit 7")
        word, rest = task.receive()
        assert word in ("started", "ended", "refused", ""), (number, word, rest)
        if word in ("started", "ended"):
            task.wait_closed()
            code = task.slot("code")
            assert code.get("exit") == 7 or "spawn" in code or not code, number
            assert (launcher.place / "ran").exists() == (code.get("exit") == 7), number
            if call not in ("splice", "openat", "read"):  # which may drop bytes that cannot be stored
                assert not code.get("exit") or task.output() == b"text\n", number
        else:
            refused += 1
            assert not task.directory.exists(), number
            assert not (launcher.place / "ran").exists(), number
            task.process.wait(30)
            assert task.receive()[0] == "", number
    assert refused < MOST


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
def test_a_task_stays_open_if_its_processes_cannot_be_seen(launcher: Launcher) -> None:
    """For want of a descriptor the supervisor cannot read about the process that is left. It is there all the same."""
    os.mkfifo(launcher.place / "stop")
    for number in range(1, 31):
        inject = f"inject=openat:error=EMFILE:when={number}"
        launcher.wrapper = ["strace", "-f", "-b", "execve", "-o", "/dev/null", "-e", "trace=openat", "-e", inject]
        task = launcher.start("(exec >/dev/null 2>&1; read line <stop) & exit 7")
        if task.receive()[0] != "started":
            continue
        while task.receive()[0] == "started":  # which a new supervisor repeats
            pass
        assert not select.select([task.line], [], [], 0.1)[0], f"closed early: {number}"
        (launcher.place / "stop").write_bytes(b"\n")
        task.wait_closed()


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
@pytest.mark.parametrize(("call", "error"), [("pidfd_open", "EMFILE"), ("clone", "EAGAIN"), ("openat", "EMFILE")])
def test_a_call_that_fails_while_a_guard_is_replaced(launcher: Launcher, call: str, error: str) -> None:
    """The command kills its supervisor: the keeper starts another one, tries again if it cannot, and never has two."""
    done = 0
    for number in range(1, 9):
        inject = f"inject={call}:error={error}:when={number}"
        launcher.wrapper = ["strace", "-f", "-b", "execve", "-o", "/dev/null", "-e", f"trace={call}", "-e", inject]
        task = launcher.start("read -r _ _ _ parent _ </proc/$$/stat; kill -9 $parent; sleep 0.1; exit 7")
        if task.receive()[0] == "started":
            done += 1
            task.wait_closed()
            assert task.slot("code").get("exit") == 7, number
            assert task.slot("guards")["recoveries"] == 1, number
    assert done > 0
