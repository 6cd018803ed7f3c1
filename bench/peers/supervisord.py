"""supervisord: its XML-RPC on a socket of its own. It has no way to wait: its event listeners hear of an
end up to a second later, so it is asked again and again.

Its programs stand in its configuration, so there are as many slots as may run at once, and
each start writes the script of the next one.
"""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import time
import xmlrpc.client
from typing import Any

from bench.peers.base import PATIENCE_S, PEERS, Peer

SLOTS = 150

_CONFIG = """
[supervisord]
logfile={place}/log
pidfile={place}/pid
childlogdir={place}/tmp
nodaemon=true
[unix_http_server]
file={place}/socket
[supervisorctl]
serverurl=unix://{place}/socket
[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
[program:job]
command=bash {place}/jobs/%(process_num)s
process_name=%(process_num)s
numprocs={slots}
autostart=false
autorestart=false
startsecs=0
stopasgroup=true
killasgroup=true
"""


class _Connection(http.client.HTTPConnection):
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(PATIENCE_S)
        self.sock.connect(self.host)


class _Transport(xmlrpc.client.Transport):
    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def make_connection(self, host: Any) -> http.client.HTTPConnection:
        connection = self._connection[1]
        if not connection:
            connection = _Connection(self._path)
            self._connection = host, connection
        return connection


class Supervisord(Peer):
    name = "supervisord"

    @classmethod
    def missing(cls) -> str:
        return "" if (PEERS / "bin" / "supervisord").exists() else "supervisor"

    def open(self) -> None:
        self._next = 0
        os.mkdir(f"{self.place}/jobs")
        python = PEERS / "bin" / "python"
        with open(f"{self.place}/config", "w") as file:
            file.write(_CONFIG.format(place=self.place, slots=SLOTS))
        self._process = subprocess.Popen(
            [python, "-m", "supervisor.supervisord", "-c", f"{self.place}/config"],
            env=self.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + PATIENCE_S
        while not os.path.exists(f"{self.place}/socket") and time.monotonic() < deadline:
            time.sleep(0.01)
        server: Any = xmlrpc.client.ServerProxy("http://localhost", _Transport(f"{self.place}/socket"))
        self._rpc = server.supervisor

    def close(self) -> None:
        self._rpc.shutdown()
        self._process.wait(PATIENCE_S)

    def start(self, command: str) -> str:
        slot = str(self._next % SLOTS)
        self._next += 1
        with open(f"{self.place}/jobs/{slot}", "w") as file:
            file.write(command)
        self._rpc.startProcess(f"job:{slot}", False)
        return slot

    def wait(self, ticket: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while self._rpc.getProcessInfo(f"job:{ticket}")["statename"] != "EXITED":
            if time.monotonic() > deadline:
                raise TimeoutError(f"not done in {PATIENCE_S:g} s")
            time.sleep(0.001)

    def wait_elsewhere(self, command: str) -> None:
        self.start_and_wait(command)

    def flood(self, command: str) -> None:
        self.start_and_wait(command)

    def printed(self, command: str) -> str:
        slot = self.start(command)
        self.wait(slot)
        return slot

    def last_lines(self, ticket: str) -> bytes:
        text: str = self._rpc.tailProcessStdoutLog(f"job:{ticket}", 0, 14)[0]
        return text.encode()

    def kill(self, ticket: str) -> None:
        self._rpc.stopProcess(f"job:{ticket}", True)

    def kill_all(self, tickets: list[str]) -> None:
        for ticket in tickets:  # each would take until its next look, which is a second
            self._rpc.stopProcess(f"job:{ticket}", False)

    def command_line(self, verb: str) -> list[str]:
        words = {"ps": ["status"], "run": ["start", "job:0"]}[verb]
        with open(f"{self.place}/jobs/0", "w") as file:
            file.write("true")
        python = str(PEERS / "bin" / "python")
        return [python, "-m", "supervisor.supervisorctl", "-c", f"{self.place}/config", *words]
