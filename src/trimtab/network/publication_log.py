"""What a broker has on disk: its clients' publications and records, in a log of numbered files.

A record of the log is its length and its checksum, four bytes each, and one of these: a publication as it travels; the
end of one publisher's publications up to a number; a change in what is known of a client (`Guard`); all that is known
of clients (a checkpoint), which voids what was said of them before; the epoch of the broker's incarnation. A thread
writes and waits for the disk; what has come while it did goes into the next write, so that a disk that takes long gets
fewer and larger writes.

Each file begins with the epoch and a checkpoint. So a file is not needed any more when all its publications have ended
and the checkpoint of the next one is on the disk, and is deleted then. After a crash the files are read, what has not
ended is written anew, and a record that was not written to its end is left out: nobody was told that it is stored.
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

from trimtab.broker.records import KeptRecords
from trimtab.protocol.codec import decode_filter, decode_publication, encode_filter, encode_message
from trimtab.protocol.effects import Append, Forget
from trimtab.protocol.messages import ClientRecord, Guard, Publish

FILE_MAX_BYTES: Final = 16 * 1024 * 1024
"""A new file begins beyond this size; small enough that ended publications do not stay long."""

_HEAD: Final = struct.Struct(">II")
_PUBLICATION: Final = b"P"
_END: Final = b"E"
_CHANGE: Final = b"R"
_CHECKPOINT: Final = b"C"
_EPOCH: Final = b"I"

_EARLIER_PUBLICATION: Final = b"P\x97"
"""What publications began with in version 1: arrays of seven, without a stay."""

_encode: Final = msgspec.msgpack.Encoder(enc_hook=encode_filter).encode
_decode_change: Final = msgspec.msgpack.Decoder(Guard, dec_hook=decode_filter).decode
_decode_checkpoint: Final = msgspec.msgpack.Decoder(tuple[ClientRecord, ...], dec_hook=decode_filter).decode
_decode_end: Final = msgspec.msgpack.Decoder(tuple[str, str, int]).decode
_decode_epoch: Final = msgspec.msgpack.Decoder(int).decode


class PublicationLogError(Exception):
    """A log that cannot be opened or read; the message says which and why."""


class _File:
    """One file of the log: how long it is, and which publications are in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size_bytes = 0
        self.checkpoint_bytes = 0
        """The part of its size that its beginning takes; 0 until that is about to be written."""
        self.is_begun = False
        """Whether its checkpoint is on the disk, so that no file before it is needed for records."""
        self.last: dict[tuple[str, str], int] = {}
        """The last sequence number of each publisher and session."""

    @property
    def is_full(self) -> bool:
        """Whether a new file is to begin; many records are not written more often than as much has come besides."""
        return self.size_bytes - self.checkpoint_bytes > max(FILE_MAX_BYTES, self.checkpoint_bytes)


