"""Asks the client's user, by elicitation, for what the policy does not allow outright.

A client of the handshake era is asked while its call waits. Since 2026-07-28 a server may
not ask by itself: the call is answered with the question, and comes again with the answer.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from contextvars import ContextVar

import mcp_types as wire
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from outlast.errors import Refused
from outlast.policy.approval import show_description, show_line, show_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from outlast.mcp.clients import Context

_ANSWERS = ("yes", "no", "always")


class CannotAsk(Refused):
    """The policy wants a yes, and the user cannot be asked or did not answer. Nothing ran."""

    code = "needs-approval"

    def __init__(self, message: str, may_ask_elsewhere: bool = True) -> None:
        super().__init__(message)
        self.may_ask_elsewhere = may_ask_elsewhere


class Question(Exception):  # it is no error: the call is answered with it
    """What the client has to ask its user before it calls again."""

    def __init__(self, request: wire.ElicitRequest, key: str, answered: dict[str, str], outside: bool) -> None:
        super().__init__(key)
        self._request, self._key, self._find_answer, self._outside = request, key, answered, outside

    def result(self) -> wire.InputRequiredResult:
        state = json.dumps({"asked": self._key, "answered": self._find_answer, "outside": self._outside})
        return wire.InputRequiredResult(input_requests={self._key: self._request}, request_state=state)


class Approver:
    """Asks the user of the client that made one call."""

    def __init__(self, ctx: Context, params: wire.CallToolRequestParams, patience: float) -> None:
        self._ctx, self._params, self._patience = ctx, params, patience
        self.is_answered = False  # with a task: then the client shows no question any more

    @property
    def goes_outside(self) -> bool:
        """Whether the call answers a question to run outside the sandbox, in which the command failed before."""
        return bool(json.loads(self._params.request_state or "{}").get("outside"))

    async def ask(self, approval: Any) -> str:
        if self.is_answered:
            raise CannotAsk(
                f"The policy {approval.policy} wants the user's yes for this, which can be asked for only while a call "
                "waits, and this one has become a task; nothing was done."
            )
        if not _can_elicit(self._ctx):
            raise CannotAsk(
                f"The policy {approval.policy} wants the user's yes for this, and this client cannot ask "
                "(it does not offer elicitation); nothing was done."
            )
        form = question(approval)
        if self._ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return self._find_answer(form, approval)
        try:
            return _answer(await asyncio.wait_for(self._elicit(form), self._patience))
        except TimeoutError:
            said = f"The user did not answer within {self._patience:g} s; nothing was done."
            raise CannotAsk(said, may_ask_elsewhere=False) from None

    async def _elicit(self, form: wire.ElicitRequestFormParams) -> wire.ElicitResult:
        return await self._ctx.session.elicit_form(
            form.message, form.requested_schema, related_request_id=self._ctx.request_id
        )

    def _find_answer(self, form: wire.ElicitRequestFormParams, approval: Any) -> str:
        """Return the answer that came with this call, if it is to this very question; else ask."""
        key = f"approve-{_digest(form, approval)}"
        state = json.loads(self._params.request_state or "{}")  # sealed by the server: it is what we wrote
        answered: dict[str, str] = dict(state.get("answered", {}))
        given = (self._params.input_responses or {}).get(key)
        if key not in answered and state.get("asked") == key and isinstance(given, wire.ElicitResult):
            answered[key] = _answer(given)
        if key not in answered:
            raise Question(wire.ElicitRequest(params=form), key, answered, approval.category == "outside")
        return answered[key]


current: ContextVar[Approver | None] = ContextVar("approver", default=None)


async def ask(approval: Any) -> str:
    """Ask the user of the client whose call this is."""
    approver = current.get()
    if approver is None:
        raise CannotAsk(f"The policy {approval.policy} wants a yes for this, and there is no user to ask here.")
    return await approver.ask(approval)


def _can_elicit(ctx: Context) -> bool:
    known = ctx.session.client_capabilities
    elicitation = known.elicitation if known is not None else None
    # `{}` is how clients say it that know of forms only; a client may also know of URLs only.
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def _answer(result: wire.ElicitResult) -> str:
    """Anything that is not a plain yes is a no."""
    said = (result.content or {}).get("answer") if result.action == "accept" else None
    return str(said) if said in _ANSWERS else "no"


def _digest(form: wire.ElicitRequestFormParams, approval: Any) -> str:
    # How it failed may be told in other words the next time.
    message = form.message if approval.category != "outside" else approval.category
    whole = json.dumps([message, approval.command, approval.cwd, list(approval.task_ids)])
    return hashlib.sha256(whole.encode(errors="surrogateescape")).hexdigest()[:32]


# --- what the user sees ------------------------------------------------------------------


def question(approval: Any) -> wire.ElicitRequestFormParams:
    """Return an approval as a form."""
    answers = ["yes", "no", *(["always"] if approval.always else [])]
    chosen = {"type": "string", "title": "Answer", "enum": answers, "description": _explain(approval)}
    schema = {"type": "object", "properties": {"answer": chosen}, "required": ["answer"]}
    return wire.ElicitRequestFormParams(message=_message(approval), requested_schema=schema)


def _message(approval: Any) -> str:
    """Return the command, whole or with both ends, and only then what the model and its output say."""
    command = "".join(f"\n    {line}" for line in show_lines(approval.command))
    if approval.category == "kill":
        return f"End {', '.join(approval.task_ids)}?\n{command}"
    outside = " outside the sandbox" if approval.category == "outside" else ""
    said = f"Run this command{outside}?\n{command}\n\nIn {show_line(approval.cwd)}."
    if approval.evidence:
        said += f"\nIn the sandbox it failed: {show_line(approval.evidence)}"
    if description := show_description(approval):
        said += f"\n{description}"
    why = "".join(f"\n- {show_line(part.command or 'the line')}: {show_line(part.why)}" for part in approval.parts)
    return f"{said}\n\nThe policy {show_line(approval.policy)} asks because of:{why}" if why else said


def _explain(approval: Any) -> str:
    if not approval.always:
        return "yes: this time"
    rules = ", ".join(map(show_line, approval.always))
    return f"yes: this time; always: also in future, whatever matches {rules}"
