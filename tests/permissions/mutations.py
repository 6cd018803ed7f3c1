"""Lines that try to get a denied command past the judge."""

from __future__ import annotations

import random
import shlex

from tests.permissions.lines import judged

# Denied programs, and a program in the working directory that nothing allows.
DENIED = ["rm x", "rm -rf build", "curl x", "git push", "./pwn", "/bin/rm x", "/usr/bin/curl x"]
TOKENS = [
    "'", '"', "\\", "$'", '$"', "`", "$(", ")", "${", "}", "((", "))", "$((", "[[", "]]", "#", "\n", "\\\n", "\t", " ", "!", "=", "[", "]",
    "<<EOF", "\nEOF\n", "<<-E\n", "<<'E'\n", "E\n", "<(", ">(", ";", "&", "&&", "||", "|", "|&", ";;", "{", "~", "*", "?", "$@", "$X", "${x}",
    "<", ">", ">|", "&>", "<>", "2>&1", "{a,b}", "\\'", '\\"', "\\`", "\\$", "if ", " then ", " fi", " do ", " done", "case x in ", " esac",
    "time ", "! ", "function f ", "f() ", "coproc ", "in ", ":", "-", "--", "%", ",", "+=", "@P}", "[0]", "x=", "''", '""', "$", "for i in ",
]  # fmt: skip
SEPARATORS = ["; ", " && ", " || ", " | ", " & ", "\n", " |& ", ";", "&", "|"]
AROUND = [
    "$({})", "`{}`", '"$({})"', "<({})", ">({})", "({})", "{{ {}; }}", "if {}; then :; fi", "if :; then {}; fi", "for i in 1; do {}; done",
    "while {}; do break; done", "case a in a) {};; esac", "! {}", "time {}", "coproc {}", "f() {{ {}; }}; f", "echo ${{x:-$({})}}", "cat <<E\n$({})\nE",
    "cat <<< $({})", "cat <<'E'\n{}\nE", "[[ $({}) ]]", "[ $({}) ]", "echo $(( $({}) ))", "echo ${{a[$({})]}}", "x=$({})", "LANG=$({}) ls", "ls > $({})",
    "echo '{}'", 'echo "{}"', "echo \\$({})", "# {}\n", "echo a#{}", "cat <<-E\n\t{}\n\tE\n", "echo $'{}'", "case $({}) in x) ;; esac", "select q in a; do {}; done",
    "until {}; do break; done", "for ((i=$({});i<1;i++)); do :; done", "echo ${{x/a/$({})}}", "echo ${{x:$({})}}", "declare x=$({})", "( {} )", "(({}))",
    "$(({}))", "$(( {} ) )", "((ls); {})", "cat <<E >/dev/null; {}\nE\n", "cat <<E\nE\n{}\n", "cat <<E\n\\\nE\n{}\nE", "cat <<\\E\n{}\nE\n", "cat <<E\"F\"\n{}\nEF\n",
    "echo \"${{x:-'{}'}}\"", "echo \"${{x#'$({})'}}\"", "echo ${{x:-'$({})'}}", "test -v 'a[$({})]'", "[[ -v 'a[$({})]' ]]", "[[ 'a[$({})]' -eq 0 ]]", "ls $[$({})]",
    "read 'a[$({})]' <<< x", "printf -v 'a[$({})]' x", "unset 'a[$({})]'", "echo ${{!x}} {}", "echo ${{x@P}} {}", "wait -p 'a[$({})]'",
]  # fmt: skip
WRAPPED = [
    "env {}", "env -i {}", "env A=1 {}", "env LANG=C {}", "timeout 5 {}", "timeout -k 1 5 {}", "nice {}", "nice -n 5 {}", "nohup {}", "stdbuf -oL {}", "setsid {}",
    "setsid -w {}", "command {}", "command -p {}", "builtin {}", "exec {}", "eval {}", "xargs {} < f", "echo a | xargs {}", "echo a | xargs -I{{}} {}", "find . -maxdepth 0 -exec {} \\;",
    "find . -maxdepth 0 -exec {} {{}} +", "busybox {}", "flock /tmp/l {}", "ionice {}", "env -S '{}'", "timeout --foreground 5 {}", "env -u X {}", "trap '{}' EXIT", "script -qc '{}' /dev/null",
    "awk 'BEGIN{{system(\"{}\")}}'", "sed '1e {}' f", "sort --compress-program='{}' f", "git -c alias.z='!{}' z", "find . -fprintf x '{}'", "tar cf /dev/null f --checkpoint=1 --checkpoint-action=exec='{}'",
    "bash -c '{}'", "sh -c '{}'", 'bash -c "{}"', "bash -lc '{}'", "bash <<< '{}'", "bash <<E\n{}\nE\n", "echo '{}' | sh", "eval '{}'", "eval \"{}\"", "command -v {}", "cat <<E | bash\n{}\nE\n",
    "python3 -c 'import os; os.system(\"{}\")'", "perl -e 'system(\"{}\")'", "git bisect run {}", "xargs -a f {}", "bash -c 'ls' {}", "alias ls='{}'; ls", "ls() {{ {}; }}; ls", "env -- {}", "nice -5 {}",
    "find . -exec sh -c '{}' \\;", "mapfile -C '{}' -c 1 x < f", "compgen -C '{}'", "hash -p ./pwn ls; ls", "time -p {}", "\\time {}", "PATH=.:$PATH; {}", "awk '{{print | \"{}\"}}' f", "awk '\"{}\" | getline' f",
]  # fmt: skip
OPTIONS = [
    "--output=./o", "-o ./o", "--compress-program=./pwn", "-S 1k --compress-prog ./pwn", "--pre=./pwn", "--pre ./pwn", "-I ./pwn", "--to-command=./pwn", "--use-compress-program=./pwn",
    "--checkpoint-action=exec=./pwn --checkpoint=1", "-exec ./pwn {} ;", "-execdir ./pwn {} \\;", "-delete", "-c core.pager=./pwn", "-p -c pager.log=./pwn", "--ext-diff", "--upload-pack=./pwn", "-O./pwn",
    "--open-files-in-pager=./pwn", "-x ./pwn", "--exec=./pwn", "-f ./pwn", "-e 's/a/./e'", "-i", "--", "-", "$X", "$F", "*", "\"$F\"", "-P ./pwn", "+!./pwn", "-s", "-T", "--rsh=./pwn", "-c ./pwn", "-k 1", "-n 1",
    "'1e ./pwn'", "'s/.*/.\\/pwn/e'", "'BEGIN{system(\"./pwn\")}'", "'{print | \"./pwn\"}'", "'{print > \"o\"}'", "--filter=./pwn", "-v x=1", "--files0-from=f", "-a f", "-I{}", "--config-env=alias.z=X",
]  # fmt: skip


