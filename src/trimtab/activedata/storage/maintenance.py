"""What keeps stored data small while it is used: retention, compaction, and removal of files that nobody needs.

What is due is seen in the tables themselves, so a restart forgets nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from trimtab.activedata.errors import ActiveDataError
from trimtab.activedata.storage.datasets import StoredDataset
from trimtab.activedata.storage.delta_tables import DeltaStore

logger = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 10.0
VACUUM_EVERY_S: Final = 3_600.0


class Maintenance:
    """Looks after datasets and the other tables in a thread of its own."""

    def __init__(
        self,
        datasets: Callable[[], Iterable[StoredDataset]],
        others: Iterable[DeltaStore],
        every_s: float = LOOK_EVERY_S,
    ) -> None:
        self._datasets = datasets
        self._others = list(others)
        self._every_s = every_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="maintenance", daemon=True)
        self.error: str | None = None
        """Why the last pass could not do everything."""

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the table that is being worked on."""
        self._stop.set()
        self._thread.join()

    def _loop(self) -> None:
        while not self._stop.wait(self._every_s):
            self.look_once(time.time())

    def look_once(self, now_s: float) -> None:
        """Do everything that is due."""
        self.error = None
        for dataset in self._datasets():
            self._tried(dataset.entry.name, partial(_look_after, dataset, now_s))
        for store in self._others:
            self._tried(store.path.name, partial(_keep_small, store))

    def _tried(self, name: str, work: Callable[[], None]) -> None:
        if self._stop.is_set():
            return
        try:
            work()
        except (ActiveDataError, OSError) as error:
            self.error = f"{name}: {error}"
            logger.warning("maintenance of %s", self.error)
        except Exception as error:  # the other tables still need it
            self.error = f"{name}: {error}"
            logger.exception("maintenance of %s", name)


def _look_after(dataset: StoredDataset, now_s: float) -> None:
    if not dataset.directory.exists():  # dropped meanwhile
        return
    dataset.remove_old(now_s)
    if dataset.keys is not None:
        while dataset.keys.index.merge():
            pass
    _keep_small(dataset.store)


def _keep_small(store: DeltaStore) -> None:
    if store.is_compaction_due():
        store.compact()
    elif store.since_vacuum_s > VACUUM_EVERY_S:
        store.vacuum()
