"""The records of a run in the form in which figures are drawn from them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Final, TypeAlias

import msgspec

from trimtab.protocol.records import RecordsError
from trimtab.records.files import deliveries_one_in, read_records

Row: TypeAlias = dict[str, Any]

LONGEST_RUN_S: Final = 1e9
"""No simulation lasts that long."""


class RunRecords(msgspec.Struct, frozen=True):
    """What the figures of a run are drawn from."""

    run: str
    loads: dict[str, list[Row]]
    """Load records of each edge-broker, by time."""
    everyone: dict[float, list[Row]]
    """Load records of all brokers at each time."""
    clusters: dict[str, list[str]]
    """The edge-brokers of each cluster."""
    sessions: list[Row]
    delays: list[tuple[float, float]]
    """Times and delays of deliveries."""
    sampled_one_in: int


def read_run(folder: Path, began_s: float | None = None) -> RunRecords:
    """The records of a run; raises `RecordsError` if there are none to draw.

    Times are since the run began, which is the first record of a network if nothing else is said.
    """
    load = read_records(folder, "load").to_pylist()
    if not load:
        raise RecordsError(f"{folder}: no load is recorded here; `trimtab sim run NAME --out {folder}` does that")
    load.sort(key=lambda row: row["time_s"])
    began_s = beginning_s(load[0]["time_s"]) if began_s is None else began_s
    if began_s:
        load = [{**row, "time_s": float(round(row["time_s"] - began_s))} for row in load]
    load = _while_published(load)
    clusters = _clusters(load)
    edges = {name for names in clusters.values() for name in names}
    loads: dict[str, list[Row]] = {}
    everyone: dict[float, list[Row]] = {}
    for row in load:
        everyone.setdefault(row["time_s"], []).append(row)
        if row["broker"] in edges:
            loads.setdefault(row["broker"], []).append(row)
    deliveries = read_records(folder, "deliveries")
    return RunRecords(
        run=load[0]["run"],
        loads=dict(sorted(loads.items(), key=lambda item: broker_order(item[0]))),
        everyone=everyone,
        clusters=clusters,
        sessions=[
            {**row, "begin_s": row["begin_s"] - began_s, "end_s": row["end_s"] - began_s}
            for row in read_records(folder, "sessions").to_pylist()
        ],
        delays=[
            (time_s - began_s, delay_s)
            for time_s, delay_s in zip(deliveries["time_s"].to_pylist(), deliveries["delay_s"].to_pylist(), strict=True)
        ],
        sampled_one_in=deliveries_one_in(folder),
    )


def beginning_s(first_s: float) -> float:
    """What figures call 0: in a network, whose records have the seconds since 1970, the first record.

    Brokers of a network keep their records each at its own moments, so that their times are told in whole seconds.

    >>> beginning_s(30.0), beginning_s(1_794_835_505.25)
    (0.0, 1794835505.25)
    """
    return first_s if first_s > LONGEST_RUN_S else 0.0


def _while_published(load: Sequence[Row]) -> list[Row]:
    """The records but for those of a simulation's very end, when publishers have stopped."""
    counts: dict[float, int] = {}
    for row in load:
        counts[row["time_s"]] = counts.get(row["time_s"], 0) + row["publications_in_count"]
    *_, before_s, last_s = (0.0, *sorted(counts))
    has_ended = counts[last_s] < 0.8 * counts.get(before_s, 0)
    return [row for row in load if not has_ended or row["time_s"] < last_s]


def means_over(times: Sequence[float], values: Sequence[float], over_s: float) -> list[float]:
    """Of each time the mean of what came within so long before it.

    >>> means_over([1.0, 2.0, 3.0], [4.0, 0.0, 2.0], 2.0)
    [4.0, 2.0, 1.0]
    """
    means: list[float] = []
    first = 0
    for number, time_s in enumerate(times):
        while times[first] <= time_s - over_s:
            first += 1
        means.append(fmean(values[first : number + 1]))
    return means


def _clusters(load: Sequence[Row]) -> dict[str, list[str]]:
    """Edge-brokers by cluster-head, told from the names: Bn0 is the head of Bn1, Bn2, ...; without such names, every
    broker is on its own."""
    names = sorted({row["broker"] for row in load}, key=broker_order)
    heads = [name for name in names if name.endswith("0") and any(_is_edge_of(other, name) for other in names)]
    found = {head: [name for name in names if _is_edge_of(name, head)] for head in heads}
    return found or {"": names}


def _is_edge_of(name: str, head: str) -> bool:
    """Whether a name is that of an edge-broker of a cluster.

    >>> _is_edge_of("B12", "B10"), _is_edge_of("B20", "B10"), _is_edge_of("B3", "B0")
    (True, False, True)
    """
    return len(name) == len(head) and name[:-1] == head[:-1] and name[-1] in "123456789"


def broker_order(name: str) -> tuple[str, int, str]:
    """Names in the order that people expect.

    >>> sorted(["B10", "B2", "A"], key=broker_order)
    ['A', 'B2', 'B10']
    """
    letters = name.rstrip("0123456789")
    digits = name[len(letters) :]
    return letters, int(digits) if digits else -1, name
