"""A broker's publications on disk: a log in numbered files, written in one go with all that has come meanwhile.

A record is its length and its checksum, four bytes each, and either a publication as it travels or the end of one
publisher's publications up to a number. A thread writes and waits for the disk; what has come while it did goes into
the next write, so that a disk that takes long gets fewer and larger writes. A file is deleted when all its
publications have ended. After a crash the files are read, what has not ended is written anew, and a record that was
not written to its end is left out: it was not acknowledged.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec

from trimtab.protocol.codec import decode_publication, encode_message
from trimtab.protocol.effects import Append, Forget
from trimtab.protocol.messages import Publish

FILE_MAX_BYTES: Final = 16 * 1024 * 1024
"""A new file begins beyond this size; small enough that ended publications do not stay long."""

_HEAD: Final = struct.Struct(">II")
_PUBLICATION: Final = b"P"
_END: Final = b"E"


class PublicationLogError(Exception):
    """A log that cannot be opened or read; the message says which and why."""


class _File:
    """One file of the log: how long it is, and which publications are in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size_bytes = 0
        self.last: dict[tuple[str, str], int] = {}
        """The last sequence number of each publisher and session."""


class PublicationLog:
    """The log of one broker, in a folder of its own."""

    def __init__(self, folder: Path, told: Callable[[int], None], failed: Callable[[str], None]) -> None:
        """Who is told up to which number all is stored, and that nothing can be stored any more."""
        self._folder = folder
        self._told = told
        self._failed = failed
        self._files: list[_File] = []
        self._ended: dict[tuple[str, str], int] = {}
        self._waiting: list[Publish] = []
        self._ends_waiting: dict[tuple[str, str], int] = {}
        self._waiting_number = 0
        self._is_writing = False
        self._descriptor = -1
        self._lock = -1
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="disk")
        self.writes_count = 0

    # ---- begin and end ----

    def open(self) -> tuple[Publish, ...]:
        """Begin: what earlier lives have stored and has not ended, in its order."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self._folder / "lock", os.O_CREAT | os.O_RDWR, 0o644)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            paths = sorted(self._folder.glob("*.log"))
            left = self._read_all(paths)
            self._begin_file(int(paths[-1].stem) + 1 if paths else 1)
            self._waiting = list(left)
            self._write(self._take_waiting())
            for path in paths:
                path.unlink()
        except BlockingIOError:
            raise PublicationLogError(f"{self._folder} is in use by another process") from None
        except OSError as error:
            raise PublicationLogError(f"{error.filename or self._folder}: {error.strerror}") from None
        return left

    def close(self) -> None:
        """End: what was asked for is written."""
        self._executor.shutdown(wait=True)
        if self._descriptor >= 0:
            self._write(self._take_waiting())
            os.close(self._descriptor)
        if self._lock >= 0:
            os.close(self._lock)

    def _read_all(self, paths: list[Path]) -> tuple[Publish, ...]:
        found: list[Publish] = []
        for path in paths:
            for record in records_of(path.read_bytes()):
                if record[:1] == _PUBLICATION:
                    found.append(decode_publication(record[1:]))
                else:
                    publisher, session, sequence = msgspec.msgpack.decode(record[1:], type=tuple[str, str, int])
                    self._end(publisher, session, sequence)
        return tuple(each for each in found if each.sequence > self._ended.get((each.publisher, each.session), 0))

    # ---- while the broker runs ----

    def append(self, effect: Append) -> None:
        """One more to store; its number is told when it is."""
        self._waiting.append(effect.publication)
        self._waiting_number = effect.number
        self._write_on()

    def forget(self, effect: Forget) -> None:
        """A publisher's publications up to a number are not needed; this need not be on the disk at once."""
        self._end(effect.publisher, effect.session, effect.sequence)
        self._ends_waiting[effect.publisher, effect.session] = effect.sequence
        while len(self._files) > 1 and self._has_ended(self._files[0]):
            self._files.pop(0).path.unlink(missing_ok=True)

    def _has_ended(self, file: _File) -> bool:
        return all(self._ended.get(key, 0) >= sequence for key, sequence in file.last.items())

    def _end(self, publisher: str, session: str, sequence: int) -> None:
        self._ended[publisher, session] = max(sequence, self._ended.get((publisher, session), 0))

    def _take_waiting(self) -> bytes:
        """What waits, as records for the present file."""
        publications, self._waiting = self._waiting, []
        ends, self._ends_waiting = self._ends_waiting, {}
        last = self._files[-1].last
        for each in publications:
            last[each.publisher, each.session] = each.sequence
        records = [_PUBLICATION + encode_message(each) for each in publications]
        records += [_END + msgspec.msgpack.encode((*key, sequence)) for key, sequence in ends.items()]
        return b"".join([_HEAD.pack(len(record), zlib.crc32(record)) + record for record in records])

    def _write_on(self) -> None:
        """Have the thread write what waits, unless it is writing."""
        if self._is_writing or not self._waiting_number:
            return
        data, number = self._take_waiting(), self._waiting_number
        self._waiting_number = 0
        self._is_writing = True
        loop = asyncio.get_running_loop()
        writing = loop.run_in_executor(self._executor, self._write, data)
        writing.add_done_callback(lambda done: self._written(done, number))

    def _written(self, done: asyncio.Future[None], number: int) -> None:
        self._is_writing = False
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            self._failed(f"{self._files[-1].path} cannot be written: {reason}")
            return
        if self._files[-1].size_bytes > FILE_MAX_BYTES:
            os.close(self._descriptor)
            self._begin_file(int(self._files[-1].path.stem) + 1)
        self._told(number)
        self._write_on()

    def _begin_file(self, number: int) -> None:
        file = _File(self._folder / f"{number:012}.log")
        self._descriptor = os.open(file.path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_EXCL, 0o644)
        self._files.append(file)
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)  # the file's name is there after a crash, too
        finally:
            os.close(folder)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]
        os.fsync(self._descriptor)
        self._files[-1].size_bytes += len(data)
        self.writes_count += 1


def records_of(data: bytes) -> Iterator[bytes]:
    """The records of a file, up to the first that is not whole.

    >>> whole = _HEAD.pack(2, zlib.crc32(b"Pa")) + b"Pa"
    >>> list(records_of(whole + whole[:-1]))
    [b'Pa']
    """
    place = 0
    while place + _HEAD.size <= len(data):
        length, checksum = _HEAD.unpack_from(data, place)
        record = data[place + _HEAD.size : place + _HEAD.size + length]
        if len(record) != length or zlib.crc32(record) != checksum:
            return
        yield record
        place += _HEAD.size + length
