"""A real Slurm cluster on loopback: munged, slurmctld and two slurmd with ports, keys and directories of their own.

All of it runs in a pid namespace, so a cluster, with every job on it, ends with the one process that was started here,
also if the tests are killed; and jobs are as far away as those on another machine: no pid of theirs is one here.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

NEEDED = ("slurmctld", "slurmd", "munged", "sbatch", "unshare")
_PATIENCE_S = 30.0
_NODES = ("n1", "n2")
_CPUS = 16  # of each node, as it says: so many jobs run there at once
# A new job is looked at once, and not a few seconds later; a job that ended is forgotten soon.
_CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={place}/munge/socket
CredType=cred/munge
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool.%n
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd.%n.pid
SlurmctldLogFile={place}/slurmctld.log
SlurmdLogFile={place}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=1,bf_interval=1,requeue_setup_env_fail
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MinJobAge={forgets_after}
KillWait=2
MaxJobCount=20000
SlurmdTimeout=10
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs={cpus} State=UNKNOWN
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs={cpus} State=UNKNOWN
PartitionName=p Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
PartitionName=one Nodes=n1 MaxTime=INFINITE State=UP
"""
# The last line makes the namespace end when this shell does; a slurmd is started again when it is killed by a test.
_START = """
cd "$1"; ulimit -c 0
munged --force --foreground --key-file="$1/munge/key" --socket="$1/munge/socket" --pid-file="$1/munge/pid" \
    --log-file="$1/munge/log" --seed-file="$1/munge/seed" >munged.out 2>&1 &
until [ -S munge/socket ]; do sleep 0.02; done
slurmctld -D -f "$1/slurm.conf" >slurmctld.out 2>&1 &
own='mount -t tmpfs none "$0" && exec "$@"' # so that a node does not see what is in this directory
for node in n1 n2; do
    ${2:+unshare --mount sh -c "$own" "$2"} slurmd -D -N "$node" -f "$1/slurm.conf" >"slurmd.$node.out" 2>&1 &
done
wait
"""


def missing() -> str:
    """Say what is missing for a cluster here; nothing if it can be made."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    if os.geteuid() != 0:
        return "only root makes a Slurm cluster for a test"
    absent = [name for name in NEEDED if not shutil.which(name, path=path)]
    packages = "slurmctld slurmd munge slurm-client util-linux"
    return f"{', '.join(absent)} missing (Debian: {packages})" if absent else ""


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        opened = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in opened:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in opened]


class Cluster:
    """One cluster below `place`. `env` are the variables by which clients find it."""

    def __init__(self, place: Path, forgets_after: int = 300, hides: str = "") -> None:
        """`hides` is a directory that each node has for itself; `place` is not in it."""
        self.place, self.forgets_after, self._hides = place, forgets_after, hides
        self.conf = f"{place}/slurm.conf"
        self.env = {**os.environ, "SLURM_CONF": self.conf}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Cluster:
        for name in ("munge", "state", *(f"spool.{node}" for node in _NODES)):
            (self.place / name).mkdir(mode=0o755, parents=True)
        key = self.place / "munge/key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        host = socket.gethostname().partition(".")[0]
        conf = _CONF.format(
            place=self.place, host=host, ports=free_ports(3), cpus=_CPUS, forgets_after=self.forgets_after
        )
        (self.place / "slurm.conf").write_text(conf)
        self._run()
        return self

    def _run(self) -> None:
        words = [
            "unshare",
            "--pid",
            "--fork",
            "--mount-proc",
            "--kill-child",
            "sh",
            "-c",
            _START,
            "sh",
            str(self.place),
            self._hides,
        ]
        env = {**self.env, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
        self.process = subprocess.Popen(
            words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._wait_for_nodes()

    def _wait_for_nodes(self) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while self.call("sinfo", "-h", "-N", "-p", "p", "-t", "idle", "-o", "%N").split() != [*_NODES]:
            assert self.process
            assert self.process.poll() is None, self.describe()
            assert time.monotonic() < deadline, self.describe()
            time.sleep(0.05)

    def describe(self) -> str:
        return "\n".join(f"{path.name}: {path.read_text()[-1500:]}" for path in sorted(self.place.glob("*.out")))

    def call(self, *words: str) -> str:
        """What a Slurm command prints; nothing if it fails."""
        return subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=60, check=False).stdout

    def states(self, name: str) -> list[str]:
        """The states of all jobs of this name."""
        return self.call("squeue", "-h", "-t", "all", f"--name={name}", "-o", "%T").split()

    def pid_inside(self, daemon: str) -> int:
        """The pid, as seen here, of a daemon: by what its argument list ends with."""
        assert self.process
        left, (name, *rest) = [self.process.pid], daemon.split()
        while left:
            pid = left.pop()
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
            if os.path.basename(words[0]) == name and all(word in words for word in rest):
                return pid
            left += [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        raise AssertionError(f"no {daemon}: {self.describe()}")

    @property
    def processes(self) -> str:
        """The directory with the processes of the nodes, as a node has it at /proc."""
        return f"/proc/{self.pid_inside('slurmctld')}/root/proc"

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)  # --kill-child: and with it the namespace, with all that is in it
            self.process.wait(_PATIENCE_S)
            self.process = None
