"""What a broker has on disk: its clients' publications and records, in a log of numbered files.

A thread writes and waits for the disk (`fsync`). What comes in one loop iteration is one write, and what has come
during a write goes into the next, so that a disk that takes long gets fewer and larger writes. Nothing is told to be
stored before the disk has it, nor before the disk has the name of its file.

Each file begins with the epoch and a checkpoint of what is known of clients. So a file is not needed any more when all
its publications have ended and the checkpoint of a later one is on the disk, and is deleted then. After a crash the
files are read (`log_contents`). A record at the end that was not written to its end is cut off: nobody was told that it
is stored. If something else is not whole, all that has not ended is written anew, and the damaged file is kept under
another name.

**Backpressure.** A log that has reached its quota, and one whose disk is full, says so (`room_changed`), and its broker
takes no more publications of its clients. What the broker has taken before, and what changes in the records of clients,
is written beyond the quota. What a full disk refuses is written as soon as there is room: it is tried again when a file
was deleted, and every second. Any other failure of the disk ends the broker.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

from trimtab.broker.log.log_book import FILE_MAX_BYTES, LogBook, LogFile
from trimtab.broker.log.log_contents import FileContents, LogContents, PublicationLogError
from trimtab.broker.log.log_format import MARK_BYTES
from trimtab.protocol.effects import Append, Forget
from trimtab.protocol.messages import ClientRecord, Publish

__all__ = ["PublicationLog", "PublicationLogError"]

FILES_PER_QUOTA_COUNT: Final = 4
"""With a quota a new file begins beyond this part of it, if that is less: what has ended makes room in steps."""

RETRY_AFTER_S: Final = 1.0
"""How often a full disk is tried again."""

_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)


class _File(LogFile):
    """One file of the log on the disk."""

    def __init__(self, folder: Path, number: int) -> None:
        super().__init__(number, os.urandom(MARK_BYTES))
        self.path = folder / self.name
        self.descriptor = -1
        """Negative if it is not open, or not made yet."""
        self.is_torn = False
        """Whether there may be more of it than is told, because a write has failed."""

    def create(self) -> None:
        """Make it, so that its name is there after a crash, too."""
        self.descriptor = os.open(self.path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_EXCL, 0o644)
        try:
            _sync(self.path.parent)
        except OSError:
            self.close()
            self.path.unlink()
            raise

    def write(self, data: bytes) -> None:
        """Put something onto the disk behind what is there; if that fails, the next write begins at the same place."""
        if self.descriptor < 0:
            self.create()
        if self.is_torn:
            os.ftruncate(self.descriptor, self.size_bytes)
        self.is_torn = True
        view = memoryview(data)
        while view:
            view = view[os.write(self.descriptor, view) :]
        os.fsync(self.descriptor)
        self.is_torn = False
        self.grown(len(data))

    def close(self) -> None:
        """Write no more to it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def _ignore(problem: str) -> None:
    pass


