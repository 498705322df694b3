"""What a broker writes into its log: which records come next, which files they are in, and which files are needed.

A log is files that only grow. Each begins with the epoch and a checkpoint of what is known of clients, so a file is not
needed any more when all its publications have ended and the checkpoint of a later one is on the disk. After a start
what was found (`LogContents`) stays in its files; only if something was damaged, all that has not ended is written
anew.

Who has the disk takes the bytes that come next (`take`), puts them behind the last file, and tells when they are there
(`LogFile.grown`); then it may delete what is not needed (`pop_ended`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final, Generic, TypeVar

from trimtab.broker.log.log_contents import (
    FileContents,
    Key,
    LogContents,
    as_write,
    change_record,
    checkpoint_records,
    end_record,
    epoch_record,
    publication_record,
    void_record,
)
from trimtab.broker.log.log_format import header
from trimtab.broker.replication.client_records import RetainedRecords
from trimtab.protocol.messages import Guard, Publish

FILE_MAX_BYTES: Final = 16 * 1024 * 1024
"""A new file begins beyond this size; small enough that ended publications do not stay long."""


class LogFile:
    """One file of a log: how long it is, and which publications are in it."""

    def __init__(self, number: int, mark: bytes) -> None:
        self.number = number
        self.mark = mark
        """What its records have in common."""
        self.size_bytes = 0
        """What the disk has of it for sure."""
        self.checkpoint_bytes = 0
        """The part of its size that its beginning takes; 0 until that is about to be written."""
        self.is_begun = False
        """Whether its checkpoint is on the disk, so that no file before it is needed for records."""
        self.has_ends = False
        """Whether it says of publications that they have ended, which may be in a file before it."""
        self.last: dict[tuple[str, str], int] = {}
        """The last sequence number of each publisher and session."""

    @property
    def name(self) -> str:
        """What it is called; names are in the order of numbers."""
        return f"{self.number:012}.log"

    def found(self, contents: FileContents) -> None:
        """It is there from an earlier incarnation."""
        torn = contents.torn
        self.size_bytes = contents.size_bytes if torn is None else torn.offset_bytes
        self.is_begun = contents.is_begun
        self.has_ends = contents.has_ends
        for publisher, session, sequence in contents.keys:
            self.last[publisher, session] = max(sequence, self.last.get((publisher, session), 0))

    def grown(self, size_bytes: int) -> None:
        """So much more of it is on the disk."""
        self.size_bytes += size_bytes
        self.is_begun = True

    def is_full(self, max_bytes: int) -> bool:
        """Whether a new file is to begin; many records are not written more often than as much has come besides."""
        return self.size_bytes - self.checkpoint_bytes > max(max_bytes, self.checkpoint_bytes)


F = TypeVar("F", bound=LogFile)


class LogBook(Generic[F]):
    """What is to be written into the log of one broker, and what of it is needed."""

    def __init__(self, make_file: Callable[[int], F]) -> None:
        self._make_file = make_file
        self.epoch = 0
        """The number of the broker's incarnation: above all that this log has seen."""
        self.files: list[F] = []
        self.records = RetainedRecords()
        """What the log says of clients, as far as it was taken to be written."""
        self._ended: dict[tuple[str, str], int] = {}
        self._waiting: list[Publish | Guard] = []
        self._ends_waiting: dict[tuple[str, str], int] = {}
        self._epoch_waits = False
        self.waiting_number = 0
        """The number of the last that waits to be taken; 0 if nothing does that anybody waits for."""

    # ---- a start ----

    def begin(self, contents: LogContents, epoch_min: int, number_min: int) -> None:
        """Go on behind what was found, in a new file with at least this number."""
        self.records, self._ended = contents.records, contents.ended
        self.epoch = max(epoch_min, contents.epoch + 1)
        if not contents.is_damaged:
            for found in contents.files:
                file = self._make_file(int(found.path.stem))
                file.found(found)
                self.files.append(file)
        self.add_file(number_min)

    def written_anew(self, left: Iterable[Publish]) -> tuple[bytes, bytes]:
        """All that has not ended, for the new file that replaces damaged ones; the second part, when that is there."""
        self._waiting = [*left, *self._waiting]
        return self.take(), as_write([void_record()], self.files[-1].mark)

    def add_file(self, number_min: int = 1) -> None:
        """Let another file follow."""
        last = self.files[-1].number if self.files else 0
        self.files.append(self._make_file(max(last + 1, number_min)))

    # ---- what is to be written ----

    def append(self, entry: Publish | Guard, number: int) -> None:
        """One more to store."""
        self._waiting.append(entry)
        self.waiting_number = number

    def end(self, publisher: str, session: str, sequence: int) -> None:
        """A publisher's publications up to a number are not needed; this need not be on the disk at once."""
        self._ended[publisher, session] = max(sequence, self._ended_until(publisher, session))
        self._ends_waiting[publisher, session] = sequence

    def begin_epoch(self, epoch: int) -> None:
        """The broker's incarnation has a higher number; this need not be on the disk at once."""
        self.epoch = epoch
        self._epoch_waits = True

    def take(self) -> bytes:
        """What waits, as records for the last file, behind its beginning if it has none."""
        file = self.files[-1]
        beginning, first = b"", list[bytes]()
        if not file.checkpoint_bytes:
            beginning = header(file.mark)
            first = [epoch_record(self.epoch), *checkpoint_records(self.records.all())]
            file.checkpoint_bytes = len(beginning + as_write(first, file.mark))
        entries, self._waiting = self._waiting, []
        ends, self._ends_waiting = self._ends_waiting, {}
        records = [epoch_record(self.epoch)] if self._epoch_waits and not beginning else []
        self._epoch_waits = False
        for each in entries:
            if isinstance(each, Guard):
                self.records.keep(each)
                records.append(change_record(each))
            else:
                file.last[each.publisher, each.session] = each.sequence
                records.append(publication_record(each))
        records += [end_record(*key, sequence) for key, sequence in ends.items()]
        file.has_ends = file.has_ends or bool(ends)
        self.waiting_number = 0
        return beginning + as_write([*first, *records], file.mark)

    # ---- what is needed ----

    def pop_superseded(self) -> list[F]:
        """Files of earlier incarnations that say nothing but what the checkpoint of the last one says."""
        if not self.files[-1].is_begun:
            return []
        gone = [file for file in self.files[:-1] if not (file.last or file.has_ends)]
        self.files = [file for file in self.files if file not in gone]
        return gone

    def pop_ended(self) -> list[F]:
        """The first files as far as they are not needed any more."""
        gone: list[F] = []
        while any(later.is_begun for later in islice(self.files, 1, None)) and self.has_ended(self.files[0]):
            gone.append(self.files.pop(0))
        return gone

    def has_ended(self, file: F) -> bool:
        """Whether all publications in a file have ended."""
        return all(self._ended_until(*key) >= sequence for key, sequence in file.last.items())

    def is_over(self, key: Key) -> bool:
        """Whether a publication has ended."""
        publisher, session, sequence = key
        return self._ended_until(publisher, session) >= sequence

    def _ended_until(self, publisher: str, session: str) -> int:
        return self._ended.get((publisher, session), 0)
