"""Feeds: records from files, from the service and from the overlay, taken once and durably."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from trimtab.activedata.definitions.fields import ValueMistake
from trimtab.activedata.definitions.statements import DirectorySource, HttpSource, JdbcSource, OverlaySource, Source
from trimtab.activedata.errors import ActiveDataError
from trimtab.activedata.feeds.directory_feed import DirectoryFeed
from trimtab.activedata.feeds.jdbc_feed import JdbcFeed, check_jdbc
from trimtab.activedata.feeds.overlay_feed import OverlayFeed
from trimtab.activedata.feeds.raw_records import RawRecord, json_records
from trimtab.activedata.feeds.taking import take_in_halves
from trimtab.activedata.storage.catalog import Catalog
from trimtab.activedata.storage.catalog_entries import FeedEntry
from trimtab.activedata.storage.datasets import Row, StoredDataset
from trimtab.activedata.storage.dead_letters import DeadLetter, DeadLetters
from trimtab.activedata.supervision import SupervisedThread

if TYPE_CHECKING:
    from trimtab.activedata.overlay import Overlay
    from trimtab.activedata.spark.views import SparkViews


class FeedAnswer(msgspec.Struct, frozen=True):
    """How many records were accepted (those that were there already too), and how many went to the dead letters."""

    accepted: int
    rejected: int
    repeated: int


class Feeds:
    """Runs the feeds that are switched on."""

    def __init__(  # noqa: PLR0917
        self,
        catalog: Catalog,
        datasets: Mapping[str, StoredDataset],
        dead_letters: DeadLetters,
        arrived: Callable[[], None],
        overlay: Overlay,
        views: SparkViews | None = None,
    ) -> None:
        self._catalog = catalog
        self._datasets = datasets
        self._dead_letters = dead_letters
        self._arrived = arrived
        self._overlay = overlay
        self._views = views
        self._running: dict[int, SupervisedThread] = {}

    def start(self) -> None:
        """Start the feeds that ran when the process ended."""
        for feed in self._catalog.feeds():
            if feed.running:
                self._start(feed)

    def stop(self) -> None:
        """Stop all feeds; they start again with the next process."""
        for feed_id in list(self._running):
            self._stop(feed_id)

    def check(self, source: Source) -> None:
        """Refuse a source that cannot work."""
        if isinstance(source, OverlaySource):
            self._overlay.check(source.filter, source.broker)
        if isinstance(source, JdbcSource):
            check_jdbc(source)
        if isinstance(source, DirectorySource) and not Path(source.path).is_dir():
            raise ValueMistake(f"{source.path} is no directory")

    def switch(self, feed: FeedEntry, running: bool) -> None:
        """Start or stop a feed."""
        self._catalog.switch_feed(feed.id, running)
        if running:
            self._start(feed)
        else:
            self._stop(feed.id)
            self._catalog.set_note("FEED", feed.id, None)

    def thread_of(self, feed_id: int) -> SupervisedThread | None:
        """The thread of a feed that runs and has one: records that are posted come in the threads of the service."""
        return self._running.get(feed_id)

    def _start(self, feed: FeedEntry) -> None:
        if feed.id in self._running or isinstance(feed.source, HttpSource):
            return
        follow = {OverlaySource: self._follow_overlay, JdbcSource: self._follow_jdbc}
        work = follow.get(type(feed.source), self._follow_directory)
        self._running[feed.id] = thread = SupervisedThread(
            f"feed {feed.name}", partial(work, feed), partial(self._catalog.feed_failed, feed.id)
        )
        thread.start()

    def _stop(self, feed_id: int) -> None:
        thread = self._running.pop(feed_id, None)
        if thread is not None:
            thread.stop()

    def take_lines(self, feed: FeedEntry, data: bytes, source: str, place: int) -> FeedAnswer:
        """Take JSON lines; `place` is where the first one stands in its source. Durable when this returns."""
        if isinstance(feed.source, HttpSource) and not feed.running:
            raise ActiveDataError(f"feed {feed.name} is stopped; START FEED {feed.name} starts it")
        return self._take(feed, json_records(data, place), source, {})

    def _take(self, feed: FeedEntry, records: list[RawRecord], source: str, marks: dict[str, int]) -> FeedAnswer:
        """Store records; what cannot be stored becomes a dead letter. The marks say how far a source is read then."""
        dataset = self._datasets[feed.dataset.lower()]
        good: list[tuple[Row, RawRecord]] = []
        bad: list[tuple[RawRecord, str]] = []
        dataset.evolve(each.value for each in records if each.mistake is None)
        for each in records:
            try:
                if each.mistake is not None:
                    raise ValueMistake(each.mistake)
                good.append((dataset.check(each.value), each))
            except Exception as error:  # whatever a record does to the check is a mistake of the record
                bad.append((each, str(error) or type(error).__name__))
        taken = take_in_halves(dataset, good)
        bad += taken.refused
        letters = [DeadLetter(feed.name, source, each.place, reason, each.text) for each, reason in bad]
        letters.sort(key=lambda letter: letter.place)
        self._dead_letters.add(letters, marks)
        self._catalog.count_fed(feed.id, taken.accepted_count, taken.repeated_count, len(letters))
        thread = self._running.get(feed.id)
        if thread is not None:
            thread.worked()
        if taken.accepted_count:
            self._arrived()
        return FeedAnswer(taken.accepted_count + taken.repeated_count, len(letters), taken.repeated_count)

    def _follow_directory(self, feed: FeedEntry, stop: threading.Event) -> None:
        def take(records: list[RawRecord], source: str, marks: dict[str, int]) -> None:
            self._take(feed, records, source, marks)

        DirectoryFeed(feed, self._datasets[feed.dataset.lower()], self._catalog, take).follow(stop)

    def _follow_jdbc(self, feed: FeedEntry, stop: threading.Event) -> None:
        def take(records: list[RawRecord], source: str, marks: dict[str, int]) -> None:
            self._take(feed, records, source, marks)

        if self._views is None:
            raise ActiveDataError("tables are read by Spark, and there is none")
        JdbcFeed(feed, self._datasets[feed.dataset.lower()], self._catalog, self._views, take).follow(stop)

    def _follow_overlay(self, feed: FeedEntry, stop: threading.Event) -> None:
        assert isinstance(feed.source, OverlaySource)
        dataset = self._datasets[feed.dataset.lower()]
        taking = OverlayFeed(feed, dataset, self._catalog, self._dead_letters, self._arrived)
        self._overlay.follow(feed.source.filter, feed.source.broker, taking, stop)
