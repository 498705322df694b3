"""Feeds from directories: growing and rewritten files, CSV, Parquet and compressed files, each record once."""

import gzip
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trimtab.activedata.definitions.fields import Field
from trimtab.activedata.definitions.statements import DirectorySource
from trimtab.activedata.feeds.feeds import Feeds
from trimtab.activedata.overlay import Overlay
from trimtab.activedata.storage.stored_data import StoredData

FIELDS = (Field("id", "STRING"), Field("n", "INT", optional=True), Field("note", "STRING", optional=True))


class Store:
    """A store with one dataset that a feed fills from a directory, without Spark."""

    def __init__(self, root: Path) -> None:
        self.directory = root / "in"
        self.directory.mkdir(exist_ok=True)
        self._data = root / "data"
        self.stored = StoredData(self._data)
        if not self.stored.datasets:
            self.stored.open_dataset(self.stored.catalog.add_dataset("Things", FIELDS, ("id",), True))
            self.stored.catalog.add_feed("files", "Things", DirectorySource(str(self.directory)))
        self.feeds = Feeds(self.stored.catalog, self.stored.datasets, self.stored.dead_letters, lambda: None, Overlay())
        self.feeds.switch(self.stored.catalog.feed("files"), True)

    def ids(self) -> list[str]:
        dataset = self.stored.datasets["things"]
        return [str(row["id"]) for row in dataset.records(0, dataset.last_sequence).to_pylist()]

    def letters(self) -> list[tuple[str, int, str]]:
        rows = self.stored.dead_letters.store.read().to_pylist()
        return sorted((row["source"], row["place"], row["reason"]) for row in rows)

    def close(self) -> None:
        self.feeds.stop()
        self.stored.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path)
    yield store
    store.close()


def wait_until(holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def lines(*ids: str) -> str:
    return "".join(json.dumps({"id": each}) + "\n" for each in ids)


def test_a_last_line_without_an_end_is_taken_once_the_file_is_at_rest(store: Store) -> None:
    (store.directory / "a.jsonl").write_text(lines("a") + '{"id": "b"}')
    (store.directory / "b.jsonl").write_text('{"id": "half')
    wait_until(lambda: store.ids() == ["a", "b"])
    with (store.directory / "b.jsonl").open("a") as file:
        file.write('-done"}\n')
    wait_until(lambda: store.ids() == ["a", "b", "half-done"])
    assert store.letters() == []


def test_a_file_that_was_written_anew_is_read_again(store: Store) -> None:
    file = store.directory / "a.jsonl"
    file.write_text(lines("a", "b", "c") + "nonsense\n")
    wait_until(lambda: len(store.letters()) == 1)
    file.write_text("more nonsense\n" + lines("d"))  # shorter
    wait_until(lambda: store.ids() == ["a", "b", "c", "d"] and len(store.letters()) == 2)
    file.write_text(lines("d", "e", "f", "g", "h", "i", "j"))  # longer: only its content tells
    wait_until(lambda: store.ids() == [*"abcdefghij"])
    other = store.directory / ".new"
    other.write_text(lines("k", "e", "f", "g", "h", "i", "j"))
    other.replace(file)
    wait_until(lambda: store.ids() == [*"abcdefghijk"])
    assert [place for _, place, _ in store.letters()] == [0, len(lines("a", "b", "c"))]


def test_rows_of_csv_are_read_as_the_types_of_the_fields(store: Store) -> None:
    (store.directory / "a.csv").write_text('id,n,note\na,1,"x, ""y""\nz"\nb,,\nc,one,\nd,1\n')
    (store.directory / "b.csv.gz").write_bytes(gzip.compress(b"n,id\n7,e\n"))
    wait_until(lambda: store.ids() == ["a", "b", "e"])
    dataset = store.stored.datasets["things"]
    rows = [tuple(row.values())[:3] for row in dataset.records(0, 3).to_pylist()]
    assert rows == [("a", 1, 'x, "y"\nz'), ("b", None, None), ("e", 7, None)]
    assert [(source, reason) for source, _, reason in store.letters()] == [
        ("a.csv", "field 'n' must be a whole number of 32 bits, and is 'one'"),
        ("a.csv", "2 values under 3 columns"),
    ]


def test_parquet_and_compressed_lines_are_taken_once_over_a_restart(tmp_path: Path) -> None:
    store = Store(tmp_path)
    pq.write_table(pa.table({"id": ["p1", "p2"], "n": [1, None]}), store.directory / "a.parquet")
    (store.directory / "b.jsonl.gz").write_bytes(gzip.compress((lines("g1") + "nonsense\n" + lines("g2")).encode()))
    (store.directory / "c.parquet").write_text("no Parquet")
    wait_until(lambda: store.ids() == ["p1", "p2", "g1", "g2"])
    wait_until(lambda: "c.parquet cannot be read" in (store.stored.catalog.feed("files").error or ""))
    store.close()
    store = Store(tmp_path)
    (store.directory / "d.jsonl").write_text(lines("end"))
    wait_until(lambda: store.ids() == ["p1", "p2", "g1", "g2", "end"])
    feed = store.stored.catalog.feed("files")
    assert (feed.accepted_count, feed.repeated_count, feed.rejected_count) == (5, 0, 1)
    store.close()
