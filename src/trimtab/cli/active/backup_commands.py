"""The commands `trimtab active backup` and `trimtab active restore`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from trimtab.cli.input_lines import printable

if TYPE_CHECKING:
    from trimtab.activedata.storage.backup import BackupFigures

DIRECTORY: Final = Path("active-data")


def backup(
    to: Annotated[Path, typer.Argument(help="A directory that does not exist yet.", show_default=False)],
    directory: Annotated[Path, typer.Option("--dir", help="The directory of the active data.")] = DIRECTORY,
) -> None:
    """Copy the directory of an active-data process, which may go on running.

    The copy is opened once, so what is damaged is told at once.

    \b
    Example:
      trimtab active backup --dir city backups/monday
    """
    from trimtab.activedata.storage.backup import back_up

    _done(lambda: back_up(directory, to), f"{directory} backed up to {to}")


def restore(
    backup: Annotated[Path, typer.Argument(help="A directory that `trimtab active backup` made.", show_default=False)],
    directory: Annotated[Path, typer.Option("--dir", help="The directory to make; it must not exist.")] = DIRECTORY,
) -> None:
    """Make a directory of active data from a backup.

    \b
    Example:
      trimtab active restore backups/monday --dir city
    """
    from trimtab.activedata.storage.backup import restore as restored

    _done(lambda: restored(backup, directory), f"{directory} restored from {backup}")


def _done(work: Callable[[], BackupFigures], said: str) -> None:
    from trimtab.activedata.errors import ActiveDataError

    try:
        figures = work()
    except (ActiveDataError, OSError) as error:
        typer.echo(printable(str(error)), err=True)
        raise typer.Exit(1) from None
    megabytes = figures.size_bytes / 1e6
    typer.echo(f"{said}: {figures.tables_count} tables, {figures.files_count:,} files, {megabytes:,.1f} MB")
