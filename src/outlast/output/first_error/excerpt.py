"""The lines that explain an error."""

from __future__ import annotations

from outlast.light import frozen


@frozen
class Excerpt:
    """The lines that explain an error; a line "..." stands for lines that were left out."""

    lines: tuple[str, ...]
    line_number: int  # of the first of them in the output; the output begins with line 1
