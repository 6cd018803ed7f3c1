"""What holds for every profile: schemas, ids, who is offered what, how long a call waits, whose tasks it sees."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from outlast import OutlastError, Shell
from outlast.settings import Settings
from outlast.tools import PROFILES, Toolbox, policy
from outlast.tools.arguments import IDS
from outlast.tools.profiles import profile_named
from tests.conftest import end_all, eventually

RUN = {"default": "bash", "neovate": "bash", "registry": "run_command", "mycode": "Bash", "spec": "Bash"}
READ = {"default": "bash_output", "neovate": "bash_output", "registry": "bash_output", "mycode": "TaskOutput"}
READ |= {"spec": "BashOutput", "jido": "bash_output"}
NAMES = {
    "default": ["bash", "bash_output", "bash_input", "bash_kill", "bash_list"],
    "neovate": ["bash", "bash_output", "kill_bash"],
    "jido": ["bash_background", "bash_output", "kill_shell"],
    "registry": ["run_command", "bash_output", "kill_shell", "list_shells"],
    "mycode": ["Bash", "Task", "TaskOutput", "KillShell"],
    "spec": ["Bash", "BashOutput", "KillBash"],
}
READ_ONLY = {
    "default": ["bash_output", "bash_list"],
    "neovate": [],
    "jido": ["bash_output"],
    "registry": ["bash_output", "list_shells"],
    "mycode": ["TaskOutput"],
    "spec": ["BashOutput"],
}


@pytest.fixture
def open_box(home: str) -> Iterator[Any]:
    """Opens toolboxes on one state directory; whatever still runs at the end is ended."""
    boxes: list[Toolbox] = []

    def open_one(profile: str = "default", **how: Any) -> Toolbox:
        boxes.append(Toolbox.open(home=home, profile=profile, consent=True, **how))
        return boxes[-1]

    yield open_one
    for box in boxes:
        end_all(box.shell)
        box.close()


# --- what is offered ---------------------------------------------------------------------


@pytest.mark.parametrize("profile", PROFILES)
def test_the_tools_of_a_profile_are_these_in_this_order(open_box: Any, profile: str) -> None:
    box = open_box(profile)
    assert [tool["name"] for tool in box.as_anthropic()] == NAMES[profile]
    assert [tool["function"]["name"] for tool in box.as_openai()] == NAMES[profile]
    assert [tool["name"] for tool in box.as_mcp()] == NAMES[profile]


@pytest.mark.parametrize("profile", PROFILES)
def test_a_host_that_may_not_write_can_run_and_end_nothing(open_box: Any, profile: str) -> None:
    box = open_box(profile, write=False)
    assert [tool["name"] for tool in box.as_mcp()] == READ_ONLY[profile]
    for tool in box.profile.tools:
        if tool.name not in READ_ONLY[profile] and tool.acts:
            assert box.call(tool.name, {"command": "echo hi"}).error
    assert box.shell.list() == []


@pytest.mark.parametrize("profile", PROFILES)
def test_schemas_are_json_schemas_and_say_what_the_check_says(open_box: Any, profile: str) -> None:
    box = open_box(profile)
    for tool in box.profile.tools:
        jsonschema.Draft202012Validator.check_schema(tool.schema)
        for given in ({}, {"command": 1}, {"no such": 1}, {"timeout": -5}, {"args": "x"}, {"block": "yes"}):
            wrong = not jsonschema.Draft202012Validator(tool.schema).is_valid(given)
            if wrong:
                assert box.call(tool.name, given).error, (tool.name, given)


@pytest.mark.parametrize("profile", PROFILES)
def test_no_parameter_widens_anything(open_box: Any, profile: str) -> None:
    words = {"policy", "sandbox", "permission", "approve", "dangerous", "mode", "yolo", "sudo", "session", "env"}
    for tool in open_box(profile).profile.tools:
        assert not [name for name in tool.schema["properties"] if any(word in name.lower() for word in words)]


def test_the_default_set_costs_little() -> None:
    from outlast.tools import adapters

    text = json.dumps(adapters.as_dictionaries("anthropic", adapters.list_offered(profile_named("default")), "guarded"))
    assert len(text) < 4000  # about 1,000 tokens, in each request


def test_descriptions_say_what_is_denied(open_box: Any) -> None:
    box = open_box()
    run = box.profile.tools[0]
    from outlast.tools import adapters

    assert "mkfs" in adapters.describe(run, "guarded")
    assert "aria2c" in adapters.describe(run, "banned")
    assert "cargo" in adapters.describe(run, "programs")
    assert "policy decides" in adapters.describe(run, "/my/policy.toml")
    for word in ("120 s", "background", "first error", "search files"):
        assert word in adapters.describe(run, "yolo")


def test_which_policy_is_chosen(open_box: Any) -> None:
    """What the host asks for; else the profile's, and until there are ready ones, none."""
    for profile in PROFILES:
        found = profile_named(profile)
        assert policy.choose(found, Settings(), "my.toml") == "my.toml"
        by = policy.choose(found, Settings())
        assert (by if isinstance(by, str) else by.name) in (found.policy, "yolo")
        assert getattr(by, "asks", found.asks) == found.asks
        assert getattr(policy.choose(found, Settings(), consent=True), "asks", ()) == ()
    assert open_box("spec", policy="yolo").policy == "yolo"
    assert "policy decides" in Toolbox(open_box().shell).as_mcp()[0]["description"]


