"""`outlast completion`: verbs, options and task ids at the press of a key."""

from __future__ import annotations

from outlast.cli.arguments import Asked, Parser, VerbGroup
from outlast.cli.common import open_shell, write
from outlast.cli.main import VERBS, module_of
from outlast.errors import BadInput, OutlastError

TYPE_CHECKING = False
if TYPE_CHECKING:
    pass

_SHELLS = ("bash", "zsh", "fish")
_TAKE_IDS = ("show", "logs", "wait", "kill", "send", "agent")
_TAKE_WORDS = {
    "tasks": ("all", "running", "completed", "error"),
    "setup": ("claude", "codex", "gemini", "cursor", "vscode"),
}
_IDS_AT_MOST = 50

_BASH = """\
_outlast() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} verb=${{COMP_WORDS[1]}}
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "{verbs}" -- "$word")); return
    fi
    case $verb in
{cases}
    esac
}}
complete -o default -F _outlast outlast
"""
_FISH = "complete -c outlast -n __fish_use_subcommand -f -a {verb} -d {what}\n"


def completion_parser() -> Parser:
    """Return the options of `outlast completion`."""
    made = Parser(
        "completion",
        "Print the completion for a shell.",
        '  eval "$(outlast completion bash)"          # in ~/.bashrc\n'
        '  eval "$(outlast completion zsh)"           # in ~/.zshrc, after compinit\n'
        "  outlast completion fish > ~/.config/fish/completions/outlast.fish",
    )
    made.add("shell", metavar="|".join(_SHELLS), help="the shell to complete in")
    return made


def completion(asked: Asked) -> int:
    """Do what `outlast completion` asks; returns the exit code."""
    shell = asked.shell
    if shell == "ids":
        write(_ids())
    elif shell == "fish":
        write(_fish())
    elif shell in _SHELLS:
        # zsh understands bash's way when told to.
        lead = "autoload -Uz bashcompinit && bashcompinit\n" if shell == "zsh" else ""
        write(lead + _bash())
    else:
        raise BadInput(f"There is no completion for '{shell}'; use one of {', '.join(_SHELLS)}.")
    return 0


def _ids() -> str:
    try:
        with open_shell() as shell:
            return "".join(f"{task.task_id}\n" for task in shell.list(most=_IDS_AT_MOST))
    except OutlastError:
        return ""  # completion never complains


def options_of(verb: str) -> list[str]:
    """Return the long options of a verb and of the commands below it, from its own parser."""
    made: Parser | VerbGroup = getattr(module_of(verb), f"{verb}_parser")()
    parsers = made.commands.values() if isinstance(made, VerbGroup) else [made]
    names = (name for parser in parsers for one in parser.arguments for name in one.names if name.startswith("--"))
    return sorted({"--help", *names})


def _bash() -> str:
    cases = []
    for verb in VERBS:
        ids = "$(outlast completion ids 2>/dev/null)" if verb in _TAKE_IDS else ""
        options = " ".join([*options_of(verb), *_TAKE_WORDS.get(verb, ())])
        cases.append(f'        {verb}) COMPREPLY=($(compgen -W "{options} {ids}" -- "$word")) ;;')
    return _BASH.format(verbs=" ".join(VERBS), cases="\n".join(cases))


def _fish() -> str:
    lines = [_FISH.format(verb=verb, what=f'"{what}"') for verb, (_, what) in VERBS.items()]
    for verb in VERBS:
        seen = f'-n "__fish_seen_subcommand_from {verb}"'
        lines += [f"complete -c outlast {seen} -l {option[2:]}\n" for option in options_of(verb)]
        lines += [f"complete -c outlast {seen} -f -a {word}\n" for word in _TAKE_WORDS.get(verb, ())]
        if verb in _TAKE_IDS:
            lines.append(f'complete -c outlast {seen} -f -a "(outlast completion ids)"\n')
    return "".join(lines)
