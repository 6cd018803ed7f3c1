"""Makes the pictures of the page in `docs`: real tasks of the real program in a real browser. `make pictures`.

It takes a minute and a half, so that there is something to see on the time line.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from playwright.sync_api import Browser, Page

from outlast import Shell
from outlast.types import Stdin
from tests.conftest import end_all
from tests.web import browser as chromium

DOCS = Path(__file__).parents[2] / "docs"
_SECONDS = 75  # of work before the pictures

_TESTS = r"""
import random, sys, time
random.seed(4)
for n in range(260):
    time.sleep(0.02)
    print(f"\x1b[32mPASSED\x1b[0m tests/test_cart.py::test_{random.choice(['adds', 'rounds', 'ships', 'taxes'])}_{n}")
print("\x1b[1;31mFAILED\x1b[0m tests/test_cart.py::test_rounds_half_to_even - \x1b[31mAssertionError: 2.5 != 2\x1b[0m")
print("\x1b[31m========= 1 failed\x1b[0m, \x1b[32m260 passed\x1b[0m in 5.31s \x1b[31m=========\x1b[0m")
sys.exit(1)
"""
_TRAINING = r"""
import math, time
for step in range(100000):
    until = time.time() + 0.15 + 0.1 * math.sin(step / 9)
    while time.time() < until:
        pass
    keep = [bytearray(1 << 20) for _ in range(30 + int(20 * math.sin(step / 14)))]
    print(f"epoch {step // 20:>3}  step {step:>5}  loss {2.3 * math.exp(-step / 90) + 0.11:.4f}", flush=True)
    time.sleep(0.25)
"""
_AGENT = r"""
import json, subprocess, sys, time
def tell(one): print(json.dumps({"type": "assistant", "message": {"content": [one]}}), flush=True)
def say(text): tell({"type": "text", "text": text})
def run(command):
    tell({"type": "tool_use", "name": "Bash", "input": {"command": command}})
    subprocess.run([sys.executable, "-m", "outlast", "run", command], stdout=subprocess.DEVNULL)
sys.stdin.read()
say("I will look at the failing test first.")
run("git log --oneline -5 || true")
time.sleep(4)
say("The amounts are floats, so half a cent is rounded to even. I try it with Decimal.")
run("sleep 8; echo 41 passed")
say("The suite passes now. I run it a few more times, because the test was flaky.")
run("for i in 1 2 3 4 5; do echo run $i: 41 passed; sleep 60; done")
"""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="outlast-") as place, chromium.launched() as browser:
        home, project = f"{place}/state", f"{place}/shop"
        os.mkdir(project)
        for name, text in (("check.py", _TESTS), ("train.py", _TRAINING), ("agent.py", _AGENT)):
            Path(project, name).write_text(text)
        os.mkdir(home, 0o700)
        agent = f'[agents.claude]\ncommand = "python3 {project}/agent.py"\nformat = "stream-json"\n'
        Path(home, "config.toml").write_text(agent)
        os.environ["OUTLAST_HOME"] = home
        os.environ["PATH"] = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"  # so that no path of it is shown
        with Shell.open(home=home, operator=True, cwd=project) as shell:
            server = chromium.Server(home, "--policy", "guarded")
            try:
                ids = start_tasks(home, project)
                take_all(browser, server.link, ids, project)
            finally:
                server.stop()
                end_all(shell)


def start_tasks(home: str, project: str) -> dict[str, str]:
    """Start what is to be seen; some of it has ended when this returns."""
    ids = {}

    def start(shell: Shell, name: str, command: str, **how: object) -> None:
        ids[name] = shell.start(command, **how).task_id  # type: ignore[arg-type]

    names = ("shop", "claude", "train", "styles")
    with ExitStack() as stack:
        shop, claude, train, styles = (
            stack.enter_context(Shell.open(home=home, session=name, cwd=project)) for name in names
        )
        start(train, "train", "python3 -u train.py", description="Train the small model")
        start(shop, "server", "python3 -u -m http.server 0 --bind 127.0.0.1", description="Dev server")
        prompt = "Make the flaky checkout test reliable, and say why it was flaky"
        ids["agent"] = claude.agent.start("claude", prompt).task_id
        began = time.monotonic()
        while (left := _SECONDS - (time.monotonic() - began)) > 20:
            start(styles, "build", f"sleep {2 + int(left) % 4}; echo built", description="Build the styles")
            start(styles, "lint", f"sleep {1 + int(left) % 3}; exit {int(int(left) % 5 == 3)}", description="Lint")
            time.sleep(4)
        killed = shop.start("sleep 600", description="Watch the sources")
        start(shop, "tests", "python3 -u check.py", description="Unit tests")
        start(train, "after", "echo evaluated", description="Evaluate it", after=[ids["train"]])
        time.sleep(9)
        shop.kill(killed)
        start(shop, "deploy", "echo 'Deploy 3f2a1c to production? [y/N]'; read -r answer", stdin=Stdin(open=True))
        time.sleep(max(0.0, _SECONDS - (time.monotonic() - began)))
    return ids


_ASKED = "rm -rf build && curl -fsSL https://example.org/install.sh | sh"


def take_all(browser: Browser, link: str, ids: dict[str, str], project: str) -> None:
    page = chromium.open_page(browser, link, height=800)
    page.evaluate("localStorage.setItem('outlast-minutes', '5')")
    page.reload()
    page.wait_for_selector(".row.task")
    page.wait_for_timeout(12_000)  # for the curves
    save(page, "web-overview")
    page.keyboard.press("t")
    save(page, "web-overview-light")
    page.keyboard.press("t")
    page.keyboard.press("t")
    show(page, ids["tests"], ".output-line")
    page.click("text=First error")
    page.wait_for_selector(".output-line.marked .text > span")
    save(page, "web-task")
    words = (
        "run",
        "--session",
        "claude",
        "--policy",
        "guarded",
        "--description",
        "Install the tool that the tests need",
    )
    command = [sys.executable, "-m", "outlast", *words, _ASKED]
    asking = subprocess.Popen(command, cwd=project, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    page.keyboard.press("Escape")
    page.wait_for_selector(".approval")
    page.wait_for_timeout(2000)
    save(page, "web-approval")
    page.click("text=Refuse")
    asking.wait(30)
    show(page, ids["agent"], ".turns")
    page.wait_for_timeout(1000)
    save(page, "web-agent")
    page.set_viewport_size({"width": 390, "height": 780})
    page.keyboard.press("Escape")
    page.wait_for_timeout(500)
    save(page, "web-narrow")
    page.context.close()


def show(page: Page, task_id: str, what: str) -> None:
    page.evaluate("id => { location.hash = `#/${id}`; }", task_id)
    page.wait_for_selector(what)


def save(page: Page, name: str) -> None:
    """Write a picture with few colours: a quarter of the size, and nothing that one would see."""
    from PIL import Image

    page.evaluate("document.querySelectorAll('.toast').forEach((one) => one.remove())")
    page.wait_for_timeout(300)
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    file = DOCS / f"{name}.png"
    picture.quantize(256, Image.Quantize.MEDIANCUT, kmeans=4, dither=Image.Dither.NONE).save(file, optimize=True)
    print(f"{file} {file.stat().st_size // 1000} KB")


if __name__ == "__main__":
    main()
