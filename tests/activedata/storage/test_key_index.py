"""The keys of a dataset: what was added is found, newest first, in memory, in runs and in merged runs."""

from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from trimtab.activedata.storage import key_index
from trimtab.activedata.storage.digests import fingerprints
from trimtab.activedata.storage.key_index import GONE, Entries, KeyIndex


def entries(pairs: dict[tuple[int, int], int]) -> Entries:
    return Entries(
        np.array([key for key, _ in pairs], dtype=np.uint64),
        np.array([more for _, more in pairs], dtype=np.uint32),
        np.array(list(pairs.values()), dtype=np.uint32),
    )


def found(index: KeyIndex, pairs: list[tuple[int, int]]) -> list[int]:
    asked = entries(dict.fromkeys(pairs, 0))
    return [int(each) for each in index.find(asked.keys, asked.more)]


@pytest.mark.parametrize("seed", range(5))
def test_an_index_knows_what_a_dictionary_knows(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_index, "MEMORY_COUNT", 40)
    draw = Random(seed)
    index, known = KeyIndex(tmp_path), {}
    keys = [(draw.choice([7, draw.getrandbits(64)]), draw.getrandbits(32)) for _ in range(600)]
    for number in range(200):
        batch = {draw.choice(keys): draw.choice([GONE, 1, 2, 3]) for _ in range(draw.choice([1, 5, 60]))}
        index.add(entries(batch), number, 0)
        known.update(batch)
        if draw.random() < 0.2:
            index.merge()
        if draw.random() < 0.05:
            index.flush(number, 0)
            index = KeyIndex(tmp_path)
    assert found(index, keys) == [known.get(key, GONE) for key in dict.fromkeys(keys)]
    while index.merge():
        pass
    assert found(index, keys) == [known.get(key, GONE) for key in dict.fromkeys(keys)]
    assert len(index.runs) <= 4


def test_a_run_that_is_cut_off_is_not_believed(tmp_path: Path) -> None:
    index = KeyIndex(tmp_path)
    index.add(entries({(5, 5): 1}), 1, 0)
    index.flush(1, 0)
    run = index.runs[0].path
    run.write_bytes(run.read_bytes()[:-3])
    assert KeyIndex(tmp_path).covered == (0, 0)


def test_runs_of_records_that_are_gone_are_dropped(tmp_path: Path) -> None:
    index = KeyIndex(tmp_path)
    for number in range(1, 4):
        index.add(entries({(number, 0): 1}), number, 0)
        index.flush(number, 0)
    index.drop_up_to(2)
    assert found(index, [(1, 0), (2, 0), (3, 0)]) == [GONE, GONE, 1]
    assert len(list(tmp_path.glob("*.run"))) == 1


def test_a_fingerprint_depends_on_values_and_not_on_their_layout() -> None:
    texts = ["", "a", "ab" * 20, None, "abcdefgh", "abcdefgh\0", "x" * 17, "é"]
    table = pa.table(
        {
            "t": pa.array(texts),
            "n": pa.array([1, None, 0, -1, 5, 6, 7, 8], pa.int32()),
            "d": pa.array([0.0, -0.0, None, 1.5, 2.0, 3.0, 4.0, 5.0]),
            "l": pa.array([[], None, ["a", None], [None, "a"], ["a"], ["b"], ["a", "b"], ["b", "a"]]),
            "s": pa.array([{"x": n, "y": [n]} for n in range(8)]),
        }
    )
    whole = fingerprints(table, table.column_names, 7)
    assert len(set(whole.tolist())) == 8
    for start in range(8):
        part = table.slice(start, 3)
        assert fingerprints(part, table.column_names, 7).tolist() == whole[start : start + 3].tolist()
    parts = pa.concat_tables([table.slice(0, 3), table.slice(3)])
    assert fingerprints(parts, table.column_names, 7).tolist() == whole.tolist()
    for name in ("t", "l", "s"):
        assert len(set(fingerprints(table, [name], 7).tolist())) == 8
    assert fingerprints(table, ["t"], 8).tolist() != fingerprints(table, ["t"], 7).tolist()
