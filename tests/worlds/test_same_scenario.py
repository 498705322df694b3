"""The same scenario file gives the same deliveries in the simulated world and over TCP."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from typer.testing import CliRunner

from trimtab.cli.main import app
from trimtab.operations.live_scenario import run_live
from trimtab.protocol.effects import Deliver
from trimtab.simulation.scenarios.messages import MovePart, Scenario
from trimtab.simulation.scenarios.run import MessagesSummary, ScenarioRun
from trimtab.simulation.scenarios.scenario import parse_scenario, read_scenario

Deliveries = dict[str, list[tuple[str, int]]]

SAME = (
    "scenario",
    "kind",
    "seed",
    "policy",
    "brokers",
    "clients",
    "publications",
    "deliveries",
    "lost",
    "duplicated",
    "reordered",
    "moves",
)

THREE_BROKERS = """
duration_s = 5.0

[[broker]]
name = "left"

[[broker]]
name = "middle"

[[broker]]
name = "right"

[[link]]
between = ["left", "middle"]

[[link]]
between = ["right", "middle"]

[[publisher]]
name = "quotes"
broker = "left"
at_s = 0.5
advertise = "[class,eq,'STOCK'],[symbol,isPresent,''],[volume,isPresent,0]"

[[publisher]]
name = "news"
broker = "right"
at_s = 0.5
advertise = "[class,eq,'NEWS'],[symbol,isPresent,'']"

[[subscriber]]
name = "everything"
broker = "middle"
at_s = 1.0
filters = ["class = 'STOCK'", "class = 'NEWS'"]

[[subscriber]]
name = "yahoo"
broker = "right"
at_s = 1.5
filters = ["symbol = 'YHOO'"]

[[publish]]
publisher = "quotes"
at_s = 2.5
publications = [
    "[class,'STOCK'],[symbol,'YHOO'],[volume,5]",
    "[class,'STOCK'],[symbol,'IBM'],[volume,9]",
    "[class,'STOCK'],[symbol,'YHOO'],[volume,1]",
]

[[subscriber]]
name = "large"
broker = "left"
at_s = 3.0
filters = ["class = 'STOCK' AND volume > 4"]

[[publish]]
publisher = "news"
at_s = 3.5
publications = ["[class,'NEWS'],[symbol,'YHOO']", "[class,'NEWS'],[symbol,'IBM']"]

[[publish]]
publisher = "quotes"
at_s = 4.0
publications = ["[class,'STOCK'],[symbol,'IBM'],[volume,7]", "[class,'STOCK'],[symbol,'YHOO'],[volume,2]"]
"""


def simulated(scenario: Scenario) -> tuple[Deliveries, MessagesSummary]:
    run = ScenarioRun(scenario)
    found, run.world.on_delivery = noted(scenario)
    summary = run.run()
    assert summary.violations == []
    return found, summary


def over_tcp(scenario: Scenario) -> tuple[Deliveries, MessagesSummary]:
    found, note = noted(scenario)
    summary = run_live(scenario, 1, note)
    assert summary.violations == []
    return found, summary


def noted(scenario: Scenario) -> tuple[Deliveries, Callable[[str, Deliver, float], None]]:
    found: Deliveries = {part.name: [] for part in scenario.subscriber}

    def note(client: str, deliver: Deliver, at_s: float) -> None:
        found.setdefault(client, []).append((deliver.publisher, deliver.sequence))

    return found, note


@pytest.mark.parametrize(
    "scenario",
    [read_scenario("figure-2-2", {"duration_s": "5"}), parse_scenario(THREE_BROKERS)],
    ids=["figure-2-2", "three-brokers"],
)
def test_both_worlds_deliver_the_same_and_sum_it_up_alike(scenario: Scenario) -> None:
    expected, summary = simulated(scenario)
    found, live = over_tcp(scenario)
    in_publisher_order = {name: sorted(deliveries) for name, deliveries in expected.items()}
    assert {name: sorted(deliveries) for name, deliveries in found.items()} == in_publisher_order
    for deliveries in found.values():
        for publisher in {publisher for publisher, _ in deliveries}:
            numbers = [sequence for name, sequence in deliveries if name == publisher]
            assert numbers == sorted(set(numbers))
    assert (summary.world, live.world, live.trace_hash) == ("sim", "tcp", "")
    assert [getattr(live, key) for key in SAME] == [getattr(summary, key) for key in SAME]


def test_figure_2_2_delivers_what_the_thesis_says() -> None:
    assert simulated(read_scenario("figure-2-2"))[0] == {"sub1": [("P", 2), ("P", 3)], "sub2": [("P", 3)]}


def test_stock_traffic_and_moves_run_on_processes() -> None:
    scenario = read_scenario(
        "stock-small", {"duration_s": "6", "subscribers.0.count": "20", "subscribers.0.join_s": "[1, 2]"}
    )
    scenario = msgspec.structs.replace(scenario, move=[MovePart(at_s=4.0, subscriber="S1", broker="B2")])
    _, live = over_tcp(scenario)
    assert (live.lost, live.duplicated, live.reordered, live.violations) == (0, 0, 0, [])
    assert (live.moves, live.brokers) == (1, 5)
    assert live.publications


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("link-cut", "[fault] happens in the simulator only"),
        ("ews-burst", "[crisis] happens in the simulator only"),
        ("relocation-random", "of the kind relocation; on processes run those of the kind messages"),
        ("padres-local-pie", "a study runs in the simulator only"),
    ],
)
def test_what_needs_the_simulator_is_refused(name: str, reason: str) -> None:
    result = CliRunner().invoke(app, ["sim", "run", name, "--world", "tcp"])
    assert result.exit_code == 2
    assert reason in result.output
