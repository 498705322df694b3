"""Disks of simulated brokers: what is on them stays when the broker dies, as far as a disk keeps it.

The bytes are those that a broker of the network writes (`broker.log`), in files that only grow, and a start reads them
as it would there. What can go wrong with them:

- **Power loss** during a write leaves any part of it: nothing, a beginning, single blocks, or all. Blocks that are
  missing before the end of a file read as zeros. A file that was deleted may be back.
- A **bit** of what was stored long ago flips.
- The disk is **full** for a while, and refuses what is written.
- The disk is **slow** for a while.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from random import Random
from typing import Final, NamedTuple

from trimtab.broker.log.log_book import LogBook, LogFile
from trimtab.broker.log.log_contents import Key, LogContents, publication_key
from trimtab.broker.log.log_format import BLOCK_BYTES, HEAD_BYTES, MARK_BYTES, scan
from trimtab.protocol.effects import Append, Forget
from trimtab.protocol.messages import ClientRecord, Publish
from trimtab.simulation.world.clock import Clock

WRITE_S: Final = 0.002
"""One write with all that has come since the one before: a solid-state disk that confirms what it has."""

FILE_MAX_BYTES: Final = 4_000
"""Files are short, so that in a short run many begin and are deleted."""

POWER_LOSS_RATIO: Final = 0.7
"""Of deaths; otherwise the process alone has died."""

NEEDED_RATIO: Final = 0.7
"""Of flipped bits: in a publication that has not ended, if there is one; few records are."""


def damage_in_words(places_count: int) -> str:
    """What a broker is told of damage on its disk."""
    return f"{places_count} damaged places on its disk" if places_count else ""


class Found(NamedTuple):
    """What a start has found on a disk."""

    publications: tuple[Publish, ...]
    records: tuple[ClientRecord, ...]
    may_be_missing: tuple[Key, ...]
    """Publications whose records were damaged."""
    damage: str = ""
    """What was found damaged, in words, if anything was."""


class Disk:
    """A disk with the log of one broker; one write at a time."""

    def __init__(self, clock: Clock, rng: Random, write_s: float = WRITE_S) -> None:
        self._clock = clock
        self._rng = rng
        self._usual_write_s = self._write_s = write_s
        self._files: dict[str, bytearray] = {}
        """What the disk has for sure."""
        self._deleted: dict[str, bytearray] = {}
        """Files that may be back after a power loss: no name was written since they were deleted."""
        self._book: LogBook[LogFile] = self._new_book()
        self._number_min = 1
        self._unwritten = b""
        """What is being written, or was refused by a full disk."""
        self._unwritten_number = 0
        self._is_writing = False
        self._is_full = False
        self._has_refused = False
        self._incarnation = 0
        self._told: Callable[[int], None] = lambda _: None
        self._room_changed: Callable[[bool], None] = lambda _: None
        self._damaged: dict[Key, None] = {}
        """Publications whose records a flipped bit was in."""
        self.flipped_count = 0
        self.damage_count = 0
        """Places that starts have found damaged."""
        self.writes_count = 0

    def _new_book(self) -> LogBook[LogFile]:
        return LogBook(lambda number: LogFile(number, self._rng.randbytes(MARK_BYTES)))

    def __len__(self) -> int:
        """Publications on the disk that have not ended."""
        contents = self._read()
        return sum(not self._book.is_over(key) for file in contents.files for key in set(file.keys))

    # ---- the log ----

    def mount(self, told: Callable[[int], None], room_changed: Callable[[bool], None] = lambda _: None) -> Found:
        """An incarnation begins: who is told what is stored and whether there is room, and what there is."""
        self._stop()
        self._told, self._room_changed = told, room_changed
        contents = self._read()
        left = contents.publications()
        places_count = sum(len(file.damage) for file in contents.files)
        for file in contents.files:
            if file.torn is not None:
                del self._files[file.path.name][file.torn.offset_bytes :]
        self._book = self._new_book()
        self._book.begin(contents, 1, self._number_min)
        if contents.is_damaged:
            self.damage_count += places_count
            self._files.clear()
            self._put(b"".join(self._book.written_anew(left)))
        else:
            self._unwritten = self._book.take()
            if self._is_full:
                self._has_refused = True
                self._room_changed(False)
            else:
                self._write()
                self._delete([*self._book.pop_superseded(), *self._book.pop_ended()])
        missing = tuple(key for key in self._damaged if contents.is_wanted(key))
        self._damaged.clear()
        return Found(left, self._book.records.all(), missing, damage_in_words(places_count))

    def _read(self) -> LogContents:
        contents = LogContents()
        names = sorted(self._files)
        for name in names:
            contents.take(PurePath(name), bytes(self._files[name]), is_last=name == names[-1])
        return contents

    def append(self, effect: Append) -> None:
        """One more to write."""
        self._book.append(effect.entry, effect.number)
        self._write_on()

    def forget(self, effect: Forget) -> None:
        """A publisher's publications up to a number are not needed any more."""
        self._book.end(effect.publisher, effect.session, effect.sequence)
        self._delete(self._book.pop_ended())

    def close(self) -> None:
        """The broker ends and waits until everything is written, if the disk takes it."""
        if not self._is_full:
            self._write()
            self._unwritten = self._book.take()
            self._write()
        self._stop()

    def _stop(self) -> None:
        self._incarnation += 1
        self._unwritten, self._unwritten_number = b"", 0
        self._is_writing = self._has_refused = False

    def _write_on(self) -> None:
        if self._book.waiting_number and not (self._is_writing or self._has_refused):
            self._unwritten_number = self._book.waiting_number
            self._unwritten = self._book.take()
            self._start_writing()

    def _start_writing(self) -> None:
        self._is_writing = True
        self._clock.at(self._clock.now_s + self._write_s, self._written, self._incarnation)

    def _written(self, incarnation: int) -> None:
        if incarnation != self._incarnation:
            return
        self._is_writing = False
        if self._is_full:
            if not self._has_refused:
                self._has_refused = True
                self._room_changed(False)
            return
        number = self._unwritten_number
        self._write()
        self._delete(self._book.pop_ended())
        if number:
            self._told(number)
        if self._has_refused:
            self._has_refused = False
            self._room_changed(True)
        self._write_on()

    def _write(self) -> None:
        """Put onto the disk what is to be written."""
        self.writes_count += 1
        self._put(self._unwritten)
        self._unwritten, self._unwritten_number = b"", 0
        if self._book.files[-1].is_full(FILE_MAX_BYTES):
            self._book.add_file(self._number_min)

    def _put(self, data: bytes) -> None:
        file = self._book.files[-1]
        if file.name not in self._files:
            self._files[file.name] = bytearray()
            self._deleted.clear()
        self._files[file.name] += data
        self._number_min = file.number + 1
        file.grown(len(data))

    def _delete(self, files: list[LogFile]) -> None:
        for file in files:
            self._deleted[file.name] = self._files.pop(file.name)

    # ---- faults ----

    def broker_died(self) -> None:
        """The power is lost, or the process alone has died: then what it has begun to write is written."""
        if self._rng.random() < POWER_LOSS_RATIO:
            self.lose_power()

    def lose_power(self) -> None:
        """The broker's machine is off: of what is being written any part may be there."""
        unwritten, rng = self._unwritten, self._rng
        if unwritten:
            name = self._book.files[-1].name
            place = len(self._files.get(name, b""))
            kept = _part_of(unwritten, place, rng)
            if kept or name in self._files or rng.random() < 0.5:
                self._files.setdefault(name, bytearray()).extend(kept)
            self._number_min = self._book.files[-1].number + 1
        names = list(self._deleted)
        for name in names[rng.randint(0, len(names)) :]:
            self._files[name] = self._deleted[name]
        self._deleted.clear()
        self._stop()

    def flip_bit(self) -> None:
        """A bit of something that was stored is another one; records of clients are spared."""
        places = [
            (name, begin, end, content)
            for name, data in self._files.items()
            for begin, end, content in _records_of(bytes(data))
        ]
        if not places:
            return
        keys = [publication_key(content) for _, _, _, content in places]
        needed = [at for at, key in zip(places, keys, strict=True) if key is not None and not self._book.is_over(key)]
        name, begin, end, content = self._rng.choice(needed if needed and self._rng.random() < NEEDED_RATIO else places)
        place = self._rng.randrange(begin, end)
        self._files[name][place] ^= 1 << self._rng.randrange(8)
        self.flipped_count += 1
        key = publication_key(content)
        if key is not None:
            self._damaged[key] = None

    def fill(self, for_s: float) -> None:
        """Nothing more can be written for a while."""
        self._is_full = True
        self._clock.at(self._clock.now_s + for_s, self._make_room)

    def _make_room(self) -> None:
        self._is_full = False
        if self._has_refused and not self._is_writing:
            self._start_writing()

    def slow_down(self, write_s: float, for_s: float) -> None:
        """Each write takes so long for a while."""
        self._write_s = write_s
        self._clock.at(self._clock.now_s + for_s, setattr, self, "_write_s", self._usual_write_s)


def _part_of(data: bytes, place: int, rng: Random) -> bytes:
    """What is there of a write behind a place of a file after the power was lost."""
    match rng.choice(("nothing", "beginning", "blocks", "all")):
        case "nothing":
            return b""
        case "beginning":
            return data[: rng.randrange(len(data))]
        case "blocks":
            parts: list[bytes] = []
            begin = 0
            while begin < len(data):
                end = min(begin + BLOCK_BYTES - (place + begin) % BLOCK_BYTES, len(data))
                parts.append(data[begin:end] if rng.random() < 0.5 else bytes(end - begin))
                begin = end
            return b"".join(parts)
        case _:
            return data


def _records_of(data: bytes) -> list[tuple[int, int, bytes]]:
    """Records that may be hit by a flipped bit: where they begin and end, and what they say."""
    found = scan(data).records
    whole = [(begin, begin + HEAD_BYTES + len(content), content) for begin, content in found]
    records = [each for each in whole if each[2][0] not in b"RK"]
    return [(0, found[0][0], b""), *records] if found else []
