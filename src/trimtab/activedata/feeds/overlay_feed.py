"""A feed from the overlay: publications become records, and the broker may forget them when they are durable.

The feed's session at the broker outlives this process: what was not stored is sent again to the next one. So something
may come twice, and is dropped the second time. In an active dataset the key of a record says that it is there already.
A commit to another dataset carries the number of each publisher's last publication in it, and so do the dead letters;
what is not above that number is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from trimtab.activedata.feeds.taking import take_in_halves
from trimtab.activedata.storage.catalog import Catalog
from trimtab.activedata.storage.catalog_entries import FeedEntry
from trimtab.activedata.storage.datasets import Row, StoredDataset
from trimtab.activedata.storage.dead_letters import DeadLetter, DeadLetters


class OverlayPublication(msgspec.Struct, frozen=True):
    """A publication: whose, which, and what it says. Numbers grow within a session of the publisher."""

    publisher: str
    session: str
    sequence: int
    values: dict[str, object]


class OverlayFeed:
    """Takes publications for one feed; what it is told to keep is there in the next life."""

    def __init__(
        self,
        feed: FeedEntry,
        dataset: StoredDataset,
        catalog: Catalog,
        dead_letters: DeadLetters,
        arrived: Callable[[], None],
    ) -> None:
        self.name = feed.name
        self._feed = feed
        self._dataset = dataset
        self._catalog = catalog
        self._dead_letters = dead_letters
        self._arrived = arrived
        self._names = [field.name for field in dataset.entry.fields]

    @property
    def is_over(self) -> bool:
        """Whether the feed was stopped, and not only this process."""
        return not self._catalog.feed(self._feed.name).running

    @property
    def kept(self) -> str | None:
        """What was kept last."""
        return self._catalog.note("FEED", self._feed.id)

    def keep(self, kept: str | None) -> None:
        """Keep something for the next life, or nothing."""
        self._catalog.set_note("FEED", self._feed.id, kept)

    def forgotten(self, reason: str) -> None:
        """The broker knows nothing of the earlier life: what it kept is missing, which is written down first."""
        letter = DeadLetter(self._feed.name, "overlay", 0, f"publications may be missing: {reason}", "")
        self._dead_letters.add([letter])
        self.keep(None)

    def take(self, publications: list[OverlayPublication], kept: str) -> None:
        """Store publications; they and what is to be kept with them are durable when this returns."""
        good: list[tuple[Row, OverlayPublication]] = []
        bad: list[tuple[OverlayPublication, str]] = []
        for each in publications:
            try:
                good.append((self._dataset.check(self._own(each)), each))
            except Exception as error:  # whatever a publication does to the check is a mistake of the publication
                bad.append((each, str(error) or type(error).__name__))
        marks_of = None
        if self._dataset.keys is None:
            known = self._positions(self._dataset.store.mark, publications)
            good = [(row, each) for row, each in good if each.sequence > known[self._mark(each)]]
            marks_of = self._newest
        taken = take_in_halves(self._dataset, good, marks_of)
        bad += taken.refused
        bad.sort(key=lambda letter: letter[0].sequence)
        rejected_count = self._put_aside(bad)
        self.keep(kept)
        repeated_count = len(publications) - taken.accepted_count - rejected_count
        self._catalog.count_fed(self._feed.id, taken.accepted_count, repeated_count, rejected_count)
        if taken.accepted_count:
            self._arrived()

    def _put_aside(self, bad: list[tuple[OverlayPublication, str]]) -> int:
        """Keep letters of what cannot be taken, each once; answers how many are new."""
        known = self._positions(self._dead_letters.store.mark, [each for each, _ in bad])
        new = [(each, reason) for each, reason in bad if each.sequence > known[self._mark(each)]]
        letters = [
            DeadLetter(
                self._feed.name,
                f"overlay, publisher {each.publisher}",
                each.sequence,
                reason,
                msgspec.json.encode(self._own(each)).decode(),
            )
            for each, reason in new
        ]
        self._dead_letters.add(letters, self._newest([each for each, _ in new]))
        return len(new)

    def _own(self, publication: OverlayPublication) -> dict[str, object]:
        """What the dataset has fields for."""
        return {name: publication.values[name] for name in self._names if name in publication.values}

    def _mark(self, publication: OverlayPublication) -> str:
        return f"feed {self._feed.id} {publication.publisher} {publication.session}"

    def _positions(self, mark: Callable[[str], int | None], publications: list[OverlayPublication]) -> dict[str, int]:
        """How far each of the publishers was when a table was last written to."""
        names = dict.fromkeys(self._mark(each) for each in publications)
        return {name: mark(name) or 0 for name in names}

    def _newest(self, publications: Sequence[OverlayPublication]) -> dict[str, int]:
        newest: dict[str, int] = {}
        for each in publications:
            name = self._mark(each)
            newest[name] = max(newest.get(name, 0), each.sequence)
        return newest
