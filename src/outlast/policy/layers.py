"""What all layers of a policy say together about one line, and how that is told. Pure."""

from __future__ import annotations

from outlast.errors import quote
from outlast.light import frozen, replace
from outlast.policy import OWN_RULES
from outlast.policy.patterns import UNKNOWN
from outlast.policy.rules import Decision, Overrides, Part

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.policy import Policy
    from outlast.policy.approval import Approval, Layer
    from outlast.policy.rules import Rules, Verdict
    from outlast.types import Request

_NO_USER = "which needs a yes, and no user can be asked here"
STRICTNESS: dict[Verdict, int] = {"allow": 0, "ask": 1, "deny": 2}


@frozen
class LayeredDecision:
    """A decision, the layer that was strictest, and what is wrong with a layer, if anything is."""

    decision: Decision
    layer: str
    broken: str


def evaluate_layers(
    line: str, policy: Policy, overrides: Overrides | None = None, shell: str = "bash"
) -> LayeredDecision:
    """The strictest verdict of all layers, with each part of the line as the strictest of them sees it."""
    decisions = [(layer, _by_layer(line, layer, overrides or Overrides(), shell)) for layer in policy.layers]
    if not decisions:
        return LayeredDecision(Decision("allow", ()), policy.name, "")
    layer, strictest = max(decisions, key=lambda one: STRICTNESS[one[1].verdict])
    others = [decision for _, decision in decisions if decision is not strictest]
    broken = next((layer.broken for layer in policy.layers if layer.broken), "")
    return LayeredDecision(Decision(strictest.verdict, _together(strictest, others)), layer.name, broken)


def evaluate_request(request: Request, policy: Policy, overrides: Overrides | None, shell: str) -> LayeredDecision:
    """What is to be said of a request: of its line, and of the functions that it gives the shell by its variables."""
    layered = evaluate_layers(request.command, policy, overrides, shell)
    # Functions stand among variables as bash passes them on.
    given = [(name[10:], value) for name, value in request.env.items() if name.startswith("BASH_FUNC_")]
    for definition in [f"{name.removesuffix('%%')} {value}" for name, value in given]:
        other = evaluate_layers(definition, policy, overrides, shell)
        first = max(layered, other, key=lambda one: STRICTNESS[one.decision.verdict])
        together = Decision(first.decision.verdict, (*layered.decision.parts, *other.decision.parts))
        layered = replace(first, decision=together)
    return layered


def _by_layer(line: str, layer: Layer, overrides: Overrides, shell: str) -> Decision:
    if layer.broken:
        return Decision("ask", (Part(line, "ask", "", layer.broken, 0, ""),))
    from outlast.policy.evaluator import evaluate  # loaded when a line is judged

    decision = evaluate(line, layer.rules, overrides, shell=shell)
    if layer.asks_all:
        decision = _ask_all(decision, layer.rules)
    return decision


def _ask_all(decision: Decision, rules: Rules) -> Decision:
    """What needs no rule (`true`, `[ -e x ]`) is asked about as well."""

    allowed = frozenset(rules.allow)

    def ask(part: Part) -> Part:
        unasked = part.verdict == "allow" and not part.rule and part.command not in allowed
        return replace(part, verdict="ask", why="everything is asked about") if unasked else part

    parts = tuple(map(ask, decision.parts))
    verdict = max({decision.verdict, *(part.verdict for part in parts)}, key=STRICTNESS.__getitem__)
    if not parts and verdict == "allow":
        verdict = "ask"
    return Decision(verdict, parts)


def _together(strictest: Decision, others: list[Decision]) -> tuple[Part, ...]:
    """The strictest view of each part; whatever only another layer has to say comes behind."""
    parts = list(strictest.parts)
    for decision in others:
        if [part.command for part in decision.parts] == [part.command for part in parts]:
            pairs = zip(parts, decision.parts, strict=True)
            parts = [max(pair, key=lambda part: STRICTNESS[part.verdict]) for pair in pairs]
        else:
            parts += [part for part in decision.parts if part.verdict != "allow" and part not in parts]
    return tuple(parts)


# --- what "always" would write -----------------------------------------------------------


def rules_for_always(
    request: Request, policy: Policy, overrides: Overrides | None = None, shell: str = "bash"
) -> tuple[str, ...]:
    """The narrowest allow rules after which the line is not asked about any more; none if there are none.

    A rule is the exact text of one part. One that holds a `*` would match more than that.
    """
    if "run" in policy.asks or any(layer.broken for layer in policy.layers):
        return ()
    layered = evaluate_request(request, policy, overrides, shell).decision
    patterns = tuple(dict.fromkeys(part.command for part in layered.parts if part.verdict == "ask"))
    if not patterns or any("*" in one or not one.strip() or not one.isprintable() for one in patterns):
        return ()
    # The evaluator itself says whether they are enough: no rule helps against what cannot be analysed.
    helps = evaluate_request(request, with_rules(policy, patterns), overrides, shell).decision.verdict == "allow"
    return patterns if helps else ()


def with_rules(policy: Policy, patterns: tuple[str, ...], write: tuple[str, ...] = ()) -> Policy:
    """The policy with more allow rules in every layer. What one of them denies stays denied."""

    def more(layer: Layer) -> Layer:
        rules = layer.rules
        return replace(layer, rules=replace(rules, allow=(*rules.allow, *patterns), write=(*rules.write, *write)))

    return replace(policy, layers=tuple(more(layer) for layer in policy.layers))


# --- how it is told ----------------------------------------------------------------------


def describe_denial(layered: LayeredDecision, policy: Policy) -> str:
    """Why it does not run, in one sentence: the part, the rule, and what would allow it."""
    part = next((part for part in layered.decision.parts if part.verdict == "deny"), None)
    if part is None:
        return f"Nothing is let through while the policy {policy.name} cannot be used: {layered.broken}; correct it."
    by = f"The policy {layered.layer} denies {_show(part)}"
    if part.rule:
        return f"{by} by its rule {quote(part.rule)}; it can run only under a policy without that rule."
    return f"{by}: {part.why.rstrip('.')}; it can run only under a policy that does not deny it."


def describe_question(layered: LayeredDecision, policy: Policy, approval: Approval) -> str:
    """Why it does not run if no user can be asked: the part, why, and what would allow it."""
    if layered.broken:
        return f"Everything needs a yes because {layered.broken}, and no user can be asked here; correct it."
    if approval.category == "outside":
        return f"{quote(approval.command)} would run outside the sandbox of the policy {policy.name}, {_NO_USER}."
    if not approval.parts:
        return f"Under the policy {policy.name} every command needs a yes, and no user can be asked here."
    part = approval.parts[0]
    more = f" and {len(approval.parts) - 1} more" if len(approval.parts) > 1 else ""
    needs = f"{_show(part)}{more} needs a yes under the policy {layered.layer} ({part.why.rstrip('.')})"
    return f"{needs}, and no user can be asked here; {_what_would_allow(approval)}."


def _show(part: Part) -> str:
    return quote(part.command.replace(UNKNOWN, "…"))  # what only a run can tell


def _what_would_allow(approval: Approval) -> str:
    if not approval.always:
        return "no rule can allow it as it is written, so ask where a user can answer, or write it more plainly"
    from json import dumps  # a TOML string with the same escapes

    rules = ", ".join(dumps(one, ensure_ascii=False) for one in approval.always)
    return f"allow = [{rules}] in {OWN_RULES} of the state directory would allow it"
