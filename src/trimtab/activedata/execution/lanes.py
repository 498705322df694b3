"""Lanes: each executes one thing at a time, with its own share of Spark, and ends what takes too long."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from trimtab.activedata.spark.views import SparkViews

EXECUTION_MAX_S: Final = 120.0
"""An execution that takes longer is cancelled and done in halves."""


class Lane:
    """Where executions run one after the other; Spark shares its slots fairly between lanes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._starts_count = 0
        self._ends_s: float | None = None
        self._is_overdue = False
        self._lock = threading.Lock()

    @contextmanager
    def working(self, views: SparkViews) -> Iterator[None]:
        """Do something with Spark in this lane; it raises TimeoutError if it was cancelled."""
        max_s = EXECUTION_MAX_S
        if self._starts_count != views.starts_count:
            with views.lock:
                context = views.session.sparkContext
                context.setLocalProperty("spark.scheduler.pool", self.name)
                context.setJobGroup(self.name, f"channels of {self.name}", interruptOnCancel=True)
                self._starts_count = views.starts_count
        with self._lock:
            self._is_overdue = False
            self._ends_s = time.monotonic() + max_s
        try:
            yield
        except Exception as error:
            if self._is_overdue:
                raise TimeoutError(f"it took longer than {max_s:g} s") from error
            raise
        finally:
            with self._lock:
                self._ends_s = None

    def cancel_overdue(self, views: SparkViews, now_s: float) -> None:
        """Cancel what has taken too long."""
        with self._lock:
            if self._ends_s is None or now_s < self._ends_s:
                return
            self._is_overdue = True
            self._ends_s = now_s + 5.0  # what it starts meanwhile is cancelled, too
        views.session.sparkContext.cancelJobGroup(self.name)
