"""Files that matter more than others: those from which code is run later, and Outlast's own rules. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from functools import cache

from outlast.policy.bash.words import names

# What a shell, git, ssh or a tool runs or obeys on its own: no rule lets a command write it.
_NEVER = re.compile(
    r"(?:.*/)?(?:\.git|\.hg|\.svn|\.ssh|\.gnupg|\.husky|\.githooks|\.config|\.cargo|\.vim|\.emacs\.d|\.docker|\.kube|\.aws"
    r"|\.claude|\.outlast|\.vscode|\.idea|\.github|\.gitlab|\.circleci|cron[.\w]*|profile\.d|site-packages|\.local|\.npm|\.bin|node_modules|\.?venv)(?:/.*)?"
    r"|(?:.*/)?(?:\.(?:ba|z|k|c|tc|mk|da)?shrc|\.bash_\w+|\.(?:z|bash_|z?)?profile|\.zshenv|\.zlog\w+|\.login|\.logout|\.inputrc|\.envrc"
    r"|\.gitconfig|\.gitattributes|\.gitmodules|\.\w*vimrc|\.exrc|\.emacs|\.\w+rc|\.\w+init|\.tmux\.conf|authorized_keys|crontab|sudoers"
    r"|outlast\.policy\.toml|HEAD)"
    r"|/(?:etc|usr|bin|sbin|lib\w*|boot|dev|proc|sys|root|var/spool)(?:/.*)?"
)
# What build tools, package managers and test runners read as instructions.
_BUILD = re.compile(
    r"(?:GNU)?[Mm]akefile.*|.*\.(?:mk|mak|cmake|ninja|bzl|gradle|gradle\.kts|gemspec|pth|exs|bat|cmd|ps1|service|timer|desktop|dockerfile)"
    r"|CMakeLists\.txt|CMake\w*Presets\.json|CMakeCache\.txt|package(?:-lock)?\.json|npm-shrinkwrap\.json|\.pnpmfile\.cjs|pnpm-.*\.yaml"
    r"|yarn\.lock|\.yarnrc\.yml|\.npmrc|setup\.(?:py|cfg)|pyproject\.toml|conftest\.py|pytest\.ini|tox\.ini|noxfile\.py|tasks\.py"
    r"|(?:site|user)customize\.py|__init__\.py|__main__\.py|requirements.*|constraints.*\.txt|Pipfile.*|poetry\.lock|uv\.(?:lock|toml)"
    r"|pip\.conf|Cargo\.(?:toml|lock)|build\.rs|rust-toolchain.*|.*pom\.xml|build\.xml|gradle\.properties|gradlew|mvnw|mix\.(?:exs|lock)"
    r"|Rakefile|Gemfile.*|[Jj]ustfile|Taskfile.*|Vagrantfile|Dockerfile.*|Containerfile.*|(?:docker-)?compose.*\.ya?ml|Jenkinsfile|Procfile"
    r"|\.gitlab-ci\.yml|\.travis\.yml|\.pre-commit-config\.yaml|lefthook\.ya?ml|WORKSPACE.*|BUILD(?:\.bazel)?|MODULE\.bazel|SCons\w+"
    r"|wscript|meson\.build|configure(?:\..*)?|.*\.(?:m4|am|ac)|go\.(?:mod|sum|work)|.*\.config\.[cm]?[jt]s|\.\w+rc\.\w+|tsconfig.*\.json"
    r"|bunfig\.toml|deno\.jsonc?|composer\.json|ansible\.cfg|.*\.tf|autogen.*|bootstrap"
    r"|(?:pre|post)-[a-z]+(?:-[a-z]+)*|(?:applypatch|commit|prepare-commit)-msg|fsmonitor-watchman.*",
)
_CODE = re.compile(
    r"\.(?:py[wcx]?|[cm]?[jt]sx?|rb|pl|pm|php|lua|sh|bash|zsh|fish|ksh|awk|sed|go|rs|c|h|cc|cpp|hpp|java|kt|scala|ex|jl|R|tcl|el|vim|so|jar|wasm)"
)
_PACKED = re.compile(r"\.(?:gz|bz2|xz|zst|lz4|orig|rej)\Z")
_DEVICES = frozenset(["/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/tty", "-"])
_READERS = names("""
    cat ls head tail grep egrep fgrep wc stat du df less more file diff cmp rg find md5sum sha256sum readlink realpath
""")
# They run, or obey, what stands in the directory that they run in.
RUNS_PROJECT = names("""
    git make gmake cmake ctest ninja npm npx yarn pnpm bun bunx node tsc eslint prettier jest vitest mocha python
    python3 pytest tox nox pip pip3 uv poetry pipenv pdm hatch cargo go mix mvn gradle dotnet rake bundle just task
