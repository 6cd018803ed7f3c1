"""`outlast setup`: makes an agent use Outlast, and takes that back.

Each step is planned as texts, shown as a diff, agreed to, and only then written. The record of a step is
written before the file: if the process dies between the two, `--undo` finds nothing to take back.
"""

from __future__ import annotations

import os
import re
import shutil
import sys

from outlast.cli import setup_edits as edits
from outlast.cli import setup_files as files
from outlast.cli.arguments import Asked, Parser
from outlast.cli.common import write
from outlast.cli.setup_clients import CLIENTS, SCOPES, Places
from outlast.errors import BadInput, Unsupported, quote
from outlast.light import frozen
from outlast.settings import default_home, load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from outlast.cli.setup_clients import Client
    from outlast.cli.setup_edits import Edit, Record
    from outlast.cli.setup_files import Records, Snapshot

NOT_APPLIED = 1
_YES = ("y", "yes")
_WORKSPACE = """\
With the policy workspace commands run without a question, in a sandbox: they write to the project,
temporary files and caches only, and reach no network. You are asked about what has to run outside.
"""


def setup_parser() -> Parser:
    """Return the options of `outlast setup`."""
    made = Parser(
        "setup",
        "Make an agent use Outlast: write the server `outlast mcp` into the agent's own\n"
        "configuration. Shows the change as a diff and asks first. Exits with 1 if there is a\n"
        "change and it was not made.",
        "  outlast setup claude                     show the change, ask, make it\n"
        "  outlast setup codex --deny-shell         also switch the agent's own shell tool off\n"
        "  outlast setup vscode --scope project     for the project in this directory\n"
        "  outlast setup gemini --dry-run           only show the change\n"
        "  outlast setup claude --undo              take exactly that back",
    )
    add = made.add
    add("client", metavar="|".join(CLIENTS), help="the agent")
    add("--undo", action="store_true", help="take back what `outlast setup` changed, and nothing else")
    add("--scope", default="user", metavar="|".join(SCOPES), help="for you (the default), or for this directory")
    add("--deny-shell", action="store_true", help="also switch the agent's own shell tool off")
    add("--policy", metavar="NAME|FILE", help="the policy of the server (default: that of the settings)")
    add("--force", action="store_true", help="replace, or with --undo remove, an entry that Outlast did not make")
    add("--dry-run", action="store_true", help="only show what would change")
    add("--yes", action="store_true", help="do not ask")
    return made


@frozen
class Step:
    """One file, as it is and as it is to be, and the records that change with it."""

    before: Snapshot
    text: str | None
    add: Record | None = None
    remove: tuple[Record, ...] = ()


@frozen
class Job:
    """What one call is about."""

    name: str
    client: Client
    asked: Asked
    places: Places
    records: Records


def setup(asked: Asked) -> int:
    """Do what `outlast setup` asks; returns the exit code."""
    if asked.client not in CLIENTS:
        raise BadInput(f"Outlast cannot set up {quote(asked.client)}; it knows {', '.join(CLIENTS)}.")
    if asked.scope not in SCOPES:
        raise BadInput(f"There is no scope {quote(asked.scope)}; use user or project.")
    if asked.undo and (asked.deny_shell or asked.policy is not None):
        raise BadInput("--undo takes everything back; leave out --deny-shell and --policy.")
    records, home = files.Records(default_home(os.environ)), os.path.expanduser("~")
    if not os.path.isabs(home):
        raise BadInput("Your home directory is unknown; set HOME to it.")
    places = Places(asked.scope, home, os.getcwd(), os.environ)
    job = Job(asked.client, CLIENTS[asked.client], asked, places, records)
    return _undo(job) if asked.undo else _apply(job)


# --- applying ------------------------------------------------------------------------------


def _apply(job: Job) -> int:
    env = _policy_variable(job)
    _require_sdk()
    edit, denial = job.client.entry(job.places, program(), env), job.client.deny(job.places)
    if job.asked.deny_shell and denial is None:
        sys.stderr.write(f"outlast: {job.client.no_denial}\n")
    step = _plan_entry(job, edit)
    if step is None:
        write(f"Nothing to change: {job.client.title} already starts Outlast ({edit.file}).\n")
    else:
        code = _carry_out(job, [step], f"Change {edit.file}?")
        if code is not None:
            if job.asked.deny_shell and denial and (other := _plan(job, denial)):
                write(diff(other))
            return code
        write(f"{job.client.title} will start Outlast from its next session on.\n")
        if job.asked.scope == "project" and job.client.remark:
            write(f"{job.client.remark}\n")
    return _offer_denial(job, denial, is_new=step is not None) if denial else 0


