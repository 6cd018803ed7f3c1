"""Where a shell's requests are checked, and asked about: between a `Request` and a `Launch`.

A yes is for a line in the state that its session is in. So the state that a line was checked in and
the one that it is launched with are compared, and if they differ it is checked again: a function
`ls` that came between is not `ls`. A shell whose policy is `yolo` has no gate.
"""

from __future__ import annotations

import os

from outlast.errors import BadInput, NeedsApproval, Refused, SessionBusy, quote
from outlast.light import replace
from outlast.linux.files import get_cwd
from outlast.policy import OWN_RULES, Policy, layers, loader, policy_file, project_files
from outlast.policy.approval import Approval
from outlast.policy.decision import decide
from outlast.policy.rules import Decision, Overrides
from outlast.storage import session_rules, snapshot
from outlast.storage.dump import find_changed_variables
from outlast.storage.snapshot import ALIAS, FUNCTION, OPTION, SHOPT, TRAP, VARIABLE, flags_of, unquote_words, value_of
from outlast.types import AGENT, LOCAL, NO_SHELL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from outlast.policy import Mode
    from outlast.policy.approval import Answer
    from outlast.settings import Settings
    from outlast.storage.sessions import Sessions
    from outlast.storage.snapshot import Snapshot, State
    from outlast.types import Grant, Launch, Place, Request

    Ask = Callable[[Approval], object]

POLICY = "OUTLAST_POLICY"
_TRIES = 20  # a session that changes this often while one line is checked is not one to check in
_USUAL = {"PS4": "+ ", "IFS": " \t\n"}  # as bash sets them
_FICKLE = b"ilnuc"  # attributes that change, or evaluate, what a variable is given
_FUNCTION = ("BASH_FUNC_", "%%")  # how a function stands among the variables


