"""The commands `trimtab sessions` and `trimtab story`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from trimtab import Client, Network
from trimtab.cli.main import app
from trimtab.network import loops
from trimtab.protocol.records import DeliveryRecord, MoveRecord, RelocationRecord, SessionRecord
from trimtab.records.files import RecordFiles, read_records
from trimtab.records.story import read_client_story
from trimtab.simulation.scenarios.run import ScenarioRun
from trimtab.simulation.scenarios.scenario import read_scenario


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The records of some minutes in which the weakest broker is relieved."""
    folder = tmp_path_factory.mktemp("records")
    few = {"duration_s": "200", "subscribers.0.count": "400", "subscribers.0.join_s": "[10, 100]"}
    scenario = read_scenario("padres-local", few)
    with RecordFiles(folder, "sim", run="few-1", deliveries_one_in=2) as files:
        ScenarioRun(scenario, 1, files).run()
    return folder


def test_sessions_are_told_with_reason_partner_moves_and_indices(records: Path) -> None:
    result = run("sessions", "--records", str(records))
    assert result.exit_code == 0
    told = json.loads(run("sessions", "--records", str(records), "--json").stdout)
    moving = [each for each in told if each["moved_count"]]
    assert moving
    first = moving[0]
    assert f"{first['session']}, " in result.stdout
    assert f"{first['initiator']} gives {first['index']} load to {first['acceptor']}." in result.stdout
    assert f"Moved {first['moved_count']:,} of" in result.stdout
    assert first["offload"][0] in result.stdout
    before = first["initiator_indices"]["before"]["input_utilization_ratio"]
    estimated = first["initiator_indices"]["estimated"]["input_utilization_ratio"]
    assert f"{before:.3f}, est. {estimated:.3f}, obs. " in result.stdout
    assert {each["broker"] for each in first["looked_at"]} == {"B2", "B3", "B4"}
    assert {each.count("agreed") for each in result.stdout.split("\n") if f"{first['acceptor']}, OK" in each} >= {1}


def test_one_session_is_told_with_every_report_card(records: Path) -> None:
    told = json.loads(run("sessions", "--records", str(records), "--json").stdout)
    wanted = next(each for each in told if each["moved_count"])
    result = run("sessions", "--records", str(records), "--session", wanted["session"])
    assert result.exit_code == 0
    assert all(card["filters"] in result.stdout for card in wanted["candidates"])
    assert all(client in result.stdout for client in wanted["offload"])


def test_a_client_that_moved_has_a_story_with_the_reason_of_its_session(records: Path) -> None:
    move = next(row for row in read_records(records, "moves").to_pylist() if row["outcome"] == "moved")
    result = run("story", move["client"], "--records", str(records))
    assert result.exit_code == 0
    assert f"{move['client']} (few-1) joined at B1 and moved" in result.stdout
    assert f"it moved from {move['from_broker']} to {move['to_broker']}" in result.stdout
    assert f"Cause: session {move['cause']}, in which" in result.stdout
    assert "The session's reason: B1 " in result.stdout
    assert "was estimated at" in result.stdout
    assert "one in 2 is recorded" in result.stdout
    told = json.loads(run("story", move["client"], "--records", str(records), "--json").stdout)
    assert told["moves"][0]["session"]["session"] == move["cause"]
    assert move["client"] in told["moves"][0]["load"]["clients"]
    assert [stay["broker"] for stay in told["stays"]][:2] == [move["from_broker"], move["to_broker"]]


def test_a_client_that_only_received_has_a_story_too(records: Path) -> None:
    moved = set(read_records(records, "moves")["client"].to_pylist())
    client = next(name for name in read_records(records, "deliveries")["client"].to_pylist() if name not in moved)
    result = run("story", client, "--records", str(records))
    assert result.exit_code == 0
    assert f"{client} (few-1) joined at B1 and moved never." in result.stdout


def test_deliveries_count_for_the_broker_where_the_client_was(tmp_path: Path) -> None:
    with RecordFiles(tmp_path, "sim", run="made-up") as files:
        files.record(MoveRecord(10.0, 11.0, "S1", "B1", "B2", "B1/1/1", "moved", ""))
        files.record(MoveRecord(20.0, 20.0, "S1", "B2", "B3", "B2/1/1", "stayed", "there is no such broker"))
        for sequence, (time_s, delay_s) in enumerate([(5.0, 2.0), (12.0, 0.5), (13.0, 1.5)], 1):
            files.record(DeliveryRecord(time_s, "S1", "B1", "P1", sequence, delay_s, 2, 1))
    result = run("story", "S1", "--records", str(tmp_path))
    assert result.exit_code == 0
    assert "At B1 until 11.0 s: 1 delivery, 2,000.0 ms" in result.stdout
    assert "At B2: 2 deliveries, 1,000.0 ms" in result.stdout
    assert "was to move from B2 to B3 but stayed: there is no such broker." in result.stdout
    assert "B1/1/1, of which no session is recorded" in result.stdout


def test_a_publisher_that_was_relocated_has_a_story_with_the_reason(tmp_path: Path) -> None:
    decided = RelocationRecord(
        begin_s=9.0,
        end_s=9.5,
        broker="B1",
        publisher="P1",
        algorithm="grape",
        evidence="B1/grape/7",
        traced_count=100,
        candidates_count=5,
        to_broker="B6",
        gain_ratio=0.4,
        reason="B6 saves 40% of the message rate",
    )
    with RecordFiles(tmp_path, "sim", run="made-up") as files:
        files.record(decided)
        files.record(MoveRecord(10.0, 10.2, "P1", "B1", "B6", "B1/grape/7", "moved", "", 0.15))
        files.record(MoveRecord(20.0, 20.1, "P1", "B6", "B1", "by hand", "stayed", "B1 cannot be reached"))
    result = run("story", "P1", "--records", str(tmp_path))
    assert result.exit_code == 0
    assert "P1 (made-up) joined at B1 and moved once." in result.stdout
    assert "it moved from B1 to B6, in 200 ms." in result.stdout
    assert "Its publications waited 150 ms for it." in result.stdout
    assert "Cause: B1/grape/7, for which grape traced 100 publications and looked at 5 brokers." in result.stdout
    assert "The reason: B6 saves 40% of the message rate." in result.stdout
    told = json.loads(run("story", "P1", "--records", str(tmp_path), "--json").stdout)
    assert [move["relocation"] is None for move in told["moves"]] == [False, True]


