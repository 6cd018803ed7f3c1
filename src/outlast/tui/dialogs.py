"""Small windows that ask for one thing: a line of text, or a yes."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

TYPE_CHECKING = False
if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType


class AskText(ModalScreen[str | None]):
    """Asks for one line; None if the user presses Escape."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "Cancel")]

    def __init__(self, question: str, value: str = "") -> None:
        super().__init__()
        self._question, self._value = question, value

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(Text(self._question))
            yield Input(self._value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)


class Confirm(ModalScreen[bool | None]):
    """Asks for a yes: y or Enter."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,enter", "dismiss(True)", "Yes"),
        Binding("n,escape,q", "dismiss(False)", "No"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(Text(self._question))
            yield Static(Text("y yes   n no", style="dim"))


class Help(ModalScreen[None]):
    """Shows the keys."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark,enter", "dismiss", "Close")]

    def __init__(self, rows: list[tuple[str, str]]) -> None:
        super().__init__()
        self._rows = rows

    def compose(self) -> ComposeResult:
        width = max(len(key) for key, _ in self._rows)
        text = Text.assemble(*((f"{key:>{width}}  {what}\n", "") for key, what in self._rows))
        with Vertical(classes="dialog"):
            yield Static(text)