class Gate:
    """One policy in force, how strictly it is taken, and whom to ask."""

    def __init__(
        self,
        home: str,
        settings: Settings,
        call: str | Policy | None,
        mode: Mode,
        ask: Ask | None,
        around: SessionOverrides,
        cwd: str = "",
    ) -> None:
        self._home, self._settings, self._call = home, settings, call
        self._mode, self._ask, self._around = mode, ask, around
        self._opened_in = cwd or get_cwd()
        self._policies: dict[str, Policy] = {}
        self._added: tuple[str, ...] = ()  # what "always" was said to since
        self._of_session: dict[str, tuple[str, ...]] = {}  # the same, said to another process of a session
        self.policy_for("")  # a policy that is not there is known at once

    def policy_for(self, cwd: str) -> Policy:
        """What is in force for a command in `cwd`: read once, so that no command can change what checks the next."""
        if cwd not in self._policies:
            # Of a command without a directory `there` is the one that the shell was opened in.
            there = os.path.abspath(os.path.join(self._opened_in, os.path.expanduser(cwd)))
            places = dict.fromkeys((self._opened_in, there)) if self._opened_in or cwd else {}
            files = dict.fromkeys(path for one in places if one for path in project_files(one, self._home))
            self._policies[cwd] = loader.combine_policies(self._home, self._settings, self._call, tuple(files))
        return layers.with_rules(self._policies[cwd], self._added) if self._added else self._policies[cwd]

    def _policy_of(self, request: Request) -> Policy:
        """As `policy_for`, with what was said yes to for the session of a request; read once as well."""
        if request.session not in self._of_session:
            self._of_session[request.session] = session_rules.read(self._home, request.session)
        rules, policy = self._of_session[request.session], self._policy_at(request)
        return layers.with_rules(policy, rules) if rules else policy

    def _policy_at(self, request: Request) -> Policy:
        # A directory of another machine has no project file here.
        return self.policy_for(request.cwd if request.executor == LOCAL else "")

    # --- run -----------------------------------------------------------------------------

    def grant(self, request: Request, prepare: Callable[[Grant], Launch]) -> tuple[Grant, Launch]:
        """A grant, after asking if need be, and the launch for it, in the very state that it was checked in."""
        approved: Approval | None = None
        policy_for_children = self._with_policy(request)
        for _ in range(_TRIES):
            found = None if request.fresh else self._around.snapshot(request.executor)
            where = request.cwd or (found.directory if found else self._opened_in)
            known = self._around.known(found, request.env, where, request.executor)
            grant, approved = self._decide(policy_for_children, known, where, approved)
            launch = prepare(grant)
            if not launch.state or (found is not None and launch.snapshot == found.mark):
                return grant, launch
        raise SessionBusy("The session changes faster than a command can be checked; try again when less runs in it.")

    def _with_policy(self, request: Request) -> Request:
        """The request with our policy among its variables: an `outlast run` in the command is under it, too."""
        name = loader.policy_for_children(self._call)
        if not name or POLICY in request.env or os.environ.get(POLICY):
            return request
        return replace(request, env={**request.env, POLICY: name})

    def _decide(
        self, request: Request, overrides: Overrides, where: str, approved: Approval | None
    ) -> tuple[Grant, Approval | None]:
        shell = self._shell_of(request)
        policy = self._policy_of(request)
        try:
            return decide(request, policy, overrides, shell=shell, mode=self._mode, approved=approved), approved
        except NeedsApproval as asked:
            if not isinstance(asked.approval, Approval):
                raise
            approval = replace(asked.approval, cwd=where)
            answer = self._ask_user(approval)
            if answer is None:
                raise
        self._remember(approval, answer)
        # The rule that was just written is no reason to check otherwise than what was said yes to.
        return decide(request, policy, overrides, shell=shell, mode=self._mode, approved=approval), approval

    def check(self, request: Request) -> Decision:
        """What would be decided, without asking anybody."""
        policy = self._policy_of(request)
        snapshot = self._around.snapshot()
        where = request.cwd or (snapshot.directory if snapshot else self._opened_in)
        known = self._around.known(snapshot, request.env, where)
        found = layers.evaluate_request(request, policy, known, self._shell_of(request)).decision
        if found.verdict == "allow" and "run" in policy.asks and self._mode == "default":
            return replace(found, verdict="ask")
        return found

    def _shell_of(self, request: Request) -> str:
        """The shell that reads the line. What only has the name of one is not one."""
        import shutil

        if request.shell in (NO_SHELL, AGENT):
            return "bash"  # which reads the words, quoted, as they are
        asked = request.shell or self._settings.shell or ("bash" if shutil.which("bash") else "sh")
        if request.shell and "/" in request.shell:
            usual = shutil.which(os.path.basename(asked))
            if not usual or os.path.realpath(usual) != os.path.realpath(os.path.expanduser(asked)):
                return f"{asked}, which is not the usual one,"
        return asked

    # --- kill ----------------------------------------------------------------------------

    def may_kill(self, task_ids: Sequence[str], commands: Sequence[str]) -> None:
        """Ask, if killing needs a yes."""
        policy = self.policy_for("")
        if "kill" not in policy.asks or self._mode == "yolo":
            return
        what = ", ".join(task_ids)
        approval = Approval(
            category="kill",
            command="; ".join(commands),
            policy=policy.name,
            decision=None,
            cwd=self._opened_in,
            task_ids=tuple(task_ids),
        )
        if self._ask_user(approval) is None:
            raise NeedsApproval(
                f"Under the policy {policy.name} ending {what} needs a yes, and no user can be asked.", None
            )

    # --- ask -----------------------------------------------------------------------------

    def _ask_user(self, approval: Approval) -> Answer | None:
        """Ask the host, or on the page of `outlast serve`; None if neither can. Anything that is not a yes is a no."""
        answer = self._ask_host(approval) if self._ask is not None else self._ask_page(approval)
        if answer is None and self._ask is None:
            return None
        if answer in ("yes", "session", "always"):
            return answer
        if answer == "no":
            raise Refused(_said_no(approval))
        if hasattr(answer, "__await__"):
            getattr(answer, "close", lambda: None)()
            raise BadInput("`ask` is a coroutine function, which only an AsyncShell can call; give a plain one.")
        raise BadInput(f"`ask` answered {quote(answer)}; it must be yes, no, session or always. Nothing was done.")

    def _ask_host(self, approval: Approval) -> object:
        assert self._ask is not None
        try:
            return self._ask(approval)
        except Exception as error:
            answer = self._ask_page(approval) if getattr(error, "may_ask_elsewhere", False) else None
            if answer is None:
                error.of_the_caller = True  # type: ignore[attr-defined] # told as it is, even if it looks like ours
                raise
            return answer

    def _ask_page(self, approval: Approval) -> Answer | None:
        from outlast.shell import approval_link  # most shells ask nothing

        return approval_link.ask(self._home, approval, self._settings.approval_wait_s)

    def _remember(self, approval: Approval, answer: Answer) -> None:
        patterns = approval.always
        if not patterns or answer == "yes":
            return  # without a pattern no rule can say it: it counts for this time
        if answer == "session":
            session_rules.add(self._home, approval.session, patterns)
            self._of_session[approval.session] = (*self._of_session.get(approval.session, ()), *patterns)
            return
        import time

        said = f"always, {time.strftime('%Y-%m-%d')}"
        policy_file.add_allow_rules(os.path.join(self._home, OWN_RULES), patterns, said)
        self._added = (*self._added, *patterns)