""")
_WRITING_TEST = re.compile("-(?:fprint|fls|delete|exec|ok)")  # of find
_HOME = re.compile(r"\$\{?OUTLAST_HOME\}?")


def runs_later(path: str | None, sources: Sequence[str | None] = ()) -> str:
    """Why writing a file may be running it, a little later; "" if it is a file like any other."""
    if path is None:
        return "which file it writes is not known"
    if path in _DEVICES:
        return ""
    path = _PACKED.sub("", os.path.normpath(path.partition("?")[0]))
    name = path.rpartition("/")[2]
    if _NEVER.fullmatch(path) or _BUILD.fullmatch(name):
        return f"{path} is read by programs that run what is in it"
    suffix = os.path.splitext(name)[1]
    if _CODE.fullmatch(suffix) and not (sources and all(one and one.endswith(suffix) for one in sources)):
        return f"{path} may be run later"
    return ""


def runs_by_itself(path: str) -> bool:
    """Whether a shell, git or cron runs a file without being told to."""
    return _NEVER.fullmatch(path) is not None


def names_file(path: str | None) -> bool:
    """Whether a path looks like a file rather than a directory that takes one."""
    return path is not None and "." in path.rpartition("/")[2].strip(".")


def leaves(path: str) -> bool:
    """Whether a path is not below the directory that it is seen from."""
    return path.startswith(("/", "~")) or os.path.normpath(path).startswith("..")


def foreign_directory(name: str, directory: str, root: str, is_new: bool) -> str:
    """Why a program must not run what it finds in a directory, seen from the one that the user works in; "" if it may.

    git obeys the configuration of the repository that it is in, so one of its own below the project counts, too. This
    looks at the file system: nothing in the line tells it. `is_new`: the line may have made it just now.
    """
    directory = os.path.normpath(directory) if directory else ""
    if directory != root and not directory.startswith(f"{root.rstrip('/')}/"):
        return "it runs what another directory holds"
    while name == "git" and directory != root:
        own = any(os.path.lexists(f"{directory}/{one}") for one in (".git", "HEAD"))
        if own or (is_new and not os.path.lexists(directory)):
            return f"{directory[len(root) :].strip('/')} may be a repository of its own, whose settings name programs"
        directory = os.path.dirname(directory)
    return ""


def may_write(path: str | None, write: tuple[str, ...]) -> bool:
    """Whether a `write` rule allows a file: never what runs on its own, a build file only by its whole name."""
    if not write or path is None or path[:1] in ("~", "", "-"):
        return False
    whole = os.path.normpath(path)
    if whole.startswith("..") or _NEVER.fullmatch(whole):
        return False
    fits = [one for one in write if _glob(one).fullmatch(whole)]
    name = whole.rpartition("/")[2]
    return any(one.rpartition("/")[2] == name for one in fits) if _BUILD.fullmatch(name) else bool(fits)


@cache
def _glob(pattern: str) -> re.Pattern[str]:
    """`*` stays in one directory, `**` does not; without a slash it is a name in any directory."""
    pattern = pattern.removeprefix("./")
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    text = "".join(known.get(part) or re.escape(part) for part in parts)
    return re.compile(text if "/" in pattern else f"(?!/)(?:.*/)?{text}", re.DOTALL)


def make_protection_check(home: str) -> Callable[[tuple[str | None, ...], str, bool], str | None]:
    """A hazard for every policy: no command writes the rules and settings in the state directory `home`."""
    user = os.path.expanduser("~")
    state, mark = os.path.normpath(home), os.path.basename(os.path.normpath(home))
    tails = tuple(f"{mark}/{name}" for name in ("policy.toml", "config.toml"))

    def is_ours(text: str, where: str = "") -> bool:
        path = re.sub(r"^(?:~(?=/|$)|\$HOME|\$\{HOME\})", user, _HOME.sub(state, text).rpartition("=")[2])
        path = os.path.normpath(path if path[:1] == "/" or where[:1] != "/" else f"{where}/{path}")
        if any(char in path for char in "*?["):
            return any(_glob(path).fullmatch(f"{state}{name}") for name in ("", "/policy.toml", "/config.toml"))
        return path == state or path.startswith(f"{state}/") or path.endswith(tails) or f"{state}/" in text

    def look(words: tuple[str | None, ...], where: str, elsewhere: bool) -> str | None:
        reads = (words[0] or "").rpartition("/")[2] in _READERS
        if elsewhere or (reads and not any(word and _WRITING_TEST.match(word) for word in words)):
            return None
        inside = where != "" and is_ours(where)  # then every file that it names without a directory is one of them
        for word in words[1:]:
            named = word and (word[:1] != "-" or "=" in word) and is_ours(word, where)
            if named or (inside and word and word[:1] not in "-/"):
                return "it could change what checks it: Outlast's own rules and settings are there"
        return None

    return look
