"""What the files of a broker's log say together: for a broker that starts, and for whoever checks a log.

A record is one of these: a publication as it travels; the end of one publisher's publications up to a number; a change
in what is known of a client (`Guard`); the epoch of the broker's incarnation; a checkpoint of all that is known of
clients; that all files before this one are void; how much was written at once.

A checkpoint is a record for each client between its beginning and its end. If all of it is there, it replaces what was
known; otherwise it counts besides that, for the files before it say the same, if there are any. So a crash while it was
written loses nothing, and damage in it loses one client's record.

**Torn writes.** The last write of the last file was being written when the power failed, perhaps, and any blocks of it
may be there. So if it is shorter than it says, or has blocks of zeros, it counts up to there, and what is behind is a
torn tail: nobody was told that it is stored. Without this, what is whole behind a gap would make the gap look stored.
Anything else that is not whole is damage.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath
from typing import Final

import msgspec

from trimtab.broker.log.log_format import (
    HEAD_BYTES,
    SINCE_WRITES,
    LaterVersionError,
    Scan,
    framed,
    is_block_missing,
    may_be_torn,
    scan,
)
from trimtab.broker.replication.client_records import RetainedRecords
from trimtab.language import LanguageError
from trimtab.protocol.codec import decode_filter, decode_publication, encode_filter, encode_message
from trimtab.protocol.messages import ClientRecord, Guard, Publish

_PUBLICATION: Final = b"P"
_END: Final = b"E"
_CHANGE: Final = b"R"
_EPOCH: Final = b"I"
_CHECKPOINT_BEGINS: Final = b"B"
_CHECKPOINT_CLIENT: Final = b"K"
_CHECKPOINT_ENDS: Final = b"D"
_VOIDS_EARLIER: Final = b"V"
_WRITE: Final = b"W"
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
    _WRITE: "writes",
    _CHECKPOINT_1: "checkpoints",
}
"""What records are called, by their kind."""

_EARLIER_PUBLICATION: Final = b"P\x97"
"""What publications of version 1 of the wire begin with: arrays of seven, without a stay."""

Key = tuple[str, str, int]
"""Which publication: its publisher, session and number."""

_encode: Final = msgspec.msgpack.Encoder(enc_hook=encode_filter).encode
_decode_change: Final = msgspec.msgpack.Decoder(Guard, dec_hook=decode_filter).decode
_decode_client: Final = msgspec.msgpack.Decoder(ClientRecord, dec_hook=decode_filter).decode
_decode_checkpoint_1: Final = msgspec.msgpack.Decoder(tuple[ClientRecord, ...], dec_hook=decode_filter).decode
_decode_end: Final = msgspec.msgpack.Decoder(tuple[str, str, int]).decode
_decode_number: Final = msgspec.msgpack.Decoder(int).decode


class PublicationLogError(Exception):
    """A log that cannot be opened or read; the message says which and why."""


class Damage(msgspec.Struct, frozen=True):
    """Bytes of a file that are not whole records, or a record that makes no sense."""

    offset_bytes: int
    size_bytes: int
    reason: str = "no whole record"


class FileContents(msgspec.Struct):
    """What one file of a log holds."""

    path: PurePath
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
        self.records = RetainedRecords()
        self.ended: dict[tuple[str, str], int] = {}
        """The last number that has ended, by publisher and session."""
        self._found: dict[Key, Publish] = {}
        self._earlier: dict[Key, PurePath] = {}
        """Publications of version 1 of the wire, each with its file."""
        self._checkpoint: dict[str, ClientRecord] | None = None
        """The checkpoint that is being read."""
        self._is_checkpoint_whole = False

    def take(self, path: PurePath, data: bytes, *, is_last: bool) -> None:
        """Read one more file; raises `PublicationLogError` if it is of a later version."""
        try:
            found = scan(data)
        except LaterVersionError as error:
            raise PublicationLogError(f"{path} {error}: start the version that has written it") from None
        file = FileContents(path, len(data), found.version)
        self.files.append(file)
        ends = len(data)
        if is_last and (torn_at := _torn_at(data, found)) is not None:
            ends = torn_at
            file.torn = Damage(torn_at, len(data) - torn_at)
        bad = [Damage(offset, size) for offset, size in found.bad if offset < ends]
        damage = iter([*bad, None])
        following = next(damage)
        for offset, record in found.records:
            if offset >= ends:
                break
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
            self.epoch = max(self.epoch, _decode_number(content))
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
        elif kind == _WRITE:
            _decode_number(content)
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
        self.records, self._is_checkpoint_whole = RetainedRecords(), False
        for record in (*(each for each in known if each.client not in found), *found.values()):
            self.records.keep(Guard(version=0, record=record))

    @property
    def is_damaged(self) -> bool:
        """Whether something is not whole that should be."""
        return any(file.damage for file in self.files)

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


def _torn_at(data: bytes, found: Scan) -> int | None:
    """Where the last write of a file ends that was not written to its end; None if it was."""
    if not found.bad:
        return None
    last_begin, last_size = found.bad[-1]
    reaches_end = last_begin + last_size == len(data)
    if found.version < SINCE_WRITES:
        return last_begin if reaches_end and (found.version or may_be_torn(data)) else None
    writes = [
        (offset, offset + HEAD_BYTES + len(content) + _decode_number(content[1:]))
        for offset, content in found.records
        if content.startswith(_WRITE)
    ]
    begin, end = writes[-1] if writes else (0, 0)
    if end < len(data):
        begin, end = end, 0  # how long the last one is, cannot be read
    for offset, size in found.bad:
        place = max(offset, begin)
        if place < offset + size and is_block_missing(data, place, offset + size, begin):
            return place
    is_short = end > len(data) or not (end or any(offset >= begin for offset, _ in found.records))
    return max(last_begin, begin) if reaches_end and is_short else None


# ---- records ----


def as_write(contents: list[bytes], mark: bytes) -> bytes:
    """Records that are written at once, behind one that says how long they are together."""
    body = framed(contents, mark)
    return framed([_WRITE + _encode(len(body))], mark) + body if body else b""


def publication_record(publication: Publish) -> bytes:
    """A publication is stored."""
    return _PUBLICATION + encode_message(publication)


def publication_key(record: bytes) -> Key | None:
    """Which publication a record stores, if it does.

    >>> publication_key(end_record("ann", "1", 3)) is None
    True
    """
    if not record.startswith(_PUBLICATION) or record.startswith(_EARLIER_PUBLICATION):
        return None
    publication = decode_publication(record[1:])
    return publication.publisher, publication.session, publication.sequence


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