def _said_no(approval: Approval) -> str:
    """Why it is not done: the user's no, and what the question was about."""
    if approval.category == "kill":
        return f"The user was asked whether to end {', '.join(approval.task_ids)} and said no."
    about = next((f" about {quote(part.command)} ({part.why.rstrip('.')})" for part in approval.parts if part.why), "")
    return f"The user was asked{about} and said no, so {quote(approval.command)} was not run."


class SessionOverrides:
    """What a line meets when it runs: the session's functions, aliases and variables, and what only this call has."""

    def __init__(
        self, sessions: Callable[[], Sessions], state: Callable[[str], str], place: Callable[[str], Place | None]
    ) -> None:
        """`state` and `place` are of an executor: which state a session has there, and what a login there has."""
        self._sessions, self._state, self._place = sessions, state, place
        self._last: tuple[str, Overrides] | None = None  # by the mark of a snapshot, which never changes

    def snapshot(self, executor: str = LOCAL) -> Snapshot | None:
        """The state that the next command begins with; none if it begins with none, or anew."""
        state = self._state(executor)
        try:
            return self._sessions().read(state) if state else None
        except (FileNotFoundError, NotADirectoryError, snapshot.DamagedSnapshot):
            return None

    def known(self, found: Snapshot | None, env: Mapping[str, str], where: str, executor: str = LOCAL) -> Overrides:
        """What is not as its name says, in this state and with these variables of a call, in a directory."""
        place = self._place(executor)
        environ = os.environ if place is None else place.environ
        usual = Overrides(functions=frozenset(_functions(environ)), values=dict(environ))
        of_session = self._of_session(found, self._state(executor)) if found else usual
        given = {name: value for name, value in env.items() if not name.startswith(_FUNCTION[0])}
        return replace(
            of_session,
            functions=of_session.functions | _functions(env),
            variables=of_session.variables | given.keys(),
            path_changed=of_session.path_changed or "PATH" in given,
            directory=where,
            values={**of_session.values, **given},
        )

    def _of_session(self, found: Snapshot, name: str) -> Overrides:
        if self._last is None or self._last[0] != found.mark:
            state = found.state()
            changed = find_changed_variables(state, self._sessions().read_first_state(name))
            self._last = found.mark, _known_of(state, frozenset(changed), _functions(found.environ))
        return self._last[1]


def _known_of(state: State, changed: frozenset[str], imported: set[str]) -> Overrides:
    of: dict[str, dict[str, bytes]] = {}
    for (kind, item), text in state.items():
        of.setdefault(kind, {})[os.fsdecode(item)] = text
    variables, functions, aliases = of.get(VARIABLE, {}), of.get(FUNCTION, {}), of.get(ALIAS, {})
    values: dict[str, str] = {}
    for name, line in variables.items():
        value = value_of(line)
        values[name] = os.fsdecode(line.partition(b"=")[2] if value is None else value)  # an array as it is written
    changed |= {name for name, usual in _USUAL.items() if values.get(name, usual) != usual}
    flags = {name: bytes(sorted(flags_of(line) & set(_FICKLE))).decode() for name, line in variables.items()}
    return Overrides(
        functions=frozenset(functions.keys() | imported),
        aliases=frozenset(aliases),
        variables=changed,
        path_changed="PATH" in changed,
        values=values,
        texts={name: unquote_words(line)[-1].partition("=")[2] for name, line in aliases.items()},
        bodies={name: os.fsdecode(text.partition(b" ")[2]) for name, text in functions.items()},
        traps=tuple((name, unquote_words(text)[0]) for name, text in of.get(TRAP, {}).items()),
        attributes={name: given for name, given in flags.items() if given},
        options=frozenset(of.get(OPTION, {}).keys() | of.get(SHOPT, {}).keys()),
    )


def _functions(env: Mapping[str, str]) -> set[str]:
    before, behind = _FUNCTION
    return {name[len(before) : -len(behind)] for name in env if name.startswith(before) and name.endswith(behind)}


def allow_everything() -> Decision:
    """What there is to say where everything is allowed."""
    return Decision("allow", ())
