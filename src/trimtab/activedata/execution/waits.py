"""Records that wait for the row that they are to be enriched with: `WAIT UP TO 30 SECONDS FOR s`.

A record and a subscription that a channel's other conditions bring together, and for which the dataset `s` has no row,
wait. They are looked at again when that dataset changes. What finds its row gives its results then; what does not
within the time gives what a LEFT JOIN gives without it, or nothing.

The pairs that wait are in the catalog before the position of the channel passes their records. After a crash some may
have their results already, which the table of results tells.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from trimtab.activedata.definitions.bodies import Body, FromItem, parse_body
from trimtab.activedata.definitions.fields import Field
from trimtab.activedata.definitions.tokens import split_tokens
from trimtab.activedata.errors import StatementError
from trimtab.activedata.execution.channel_queries import ChannelQuery, Dataset, compile_body
from trimtab.activedata.storage.catalog import Catalog
from trimtab.activedata.storage.results import Results

if TYPE_CHECKING:
    import pyarrow as pa

WAITING_MAX_COUNT: Final = 10_000
"""Pairs of one channel that wait at the same time; of more, the newest do not wait."""

NOTE: Final = "CHANNEL WAITS"
FOUND_COLUMN: Final = "found"


class WaitQueries(msgspec.Struct, frozen=True):
    """What waiting needs to ask: what has its row, who would wait, and what is given without one."""

    dataset: str
    enriched: ChannelQuery
    wanting: ChannelQuery
    without: ChannelQuery | None


class _Waiting(msgspec.Struct, frozen=True):
    record: int
    subscription: int
    until_s: float


def compile_waits(text: str, parameters: tuple[Field, ...], datasets: Mapping[str, Dataset], alias: str) -> WaitQueries:
    """The queries for a body that waits for the relation with this alias."""
    body = parse_body(text)
    waited = next((each for each in body.items if each.alias.lower() == alias.lower()), None)
    if waited is None or waited.dataset is None:
        names = ", ".join(each.alias for each in body.items)
        raise StatementError(text, 0, f"the FROM has no dataset {alias!r} to wait for; there are {names}")
    enriched = msgspec.structs.replace(
        body, items=tuple(_inner(each) if each is waited else each for each in body.items)
    )
    query = compile_body(enriched, parameters, datasets)
    if query.driver.lower() == waited.dataset.lower():
        raise StatementError(text, waited.position, f"{alias!r} gives the new records, which wait for another dataset")
    return WaitQueries(
        dataset=waited.dataset.lower(),
        enriched=query,
        wanting=compile_body(_without(body, waited, datasets), parameters, datasets),
        without=compile_body(body, parameters, datasets) if waited.outer else None,
    )


def _inner(item: FromItem) -> FromItem:
    return msgspec.structs.replace(item, outer=False)


def _without(body: Body, waited: FromItem, datasets: Mapping[str, Dataset]) -> Body:
    """The body without a relation and the conditions that name it: it finds who would be enriched."""
    own = {field.name.lower() for field in datasets[(waited.dataset or "").lower()].fields}
    others = {
        field.name.lower()
        for item in body.items
        if item is not waited and item.dataset is not None
        for field in datasets[item.dataset.lower()].fields
    }

    def names(tokens: object) -> bool:
        listed = list(tokens)  # type: ignore[call-overload]
        for index, token in enumerate(listed):
            word = token.text.strip("`").lower()
            is_qualified = index > 0 and listed[index - 1].text == "."
            following = listed[index + 1].text if index + 1 < len(listed) else ""
            if word == waited.alias.lower() and following == "." and not is_qualified:
                return True
            if not is_qualified and following not in (".", "(") and word in own - others and token.kind != "parameter":
                return True
        return False

    for item in body.items:
        if item is not waited and any(names(each.tokens) for each in item.on):
            said = f"{item.alias!r} is joined through {waited.alias!r}, which is waited for"
            raise StatementError(body.text, item.position, said)
    (found,) = [tuple(split_tokens(f"1 AS {FOUND_COLUMN}")[:-1])]
    return msgspec.structs.replace(
        body,
        select=(found,),
        items=tuple(each for each in body.items if each is not waited),
        where=tuple(each for each in body.where if not names(each.tokens)),
        group_by=(),
        having=(),
    )


class Waits:
    """The pairs of one channel that wait, in memory and in the catalog."""

    def __init__(
        self, channel_id: int, queries: WaitQueries, wait_s: float, catalog: Catalog, results: Results
    ) -> None:
        self.queries = queries
        self.wait_s = wait_s
        self._channel_id = channel_id
        self._catalog = catalog
        self._pairs: dict[tuple[int, int], float] = {}
        self.version: object = None
        """Of the dataset that is waited for, when it was looked at last."""
        noted = catalog.note(NOTE, channel_id)
        if noted is not None:
            for each in msgspec.json.decode(noted, type=list[_Waiting]):
                self._pairs[each.record, each.subscription] = each.until_s
            self._drop_those_with_results(results)

    def _drop_those_with_results(self, results: Results) -> None:
        import pyarrow.compute as pc

        records = sorted({record for record, _ in self._pairs})
        where = (pc.field("channel") == self._channel_id) & pc.field("record").isin(records)
        table = results.store.read(columns=["record", "subscription"], where=where)
        for record, subscription in zip(*(table[name].to_pylist() for name in table.column_names), strict=True):
            self._pairs.pop((record, subscription), None)

    @property
    def count(self) -> int:
        """How many pairs wait."""
        return len(self._pairs)

    def next_s(self) -> float | None:
        """When the first of them has waited long enough, by the clock on the wall."""
        return min(self._pairs.values(), default=None)

    def is_due(self, version: object) -> bool:
        """Whether some may have found their row, or have waited long enough."""
        return bool(self._pairs) and (version != self.version or (self.next_s() or 0.0) <= time.time())

    def records(self) -> list[int]:
        """The numbers of the records that wait, in order."""
        return sorted({record for record, _ in self._pairs})

    def add(self, wanting: pa.Table, found: pa.Table, last_record: int) -> None:
        """Let those wait that were not found, before the channel's position passes their records.

        What an execution left that was not committed is forgotten: pairs of records that come again.
        """
        first = min(wanting["record"].to_pylist(), default=last_record + 1)
        self._pairs = {pair: until_s for pair, until_s in self._pairs.items() if pair[0] < first}
        until_s = time.time() + self.wait_s
        have = set(_pairs(found))
        for pair in sorted(set(_pairs(wanting)) - have):
            if len(self._pairs) < WAITING_MAX_COUNT:
                self._pairs[pair] = until_s
        self._keep()

    def among(self, rows: pa.Table, now_s: float, *, over: bool) -> pa.Table:
        """Of rows, those of pairs that wait, or only of those whose time is over."""
        import pyarrow as pa

        times = [self._pairs.get(pair) for pair in _pairs(rows)]
        return rows.filter(pa.array([at_s is not None and (at_s <= now_s or not over) for at_s in times], pa.bool_()))

    def settle(self, rows: pa.Table, now_s: float) -> None:
        """Forget those that have their results, and those whose time is over."""
        for pair in _pairs(rows):
            self._pairs.pop(pair, None)
        self._pairs = {pair: until_s for pair, until_s in self._pairs.items() if until_s > now_s}
        self._keep()

    def _keep(self) -> None:
        waiting = [_Waiting(*pair, until_s) for pair, until_s in self._pairs.items()]
        text = msgspec.json.encode(waiting).decode() if waiting else None
        if text is not None or self._catalog.note(NOTE, self._channel_id) is not None:
            self._catalog.set_note(NOTE, self._channel_id, text)


def _pairs(rows: pa.Table) -> list[tuple[int, int]]:
    return list(zip(rows["record"].to_pylist(), rows["subscription"].to_pylist(), strict=True))
