"""Error messages for models: the library's sentences without the command line, which a model does not have. Pure."""

from __future__ import annotations

import re

_BETTER = {
    "start it with `--stdin open`": "start it with its input open",
    "was run without --split, so its stderr": "keeps no separate stderr: it",
}
_LISTS_THEM = re.compile(r"; `outlast [^`]*` lists them")
_CLAUSE = re.compile(r"; `outlast [^`]*` [^.;]*")
_WITH = re.compile(r" with `outlast [^`]*`")


def for_model(message: str, lists: str) -> str:
    """Return an error message that names no verb of the command line. `lists` says how this profile lists its tasks."""
    for said, better in _BETTER.items():
        message = message.replace(said, better)
    message = _LISTS_THEM.sub(lambda _: f"; {lists}" if lists else "", message)
    return _WITH.sub("", _CLAUSE.sub("", message))
