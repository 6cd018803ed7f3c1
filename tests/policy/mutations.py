"""Lines that try to get a denied command past the evaluator."""

from __future__ import annotations

import json
import random
import shlex

from tests.policy.lines import HERE, read_lines

_MATERIAL: dict[str, list[str]] = json.loads((HERE / "mutations.json").read_text())
DENIED = _MATERIAL["denied"]  # programs that the rules deny, and one in the working directory that nothing allows
TOKENS = _MATERIAL["tokens"]  # pieces of syntax
SEPARATORS = _MATERIAL["separators"]
AROUND = _MATERIAL["around"]  # syntax around a command
WRAPPED = _MATERIAL["wrapped"]  # programs that run a command
OPTIONS = _MATERIAL["options"]


def _spelled_otherwise(word: str, dice: random.Random) -> str:
    at = dice.randrange(len(word))
    char = word[at]
    code = ord(char)
    forms = [f"\\{char}", f"'{char}'", f'"{char}"', f"''{char}", f"{char}\\\n", f"$'{char}'", f'$"{char}"']
    forms += [f"$'\\x{code:x}'", f"$'\\{code:o}'", f"$'\\u{code:04x}'", f"$'\\x{{{code:x}}}'"]
    forms += [f"{char}$@", f"{char}${{x}}", f"{{{char},}}", f"[{char}]", f"{char}``", f"{char}$()"]
    return word[:at] + dice.choice(forms) + word[at + 1 :]


class Mutator:
    """Makes new lines out of checked ones. The same seed makes the same lines."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        lines = [line for name in ("corpus.jsonl", "own.jsonl") for line in read_lines(name)]
        lines = [line for line in lines if len(line["command"]) < 400 and "while true" not in line["command"]]
        self.lines: list[str] = [line["command"] for line in lines if "\0" not in line["command"]]
        self.harmless: list[str] = [line["command"] for line in lines if line["expected"] == "allow"]

    def line(self) -> str:
        dice = self.dice
        ways = [self.splice, self.around, self.wrap, self.tokens, self.cut, self.option, self.inject, self.respell]
        line = dice.choice(self.harmless if dice.random() < 0.7 else self.lines)
        for _ in range(dice.choice([1, 1, 2, 2, 3, 4])):
            line = dice.choice(ways)(line)
        return line[:3000]

    def denied(self) -> str:
        name, _, rest = self.dice.choice(DENIED).partition(" ")
        return f"{_spelled_otherwise(name, self.dice) if self.dice.random() < 0.3 else name} {rest}"

    def splice(self, line: str) -> str:
        other = self.denied() if self.dice.random() < 0.5 else self.dice.choice(self.harmless)
        pair = [line, other]
        self.dice.shuffle(pair)
        return self.dice.choice(SEPARATORS).join(pair)

    def around(self, line: str) -> str:
        inner = self.denied() if self.dice.random() < 0.5 else line
        whole = self.dice.choice(AROUND).format(inner)
        return whole if inner is line else line + self.dice.choice([" ", *SEPARATORS]) + whole

    def wrap(self, line: str) -> str:
        inner = self.denied() if self.dice.random() < 0.5 else line
        whole = self.dice.choice(WRAPPED).format(inner if self.dice.random() < 0.8 else shlex.quote(inner))
        return whole if inner is line else line + self.dice.choice(SEPARATORS) + whole

    def tokens(self, line: str) -> str:
        for _ in range(self.dice.choice([1, 1, 2, 3])):
            at = self.dice.randrange(len(line) + 1)
            line = line[:at] + self.dice.choice(TOKENS) + line[at:]
        return line

    def cut(self, line: str) -> str:
        if len(line) < 2:
            return line
        start = self.dice.randrange(len(line))
        end = min(len(line), start + self.dice.choice([1, 1, 2, 5]))
        return line[:start] + (line[start:end] * 2 if self.dice.random() < 0.3 else "") + line[end:]

    def option(self, line: str) -> str:
        words = line.split(" ")
        words.insert(self.dice.randrange(1, len(words) + 1), self.dice.choice(OPTIONS))
        return " ".join(words)

    def inject(self, line: str) -> str:
        at = self.dice.randrange(len(line) + 1)
        return (
            line[:at]
            + self.dice.choice(["", *SEPARATORS])
            + self.denied()
            + self.dice.choice(["", " ", *SEPARATORS])
            + line[at:]
        )

    def respell(self, line: str) -> str:
        words = line.split(" ")
        at = self.dice.randrange(len(words))
        if words[at]:
            words[at] = _spelled_otherwise(words[at], self.dice)
        return " ".join(words)
