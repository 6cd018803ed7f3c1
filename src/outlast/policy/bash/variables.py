"""Which variables a line may set without a question, and which ones change what other commands do."""

from __future__ import annotations

import re

_HARMLESS = re.compile(
    r"LANG|LANGUAGE|LC_[A-Z]+|TZ|TERM|COLORTERM|COLUMNS|LINES|NO_COLOR|FORCE_COLOR|CLICOLOR|CLICOLOR_FORCE|CI|NODE_ENV"
    r"|RUST_BACKTRACE|PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE|PYTHONHASHSEED|DEBIAN_FRONTEND|SOURCE_DATE_EPOCH"
)
# Read by the shell, the loader or by many programs as a path, a program, an option or code.
_STEERING = re.compile(
    r"PATH|IFS|ENV|HOME|SHELL|CDPATH|FPATH|PWD|OLDPWD|TMPDIR|TMP|TEMP|BASH.*|SHELLOPTS|GLOBIGNORE|EXECIGNORE|FIGNORE"
    r"|PS[0-4]|PROMPT.*|POSIXLY_CORRECT|HIST.*|INPUTRC|MAIL.*|HOSTALIASES|LD_.*|DYLD_.*|GCONV_PATH|LOCPATH|NLSPATH"
    r"|TEXTDOMAIN.*|GETCONF_DIR|MALLOC_.*|RES_OPTIONS|LOCALDOMAIN|RESOLV.*|TERMINFO.*|TERMCAP|LESS.*|PAGER|MANPAGER"
    r"|MAN_.*|MANOPT|MANPATH|.*PAGER|BROWSER|VISUAL|.*EDITOR|GIT_.*|SSH_.*|SUDO_.*|GREP_OPTIONS|RIPGREP_CONFIG_PATH"
    r"|TAR_OPTIONS|UNZIP|ZIPOPT|GZIP|XZ_.*|RSYNC_.*|CVS_RSH|PYTHON.*|PYTEST_.*|NODE_.*|NPM_.*|npm_.*|YARN_.*|PERL.*"
    r"|RUBY.*|GEM_.*|BUNDLE_.*|LUA_.*|PHP.*|JAVA.*|_JAVA_OPTIONS|JDK_.*|MAVEN_.*|GRADLE_.*|CLASSPATH|GO.*|CARGO_.*"
    r"|RUSTC.*|RUSTFLAGS|CC|CXX|CPP|LD|AR|AS|CFLAGS|CXXFLAGS|CPPFLAGS|LDFLAGS|COMPILER_PATH|GCC_.*|LIBRARY_PATH"
    r"|C_INCLUDE_PATH|CPATH|DEPENDENCIES_OUTPUT|MAKE.*|MFLAGS|CMAKE_.*|DOCKER_.*|KUBECONFIG|AWS_.*|VIM.*|MYVIMRC"
    r"|EXINIT|EMACS.*|AWKPATH|AWKLIBPATH|WGETRC|CURL_.*|.*_proxy|.*_PROXY|OPENSSL_.*|SSL_.*|XDG_.*|DBUS_.*|SYSTEMD_.*"
    r"|FZF_.*|JQ_.*|PG.*|MYSQL.*|SQLITE.*"
)
# Their values are run: by bash, or by a program that many lines call. What Outlast itself reads is as much.
_RUN = re.compile(
    r"PS[0-4]|PROMPT_COMMAND|BASH_ENV|BASH_ALIASES|BASH_CMDS|FCEDIT|.*PAGER|.*EDITOR|VISUAL|BROWSER|LESSOPEN|LESSCLOSE"
    r"|GIT_.*(?:COMMAND|SSH|ASKPASS|DIFF|PARAMETERS|VALUE_.*)|SSH_ASKPASS|SUDO_ASKPASS|RSYNC_RSH|CVS_RSH|OUTLAST_.*"
    r"|ProxyCommand|LocalCommand|KnownHostsCommand"
)
# bash itself reads them, whatever command it runs.
_OF_SHELL = re.compile(r"PS[0-4]|PROMPT.*|IFS|CDPATH|BASH.*|GLOBIGNORE|POSIXLY_CORRECT|SHELLOPTS|HOME|OLDPWD|PWD")
# A line may keep in these, for itself, what a command printed.
_NOTES = re.compile(
    r"(?:[A-Z][A-Z0-9]*_)?(?:VERSION|TAG|SHA|COMMIT|BRANCH|REV|REVISION|HASH|COUNT|DATE|TIMESTAMP|RESULT|STATUS)",
    re.IGNORECASE,
)


def is_note(name: str) -> bool:
    """Whether a line may set it to anything, if it does not hand it on."""
    return _NOTES.fullmatch(name) is not None and not alters_execution(name)


def is_safe(name: str) -> bool:
    """Whether a command may set it without a rule."""
    return _HARMLESS.fullmatch(name) is not None


def alters_execution(name: str) -> bool:
    """Whether its value can make an allowed command do something else."""
    return not is_safe(name) and (_STEERING.fullmatch(name) is not None or is_run(name))


def is_run(name: str) -> bool:
    """Whether its value is run as a command."""
    return _RUN.fullmatch(name) is not None


def alters_shell(name: str) -> bool:
    """Whether bash reads it while it runs its own commands."""
    return _OF_SHELL.fullmatch(name) is not None
