"""`outlast completion`: verbs, options and task ids at the press of a key."""

from __future__ import annotations

from importlib import import_module

from outlast.cli.main import VERBS
from outlast.cli.options import Parser, open_shell, parse, write
from outlast.errors import BadInput, OutlastError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_SHELLS = ("bash", "zsh", "fish")
_TAKE_IDS = ("show", "logs", "wait", "kill", "send", "agent")
_TAKE_WORDS = {
    "tasks": ("all", "running", "completed", "error"),
    "setup": ("claude", "codex", "gemini", "cursor", "vscode"),
    "agent": ("start", "register", "status", "done", "read", "list", "stop", "types"),
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
    made = Parser(
        "completion",
        "Print the completion for a shell.",
        '  eval "$(outlast completion bash)"          # in ~/.bashrc\n'
        '  eval "$(outlast completion zsh)"           # in ~/.zshrc, after compinit\n'
        "  outlast completion fish > ~/.config/fish/completions/outlast.fish",
    )
    made.add_argument("shell", metavar="|".join(_SHELLS), help="the shell to complete in")
    return made


def completion(words: Sequence[str]) -> int:
    shell = parse(completion_parser(), words).shell
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
    """The long options of a verb, from its own parser."""
    module = import_module(f"outlast.cli.{VERBS[verb][0]}")
    make = getattr(module, f"{verb}_parser", None) or getattr(module, "parser", None)
    if make is None:
        return []
    made: Parser = make()
    return sorted(option for option in made.thorough()._option_string_actions if option.startswith("--"))


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
