"""`outlast mcp --http` behind somebody who knows the token, for clients that cannot be given one."""

from __future__ import annotations

import http.client
import secrets
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.clients.place import Place

Translate = Callable[[dict[str, str], bytes], tuple[dict[str, str], bytes]]

_PIECE = 65536
_PATIENCE_S = 60.0
_HOP = ("connection", "transfer-encoding", "keep-alive", "content-length")


@contextmanager
def served(here: Place, *words: str, translate: Translate) -> Iterator[str]:
    """The address of a server that asks for no token; what it is asked is translated first."""
    with server(here, *words) as (own, token), _door(own, token, translate) as address:
        yield f"http://{address}/mcp"


@contextmanager
def server(here: Place, *words: str) -> Iterator[tuple[str, str]]:
    """A server over HTTP: its address and its token."""
    command, args, env = here.server("--http", "127.0.0.1:0", *words)
    token = secrets.token_hex(16)
    how = {**here.env, **env, "OUTLAST_HTTP_TOKEN": token}
    with subprocess.Popen([command, *args], cwd=here.work, env=how, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            yield running.stdout.readline().split("/")[2], token
        finally:
            running.terminate()


@contextmanager
def _door(own: str, token: str, translate: Translate) -> Iterator[str]:
    known = {"own": own, "token": token, "translate": staticmethod(translate)}
    kind = type("Doorman", (_Doorman,), known)
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as door:
        door.daemon_threads = True  # some hold a stream that ends with the server only
        thread = threading.Thread(target=door.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{door.server_port}"
        finally:
            door.shutdown()
            thread.join()


class _Doorman(BaseHTTPRequestHandler):
    own: str
    token: str
    translate: Translate

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        assert isinstance(self.server, ThreadingHTTPServer)
        ours = f"127.0.0.1:{self.server.server_port}"
        # A strange Host or Origin stays one: that is what the server has to refuse.
        asked = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
        headers = {name: value.replace(ours, self.own) for name, value in asked.items()}
        headers["Authorization"] = f"Bearer {self.token}"
        headers, body = self.translate(headers, self.rfile.read(int(self.headers.get("content-length", 0))))
        own = http.client.HTTPConnection(self.own, timeout=_PATIENCE_S)
        try:
            own.request(self.command, self.path, body or None, headers)
            self._pass_on(own.getresponse())
        except (OSError, http.client.HTTPException):
            pass  # one of the two has hung up
        finally:
            own.close()

    do_GET = do_DELETE = do_POST

    def _pass_on(self, answer: http.client.HTTPResponse) -> None:
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _HOP:
                self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        while piece := answer.read1(_PIECE):
            self.wfile.write(piece)
            self.wfile.flush()
