"""The programs that the episodes are about. They are written into a temporary directory and do what they say.

Every program writes its pid into `running/`, so a check can look at the process itself and count the starts.
What a program prints that a model cannot guess (`secret`) comes from `.world.json`, and is new in each episode.
"""

from __future__ import annotations

import stat
import sys
from pathlib import Path

_BEGINNING = """#!{python} -u
import json, os, sys, time
HERE = os.path.dirname(os.path.abspath(__file__))
WORLD = json.load(open(f"{{HERE}}/.world.json"))
SCALE = WORLD["scale"]

def secret(name):
    return WORLD["secrets"][name]

def note_pid(name):
    open(f"{{HERE}}/running/{{name}}.{{os.getpid()}}", "w").close()
"""

_SERVE = """
# A development server: it takes 10 s to come up, and says at which address it listens.
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

name = sys.argv[1]
note_pid(name)

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        body = f"{name} version {secret(name)}\\n".encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

for part in ("configuration", "plugins", "214 modules", "assets", "routes"):
    print(f"[{name}] loading {part}")
    time.sleep(2 * SCALE)
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(f"[{name}] ready on http://127.0.0.1:{server.server_port}")
server.serve_forever()
"""

_WATCH = """
# Builds src/main.txt, and again whenever it changes. A build takes 4 s.
import hashlib

note_pid("watch")
path, seen, number = f"{HERE}/src/main.txt", None, 0
while True:
    text = open(path).read()
    if text and text != seen:
        if number:
            print("src/main.txt has changed, building")
        seen, number = text, number + 1
        time.sleep(4 * SCALE)
        if "syntax error" in text:
            print(f"build #{number} failed: syntax error in src/main.txt, line {secret('line')}")
        else:
            print(f"build #{number} ok: {hashlib.sha256((secret('watch') + text).encode()).hexdigest()[:10]}")
        print("watching for changes")
    time.sleep(0.05)
"""

_INSTALL = """
# Asks before it does anything; without an answer it does nothing.
note_pid("install")
given = {}
for key, question in WORLD["questions"]:
    print(f"{question} [y/n] ", end="")
    answer = sys.stdin.readline().strip()
    if answer not in ("y", "n"):
        sys.exit("\\naborted: this has to be answered with y or n")
    print({"y": "yes", "n": "no"}[answer])
    given[key] = answer
    time.sleep(1 * SCALE)
with open(f"{HERE}/installed.json", "w") as file:
    json.dump(given, file)
print(f"installed as {secret('install')}")
"""

_IMPORT = """
# Imports many batches, and says a line about each: 50 MB. One of them is refused.
note_pid("import")
print(f"import of {WORLD['batches']} batches begins")
refused, pieces = WORLD["batches"] * 61 // 100, []
for number in range(WORLD["batches"]):
    at = f"2026-03-01T04:{number // 60000 % 60:02}:{number // 1000 % 60:02}.{number % 1000:03}Z"
    if number == refused:
        part = f"part-{secret('import')}.parquet"
        pieces.append(f"{at} ERROR worker-3 batch {number} refused: checksum mismatch in {part}")
        pieces.append(f"{at} ERROR worker-3 expected 5f1d0c9a, found 00000000: the file ends early")
    else:
        pieces.append(f"{at} INFO  worker-{number % 8} batch {number} imported, {number * 7919 % 997} rows")
    if len(pieces) > 9999:
        sys.stdout.write("\\n".join(pieces) + "\\n")
        pieces.clear()
sys.stdout.write("\\n".join(pieces) + "\\n")
print(f"import ended: {WORLD['batches'] - 1} batches imported, 1 refused")
sys.exit(1)
"""

_BUILD = """
# Says something every 10 s; takes 90 s, or 40 s if it builds only the core.
note_pid("build")
steps = 4 if "--core" in sys.argv else 9
for step in range(1, steps + 1):
    print(f"step {step} of {steps}: compiling package {step}")
    time.sleep(10 * SCALE)
print(f"built: artifact {secret('build')}.tar")
"""

_CHECK = """#!/bin/bash
# Checks the client against a server of its own, and forgets to end it.
cd "$(dirname "$0")"
./serve.py mock &
for _ in $(seq 200); do
    compgen -G 'running/mock.*' >/dev/null && break
    sleep 0.05
done
echo "check passed, report {report}"
"""

_DETACH = """#!/bin/bash
# Starts a cache that is to be there for later commands.
cd "$(dirname "$0")"
setsid ./serve.py cache >/dev/null 2>&1 </dev/null &
for _ in $(seq 200); do
    compgen -G 'running/cache.*' >/dev/null && break
    sleep 0.05
done
echo "cache started"
"""

_RUN_TESTS = """#!/bin/bash
# The test suite.
cd "$(dirname "$0")"
touch "running/tests.$$"
PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 exec {python} -m pytest -v -p no:cacheprovider --rootdir=. -c /dev/null tests
"""

_TESTS = """
import logging
import pytest

INVOICES = {number: 100 + number for number in range(240)}

def total(number):
    logging.getLogger("shop").warning("adding up invoice %s: 3 positions, currency EUR, rate 1.0", number)
    return INVOICES[number] - (3 if number in BROKEN else 0)

BROKEN = range(97, 240, 13)
NAMES = {97: "SECRET"}

@pytest.mark.parametrize("number", INVOICES)
def test_total_of_an_invoice_is_the_sum_of_its_positions(number):
    expected = 100 + number
    found = total(number)
    invoice = NAMES.get(number, f"invoice-{number}")
    assert found == expected, f"the positions do not add up to the total in {invoice}"
"""

_SCRIPTS = {
    "serve.py": _SERVE,
    "watch.py": _WATCH,
    "install.py": _INSTALL,
    "import.py": _IMPORT,
    "build.py": _BUILD,
}


def write_programs(root: Path, secrets: dict[str, str]) -> None:
    """Write all programs into that directory."""
    beginning = _BEGINNING.format(python=sys.executable)
    for name, text in _SCRIPTS.items():
        _write_script(root / name, beginning + text)
    _write_script(root / "check.sh", _CHECK.format(report=secrets["check"]))
    _write_script(root / "detach.sh", _DETACH)
    _write_script(root / "run-tests", _RUN_TESTS.format(python=sys.executable))
    for directory in ("running", "src", "tests"):
        (root / directory).mkdir()
    (root / "src" / "main.txt").write_text("version 1\n")
    (root / "tests" / "test_invoices.py").write_text(_TESTS.replace("SECRET", f"invoice-{secrets['test']}"))


def _write_script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
