"""One frozen `Settings`, read once: defaults, then `config.toml`, then `OUTLAST_*` variables.

Options of a call come last and are not settings. A file in the working directory is
never read: what a repository contains must not widen what is allowed.
"""

from __future__ import annotations

import os

from outlast.errors import BadInput, StateRefused
from outlast.light import fields, frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


_NO_TABLE: Mapping[str, object] = {}
_DEVELOPMENT = (
    "npm pnpm yarn node npx bun bunx deno tsx ts-node nodemon corepack webpack vite jest vitest mocha playwright "
    "cypress next nuxt astro turbo nx tsc eslint rollup esbuild parcel ng gulp grunt "
    "python python3 pytest tox nox uv uvx poetry pip pipenv pdm hatch conda mamba flask uvicorn gunicorn django-admin "
    "go cargo rustc make gmake cmake ctest ninja meson bazel bazelisk buck2 just task gcc g++ clang clang++ "
    "docker docker-compose podman kubectl helm terraform vagrant skaffold tilt "
    "gradle gradlew mvn mvnw ant sbt java javac kotlinc scala lein clojure dotnet msbuild swift xcodebuild "
    "ruby rails rake bundle bundler rspec jekyll php composer artisan phpunit mix iex elixir erl rebar3 "
    "ghc cabal stack dart flutter zig nim hugo mkdocs sphinx-build"
)
_ALLOWED = (
    "git mix elixir npm npx node yarn pnpm python python3 pip uv pytest cargo go make cmake ls cat head tail grep rg "
    "find wc sort uniq diff echo pwd date sleep true false mkdir cp mv touch"
)

_CACHES = (
    "~/.cache:~/.npm:~/.yarn:~/.pnpm-store:~/.local/share/pnpm/store:~/.bun/install/cache:~/.cargo/registry:~/.cargo/git:"
    "~/go/pkg/mod:~/.gradle/caches:~/.m2/repository:~/.ivy2/cache:~/.nuget/packages:~/.hex:~/.pub-cache:~/.ccache"
)


@frozen
class Settings:
    """What can be set. The name of each is also its variable (`OUTLAST_` in front) and its key in the file.

    Lists in a text have blanks between their words.
    """

    output_limit_bytes: int = 100_000_000  # what is kept of one task's output: the first half, and the newest rest
    state_limit_bytes: int = 10_000_000_000  # what all tasks together may keep
    free_floor_bytes: int = 256 * 1024 * 1024  # free space that output never takes (at most a twentieth of the disk)
    retention_hours: float = 24.0  # how long a finished task is kept
    foreground_limit_s: float = 120.0  # how long a foreground command may run if the call sets no limit
    max_wait_s: float = 600.0  # the longest wait of one call; a longer one is cut
    kill_grace_s: float = 2.0  # from asking a tree to end to ending it: a dev server has to close its sockets
    shown_chars: int = 30_000  # what one reply shows of the output at most
    auto_background: bool = False  # whether a foreground development command that prints moves to the background
    auto_background_after_s: float = 2.0  # how long such a command is waited for first
    development_commands: str = _DEVELOPMENT  # the programs of such commands; with a + in front, besides the usual
    max_running: int = 10  # how many background tasks run at once, the rest are pending; 0: all of them
    notice_days: float = 30.0  # how long a notice is kept, and an event
    notice_chars: int = 2000  # what a model is told in one turn at most, all notices together
    notify_cooldown_s: float = 5.0  # between two notices about matching lines of one task
    notify_most: int = 20  # how many such notices there are of one task; then one says that there are no more
    mcp_wait_s: float = 45.0  # the longest wait of one call over MCP: many clients give up after 60 s
    mcp_tasks: bool = True  # whether a client that knows MCP tasks gets one for what outlasts its call
    mcp_structured: bool = False  # whether MCP results have structured content; many agents show a model only that
    cancel_ends_foreground: bool = True  # whether cancelling an MCP call ends the foreground command that it started
    detach_key: str = "<C-]>"  # the key with which a person leaves `outlast attach`: Ctrl and a character
    shell: str = ""  # the shell that runs commands; empty means bash, or /bin/sh where there is none
    session: str = "default"  # the session that commands belong to
    hold_secrets: bool = True  # whether secret variables of the caller are held back from commands
    pass_secrets: str = ""  # the names of those that commands get nevertheless, between blanks; `*` stands for anything
    secret_names: str = ""  # variables that are secret though they do not look like it; `*` stands for anything
    mask_secrets: bool = True  # whether secrets are masked in what is shown
    sandbox: bool = False  # whether every command runs in a sandbox; if the file says so, no variable changes it
    sandbox_writable: str = ""  # directories that a command in a sandbox may write to besides its own; : between
    sandbox_caches: str = _CACHES  # caches that exist and may be written to under the policy `workspace`; : between
    sandbox_network: bool = False  # whether a command in a sandbox may use the network
    sandbox_kind: str = ""  # how: bubblewrap or landlock; empty means bubblewrap, or landlock where that does not work
    memory_limit_bytes: int = 0  # how much memory each process of a task may ask for; 0 means as much as there is
    process_limit: int = 0  # how many processes a task's user may have while it starts another; 0: as many as may be
    cpu_limit_s: int = 0  # how many seconds of CPU each process of a task may use; 0 means as many as it likes
    file_size_limit_bytes: int = 0  # how large a file may become that a task writes; 0 means as large as it likes
    policy: str = ""  # the policy that holds for everything, besides that of a call: a name or a file; empty means none
    approval_wait_s: float = 300.0  # how long a process waits for a yes on the page of `outlast serve`; 0: not at all
    allowed_programs: str = _ALLOWED  # of the policies `programs` and `allowlist`; with a + in front, besides the usual
    agents: Mapping[str, object] = _NO_TABLE  # types by name: a command line, or a table with one; only in the file
    executors: Mapping[str, object] = _NO_TABLE  # other machines by name, a table with a `kind` each; only in the file


