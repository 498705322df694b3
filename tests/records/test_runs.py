"""Records of a run as figures need them."""

from __future__ import annotations

from pathlib import Path

import msgspec

from trimtab.protocol.records import DeliveryRecord, LoadRecord
from trimtab.records.files import RecordFiles
from trimtab.records.runs import read_run

SINCE_1970_S = 1_794_835_505.25


def load(broker: str, time_s: float) -> LoadRecord:
    values = {
        field.name: 1 if field.type is int else 1.0
        for field in msgspec.structs.fields(LoadRecord)
        if field.name not in ("time_s", "broker")
    }
    return msgspec.convert({**values, "time_s": time_s, "broker": broker}, LoadRecord, strict=False)


def written(folder: Path, began_s: float) -> Path:
    with RecordFiles(folder, "B0", run="net") as files:
        for second in range(3):
            files.record(load("B1", began_s + second))
            files.record(load("B2", began_s + second + 0.125))  # each broker keeps records at its own moments
        files.record(DeliveryRecord(began_s + 2.5, "alice", "B1", "bob", 1, 0.5, 2, 1))
    return folder


def test_records_of_a_network_begin_at_zero_and_at_common_moments(tmp_path: Path) -> None:
    records = read_run(written(tmp_path, SINCE_1970_S))
    assert list(records.everyone) == [0.0, 1.0, 2.0]
    assert [len(rows) for rows in records.everyone.values()] == [2, 2, 2]
    assert records.delays == [(2.5, 0.5)]


def test_records_of_a_simulation_keep_their_times(tmp_path: Path) -> None:
    records = read_run(written(tmp_path, 30.0))
    assert list(records.everyone) == [30.0, 30.125, 31.0, 31.125, 32.0, 32.125]
    assert records.delays == [(32.5, 0.5)]
