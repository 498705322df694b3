"""A feed from a directory: new files, and what is added to known ones, in the order of their names.

Lines of JSON and CSV are followed as they grow. Compressed files and Parquet are taken when they have not changed for a
moment. How far each file was read stands in the catalog with a check of what was read there; a file that was written
anew fails the check and is read from its beginning, where keys keep what is known from being stored again.
"""

from __future__ import annotations

import gzip
import hashlib
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Final

import msgspec

from trimtab.activedata.definitions.statements import DirectorySource
from trimtab.activedata.feeds.raw_records import (
    RawRecord,
    csv_header,
    csv_records,
    format_of,
    json_record,
    json_records,
    parquet_records,
    whole_rows,
)
from trimtab.activedata.storage.catalog import Catalog
from trimtab.activedata.storage.catalog_entries import FeedEntry, FilePosition
from trimtab.activedata.storage.datasets import StoredDataset

LOOK_AGAIN_AFTER_S: Final = 0.5
"""How often a directory is looked at for new files and lines."""

AT_REST_AFTER_S: Final = 2.0
"""A file that has not changed for so long is whole: its last line counts without an end."""

READ_BYTES: Final = 4 * 1024 * 1024
"""At most so much of a file becomes one commit."""

LINE_MAX_BYTES: Final = 16 * READ_BYTES
PARQUET_ROWS_COUNT: Final = 20_000
CHECKED_BYTES: Final = 256
HEADER_MAX_BYTES: Final = 1024 * 1024

Take = Callable[[list[RawRecord], str, dict[str, int]], None]
"""Stores records of a source; the marks say how far the source is read then."""


class _Look(msgspec.Struct, frozen=True):
    """A file as it was seen, and since when it has been so."""

    size: int
    changed_ns: int
    since_s: float


