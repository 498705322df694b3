"""How the files of a broker's log are laid out, and how records are found again in what is left of a damaged file.

A file begins with a header: a name, the version of the format, a mark that was drawn for this file, and a checksum.
Each record begins with a fixed magic and the mark of its file, then its length and a checksum over all of these and its
content. Where a record is not whole, the next one is looked for by magic and mark, byte by byte: no length of a record
that is not whole is believed. The mark is random, so that no client can publish what would be taken for a record.

Version 2 is the same, but for records that say how long a write is (`log_contents`), which it has not.
Version 1 has no header and no magic: a record is its length, the checksum of its content, and its content. Its files
are read as well; the next record is whatever has a kind that exists and a checksum that is right.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

VERSION: Final = 3
"""The version of the format that is written."""

SINCE_WRITES: Final = 3
"""The first version that says how long writes are."""

_MARKED_VERSIONS: Final = (2, 3)
"""Versions whose files have a header."""

MARK_BYTES: Final = 4

BLOCK_BYTES: Final = 512
"""Disks write blocks of this size, or larger ones: a part of a block is never missing."""

_NAME: Final = b"trimtab-log"
_HEADER: Final = struct.Struct(f">{len(_NAME)}sB{MARK_BYTES}sI")
_MAGIC: Final = b"\xc1Rec"
"""Its first byte is in no text (UTF-8) and in no value (MessagePack)."""
_HEAD: Final = struct.Struct(f">4s{MARK_BYTES}sII")
HEAD_BYTES: Final = _HEAD.size
"""What a record takes besides its content."""
_CHECKED_BYTES: Final = _HEAD.size - 4
"""The part of a record's head that its checksum is over."""

_HEAD_1: Final = struct.Struct(">II")
_KINDS_1: Final = re.compile(rb"[PERCI]")


class LaterVersionError(Exception):
    """A file in a format that this program does not know."""


class Scan(msgspec.Struct):
    """What is in one file, and what of it is not whole records."""

    version: int
    """0 if nothing was recognised."""
    records: list[tuple[int, bytes]] = []
    """The contents of all whole records, with the bytes at which they begin."""
    bad: list[tuple[int, int]] = []
    """Where something is not whole, and how many bytes of it."""


def header(mark: bytes) -> bytes:
    """The beginning of a file whose records have a mark."""
    begin = _HEADER.pack(_NAME, VERSION, mark, 0)[:-4]
    return begin + struct.pack(">I", zlib.crc32(begin))


def framed(contents: Iterable[bytes], mark: bytes) -> bytes:
    """Records of these contents for the file with a mark."""
    parts: list[bytes] = []
    for content in contents:
        head = _MAGIC + mark + struct.pack(">I", len(content))
        parts += head, struct.pack(">I", zlib.crc32(content, zlib.crc32(head))), content
    return b"".join(parts)


def scan(data: bytes) -> Scan:
    """All whole records of a file, wherever they are; raises `LaterVersionError`.

    >>> file = header(b"mark") + framed([b"Pa", b"Pb", b"Pc"], b"mark")
    >>> damaged = file[:40] + b"?" + file[41:]
    >>> scan(damaged)
    Scan(version=3, records=[(20, b'Pa'), (56, b'Pc')], bad=[(38, 18)])
    >>> scan(file[:-1]).bad
    [(56, 17)]
    """
    if not data:
        return Scan(VERSION)
    version, mark = _beginning_of(data)
    if version:
        return _scan(data, _HEADER.size, version, _HEAD.size, *_reader(data, mark))
    content_at, next_at = _reader_1(data)
    if content_at(0) is None:
        found = _reader(data, b"")[1](0)  # a header that is not whole: the first whole record tells the mark
        if found < len(data):
            mark = data[found + len(_MAGIC) : found + len(_MAGIC) + MARK_BYTES]
            return _scan(data, 0, VERSION, _HEAD.size, *_reader(data, mark))
        if next_at(0) == len(data):
            return Scan(0, [], [(0, len(data))])
    return _scan(data, 0, 1, _HEAD_1.size, content_at, next_at)