class PublicationLog:
    """The log of one broker, in a folder of its own."""

    def __init__(self, folder: Path, told: Callable[[int], None], failed: Callable[[str], None]) -> None:
        """Who is told up to which number all is stored, and that nothing can be stored any more."""
        self._folder = folder
        self._told = told
        self._failed = failed
        self.epoch = 0
        """The number of the broker's incarnation: above all that this disk has seen."""
        self._files: list[_File] = []
        self._records = KeptRecords()
        """What the log says of clients, as far as it was taken to be written."""
        self._ended: dict[tuple[str, str], int] = {}
        self._waiting: list[Publish | Guard] = []
        self._ends_waiting: dict[tuple[str, str], int] = {}
        self._epoch_waits = False
        self._waiting_number = 0
        self._is_writing = False
        self._descriptor = -1
        self._lock = -1
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="disk")
        self.writes_count = 0

    # ---- begin and end ----

    def open(self, epoch_min: int = 1) -> tuple[tuple[Publish, ...], tuple[ClientRecord, ...]]:
        """Begin: what earlier incarnations have stored and has not ended, in its order, and the records of clients.

        The epoch of this incarnation is one above the last that the disk knows, and at least as high as told.
        """
        try:
            left = self._begin(epoch_min)
        except (OSError, PublicationLogError) as error:
            self._unlock()
            if isinstance(error, BlockingIOError):
                raise PublicationLogError(f"{self._folder} is in use by another process") from None
            if isinstance(error, OSError):
                raise PublicationLogError(f"{error.filename or self._folder}: {error.strerror}") from None
            raise
        return left, self._records.all()

    def _begin(self, epoch_min: int) -> tuple[Publish, ...]:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self._folder / "lock", os.O_CREAT | os.O_RDWR, 0o644)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        paths = sorted(self._folder.glob("*.log"))
        left = self._read_all(paths)
        self.epoch = max(epoch_min, self.epoch + 1)
        self._begin_file(int(paths[-1].stem) + 1 if paths else 1)
        self._waiting = list(left)
        self._write(self._take_waiting())
        for path in paths:
            path.unlink()
        return left

    def close(self) -> None:
        """End: what was asked for is written."""
        self._executor.shutdown(wait=True)
        if self._descriptor >= 0:
            self._write(self._take_waiting())
            os.close(self._descriptor)
        self._unlock()

    def _unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _read_all(self, paths: list[Path]) -> tuple[Publish, ...]:
        """Take in all files; what is in two of them, because they were being written anew in a crash, counts once."""
        found: dict[tuple[str, str, int], Publish] = {}
        earlier: dict[tuple[str, str, int], Path] = {}
        for path in paths:
            for record in records_of(path.read_bytes()):
                kind, content = record[:1], record[1:]
                if record.startswith(_EARLIER_PUBLICATION):
                    _, publisher, sequence, _, _, session, _ = msgspec.msgpack.decode(content)
                    earlier[publisher, session, sequence] = path
                elif kind == _PUBLICATION:
                    publication = decode_publication(content)
                    key = (publication.publisher, publication.session, publication.sequence)
                    found.setdefault(key, publication)
                elif kind == _END:
                    self._end(*_decode_end(content))
                elif kind == _CHANGE:
                    self._records.keep(_decode_change(content))
                elif kind == _CHECKPOINT:
                    self._records = KeptRecords()
                    for each in _decode_checkpoint(content):
                        self._records.keep(Guard(version=0, record=each))
                elif kind == _EPOCH:
                    self.epoch = max(self.epoch, _decode_epoch(content))
        for key, path in earlier.items():
            if self._is_wanted(key):
                reason = "was written by an earlier version: start that one to deliver what is in it, then delete it"
                raise PublicationLogError(f"{path} {reason}")
        return tuple(publication for key, publication in found.items() if self._is_wanted(key))

    def _is_wanted(self, key: tuple[str, str, int]) -> bool:
        publisher, session, sequence = key
        return sequence > self._ended_until(publisher, session)

    # ---- while the broker runs ----

    def append(self, effect: Append) -> None:
        """One more to store; its number is told when it is."""
        self._waiting.append(effect.entry)
        self._waiting_number = effect.number
        self._write_on()

    def forget(self, effect: Forget) -> None:
        """A publisher's publications up to a number are not needed; this need not be on the disk at once."""
        self._end(effect.publisher, effect.session, effect.sequence)
        self._ends_waiting[effect.publisher, effect.session] = effect.sequence
        self._delete_ended()

    def begin_epoch(self, epoch: int) -> None:
        """The broker's incarnation has a higher number; this need not be on the disk at once."""
        self.epoch = epoch
        self._epoch_waits = True

    def _delete_ended(self) -> None:
        while len(self._files) > 1 and self._files[1].is_begun and self._has_ended(self._files[0]):
            self._files.pop(0).path.unlink(missing_ok=True)

    def _has_ended(self, file: _File) -> bool:
        return all(self._ended_until(*key) >= sequence for key, sequence in file.last.items())

    def _ended_until(self, publisher: str, session: str) -> int:
        return self._ended.get((publisher, session), 0)

    def _end(self, publisher: str, session: str, sequence: int) -> None:
        self._ended[publisher, session] = max(sequence, self._ended_until(publisher, session))

    def _take_waiting(self) -> bytes:
        """What waits, as records for the present file, behind its beginning if it has none."""
        file = self._files[-1]
        beginning = b""
        if not file.checkpoint_bytes:
            beginning = _framed([self._epoch_record(), _CHECKPOINT + _encode(self._records.all())])
            file.checkpoint_bytes = len(beginning)
        entries, self._waiting = self._waiting, []
        ends, self._ends_waiting = self._ends_waiting, {}
        records = [self._epoch_record()] if self._epoch_waits and not beginning else []
        self._epoch_waits = False
        for each in entries:
            if isinstance(each, Guard):
                self._records.keep(each)
                records.append(_CHANGE + _encode(each))
            else:
                file.last[each.publisher, each.session] = each.sequence
                records.append(_PUBLICATION + encode_message(each))
        records += [_END + _encode((*key, sequence)) for key, sequence in ends.items()]
        return beginning + _framed(records)

    def _epoch_record(self) -> bytes:
        return _EPOCH + _encode(self.epoch)

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
        self._delete_ended()
        if self._files[-1].is_full:
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
        file = self._files[-1]
        file.size_bytes += len(data)
        file.is_begun = True
        self.writes_count += 1


def _framed(records: list[bytes]) -> bytes:
    """Records with their lengths and checksums."""
    return b"".join([_HEAD.pack(len(record), zlib.crc32(record)) + record for record in records])


def records_of(data: bytes) -> Iterator[bytes]:
    """The records of a file, up to the first that is not whole.

    >>> whole = _framed([b"Pa"])
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
