"""Results of a channel from an active-data service. Their positions are the offsets: any part can be read again."""

from __future__ import annotations

import http.client
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

import msgspec
from pyspark.sql.datasource import DataSourceReader, InputPartition, SimpleDataSourceStreamReader

from trimtab.activedata.errors import ActiveDataError
from trimtab.activedata.source.options import needed, number
from trimtab.activedata.source.rows import Columns, row_of

FETCH_COUNT: Final = 5_000
ANSWER_WITHIN_S: Final = 60.0
TOKEN_VARIABLE: Final = "TRIMTAB_TOKEN"


class ResultOptions(msgspec.Struct, frozen=True):
    """Which results: of a subscription by its number, or of a channel with arguments, which is subscribed to."""

    host: str
    port: int
    subscription: int
    after: int
    token: str | None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> ResultOptions:
        """From the options of a query; subscribes if there is no subscription yet."""
        url = needed(options, "service", "http://127.0.0.1:7500")
        parts = urlsplit(url if "//" in url else f"//{url}")
        if parts.scheme not in ("", "http") or not parts.hostname or not parts.port:
            raise ActiveDataError(f"the option 'service' must be http://HOST:PORT, and is {url!r}")
        file = options.get("tokenfile")
        token = Path(file).read_text(encoding="utf-8").strip() if file else os.environ.get(TOKEN_VARIABLE)
        found = cls(parts.hostname, parts.port, 0, int(number(options, "after", 0)), token)
        if "subscription" in options:
            return msgspec.structs.replace(found, subscription=int(number(options, "subscription", 0)))
        channel = needed(options, "channel", "EmergencyOfType (or the option 'subscription')")
        broker = options.get("name", "spark")
        try:
            arguments = msgspec.json.decode(options.get("arguments", "{}"), type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise ActiveDataError(f"the option 'arguments' must be a JSON object: {error}") from None
        found.ask("POST", "/statements", {"text": f"CREATE BROKER {broker} AT 'spark'"})
        body = {"channel": channel, "arguments": arguments}
        said = found.ask("POST", f"/brokers/{quote(broker, safe='')}/subscriptions", body)
        return msgspec.structs.replace(found, subscription=int(said["id"]))

    def ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """Ask the service."""
        headers = {"Content-Type": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        connection = http.client.HTTPConnection(self.host, self.port, timeout=ANSWER_WITHIN_S)
        try:
            connection.request(method, path, None if body is None else msgspec.json.encode(body), headers)
            response = connection.getresponse()
            said: dict[str, Any] = msgspec.json.decode(response.read(), type=dict[str, Any])
        except (OSError, http.client.HTTPException) as error:
            raise ActiveDataError(f"no active data at {self.host}:{self.port}: {error}") from None
        finally:
            connection.close()
        if response.status != http.client.OK:
            raise ActiveDataError(f"the service at {self.host}:{self.port}: {said.get('error', response.reason)}")
        return said

    def fetch(self, after: int, limit: int) -> list[dict[str, Any]]:
        """The next results above a position."""
        found: list[dict[str, Any]] = self.ask("GET", f"/results/{self.subscription}?after={after}&limit={limit}")[
            "results"
        ]
        return found


def _row(columns: Columns, said: Mapping[str, Any]) -> tuple[object, ...]:
    own = {"position": said["position"], "id": said["id"], "executed_s": said["executed_s"]}
    return row_of(columns, own, said["values"], "fields")


class ResultsReader(DataSourceReader):
    """All results that there are above the option `after`."""

    def __init__(self, options: ResultOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        """The rows."""
        after = self._options.after
        while found := self._options.fetch(after, FETCH_COUNT):
            for each in found:
                yield _row(self._columns, each)
            after = int(found[-1]["position"])


class ResultsStreamReader(SimpleDataSourceStreamReader):
    """Results as they come; the offset is the position of the last one."""

    def __init__(self, options: ResultOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 (Spark's name)
        """Where a query without a checkpoint begins."""
        return {"position": self._options.after}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[object, ...]], dict[str, int]]:
        """The next rows, and the offset behind them."""
        found = self._options.fetch(start["position"], FETCH_COUNT)
        rows = [_row(self._columns, each) for each in found]
        return iter(rows), {"position": int(found[-1]["position"])} if found else start

    def readBetweenOffsets(  # noqa: N802 (Spark's name)
        self, start: dict[str, int], end: dict[str, int]
    ) -> Iterator[tuple[object, ...]]:
        """The rows of a batch that is done again."""
        after = start["position"]
        while after < end["position"]:
            found = [each for each in self._options.fetch(after, FETCH_COUNT) if each["position"] <= end["position"]]
            if not found:
                return
            for each in found:
                yield _row(self._columns, each)
            after = int(found[-1]["position"])

    def commit(self, end: dict[str, int]) -> None:
        """Nothing: the service keeps results for as long as the channel says."""
