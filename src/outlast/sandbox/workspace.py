"""The sandbox of the policy `workspace`: a project and caches are writable, but not from where code is run later.

git, shells and agents run what stands in certain files without being asked to, outside of any sandbox. A command that
could write there would run outside one moment later.
"""

from __future__ import annotations

import os
import sys
from functools import cache

from outlast.linux.files import get_cwd
from outlast.sandbox.bubblewrap import OWN, is_within
from outlast.sandbox.choice import existing_directory, known_kind, refuse_more
from outlast.types import Sandbox

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from outlast.settings import Settings

_START_UP = (  # in the home directory, where they may be links into a project
    *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".inputrc"),
    *(".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".cshrc", ".tcshrc", ".kshrc", ".pam_environment"),
    *(".gitconfig", ".ssh", ".config", ".local/bin", ".vimrc", ".emacs", ".tmux.conf", ".npmrc", ".pythonstartup"),
)
_AGENTS = (".claude", ".codex", ".gemini", ".cursor", ".vscode")  # their directories, in a home as in a project
_IN_PROJECTS = (*_AGENTS, ".idea", ".devcontainer", ".husky", ".githooks", ".outlast", ".mcp.json", ".envrc")
_IN_REPOSITORIES = ("hooks", "config", "config.worktree", "commondir", "gitdir")
_DEEPEST_MODULE = 6
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def sandbox_for(asked: Sandbox | bool | None, settings: Settings, base: str) -> Sandbox | None:
    """The sandbox of a call; none if the call asks to run outside: then the user is asked."""
    if asked is False:
        return None
    home = _real(os.path.expanduser("~"))
    project = find_project(os.path.realpath(base or get_cwd() or "/"), home)
    linked, kept = find_worktree(project) if project else ([], [])
    named_there = [existing_directory(path) for path in settings.sandbox_writable.split(":") if path]
    places = [*([project] if project else []), *linked, *find_caches(settings.sandbox_caches), *named_there]
    protected = (*find_protected(places, home, _PACKAGE), *(path for path in kept if os.path.exists(path)))
    found = Sandbox(
        writable=tuple(dict.fromkeys(places)),
        network=settings.sandbox_network,
        kind=known_kind(settings.sandbox_kind),
        protected=tuple(dict.fromkeys(protected)),
    )
    refuse_more(asked, found)
    return found


@cache
def _real(path: str) -> str:
    """Where a path leads to that no command in the sandbox can move: looked up once, as it takes long for many."""
    return os.path.realpath(path)


def find_project(directory: str, home: str) -> str:
    """The top of the repository that a directory is in, or else the directory; empty if your home would be in it."""
    found = directory
    while not os.path.lexists(f"{found}/.git") and found != "/":
        found = os.path.dirname(found)
    return next((path for path in (found, directory) if path not in ("/", *OWN) and not is_within(home, [path])), "")


def find_caches(setting: str) -> Iterator[str]:
    """The caches that exist."""
    for path in setting.split(":"):
        whole = _real(os.path.expanduser(path)) if path.startswith(("/", "~/")) else "/"
        if whole != "/" and os.path.isdir(whole):
            yield whole


def find_protected(writable: Iterable[str], home: str, package: str) -> list[str]:
    """What in writable places must not change."""
    places = list(writable)
    found = [*_existing(home, _START_UP)]
    found += (package, _real(sys.prefix))  # Outlast itself, which runs outside
    for place in places:
        for name in _AGENTS:
            # If it is not there, an agent that you use would take it from whatever the command puts there.
            if os.path.isdir(f"{home}/{name}") and os.path.lexists(f"{place}/.git"):
                _make(f"{place}/{name}")
        found += _existing(place, _IN_PROJECTS)
        found += _in_repository(f"{place}/.git", place)
    return list(dict.fromkeys(path for path in found if is_within(path, places) and os.path.exists(path)))


def _existing(directory: str, names: Iterable[str]) -> Iterator[str]:
    """Where those of the names lead to that are there; first a look, because most are not."""
    paths = (f"{directory}/{name}" for name in names)
    return (os.path.realpath(path) for path in paths if os.path.lexists(path))


def _make(path: str) -> None:
    try:
        os.mkdir(path, 0o755)
    except OSError:
        pass  # it is there, or no process can write there


def _in_repository(git: str, project: str) -> Iterator[str]:
    if os.path.islink(git):
        yield project  # a link can be replaced, and nothing can be mounted on it
    elif os.path.isfile(git):
        yield git
    elif os.path.isdir(git):
        yield from _in_git_directory(git, project)


def _in_git_directory(git: str, project: str) -> Iterator[str]:
    _make(f"{git}/hooks")
    for name in _IN_REPOSITORIES:
        yield git if os.path.islink(f"{git}/{name}") else f"{git}/{name}"
    yield from _named_in_config(git, project)
    yield f"{git}/worktrees"
    top = git.count("/") + _DEEPEST_MODULE
    for path, directories, _ in os.walk(f"{git}/modules"):
        if path.count("/") >= top:
            directories.clear()
        if "objects" in directories:
            directories[:] = ["modules"] if "modules" in directories else []
            yield from (f"{path}/{name}" for name in _IN_REPOSITORIES)


def _named_in_config(git: str, project: str) -> Iterator[str]:
    """Where git looks for hooks and for more configuration."""
    try:
        with open(f"{git}/config", errors="surrogateescape") as file:
            for line in file:
                name, _, value = (part.strip() for part in line.partition("="))
                if name.lower() in ("hookspath", "path") and value:
                    base = project if name.lower() == "hookspath" else git
                    yield os.path.realpath(os.path.join(base, os.path.expanduser(value.strip('"'))))
    except OSError:
        pass  # it has no configuration


def find_worktree(project: str) -> tuple[list[str], list[str]]:
    """Of a linked work tree: where its repository is, and what there must not change.

    A command can write such a file, too. So the repository must name this work tree in turn.
    """
    git = f"{project}/.git"
    try:
        with open(git, errors="surrogateescape") as file:
            own = os.path.realpath(os.path.join(project, file.readline().removeprefix("gitdir:").strip()))
        with open(f"{own}/gitdir", errors="surrogateescape") as file:
            is_ours = os.path.realpath(file.readline().strip()) == git
    except OSError:
        return [], []
    common = os.path.dirname(os.path.dirname(own))
    if not is_ours or os.path.basename(os.path.dirname(own)) != "worktrees" or not os.path.isdir(f"{common}/objects"):
        return [], []
    kept = [path for path in _in_git_directory(common, project) if path != f"{common}/worktrees"]
    kept += (entry.path for entry in os.scandir(f"{common}/worktrees") if entry.path != own)
    return [common], [*kept, *(f"{own}/{name}" for name in _IN_REPOSITORIES)]
