"""`outlast wait --until …` and `outlast run --bg --ready …`: codes and words for scripts."""

from __future__ import annotations

import json

from tests.conftest import Cli

UP = "seq 20; echo up; exec sleep 1000"


def test_exit_codes_tell_ready_from_died_and_from_not_yet(cli: Cli) -> None:
    up, died, well = (cli("run", "--bg", text).stdout.strip() for text in (UP, "exit 3", "echo no"))
    assert cli("wait", "--until", "^up$", up, check=0).stdout.startswith(f"{up} ready after ")
    assert " and is not ready" in cli("wait", "--until", "^down$", "--timeout", "0.1", up, check=124).stdout
    assert "was not ready: exit code 3" in cli("wait", "--until", "up", died, check=3).stdout
    cli("wait", "--until", "up", well, check=1)
    cli("wait", "--until", "up", up, well, check=1)
    cli("wait", "--until", "^up$|no", up, well, check=0)
    cli("wait", "--quiet", "0.1", up, died, check=0)


def test_json_says_what_showed_it(cli: Cli) -> None:
    up = cli("run", "--bg", UP).stdout.strip()
    found = cli.json("wait", "--until", "^u", up)
    assert (found["met"], found["matched"], found["status"]) == (True, "up", "running")
    found = cli.json("wait", "--timeout", "0", up)
    assert (found["met"], found["matched"]) == (False, None)


def test_a_background_command_that_is_seen_to_start(cli: Cli) -> None:
    ready = cli("run", "--bg", "--ready", "^up$", UP, check=0)
    assert ready.stdout.startswith("bash-")
    assert ready.stdout.count("\n") == 1
    head, *lines, more = ready.stderr.splitlines()
    assert head.startswith(f"{ready.stdout.strip()} ready after ")
    assert head.endswith(": up")
    assert (lines, more) == ([f"  {n}" for n in range(1, 9)], "  ... and 13 more lines")

    died = cli("run", "--bg", "--startup-wait", "30", "--split", "echo a; seq 5 >&2; exit 4", check=4)
    assert died.stderr.splitlines()[1:] == [
        "  a",
        "stderr:",
        *(f"  {n}" for n in "1234"),
        "  ... and 1 more line of stderr",
    ]
    cli("run", "--bg", "--startup-wait", "0.1", "exec sleep 1000", check=0)
    cli("run", "--bg", "--startup-wait", "0.1", "--ready", "up", "exec sleep 1000", check=124)
    cli("run", "--bg", "--ready", "up", "true", check=1)


def test_json_of_a_background_command_that_is_seen_to_start(cli: Cli) -> None:
    said = json.loads(cli("run", "--bg", "--json", "--ready", "^up$", UP, check=0).stdout)
    names = ("ready", "matched", "first_lines", "first_error_lines", "more_lines", "more_error_lines")
    assert [said[name] for name in names] == [True, "up", [str(n) for n in range(1, 9)], [], 13, 0]
    said = json.loads(cli("run", "--bg", "--json", "--startup-wait", "30", "true", check=0).stdout)
    assert (said["ready"], said["status"]) == (None, "completed")


def test_a_development_command_is_left_running(cli: Cli) -> None:
    cli.env["OUTLAST_AUTO_BACKGROUND_AFTER_S"] = "0.1"
    out = cli("run", "--auto-bg", "python3 -V; exec sleep 1000", check=0)
    assert out.stdout.startswith("Python 3")
    assert "is still running after" in out.stderr
    cli.env["OUTLAST_AUTO_BACKGROUND"] = "on"
    said = json.loads(cli("run", "--json", "python3 -V; exec sleep 1000", check=0).stdout)
    assert (said["status"], said["output"][:8]) == ("running", "Python 3")
