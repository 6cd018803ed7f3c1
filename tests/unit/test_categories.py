"""What a command is for, guessed from its text."""

from __future__ import annotations

import pytest

from outlast.categories import category

CASES = {
    "test": [
        "pytest",
        "pytest -x tests",
        "npm test",
        "npm run test",
        "npm run test:unit -- --watch=false",
        "cargo test",
        "go test ./...",
        "make test",
        "make check",
        "python -m pytest -q",
        "python3 -m pytest",
        "uv run pytest",
        "npx jest",
        "./node_modules/.bin/jest",
        "cd app && FOO=1 npm test",
        "CI=1 pnpm vitest",
        "sudo make check",
        "time pytest",
        "(cd x; pytest) | tee log",
        "timeout 60 pytest",
        "nice -n 5 pytest",
        "env A=1 pytest",
    ],
    "build": [
        "make",
        "make all",
        "make -j4",
        "npm run build",
        "cargo build --release",
        "go build",
        "tsc -p .",
        "gcc -O2 a.c",
        "npm install",
        "cmake --build .",
        "./gradlew assemble",
        "docker build .",
    ],
    "server": [
        "npm run dev",
        "npm start",
        "cd web && npm run dev",
        "python -m http.server 8000",
        "python manage.py runserver",
        "uvicorn app:app",
        "docker compose up",
        "npx vite",
        "flask run server",
        "yarn dev:web",
        "nohup npm run dev &",
    ],
    "task": ["npm run lint", "uv sync", "cargo fmt"],
    "bash": [
        "ls -l",
        "echo test",
        "echo make build",
        "grep pytest README",
        "git commit -m 'fix tests'",
        "cat dev.log",
        "python script.py",
        "node script.js",
        "",
        "   ",
        "# pytest",
        "FOO=bar",
        "cd /srv/test",
    ],
}


@pytest.mark.parametrize(("command", "expected"), [(c, kind) for kind, commands in CASES.items() for c in commands])
def test_category(command, expected):
    assert category(command) == expected


def test_the_first_command_that_says_what_it_is_for_decides():
    assert category("npm run build && npm test") == "build"
    assert category("npm test && npm run build") == "test"


def test_a_very_long_command_is_judged_quickly():
    assert category("x " * 500_000) == "bash"
    assert category("a" * 1_000_000) == "bash"
