"""The agents in a simulated network: tags, traces, walks, requests and answers as messages between brokers.

The network is that of the paper's Figure 1: a publisher at B1, whose subscribers are mostly at and behind B6.
"""

from __future__ import annotations

from random import Random

import pytest

from trimtab.broker.config import BrokerConfig
from trimtab.language import Filter
from trimtab.policies.relocation.agent import RelocationAgent
from trimtab.policies.relocation.config import Aim, RelocationConfig
from trimtab.protocol.records import AnyRecord, MoveRecord, RelocationRecord
from trimtab.simulation.world.capacity import SimulatedCapacity
from trimtab.simulation.world.recording import WorldRecords
from trimtab.simulation.world.world import World

LINKS = [("B1", "B2"), ("B2", "B3"), ("B1", "B4"), ("B1", "B5"), ("B5", "B6"), ("B6", "B7"), ("B6", "B8")]
CLIENTS = {"B1": 1, "B2": 4, "B3": 2, "B4": 3, "B5": 0, "B6": 4, "B7": 6, "B8": 5}
EVERYTHING = "[class,eq,'NEWS']"


class Kept:
    """All records of a run."""

    def __init__(self) -> None:
        self.records: list[AnyRecord] = []

    def record(self, record: AnyRecord) -> None:
        self.records.append(record)

    @property
    def decisions(self) -> list[RelocationRecord]:
        return [record for record in self.records if isinstance(record, RelocationRecord)]

    @property
    def moves(self) -> list[MoveRecord]:
        return [record for record in self.records if isinstance(record, MoveRecord)]


