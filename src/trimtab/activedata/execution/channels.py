"""A channel that runs: its compiled query, its subscriptions, how far it is, and what it has done."""

from __future__ import annotations

from typing import Final

import msgspec

from trimtab.activedata.execution.batch_sizes import BatchSize
from trimtab.activedata.execution.channel_queries import ChannelQuery
from trimtab.activedata.execution.waits import Waits
from trimtab.activedata.execution.whole_queries import WholeQuery, WholeState
from trimtab.activedata.spark.views import SubscriptionTable
from trimtab.activedata.storage.catalog_entries import ChannelEntry

SLOW_S: Final = 1.0
"""Executions that take longer delay those that they run together with."""

SLOW_PLANNED_S: Final = 5.0
"""The same for executions that were planned, which the next ones may not have to be."""

SLOW_IN_A_ROW_COUNT: Final = 2
"""So many slow executions in a row, and a channel runs apart; as many quick ones, and it runs with the others."""


class ChannelMeters(msgspec.Struct):
    """What a channel has done since the process started."""

    executions_count: int = 0
    results_count: int = 0
    last_latency_s: float | None = None
    last_execution_s: float | None = None
    skipped_s: float = 0.0
    skipped_count: int = 0
    put_aside_count: int = 0
    suspended_count: int = 0
    last_path: str | None = None
    """How its last execution ran: `kept plan`, `planned` or `tasks`."""
    error: str | None = None


class ChannelOptions(msgspec.Struct, frozen=True):
    """How a channel was defined beyond its body: whether it runs all of it, pushes its results, or waits for rows."""

    repetitive: bool = False
    push: bool = False
    wait_s: float | None = None
    wait_for: str = ""


class RunningChannel:
    """A channel with its compiled query, its subscriptions and its schedule."""

    def __init__(
        self,
        entry: ChannelEntry,
        query: ChannelQuery | WholeQuery,
        table: SubscriptionTable,
        now_s: float,
        *,
        options: ChannelOptions | None = None,
        state: WholeState | None = None,
    ) -> None:
        self.entry = entry
        self.query = query
        self.options = options or ChannelOptions()
        self.state = state or WholeState()
        """How far a channel is that runs its whole body."""
        self.subscriptions = table
        self.waits: Waits | None = None
        """Records that wait for a row of another dataset, if the channel lets them."""
        self.position = entry.position
        self.meters = ChannelMeters()
        self.size = BatchSize()
        self.due_s = now_s + (entry.period_s or 0.0)
        self.retry_after_s = 0.0
        self.failures_count = 0
        self.busy = False
        self.has_tasks = False
        """Whether its execution lets tasks write the results."""
        self.is_apart = False
        """Whether it runs by itself, so that it delays no other channel."""
        self.is_scattered = isinstance(query, WholeQuery) or query.groups
        """Whether its query spreads the results of one subscription over tasks in no order."""
        self.slow_count = 0
        self.strikes: dict[int, int] = {}
        """By subscription: records in a row that failed with it alone."""

    @property
    def whole(self) -> WholeQuery | None:
        """The query of a channel that runs its whole body."""
        return self.query if isinstance(self.query, WholeQuery) else None

    @property
    def record_query(self) -> ChannelQuery:
        """The query of a channel that sees new records."""
        assert isinstance(self.query, ChannelQuery)
        return self.query

    def payload_sql(self, columns: tuple[str, ...] | None = None) -> str:
        """The expression that makes a notification's fields one JSON text."""
        fields = ", ".join(f"q.`{name}`" for name in columns or self.entry.columns)
        return f"to_json(struct({fields}), map('ignoreNullFields', 'false'))"

    def took(self, seconds: float, *, alone: bool, planned: bool) -> None:
        """Take note of how long an execution took: slow channels run apart, those that were slow alone stay there."""
        if planned and SLOW_S < seconds <= SLOW_PLANNED_S:
            return  # the next one has its plan
        if seconds > SLOW_S:
            self.slow_count = max(0, self.slow_count) + 1
            if self.slow_count >= SLOW_IN_A_ROW_COUNT:
                self.is_apart = True
        elif alone or not self.is_apart:
            self.slow_count = min(0, self.slow_count) - 1
            if self.slow_count <= -SLOW_IN_A_ROW_COUNT:
                self.is_apart = False
