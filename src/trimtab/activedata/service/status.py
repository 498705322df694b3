"""What an active-data process does, for people and programs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from trimtab.activedata.definitions.statements import DirectorySource, HttpSource, JdbcSource, OverlaySource, Source

if TYPE_CHECKING:
    from trimtab.activedata.active import ActiveData
    from trimtab.activedata.storage.catalog_entries import BrokerEntry, FeedEntry


class DatasetStatus(msgspec.Struct, frozen=True):
    """A dataset and how many records it has."""

    name: str
    active: bool
    records_count: int


class FeedStatus(msgspec.Struct, frozen=True):
    """A feed, whether it runs, and what became of its records."""

    name: str
    dataset: str
    source: str
    running: bool
    restarts_count: int
    """How often the feed's thread failed and was started again since the process started."""
    accepted_count: int
    repeated_count: int
    rejected_count: int
    error: str | None


class ChannelStatus(msgspec.Struct, frozen=True):
    """A channel, how far it is behind, and what it did since the process started."""

    name: str
    period_s: float | None
    subscriptions_count: int
    behind_count: int
    executions_count: int
    results_count: int
    last_latency_s: float | None
    last_execution_s: float | None
    skipped_s: float
    skipped_count: int
    put_aside_count: int
    suspended_count: int
    """Subscriptions that get no results because the channel fails with them."""
    runs_apart: bool
    """Whether it runs by itself because it is slow, failed, or has many records waiting."""
    last_path: str | None
    """How its last execution ran: with a kept plan, planned anew, or written by Spark's tasks."""
    error: str | None


class BrokerStatus(msgspec.Struct, frozen=True):
    """A broker, its subscriptions, and for how long it has asked for nothing."""

    name: str
    address: str
    subscriptions_count: int
    silent_s: float | None
    published_count: int | None = None
    """Results that were published, posted or written for the broker since the process started."""
    error: str | None = None


class Status(msgspec.Struct, frozen=True):
    """Everything at once."""

    directory: str
    spark: str
    spark_ui: str | None
    """Where Spark's own pages are, if they are on."""
    position: int
    datasets: list[DatasetStatus]
    feeds: list[FeedStatus]
    channels: list[ChannelStatus]
    brokers: list[BrokerStatus]


def status(active: ActiveData) -> Status:
    """What the process does at this moment."""
    return Status(
        directory=str(active.directory),
        spark=active.views.master,
        spark_ui=active.views.ui_url,
        position=active.results_store.last_position,
        datasets=[
            DatasetStatus(each.entry.name, each.entry.active, each.store.rows_count())
            for each in list(active.datasets.values())
        ],
        feeds=[
            FeedStatus(
                each.name,
                each.dataset,
                source_text(each.source),
                each.running,
                _restarts_count(active, each.id),
                each.accepted_count,
                each.repeated_count,
                each.rejected_count,
                _feed_error(active, each),
            )
            for each in active.catalog.feeds()
        ],
        channels=[_channel(active, name) for name in list(active.engine.channels)],
        brokers=[_broker(active, each) for each in active.catalog.brokers()],
    )


def _restarts_count(active: ActiveData, feed_id: int) -> int:
    thread = active.feeds.thread_of(feed_id)
    return 0 if thread is None else thread.restarts_count


def _feed_error(active: ActiveData, feed: FeedEntry) -> str | None:
    """What keeps a feed from getting on, also where the catalog could not be told."""
    thread = active.feeds.thread_of(feed.id)
    if thread is not None and not thread.is_alive:
        return "its thread is gone"
    return feed.error if thread is None else (feed.error or thread.error)


def _broker(active: ActiveData, entry: BrokerEntry) -> BrokerStatus:
    publishing = active.publishing.of(entry.id)
    return BrokerStatus(
        entry.name,
        entry.address,
        len(active.catalog.subscriptions(broker_id=entry.id)),
        None if entry.seen_s is None else round(time.time() - entry.seen_s, 1),
        active.sinks.sent_count(entry.id) if publishing is None else publishing.published_count,
        active.sinks.error(entry.id) if publishing is None else publishing.error,
    )


def _channel(active: ActiveData, name: str) -> ChannelStatus:
    channel = active.engine.channels[name]
    meters = channel.meters
    return ChannelStatus(
        channel.entry.name,
        channel.entry.period_s,
        channel.subscriptions.count,
        0 if channel.options.repetitive else active.engine.waiting_count(channel),
        meters.executions_count,
        meters.results_count,
        meters.last_latency_s,
        meters.last_execution_s,
        meters.skipped_s,
        meters.skipped_count,
        meters.put_aside_count,
        active.catalog.suspended_count(channel.entry.id),
        channel.is_apart,
        meters.last_path,
        meters.error,
    )


def source_text(source: Source) -> str:
    """A source as its feed's definition names it."""
    match source:
        case DirectorySource(path=path, format=file_format):
            return f"DIRECTORY '{path}'{f' FORMAT {file_format}' if file_format else ''}"
        case JdbcSource(url=url, table=table, by=by):
            return f"JDBC '{url.partition('?')[0]}' TABLE '{table}'{f' BY {by}' if by else ''}"
        case HttpSource():
            return "HTTP"
        case OverlaySource(filter=wanted, broker=broker):
            return f"OVERLAY '{wanted}' AT '{broker}'"
