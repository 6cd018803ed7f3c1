"""Real clients as `outlast setup` and the plugin configure them: what they list, and what their models are offered.

`python -m tests.clients.configured SCENE` plays one and prints what it found as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from bench.model_api import Call, Say
from tests.clients import scripted
from tests.clients.alone import in_own_network
from tests.clients.claude import _env as claude_env
from tests.clients.claude import _words as claude_words
from tests.clients.place import ROOT, Place, binary, place
from tests.clients.scripted import Line, Model, model
from tests.conftest import eventually

PATIENCE_S = 90.0
PLUGIN = ROOT / "plugins" / "claude"
_PLUGIN_TOOLS = "mcp__plugin_outlast_outlast"
_RUN: list[Line] = [Call("bash", {"command": "echo hello"}), Say("It is built.")]


def _ran(here: Place, words: Sequence[str], env: dict[str, str]) -> str:
    """What a client prints."""
    done = subprocess.run(
        words,
        cwd=here.work,
        env={**env, "OUTLAST_HOME": here.state},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _set_up(here: Place, *words: str) -> None:
    _ran(here, [sys.executable, "-m", "outlast", "setup", *words, "--yes"], here.env)


def _offered(played: Model) -> list[str]:
    """The names of the tools in the first request that has ours."""
    return [str(tool.get("name") or tool.get("type")) for tool in played.requests[0].body["tools"]]


def _found(played: Model, **more: Any) -> dict[str, Any]:
    return {"offered": _offered(played), "heard": [request.said for request in played.requests], **more}


def claude() -> dict[str, Any]:
    with place() as here, model(_RUN) as played:
        claude_words(here)  # which writes the answers to what it asks at its first start
        env = claude_env(here, played)
        _set_up(here, "claude", "--deny-shell")
        listed = _ran(here, [binary("claude"), "mcp", "list"], env)
        _ran(here, [binary("claude"), "-p", "please run it", "--allowedTools", "mcp__outlast"], env)
        _set_up(here, "claude", "--undo")
        left = json.loads((here.home / ".claude.json").read_text())
        again = _ran(here, [binary("claude"), "mcp", "list"], env)
        settings = (here.home / ".claude" / "settings.json").exists()
        return _found(played, listed=listed, again=again, left=left.get("mcpServers"), settings=settings)


def codex() -> dict[str, Any]:
    with place() as here, model(_RUN) as played:
        own = (
            'model = "scripted"  # mine\nmodel_provider = "scripted"\napproval_policy = "never"\n'
            'sandbox_mode = "danger-full-access"\ncheck_for_update_on_startup = false\n\n'
            f'[model_providers.scripted]\nname = "scripted"\nbase_url = "{played.url}/v1"\nwire_api = "responses"\n\n'
            "# no analytics\n[analytics]\nenabled = false\n"
        )
        here.write("home/.codex/config.toml", own)
        _set_up(here, "codex", "--deny-shell")
        listed = json.loads(_ran(here, [binary("codex"), "mcp", "list", "--json"], here.env))
        _ran(here, [binary("codex"), "exec", "--skip-git-repo-check", "please run it"], here.env)
        _set_up(here, "codex", "--undo")
        again = json.loads(_ran(here, [binary("codex"), "mcp", "list", "--json"], here.env))
        text = (here.home / ".codex" / "config.toml").read_text()
        return _found(played, listed=listed, again=again, kept=all(line in text for line in own.splitlines()))


def plugin() -> dict[str, Any]:
    """A task that ends between two prompts is told of with the second one, and not with the third."""
    scripted.OURS = _PLUGIN_TOOLS
    command = "until [ -e go ]; do sleep 0.02; done; exit 7"
    lines: list[Line] = [
        Call("bash", {"command": command, "description": "the build", "background": True}),
        *(Say(f"Answer {number}.") for number in range(1, 5)),
    ]
    with place() as here, model(lines) as played:
        claude_words(here)
        program = here.write("bin/outlast", f'#!/bin/sh\nexec {sys.executable} -m outlast "$@"\n')
        os.chmod(program, 0o755)
        env = claude_env(here, played)
        env = {**env, "PATH": f"{os.path.dirname(program)}:{env['PATH']}", "OUTLAST_HOME": here.state}
        words = [binary("claude"), "--plugin-dir", str(PLUGIN), "--allowedTools", _PLUGIN_TOOLS, "-p"]
        with _conversation(here, words, env) as say:
            say("please run it")
            (here.work / "go").touch()
            eventually(lambda: here.tasks()[0].finished, what="the task ends")
            say("and now?")
            say("and again?")
        _ran(here, [*words, "--continue", "do you remember?"], env)
        return _found(played, session=here.tasks()[0].session, validated=_validated())


@contextmanager
def _conversation(here: Place, words: list[str], env: dict[str, str]) -> Iterator[Callable[[str], None]]:
    """One Claude Code that is given several prompts, each after the answer to the last."""
    form = ["--input-format", "stream-json", "--output-format", "stream-json", "--verbose"]
    with subprocess.Popen(
        [*words, *form], cwd=here.work, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        typed, printed = running.stdin, running.stdout

        def say(prompt: str) -> None:
            message = {"role": "user", "content": [{"type": "text", "text": prompt}]}
            typed.write(json.dumps({"type": "user", "message": message}) + "\n")
            typed.flush()
            for line in printed:
                if json.loads(line)["type"] == "result":
                    return
            raise AssertionError(f"no answer to {prompt!r}")

        try:
            yield say
            typed.close()
            running.wait(PATIENCE_S)
        finally:
            running.kill()


def _validated() -> str:
    done = subprocess.run(
        [binary("claude"), "plugin", "validate", "--strict", str(PLUGIN)], capture_output=True, text=True, timeout=60
    )
    return done.stdout + done.stderr


SCENES: dict[str, Callable[[], dict[str, Any]]] = {"claude": claude, "codex": codex, "plugin": plugin}


def played(scene: str) -> dict[str, Any]:
    """Play a scene where nothing can leave the machine."""
    words = in_own_network([sys.executable, "-m", __name__, scene])
    ran = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert ran.returncode == 0, f"the scene {scene} went wrong; what it said is above"
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


if __name__ == "__main__":
    print(json.dumps(SCENES[sys.argv[1]]()))
