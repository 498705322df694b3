"""Rows of answers as tables, for people."""

from __future__ import annotations

import json
import sys
from typing import Any, Final

import typer

from trimtab.cli.input_lines import printable

ANSWER_WIDTH_CHARS: Final = 160


def print_answers(answers: list[dict[str, Any]], *, as_json: bool) -> None:
    """Print what statements answered: rows as tables, or as JSON with one object in a line."""
    for answer in answers:
        if as_json:
            for row in answer["rows"]:
                typer.echo(json.dumps(row))
        elif answer["rows"]:
            print_table(answer["said"], answer["rows"])
        else:
            typer.echo(printable(answer["said"]))


def print_table(title: str, rows: list[dict[str, Any]], width: int = ANSWER_WIDTH_CHARS) -> None:
    """Print rows as a table, as wide as the terminal, or as told where there is none."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else width, highlight=False)
    if not rows:
        console.print(Text(f"{title}: none"))
        return
    table = Table(title=Text(title), title_justify="left", box=None, pad_edge=False)
    for name in rows[0]:
        number = isinstance(rows[0][name], (int, float)) and not isinstance(rows[0][name], bool)
        table.add_column(name, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_shown(value)) for value in row.values()))
    console.print(table)


def _shown(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:,.3f}"
        case int():
            return f"{value:,}"
        case str():
            return printable(value)
    return printable(json.dumps(value))
