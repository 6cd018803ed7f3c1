"""What a policy is, and where policies are looked for; `decision` judges a request by one.

Every command line loads this module, so it imports nothing that only a policy with rules needs.
"""

from __future__ import annotations

import os

from outlast.light import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from outlast.policy.approval import Category, Layer

    Mode = Literal["default", "yolo"]

MODES = ("default", "yolo")
OWN_RULES = "policy.toml"  # in the state directory: the user's own rules, and what "always" writes to
PROJECT_FILES = (".outlast/policy.toml", "outlast.policy.toml")
_REPOSITORY = ".git"


@frozen
class Policy:
    """What may run. The strictest of its layers decides; one without layers allows everything."""

    name: str
    layers: tuple[Layer, ...] = ()
    asks: tuple[Category, ...] = ()  # what needs a yes even where every layer allows it
    confined: bool = False  # commands run in a sandbox; what runs outside needs a yes


YOLO = Policy("yolo")
WORKSPACE = Policy("workspace", confined=True)


# --- where policies are looked for -------------------------------------------------------


def project_files(directory: str, home: str) -> tuple[str, ...]:
    """The policy files of the project that a directory is part of, the nearest first.

    A project reaches up to the root of its repository; without one it is the directory alone.
    """
    own = os.path.join(home, OWN_RULES)
    found: list[str] = []
    nearest = 0
    here = directory
    while True:
        for name in PROJECT_FILES:
            path = os.path.join(here, name)
            if os.path.lexists(path) and path != own:
                found.append(path)
        if here == directory:
            nearest = len(found)
        if os.path.lexists(os.path.join(here, _REPOSITORY)):
            return tuple(found)
        above = os.path.dirname(here)
        if above == here:
            return tuple(found[:nearest])
        here = above


def own_rules(home: str) -> str:
    """The file of the user's own rules, if there is one."""
    path = os.path.join(home, OWN_RULES)
    return path if os.path.lexists(path) else ""


def may_apply(home: str, policy: str, directory: str) -> bool:
    """Whether anything may have something against a command in `directory`, where `policy` is the user's."""
    if policy not in ("", YOLO.name):
        return True
    own = own_rules(home)
    return bool(own and may_deny(own)) or bool(directory and project_files(directory, home))


def may_deny(path: str) -> bool:
    """Whether a policy file can deny anything; one that only allows need not be read where all is allowed."""
    try:
        if not os.path.isfile(path):
            return True
        with open(path, "rb") as file:
            return b"deny" in file.read(1 << 20)
    except OSError:
        return True
