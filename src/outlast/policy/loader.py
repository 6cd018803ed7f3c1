"""Which policies there are, and which are in force.

Three may speak: the user's (the setting `policy`), the project's (a file in its directory) and
that of the call. Each is a layer, and the strictest verdict wins, so a project can narrow what
is allowed and never widen it. The user's own rules (`policy.toml` in the state directory) answer
for all of them: what they allow is not asked about, what they deny is denied.
"""

from __future__ import annotations

import os

from outlast.errors import BadInput, quote
from outlast.light import replace
from outlast.policy import WORKSPACE, YOLO, Policy, own_rules
from outlast.policy.approval import Layer
from outlast.policy.commands.destructive import make_destructive_check
from outlast.policy.commands.sensitive_files import make_protection_check
from outlast.policy.layers import with_rules
from outlast.policy.policy_file import BadPolicy, PolicyFile, read
from outlast.policy.rules import Rules
from outlast.settings import allowed_programs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from outlast.settings import Settings

_BANNED = (
    "alias curl curlie wget axel aria2c nc ncat telnet ftp lynx w3m links http https httpie xh http-prompt "
    "chrome chromium firefox safari google-chrome"
)
_INTERPRETERS = "bash sh zsh dash ksh fish csh tcsh"
_DEEPEST = 8  # files that extend files


def _each(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{name} *" for name in names)


def _ready(which: str, settings: Settings) -> Layer:
    """The one layer of a ready policy that has one."""
    if which == "ask":
        return Layer(which, Rules(), asks_all=True)
    if which == "banned":
        return Layer(which, Rules(deny=_each(_BANNED.split()), otherwise="allow"))
    if which == "guarded":
        return Layer(which, Rules(otherwise="allow", hazard=make_destructive_check(os.path.expanduser("~"))))
    rules = Rules(allow=_each(allowed_programs(settings)), deny=_each(_INTERPRETERS.split()))
    return Layer(which, replace(rules, otherwise="deny", any_arguments=True) if which == "programs" else rules)


_LAYERS = ("banned", "programs", "allowlist", "ask", "guarded")
_WITHOUT_LAYERS = {policy.name: policy for policy in (WORKSPACE, YOLO)}
READY = (WORKSPACE.name, *_LAYERS, YOLO.name)


def is_file(which: str) -> bool:
    """Whether a name is that of a file rather than of a ready policy."""
    return "/" in which or which.endswith(".toml")


def load(which: str, settings: Settings, *, is_project: bool = False) -> Policy:
    """A ready policy by its name, or one from a file; `BadInput` if there is none, `BadPolicy` if it is broken."""
    if is_file(which):
        path = os.path.abspath(os.path.expanduser(which))
        if not os.path.lexists(path):
            raise BadInput(f"There is no policy file {path}; name one that exists, or one of {', '.join(READY)}.")
        return _from_file(path, settings, is_project, ())
    if which in _WITHOUT_LAYERS:
        return _WITHOUT_LAYERS[which]
    if which not in _LAYERS:
        known = ", ".join(READY)
        raise BadInput(f"There is no policy {quote(which)}; known are {known}, or a file: its path, or NAME.toml.")
    return Policy(which, (_ready(which, settings),))


def _from_file(path: str, settings: Settings, is_project: bool, above: tuple[str, ...]) -> Policy:
    if path in above or len(above) >= _DEEPEST:
        raise BadPolicy(f"the policy file {path} extends itself, or too many files extend each other")
    said = read(path)
    base = _base(said, settings, (*above, path))
    # A policy that only denies has no opinion on the rest; only a project's word is not the last one.
    silent: Rules = Rules(otherwise="allow" if is_project and not said.allow else "ask")
    layer = base.layers[0] if base and base.layers else Layer(path, Rules(otherwise="allow") if base else silent)
    rules = replace(
        layer.rules,
        allow=(*layer.rules.allow, *said.allow),
        deny=(*layer.rules.deny, *said.deny),
        write=(*layer.rules.write, *said.write),
        otherwise=said.otherwise or layer.rules.otherwise,
    )
    asks = tuple(dict.fromkeys((*(base.asks if base else ()), *said.ask_always)))
    return Policy(path, (replace(layer, name=path, rules=rules),), asks, bool(base and base.confined))


def _base(said: PolicyFile, settings: Settings, above: tuple[str, ...]) -> Policy | None:
    if not said.extends:
        return None
    try:
        if is_file(said.extends):
            return _from_file(os.path.abspath(said.extends), settings, False, above)
        return load(said.extends, settings)
    except BadInput as error:
        raise BadPolicy(f"{said.path} extends what cannot be used: {error.message.rstrip('.')}") from None


def load_or_ask(
    which: str, settings: Settings, *, is_project: bool = False, tolerates: type[BadInput] = BadInput
) -> Policy:
    """As `load`; one that cannot be used asks about everything."""
    try:
        return load(which, settings, is_project=is_project)
    except tolerates as error:
        why = error.message.rstrip(".")
        return Policy(which, (Layer(which, Rules(), broken=why[:1].lower() + why[1:]),))


def policy_for_children(call: str | Policy | None) -> str:
    """How the policy of a call is named for others; empty if it cannot be, or need not."""
    if not isinstance(call, str) or call == YOLO.name:
        return ""
    return os.path.abspath(os.path.expanduser(call)) if is_file(call) else call


def combine_policies(home: str, settings: Settings, call: str | Policy | None, projects: Sequence[str] = ()) -> Policy:
    """All that has a say, as one policy."""
    spoken: list[Policy] = [load_or_ask(settings.policy, settings)] if settings.policy else []
    if isinstance(call, Policy):
        spoken.append(call)
    elif call is not None and call != settings.policy:
        spoken.append(load_or_ask(call, settings, tolerates=BadPolicy))
    spoken += [load_or_ask(path, settings, is_project=True) for path in projects]
    layers = tuple(layer for policy in spoken for layer in policy.layers)
    asks = tuple(dict.fromkeys(one for policy in spoken for one in policy.asks))
    names = list(dict.fromkeys(policy.name for policy in spoken if policy.layers or policy.asks or policy.confined))
    protected = tuple(_protect(layer, home) for layer in layers)
    whole = Policy(" + ".join(names) or YOLO.name, protected, asks, any(policy.confined for policy in spoken))
    path = own_rules(home)
    return _with_own_rules(whole, path) if path else whole


def _protect(layer: Layer, home: str) -> Layer:
    """The layer with one more hazard: nothing that it checks writes its own rules."""
    hazard, more = layer.rules.hazard, make_protection_check(home)

    def either(words: tuple[str | None, ...], where: str, elsewhere: bool) -> str | None:
        return (hazard(words, where, elsewhere) if hazard else None) or more(words, where, elsewhere)

    return replace(layer, rules=replace(layer.rules, hazard=either))


def _with_own_rules(policy: Policy, path: str) -> Policy:
    try:
        own = read(path)
    except BadPolicy as error:
        return replace(policy, layers=(*policy.layers, Layer(path, Rules(), broken=error.message)))
    more = (Layer(path, Rules(deny=own.deny, otherwise="allow")),) if own.deny else ()
    return with_rules(replace(policy, layers=(*policy.layers, *more)), own.allow, own.write)
