"""What can go wrong with active data, said for the person who can do something about it."""

from __future__ import annotations


class ActiveDataError(Exception):
    """Something asked of the active data cannot be done; the message says what and why."""


class StatementError(ActiveDataError):
    """A statement that is wrong; `position` counts its characters from 0.

    >>> error = StatementError("DROP TABLE x", 5, "expected DATASET, FEED, CHANNEL or BROKER, found 'TABLE'")
    >>> str(error)
    "line 1, column 6: expected DATASET, FEED, CHANNEL or BROKER, found 'TABLE'"
    """

    def __init__(self, text: str, position: int, reason: str) -> None:
        self.text = text
        self.position = max(0, min(position, len(text)))
        self.reason = reason
        super().__init__(f"line {self.line}, column {self.column}: {reason}")

    def __reduce__(self) -> tuple[object, ...]:
        return (StatementError, (self.text, self.position, self.reason))

    @property
    def line(self) -> int:
        """The line of the mistake, counted from 1."""
        return self.text.count("\n", 0, self.position) + 1

    @property
    def column(self) -> int:
        """The column of the mistake in its line, counted from 1."""
        return self.position - self.text.rfind("\n", 0, self.position)

    def pointer(self) -> str:
        """Two lines: the line of the mistake, and a caret under its column.

        >>> print(StatementError("DROP TABLE x", 5, "no").pointer())
        DROP TABLE x
             ^
        """
        shown = self.text.split("\n")[self.line - 1].replace("\t", " ")
        start = max(0, self.column - 60)
        return f"{shown[start : start + 100]}\n{' ' * (self.column - 1 - start)}^"


class NotFoundError(ActiveDataError):
    """Something that is named does not exist."""


class StorageError(ActiveDataError):
    """The disk did not take what was to be written: nothing of it was acknowledged."""