class PublicationLog:
    """The log of one broker, in a folder of its own."""

    def __init__(
        self,
        folder: Path,
        told: Callable[[int], None],
        failed: Callable[[str], None],
        room_changed: Callable[[str], None] = _ignore,
        *,
        max_bytes: int = 0,
    ) -> None:
        """Who is told up to which number all is stored, and that nothing can be stored any more.

        Besides, why there is no room for more publications, and, by an empty text, that there is. A quota of 0 is none.
        """
        self._folder = folder
        self._told = told
        self._failed = failed
        self._room_changed = room_changed
        self._max_bytes = max_bytes
        self.damage: tuple[str, ...] = ()
        """What was found damaged at the beginning: file, offset and how much was skipped."""
        self.torn: tuple[str, ...] = ()
        """What was cut off at the beginning because it was not written to its end."""
        self.problem = ""
        """Why there is no room for more publications, if so."""
        self._book = LogBook(lambda number: _File(folder, number))
        self._files_bytes = 0
        """What they take, as it was when one was last written or deleted."""
        self._waiting_bytes = 0
        """About how much the publications among them take, where there is a quota."""
        self._unwritten = b""
        """What is being written, or was refused by a full disk."""
        self._unwritten_number = 0
        self._is_writing = False
        self._is_write_due = False
        """Whether the next loop iteration begins to write."""
        self._is_disk_full = False
        self._retry_timer: asyncio.TimerHandle | None = None
        self._has_failed = False
        self._is_closed = False
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
        return left, self._book.records.all()

    def _begin(self, epoch_min: int) -> tuple[Publish, ...]:
        _make_folder(self._folder)
        self._lock = os.open(self._folder / "lock", os.O_CREAT | os.O_RDWR, 0o644)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        contents = LogContents()
        paths = log_files(self._folder)
        for path in paths:
            contents.take(path, path.read_bytes(), is_last=path == paths[-1])
        left = contents.publications()
        self._cut_off_torn(contents.files)
        self._book.begin(contents, epoch_min, next_number(self._folder))
        if contents.is_damaged:
            self._write_anew(left, contents.files)
        else:
            self._unwritten = self._take_waiting()
            try:
                self._write()
            except OSError as error:
                if error.errno not in _NO_SPACE:
                    raise
                self._wait_for_space()
            self._delete(self._book.pop_superseded())
            self._delete(self._book.pop_ended())
        self._measure()
        self._look_for_room()
        return left

    def _cut_off_torn(self, files: Iterable[FileContents]) -> None:
        """What was not written to its end goes, so that it is not taken for damage when it is not the last any more."""
        for file in files:
            if file.torn is not None:
                os.truncate(file.path, file.torn.offset_bytes)
                _sync(Path(file.path))
                size, offset = file.torn.size_bytes, file.torn.offset_bytes
                self.torn += (f"{file.path}: {size} bytes from byte {offset} on were not written to their end",)

    def _write_anew(self, left: Iterable[Publish], files: Iterable[FileContents]) -> None:
        """Something was damaged: what has not ended goes into one new file, and damaged files get another name."""
        new = self._book.files[-1]
        try:
            for part in self._book.written_anew(left):
                new.write(part)
        except OSError:
            new.close()
            new.path.unlink(missing_ok=True)
            raise
        for file in files:
            path = Path(file.path)
            if not file.damage:
                path.unlink()
                continue
            kept = path.with_name(path.name + DAMAGED_SUFFIX)
            while kept.exists():
                kept = kept.with_name(kept.name + DAMAGED_SUFFIX)
            path.rename(kept)
            self.damage += tuple(
                f"{file.path}: damage at byte {each.offset_bytes}, {each.size_bytes} bytes skipped: {each.reason}; "
                f"the file is kept as {kept.name}"
                for each in file.damage
            )
        _sync(self._folder)

    def close(self) -> None:
        """End: what was asked for is written, if the disk takes it."""
        self._is_closed = True
        self._executor.shutdown(wait=True)
        if self._retry_timer is not None:
            self._retry_timer.cancel()
        if self._book.files and not self._has_failed:
            try:
                if self._unwritten:
                    self._write()
                self._unwritten = self._take_waiting()
                self._write()
            except OSError as error:
                if error.errno not in _NO_SPACE:
                    self._failed(f"{self._book.files[-1].path} cannot be written: {error.strerror}")
        for file in self._book.files:
            file.close()
        self._unlock()

    def _unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    @property
    def epoch(self) -> int:
        """The number of the broker's incarnation: above all that this disk has seen."""
        return self._book.epoch

    # ---- while the broker runs ----

    def append(self, effect: Append) -> None:
        """One more to store; its number is told when it is."""
        self._book.append(effect.entry, effect.number)
        if self._max_bytes and isinstance(effect.entry, Publish):
            self._waiting_bytes += len(effect.entry.wire)
            if not self.problem:
                self._look_for_room()
        if not self._is_write_due:
            self._is_write_due = True
            asyncio.get_running_loop().call_soon(self._write_on)

    def forget(self, effect: Forget) -> None:
        """A publisher's publications up to a number are not needed; this need not be on the disk at once."""
        self._book.end(effect.publisher, effect.session, effect.sequence)
        if self._delete(self._book.pop_ended()):
            self._measure()
            self._retry()
        if self.problem:
            self._look_for_room()

    def begin_epoch(self, epoch: int) -> None:
        """The broker's incarnation has a higher number; this need not be on the disk at once."""
        self._book.begin_epoch(epoch)

    def _delete(self, files: list[_File]) -> bool:
        """Delete files that are not needed any more; returns whether there were any."""
        for file in files:
            file.close()
            try:
                file.path.unlink(missing_ok=True)
            except OSError as error:
                self._failed(f"{file.path} cannot be deleted: {error.strerror}")
        return bool(files)

    def _take_waiting(self) -> bytes:
        """What waits, as records for the present file."""
        self._unwritten_number, self._waiting_bytes = self._book.waiting_number, 0
        return self._book.take()

    def _write_on(self) -> None:
        """Have the thread write what waits, unless it is writing or the disk is full."""
        self._is_write_due = False
        if self._book.waiting_number and not (self._is_writing or self._is_disk_full or self._is_closed):
            self._unwritten = self._take_waiting()
            self._start_writing()

    def _start_writing(self) -> None:
        self._is_writing = True
        number = self._unwritten_number
        writing = asyncio.get_running_loop().run_in_executor(self._executor, self._write)
        writing.add_done_callback(lambda done: self._written(done, number))

    def _written(self, done: asyncio.Future[None], number: int) -> None:
        self._is_writing = False
        if done.cancelled():
            return
        error = done.exception()
        if isinstance(error, OSError) and error.errno in _NO_SPACE:
            self._wait_for_space()
            self._look_for_room()
            return
        if error is not None:
            self._has_failed = True
            reason = error.strerror if isinstance(error, OSError) else str(error)
            self._failed(f"{self._book.files[-1].path} cannot be written: {reason}")
            return
        self._is_disk_full = False
        self._delete(self._book.pop_ended())
        self._measure()
        if number:
            self._told(number)
        self._look_for_room()
        self._write_on()

    # ---- room ----

    def _look_for_room(self) -> None:
        """Tell whether there is room for more publications, if that has changed."""
        problem = ""
        if self._is_disk_full:
            problem = f"{self._folder}: the disk is full ({os.strerror(errno.ENOSPC)}): publications wait for room"
        elif self._max_bytes and self._size_bytes >= self._max_bytes:
            problem = (
                f"{self._folder}: the log has reached disk_max_mb = {self._max_bytes / 1e6:g}: "
                "publications wait until others are forgotten"
            )
            self._make_room()
        if problem != self.problem:
            self.problem = problem
            asyncio.get_running_loop().call_soon(self._tell_room, problem)

    @property
    def _size_bytes(self) -> int:
        """What the log takes when all that it was given is written."""
        return self._files_bytes + len(self._unwritten) + self._waiting_bytes

    def _measure(self) -> None:
        self._files_bytes = sum(file.size_bytes for file in self._book.files)

    def _tell_room(self, problem: str) -> None:
        if problem == self.problem and not self._is_closed:
            self._room_changed(problem)

    def _make_room(self) -> None:
        """Begin another file if everything has ended: then the present one is not needed any more."""
        if self._is_writing or self._is_closed or not all(map(self._book.has_ended, self._book.files)):
            return
        file = self._book.files[-1]
        if file.is_begun and file.size_bytes > file.checkpoint_bytes:
            self._book.add_file(next_number(self._folder))
        if not self._book.files[-1].is_begun:
            self._unwritten = self._take_waiting()
            self._start_writing()

    def _wait_for_space(self) -> None:
        self._is_disk_full = True
        if self._retry_timer is not None:
            self._retry_timer.cancel()
        self._retry_timer = asyncio.get_running_loop().call_later(RETRY_AFTER_S, self._retry)

    def _retry(self) -> None:
        if self._is_disk_full and not (self._is_writing or self._is_closed):
            self._start_writing()

    # ---- the disk ----

    def _write(self) -> None:
        """Put onto the disk what is to be written; if that fails, it is as before. Runs in the thread of the log."""
        file = self._book.files[-1]
        file.write(self._unwritten)
        self._unwritten = b""
        self.writes_count += 1
        if file.is_full(self._file_max_bytes):
            file.close()
            self._book.add_file(next_number(self._folder))
            with suppress(OSError):  # told by the write that needs it
                self._book.files[-1].create()

    @property
    def _file_max_bytes(self) -> int:
        return min(FILE_MAX_BYTES, self._max_bytes // FILES_PER_QUOTA_COUNT) if self._max_bytes else FILE_MAX_BYTES


def _make_folder(folder: Path) -> None:
    """Make a folder and those that it is in, so that they are there after a crash, too."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in missing:
        _sync(each.parent)


def _sync(path: Path) -> None:
    """Wait until the disk has a file, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


DAMAGED_SUFFIX: Final = ".damaged"
"""Behind the name of a file that was found damaged: it is kept, and read no more."""

_FILE_NAME: Final = re.compile(r"(\d{12})\.log(\.damaged.*)?")


def log_files(folder: Path) -> list[Path]:
    """The files of a log, the earliest first; raises OSError."""
    return [folder / name for name in _names(folder) if not name.endswith(DAMAGED_SUFFIX) and name.endswith(".log")]


def files_set_aside(folder: Path) -> list[Path]:
    """Files that a start has found damaged; raises OSError."""
    return [folder / name for name in _names(folder) if not name.endswith(".log")]


def next_number(folder: Path) -> int:
    """The number of a log's next file: above all, also of those that were set aside."""
    return max((int(name[:12]) for name in _names(folder)), default=0) + 1


def _names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir() if _FILE_NAME.fullmatch(each.name))
