"""Programs that are hard to end: `python wild.py NAME FILE …`. Each tells its pid in FILE."""

import ctypes
import os
import signal
import sys
import threading
import time
from pathlib import Path


def tell(file: str) -> None:
    fd = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, b"%d\n" % os.getpid())
    os.close(fd)


def phoenix(file: str) -> None:
    """Asked to end, it leaves a child in a session of its own, three times over."""
    lives = 3
    tell(file)

    def rise(*_: object) -> None:
        nonlocal lives
        lives -= 1
        if os.fork() or not lives:
            os._exit(0)
        os.setsid()

    signal.signal(signal.SIGTERM, rise)
    while True:
        signal.pause()


def headless(file: str) -> None:
    """Its first thread ends, another goes on: the table shows a zombie, but it runs."""
    threading.Thread(target=time.sleep, args=(300,)).start()
    tell(file)
    ctypes.CDLL(None).pthread_exit(None)


def disguised(file: str) -> None:
    Path("/proc/self/comm").write_text("outlast-keeper")
    os.setsid()
    tell(file)
    time.sleep(300)


def chain(file: str, pause: str) -> None:
    """A process that is another one every few milliseconds."""
    os.setsid()
    tell(file)
    while True:
        time.sleep(float(pause))
        if os.fork():
            os._exit(0)
        os.setsid()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
