"""The record of administration: who asked a broker for which change, when, from where, and what came of it.

One JSON object a line, in a file that only the broker's user can read. A file that has grown long makes way for a new
one; a few of the former ones are kept.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

FILE_MAX_BYTES: Final = 10_000_000
FILES_MAX_COUNT: Final = 10
"""A file that is full becomes `NAME.jsonl.1`; there are so many at most."""

DETAIL_MAX_CHARS: Final = 1_000

log = logging.getLogger("trimtab.security")


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One request."""

    at_s: float
    """Seconds since 1970."""
    broker: str
    who: str
    """The identity; empty where nobody is asked who they are."""
    proof: str
    address: str
    """Where the connection came from."""
    request: str
    details: str = ""
    """What was asked for, as JSON."""
    is_allowed: bool
    result: str = ""
    """Why it was not done, or `done`."""


class Audit:
    """Writes the records of one broker."""

    def __init__(self, folder: Path, broker: str) -> None:
        self._broker = broker
        self.path = folder / f"{broker}.jsonl"

    def write(
        self, *, who: str, proof: str, address: str, request: msgspec.Struct, name: str, is_allowed: bool, result: str
    ) -> None:
        """Add a record; a record that cannot be written is logged instead."""
        details = msgspec.json.encode(request, enc_hook=str).decode()[:DETAIL_MAX_CHARS]
        record = AuditRecord(
            at_s=time.time(),
            broker=self._broker,
            who=who,
            proof=proof,
            address=address,
            request=name,
            details=details,
            is_allowed=is_allowed,
            result=result[:DETAIL_MAX_CHARS],
        )
        line = msgspec.json.encode(record) + b"\n"
        try:
            self._make_room(len(line))
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(descriptor, line)
            finally:
                os.close(descriptor)
        except OSError as error:
            log.error("%s: not in the audit record (%s): %s", self._broker, error.strerror, line.decode().strip())

    def _make_room(self, more_bytes: int) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            if self.path.stat().st_size + more_bytes <= FILE_MAX_BYTES:
                return
        except FileNotFoundError:
            return
        for number in range(FILES_MAX_COUNT - 1, 0, -1):
            former = self.path.with_name(f"{self.path.name}.{number}")
            if former.exists():
                former.rename(self.path.with_name(f"{self.path.name}.{number + 1}"))
        self.path.rename(self.path.with_name(f"{self.path.name}.1"))
        self.path.with_name(f"{self.path.name}.{FILES_MAX_COUNT}").unlink(missing_ok=True)


def read_audit(folder: Path) -> Iterator[AuditRecord]:
    """The records of all brokers in a folder, by time; lines that are not whole are left out."""
    found: list[AuditRecord] = []
    for path in sorted(folder.glob("*.jsonl*")):
        for line in path.read_bytes().splitlines():
            try:
                found.append(msgspec.json.decode(line, type=AuditRecord))
            except msgspec.DecodeError:
                continue
    yield from sorted(found, key=lambda record: record.at_s)
