"""Where commands that simulate keep records, as far as that can be done: without pyarrow they go on without."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from trimtab.records.files import RecordFiles


@contextmanager
def simulated_records(
    folder: str | None, process: str, *, run: str, deliveries_one_in: int, besides: str
) -> Iterator[RecordFiles | None]:
    """A run's records, in place of those of a former run; None if none are wanted or can be written.

    `besides` is what is written even so, for people.
    """
    if folder is None:
        yield None
        return
    from trimtab.records.files import MissingParquetError, RecordFiles

    try:
        files = RecordFiles(folder, process, run=run, deliveries_one_in=deliveries_one_in, replace=True)
    except MissingParquetError as error:
        typer.echo(f"no records are written, only the {besides}: {error}", err=True)
        yield None
        return
    with files:
        yield files