def test_a_call_has_a_label_for_people(open_box: Any) -> None:
    box = open_box()
    assert box.label("bash", {"command": "make\ntest"}) == "make test"
    assert box.label("bash", {"command": "make test", "description": "the tests"}) == "the tests"
    assert box.label("bash_kill", {"id": "bash-1"}) == "End bash-1"
    assert box.label("bash_kill", {"wrong": 1}) == "bash_kill"
    assert len(box.label("bash", {"command": "x" * 1000})) <= 120
    assert open_box("jido").label("bash_background", {"command": "ls", "args": ["a b"]}) == "ls 'a b'"


# --- ids and sessions --------------------------------------------------------------------


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_takes_every_name_for_an_id(open_box: Any, profile: str) -> None:
    box = open_box(profile)
    task = box.shell.start("echo hi")
    box.shell.wait(task.task_id)
    for name in IDS:
        assert not box.call(READ[profile], {name: task.task_id}).error


@pytest.mark.parametrize("profile", PROFILES)
def test_another_sessions_task_is_unknown(open_box: Any, profile: str) -> None:
    theirs = open_box(profile, session="theirs").shell.start("echo hi")
    ours = open_box(profile, session="ours")
    said = ours.call(READ[profile], {"id": theirs.task_id})
    assert said.error
    assert "no task" in said.text


def test_an_unknown_id_names_those_near_it(open_box: Any) -> None:
    box = open_box("spec")
    task_id = box.shell.run("true").task_id
    wrong = task_id[:-1] + ("0" if task_id[-1] != "0" else "1")
    assert task_id in box.call("BashOutput", {"bash_id": wrong}).text


# --- how long a call waits ---------------------------------------------------------------


@pytest.mark.parametrize("profile", [name for name in PROFILES if name != "jido"])
def test_no_call_waits_longer_than_its_client_does(open_box: Any, profile: str) -> None:
    """The task goes on: what is cut is the waiting."""
    box = open_box(profile, longest_wait=0.3)
    began = time.monotonic()
    reply = box.call(RUN[profile], {"command": "echo begun; sleep 60"})
    assert time.monotonic() - began < 20
    assert reply.data["status"] == "running"
    assert not reply.error
    task = box.shell.list()[0]
    assert (task.status, task.limit) == ("running", None)


def test_reading_waits_no_longer_either(open_box: Any) -> None:
    box = open_box("mycode", longest_wait=0.2)
    task = box.shell.start("sleep 60")
    began = time.monotonic()
    assert json.loads(box.call("TaskOutput", {"task_id": task.task_id, "timeout": 600000}).text)["status"] == "running"
    assert time.monotonic() - began < 20


def test_a_limit_that_was_asked_for_stays(open_box: Any) -> None:
    box = open_box("spec", longest_wait=0.2)
    task_id = box.call("Bash", {"command": "sleep 60", "timeout": 900}).data["task_id"]
    assert box.shell.wait(task_id, timeout=30).ended_by == "limit of 0.9 s"


def test_many_can_wait_at_once(open_box: Any) -> None:
    """More than a pool has threads: waiting holds none."""
    box = open_box("mycode")
    tasks = [box.shell.start("read line", stdin=_open()) for _ in range(10)]

    async def wait_for_all() -> list[str]:
        calls = [
            box.acall("TaskOutput", {"task_id": task.task_id, "timeout": 60000}) for _ in range(5) for task in tasks
        ]
        waiting = asyncio.gather(*calls)
        await asyncio.sleep(0)
        for task in tasks:
            await box.waiting.send(task.task_id, "go\n")
        return [reply.text for reply in await waiting]

    assert all(json.loads(text)["status"] == "completed" for text in asyncio.run(wait_for_all()))


def _open() -> Any:
    from outlast import Stdin

    return Stdin(open=True)


