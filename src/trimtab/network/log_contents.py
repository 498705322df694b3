"""What the files of a broker's log say together: for a broker that starts, and for whoever checks a log.

A record is one of these: a publication as it travels; the end of one publisher's publications up to a number; a change
in what is known of a client (`Guard`); the epoch of the broker's incarnation; a checkpoint of all that is known of
clients; that all files before this one are void.

A checkpoint is a record for each client between its beginning and its end. If all of it is there, it replaces what was
known; otherwise it counts besides that, for the files before it say the same, if there are any. So a crash while it was
written loses nothing, and damage in it loses one client's record.

What is not whole at the end of the last file is a torn tail: it was being written when the broker or the power failed,
and nobody was told that it is stored. Anything else that is not whole is damage.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from trimtab.broker.records import KeptRecords
from trimtab.language import LanguageError
from trimtab.network.log_format import LaterVersionError, may_be_torn, scan
from trimtab.protocol.codec import decode_filter, decode_publication, encode_filter, encode_message
from trimtab.protocol.messages import ClientRecord, Guard, Publish

DAMAGED_SUFFIX: Final = ".damaged"
"""Behind the name of a file that was found damaged: it is kept, and read no more."""

_PUBLICATION: Final = b"P"
_END: Final = b"E"
_CHANGE: Final = b"R"
_EPOCH: Final = b"I"
_CHECKPOINT_BEGINS: Final = b"B"
_CHECKPOINT_CLIENT: Final = b"K"
_CHECKPOINT_ENDS: Final = b"D"
_VOIDS_EARLIER: Final = b"V"
_CHECKPOINT_1: Final = b"C"
"""A whole checkpoint in one record, in files of version 1."""

_NAMES: Final = {
    _PUBLICATION: "publications",
    _END: "ends",
    _CHANGE: "changes",
    _EPOCH: "epochs",
    _CHECKPOINT_BEGINS: "checkpoints",
    _CHECKPOINT_CLIENT: "clients",
    _CHECKPOINT_ENDS: "checkpoint_ends",
    _VOIDS_EARLIER: "voids",
    _CHECKPOINT_1: "checkpoints",
}
"""What records are called, by their kind."""

_EARLIER_PUBLICATION: Final = b"P\x97"
"""What publications of version 1 of the wire begin with: arrays of seven, without a stay."""

_FILE_NAME: Final = re.compile(r"(\d{12})\.log(\.damaged.*)?")

Key = tuple[str, str, int]
"""Which publication: its publisher, session and number."""

_encode: Final = msgspec.msgpack.Encoder(enc_hook=encode_filter).encode
_decode_change: Final = msgspec.msgpack.Decoder(Guard, dec_hook=decode_filter).decode
_decode_client: Final = msgspec.msgpack.Decoder(ClientRecord, dec_hook=decode_filter).decode
_decode_checkpoint_1: Final = msgspec.msgpack.Decoder(tuple[ClientRecord, ...], dec_hook=decode_filter).decode
_decode_end: Final = msgspec.msgpack.Decoder(tuple[str, str, int]).decode
_decode_epoch: Final = msgspec.msgpack.Decoder(int).decode


class PublicationLogError(Exception):
    """A log that cannot be opened or read; the message says which and why."""


class Damage(msgspec.Struct, frozen=True):
    """Bytes of a file that are not whole records, or a record that makes no sense."""

    offset_bytes: int
    size_bytes: int
    reason: str = "no whole record"


class FileContents(msgspec.Struct):
    """What one file of a log holds."""

    path: Path
    size_bytes: int = 0
    version: int = 0
    counts: dict[str, int] = {}
    """Records by the names of their kinds."""
    keys: list[Key] = []
    """The publications in it."""
    has_ends: bool = False
    is_begun: bool = False
    """Whether all of a checkpoint is in it, so that no file before it is needed for the records of clients."""
    torn: Damage | None = None
    damage: list[Damage] = []


class LogContents:
    """What was read of a log, one file after the other, the earliest first."""

    def __init__(self) -> None:
        self.files: list[FileContents] = []
        self.epoch = 0
        """The highest that the log knows."""
        self.records = KeptRecords()
        self.ended: dict[tuple[str, str], int] = {}
        """The last number that has ended, by publisher and session."""
        self._found: dict[Key, Publish] = {}
        self._earlier: dict[Key, Path] = {}
        """Publications of version 1 of the wire, each with its file."""
        self._checkpoint: dict[str, ClientRecord] | None = None
        """The checkpoint that is being read."""
        self._is_checkpoint_whole = False

    def take(self, path: Path, data: bytes, *, is_last: bool) -> None:
        """Read one more file; raises `PublicationLogError` if it is of a later version."""
        try:
            found = scan(data)
        except LaterVersionError as error:
            raise PublicationLogError(f"{path} {error}: start the version that has written it") from None
        file = FileContents(path, len(data), found.version)
        self.files.append(file)
        bad = [Damage(offset, size) for offset, size in found.bad]
        if is_last and bad and bad[-1].offset_bytes + bad[-1].size_bytes == len(data):
            if found.version or may_be_torn(data):
                file.torn = bad.pop()
        damage = iter([*bad, None])
        following = next(damage)
        for offset, record in found.records:
            while following is not None and following.offset_bytes < offset:
                self._is_checkpoint_whole = False
                following = next(damage)
            try:
                self._take(file, record)
            except (msgspec.MsgspecError, LanguageError, ValueError, TypeError, RecursionError) as error:
                reason = f"a record that cannot be understood ({error})"
                bad.append(Damage(offset, len(record), reason))
                self._is_checkpoint_whole = False
        self._end_torn_checkpoint()
        file.damage = sorted(bad, key=lambda each: each.offset_bytes)

    def _take(self, file: FileContents, record: bytes) -> None:
        kind, content = record[:1], record[1:]
        if record.startswith(_EARLIER_PUBLICATION):
            _, publisher, sequence, _, _, session, _ = msgspec.msgpack.decode(content)
            self._earlier[publisher, session, sequence] = file.path
            file.keys.append((publisher, session, sequence))
        elif kind == _PUBLICATION:
            publication = decode_publication(content)
            key = (publication.publisher, publication.session, publication.sequence)
            self._found.setdefault(key, publication)
            file.keys.append(key)
        elif kind == _END:
            publisher, session, sequence = _decode_end(content)
            self.ended[publisher, session] = max(sequence, self.ended.get((publisher, session), 0))
            file.has_ends = True
        elif kind == _CHANGE:
            change = _decode_change(content)
            self._end_torn_checkpoint()
            self.records.keep(change)
        elif kind == _EPOCH:
            self.epoch = max(self.epoch, _decode_epoch(content))
        elif kind == _CHECKPOINT_BEGINS:
            self._checkpoint, self._is_checkpoint_whole = {}, True
        elif kind == _CHECKPOINT_CLIENT:
            client = _decode_client(content)
            self._checkpoint = {} if self._checkpoint is None else self._checkpoint
            self._checkpoint[client.client] = client
        elif kind == _CHECKPOINT_1:
            self._checkpoint = {each.client: each for each in _decode_checkpoint_1(content)}
            self._is_checkpoint_whole = True
            file.is_begun = True
            self._end_checkpoint()
        elif kind == _CHECKPOINT_ENDS:
            file.is_begun = file.is_begun or self._is_checkpoint_whole
            self._end_checkpoint()
        elif kind == _VOIDS_EARLIER:
            self._found = {key: self._found[key] for key in file.keys if key in self._found}
            self._earlier = {}
        else:
            raise ValueError(f"kind {kind!r}")
        name = _NAMES[kind]
        file.counts[name] = file.counts.get(name, 0) + 1

    def _end_torn_checkpoint(self) -> None:
        """The end of a checkpoint, if there is one that has begun, is missing."""
        self._is_checkpoint_whole = False
        self._end_checkpoint()

    def _end_checkpoint(self) -> None:
        """A checkpoint counts: alone if all of it is there, otherwise besides what is known."""
        if self._checkpoint is None:
            return
        found, self._checkpoint = self._checkpoint, None
        known = () if self._is_checkpoint_whole else self.records.all()
        self.records, self._is_checkpoint_whole = KeptRecords(), False
        for record in (*(each for each in known if each.client not in found), *found.values()):
            self.records.keep(Guard(version=0, record=record))

    def is_wanted(self, key: Key) -> bool:
        """Whether a publication has not ended."""
        publisher, session, sequence = key
        return sequence > self.ended.get((publisher, session), 0)

    def publications(self) -> tuple[Publish, ...]:
        """What has not ended, each once; raises `PublicationLogError` if this version cannot deliver some of it."""
        for key, path in self._earlier.items():
            if self.is_wanted(key):
                reason = "was written by an earlier version: start that one to deliver what is in it, then delete it"
                raise PublicationLogError(f"{path} {reason}")
        return tuple(publication for key, publication in self._found.items() if self.is_wanted(key))


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


# ---- records ----


def publication_record(publication: Publish) -> bytes:
    """A publication is stored."""
    return _PUBLICATION + encode_message(publication)


def change_record(change: Guard) -> bytes:
    """Something has changed in the record of a client."""
    return _CHANGE + _encode(change)


def end_record(publisher: str, session: str, sequence: int) -> bytes:
    """A publisher's publications have ended up to a number."""
    return _END + _encode((publisher, session, sequence))


def epoch_record(epoch: int) -> bytes:
    """The number of the broker's incarnation."""
    return _EPOCH + _encode(epoch)


def checkpoint_records(records: Iterable[ClientRecord]) -> list[bytes]:
    """All that is known of clients."""
    return [_CHECKPOINT_BEGINS, *(_CHECKPOINT_CLIENT + _encode(each) for each in records), _CHECKPOINT_ENDS]


def void_record() -> bytes:
    """All that is wanted of the files before this one is in it."""
    return _VOIDS_EARLIER