def test_mistakes_are_told_with_exit_code_2(records: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    empty = tmp_path / "empty"
    empty.mkdir()
    known = read_records(records, "moves")["client"].to_pylist()[0]
    for arguments, text in (
        (("sessions", "--records", str(tmp_path / "nothing")), "there is no such folder"),
        (("sessions", "--records", str(file)), "not a folder"),
        (("sessions", "--records", str(empty)), "no records here"),
        (("sessions", "--records", str(records), "--session", "B9/1/1"), "no session B9/1/1; there are"),
        (("story", "S1", "--records", str(tmp_path / "nothing")), "there is no such folder"),
        (("story", f"{known}x", "--records", str(records)), f"Did you mean {known}"),
        (("story", "S1"), "--records"),
    ):
        result = run(*arguments)
        assert result.exit_code == 2, arguments
        assert text in result.stderr


def test_unreadable_records_are_told(records: Path, tmp_path: Path) -> None:
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / "sim-00001.parquet").write_bytes(b"not parquet")
    result = run("sessions", "--records", str(tmp_path))
    assert (result.exit_code, "cannot be read" in result.stderr) == (2, True)
    broken = tmp_path / "broken"
    row = read_records(records, "sessions").to_pylist()[0]
    del row["run"]
    with RecordFiles(broken, "sim") as files:
        files.record(SessionRecord(**{**row, "offload_json": '{"moves": [1]}'}))
    result = run("sessions", "--records", str(broken))
    assert (result.exit_code, "its candidates or plan cannot be read" in result.stderr) == (2, True)


def test_without_sessions_that_is_said(tmp_path: Path) -> None:
    with RecordFiles(tmp_path, "sim") as files:
        files.record(MoveRecord(10.0, 11.0, "S1", "B1", "B2", "scenario", "moved", ""))
    result = run("sessions", "--records", str(tmp_path))
    assert (result.exit_code, result.stdout) == (0, f"{tmp_path}: no balancing sessions are recorded.\n")
    assert run("sessions", "--records", str(tmp_path), "--json").stdout == "[]\n"


def session(records: Path, **changes: object) -> SessionRecord:
    row = {**read_records(records, "sessions").to_pylist()[0], "index": "input", **changes}
    del row["run"]
    return SessionRecord(**row)


def test_a_plan_for_many_brokers_is_told_by_the_brokers_of_the_move(records: Path, tmp_path: Path) -> None:
    plan = {"session": "B0/1/1", "initiator": "B1", "candidates_json": "[]", "subscribers_moved_count": 1}
    with RecordFiles(tmp_path, "sim") as files:
        for acceptor, client in (("B2", "S1"), ("B3", "S2")):
            chosen = json.dumps({"moves": [{"client": client}]})
            files.record(session(records, **plan, acceptor=acceptor, offload_json=chosen))
            files.record(MoveRecord(10.0, 11.0, client, "B1", acceptor, "B0/1/1", "moved", ""))
    result = run("story", "S1", "--records", str(tmp_path))
    assert "session B0/1/1, in which B1 gave input load to B2 and 1 subscriber moved." in result.stdout
    told = run("sessions", "--records", str(tmp_path)).stdout
    assert "Moved 1 of 1 chosen subscriber: S2." in told


def test_sessions_between_clusters_and_vain_attempts_are_told_as_such(records: Path, tmp_path: Path) -> None:
    none = {"offload_json": '{"moves": []}', "candidates_json": "[]", "subscribers_moved_count": 0}
    with RecordFiles(tmp_path, "sim") as files:
        files.record(session(records, **none, session="B10/1/g1", kind="global", initiator="B10", acceptor="B20"))
        files.record(session(records, **none, session="B1/asked", acceptor="", end_s=77.0))
    result = run("sessions", "--records", str(tmp_path))
    assert result.stdout.startswith("0 sessions between brokers, 0 of which moved 0 subscribers; 1 session between")
    assert "1 time nobody agreed." in result.stdout
    assert "clusters B10 and B20 balance their input load." in result.stdout
    assert "At 77.0 s B1 asked in vain for help with its input load." in result.stdout


def test_the_moves_of_a_client_that_records_nothing_are_told(tmp_path: Path) -> None:
    """A program of somebody's own moves: its new broker records that."""
    plan = Network.of(["B1", "B2"], [("B1", "B2")]).plan

    async def work(network: Network) -> None:
        async with await Client.connect(network.address("B1"), "alice") as client:
            await client.subscribe("class = 'STOCK'")
            await client.move("B2", network.address("B2"))

    with Network(plan, records=tmp_path) as network:
        loops.run(work(network))
    (move,) = read_client_story(tmp_path, "alice").moves
    assert (move.from_broker, move.to_broker, move.outcome) == ("B1", "B2", "moved")
    shown = CliRunner().invoke(app, ["story", "alice", "--records", str(tmp_path)]).stdout
    assert re.search(r"^At \d\d:\d\d:\d\d\.\d it moved from B1 to B2\.$", shown, re.MULTILINE), shown
