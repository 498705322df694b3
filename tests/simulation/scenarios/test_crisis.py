"""Topics with latency requirements: allocation, a burst, one bundle that moves in time, and what the summary tells."""

from __future__ import annotations

from random import Random

import pytest

from trimtab.cli.simulation.crisis_lines import crisis_lines
from trimtab.simulation.scenarios.crisis_watch import CrisisSummary
from trimtab.simulation.scenarios.documents import ScenarioError
from trimtab.simulation.scenarios.run import MessagesSummary, ScenarioRun
from trimtab.simulation.scenarios.scenario import parse_scenario, read_scenario
from trimtab.simulation.scenarios.topics import BEARABLE_RATIO, burst_bytes_per_s, drawn_topics

SMALL = """
name = "small"
duration_s = 30.0
record_every_s = 0.5

[policy]
name = "delay"

[network]
latency_s = 0.05
window_frames_count = 5000
meter_window_s = 1.0
uplink = "fifo"

[crisis]
publishers_broker = "Bh"
allocated_broker = "Bh"
subscribers_broker = "b1"
subscribers_latency_s = 0.1
burst_s = 12.0
window_s = [12.0, 12.0]

[[broker]]
name = "Bh"
bandwidth_mbps = 20

[[broker]]
name = "b0"
cpu_mhz = 1500
bandwidth_mbps = 0.38

[[broker]]
name = "b1"
cpu_mhz = 1000
bandwidth_mbps = 0.38

[[link]]
between = ["Bh", "b0"]

[[link]]
between = ["Bh", "b1"]

[[topic]]
id = 1
publishers = 1
subscribers = 2
within_s = 60
message_bytes = 250
rate_per_s = 20

[[topic]]
id = 2
publishers = 1
subscribers = 3
within_s = 60
message_bytes = 250
rate_per_s = 20

[[topic]]
id = 3
publishers = 1
subscribers = 4
within_s = 1.5
message_bytes = 250
rate_per_s = 20
bursts = true
"""


def run_small(**overrides: str) -> tuple[MessagesSummary, CrisisSummary]:
    summary = ScenarioRun(parse_scenario(SMALL, "small.toml", overrides)).run()
    assert summary.details.crisis is not None
    assert summary.violations == []
    return summary, summary.details.crisis


@pytest.fixture(scope="module")
def small() -> tuple[MessagesSummary, CrisisSummary]:
    return run_small()


def test_subscribers_of_a_topic_are_allocated_together_and_where_there_is_room(
    small: tuple[MessagesSummary, CrisisSummary],
) -> None:
    _, crisis = small
    assert crisis.placement == {"Bh": [], "b0": [1, 3], "b1": [2]}
    assert crisis.moves_before_burst == 9


def test_after_the_burst_the_tolerant_bundle_moves_and_nothing_is_late(
    small: tuple[MessagesSummary, CrisisSummary],
) -> None:
    summary, crisis = small
    (move,) = crisis.moves
    assert (move.topics, move.clients, move.from_broker, move.to_broker) == ([1], 2, "b0", "b1")
    assert 12.0 < move.at_s < move.done_s < 18.0
    assert move.reason.startswith("overloaded in queue depth")
    assert (crisis.late_total, summary.details.late) == (0, 0)
    assert crisis.balanced_at_s is not None
    assert crisis.worst_topic == 3
    assert crisis.worst_topic_queue_empty_at_s is not None


def test_a_move_without_which_deliveries_would_be_late_is_not_called_unnecessary(
    small: tuple[MessagesSummary, CrisisSummary],
) -> None:
    _, crisis = small
    assert crisis.unnecessary_moves == []


def test_without_a_policy_deliveries_are_late_and_counted_by_topic() -> None:
    summary, crisis = run_small(policy="none")
    assert crisis.placement["b1"] == [1, 2, 3]
    assert crisis.late_deliveries.keys() == {"3"}
    assert crisis.late_total == summary.details.late > 100
    assert crisis.moves == []


