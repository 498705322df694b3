"""Rows that are published into the overlay, by one publisher for each partition.

In a stream, a publisher has the same name and session in every life of the query, and a row's number is made of its
batch and its place. So a batch that is done again, with its rows in the same partitions and order, is dropped by
whoever has had it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage

from trimtab.activedata.errors import ActiveDataError
from trimtab.activedata.source.options import needed
from trimtab.activedata.source.rows import attributes_of
from trimtab.language import Filter, LanguageError

if TYPE_CHECKING:
    from pyspark.sql import Row

ROWS_BITS: Final = 24
"""A partition of a batch has at most 16 million rows."""

_BATCH: Final = "streaming.sql.batchId"
_QUERY: Final = "sql.streaming.queryId"


class PublishOptions(msgspec.Struct, frozen=True):
    """Where rows are published, and by which advertisement they are announced."""

    broker: str
    advertisement: str
    name: str

    @classmethod
    def of(cls, options: Mapping[str, str]) -> PublishOptions:
        """From the options of a query."""
        found = cls(
            needed(options, "broker", "127.0.0.1:7001"),
            needed(options, "advertisement", "class = 'ALERT' AND x IS NOT NULL"),
            options.get("name", "spark"),
        )
        try:
            Filter.parse(found.advertisement)
        except LanguageError as error:
            raise ActiveDataError(f"the option 'advertisement': {error}") from None
        return found


class Published(WriterCommitMessage):
    """How many rows of a partition were published."""

    def __init__(self, count: int) -> None:
        self.count = count


class OverlayWriter(DataSourceWriter):
    """Publishes a table; done when the broker has accepted all of it."""

    def __init__(self, options: PublishOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        """Publish the rows of a partition."""
        from pyspark import TaskContext

        context = TaskContext.get()
        task = "" if context is None else f"{context.taskAttemptId()}-{context.attemptNumber()}"
        name = f"{self._options.name}-{task}"
        return Published(asyncio.run(_publish(self._options, name, task or "0", 1, iterator)))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing: what is published is published."""

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing: what is published cannot be taken back."""


class OverlayStreamWriter(DataSourceStreamWriter):
    """Publishes a stream."""

    def __init__(self, options: PublishOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        """Publish the rows of a partition of a batch."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        batch, query = context.getLocalProperty(_BATCH), context.getLocalProperty(_QUERY)
        if batch is None or query is None:
            raise ActiveDataError("Spark does not say which batch of which query is written")
        name = f"{self._options.name}-{query[:8]}-{context.partitionId()}"
        first = ((int(batch) + 1) << ROWS_BITS) + 1
        return Published(asyncio.run(_publish(self._options, name, query[:10], first, iterator)))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing: what is published is published."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing: the batch is done again, and subscribers drop what they have had."""


async def _publish(options: PublishOptions, name: str, session: str, first: int, rows: Iterator[Row]) -> int:
    from trimtab.network.client.client import Client, ClientError

    count = 0
    try:
        client = await Client.connect(options.broker, name, session=session)
        try:
            await client.advertise(Filter.parse(options.advertisement))
            for row in rows:
                await client.publish(attributes_of(row), first + count)
                count += 1
                if count >> ROWS_BITS:
                    raise ActiveDataError(f"more than {count:,} rows in one partition; use more partitions")
            await client.drain()
            if client.refused:
                raise ActiveDataError(f"the broker refuses a row: {client.refused[0].reason}")
        finally:
            await client.close()
    except (ClientError, LanguageError, OSError) as error:
        raise ActiveDataError(f"broker {options.broker}: {error}") from None
    return count
