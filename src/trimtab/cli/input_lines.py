"""Reading files of filters and publications, one per line, and saying where a mistake is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import IO, Final, NoReturn, TypeVar

import typer

from trimtab.language import LanguageError, ParseError

STDIN: Final = "-"
LINE_MAX_BYTES: Final = 4 * 1_048_576
"""No line of either kind can be longer and still be accepted: a character takes at most four bytes."""

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"

Parsed = TypeVar("Parsed")


def refuse(message: str) -> NoReturn:
    """Say what is wrong with the input and end with exit code 2."""
    typer.echo(printable(message), err=True)
    raise typer.Exit(2)


def printable(text: str) -> str:
    r"""The text with control characters, other than line ends, made visible.

    >>> printable("a\x1b[2J\n")
    'a\\x1b[2J\n'
    """
    return "".join(
        f"\\x{ord(char):02x}" if (ord(char) < 0x20 and char != "\n") or 0x7F <= ord(char) < 0xA0 else char
        for char in text
    )


def parse_lines(file_name: str, parse: Callable[[str], Parsed]) -> Iterator[tuple[int, Parsed]]:
    """The parsed lines of a file with their numbers; blank lines and lines that start with # are only counted."""
    for number, line in _text_lines(file_name):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        try:
            yield number, parse(line)
        except LanguageError as error:
            mistake = placed(error, line)
            refuse(f"{shown_name(file_name)}:{number}:{mistake.column}: {mistake.reason}\n{mistake.pointer()}")


def placed(error: LanguageError, text: str) -> ParseError:
    """The error with a column: a mistake that concerns the whole text is shown at its beginning.

    >>> placed(LanguageError("too long"), "[a,=,1]").column
    1
    """
    return error if isinstance(error, ParseError) else ParseError(text, 1, str(error))


def shown_name(file_name: str) -> str:
    """A file's name in messages."""
    return "standard input" if file_name == STDIN else file_name


def _text_lines(file_name: str) -> Iterator[tuple[int, str]]:
    for number, line in _byte_lines(file_name):
        try:
            yield number, line.decode("utf-8")
        except UnicodeDecodeError as error:
            column = len(line[: error.start].decode("utf-8")) + 1
            refuse(f"{shown_name(file_name)}:{number}:{column}: not valid UTF-8 (byte 0x{line[error.start]:02x})")


def _byte_lines(file_name: str) -> Iterator[tuple[int, bytes]]:
    name = shown_name(file_name)
    with _refusing_unreadable(name), _opened(file_name) as file:
        number = 0
        while line := file.readline(LINE_MAX_BYTES + 2):
            number += 1
            if number == 1:
                line = line.removeprefix(_BYTE_ORDER_MARK)
            line = line.removesuffix(b"\n").removesuffix(b"\r")
            if len(line) > LINE_MAX_BYTES:
                refuse(f"{name}:{number}:1: the line is longer than {LINE_MAX_BYTES:,} bytes")
            yield number, line


@contextmanager
def _refusing_unreadable(name: str) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        refuse(f"{name}: cannot be read: {error.strerror or error}")


def _opened(file_name: str) -> AbstractContextManager[IO[bytes]]:
    if file_name == STDIN:
        if sys.stdin is None:
            refuse("standard input is closed")
        return nullcontext(sys.stdin.buffer)
    if "\0" in file_name:
        refuse(f"{file_name}: not a file name")
    return Path(file_name).open("rb")


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells as lines, the columns to the right.

    >>> aligned([["a", "bb"], ["ccc", "d"]])
    ['  a  bb', 'ccc   d']
    """
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
