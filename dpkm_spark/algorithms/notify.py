"""How a running algorithm tells what it is doing: released and public facts only."""

from __future__ import annotations

from typing import Protocol


class Notify(Protocol):
    """Takes a line of progress."""

    def __call__(self, text: str, *, brief: bool = False) -> None:
        """Show ``text``; a ``brief`` line may be overwritten by the next, or left out."""


def silent(text: str, *, brief: bool = False) -> None:
    """Show nothing."""
