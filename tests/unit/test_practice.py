"""What a nursery does before its forks do it leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys

from tests.faults.support import SOURCE

CODE = """
import os, sys, signal
sys.path.insert(0, sys.argv[1])
from outlast.supervise import practice, signals
signals.ignore_the_usual()
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.chdir("/")
made, mkdir = [], os.mkdir
def note(path, *how):
    made.append(path)
    mkdir(path, *how)
os.mkdir = note
def state():
    return (
        [path for path in made if os.path.lexists(path)],
        os.getcwd(), os.umask(0o077), sorted(os.listdir("/proc/self/fd")),
        signal.getsignal(signal.SIGCHLD), signal.getsignal(signal.SIGUSR1), signal.set_wakeup_fd(-1),
        open("/proc/thread-self/children").read(),
    )
os.umask(0o077)
before = state()
done = [practice.practise() for _ in range(3)]
practice.make_room()
assert done == [True] * 3, done
assert len(made) > 3
assert state() == before, (before, state())
print("as before")
"""


def test_practice_can_be_done_and_leaves_nothing() -> None:
    words = [sys.executable, "-I", "-S", "-c", CODE, SOURCE]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert ran.stdout == "as before\n", ran.stderr