def test_tolerant_subscribers_alone_are_not_balanced_needlessly() -> None:
    _, crisis = run_small(**{"topic.2.within_s": "60"})
    assert crisis.moves == []
    assert crisis.late_total == 0


def test_what_people_are_told(small: tuple[MessagesSummary, CrisisSummary]) -> None:
    lines = crisis_lines(small[1])
    assert lines[3].split()[:2] == ["3", "1.5"]
    assert "unnecessary moves: none" in lines
    assert any("2 clients of 1 from b0 to b1" in line for line in lines)


def test_the_tables_of_the_paper_are_the_default() -> None:
    scenario = read_scenario("ews-burst")
    bandwidths = {broker.name: broker.bandwidth_mbps for broker in scenario.broker}
    assert bandwidths == {"Bh": 20, "b0": 6.5, "b1": 8, "b2": 5, "b3": 8}
    eighth = next(topic for topic in scenario.topic if topic.id == 8)
    assert (eighth.publishers, eighth.subscribers, eighth.within_s, eighth.message_bytes) == (2, 7, 1.1, 400)
    assert sum(topic.publishers for topic in scenario.topic) == 40
    assert sum(topic.subscribers for topic in scenario.topic) == 56
    assert sum(topic.bursts for topic in scenario.topic) == 7


def test_the_papers_b1_is_overloaded_by_the_burst_and_cleared_in_28_seconds() -> None:
    topics = {topic.id: topic for topic in read_scenario("ews-burst").topic}
    mbps = {id: topic.output_bytes_per_s * 8e-6 * (2 if topic.bursts else 1) for id, topic in topics.items()}
    with_topic_1 = sum(mbps[id] for id in (1, 3, 8, 14))
    without = with_topic_1 - mbps[1]
    assert (round(with_topic_1, 2), round(without, 2)) == (8.56, 7.92)
    assert round((with_topic_1 - 8) * 4 / (8 - without), 6) == 28.0


@pytest.mark.parametrize("seed", range(5))
def test_drawn_topics_can_be_carried_and_come_from_the_seed(seed: int) -> None:
    topics = read_scenario("ews-burst").topic
    bandwidth_bytes_per_s = 27.5e6 / 8
    drawn = drawn_topics(topics, bandwidth_bytes_per_s, 2.0, Random(seed))
    assert drawn == drawn_topics(topics, bandwidth_bytes_per_s, 2.0, Random(seed))
    assert drawn != drawn_topics(topics, bandwidth_bytes_per_s, 2.0, Random(seed + 100))
    assert burst_bytes_per_s(drawn, 2.0) <= BEARABLE_RATIO * bandwidth_bytes_per_s
    assert all(1 <= topic.publishers <= 5 and 1 <= topic.subscribers <= 8 for topic in drawn)
    assert [topic.within_s for topic in drawn] == [topic.within_s for topic in topics]


def test_topics_without_a_place_to_join_are_refused() -> None:
    with pytest.raises(ScenarioError, match=r"\[crisis\] must say where"):
        parse_scenario('[[broker]]\nname="B"\n[[topic]]\nid=1\npublishers=1\nsubscribers=1\nmessage_bytes=9')


def test_the_papers_burst_is_balanced_with_next_to_nothing_late_though_messages_are_coarse() -> None:
    coarse = {"crisis.coarseness": "8", "crisis.checked_moves_max_count": "0", "duration_s": "48"}
    summary = ScenarioRun(read_scenario("ews-burst", coarse)).run()
    crisis = summary.details.crisis
    assert crisis is not None
    assert (summary.violations, crisis.moves_before_burst) == ([], 56)
    assert crisis.late_total < 0.01 * (summary.deliveries or 0)
    assert sorted(topic for topics in crisis.placement.values() for topic in topics) == list(range(1, 16))
