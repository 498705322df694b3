"""The results of all channels: one Delta table, committed together with how far the channels have come."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from trimtab.activedata.storage.delta_log import AcknowledgedVersions
from trimtab.activedata.storage.delta_tables import DeltaStore

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from trimtab.activedata.execution.result_tasks import Written

RECENT_ROWS_COUNT: Final = 200_000
"""Results that are kept in memory for the brokers; older ones are read from disk."""

FETCH_MAX_COUNT: Final = 10_000

_LAST_MARK: Final = "position"
_ORDER: Final = ("record", "channel", "subscription")


class Result(msgspec.Struct, frozen=True):
    """A notification.

    `position` grows strictly within a subscription. `id` says channel, subscription, record, and which of the rows that
    the channel found for this pair; it is the same if the execution is repeated.
    """

    position: int
    id: str
    channel: int
    subscription: int
    record: int
    executed_us: int
    payload: msgspec.Raw

    @property
    def fields(self) -> dict[str, Any]:
        """The fields that the channel selected."""
        found: dict[str, Any] = msgspec.json.decode(self.payload)
        return found


class SubscriptionCount(msgspec.Struct):
    """How many results a subscription has got since the process started, and how large their fields are together."""

    results_count: int = 0
    results_bytes: int = 0


class Results:
    """The result table, its newest rows in memory, and who waits for more."""

    def __init__(self, directory: Path, versions: AcknowledgedVersions) -> None:
        import pyarrow as pa

        self.schema = pa.schema(
            [
                ("position", pa.int64()),
                ("channel", pa.int64()),
                ("subscription", pa.int64()),
                ("record", pa.int64()),
                ("ordinal", pa.int32()),
                ("executed_us", pa.int64()),
                ("payload", pa.string()),
            ]
        )
        self.store = DeltaStore(directory, self.schema, versions)
        self.last_position = self.store.mark(_LAST_MARK) or 0
        self.news = threading.Condition()
        self.listeners: list[Callable[[], None]] = []
        """Called, in whatever thread commits, when there is news; they must be quick."""
        self._recent: deque[pa.Table] = deque()
        self._recent_after = self.last_position
        self._recent_count = 0
        self._newest: dict[int, int] = {}
        self._counts: dict[int, SubscriptionCount] = {}
        self._load_newest()

    def _load_newest(self) -> None:
        if self.last_position:
            found = self.store.read(columns=["subscription", "position"]).group_by("subscription")
            table = found.aggregate([("position", "max")])
            self._newest = dict(zip(table["subscription"].to_pylist(), table["position_max"].to_pylist(), strict=True))

    def channel_position(self, channel: int) -> int:
        """The last record whose results for a channel are in the table (0 if it has none)."""
        return self.store.mark(_channel_mark(channel)) or 0

    def commit(self, found: pa.Table, positions: Mapping[int, int], more_marks: Mapping[str, int] | None = None) -> int:
        """Make results visible together with the channels' positions; answers how many there were.

        `found` has the columns channel, subscription, record and payload, in any order of rows.
        """
        import numpy as np
        import pyarrow as pa

        if not found.num_rows:
            return 0
        found, ordinals = _in_order(found)
        with self.store.lock:
            first = self.last_position + 1
            last = self.last_position + found.num_rows
            count = found.num_rows
            now_us = int(time.time() * 1e6)
            rows = pa.table(
                [
                    np.arange(first, last + 1, dtype=np.int64),
                    found["channel"].cast(pa.int64()),
                    found["subscription"],
                    found["record"],
                    ordinals,
                    np.full(count, now_us, dtype=np.int64),
                    found["payload"],
                ],
                schema=self.schema,
            )
            marks = {_channel_mark(channel): position for channel, position in positions.items()}
            self.store.append(rows, {**marks, **(more_marks or {}), _LAST_MARK: last})
            self._announce(rows, last)
        return int(count)

    def commit_files(
        self,
        written: Written,
        last_position: int,
        positions: Mapping[int, int],
        more_marks: Mapping[str, int] | None = None,
    ) -> int:
        """Make the files that tasks wrote visible, together with the channels' positions; answers the results' number.

        `last_position` is above all positions that the tasks may have given away.
        """
        if not written.files:
            return 0
        marks = {_channel_mark(channel): position for channel, position in positions.items()}
        with self.store.lock:
            self.store.append_files(written.files, {**marks, **(more_marks or {}), _LAST_MARK: last_position})
            told = written.told
            names = ("subscription", "results_count", "results_bytes", "newest")
            rows = list(zip(*(told[name].to_pylist() for name in names), strict=True))
            with self.news:
                self.last_position = last_position
                for subscription, count, size_bytes, newest in rows:
                    self._newest[subscription] = max(newest, self._newest.get(subscription, 0))
                    self._count(subscription, count, size_bytes)
                self._recent.clear()
                self._recent_count = 0
                self._recent_after = last_position
                self.tell_news()
        return written.results_count

    def tell_news(self) -> None:
        """Wake who waits for news, which is held by whoever calls this."""
        self.news.notify_all()
        for listener in self.listeners:
            listener()

    def _announce(self, rows: pa.Table, last_position: int) -> None:
        import numpy as np
        import pyarrow.compute as pc

        subscriptions = rows["subscription"].to_numpy()
        positions = rows["position"].to_numpy()
        ids, backwards, places, counts = np.unique(
            subscriptions[::-1], return_index=True, return_inverse=True, return_counts=True
        )
        newest = positions[::-1][backwards]
        sizes = np.bincount(places, weights=pc.binary_length(rows["payload"]).to_numpy()[::-1])
        with self.news:  # whoever sees the position sees what it covers
            self.last_position = last_position
            self._newest.update(zip(ids.tolist(), newest.tolist(), strict=True))
            for subscription, count, size_bytes in zip(ids.tolist(), counts.tolist(), sizes.tolist(), strict=True):
                self._count(subscription, count, int(size_bytes))
            self._recent.append(rows)
            self._recent_count += rows.num_rows
            while self._recent_count > RECENT_ROWS_COUNT and len(self._recent) > 1:
                gone = self._recent.popleft()
                self._recent_count -= gone.num_rows
                self._recent_after = gone["position"][-1].as_py()
            self.tell_news()

    def _count(self, subscription: int, count: int, size_bytes: int) -> None:
        counted = self._counts.get(subscription)
        if counted is None:
            counted = self._counts[subscription] = SubscriptionCount()
        counted.results_count += count
        counted.results_bytes += size_bytes

    def count_of(self, subscription: int) -> SubscriptionCount:
        """How many results a subscription has got since the process started."""
        with self.news:
            counted = self._counts.get(subscription)
            return SubscriptionCount() if counted is None else msgspec.structs.replace(counted)

    def newest(self, subscriptions: list[int], after: int) -> dict[int, int]:
        """The newest position of each of these subscriptions that has results above `after`."""
        with self.news:
            found = {each: self._newest.get(each, 0) for each in subscriptions}
        return {each: position for each, position in found.items() if position > after}

    def fetch(self, subscription: int, after: int, limit: int) -> list[Result]:
        """Results of a subscription above a position, oldest first, at most `limit`."""
        return self.fetch_many([subscription], after, limit)

    def fetch_many(self, subscriptions: list[int], after: int, limit: int) -> list[Result]:
        """Results of subscriptions above a position, oldest first, at most `limit`."""
        import pyarrow as pa
        import pyarrow.compute as pc

        limit = max(1, min(limit, FETCH_MAX_COUNT))
        with self.news:
            asked = [each for each in subscriptions if self._newest.get(each, 0) > after]
            in_memory = self.is_in_memory(after)
            parts = self._recent_above(after) if asked and in_memory else []
        if not asked:
            return []
        wanted = pc.field("subscription").isin(asked) & (pc.field("position") > after)
        if in_memory:
            table = pa.concat_tables(parts).filter(wanted).slice(0, limit)
        else:
            table = self.store.read(where=wanted).sort_by("position").slice(0, limit)
        return [
            Result(
                row["position"],
                f"{row['channel']}-{row['subscription']}-{row['record']}-{row['ordinal']}",
                row["channel"],
                row["subscription"],
                row["record"],
                row["executed_us"],
                msgspec.Raw(row["payload"].encode()),
            )
            for row in table.to_pylist()
        ]

    def is_in_memory(self, after: int) -> bool:
        """Whether all results above a position can be had without the disk."""
        return after >= self._recent_after

    def _recent_above(self, after: int) -> list[pa.Table]:
        """What was committed with positions above one, oldest first; of many commits only the last are looked at."""
        found: list[pa.Table] = []
        for each in reversed(self._recent):
            if each["position"][-1].as_py() <= after:
                break
            found.append(each)
        return found[::-1]

    def forget(self, subscriptions: list[int]) -> None:
        """Let go of what is known of ended subscriptions; their rows go with retention."""
        with self.news:
            for each in subscriptions:
                self._newest.pop(each, None)
                self._counts.pop(each, None)

    def remove_older(self, channel: int, before_us: int) -> None:
        """Remove a channel's results from before a moment."""
        self.store.delete(f"channel = {channel} AND executed_us < {before_us}")

    def remove_channel(self, channel: int) -> None:
        """Remove all results of a channel."""
        self.store.delete(f"channel = {channel}")


