"""`codex exec`: holds no MCP tasks, so its model waits with a call."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping

from tests.clients.figures import Figures
from tests.clients.place import Place, binary, place
from tests.clients.scene import PATIENCE_S, PROMPT, WAITING, counted, played
from tests.clients.scripted import Model, model


def by_exec() -> Figures:
    with place() as here, model(WAITING) as scripted:
        here.write("home/.codex/config.toml", _config(here, scripted))
        began = time.time()
        ran = subprocess.run(
            [binary("codex"), "exec", "--skip-git-repo-check", PROMPT],
            cwd=here.work,
            env=here.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        played(scripted, ran.stdout + ran.stderr)
        assert (ran.returncode, ran.stdout) == (0, "It is built.\n"), ran.stderr
        return counted("Codex", version(), here, scripted, began)


def version() -> str:
    said = subprocess.run([binary("codex"), "--version"], capture_output=True, text=True, timeout=PATIENCE_S)
    return said.stdout.split()[-1]


def _config(here: Place, scripted: Model) -> str:
    command, args, env = here.server()
    provider = {"name": "scripted", "base_url": f"{scripted.url}/v1", "wire_api": "responses"}
    tables: dict[str, Mapping[str, object]] = {
        "model_providers.scripted": provider,
        "mcp_servers.outlast": {"command": command, "args": args, "startup_timeout_sec": 30, "required": True},
        "mcp_servers.outlast.env": env,
        "analytics": {"enabled": False},
    }
    top = {"model": "scripted", "model_provider": "scripted", "approval_policy": "never"}
    text = _toml({**top, "sandbox_mode": "danger-full-access", "check_for_update_on_startup": False})
    return text + "".join(f"[{name}]\n{_toml(values)}" for name, values in tables.items())


def _toml(values: Mapping[str, object]) -> str:
    # Of texts, lists and whole numbers JSON is TOML.
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())
