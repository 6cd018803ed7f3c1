"""What a command is for, guessed from its text: test, build, server, task, or just bash."""

from __future__ import annotations

import os
from functools import lru_cache

from outlast.program_names import simple_commands, unwrap


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_RUNNERS = _names(
    "npm pnpm yarn bun npx make just task cargo go gradle gradlew mvn mix dotnet deno uv poetry rake bundle composer"
)
_TEST = _names("pytest jest vitest mocha tox nox rspec phpunit ctest playwright cypress")
_BUILD = _names("tsc webpack rollup esbuild cmake ninja gcc g++ clang cc rustc javac bazel meson")
_SERVER = _names("vite uvicorn gunicorn hypercorn nginx redis-server postgres mongod serve http-server nodemon caddy")
_SERVER_WORDS = frozenset({"dev", "start", "serve", "server", "runserver", "watch", "preview", "http.server", "up"})
_TEST_WORDS = frozenset({"test", "tests", "check", "spec", "e2e"})
_BUILD_WORDS = frozenset({"build", "compile", "install", "package", "assemble", "all", "dist", "release", "clippy"})
_RUN_TOOLS = frozenset({"npx", "bunx", "bun", "pnpm", "yarn", "python", "python3", "uv", "poetry", "bundle"})
_RUN_WORDS = frozenset({"run", "exec", "x", "dlx"})


@lru_cache(maxsize=256)  # a task's is asked for at every look at it
def category(command: str) -> str:
    """The first simple command that says what it is for decides."""
    for words in simple_commands(command):
        found = _of_words([os.path.basename(word) for word in unwrap(words)])
        if found:
            return found
    return "bash"


def _of_words(words: list[str]) -> str | None:
    if not words:
        return None
    name, rest = words[0], words[1:4]
    tool = next((word for word in rest if word not in _RUN_WORDS and not word.startswith("-")), "")
    for category, names in (("test", _TEST), ("build", _BUILD), ("server", _SERVER)):
        if name in names or (name in _RUN_TOOLS and tool in names):
            return category
    if name not in _RUNNERS and name not in {"node", "python", "python3", "docker", "rails", "flask", "php"}:
        return None
    said = {piece for word in rest for piece in (word, *word.split(":"))}
    for category, names in (("test", _TEST_WORDS), ("server", _SERVER_WORDS), ("build", _BUILD_WORDS)):
        if said & names:
            return category
    return "build" if name in {"make", "just", "gradle", "gradlew", "mvn"} else "task" if name in _RUNNERS else None
