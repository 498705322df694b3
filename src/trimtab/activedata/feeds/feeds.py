"""Feeds: records from files, from the service and from the overlay, taken once and durably."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from trimtab.activedata.definitions.fields import ValueMistake
from trimtab.activedata.definitions.statements import DirectorySource, HttpSource, OverlaySource, Source
from trimtab.activedata.errors import ActiveDataError
from trimtab.activedata.feeds.overlay_feed import OverlayAdapter, OverlayFeed
from trimtab.activedata.storage.catalog import Catalog
from trimtab.activedata.storage.catalog_entries import FeedEntry
from trimtab.activedata.storage.datasets import Row, StoredDataset
from trimtab.activedata.storage.dead_letters import DeadLetter, DeadLetters

logger = logging.getLogger(__name__)

LOOK_AGAIN_AFTER_S: Final = 0.5
"""How often a directory is looked at for new files and lines."""

READ_BYTES: Final = 4 * 1024 * 1024
"""At most so much of a file becomes one commit."""


class FeedAnswer(msgspec.Struct, frozen=True):
    """How many records were accepted (those that were there already too), and how many went to the dead letters."""

    accepted: int
    rejected: int
    repeated: int


class Feeds:
    """Runs the feeds that are switched on."""

    def __init__(
        self,
        catalog: Catalog,
        datasets: Mapping[str, StoredDataset],
        dead_letters: DeadLetters,
        arrived: Callable[[], None],
        overlay: OverlayAdapter | None,
    ) -> None:
        self._catalog = catalog
        self._datasets = datasets
        self._dead_letters = dead_letters
        self._arrived = arrived
        self._overlay = overlay
        self._running: dict[int, tuple[threading.Event, threading.Thread]] = {}

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
            if self._overlay is None:
                raise ValueMistake("this process knows no broker network; feeds from the overlay need `trimtab active`")
            self._overlay.check(source.filter, source.broker)
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

    def _start(self, feed: FeedEntry) -> None:
        if feed.id in self._running or isinstance(feed.source, HttpSource):
            return
        stop = threading.Event()
        follow = self._follow_overlay if isinstance(feed.source, OverlaySource) else self._follow_directory
        thread = threading.Thread(target=follow, args=(feed, stop), name=f"feed-{feed.name}", daemon=True)
        self._running[feed.id] = (stop, thread)
        thread.start()

    def _stop(self, feed_id: int) -> None:
        found = self._running.pop(feed_id, None)
        if found is not None:
            found[0].set()
            found[1].join()

    def take_lines(self, feed: FeedEntry, data: bytes, source: str, place: int, *, known: bool = False) -> FeedAnswer:
        """Take JSON lines; `place` is where the first one stands in its source. Durable when this returns."""
        if isinstance(feed.source, HttpSource) and not feed.running:
            raise ActiveDataError(f"feed {feed.name} is stopped; START FEED {feed.name} starts it")
        dataset = self._datasets[feed.dataset.lower()]
        good: list[tuple[Row, int, bytes]] = []
        letters: list[DeadLetter] = []
        for line in data.split(b"\n"):
            at = place
            place += len(line) + 1
            if not line.strip():
                continue
            try:
                good.append((dataset.check(msgspec.json.decode(line)), at, line))
            except (ValueMistake, msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
                letters.append(DeadLetter(feed.name, source, at, str(error), line.decode(errors="replace")))
        return self._store(feed, dataset, good, letters, {f"{feed.id}:{source}": place} if known else {})

    def _store(
        self,
        feed: FeedEntry,
        dataset: StoredDataset,
        good: list[tuple[Row, int, bytes]],
        letters: list[DeadLetter],
        marks: dict[str, int],
    ) -> FeedAnswer:
        taken = dataset.take([row for row, _, _ in good])
        for index, reason in taken.refused:
            _, at, line = good[index]
            letters.append(DeadLetter(feed.name, "", at, reason, line.decode(errors="replace")))
        self._dead_letters.add(letters, marks)
        self._catalog.count_fed(feed.id, taken.accepted_count, taken.repeated_count, len(letters))
        if taken.accepted_count:
            self._arrived()
        return FeedAnswer(taken.accepted_count + taken.repeated_count, len(letters), taken.repeated_count)

    def _follow_directory(self, feed: FeedEntry, stop: threading.Event) -> None:
        assert isinstance(feed.source, DirectorySource)
        offsets = self._catalog.offsets(feed.id)
        while not stop.is_set():
            try:
                busy = False
                for path in sorted(Path(feed.source.path).iterdir()):
                    if path.is_file() and not path.name.startswith(".") and not stop.is_set():
                        busy |= self._read_on(feed, path, offsets)
            except (OSError, ActiveDataError) as error:
                logger.warning("feed %s: %s", feed.name, error)
                self._catalog.feed_failed(feed.id, str(error))
                busy = False
            if not busy:
                stop.wait(LOOK_AGAIN_AFTER_S)

    def _read_on(self, feed: FeedEntry, path: Path, offsets: dict[str, int]) -> bool:
        """Take the next whole lines of a file; a last line without its end waits until the writer ends it."""
        offset = offsets.get(path.name, 0)
        if path.stat().st_size <= offset:
            return False
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read(READ_BYTES)
        whole = data[: data.rfind(b"\n") + 1]
        if not whole:
            if len(data) < READ_BYTES:
                return False
            whole = data
        self.take_lines(feed, whole, path.name, offset, known=True)
        offsets[path.name] = offset + len(whole)
        self._catalog.set_offset(feed.id, path.name, offsets[path.name])
        return True

    def _follow_overlay(self, feed: FeedEntry, stop: threading.Event) -> None:
        assert isinstance(feed.source, OverlaySource)
        dataset = self._datasets[feed.dataset.lower()]
        taking = OverlayFeed(feed, dataset, self._catalog, self._dead_letters, self._arrived)
        while not stop.is_set():
            try:
                if self._overlay is None:
                    raise ActiveDataError("this process knows no broker network")
                self._overlay.follow(feed.source.filter, feed.source.broker, taking, stop)
            except (OSError, ActiveDataError) as error:
                logger.warning("feed %s: %s", feed.name, error)
                self._catalog.feed_failed(feed.id, str(error))
                stop.wait(2.0)
