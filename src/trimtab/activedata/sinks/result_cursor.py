"""How far a sink has passed on the results of a broker's subscriptions, and which come next."""

from __future__ import annotations

from typing import Final

import msgspec

from trimtab.activedata.storage.catalog import Catalog
from trimtab.activedata.storage.catalog_entries import BrokerEntry
from trimtab.activedata.storage.results import Result, Results

NOTE: Final = "SINK"
NOTE_EVERY_COUNT: Final = 10_000
"""So many results of others are passed over before that is noted."""


class SinkNote(msgspec.Struct, frozen=True):
    """What is kept of a sink: all results up to a position are passed on; webhooks sign with the secret."""

    position: int
    secret: str = ""


class SunkResult(msgspec.Struct, frozen=True):
    """A result as a sink passes it on. `id` is the same if it comes twice; positions of a subscription grow."""

    id: str
    position: int
    channel: str
    subscription: int
    arguments: dict[str, object]
    values: msgspec.Raw
    executed_s: float


class ResultCursor:
    """Reads the results of one broker's subscriptions in their order."""

    def __init__(self, entry: BrokerEntry, catalog: Catalog, results: Results) -> None:
        self.entry = entry
        self._catalog = catalog
        self._results = results
        noted = catalog.note(NOTE, entry.id)
        self.note = msgspec.json.decode(noted, type=SinkNote) if noted else SinkNote(results.last_position)
        self.position = self.note.position

    def next(self, wait_s: float, max_count: int) -> tuple[list[SunkResult], int]:
        """The next results, at most so many, and the position up to which there are no others; may wait a little."""
        with self._results.news:
            if self._results.last_position <= self.position:
                self._results.news.wait(wait_s)
            newest = self._results.last_position
        if newest <= self.position:
            return [], self.position
        wanted = {each.id: each for each in self._catalog.subscriptions(broker_id=self.entry.id)}
        found = self._results.fetch_many(list(wanted), self.position, max_count)
        names = {each.id: each.name for each in self._catalog.channels()} if found else {}
        told = [_sunk(each, names.get(each.channel, ""), dict(wanted[each.subscription].arguments)) for each in found]
        return told, found[-1].position if len(found) == max_count else newest

    def passed_on(self, position: int, *, noted: bool) -> None:
        """Everything up to a position is passed on, which is noted on the disk if something was."""
        self.position = position
        if noted or position - self.note.position > NOTE_EVERY_COUNT:
            self.note = msgspec.structs.replace(self.note, position=position)
            self._catalog.set_note(NOTE, self.entry.id, msgspec.json.encode(self.note).decode())


def _sunk(result: Result, channel: str, arguments: dict[str, object]) -> SunkResult:
    return SunkResult(
        result.id,
        result.position,
        channel,
        result.subscription,
        arguments,
        result.payload,
        result.executed_us / 1e6,
    )
