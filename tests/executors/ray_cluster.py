"""A Ray cluster of one node on loopback, from a virtual environment of its own: `make test-ray` makes that."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path

from tests.executors.slurm_cluster import free_ports

ROOT = Path(__file__).resolve().parents[2]
RAY = ROOT / ".venv-ray/bin/ray"
_PATIENCE_S = 90.0


def missing() -> str:
    """Say what is missing; nothing if a cluster can be made."""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        return "only root makes a Ray cluster for a test, with unshare"
    return "" if RAY.exists() else "Ray is not installed; `make test-ray` does that"


class RayCluster:
    """All of it runs in a pid namespace, and ends with the process that made that."""

    def __init__(self, place: Path) -> None:
        self.place = place
        gcs, dashboard, client, agent, metrics, runtime = free_ports(6)
        self.address = f"http://127.0.0.1:{dashboard}"
        ports = {"port": gcs, "dashboard-port": dashboard, "ray-client-server-port": client}
        ports |= {"dashboard-agent-listen-port": agent, "metrics-export-port": metrics}
        ports |= {"runtime-env-agent-port": runtime, "min-worker-port": 0, "max-worker-port": 0}
        words = [str(RAY), "start", "--head", "--block", "--disable-usage-stats", "--num-cpus=4"]
        words += ["--include-dashboard=true", "--dashboard-host=127.0.0.1", "--node-ip-address=127.0.0.1"]
        words += [f"--temp-dir={place}", *(f"--{name}={number}" for name, number in ports.items())]
        path = f"{RAY.parent}:{os.environ['PATH']}"
        self.process = subprocess.Popen(
            ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", *words],
            env={**os.environ, "PATH": path, "RAY_USAGE_STATS_ENABLED": "0"},
            stdin=subprocess.DEVNULL,
            stdout=open(place / "out", "wb"),
            stderr=subprocess.STDOUT,
        )

    def wait(self) -> RayCluster:
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                with urllib.request.urlopen(f"{self.address}/api/jobs/", timeout=5):
                    return self
            except OSError:
                assert self.process.poll() is None, (self.place / "out").read_text()[-3000:]
                assert time.monotonic() < deadline, (self.place / "out").read_text()[-3000:]
                time.sleep(0.2)

    @property
    def processes(self) -> str:
        """The directory with the processes of the node, as the node has it at /proc."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return f"/proc/{children[0]}/root/proc"

    def stop(self) -> None:
        self.process.kill()  # --kill-child: and with it the namespace, with all that is in it
        self.process.wait(30)
