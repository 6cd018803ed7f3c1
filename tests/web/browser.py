"""Chromium and the page: what the tests, the pictures and the benchmark of the page share."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, Page, sync_playwright

PROGRAM = shutil.which("chromium")
_ARGUMENTS = [
    "--no-sandbox",  # root has none
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE_MS = 15_000


@contextmanager
def launched() -> Iterator[Browser]:
    """Launch the system's own browser: playwright's download is never used."""
    with sync_playwright() as playwright:
        # It makes a socket below TMPDIR, and the path of a socket has at most 107 bytes.
        env: dict[str, str | float | bool] = {**os.environ, "TMPDIR": "/tmp"}
        browser = playwright.chromium.launch(executable_path=PROGRAM, args=_ARGUMENTS, env=env)
        try:
            yield browser
        finally:
            browser.close()


class Server:
    """`outlast serve` on a free port, as a user starts it."""

    def __init__(self, home: str, *words: str, **env: str) -> None:
        self._command = [sys.executable, "-m", "outlast", "serve", *words]
        self._env = {**os.environ, "OUTLAST_HOME": home, **env}
        self._env.pop("OUTLAST_SESSION", None)
        self.port = 0
        self.start()

    def start(self) -> None:
        """Start it, the second time on the same port."""
        self.process = subprocess.Popen(
            [*self._command, "--port", str(self.port)], env=self._env, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.link = self.process.stdout.readline().strip()
        self.port = int(self.link.partition("/?")[0].rpartition(":")[2])

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)
        assert self.process.stdout is not None
        self.process.stdout.close()


def open_page(browser: Browser, link: str, *, width: int = 1360, height: int = 820, theme: str = "dark") -> Page:
    """Open the page by its link in a context of its own, and wait until it is live."""
    scheme = "light" if theme == "light" else "dark"
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme=scheme,  # type: ignore[arg-type, unused-ignore]
        permissions=["clipboard-read", "clipboard-write"],
        reduced_motion="reduce",  # nothing is looked at halfway
    )
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(link)
    page.wait_for_selector(".connection.live", state="attached")
    return page
