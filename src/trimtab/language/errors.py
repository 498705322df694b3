"""What can be wrong with a value, a predicate, a filter or a publication, said for people."""

from __future__ import annotations


class LanguageError(ValueError):
    """Input that the language does not accept; the message says what was wrong and what to do."""


class LimitError(LanguageError):
    """Input that is well formed but larger than the limits of `trimtab.language.limits`."""


class ContradictionError(LanguageError):
    """A filter that no publication can satisfy; the message names the attribute and the reason."""

    def __init__(self, attribute: str, reason: str) -> None:
        super().__init__(f"contradictory filter: {attribute}: {reason}")
        self.attribute = attribute
        self.reason = reason

    def __reduce__(self) -> tuple[object, ...]:
        return (ContradictionError, (self.attribute, self.reason))


class ParseError(LanguageError):
    """Text that is not in the notation; `column` counts characters from 1.

    >>> error = ParseError("[a,=,]", 6, "expected a value")
    >>> str(error)
    'column 6: expected a value'
    """

    def __init__(self, text: str, column: int, reason: str) -> None:
        super().__init__(f"column {column}: {reason}")
        self.text = text
        self.column = column
        self.reason = reason

    def __reduce__(self) -> tuple[object, ...]:
        return (ParseError, (self.text, self.column, self.reason))

    def pointer(self, width: int = 72) -> str:
        """Two lines: the part of the text around the mistake, and a caret under the column.

        >>> print(ParseError("[a,=,]", 6, "expected a value").pointer())
        [a,=,]
             ^
        """
        start = max(0, self.column - 1 - width // 2)
        shown = self.text[start : start + width]
        shown = "".join(char if char.isprintable() else " " for char in shown)
        return f"{shown}\n{' ' * (self.column - 1 - start)}^"