def may_be_torn(data: bytes) -> bool:
    """Whether a file in which nothing was recognised may be the beginning of one that was not written to its end."""
    if not data.strip(b"\0") or (_NAME.startswith(data[: len(_NAME)]) and len(data) < _HEADER.size):
        return True
    if len(data) <= _HEAD_1.size:
        return not data[0]
    return _KINDS_1.match(data, _HEAD_1.size) is not None and _HEAD_1.unpack_from(data)[0] > len(data) - _HEAD_1.size


def is_block_missing(data: bytes, begin: int, end: int, grown_from: int) -> bool:
    """Whether a block reads as zeros that is a part of these bytes, and of what a file has grown by from a place on.

    A disk that has lost its power has written each block of a write or not. A flipped bit makes no block of zeros.
    """
    for place in range(begin - begin % BLOCK_BYTES, end, BLOCK_BYTES):
        block = data[max(place, grown_from) : place + BLOCK_BYTES]
        if block and not block.strip(b"\0"):
            return True
    return False


def _beginning_of(data: bytes) -> tuple[int, bytes]:
    """The version of a file and the mark of its records as its header tells; 0 if it has no header that is whole."""
    if len(data) < _HEADER.size:
        return 0, b""
    name, version, mark, checksum = _HEADER.unpack_from(data)
    if name != _NAME or zlib.crc32(data[: _HEADER.size - 4]) != checksum:
        return 0, b""
    if version not in _MARKED_VERSIONS:
        raise LaterVersionError(f"has the format {version}, and this program knows no format after {VERSION}")
    return version, bytes(mark)


_ContentAt = Callable[[int], bytes | None]
"""The content of the record that begins at a byte; None if none does."""
_NextAt = Callable[[int], int]
"""Where the first whole record at or behind a byte begins; the end of the file if there is none."""


def _scan(  # noqa: PLR0917 (a reader is two functions)
    data: bytes, place: int, version: int, head_bytes: int, content_at: _ContentAt, next_at: _NextAt
) -> Scan:
    found = Scan(version)
    while place < len(data):
        content = content_at(place)
        if content is None:
            begin, place = place, next_at(place + 1)
            found.bad.append((begin, place - begin))
        else:
            found.records.append((place, content))
            place += head_bytes + len(content)
    return found


def is_whole(head: bytes, content: bytes, checksum: int) -> bool:
    """Whether a record is as it was written, as its checksum says."""
    return zlib.crc32(content, zlib.crc32(head)) == checksum


def _reader(data: bytes, mark: bytes) -> tuple[_ContentAt, _NextAt]:
    """Reads records with a mark, or with any if it is empty."""
    begin = _MAGIC + mark

    def content_at(place: int) -> bytes | None:
        if not data.startswith(begin, place) or len(data) - place < _HEAD.size:
            return None
        length, checksum = struct.unpack_from(">II", data, place + _CHECKED_BYTES - 4)
        content = data[place + _HEAD.size : place + _HEAD.size + length]
        if not content or len(content) != length:
            return None
        return content if is_whole(data[place : place + _CHECKED_BYTES], content, checksum) else None

    def next_at(place: int) -> int:
        while (place := data.find(begin, place)) >= 0:
            if content_at(place) is not None:
                return place
            place += 1
        return len(data)

    return content_at, next_at


def _reader_1(data: bytes) -> tuple[_ContentAt, _NextAt]:
    """Reads records of version 1."""

    def content_at(place: int) -> bytes | None:
        if len(data) - place <= _HEAD_1.size or not _KINDS_1.match(data, place + _HEAD_1.size):
            return None
        length, checksum = _HEAD_1.unpack_from(data, place)
        if not 0 < length <= len(data) - place - _HEAD_1.size:
            return None
        content = data[place + _HEAD_1.size : place + _HEAD_1.size + length]
        return content if zlib.crc32(content) == checksum else None

    def next_at(place: int) -> int:
        for candidate in _KINDS_1.finditer(data, place + _HEAD_1.size):
            if content_at(candidate.start() - _HEAD_1.size) is not None:
                return candidate.start() - _HEAD_1.size
        return len(data)

    return content_at, next_at