def _offer_denial(job: Job, denial: Edit, is_new: bool) -> int:
    """Switch the client's own shell tool off if that was asked for; ask where a person can answer."""
    assert job.client.denial is not None
    tool, title = job.client.denial.tool, job.client.title
    step = _plan(job, denial)
    if step is None:
        if job.asked.deny_shell:
            write(f"Nothing to change: {title}'s own tool {tool} is already off ({denial.file}).\n")
        return 0
    if not job.asked.deny_shell:
        if not is_new or not _can_ask(job):
            return 0
        write(f"\n{title} can still run commands with its own tool {tool}, which Outlast does not see.\n")
    code = _carry_out(job, [step], f"Switch {title}'s own tool {tool} off?")
    if code is None:
        write(f"{title}'s own tool {tool} is off.\n")
    return (code or 0) if job.asked.deny_shell else 0


def _plan_entry(job: Job, edit: Edit) -> Step | None:
    """The step that writes the server's entry; refuses to replace one that `outlast setup` did not make."""
    before = files.read(edit.file)
    found = edit.current(before.text or "")
    if found is None or edit.is_done(before.text or ""):
        return _plan(job, edit)
    for record in job.records.of(job.name, job.asked.scope, {edit.file}):
        if record["path"] == list(edit.path) and edits.is_still_there(record, before.text or ""):
            return Step(before, *edits.update(edit, record, before.text or ""))
    if not job.asked.force:
        import json

        shown = _mask(json.dumps(found, ensure_ascii=False))
        raise Unsupported(
            f"{edit.file} already has a server '{edit.path[-1]}' that `outlast setup` did not make: {shown}; "
            "--force replaces it."
        )
    return _plan(job, edit)


def _plan(job: Job, edit: Edit) -> Step | None:
    before = files.read(edit.file)
    if edit.is_done(before.text or ""):
        return None
    text, record = edits.apply(edit, before.text or "")
    return Step(before, text, {**record, "client": job.name, "scope": job.asked.scope, "is_new": before.text is None})


def program() -> list[str]:
    """How this installation of Outlast is started, by absolute paths."""
    # As it was called, symbolic links included: pipx and uv replace what they point to.
    for path in (sys.argv[0], os.path.join(os.path.dirname(sys.executable), "outlast")):
        if os.path.basename(path) == "outlast" and (found := shutil.which(os.path.abspath(path))):
            return [found, "mcp"]
    return [sys.executable, "-m", "outlast", "mcp"]


def _policy_variable(job: Job) -> dict[str, str]:
    policy = job.asked.policy or _offered_policy(job)
    if policy is None:
        return {}
    from outlast.policy import loader

    loader.load(policy, load(default_home(os.environ), os.environ))  # which refuses what is no policy
    return {"OUTLAST_POLICY": os.path.abspath(policy) if loader.is_file(policy) else policy}


def _offered_policy(job: Job) -> str | None:
    """The policy that a person is offered first; None if they do not want it, or it would change what they have."""
    edit = job.client.entry(job.places, program(), {})
    if not _can_ask(job) or load(default_home(os.environ), os.environ).policy:
        return None
    if edit.current(files.read(edit.file).text or "") is not None:
        return None
    from outlast.policy import WORKSPACE
    from outlast.sandbox.choice import KINDS, able

    if not any(able(kind).works for kind in KINDS):
        return None
    write(_WORKSPACE)
    return WORKSPACE.name if _agrees("Use the policy workspace?", otherwise=True) else None


def _require_sdk() -> None:
    from importlib.util import find_spec

    if find_spec("mcp") is None:
        raise Unsupported("The MCP server needs the package 'mcp'; run: pip install 'outlast[mcp]', then this again.")


# --- taking back ---------------------------------------------------------------------------