# --- what each design does of its own accord ---------------------------------------------


def test_a_development_command_moves_by_itself_in_neovate(open_box: Any, tmp_path: Path) -> None:
    (tmp_path / "make").write_text("#!/bin/sh\necho building; exec sleep 60\n")
    (tmp_path / "make").chmod(0o755)
    box = open_box("neovate")
    reply = box.call("bash", {"command": f"{tmp_path}/make all"})
    assert reply.data["status"] == "running"
    assert "moved to the background" in reply.text
    assert "Initial output: building" in reply.text
    assert reply.user == f"Moved to the background as {reply.data['task_id']}."


def test_what_a_user_of_neovate_sees(open_box: Any) -> None:
    box = open_box("neovate")
    seen = {
        command: box.call("bash", {"command": command}).user for command in ("echo hi", "true", "exit 3", "kill $$")
    }
    assert seen == {
        "echo hi": "hi",
        "true": "Command succeeded.",
        "exit 3": "Command exited with code 3.",
        "kill $$": "Command ended by signal SIGTERM.",
    }


def test_settings_of_a_profile_give_way_to_the_users(open_box: Any, home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_box("neovate").shell.settings.kill_grace_s == 0.2
    assert open_box("registry").shell.settings.kill_grace_s == 5.0
    assert open_box("mycode").shell.settings.output_limit_bytes == 10 * 1024 * 1024
    monkeypatch.setenv("OUTLAST_KILL_GRACE_S", "1.5")
    assert open_box("neovate").shell.settings.kill_grace_s == 1.5


def test_registry_remembers_twenty(open_box: Any) -> None:
    box = open_box("registry")
    running = box.shell.start("sleep 60")
    for number in range(21):
        assert box.call("run_command", {"command": f"echo {number}", "run_in_background": True}).text
    listed = json.loads(box.call("list_shells", {}).text)
    # The last one may still be letting go of its guards.
    assert 20 <= len(listed) <= 22
    assert running.task_id in [one["id"] for one in listed]
    assert "echo 0" not in [one["command"] for one in listed]


def test_pending_is_shown_as_running_and_queued_except_in_mycode(
    open_box: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTLAST_MAX_RUNNING", "1")
    boxes = {profile: open_box(profile) for profile in PROFILES}
    boxes["default"].shell.start("sleep 60")
    pending = boxes["default"].shell.start("sleep 61")
    assert pending.status == "pending"
    given = {"task_id": pending.task_id, "block": False}
    said = {
        profile: boxes[profile].call(READ[profile], {"id": pending.task_id}).text
        for profile in READ
        if profile != "mycode"
    }
    assert said["default"].startswith(f"{pending.task_id} is queued: it waits for a place.")
    assert "Status: running (queued)\nPID: (none)\n" in said["neovate"]
    assert json.loads(said["jido"])["status"] == json.loads(said["registry"])["status"] == "running (queued)"
    assert f"{pending.task_id} running (queued)" in said["spec"]
    assert json.loads(boxes["mycode"].call("TaskOutput", given).text)["status"] == "pending"
    first = json.loads(boxes["registry"].call("list_shells", {}).text)[0]
    assert (first["status"], first["pid"]) == ("running (queued)", None)


def test_jido_has_no_shell_in_between(open_box: Any, tmp_path: Path) -> None:
    box = open_box("jido", cwd=tmp_path, policy="yolo")  # to see what runs, not what may
    box.shell.run("echo() { builtin echo function; }; export -f echo; alias ls='echo alias'; cd /usr")
    said = json.loads(box.call("run_command", {"command": "echo", "args": ["a;b", "$(id)", "'", ""]}).text)
    assert said["output"] == "a;b $(id) ' \n"
    assert json.loads(box.call("run_command", {"command": "pwd"}).text)["output"] == f"{tmp_path}\n"
    (tmp_path / "mine").write_text("#!/bin/sh\necho mine\n")
    assert "no program" in box.call("run_command", {"command": "./mine"}).text
    (tmp_path / "mine").chmod(0o755)
    assert json.loads(box.call("run_command", {"command": "./mine"}).text)["output"] == "mine\n"


def test_jido_runs_only_what_is_listed(open_box: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"command": "dd", "args": ["if=/dev/null"]}
    refused = open_box("jido").call("run_command", given)
    assert refused.error
    assert "The policy programs denies" in json.loads(refused.text)["error"]
    monkeypatch.setenv("OUTLAST_ALLOWED_PROGRAMS", "+dd")
    assert json.loads(open_box("jido").call("run_command", given).text)["exit_code"] == 0


def test_mycode_says_that_not_all_is_shown(open_box: Any) -> None:
    said = json.loads(open_box("mycode").call("Bash", {"command": "seq 20000"}).text)
    assert said["truncated"]
    assert len(said["output"]) <= 30_000


def test_jido_counts_bytes(open_box: Any, tmp_path: Path) -> None:
    (tmp_path / "umlauts").write_text("ä" * 100 + "\n" + ("ö" * 79 + "\n") * 1000)
    said = json.loads(
        open_box("jido").call("run_command", {"command": "cat", "args": [str(tmp_path / "umlauts")]}).text
    )
    assert said["truncated"]
    assert 20_000 < len(said["output"].encode()) <= 30_000


def test_the_two_streams_are_shown_in_the_order_they_came(open_box: Any) -> None:
    box = open_box("neovate")
    task_id = box.call(
        "bash",
        {
            "command": "for n in 1 2 3; do echo out $n; sleep 0.1; echo err $n >&2; sleep 0.1; done",
            "run_in_background": True,
        },
    ).data["task_id"]
    box.shell.wait(task_id)
    said = eventually(lambda: (text := box.call("bash_output", {"task_id": task_id}).text) and "err 3" in text and text)
    assert "out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\n" in said


def test_what_is_cut_in_a_failed_one_still_leads_with_the_error(open_box: Any) -> None:
    box = open_box()
    reply = box.call("bash", {"command": "seq 9000; echo 'fatal: in the middle'; seq 9000; exit 9"})
    assert reply.failed
    lines = reply.text.splitlines()
    assert "failed: exit code 9" in lines[0]
    assert lines[1].startswith("First error, line 900")  # with the line before it
    assert "fatal: in the middle" in lines[3:6]
    assert lines[-2:] == ["9000", "```"]
    assert len(reply.text) < 1_000


def test_a_running_one_says_how_long_it_usually_takes(open_box: Any) -> None:
    box = open_box(session="s")
    command = "[ -e wait ] || sleep 0.1 && [ ! -e wait ] || sleep 60"
    for _ in range(2):
        assert box.call("bash", {"command": command, "cwd": "/tmp"}).data["status"] == "completed"
    eventually(lambda: all(task.closed for task in box.shell.list()))
    reply = box.call("bash", {"command": command, "cwd": "/tmp", "background": True})
    assert "usually takes 0." in reply.text


def test_one_that_waits_for_input_says_so(open_box: Any) -> None:
    box = open_box()
    task_id = box.call("bash", {"command": "read -p 'Name: ' name", "stdin_open": True}).data["task_id"]
    said = eventually(
        lambda: (text := box.call("bash_output", {"task_id": task_id}).text) and "waiting for input" in text and text
    )
    assert "waiting for input" in said


def test_a_toolbox_of_a_shell_that_somebody_opened(home: str) -> None:
    with Shell.open(home=home) as shell:
        assert Toolbox(shell, "spec").call("Bash", {"command": "echo hi"}).text == "hi\n"


def test_the_public_names_are_exactly_these() -> None:
    from outlast import tools

    assert tools.__all__ == ["PROFILES", "Profile", "Reply", "Tool", "Toolbox"]
    assert all(hasattr(tools, name) for name in tools.__all__)
    assert list(PROFILES) == list(NAMES)


def test_there_is_no_such_profile(home: str) -> None:
    with pytest.raises(OutlastError, match="no profile 'claude'; known are default, neovate"):
        Toolbox.open(home=home, profile="claude")
    assert not os.path.exists(home)


def test_the_same_server_twice_is_told(open_box: Any) -> None:
    box = open_box()
    first = box.call("bash", {"command": "sleep 60", "background": True}).data["task_id"]
    again = box.call("bash", {"command": "sleep 60", "background": True})
    assert f"The same command already runs in this directory as {first}." in again.text
    assert "already runs" not in box.call("bash", {"command": "sleep 61", "background": True}).text


def test_threads_and_loops_can_share_a_toolbox(open_box: Any) -> None:
    """Each waits in a loop of its own for the same task."""
    from concurrent.futures import ThreadPoolExecutor

    box = open_box("mycode")
    task_id = box.shell.start("read line", stdin=_open()).task_id
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(box.call, "TaskOutput", {"task_id": task_id, "timeout": 60000}) for _ in range(4)]
        eventually(lambda: all(call.running() for call in calls))
        box.shell.send(task_id, "go\n")
        assert [json.loads(call.result().text)["status"] for call in calls] == ["completed"] * 4

    async def from_inside() -> str:
        text: str = box.call("Bash", {"command": "echo hi"}).text
        return text

    assert json.loads(asyncio.run(from_inside()))["output"] == "hi\n"
