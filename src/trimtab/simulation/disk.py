"""Disks of simulated brokers: what is on them stays when the broker dies."""

from __future__ import annotations

from collections.abc import Callable

from trimtab.broker.records import KeptRecords
from trimtab.protocol.effects import Append, Forget
from trimtab.protocol.messages import ClientRecord, Publish
from trimtab.simulation.clock import Clock

WRITE_S = 0.002
"""One write with all that has come since the one before: a solid-state disk that confirms what it has."""


class Disk:
    """A log of publications and of clients' records; one write at a time."""

    def __init__(self, clock: Clock, write_s: float = WRITE_S) -> None:
        self._clock = clock
        self._write_s = write_s
        self._on_disk: list[Publish] = []
        self._records = KeptRecords()
        self._writing: list[Append] = []
        self._waiting: list[Append] = []
        self._incarnation = 0
        self._told: Callable[[int], None] = lambda _: None
        self.writes_count = 0

    def mount(self, told: Callable[[int], None]) -> tuple[tuple[Publish, ...], tuple[ClientRecord, ...]]:
        """An incarnation begins: who is told what is stored, and what there is; unfinished writes are lost."""
        self._incarnation += 1
        self._told = told
        self._writing, self._waiting = [], []
        return tuple(self._on_disk), self._records.all()

    def __len__(self) -> int:
        """Publications on the disk."""
        return len(self._on_disk)

    def append(self, effect: Append) -> None:
        """One more to write."""
        self._waiting.append(effect)
        self._write()

    def forget(self, effect: Forget) -> None:
        """A publisher's publications up to a number are not needed any more."""
        self._on_disk = [
            each
            for each in self._on_disk
            if (each.publisher, each.session) != (effect.publisher, effect.session) or each.sequence > effect.sequence
        ]

    def _write(self) -> None:
        if not self._writing and self._waiting:
            self._writing, self._waiting = self._waiting, []
            self._clock.at(self._clock.now_s + self._write_s, self._written, self._incarnation)

    def _written(self, incarnation: int) -> None:
        if incarnation != self._incarnation:
            return
        self.writes_count += 1
        written, self._writing = self._writing, []
        for each in written:
            if isinstance(each.entry, Publish):
                self._on_disk.append(each.entry)
            else:
                self._records.keep(each.entry)
        self._told(written[-1].number)
        self._write()
