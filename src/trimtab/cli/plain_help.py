"""Help texts in words of the command line: without markup, and without the names of Python's types."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import typer
from typer.core import TyperCommand

_TYPE: Final = re.compile(r" <[^<>]+>$")
_REQUIRED: Final = re.compile(r"^\{(.*)\}")


class PlainCommand(TyperCommand):
    """A command whose arguments are told by their names alone."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The arguments of the usage line: those that may be left out in brackets, the others as they are."""
        return [_REQUIRED.sub(r"\1", piece) for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the sections on arguments and options."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and parameter.param_type_name == "argument":
                sections["Arguments"].append((_TYPE.sub("", record[0]), record[1]))
            elif record is not None:
                sections["Options"].append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class PlainTyper(typer.Typer):
    """A group of such commands, in which brackets are what the user typed, and no markup.

    >>> app = PlainTyper(help="Greet.")
    >>> @app.command()
    ... def greet(names: list[str] = typer.Argument(metavar="NAME", help="Whom to greet.")) -> None: ...
    >>> from typer.testing import CliRunner
    >>> "<list" in CliRunner().invoke(app, ["--help"]).stdout
    False
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"rich_markup_mode": None, "no_args_is_help": True, **options})

    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:
        """Register a command."""
        return super().command(name, **{"cls": PlainCommand, **options})
