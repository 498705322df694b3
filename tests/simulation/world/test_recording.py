"""The records of a simulated run agree with its counters and change nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from trimtab.cli.main import app
from trimtab.protocol.records import AnyRecord, DeliveryRecord, LoadRecord, MoveRecord
from trimtab.records.files import RecordFiles, read_records
from trimtab.simulation.scenarios.messages import Scenario
from trimtab.simulation.scenarios.run import MessagesSummary, ScenarioRun
from trimtab.simulation.scenarios.scenario import parse_scenario, read_scenario

MOVING = """
duration_s = 30.0
record_every_s = 5.0

[[broker]]
name = "B1"
cpu_mhz = 100

[[broker]]
name = "B2"
bandwidth_mbps = 1

[[link]]
between = ["B1", "B2"]

[[publishers]]
count = 3
broker = "B1"
rate_per_min = 60

[[subscribers]]
count = 20
broker = "B1"

[[subscriber]]
name = "alice"
broker = "B1"
at_s = 1.0
filters = ["class = 'STOCK'", "volume > 0"]

[[move]]
at_s = 10.0
subscriber = "alice"
broker = "B2"

[[move]]
at_s = 20.0
subscriber = "alice"
broker = "B2"
"""


class Kept:
    """Keeps records in memory."""

    def __init__(self) -> None:
        self.records: list[AnyRecord] = []

    def record(self, record: AnyRecord) -> None:
        self.records.append(record)

    def deliveries(self) -> list[DeliveryRecord]:
        return [each for each in self.records if isinstance(each, DeliveryRecord)]

    def load(self, broker: str) -> list[LoadRecord]:
        return [each for each in self.records if isinstance(each, LoadRecord) and each.broker == broker]

    def moves(self) -> list[MoveRecord]:
        return [each for each in self.records if isinstance(each, MoveRecord)]


def recorded(scenario: Scenario) -> tuple[MessagesSummary, ScenarioRun, Kept]:
    kept = Kept()
    run = ScenarioRun(scenario, recorder=kept)
    return run.run(), run, kept


def test_recorded_deliveries_agree_with_the_summary() -> None:
    summary, _, kept = recorded(parse_scenario(MOVING))
    deliveries = kept.deliveries()
    assert sum(each.subscriptions_count for each in deliveries) == (summary.deliveries or 0) > 0
    assert sum(each.delay_s for each in deliveries) / len(deliveries) == pytest.approx(summary.details.delay_mean_s)
    before = {each.broker for each in deliveries if each.client == "alice" and each.time_s < 10}
    after = {each.broker for each in deliveries if each.client == "alice" and each.time_s > 11}
    assert (before, after) == ({"B1"}, {"B2"})


def test_recorded_counts_add_up_to_the_brokers_counters() -> None:
    _, run, kept = recorded(parse_scenario(MOVING))
    for name, node in run.world.brokers.items():
        records, counters = kept.load(name), node.broker.counters
        for count in counters.__struct_fields__:
            assert sum(getattr(each, count) for each in records) == getattr(counters, count), count
        assert [each.time_s for each in records[:-1]] == [5.0, 10.0, 15.0, 20.0, 25.0, 30.0]
        assert records[-1].subscriptions_count == len(node.broker.tables.subscriptions)


def test_recorded_load_is_what_the_capacities_give() -> None:
    _, run, kept = recorded(parse_scenario(MOVING))
    at_work = kept.load("B1")[3]
    subscriptions_count = len(run.world.brokers["B1"].broker.tables.subscriptions)
    assert abs(at_work.input_rate_per_s - 3.0) < 0.5
    assert abs(at_work.matching_delay_s - 0.0165 * subscriptions_count / 100) < 0.0005
    assert abs(at_work.input_utilization_ratio - at_work.input_rate_per_s * at_work.matching_delay_s) < 1e-9
    sent = kept.load("B2")[4]
    assert abs(sent.output_rate_bytes_per_s - 3.0 * 320) < 200
    assert abs(sent.output_utilization_ratio - sent.output_rate_bytes_per_s / 125_000) < 1e-9


def test_moves_are_recorded_with_their_begin_end_and_outcome() -> None:
    summary, _, kept = recorded(parse_scenario(MOVING))
    first, second = kept.moves()
    assert (first.client, first.from_broker, first.to_broker, first.outcome) == ("alice", "B1", "B2", "moved")
    assert first.begin_s == 10.0 < first.end_s < 11.0
    assert (second.outcome, second.begin_s, second.end_s) == ("stayed", 20.0, 20.0)
    assert "already there" in second.reason
    assert summary.moves == 1


def test_recording_changes_nothing_that_happens() -> None:
    scenario = read_scenario("stock-small", {"duration_s": "20"})
    assert recorded(scenario)[0] == ScenarioRun(scenario).run()


def test_sim_run_writes_the_tables_and_replaces_those_of_a_former_run(tmp_path: Path) -> None:
    arguments = ["sim", "run", "stock-small", "--set", "duration_s=20", "--out", str(tmp_path)]
    for seed in ("3", "4"):
        result = CliRunner().invoke(app, [*arguments, "--seed", seed, "--json"])
        assert result.exit_code == 0, result.stderr
    deliveries = read_records(tmp_path, "deliveries")
    assert set(deliveries["run"].to_pylist()) == {"stock-small-4"}
    assert f'"deliveries": {sum(deliveries["subscriptions_count"].to_pylist())}' in result.stdout
    assert set(read_records(tmp_path, "load")["time_s"].to_pylist()) >= {10.0, 20.0}
    assert (tmp_path / "summary.json").exists()
    assert CliRunner().invoke(app, [*arguments, "--deliveries-one-in", "0"]).exit_code == 0
    assert read_records(tmp_path, "deliveries").num_rows == 0


def test_both_worlds_write_the_same_columns(tmp_path: Path) -> None:
    with RecordFiles(tmp_path, "sim", run="moving") as files:
        ScenarioRun(parse_scenario(MOVING), recorder=files).run()
    for table, kind in (("load", LoadRecord), ("deliveries", DeliveryRecord), ("moves", MoveRecord)):
        assert read_records(tmp_path, table).column_names == ["run", *kind.__struct_fields__]
