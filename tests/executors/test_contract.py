"""What every executor promises: the same calls, the same answers."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path
from typing import Any

import pytest

from outlast import Cursor, Stdin
from outlast.errors import AlreadyEnded, BadInput, InputRefused, OutlastError, StartFailed
from outlast.types import Limits
from tests.conftest import eventually
from tests.executors.conftest import Bench


@pytest.mark.parametrize("code", [0, 1, 7, 255])
def test_the_exit_code_is_the_commands(bench: Bench, code: int) -> None:
    result = bench.run(f"echo out; exit {code}")
    assert (result.exit_code, result.output, result.executor) == (code, "out\n", bench.name)
    assert result.status == ("failed" if code else "completed")
    assert bench.open().show(result.task_id).exit_code == code


def test_a_signal_is_told_from_an_exit(bench: Bench) -> None:
    result = bench.run("kill -KILL $$")
    assert (result.status, result.reason, result.signal, result.exit_code) == ("failed", "signal", 9, None)


def test_each_stage_of_a_pipeline_has_its_code(bench: Bench) -> None:
    assert bench.run("true | false | exit 3").pipe_status == (0, 1, 3)


def test_output_is_complete_to_the_byte(bench: Bench) -> None:
    made = "head -c 3000000 /dev/urandom | tee copy | sha256sum >sum; cat copy; rm copy"
    result = bench.run(f"cd {bench.scratch}; {made}", show={"max_chars": 1000})
    source = bench.shell.executor.source(result.task_id, "stdout")
    digest = hashlib.sha256(b"".join(piece.data for piece in source.chunks())).hexdigest()
    assert digest == (bench.scratch / "sum").read_text().split()[0]


def test_two_streams_stay_apart(bench: Bench) -> None:
    result = bench.run("echo one; echo two >&2", split=True)
    assert (result.stdout, result.stderr) == ("one\n", "two\n")


def test_a_background_task_goes_on_without_its_caller(bench: Bench) -> None:
    caller = bench.open()
    release = bench.scratch / "go"
    task = caller.start(f"until [ -e {release} ]; do sleep 0.02; done; echo finished", executor=bench.name)
    caller.close()
    eventually(lambda: bench.shell.show(task.task_id).status == "running")
    release.touch()
    assert bench.shell.wait(task.task_id, timeout=20).status == "completed"
    assert bench.shell.read(task.task_id).output == "finished\n"


def test_output_is_seen_while_the_task_runs(bench: Bench) -> None:
    release = bench.scratch / "go"
    task = bench.start(f"echo first; until [ -e {release} ]; do sleep 0.02; done; echo between; echo last")
    seen: list[bytes] = []
    begun = threading.Event()

    def follow() -> None:
        for piece in bench.shell.follow(task.task_id, timeout=30):
            seen.append(piece.data)
            begun.set()

    thread = threading.Thread(target=follow)
    thread.start()
    assert begun.wait(20)
    release.touch()
    thread.join(30)
    assert b"".join(seen) == b"first\nbetween\nlast\n"


def test_a_wait_ends_when_a_line_matches(bench: Bench) -> None:
    task = bench.start("echo starting; sleep 0.2; echo READY; sleep 60")
    waited = bench.shell.wait(task.task_id, timeout=20, until="READY")
    assert waited.met
    assert waited.matched == "READY"
    assert bench.shell.show(task.task_id).status == "running"


def test_a_wait_that_runs_out_leaves_the_task(bench: Bench) -> None:
    task = bench.start("sleep 60")
    assert not bench.shell.wait(task.task_id, timeout=0.2).met


def test_input_is_text_or_sent_later(bench: Bench) -> None:
    bench.skip_if("ray", "a job of Ray's takes no input")
    assert bench.run("cat", stdin="as text\0\n").output.startswith("as text")
    with pytest.raises(InputRefused):
        bench.shell.send(bench.start("sleep 60").task_id, "nothing")
    task = bench.start("read line; echo got $line; wc -c", stdin=Stdin(open=True))
    bench.shell.send(task.task_id, "this\n")
    bench.await_output(task.task_id, "got this")
    bench.shell.send(task.task_id, b"x" * 300_000, eof=True)
    bench.shell.wait(task.task_id, timeout=20)
    assert bench.shell.read(task.task_id).output.split() == ["got", "this", "300000"]
    with pytest.raises(AlreadyEnded):
        bench.shell.send(task.task_id, "too late")


def test_kill_ends_the_whole_tree_and_says_which(bench: Bench) -> None:
    pids = bench.scratch / "pids"
    inner = f"echo $$ >>{pids}; exec sleep 300"
    task = bench.start(f"setsid sh -c '{inner}' & (sh -c '{inner}' &); sh -c '{inner}'")
    eventually(lambda: pids.exists() and len(pids.read_text().split()) == 3)
    receipt = bench.shell.kill(task.task_id, grace=0.5)
    started = {int(pid) for pid in pids.read_text().split()}
    assert started <= set(receipt.ended)
    assert not receipt.survivors
    assert (receipt.status, receipt.reason) == ("killed", "killed")
    assert not any(map(bench.is_alive, started))
    with pytest.raises(AlreadyEnded):
        bench.shell.kill(task.task_id)


def test_a_command_that_ignores_term_is_killed(bench: Bench) -> None:
    task = bench.start("trap '' TERM; echo ready; while :; do sleep 0.05; done")
    bench.await_output(task.task_id, "ready")
    receipt = bench.shell.kill(task.task_id, grace=0.2)
    assert (receipt.status, receipt.survivors) == ("killed", ())


def test_a_limit_ends_the_task(bench: Bench) -> None:
    result = bench.run("echo on; sleep 60", limit=0.4)
    assert (result.status, result.reason, result.output) == ("killed", "timeout", "on\n")


def test_the_session_remembers(bench: Bench) -> None:
    bench.run(f"cd {bench.scratch}; X='a b'; export Y=1; f() {{ echo in f; }}; alias l='echo aliased'")
    assert bench.run('echo "$X" $Y; f; l; pwd').output == f"a b 1\nin f\naliased\n{bench.scratch}\n"
    other = bench.open("other")
    assert other.run('echo "[${X-}]"', executor=bench.name).output == "[]\n"
    other.close()


def test_variables_and_directory_are_given(bench: Bench) -> None:
    result = bench.run("echo $GIVEN; pwd", env={"GIVEN": "value"}, cwd=str(bench.scratch))
    assert result.output == f"value\n{bench.scratch}\n"


def test_secrets_stay_here_unless_they_are_passed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.skip_if("nodes", "a secret is not passed there")
    monkeypatch.setenv("MY_API_TOKEN", "canary-17-secret")
    out = bench.scratch / "seen"
    bench.run(f"env >{out}")
    assert "canary-17-secret" not in out.read_text()
    result = bench.run(f"env >{out}; echo $MY_API_TOKEN", pass_secrets=["MY_API_TOKEN"])
    assert "MY_API_TOKEN=canary-17-secret" in out.read_text()
    assert "canary-17-secret" not in result.output


def test_a_missing_directory_is_refused_and_leaves_nothing(bench: Bench) -> None:
    bench.skip_if("ray nodes", "what is there is known when the job begins: it then ends as failed, and says why")
    with pytest.raises(OutlastError, match="/no/such/place"):
        bench.run("echo no", cwd="/no/such/place")
    assert bench.shell.list() == []


def test_a_missing_shell_is_refused(bench: Bench) -> None:
    bench.skip_if("ray nodes", "what is there is known when the job begins: it then ends as failed, and says why")
    with pytest.raises((BadInput, StartFailed), match="/no/such/shell"):
        bench.run("echo no", shell="/no/such/shell")


def test_other_shells(bench: Bench) -> None:
    assert bench.run("echo $0", shell="/bin/sh").output.strip().endswith("command")
    assert bench.run("echo '$HOME' x", shell="none").output == "$HOME x\n"


def test_a_name_makes_two_starts_one(bench: Bench) -> None:
    first, second = (bench.start("sleep 60", name="dev") for _ in range(2))
    assert first.task_id == second.task_id
    with pytest.raises(BadInput):
        bench.start("sleep 61", name="dev")


def test_limits_are_kept(bench: Bench) -> None:
    result = bench.run("head -c 1000000 /dev/zero >big", limits=Limits(file_size=500_000), cwd=str(bench.scratch))
    assert result.exit_code != 0
    assert (bench.scratch / "big").stat().st_size == 500_000


def test_lists_say_where(bench: Bench) -> None:
    ids = {bench.start(f"exit {code}").task_id for code in range(5)}
    for task_id in ids:
        bench.shell.wait(task_id, timeout=20)
    found = {task.task_id: task for task in bench.shell.list()}
    assert found.keys() == ids
    assert {task.executor for task in found.values()} == {bench.name}
    assert sorted(task.exit_code or 0 for task in found.values()) == [0, 1, 2, 3, 4]


def test_a_process_that_is_left_is_listed_and_can_be_ended(bench: Bench) -> None:
    result = bench.run("sleep 300 & echo done")
    task = eventually(lambda: (found := bench.shell.show(result.task_id)).children and found)
    assert len(task.children) == 1
    assert not task.closed
    receipt = bench.shell.kill(result.task_id, grace=0.5)
    assert receipt.ended == task.children
    assert receipt.status == "completed"


def test_removal(bench: Bench) -> None:
    result = bench.run("echo x")
    bench.shell.remove(result.task_id)
    assert bench.shell.list() == []


def test_reading_piece_by_piece_adds_up(bench: Bench) -> None:
    result = bench.run("seq 20000", show={"max_chars": 300})
    text, cursor = "", Cursor()
    while True:
        piece = bench.shell.read(result.task_id, cursor=str(cursor), max_chars=5000, page=True)
        if not piece.output:
            break
        text, cursor = text + piece.output, piece.cursor  # type: ignore[assignment]
    assert text.split() == [str(number) for number in range(1, 20001)]


def test_the_policy_holds(bench: Bench, tmp_path: Path) -> None:
    strict: Any = Path(bench.home).parent / "rules.toml"
    strict.write_text('deny = ["touch"]\n')
    from outlast import Shell
    from outlast.errors import Refused

    with Shell.open(home=bench.home, session="bench", policy=str(strict)) as judged, pytest.raises(Refused):
        judged.run(f"touch {bench.scratch}/file", executor=bench.name)
    assert not (bench.scratch / "file").exists()


def test_a_terminal(bench: Bench) -> None:
    bench.skip_if("ray", "a job of Ray's takes no input")
    task = bench.start(
        """stty size; until [ "$(stty size)" = "20 90" ]; do sleep 0.02; done; read line; test -t 1 && echo a $line""",
        tty=(100, 30),
    )
    bench.await_output(task.task_id, "30 100")
    bench.shell.resize(task.task_id, 90, 20)
    bench.shell.send(task.task_id, "terminal\n")
    assert bench.shell.wait(task.task_id, timeout=20).exit_code == 0
    assert "a terminal" in bench.shell.read(task.task_id).output
    assert "a terminal" in str(bench.shell.screen(task.task_id))
