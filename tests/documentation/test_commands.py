"""Every command that README.md and the pages show is understood, and runs as printed."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
import typer.main

from tests.documentation.shown_commands import PAGES, ROOT, Shell, ShownCommand, shown_commands
from trimtab.cli.main import app

COMMANDS = [command for page in PAGES for block in shown_commands(page) for command in block]
USAGE_ERROR = typer.BadParameter.__mro__[1]
RUNNABLE = [page for page in PAGES if any(not each.elsewhere for block in shown_commands(page) for each in block)]


def understand(arguments: list[str]) -> None:
    """Parse a command line without carrying it out."""
    command: Any = typer.main.get_command(app)
    if arguments[0] == "--as":
        del arguments[:2]
    while hasattr(command, "commands"):
        name = arguments.pop(0)
        assert name in command.commands, f"there is no command {name}"
        command = command.commands[name]
    try:
        command.make_context(command.name, arguments)
    except typer.BadParameter as error:
        if "does not exist" not in str(error):  # a file of the reader's
            raise


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: f"{command.page}: {command.text}"[:100])
def test_a_command_is_understood(command: ShownCommand) -> None:
    if " [-" in command.text:
        return  # says which options there are
    understand(["7" if each == "N" else each for each in shlex.split(command.text)[1:]])


def run_page(page: Path, folder: Path, *, is_long: bool) -> None:
    shell = Shell(folder)
    for block in shown_commands(page):
        try:
            for command in block:
                if not command.elsewhere and (is_long or not command.is_long):
                    shell.run(command)
        finally:
            shell.end_block()


@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_quick_commands_of_a_page_run(page: Path, tmp_path: Path) -> None:
    run_page(page, tmp_path, is_long=False)


@pytest.mark.long
@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_all_commands_of_a_page_run(page: Path, tmp_path: Path) -> None:
    run_page(page, tmp_path, is_long=True)


def test_what_is_shown_is_found() -> None:
    texts = {command.text for command in COMMANDS}
    assert "trimtab up examples/seven.toml" in texts
    assert len(texts) > 100


@pytest.mark.parametrize("line", ["trimtab upp x.toml", "trimtab up --no-such-option", "trimtab sim fuzz --runs many"])
def test_a_command_that_is_wrong_is_found(line: str) -> None:
    with pytest.raises((USAGE_ERROR, AssertionError)):
        understand(shlex.split(line)[1:])