def _undo(job: Job) -> int:
    edit, denial = job.client.entry(job.places, program(), {}), job.client.deny(job.places)
    known = job.records.of(job.name, job.asked.scope, {edit.file, denial.file if denial else edit.file})
    steps = [_plan_undo(job, path, known) for path in dict.fromkeys(one["file"] for one in known)]
    steps = [step for step in steps if step.text != step.before.text]
    if all(step.before.path != edit.file for step in steps) and (foreign := _foreign_entry(job, edit)):
        steps.append(foreign)
    if not steps:
        write(f"Nothing to take back: {edit.file} has nothing from `outlast setup`.\n")
        return 0
    code = _carry_out(job, steps, "Take this back?")
    if code is None:
        write(f"{job.client.title} is set up as it was before.\n")
    return code or 0


def _plan_undo(job: Job, path: str, known: list[Record]) -> Step:
    """The step that takes all edits of one file back, newest first."""
    before = files.read(path)
    mine = tuple(one for one in known if one["file"] == path)
    text = before.text
    for record in reversed(mine if text is not None else ()):
        if edits.is_still_there(record, text or "") or (job.asked.force and edits.is_replaced(record, text or "")):
            text = edits.revert(record, text or "")
    if text is not None and mine[0]["is_new"] and not re.sub(r"^\s*\{\s*\}\s*$", "", text).strip():
        text = None  # nothing is left of a file that we made
    return Step(before, text, remove=mine)


def _foreign_entry(job: Job, edit: Edit) -> Step | None:
    """With --force: the step that removes an entry without a record. Otherwise says that it stays."""
    before = files.read(edit.file)
    if edit.current(before.text or "") is None:
        return None
    if job.asked.force:
        return Step(before, edits.revert(edits.record_of_foreign_entry(edit), before.text or ""))
    sys.stderr.write(
        f"outlast: The server '{edit.path[-1]}' in {edit.file} is not the one that `outlast setup` made, so it stays; "
        "--force removes it.\n"
    )
    return None


# --- showing, asking, writing --------------------------------------------------------------


def _carry_out(job: Job, steps: Sequence[Step], question: str) -> int | None:
    """Show the steps, ask, and make them. None if they were made, otherwise the exit code."""
    for step in steps:
        write(diff(step))
    if job.asked.dry_run:
        return 0
    if not job.asked.yes:
        if not _is_terminal():
            sys.stderr.write("outlast: Nothing was changed, because there is no terminal to ask on; --yes makes it.\n")
            return NOT_APPLIED
        if not _agrees(question):
            write("Nothing was changed.\n")
            return NOT_APPLIED
    for step in steps:
        _write(job, step)
    return None


def _write(job: Job, step: Step) -> None:
    mode = 0o600 if job.asked.scope == "user" else 0o666 & ~_umask()
    made = files.make_directories(step.before.path) if step.text is not None else []
    if step.add:
        job.records.add({"directories": made, **step.add} if made else step.add)
    files.replace(step.before, step.text, mode)
    for record in step.remove:
        if step.text is None:
            files.remove_directories(record.get("directories", []))
    if step.remove:
        job.records.remove(list(step.remove))


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def diff(step: Step) -> str:
    """What a step changes, as a unified diff without secrets and without anything that a terminal would obey."""
    from difflib import unified_diff

    from outlast.policy.approval import visible

    path = step.before.path
    old, new = (_lines(text or "") for text in (step.before.text, step.text))
    names = ("/dev/null" if step.before.text is None else path, "/dev/null" if step.text is None else path)
    shown = []
    for line in unified_diff(old, new, *names):
        text = line.rstrip("\r\n").replace("\t", "    ")
        end = "" if line.endswith("\n") else "\n\\ No newline at end of file"
        shown.append(visible(text) + end + "\n")
    return _mask("".join(shown))


def _lines(text: str) -> list[str]:
    """The lines with their ends; only a line feed ends one, in JSON and TOML alike."""
    return [line + "\n" for line in text.split("\n")[:-1]] + ([last] if (last := text.rpartition("\n")[2]) else [])


def _mask(text: str) -> str:
    from outlast.output.redaction import Mask

    return Mask().text(text)


def _can_ask(job: Job) -> bool:
    """Whether a person at a terminal may be asked about more than they called for."""
    return not job.asked.yes and not job.asked.dry_run and _is_terminal()


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _agrees(question: str, otherwise: bool = False) -> bool:
    """Whether a person says yes; `otherwise` is what an empty line means. The end of the input is a no."""
    write(f"{question} [{'Y/n' if otherwise else 'y/N'}] ")
    typed = sys.stdin.readline()
    if not typed:
        write("\n")
    answer = typed.strip().lower()
    return bool(typed) and (answer in _YES or (otherwise and not answer))
