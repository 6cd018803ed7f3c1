"""Shells: what they are told to run."""

from __future__ import annotations

from outlast.policy.bash.words import Word, names, with_text
from outlast.policy.commands.builtins import is_computed
from outlast.policy.commands.getopt import grammar, parse
from outlast.policy.commands.nested import NestedCommands, ShellText, is_static, join

SHELLS = names("""
    sh bash dash ash zsh ksh mksh fish rbash rksh yash csh tcsh posh lksh pwsh xonsh nu elvish
""")
_LIKE_BASH = frozenset(["bash", "rbash"])
_LIKE_SH = frozenset(["sh", "dash", "ash"])
_BASH = grammar("""
    -abefhklmnptuvxBCDEHPTO:o:crisl login norc noprofile posix verbose debugger restricted rcfile= init-file=
    dump-strings noediting help version
""")
# What they set changes neither how a text is read nor what is loaded.
_QUIET = names("e u x v f l login norc noprofile verbose h b m C B c help version s n")
_QUIET_NAMES = names("pipefail errexit nounset xtrace noglob verbose noclobber errtrace nolog")


def code_of_shell(words: list[Word], name: str, bodies: list[str]) -> NestedCommands:
    """What a shell is told to run: -c TEXT, a script, or its standard input."""
    kept = [words[0], *[word for word in words[1:] if word.text[:1] != "+"]]
    plus, words = len(kept) < len(words), kept
    lone = next((at for at, word in enumerate(words) if word.text == "-"), 0)
    if lone and all(word.text[:1] == "-" for word in words[1:lone]):
        words = [*words[:lone], *words[lone + 1 :]]  # it ends the options, as `--` does
    parsed = parse(words, 1, _BASH, first=True)
    options = parsed.options
    before = words[1 : parsed.operands[0]] if parsed.operands else words[1:]
    doubt = "" if is_static(before) and not plus else "its own words cannot be read"
    hides = any(words[index].splits and words[index].unknown for index in parsed.unsure)  # it may be -c and a text
    doubt = doubt or ("its words are not known" if hides else "")
    loud = [one for one in options if (one.text not in _QUIET_NAMES if one.name == "o" else one.name not in _QUIET)]
    if loud and not doubt:
        doubt = f"{loud[0].written} changes how it reads"
    shell = "bash" if name in _LIKE_BASH else "sh" if name in _LIKE_SH else name
    given = [option.name for option in options]
    reads_start_up = "rcfile" in given or "init-file" in given
    if "c" in given and parsed.operands:
        text, *rest = (words[index] for index in parsed.operands)
        code = ShellText(text.text, shell, text.static, tuple(rest))
        return NestedCommands([code], doubt=doubt, hides=reads_start_up)
    if "help" in given or "version" in given:
        return NestedCommands([])
    if "n" in given:
        return NestedCommands([], doubt=doubt)
    if parsed.operands and "s" not in given and "c" not in given:
        script = words[parsed.operands[0]]
        if is_computed(script):
            return NestedCommands([], doubt="its program is made just now", hides=True)
        return NestedCommands([], doubt=doubt, hides=hides or reads_start_up)  # a script: `options` has the rest
    texts = [ShellText(body, shell, False) for body in bodies]
    return NestedCommands(texts, doubt="its program comes from its input", hides=True)


# --- builtins that are given a text to run ---


def code_of_eval(words: list[Word]) -> NestedCommands:
    """Return the shell text that `eval` runs."""
    rest = _behind_dashes(words)
    return NestedCommands([join(rest, "bash")] if rest else [])


def code_of_trap(words: list[Word]) -> NestedCommands:
    """Return the shell text that `trap` sets."""
    rest = _behind_dashes(words)
    shows = not rest or rest[0].text in ("-", "", "-l", "-p", "-P") or (len(rest) == 1 and rest[0].static)
    return NestedCommands([] if shows else [join(rest[:1], "bash")])


def _behind_dashes(words: list[Word]) -> list[Word]:
    return words[2:] if len(words) > 1 and words[1].text == "--" else words[1:]


def code_of_alias(words: list[Word]) -> NestedCommands:
    """Return the shell text that `alias` defines."""
    bodies = []
    for word in words[1:]:
        _, set_, body = word.text.partition("=")
        if set_:
            bodies.append(join([with_text(word, body)], "bash"))
    return NestedCommands(bodies, doubt="an alias changes what later commands mean" if bodies else "")