def _spelled_otherwise(word: str, dice: random.Random) -> str:
    at = dice.randrange(len(word))
    char = word[at]
    forms = ["\\" + char, f"'{char}'", f'"{char}"', f"$'\\x{ord(char):x}'", f"$'\\{ord(char):o}'", f"''{char}", f"{char}\\\n", f"$'\\u{ord(char):04x}'",
             f"{char}$@", f"{char}${{x}}", f"{{{char},}}", f"[{char}]", f"{char}``", f"$'{char}'", f'$"{char}"', f"{char}$()"]  # fmt: skip
    return word[:at] + dice.choice(forms) + word[at + 1 :]


class Mutator:
    """Makes new lines out of judged ones. The same seed makes the same lines."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        lines = [line["command"] for name in ("corpus.jsonl", "own.jsonl") for line in judged(name)]
        self.lines = [line for line in lines if len(line) < 400 and "\0" not in line and "while true" not in line]
        harmless = [line["command"] for name in ("corpus.jsonl", "own.jsonl") for line in judged(name) if line["expected"] == "allow"]
        self.harmless = [line for line in harmless if len(line) < 400 and "while true" not in line]

    def line(self) -> str:
        dice = self.dice
        line = dice.choice(self.harmless if dice.random() < 0.7 else self.lines)
        for _ in range(dice.choice([1, 1, 2, 2, 3, 4])):
            line = dice.choice([self.splice, self.around, self.wrap, self.tokens, self.cut, self.option, self.inject, self.respell])(line)
        return line[:3000]

    def denied(self) -> str:
        line = self.dice.choice(DENIED)
        return _spelled_otherwise(line.split()[0], self.dice) + line[len(line.split()[0]) :] if self.dice.random() < 0.3 else line

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
        return line[:at] + self.dice.choice(["", *SEPARATORS]) + self.denied() + self.dice.choice(["", " ", *SEPARATORS]) + line[at:]

    def respell(self, line: str) -> str:
        words = line.split(" ")
        at = self.dice.randrange(len(words))
        if words[at]:
            words[at] = _spelled_otherwise(words[at], self.dice)
        return " ".join(words)
