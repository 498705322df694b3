"""Results come in a fixed order, and several for one subscription and record are told apart."""

import random
from pathlib import Path

import pyarrow as pa

from trimtab.activedata.storage.catalog import Catalog
from trimtab.activedata.storage.results import Results


def found(rows: list[tuple[int, int, int, str]]) -> pa.Table:
    names = ("channel", "subscription", "record", "payload")
    return pa.table({name: [row[index] for row in rows] for index, name in enumerate(names)})


def test_results_are_the_same_in_whatever_order_they_were_found(tmp_path: Path) -> None:
    draw = random.Random(1)
    rows = [(draw.randrange(3), draw.randrange(4), draw.randrange(5), str(draw.randrange(100))) for _ in range(200)]
    stored = []
    for name in ("one", "other"):
        results = Results(tmp_path / name, Catalog(tmp_path / f"{name}.sqlite"))
        draw.shuffle(rows)
        assert results.commit(found(rows), {0: 5}) == 200
        stored.append(
            [[(each.position, each.id, bytes(each.payload)) for each in results.fetch(n, 0, 1_000)] for n in range(4)]
        )
        assert results.channel_position(0) == 5
    assert stored[0] == stored[1]
    ids = [each[1] for subscription in stored[0] for each in subscription]
    assert len(ids) == len(set(ids)) == 200


def test_results_that_are_no_longer_in_memory_are_read_from_disk(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "catalog.sqlite")
    results = Results(tmp_path / "results", catalog)
    for record in range(3):
        results.commit(found([(1, 7, record, "{}"), (1, 8, record, "{}")]), {1: record})
    again = Results(tmp_path / "results", catalog)
    again.commit(found([(1, 7, 3, "{}")]), {1: 3})
    assert [each.record for each in again.fetch(7, 0, 10)] == [0, 1, 2, 3]
    assert [each.record for each in again.fetch(7, 0, 2)] == [0, 1]
    assert [each.record for each in again.fetch(7, 6, 10)] == [3]
    assert again.newest([7, 8, 9], 4) == {7: 7, 8: 6}


def test_results_are_counted_by_subscription(tmp_path: Path) -> None:
    results = Results(tmp_path / "results", Catalog(tmp_path / "catalog.sqlite"))
    results.commit(found([(1, 7, 1, "{}"), (1, 8, 1, '{"a":"ö"}'), (1, 7, 2, "{}")]), {1: 2})
    results.commit(found([(1, 7, 3, "{}")]), {1: 3})
    counts = [results.count_of(each) for each in (7, 8, 9)]
    assert [(each.results_count, each.results_bytes) for each in counts] == [(3, 6), (1, 10), (0, 0)]
    results.forget([7])
    assert results.count_of(7).results_count == 0
