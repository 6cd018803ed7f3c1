"""The page in a real browser, against the real server and real tasks."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.much import multiply_task
from outlast import Shell
from outlast.types import Stdin
from tests.conftest import end_all

pytest.importorskip("playwright", reason="playwright is not installed")
from playwright.sync_api import Browser, ConsoleMessage, Page, expect

from tests.web import browser as chromium

pytestmark = [
    pytest.mark.skipif(chromium.PROGRAM is None, reason="chromium is missing (Debian package chromium)"),
    pytest.mark.timeout(60),
]
expect.set_options(timeout=chromium.PATIENCE_MS)
Opening = Callable[..., Page]
MANY = 10_000
LONGEST_FRAME_MS = 200
# Each would set `window.hacked` if it ran.
HOSTILE = "<img src=x onerror=window.hacked=1><script>window.hacked=1</script>\"'><svg/onload=window.hacked=1>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium.launched() as launched:
        yield launched


class Served:
    """A state directory with a server and a shell."""

    def __init__(self, *words: str, tasks: int = 0) -> None:
        self.place = tempfile.mkdtemp(prefix="outlast-test-")
        self.home = f"{self.place}/state"
        self.shell = Shell.open(home=self.home, operator=True, session="web")
        if tasks:
            multiply_task(self.shell, tasks)
        self.server = chromium.Server(self.home, *words)

    def close(self, *, all_ended: bool = False) -> None:
        self.server.stop()
        if not all_ended:
            end_all(self.shell)
        self.shell.close()
        shutil.rmtree(self.place, ignore_errors=True)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    one = Served()
    yield one
    one.close()


@pytest.fixture
def shell(served: Served) -> Iterator[Shell]:
    yield served.shell
    end_all(served.shell)


class Open:
    """Opens pages, and proves that none of them said that something was wrong."""

    def __init__(self, browser: Browser, link: str) -> None:
        self._browser, self._link = browser, link
        self.complaints: list[str] = []
        self._pages: list[Page] = []

    def __call__(self, **how: Any) -> Page:
        page = chromium.open_page(self._browser, self._link, **how)
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.reload()  # this time there is a listener
        page.wait_for_selector(".connection.live", state="attached")
        self._pages.append(page)
        return page

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def close(self) -> None:
        for page in self._pages:
            page.context.close()


@pytest.fixture
def open_page(browser: Browser, served: Served) -> Iterator[Open]:
    opening = Open(browser, served.server.link)
    yield opening
    opening.close()
    assert not opening.complaints


def row(page: Page, task_id: str) -> Any:
    return page.locator(f'.row[data-key="{task_id}"]')


def go_to(page: Page, task_id: str) -> None:
    page.evaluate("id => { location.hash = `#/${id}`; }", task_id)
    page.wait_for_selector(".task-view .tabs")


# --- the overview ---------------------------------------------------------------------------


def test_a_task_appears_changes_and_ends_live(shell: Shell, open_page: Open) -> None:
    page = open_page()
    task = shell.start("echo first line; read x; exit 3", description="a live one", stdin=Stdin(open=True))
    expect(row(page, task.task_id)).to_contain_text("a live one")
    expect(row(page, task.task_id)).to_contain_text("first line")
    expect(row(page, task.task_id)).to_contain_text("Needs input")
    shell.send(task.task_id, "\n")
    expect(row(page, task.task_id)).to_contain_text("Failed")
    expect(row(page, task.task_id)).to_contain_text("exit code 3")


def test_time_ticks_and_use_is_drawn(shell: Shell, open_page: Open) -> None:
    page = open_page()
    task = shell.start("while :; do :; done")
    before = row(page, task.task_id).locator(".time").inner_text()
    expect(row(page, task.task_id).locator(".time")).not_to_have_text(before)
    expect(row(page, task.task_id).locator(".figure").first).to_have_text(re.compile(r"\d+%"))
    expect(row(page, task.task_id).locator(".activity")).to_have_text("busy")
    expect(row(page, task.task_id).locator(".activity")).to_be_visible()


def test_tasks_are_found_by_words_state_and_session(shell: Shell, open_page: Open) -> None:
    good, bad = shell.start("true # needle"), shell.start("false # needle")
    shell.wait(good), shell.wait(bad)
    page = open_page()
    page.keyboard.press("/")
    page.keyboard.type("needle")
    expect(page.locator(".row.task")).to_have_count(2)
    page.click(".chip.is-failed")
    expect(page.locator(".row.task")).to_have_count(1)
    expect(row(page, bad.task_id)).to_be_visible()
    page.fill(".tools input", "needle session:elsewhere")
    expect(page.locator("#empty")).to_contain_text("No task matches")


_IN_ORDER = """expected => {
  const top = (row) => row.getBoundingClientRect().top;
  const rows = [...document.querySelectorAll(".row.task")].sort((one, other) => top(one) - top(other));
  return rows.map((row) => row.querySelector(".title").textContent).join("|") === expected.join("|");
}"""


def test_tasks_are_sorted_and_grouped(shell: Shell, open_page: Open) -> None:
    commands = first, second, third = "echo # sorted", "true # sorted z", "true # sorted a"
    for command in commands:
        shell.wait(shell.start(command))
    page = open_page()
    page.fill(".tools input", "sorted")
    for order, expected in (("newest", [third, second, first]), ("command", [first, third, second])):
        page.select_option(".tools select", order)
        page.wait_for_function(_IN_ORDER, arg=expected)
    expect(page.locator(".row.session")).to_have_count(1)
    page.locator(".list").press("s")
    expect(page.locator(".row.session")).to_have_count(0)


def test_the_time_line_names_and_opens_a_task(shell: Shell, open_page: Open) -> None:
    task = shell.start("sleep 1000", description="in the time line")
    page = open_page()
    bars = page.locator("canvas.bars")
    expect(bars).to_have_attribute("aria-label", re.compile(r"1 tasks? run"))
    box = bars.bounding_box()
    assert box is not None
    bars.hover(position={"x": box["width"] - 2, "y": 6})
    expect(page.locator(".timeline .tip")).to_contain_text("in the time line")
    bars.click(position={"x": box["width"] - 2, "y": 6})
    expect(page.locator(".task-view .head")).to_contain_text(task.task_id)


def test_the_end_of_a_task_is_told_in_the_page_and_by_the_browser(shell: Shell, open_page: Open) -> None:
    page = open_page()
    page.context.grant_permissions(["notifications"])
    page.click("[title=Notices]")
    page.check("#notify")
    page.keyboard.press("Escape")
    # A browser without a screen shows no notification, and no page of it is ever hidden.
    page.evaluate("""() => {
      window.told = [];
      window.Notification = class { static permission = "granted"; constructor(title, { body }) { told.push(body); } };
      Object.defineProperty(document, "hidden", { get: () => true });
    }""")
    task = shell.start("exit 3", description="told of its end")
    expect(page.locator(".toast.bad")).to_contain_text("told of its end")
    assert task.task_id in page.evaluate("told")[0]
    page.click(".toast >> text=Show")
    expect(page.locator(".task-view .head")).to_contain_text("exit code 3")
    page.keyboard.press("Escape")
    page.click("[title=Notices]")
    expect(page.locator("dialog .notices")).to_contain_text("told of its end")


def test_the_keyboard_is_enough(shell: Shell, open_page: Open) -> None:
    task = shell.start("echo seen by keys")
    shell.wait(task)
    page = open_page()
    expect(row(page, task.task_id)).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("seen by keys")
    expect(page.locator(".row.task")).to_have_count(1)
    page.keyboard.press("Enter")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator(".task-view")).to_contain_text("echo seen by keys")
    page.keyboard.press("Escape")
    expect(page.locator(".task-view")).to_have_count(0)
    page.keyboard.press("?")
    expect(page.locator("dialog")).to_contain_text("these keys")


# --- a task ---------------------------------------------------------------------------------


def test_output_streams_with_its_colours(shell: Shell, open_page: Open) -> None:
    page = open_page()
    echo = r"printf '\e[31mred\e[0m plain\n'; while read line; do echo got $line; done"
    task = shell.start(echo, stdin=Stdin(open=True))
    go_to(page, task.task_id)
    expect(page.locator(".output-line .fg-ansi-1")).to_have_text("red")
    for n in range(3):
        shell.send(task.task_id, f"{n}\n")
        expect(page.locator(".lines")).to_contain_text(f"got {n}")


def test_a_long_output_is_searched_and_followed(shell: Shell, open_page: Open) -> None:
    task = shell.start("seq 300000; echo 'Error: the needle'; seq 20000")
    shell.wait(task)
    page = open_page()
    go_to(page, task.task_id)
    expect(page.locator(".output .total")).to_have_text("320,001 lines")
    expect(page.locator(".lines")).to_contain_text("320001")
    page.fill(".output .search input", "the needle")
    expect(page.locator(".output .found")).to_have_text("1 of 1")
    expect(page.locator("mark.now")).to_have_text("the needle")
    page.click("text=First error")
    expect(page.locator(".output-line.marked", has_text="Error: the needle")).to_be_visible()
    page.locator(".lines").press("Home")
    expect(page.locator(".output-line").first).to_contain_text("1")


def test_follow_stops_when_one_scrolls_up(shell: Shell, open_page: Open) -> None:
    page = open_page()
    task = shell.start("seq 5000; while read line; do seq 500; done", stdin=Stdin(open=True))
    go_to(page, task.task_id)
    follow = page.locator(".follow")
    expect(page.locator(".output .total")).to_have_text("5,000 lines")
    expect(follow).to_have_attribute("aria-pressed", "true")
    page.locator(".lines").hover()
    page.mouse.wheel(0, -3000)
    expect(follow).to_have_attribute("aria-pressed", "false")
    top = page.evaluate("document.querySelector('.lines').scrollTop")
    shell.send(task.task_id, "\n")
    expect(page.locator(".output .total")).to_have_text("5,500 lines")
    assert page.evaluate("document.querySelector('.lines').scrollTop") == top
    page.keyboard.press("f")
    expect(page.locator(".lines")).to_contain_text("5500")


def test_stderr_stands_apart(shell: Shell, open_page: Open) -> None:
    task = shell.start("echo out; echo bad >&2", split=True)
    shell.wait(task)
    page = open_page()
    go_to(page, task.task_id)
    expect(page.locator(".output-line.err")).to_contain_text("bad")
    page.click(".tabs >> text=About")
    expect(page.locator(".about")).to_contain_text("It can be seen while the task runs")
    page.click(".tabs >> text=Output")
    page.select_option(".output .bar select", "stdout")
    expect(page.locator(".output-line")).to_have_count(1)


def test_what_is_known_of_a_task_is_shown(shell: Shell, open_page: Open) -> None:
    program = "import sys; [print('got', line, flush=True) for line in sys.stdin]"
    command = f"{sys.executable} -c {shlex.quote(program)}"
    env = {"SHOWN_HERE": "yes", "MY_API_TOKEN": "never-shown-here"}
    task = shell.start(command, env=env, stdin=Stdin(open=True))
    page = open_page()
    go_to(page, task.task_id)
    page.click(".output .bar >> text=Times")
    shell.send(task.task_id, "it\n")
    expect(page.locator(".output-line .at").first).to_have_text(re.compile(r"^\d\d:\d\d:\d\d\.\d{3}$"))
    page.click(".tabs >> text=Processes")
    rows = page.locator(".processes tbody tr")
    expect(rows).to_have_count(2)  # the shell, and below it the program
    expect(rows.nth(1)).to_contain_text("for line in sys.stdin")
    expect(rows.nth(1).locator(".number").nth(1)).to_have_text(re.compile(r"^\d+%$"))
    expect(rows.nth(1).locator(".number").nth(2)).to_have_text(re.compile(r"^[\d.]+ MB$"))
    page.click(".tabs >> text=Events")
    expect(page.locator(".events li")).to_contain_text(f"task.startedstatus running · pid {task.pid}")
    page.click(".tabs >> text=About")
    about = page.locator(".about")
    expect(about.locator("dl.facts").nth(1)).to_have_text("PolicyyoloVerdictallowSandboxnoneHeld backnothing")
    environment = about.locator(".environment")
    expect(environment).to_contain_text("SHOWN_HEREyes")
    expect(environment).to_contain_text(f"OUTLAST_TASK_ID{task.task_id}")
    expect(environment).to_contain_text("PATH/")
    assert "never-shown-here" not in page.content()
    assert "MY_API_TOKEN" not in environment.inner_text()


def test_kill_asks_and_gives_a_receipt(shell: Shell, open_page: Open) -> None:
    task = shell.start("sleep 1000 & sleep 1001 & wait")
    page = open_page()
    go_to(page, task.task_id)
    page.keyboard.press("x")
    page.click("dialog >> text=Keep it running")
    assert shell.show(task.task_id).status == "running"
    page.click(".actions >> text=Kill")
    page.click("dialog >> text=Kill it")
    expect(page.locator("dialog .receipt")).to_contain_text("Ended 3 processes")
    expect(page.locator("dialog .receipt")).to_contain_text("None of them survived")
    assert shell.show(task.task_id).status == "killed"
    page.click("dialog footer >> text=Close")
    expect(page.locator(".head .status")).to_contain_text("Stopped")


def test_input_is_sent_and_ended(shell: Shell, open_page: Open) -> None:
    task = shell.start("while read line; do echo got $line; done; echo no more", stdin=Stdin(open=True))
    page = open_page()
    go_to(page, task.task_id)
    page.keyboard.press("i")
    page.keyboard.type("hello <b>")
    page.keyboard.press("Enter")
    expect(page.locator(".lines")).to_contain_text("got hello <b>")
    page.click("text=End of input")
    expect(page.locator(".lines")).to_contain_text("no more")
    expect(page.locator(".head .status")).to_contain_text("Done")


def test_a_command_is_judged_while_typed_and_started(shell: Shell, open_page: Open) -> None:
    page = open_page()
    page.keyboard.press("n")
    page.keyboard.type("echo started here")
    expect(page.locator(".check .verdict").first).to_have_text("allow")
    page.fill("#start-session", "web")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".lines")).to_contain_text("started here")
    page.click(".actions >> text=Copy command")
    expect(page.locator(".toast", has_text="Copied")).to_be_visible()
    assert "'echo started here'" in page.evaluate("navigator.clipboard.readText()")
    here = page.url
    page.click("text=Run again")
    page.wait_for_function("before => location.href !== before", arg=here)
    with page.expect_download() as download:
        page.click(".actions >> text=Log")
    assert download.value.path().read_text() == "started here\n"
    page.click(".actions >> text=Remove")
    expect(page.locator(".task-view")).to_have_count(0)


def test_a_terminal_shows_its_screen_and_takes_keys(shell: Shell, open_page: Open) -> None:
    draw = r"stty -echo; printf '\e[2J\e[H\e[44;97mtop\e[0m'"
    program = draw + r"""; while read -r line; do printf '\n[%s]' "$line"; done"""
    task = shell.start(program, tty=(60, 12))
    page = open_page()
    go_to(page, task.task_id)
    expect(page.locator(".grid .bg-ansi-4")).to_have_text("top")
    page.click(".frame")
    page.keyboard.type("a <b> / ü j")  # none of them is a shortcut of the page here
    page.keyboard.press("Backspace")
    page.keyboard.type("k")
    page.keyboard.press("Enter")
    expect(page.locator(".grid")).to_contain_text("[a <b> / ü k]")
    page.click("text=Fit to the window")
    expect(page.locator(".screen .title")).not_to_have_text(re.compile("^60×12"))
    check_accessibility(page)
    page.click(".frame")
    page.keyboard.press("Control+]")
    assert not page.evaluate("document.activeElement.matches('.keyboard')")
    page.click(".frame")
    page.keyboard.press("Control+c")
    expect(page.locator(".head .status")).to_contain_text(re.compile("Failed|Stopped"))


# --- what waits for an answer ---------------------------------------------------------------


def test_what_a_policy_asks_about_is_answered_on_the_page(browser: Browser) -> None:
    one = Served("--policy", "ask")
    try:
        page = chromium.open_page(browser, one.server.link)
        card, tasks = page.locator(".approval"), 0

        def start() -> None:
            page.keyboard.press("n")
            page.fill("#start-command", "echo asked && pwd")
            expect(page.locator(".check .verdict").first).to_have_text("ask")
            page.keyboard.press("Control+Enter")

        for answer in ("Allow once", "Refuse", "Allow for this session"):
            start()
            expect(card.locator(".command")).to_have_text("echo asked && pwd")
            expect(card.locator(".reasons li")).to_have_count(2)
            expect(page).to_have_title(re.compile(r"^\(1\)"))
            check_accessibility(page)
            assert len(one.shell.list()) == tasks
            page.wait_for_timeout(600)  # a card that has just appeared takes no click
            page.click(f"text={answer}")
            expect(card).to_have_count(0)
            tasks += answer != "Refuse"
            expect(page.locator(".row.task")).to_have_count(tasks)
        page.keyboard.press("n")
        page.fill("#start-command", "echo asked && pwd")
        expect(page.locator(".check .verdict").first).to_have_text("allow")
        page.fill("#start-session", "another")
        expect(page.locator(".check .verdict").first).to_have_text("ask")
        page.keyboard.press("Control+Enter")
        page.wait_for_timeout(600)
        page.click("text=Always allow")
        expect(page.locator(".row.task")).to_have_count(tasks + 1)
        assert "echo asked" in Path(one.home, "policy.toml").read_text()
        page.context.close()
    finally:
        one.close()


_AGENT = """
import json, os, subprocess, sys
message = {{"content": [{{"type": "text", "text": "I begin."}}]}}
print(json.dumps({{"type": "assistant", "message": message}}), flush=True)
os.environ["OUTLAST_HOME"] = {home!r}
subprocess.run([sys.executable, "-m", "outlast", "run", "echo inside"])
"""


def test_an_agent_shows_its_turns_and_what_it_started(shell: Shell, open_page: Open, served: Served) -> None:
    script = Path(served.place, "agent.py")
    script.write_text(_AGENT.format(home=served.home))
    shell.agent.register("parrot", f"{sys.executable} {script}", format="stream-json")
    task = shell.agent.start("parrot", "say it", "a parrot")
    shell.wait(task)
    page = open_page()
    child = page.locator(".row.task", has_text="echo inside")
    expect(child).to_have_attribute("aria-level", "3")  # the session, the agent, and then this
    go_to(page, task.task_id)
    expect(page.locator(".turns")).to_contain_text("say it")
    expect(page.locator(".turns")).to_contain_text("I begin.")
    page.click(".tabs >> text=Tasks")
    page.click(".links >> text=echo inside")
    expect(page.locator(".head .command")).to_have_text("echo inside")


# --- what must not happen -------------------------------------------------------------------


def test_nothing_that_a_task_says_or_is_called_can_run(shell: Shell, open_page: Open) -> None:
    page = open_page()
    command = f"cat <<'END'\n{HOSTILE}\n\x1b]0;{HOSTILE}\x07\x1b[31m{HOSTILE}\nEND\nread x"
    task = shell.start(command, description=HOSTILE, stdin=Stdin(open=True))
    expect(row(page, task.task_id)).to_contain_text("<img src=x")
    go_to(page, task.task_id)
    expect(page.locator(".lines")).to_contain_text(HOSTILE)
    for tab in ("Processes", "Events", "About"):
        page.click(f".tabs >> text={tab}")
    page.keyboard.press("n")
    page.keyboard.type(HOSTILE)
    expect(page.locator(".check .verdict").first).to_be_visible()
    assert page.evaluate("window.hacked") is None
    assert page.evaluate("document.querySelectorAll('main img, main script, dialog img').length") == 0


def test_a_lost_connection_is_said_and_comes_back(browser: Browser) -> None:
    one = Served()
    try:
        page = chromium.open_page(browser, one.server.link)
        one.server.stop()
        expect(page.locator("#lost")).to_contain_text("The server does not answer")
        one.server.start()
        # It has a new token: that is what is to be said.
        expect(page.locator("#lost")).to_contain_text("Open the link")
        page.goto(one.server.link)
        expect(page.locator(".connection")).to_contain_text("Live")
        expect(page.locator("#empty")).to_contain_text("No tasks yet")
        page.context.close()
    finally:
        one.close()


# --- many -----------------------------------------------------------------------------------

_SCROLL = """async () => {
  const list = document.querySelector(".list");
  const frames = [];
  let last = performance.now();
  for (let step = 0; step < 200; step++) {
    list.scrollTop = (list.scrollHeight - list.clientHeight) * (step / 199);
    await new Promise(requestAnimationFrame);
    frames.push(performance.now() - last);
    last = performance.now();
  }
  return { longest: Math.max(...frames), rows: document.querySelectorAll(".row").length };
}"""


@pytest.mark.whole_machine
@pytest.mark.timeout(120)
def test_ten_thousand_tasks_scroll_smoothly(browser: Browser) -> None:
    one = Served(tasks=MANY)
    try:
        page = chromium.open_page(browser, one.server.link)
        expect(page.locator(".chip.is-all .number")).to_have_text(f"{MANY:,}", timeout=60_000)
        found = [page.evaluate(_SCROLL) for _ in range(3)]  # a slow frame of the page is slow each time
        assert found[0]["rows"] < 100  # only what is seen is in the document
        assert min(one["longest"] for one in found) < LONGEST_FRAME_MS
        page.context.close()
    finally:
        one.close(all_ended=True)


# --- for each pair of eyes ------------------------------------------------------------------


def check_accessibility(page: Page) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    found = axe.Axe().run(page).response["violations"]
    assert not found, [(one["id"], [node["html"] for node in one["nodes"]]) for one in found]


@pytest.mark.parametrize(("theme", "width"), [("dark", 1360), ("light", 360)])
def test_everything_is_accessible(shell: Shell, open_page: Open, theme: str, width: int) -> None:
    running = shell.start("echo hello; read x", stdin=Stdin(open=True))
    shell.wait(shell.start("echo no >&2; exit 1", split=True, description="it fails"))
    page = open_page(theme=theme, width=width, height=740)
    expect(page.locator("html")).to_have_attribute("data-theme", theme)
    expect(row(page, running.task_id)).to_be_visible()
    check_accessibility(page)
    go_to(page, running.task_id)
    expect(page.locator(".lines")).to_contain_text("hello")
    check_accessibility(page)
    for tab in ("Processes", "Events", "About"):
        page.click(f".tabs >> text={tab}")
        check_accessibility(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.keyboard.press("n")
    check_accessibility(page)


def test_the_theme_can_be_chosen(open_page: Open) -> None:
    page = open_page(theme="dark")
    page.keyboard.press("t")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