class DirectoryFeed:
    """Reads the files of one feed's directory."""

    def __init__(self, feed: FeedEntry, dataset: StoredDataset, catalog: Catalog, take: Take) -> None:
        assert isinstance(feed.source, DirectorySource)
        self._feed = feed
        self._directory = Path(feed.source.path)
        self._format = feed.source.format
        self._dataset = dataset
        self._catalog = catalog
        self._take = take
        self._positions = catalog.file_positions(feed.id)
        self._looks: dict[str, _Look] = {}
        self._read: dict[str, tuple[int, int]] = {}
        """Files of which everything was read, as they were then."""
        self._problem = ""

    def follow(self, stop: Event) -> None:
        """Read on until told to stop; a file that cannot be read does not keep the others from being read."""
        while not stop.is_set():
            busy = False
            problems: list[str] = []
            for path in sorted(self._directory.iterdir()):
                if stop.is_set():
                    return
                if path.name.startswith(".") or not path.is_file():
                    continue
                try:
                    busy |= self._read_on(path, stop)
                except (OSError, ValueError, EOFError, zlib.error) as error:
                    problems.append(f"{path.name} cannot be read: {error}")
            problem = "; ".join(problems)[:500]
            if problem and (busy or problem != self._problem):
                self._catalog.feed_failed(self._feed.id, problem)
            self._problem = problem
            if not busy:
                stop.wait(LOOK_AGAIN_AFTER_S)

    def _read_on(self, path: Path, stop: Event) -> bool:
        status = path.stat()
        now = (status.st_size, status.st_mtime_ns)
        look = self._looks.get(path.name)
        if look is None or (look.size, look.changed_ns) != now:
            look = self._looks[path.name] = _Look(*now, time.monotonic())
        if self._read.get(path.name) == now:
            return False
        at_rest = time.monotonic() - look.since_s >= AT_REST_AFTER_S
        file_format, packed = format_of(path.name, self._format)
        if packed or file_format == "PARQUET":
            return at_rest and self._read_whole(path, file_format, now, stop)
        return self._read_lines(path, file_format, now, at_rest)

    def _position(self, name: str) -> FilePosition:
        return self._positions.get(name, FilePosition())

    def _set_position(self, name: str, position: FilePosition) -> None:
        self._positions[name] = position
        self._catalog.set_file_position(self._feed.id, name, position)

    def _marks(self, name: str, position: FilePosition, to: int) -> dict[str, int]:
        """How far the file's dead letters are known; a file that was written anew counts as another."""
        again = f":{position.generation}" if position.generation else ""
        return {f"{self._feed.id}:{name}{again}": to}

    def _written_anew(self, name: str) -> FilePosition:
        return FilePosition(generation=self._position(name).generation + 1)

    # Files that grow

    def _read_lines(self, path: Path, file_format: str, now: tuple[int, int], at_rest: bool) -> bool:
        """Take the next whole lines of a file; a last line without its end waits until the file is at rest."""
        position = self._position(path.name)
        with path.open("rb") as file:
            start = max(0, position.offset - CHECKED_BYTES)
            file.seek(start)
            checked = file.read(position.offset - start)
            if now[0] < position.offset or (position.check and _digest(checked) != position.check):
                position, checked = self._written_anew(path.name), b""
                file.seek(0)
            data = file.read(READ_BYTES)
            header = None
            if file_format == "CSV":
                file.seek(0)
                header = file.readline(HEADER_MAX_BYTES)
                if not header.endswith(b"\n"):
                    return False
        whole = whole_rows(data, file_format) or (data if len(data) == READ_BYTES else b"")
        if len(data) < READ_BYTES and len(whole) < len(data) and at_rest:
            tail = data[len(whole) :]
            if file_format == "CSV" or isinstance(json_record(tail, 0).value, dict):
                whole = data
        if not whole:
            if now[0] == position.offset:
                self._read[path.name] = now
            return False
        to = position.offset + len(whole)
        self._take(
            self._records(whole, position.offset, file_format, header), path.name, self._marks(path.name, position, to)
        )
        check = _digest((checked + whole)[-min(CHECKED_BYTES, to) :])
        self._set_position(path.name, FilePosition(to, position.generation, check))
        return True

    def _records(self, data: bytes, place: int, file_format: str, header: bytes | None) -> list[RawRecord]:
        if header is None:
            return json_records(data, place)
        if not place:
            place = len(header)
            data = data[len(header) :]
        return csv_records(data, place, csv_header(header), self._dataset.entry.fields)

    # Files that are whole

    def _read_whole(self, path: Path, file_format: str, now: tuple[int, int], stop: Event) -> bool:
        position = self._position(path.name)
        check = f"{now[0]}:{now[1]}"
        if position.check and position.check != check:
            position = self._written_anew(path.name)
        if file_format == "PARQUET":
            with path.open("rb") as file:
                for records in parquet_records(file, position.offset, PARQUET_ROWS_COUNT):
                    position = self._taken(path.name, records, position, records[-1].place + 1, check)
                    if stop.is_set():
                        return True
        else:
            with gzip.open(path, "rb") as packed:
                self._read_packed(path.name, packed, file_format, position, check, stop)
        if not stop.is_set():
            self._read[path.name] = now
        return True

    def _read_packed(  # noqa: PLR0917
        self, name: str, packed: gzip.GzipFile, file_format: str, position: FilePosition, check: str, stop: Event
    ) -> None:
        header = packed.readline(HEADER_MAX_BYTES) if file_format == "CSV" else None
        packed.seek(position.offset)
        left = b""
        while (data := packed.read(READ_BYTES)) or left:
            data = left + data
            is_over = len(data) == len(left) or len(data) > LINE_MAX_BYTES
            whole = data if is_over else whole_rows(data, file_format)
            if whole:
                records = self._records(whole, position.offset, file_format, header)
                position = self._taken(name, records, position, position.offset + len(whole), check)
            left = data[len(whole) :]
            if stop.is_set():
                return

    def _taken(self, name: str, records: list[RawRecord], position: FilePosition, to: int, check: str) -> FilePosition:
        self._take(records, name, self._marks(name, position, to))
        position = FilePosition(to, position.generation, check)
        self._set_position(name, position)
        return position


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=12).hexdigest()