def _channel_mark(channel: int) -> str:
    return f"channel-{channel}"


def _in_order(found: pa.Table) -> tuple[pa.Table, np.ndarray[tuple[int], np.dtype[np.int32]]]:
    """Results by record, channel and subscription, and what tells several of one subscription and record apart.

    That is 0 for the first row, 1 for the next and so on, in the order of their texts: the same whenever it is asked.
    """
    import numpy as np

    found = found.combine_chunks()
    count = found.num_rows
    columns = [found[name].to_numpy().astype(np.int64, copy=False) for name in _ORDER]
    key = _one_key(columns)
    order = np.lexsort(columns[::-1]) if key is None else np.argsort(key, kind="stable")
    columns = [column[order] for column in columns]
    if not np.array_equal(order, np.arange(count)):
        found = found.take(order)
    same = np.ones(count, dtype=bool)
    same[0] = False
    for column in columns:
        same[1:] &= column[1:] == column[:-1]
    if not same.any():
        return found, np.zeros(count, dtype=np.int32)
    index = np.arange(count)
    starts = np.maximum.accumulate(np.where(same, 0, index))
    found = found.sort_by([(name, "ascending") for name in (*_ORDER, "payload")])
    return found, (index - starts).astype(np.int32)


def _one_key(columns: list[np.ndarray[tuple[int], np.dtype[np.int64]]]) -> np.ndarray[Any, np.dtype[np.int64]] | None:
    """Columns as one number per row that sorts in the same way, if they fit: that is sorted several times faster."""
    key: np.ndarray[Any, np.dtype[np.int64]] = columns[0] - columns[0].min()
    room = int(key.max()) + 1
    for column in columns[1:]:
        low, high = int(column.min()), int(column.max())
        room *= high - low + 1
        if room >= 1 << 62:
            return None
        key = key * (high - low + 1) + (column - low)
    return key
