"""What a broker that is asked to end leaves behind, in a file that its next incarnation reads.

The file is written whole, and counts only whole: it ends with a checksum, and takes its name when it is on the disk.
"""

from __future__ import annotations

import logging
import os
import zlib
from pathlib import Path
from typing import Final

import msgspec

from trimtab.broker.core import Broker
from trimtab.network.failover.replication_settings import ReplicaOrder
from trimtab.network.network_plan import NetworkPlan
from trimtab.protocol.codec import ProtocolError, decode_filter, decode_message, encode_filter, encode_message
from trimtab.protocol.events import LeftBehind
from trimtab.protocol.messages import ClientRecord

log = logging.getLogger("trimtab.broker")

_MAGIC: Final = b"trimtab state 1\n"


class _Content(msgspec.Struct, frozen=True, array_like=True):
    epoch: int
    version: int
    records: tuple[ClientRecord, ...]
    tails: dict[str, list[bytes]]
    waiting: list[tuple[str, bytes]]


_encode: Final = msgspec.msgpack.Encoder(enc_hook=encode_filter).encode
_decode: Final = msgspec.msgpack.Decoder(_Content, dec_hook=decode_filter).decode


class StateFileError(Exception):
    """A state file that cannot be read or written; the message says which and why."""


def write_state(path: Path, epoch: int, left: LeftBehind) -> None:
    """Keep what an incarnation leaves behind; raises `StateFileError`."""
    state = _Content(
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


class State:
    """What the incarnation before has left a broker, and what the broker leaves the next one."""

    def __init__(self, plan: NetworkPlan, name: str, file: str | Path | None, order: ReplicaOrder | None) -> None:
        """Read what was left, if the broker has a place for that; raises `StateFileError`."""
        is_kept = not plan.options.disk and not (order is not None and order.assists)
        self._path = _path_of(plan, name, file) if is_kept else None
        found = None if self._path is None else read_state(self._path)
        if found is not None and order is not None and found[0] + 1 != order.epoch:
            found = None  # an earlier incarnation has left it than the one that this replica follows
        self._is_found = found is not None
        self.epoch = 0 if found is None else found[0] + 1
        """The incarnation for which something was left, 0 if nothing was."""
        self.left: LeftBehind | None = None if found is None else found[1]

    def known_again(self) -> None:
        """The network knows what was left."""
        if self._is_found:
            self._is_found = False
            self.forget()

    def forget(self) -> None:
        """Nothing is left."""
        if self._path is not None:
            forget_state(self._path)

    def leave(self, broker: Broker) -> str:
        """Keep what the next incarnation must know; returns why that cannot be."""
        if self._path is None:
            return ""
        left = broker.left_behind()
        count = len(left.waiting) + sum(map(len, left.tails.values()))
        if count:
            log.info("%s: %d publications and markers wait for its return in %s", broker.name, count, self._path)
        try:
            if count or left.records or broker.tables.subscriptions:
                write_state(self._path, broker.epoch, left)
            else:
                forget_state(self._path)
        except StateFileError as error:
            log.error("%s: %s", broker.name, error)
            return str(error)
        return ""


def _path_of(plan: NetworkPlan, name: str, file: str | Path | None) -> Path | None:
    if plan.options.state:
        return Path(plan.options.state) / f"{name}.state"
    return None if file is None else Path(file).resolve().parent / ".trimtab" / f"{name}.state"


def forget_state(path: Path) -> None:
    """What was left behind is known again."""
    path.unlink(missing_ok=True)