class Network:
    """Figure 1 with agents in all brokers."""

    def __init__(self, config: RelocationConfig, filters: dict[str, str] | None = None) -> None:
        self.kept = Kept()
        self.world = World(1)
        self.world.keep_records(WorldRecords(self.kept))
        self.agents = {name: RelocationAgent(config, Random(name)) for name in CLIENTS}
        for name, agent in self.agents.items():
            neighbours = tuple(next(iter({*link} - {name})) for link in LINKS if name in link)
            self.world.add_broker(
                BrokerConfig(name, neighbours=neighbours), SimulatedCapacity(cpu_mhz=1_000.0), [agent]
            )
        for first, second in LINKS:
            self.world.add_link(first, second)
        self.world.run(1.0)
        self.world.add_client("P", "B1")
        self.world.advertise("P", Filter.parse("[class,eq,'NEWS'],[number,isPresent,0]"))
        for broker, count in CLIENTS.items():
            for number in range(count):
                name = f"{broker}-{number}"
                self.world.add_client(name, broker)
                self.world.subscribe(name, Filter.parse((filters or {}).get(broker, EVERYTHING)))
        self.world.run(5.0)

    def publish(self, count: int, every_s: float = 0.1) -> None:
        for number in range(count):
            self.world.publish("P", {"class": "NEWS", "number": number})
            self.world.run(self.world.now_s + every_s)

    def told(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for agent in self.agents.values():
            for kind, count in agent.told_counts.items():
                counts[kind] = counts.get(kind, 0) + count
        return counts


def test_pop_walks_from_b1_over_b5_to_b6() -> None:
    network = Network(RelocationConfig(algorithm="pop", pop_threshold_count=20))
    network.publish(40)
    (decision, *_) = network.kept.decisions
    assert (decision.publisher, decision.broker, decision.to_broker) == ("P", "B1", "B6")
    assert decision.traced_count == 20
    assert decision.candidates_count == 3
    assert decision.gain_ratio == pytest.approx(0.4)


def test_pop_tells_one_result_for_each_traced_publication_and_broker() -> None:
    network = Network(RelocationConfig(algorithm="pop", pop_threshold_count=20))
    network.publish(40)
    assert network.told() == {"trace-result": 7 * 20, "relocation-request": 2, "relocation-answer": 2}


def test_grape_tells_one_request_and_one_answer_for_each_broker() -> None:
    network = Network(RelocationConfig(algorithm="grape", grape_threshold_count=20))
    network.publish(25, every_s=1.0)
    assert network.told() == {"trace-request": 7, "trace-answer": 7, "echo": 21, "echo-answer": 21}
    (decision,) = network.kept.decisions
    assert decision.traced_count == 20
    assert decision.candidates_count == 8


def test_at_equal_samples_grape_says_91_percent_less_than_pop() -> None:
    pop = Network(RelocationConfig(algorithm="pop", pop_window_count=200, pop_threshold_count=100))
    grape = Network(RelocationConfig(algorithm="grape"))
    for network in (pop, grape):
        network.publish(300, every_s=0.05)
    pop_count = sum(pop.told().values())
    grape_count = sum(count for kind, count in grape.told().items() if not kind.startswith("echo"))
    assert 100 <= sum(agent.traced_count for agent in pop.agents.values()) <= 101
    assert sum(agent.traced_count for agent in grape.agents.values()) == 100
    assert grape_count <= (1 - 0.91) * pop_count


def test_grape_for_delay_goes_where_most_deliveries_are() -> None:
    network = Network(RelocationConfig(grape_threshold_count=20, aim=Aim("delay", 100)))
    network.publish(25, every_s=1.0)
    (decision,) = network.kept.decisions
    assert decision.to_broker == "B6"
    assert "delay" in decision.reason


def test_grape_for_load_goes_where_all_of_the_traffic_is_wanted() -> None:
    """B3 alone wants everything, the others a tenth."""
    filters = {broker: EVERYTHING if broker == "B3" else "[class,eq,'NEWS'],[number,<,2]" for broker in CLIENTS}
    network = Network(RelocationConfig(grape_threshold_count=20, aim=Aim("load", 100)), filters)
    network.publish(25)
    (decision,) = network.kept.decisions
    assert decision.to_broker == "B3"


def test_a_publisher_may_have_an_aim_of_its_own() -> None:
    filters = {broker: EVERYTHING if broker == "B3" else "[class,eq,'NEWS'],[number,<,18]" for broker in CLIENTS}
    config = RelocationConfig(grape_threshold_count=20, publishers={"P": Aim("delay", 100)})
    network = Network(config, filters)
    network.publish(25, every_s=1.0)
    (decision,) = network.kept.decisions
    assert decision.to_broker == "B6"


def test_untraced_publications_carry_no_tag_and_traced_ones_lose_a_foreign_one() -> None:
    """A client's own tag is not believed."""
    network = Network(RelocationConfig(algorithm="pop", pop_window_count=1, pop_threshold_count=5))
    network.publish(30)
    assert sum(agent.traced_count for agent in network.agents.values()) == 1
    assert network.told() == {"trace-result": 7}


def test_the_same_evidence_is_used_once() -> None:
    network = Network(RelocationConfig(algorithm="grape", grape_threshold_count=10, rest_s=1.0))
    network.publish(200)
    evidence = [decision.evidence for decision in network.kept.decisions]
    assert len(evidence) > 2
    assert len(set(evidence)) == len(evidence)


def test_joint_placement_asks_the_path_for_room() -> None:
    network = Network(RelocationConfig(algorithm="grape-joint", grape_threshold_count=20, aim=Aim("delay", 100)))
    network.publish(25, every_s=1.0)
    network.world.run(network.world.now_s + 10)
    told = network.told()
    assert (told["room-request"], told["room-answer"]) == (2, 2)
    assert network.kept.decisions[0].to_broker == "B6"


def test_joint_placement_does_not_move_to_a_broker_without_room() -> None:
    """Matching takes 0.1 ms and publications come ten times a second: nobody is below a ten-thousandth,
    and B3 gets more than it wants if the publisher comes."""
    config = RelocationConfig(
        algorithm="grape-joint", grape_threshold_count=20, lower_overload_ratio=0.0001, room_margin_ratio=0.0
    )
    filters = {broker: f"[class,eq,'NEWS'],[number,<,{12 if broker == 'B3' else 2}]" for broker in CLIENTS}
    network = Network(config, filters)
    network.publish(25)
    network.world.run(network.world.now_s + 10)
    assert [decision.to_broker for decision in network.kept.decisions] == [""]
    assert "no broker that promises enough has room" in network.kept.decisions[0].reason


def test_a_broker_that_is_gone_ends_the_session_without_a_decision() -> None:
    network = Network(RelocationConfig(algorithm="grape", grape_threshold_count=20, answer_timeout_s=5.0))
    network.publish(15)
    network.world.brokers["B5"].pause(60.0)
    network.publish(10)
    network.world.run(network.world.now_s + 30)
    assert [decision.to_broker for decision in network.kept.decisions] == [""]
    assert "did not come in time" in network.kept.decisions[0].reason


def test_results_that_were_forgotten_for_others_do_not_end_tracing_for_good() -> None:
    """Brokers remember two traced publications: those of Q make B1 forget the last one of P before its results come."""
    network = Network(RelocationConfig(algorithm="pop", pop_threshold_count=3, traces_max_count=2, rest_s=0.1))
    network.world.add_client("Q", "B1")
    network.world.advertise("Q", Filter.parse("[class,eq,'NEWS'],[number,isPresent,0]"))
    network.world.run(network.world.now_s + 1.0)
    for publisher in ("P", "P", "P", "Q", "Q"):
        network.world.publish(publisher, {"class": "NEWS", "number": 1})
    network.world.run(network.world.now_s + 1.0)
    assert not network.kept.decisions
    network.publish(40)
    assert [decision.to_broker for decision in network.kept.decisions if decision.publisher == "P"]
