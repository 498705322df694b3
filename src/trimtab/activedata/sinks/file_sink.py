"""Results that are written into files of JSON lines, each once: what a crash left half written is cut off.

A file is named after the first position in it, and a new one begins when it is large. The last whole line of the newest
file says how far the sink is, so that nothing is written twice.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import IO, Final

import msgspec

from trimtab.activedata.sinks.result_cursor import ResultCursor, SunkResult
from trimtab.activedata.storage.durable_files import make_folder, sync

AT_ONCE_COUNT: Final = 2_000
FILE_BYTES: Final = 64 * 1024 * 1024
LOOK_UP_EVERY_S: Final = 0.25
_BLOCK_BYTES: Final = 1024 * 1024


class FileSink:
    """Writes one broker's results."""

    def __init__(self, cursor: ResultCursor, folder: Path) -> None:
        self.cursor = cursor
        self._folder = folder
        self.sent_count = 0
        self.error: str | None = None

    def work(self, stop: threading.Event) -> None:
        """Write until told to stop."""
        make_folder(self._folder)
        self.cursor.position = max(self.cursor.position, self._recovered())
        file: IO[bytes] | None = None
        try:
            while not stop.is_set():
                results, position = self.cursor.next(LOOK_UP_EVERY_S, AT_ONCE_COUNT)
                if results:
                    if file is None or file.tell() > FILE_BYTES:
                        file = self._next_file(file, results[0].position)
                    self._write(file, results)
                if position != self.cursor.position:
                    self.cursor.passed_on(position, noted=bool(results))
        finally:
            if file is not None:
                file.close()

    def _write(self, file: IO[bytes], results: list[SunkResult]) -> None:
        file.write(b"".join(msgspec.json.encode(each) + b"\n" for each in results))
        file.flush()
        os.fsync(file.fileno())
        self.sent_count += len(results)
        self.error = None

    def _next_file(self, before: IO[bytes] | None, position: int) -> IO[bytes]:
        newest = self._newest()
        if before is None and newest is not None and newest.stat().st_size <= FILE_BYTES:
            return newest.open("ab")
        if before is not None:
            before.close()
        file = (self._folder / f"results-{position:020d}.jsonl").open("ab")
        sync(self._folder)
        return file

    def _newest(self) -> Path | None:
        return max(self._folder.glob("results-*.jsonl"), default=None)

    def _recovered(self) -> int:
        """The position of the last whole line; what stands behind it is cut off."""
        newest = self._newest()
        if newest is None:
            return 0
        with newest.open("r+b") as file:
            size = file.seek(0, os.SEEK_END)
            start = max(0, size - _BLOCK_BYTES)
            file.seek(start)
            block = file.read()
            end = block.rfind(b"\n") + 1
            if end < len(block):
                file.truncate(start + end)
                os.fsync(file.fileno())
        last = block[:end].rstrip(b"\n").rpartition(b"\n")[2]
        if last:
            return msgspec.json.decode(last, type=SunkResult).position
        return int(newest.stem.removeprefix("results-")) - 1
