"""`shutil.which`, without the archives that `shutil` can make."""

from __future__ import annotations

import os


def which(name: str, path: str | None = None) -> str | None:
    """Where a program is that goes by this name."""
    if os.path.dirname(name):
        return name if _is_program(name) else None
    places = os.environ.get("PATH", os.defpath) if path is None else path
    found = (os.path.join(place, name) for place in (places.split(os.pathsep) if places else ()))
    return next(filter(_is_program, found), None)


def _is_program(path: str) -> bool:
    return os.access(path, os.X_OK) and not os.path.isdir(path)
