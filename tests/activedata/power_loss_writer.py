"""Writes active data without Spark, and says of each thing that was acknowledged a line, until it is killed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.activedata.definitions.fields import Field
from trimtab.activedata.definitions.statements import HttpSource
from trimtab.activedata.feeds.feeds import Feeds
from trimtab.activedata.feeds.overlay_feed import OverlayFeed, OverlayPublication
from trimtab.activedata.overlay import Overlay
from trimtab.activedata.storage.stored_data import StoredData

FIELDS = (Field("id", "STRING"), Field("n", "BIGINT"))
COMPACT_EVERY_COUNT = 25


def say(**acknowledged: Any) -> None:
    sys.stdout.write(json.dumps(acknowledged) + "\n")
    sys.stdout.flush()


def lines(first: int, count: int) -> bytes:
    """Records, and after them something that is none."""
    records = [msgspec.json.encode({"id": f"r{number}", "n": number}) for number in range(first, first + count)]
    return b"\n".join([*records, b'{"id": "bad%d"}' % first])


class Writer:
    def __init__(self, root: Path, seed: int) -> None:
        self._draw = Random(seed)
        self._stored = stored = StoredData(root / "data")
        self._feeds = Feeds(stored.catalog, stored.datasets, stored.dead_letters, lambda: None, Overlay())
        self._number = 0
        stored.open_dataset(stored.catalog.add_dataset("Reports", FIELDS, ("id",), True))
        stored.open_dataset(stored.catalog.add_dataset("Users", FIELDS, ("id",), False))
        stored.open_dataset(stored.catalog.add_dataset("Things", FIELDS, ("id",), True))
        for feed, dataset in (("reports", "Reports"), ("users", "Users"), ("net", "Users")):
            stored.catalog.add_feed(feed, dataset, HttpSource())
            self._feeds.switch(stored.catalog.feed(feed), True)
        self._broker = stored.catalog.add_broker("B1", "test").id
        users, net = stored.datasets["users"], stored.catalog.feed("net")
        self._net = OverlayFeed(net, users, stored.catalog, stored.dead_letters, lambda: None)
        say(defined=3)

    def work(self, first_results_count: int) -> None:
        for self._number in range(1, first_results_count + 1):
            self._result()
        while True:
            self._number += 1
            works = [self._feed, self._feed, self._replace, self._change, self._publish, self._subscribe, self._result]
            self._draw.choice(works)()
            if self._number % COMPACT_EVERY_COUNT == 0:
                datasets = self._stored.datasets
                self._draw.choice([datasets["things"], datasets["users"]]).fold()
                self._draw.choice(
                    [datasets["reports"].store, datasets["users"].store, self._stored.results.store]
                ).compact()

    def _feed(self) -> None:
        first = 10 * self._number
        count = self._draw.randrange(1, 9)
        feed = self._stored.catalog.feed("reports")
        answer = self._feeds.take_lines(feed, lines(first, count), "http", 0)
        assert (answer.accepted, answer.rejected) == (count, 1)
        say(fed=list(range(first, first + count)))

    def _replace(self) -> None:
        feed = self._stored.catalog.feed("users")
        self._feeds.take_lines(feed, msgspec.json.encode({"id": "u", "n": self._number}), "http", 0)
        say(replaced=self._number)

    def _change(self) -> None:
        things = self._stored.datasets["things"]
        things.put([("t", self._number), (f"t{self._number}", 0)], as_new=self._draw.random() < 0.5)
        rows = things.store.read()
        things.delete_rows(rows.filter(pc.not_equal(rows["id"], "t")))
        say(changed=self._number)

    def _publish(self) -> None:
        values: dict[str, object] = {"id": "p", "n": self._number}
        self._net.take([OverlayPublication("P", "1", self._number, values)], str(self._number))
        say(published=self._number)

    def _subscribe(self) -> None:
        (made,), _ = self._stored.catalog.subscribe(1, self._broker, [{"n": self._number}], 0)
        say(subscribed=made.id)

    def _result(self) -> None:
        row = {"channel": [1], "subscription": [7], "record": [self._number], "payload": ["{}"]}
        self._stored.results.commit(pa.table(row), {1: self._number})
        say(result=self._number)


if __name__ == "__main__":
    Writer(Path(sys.argv[1]), int(sys.argv[2])).work(int(sys.argv[3]))
