"""An open shell and a place to run in, for each kind of executor. Another kind is one more entry in `KINDS`."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from outlast import Shell
from outlast.types import Result, Waited
from tests.conftest import end_all, eventually
from tests.executors import ray_cluster, slurm_cluster
from tests.executors.sshd import Sshd


class Bench:
    """One executor under test."""

    def __init__(self, home: str, name: str, scratch: Path, kind: str = "") -> None:
        self.home, self.name, self.scratch, self._kind = home, name, scratch, kind
        self.processes = "/proc"
        self._opened: list[Shell] = []
        self.shell = self.open()

    def skip_if(self, kinds: str, why: str) -> None:
        if self._kind in kinds.split():
            pytest.skip(why)

    def is_alive(self, pid: int) -> bool:
        return os.path.exists(f"{self.processes}/{pid}")

    def open(self, session: str = "bench") -> Shell:
        self._opened.append(Shell.open(home=self.home, session=session))
        return self._opened[-1]

    def close(self) -> None:
        end_all(self.shell)
        for shell in self._opened:
            shell.close()

    def run(self, command: str, **options: Any) -> Result:
        return self.shell.run(command, executor=self.name, **options)

    def start(self, command: str, **options: Any) -> Waited:
        return self.shell.start(command, executor=self.name, **options)

    def await_output(self, task_id: str, text: str) -> None:
        eventually(lambda: text in self.shell.read(task_id).output, what=f"{text!r} in the output")


@pytest.fixture(scope="session")
def sshd() -> Iterator[Sshd]:
    server = Sshd()
    yield server
    server.close()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[slurm_cluster.Cluster]:
    if why := slurm_cluster.missing():
        pytest.skip(why)
    made = slurm_cluster.Cluster(tmp_path_factory.mktemp("slurm"))
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.fixture(scope="session")
def ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ray_cluster.RayCluster]:
    if why := ray_cluster.missing():
        pytest.skip(why)
    made = ray_cluster.RayCluster(Path(tempfile.mkdtemp(prefix="outlast-ray-")))  # Ray's sockets need a short path
    try:
        yield made.wait()
    finally:
        made.stop()
        shutil.rmtree(made.place, ignore_errors=True)


def write_settings(home: str, text: str) -> None:
    os.makedirs(home, 0o700, exist_ok=True)
    Path(home, "config.toml").write_text(text)


def _local(home: str, request: pytest.FixtureRequest) -> str:
    return "local"


def _ssh(home: str, request: pytest.FixtureRequest) -> str:
    write_settings(home, request.getfixturevalue("sshd").settings())
    return "box"


def _slurm(home: str, request: pytest.FixtureRequest) -> str:
    cluster: slurm_cluster.Cluster = request.getfixturevalue("cluster")
    request.getfixturevalue("monkeypatch").setenv("SLURM_CONF", cluster.conf)
    write_settings(home, SLURM)
    return "hpc"


def _nodes(home: str, request: pytest.FixtureRequest) -> str:
    """Nodes of which Outlast does not know that they share a file system with this machine."""
    name = _slurm(home, request)
    own = request.getfixturevalue("tmp_path") / "nodes"
    own.mkdir()
    write_settings(home, f'{SLURM}node_dir = "{own}"\n')
    return name


def _ray(home: str, request: pytest.FixtureRequest) -> str:
    write_settings(home, f'[executors.rays]\nkind = "ray"\naddress = "{request.getfixturevalue("ray").address}"\n')
    return "rays"


SLURM = '[executors.hpc]\nkind = "slurm"\npartition = "p"\npoll = 1\n'
KINDS: dict[str, Callable[[str, pytest.FixtureRequest], str]] = {
    "local": _local,
    "ssh": _ssh,
    "slurm": _slurm,
    "nodes": _nodes,
}


# Ray starts a job in seconds and is large, so `make test-ray` runs it.
@pytest.fixture(params=[*KINDS, pytest.param("ray", marks=pytest.mark.ray)])
def bench(request: pytest.FixtureRequest, home: str, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(home, {**KINDS, "ray": _ray}[request.param](home, request), tmp_path, request.param)
    if request.param in ("slurm", "nodes", "ray"):
        made.processes = request.getfixturevalue("ray" if request.param == "ray" else "cluster").processes
    yield made
    made.close()


@pytest.fixture
def far(sshd: Sshd, home: str, tmp_path: Path) -> Iterator[Bench]:
    """A bench on a machine that ssh reaches."""
    write_settings(home, sshd.settings())
    made = Bench(home, "box", tmp_path)
    yield made
    made.close()