# The smallest sensible values, where 0 is none; everything below is a typing mistake.
_LEAST: dict[str, float] = {
    "output_limit_bytes": 1024,
    "state_limit_bytes": 1024 * 1024,
    "foreground_limit_s": 0.001,
    "shown_chars": 200,
    "notice_chars": 500,
    "notify_most": 1,
    "mcp_wait_s": 0.1,
}
_KINDS: dict[type, str] = {
    int: "a number, and a whole one",
    float: "a number",
    bool: "true or false",
    str: "text",
    dict: "a table",
}
_MOST = 1 << 53  # what every file format and the index can hold
_TABLES = ("agents", "executors")  # what no variable can say
_TRUTH = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def development_commands(settings: Settings) -> frozenset[str]:
    """Return the names of development commands, in lower case."""
    return frozenset(_extend(settings.development_commands.lower(), _DEVELOPMENT))


def allowed_programs(settings: Settings) -> tuple[str, ...]:
    """Return the names of the programs that the policies `programs` and `allowlist` allow."""
    return tuple(_extend(settings.allowed_programs, _ALLOWED))


def _extend(text: str, usual: str) -> list[str]:
    """Return the words of a list; one that begins with a + is besides the usual ones."""
    text = text.lstrip()
    return (f"{text[1:]} {usual}" if text.startswith("+") else text).split()


def default_home(env: Mapping[str, str]) -> str:
    """Where state lives: `$OUTLAST_HOME`, otherwise below the user's state directory."""
    if home := env.get("OUTLAST_HOME"):
        return os.path.abspath(home)
    base = env.get("XDG_STATE_HOME", "")
    if not os.path.isabs(base):  # by the XDG specification a relative path is ignored
        given = os.environ.get("HOME")
        base = os.path.join(os.path.expanduser("~") if given != "" else given, ".local", "state")
    if not os.path.isabs(base):  # the state would be written into the working directory
        why = "HOME is not an absolute path"
        if base[0] == "~":
            why = f"HOME is not set and user {os.getuid()} has no home directory"
        raise StateRefused(f"There is no place for the state: {why}; set OUTLAST_HOME.")
    return os.path.join(os.path.normpath(base), "outlast")


def load(home: str, env: Mapping[str, str], defaults: Mapping[str, object] | None = None) -> Settings:
    """The settings that hold for this state directory and environment; `defaults` are a face's own."""
    given: dict[str, object] = dict(defaults or {})
    path = os.path.join(home, "config.toml")
    for name, value in _from_file(path).items():
        given[name] = _check_setting(name, value, f"{name!r} in {path}")
    # In the file it is the state's owner who says so; a variable can be anybody's.
    imposed = given.get("sandbox") is True
    for name in fields(Settings()):
        if (imposed and name.startswith("sandbox")) or name in _TABLES:
            continue
        variable = "OUTLAST_" + name.upper()
        if (text := env.get(variable)) not in (None, ""):
            given[name] = _check_setting(name, text, variable)
    return Settings(**given)  # type: ignore[arg-type]


def _from_file(path: str) -> dict[str, object]:
    try:
        file = open(path, "rb")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        if not os.access(os.path.dirname(path), os.X_OK):
            return {}  # `open_home` says what is wrong with it
        raise BadInput(f"The settings file {path} cannot be read: {error.strerror}; put one there that can.") from None
    import tomllib  # only here: most machines have no such file

    with file:
        try:
            return tomllib.load(file)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise BadInput(f"The settings file {path} is not valid TOML: {error}; correct it.") from None


def _check_setting(name: str, value: object, where: str) -> object:
    """Return the value of a setting, converted to its type. Raises `BadInput`."""
    known = fields(Settings())
    if name not in known:
        raise BadInput(f"There is no setting {where}; known are {', '.join(known)}.")
    kind = type(known[name])
    if kind in (int, float):
        return _number(kind, name, value, where)
    if kind is bool and (truth := _TRUTH.get(str(value).lower())) is not None:
        return truth
    if kind is bool or not isinstance(value, kind):
        raise BadInput(f"The setting {where} must be {_KINDS[kind]}, not {value!r}.")
    return value


def _number(kind: type, name: str, value: object, where: str) -> object:
    try:
        number = kind(value)
        if isinstance(value, bool) or (kind is int and isinstance(value, float) and number != value):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise BadInput(f"The setting {where} must be {_KINDS[kind]}, not {value!r}.") from None
    if not number >= (least := _LEAST.get(name, 0)):
        raise BadInput(f"The setting {where} must be at least {least}, not {value}.")
    if kind is int and number > _MOST:
        raise BadInput(f"The setting {where} must be at most {_MOST}, not {value}.")
    return number
