"""Publications that match a filter at a broker, as rows.

The broker keeps what a query has not committed and sends it again after a restart, in the same order. So an offset is
what the session keeps, and how many publications came before it; the batch between two offsets is read again by going
on at the first and counting.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pyspark.sql.datasource import DataSourceReader, InputPartition, SimpleDataSourceStreamReader

from trimtab.activedata.errors import ActiveDataError
from trimtab.activedata.source.options import needed, number
from trimtab.activedata.source.overlay_session import OverlaySession
from trimtab.activedata.source.rows import Columns, row_of
from trimtab.language import Filter, LanguageError

if TYPE_CHECKING:
    from trimtab.network.client.subscription import Delivery

POLL_S: Final = 0.1
AGAIN_WITHIN_S: Final = 30.0
"""The broker sends again what was not committed; if that takes longer, it has forgotten it."""


class OverlayOptions(msgspec.Struct, frozen=True):
    """What is read from where: `seconds` is for how long a batch read listens."""

    broker: str
    filter: str
    name: str
    listen_s: float

    @classmethod
    def of(cls, options: Mapping[str, str]) -> OverlayOptions:
        """From the options of a query."""
        found = cls(
            needed(options, "broker", "127.0.0.1:7001"),
            needed(options, "filter", "class = 'STOCK'"),
            options.get("name", "spark"),
            number(options, "seconds", 5.0),
        )
        try:
            _ = found.filters
        except LanguageError as error:
            raise ActiveDataError(f"the option 'filter': {error}") from None
        return found

    @property
    def filters(self) -> list[Filter]:
        """The filters of the text."""
        return list(Filter.parse_all(self.filter))


def _row(columns: Columns, delivery: Delivery) -> tuple[object, ...]:
    own = {"publisher": delivery.publisher, "session": delivery.session, "sequence": delivery.sequence}
    return row_of(columns, own, dict(delivery.publication), "attributes")


class OverlayReader(DataSourceReader):
    """What is published while it listens."""

    def __init__(self, options: OverlayOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        """The rows."""
        session = OverlaySession(self._options.broker, self._options.filters, self._options.name, None)
        try:
            end_s = time.monotonic() + self._options.listen_s
            while (left_s := end_s - time.monotonic()) > 0:
                deliveries, kept = session.take(min(POLL_S, left_s))
                yield from (_row(self._columns, each) for each in deliveries)
                session.stored(kept)
        finally:
            session.close(leaves=True)


class OverlayStreamReader(SimpleDataSourceStreamReader):
    """What is published from the first start of a query on; nothing is lost or doubled over its restarts."""

    def __init__(self, options: OverlayOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns
        self._session: OverlaySession | None = None
        self._at: str | None = None
        """The offset that the session stands at."""

    def __getstate__(self) -> dict[str, Any]:
        """Tasks that read a batch again connect by themselves."""
        return {**self.__dict__, "_session": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        """A new subscriber, which has taken nothing."""
        return {"kept": self._connected(None).kept, "count": 0}

    def read(self, start: dict[str, Any]) -> tuple[Iterator[tuple[object, ...]], dict[str, Any]]:
        """The next rows, and the offset behind them."""
        deliveries, kept = self._taken(start["kept"])
        if not deliveries:
            return iter([]), start
        self._at = kept
        rows = [_row(self._columns, each) for each in deliveries]
        return iter(rows), {"kept": kept, "count": start["count"] + len(rows)}

    def readBetweenOffsets(  # noqa: N802 (Spark's name)
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> Iterator[tuple[object, ...]]:
        """The rows of a batch that is done again: the broker sends them again."""
        count = end["count"] - start["count"]
        session = self._opened(start["kept"])
        try:
            end_s = time.monotonic() + AGAIN_WITHIN_S
            while count:
                deliveries, _ = session.take(POLL_S)
                for each in deliveries[:count]:
                    yield _row(self._columns, each)
                count -= min(count, len(deliveries))
                if count and time.monotonic() > end_s:
                    raise ActiveDataError(f"{count} publications of a batch that is done again did not come again")
        finally:
            session.close()

    def commit(self, end: dict[str, Any]) -> None:
        """The batch is done: the broker may forget it."""
        if self._session is not None:
            self._session.stored(end["kept"])

    def _taken(self, kept: str) -> tuple[list[Delivery], str]:
        """What came after an offset; a session that stands elsewhere, or that a task has taken over, begins anew there.

        When Spark asks for what comes after an offset, everything up to it is committed.
        """
        from trimtab.network.client.client import ClientError

        if self._session is not None and self._at != kept:
            self._disconnect()
        end_s = time.monotonic() + AGAIN_WITHIN_S
        while True:
            try:
                return self._connected(kept).take(POLL_S)
            except ClientError as error:
                self._disconnect()
                if time.monotonic() > end_s:
                    raise ActiveDataError(f"broker {self._options.broker}: {error}") from None
                time.sleep(POLL_S)

    def _connected(self, kept: str | None) -> OverlaySession:
        if self._session is None:
            self._session = self._opened(kept)
            self._at = self._session.kept
        return self._session

    def _disconnect(self) -> None:
        if self._session is not None:
            self._session.close()
        self._session = None

    def _opened(self, kept: str | None) -> OverlaySession:
        from trimtab.network.client.client import ClientError, ForgottenError

        try:
            return OverlaySession(self._options.broker, self._options.filters, self._options.name, kept)
        except ForgottenError as error:
            raise ActiveDataError(
                f"{error}: what was published since the last batch may be missing; begin with a new checkpoint"
            ) from None
        except (ClientError, OSError) as error:
            raise ActiveDataError(f"broker {self._options.broker}: {error}") from None
