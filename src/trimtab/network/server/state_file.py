"""What a broker that is asked to end leaves behind, in a file that its next incarnation reads.

The file is written whole, and counts only whole: it ends with a checksum, and takes its name when it is on the disk.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Final

import msgspec

from trimtab.protocol.codec import ProtocolError, decode_filter, decode_message, encode_filter, encode_message
from trimtab.protocol.events import LeftBehind
from trimtab.protocol.messages import ClientRecord

_MAGIC: Final = b"trimtab state 1\n"


class _State(msgspec.Struct, frozen=True, array_like=True):
    epoch: int
    version: int
    records: tuple[ClientRecord, ...]
    tails: dict[str, list[bytes]]
    waiting: list[tuple[str, bytes]]


_encode: Final = msgspec.msgpack.Encoder(enc_hook=encode_filter).encode
_decode: Final = msgspec.msgpack.Decoder(_State, dec_hook=decode_filter).decode


class StateFileError(Exception):
    """A state file that cannot be read or written; the message says which and why."""


def write_state(path: Path, epoch: int, left: LeftBehind) -> None:
    """Keep what an incarnation leaves behind; raises `StateFileError`."""
    state = _State(
        epoch,
        left.version,
        left.records,
        {name: [encode_message(message) for message in tail] for name, tail in left.tails.items()},
        [(source, encode_message(message)) for source, message in left.waiting],
    )
    body = _encode(state)
    new = path.with_name(f"{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with new.open("wb") as file:
            file.write(_MAGIC + body + zlib.crc32(body).to_bytes(4, "big"))
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise StateFileError(f"{path}: what the broker leaves behind cannot be kept: {error.strerror}") from None


def read_state(path: Path) -> tuple[int, LeftBehind] | None:
    """The epoch of the incarnation that ended, and what it has left, None if nothing; raises `StateFileError`."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateFileError(f"{path}: cannot be read: {error.strerror}") from None
    body, checksum = content[len(_MAGIC) : -4], content[-4:]
    if not content.startswith(_MAGIC) or zlib.crc32(body).to_bytes(4, "big") != checksum:
        raise StateFileError(f"{path}: not a state file, or damaged; move it away to start without it")
    try:
        state = _decode(body)
        tails = {name: tuple(decode_message(each) for each in tail) for name, tail in state.tails.items()}
        waiting = tuple((source, decode_message(each)) for source, each in state.waiting)
    except (msgspec.DecodeError, ProtocolError) as error:
        raise StateFileError(
            f"{path}: written by another version ({error}); move it away to start without it"
        ) from None
    return state.epoch, LeftBehind(state.records, state.version, tails, waiting)


def forget_state(path: Path) -> None:
    """What was left behind is known again."""
    path.unlink(missing_ok=True)
