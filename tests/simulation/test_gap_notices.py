"""What may be lost is told to whom it concerns, with its numbers; where nothing can be lost nobody is told anything."""

from __future__ import annotations

import pytest

from trimtab.broker.config import Acknowledges, BrokerConfig, SlowPolicy
from trimtab.broker.replication.config import ReplicationConfig
from trimtab.language import Filter
from trimtab.protocol.effects import GapNotice
from trimtab.simulation.checkers.rest import check_rest
from trimtab.simulation.faults.faults import Cut
from trimtab.simulation.world.capacity import SimulatedCapacity
from trimtab.simulation.world.world import World

BROKERS = ("B1", "B2", "B3", "B4")
LINKS = [("B1", "B2"), ("B2", "B3"), ("B3", "B4")]
PUBLISHERS = {"near": "B4", "far": "B1", "silent": "B1", "middle": "B2"}


class Row:
    """Four brokers in a row, of which one sends slowly; publishers at three of them, a subscriber at the last."""

    def __init__(self, level: Acknowledges, slow: str = "B3") -> None:
        self.world = world = World(7)
        self.notices: list[GapNotice] = []
        self.advertised: dict[str, str] = {}
        for name in BROKERS:
            neighbours = tuple(end for link in LINKS if name in link for end in link if end != name)
            config = BrokerConfig(
                name,
                neighbours=neighbours,
                acknowledges=level,
                replication=ReplicationConfig(look_every_s=0.1, crash_after_s=30.0),
            )
            world.add_broker(config, SimulatedCapacity(bandwidth_mbps=0.1) if name == slow else SimulatedCapacity())
        for first, second in LINKS:
            world.add_link(first, second, 0.01)
        world.run(0.3)
        for name, broker in PUBLISHERS.items():
            world.add_client(name, broker)
            self.advertised[name] = world.advertise(name, Filter.parse(f"a > 1 AND p = '{name}'"))
        world.add_client("s", "B4")
        world.subscribe("s", Filter.parse("a > 5"))
        world.run(2.0)
        told = world.checker.told_gap

        def note(client: str, notice: GapNotice, now_s: float) -> None:
            self.notices.append(notice)
            told(client, notice, now_s)

        world.checker.told_gap = note  # type: ignore[method-assign]
        for _ in range(3):
            world.publish("silent", {"a": 6, "p": "silent"})
        world.run(3.0)
        for number in range(80):
            for name in ("near", "far", "middle"):
                world.at(3.0 + number * 0.01, world.publish, name, {"a": 6, "p": name})

    def kill(self, *brokers: str) -> None:
        """Let brokers die at once, and begin again a while later."""
        self.world.run(3.5)
        for name in brokers:
            self.world.failures.kill(name)
        self.world.run(4.0)
        for name in brokers:
            self.world.failures.restart(name)
        self.world.run(100.0)
        for host in self.world.brokers.values():
            host.broker.retire_agents()
        self.world.run(600.0)

    @property
    def named(self) -> dict[str, tuple[int | None, int | None]]:
        """What was told, by publisher."""
        return {each.publisher: (each.first, each.last) for each in self.notices if each.publisher}

    def violations(self) -> list[str]:
        check_rest(self.world, LINKS)
        return [f"{each.kind}: {each.text}" for each in self.world.checker.violations]

    def missing(self, publisher: str) -> set[int]:
        """The numbers of a publisher that the subscriber has not got."""
        return {*range(1, 81)} - self.got[publisher]

    def watch(self) -> None:
        self.got: dict[str, set[int]] = {}
        self.world.on_delivery = lambda client, deliver, now_s: self.got.setdefault(deliver.publisher, set()).add(
            deliver.sequence
        )


@pytest.mark.parametrize("killed", [("B3",), ("B2", "B3")])
def test_at_received_all_that_a_death_loses_is_told_and_of_others_nothing(killed: tuple[str, ...]) -> None:
    row = Row("received")
    row.watch()
    row.kill(*killed)
    assert row.violations() == []
    lost = {name: row.missing(name) for name in ("far", "middle")}
    assert all(lost.values())
    assert set(row.named) == {"far", "middle"}, "neither who is silent nor who publishes beyond the break"
    for name, numbers in lost.items():
        first, last = row.named[name]
        assert (first, last) == (min(numbers), max(numbers))


def test_what_is_lost_of_a_publisher_that_is_moving_to_the_subscribers_side_is_told() -> None:
    row = Row("received")
    row.watch()
    row.world.at(3.49, row.world.move, "far", "B4")
    row.kill("B3")
    assert row.violations() == []
    assert row.missing("far")
    first, last = row.named["far"]  # up to what was accepted before the move, as the new broker says at once
    assert first is not None and first == min(row.missing("far"))
    assert last is not None and last >= max(row.missing("far"))


def test_what_is_lost_of_a_publisher_that_announces_nothing_meanwhile_is_told() -> None:
    row = Row("received")
    world, announced = row.world, Filter.parse("a > 1")
    world.add_client("new", "B1")
    world.run(3.1)
    id = world.advertise("new", announced)

    def announce() -> None:
        world.advertise("new", announced)

    world.at(3.4, world.publish, "new", {"a": 6})
    world.at(3.45, world.unadvertise, "new", id)
    world.at(60.0, announce)
    row.kill("B3")
    assert row.violations() == []
    assert row.named["new"] == (1, 1)


def test_at_safe_the_death_of_one_broker_is_no_reason_to_tell_anything() -> None:
    row = Row("safe")
    row.kill("B3")
    assert row.violations() == []
    assert row.notices == []


def test_at_safe_what_two_adjacent_brokers_lose_is_told() -> None:
    row = Row("safe")
    row.watch()
    row.kill("B2", "B3")
    assert row.violations() == []
    assert row.missing("far")
    assert row.missing("far") <= {*range(row.named["far"][0] or 0, (row.named["far"][1] or 80) + 1)}
    assert not {"near", "silent"} & set(row.named)


def test_at_safe_a_client_whose_broker_and_guardian_have_died_is_told_for_itself() -> None:
    row = Row("safe")
    row.watch()
    row.kill("B3", "B4")
    assert row.violations() == []
    assert row.notices[0].reason == "B4 has forgotten this client, and with it what it had for it"
    for name in ("near", "far", "middle"):
        missing = row.missing(name)
        assert not missing or missing <= {*range(row.named[name][0] or 0, (row.named[name][1] or 80) + 1)}


def test_at_received_a_client_of_the_broker_that_has_died_is_told_what_that_had_for_it() -> None:
    row = Row("received", slow="B4")
    row.watch()
    row.kill("B4")
    assert row.violations() == []
    assert row.missing("near")
    assert row.named["near"] == (min(row.missing("near")), max(row.missing("near")))


def test_at_durable_nothing_is_told_although_all_die() -> None:
    row = Row("durable")
    row.kill(*BROKERS)
    assert row.violations() == []
    assert row.notices == []


@pytest.mark.parametrize("slow_policy", ["drop-oldest"])
def test_what_is_dropped_for_a_slow_client_is_told_exactly(slow_policy: SlowPolicy) -> None:
    world = World(1)
    told: list[GapNotice] = []
    world.add_broker(
        BrokerConfig("B1", slow_policy=slow_policy, client_queue_max_count=5), SimulatedCapacity(bandwidth_mbps=0.05)
    )
    world.run()
    for client in ("p", "s"):
        world.add_client(client, "B1")
    world.run()
    world.advertise("p", Filter.parse("a > 1"))
    world.subscribe("s", Filter.parse("a > 1"))
    world.run()
    dropped: list[int] = []
    note_dropped, note_told = world.checker.dropped, world.checker.told_gap

    def was_dropped(client: str, publisher: str, sequence: int) -> None:
        dropped.append(sequence)
        note_dropped(client, publisher, sequence)

    def was_told(client: str, notice: GapNotice, now_s: float) -> None:
        told.append(notice)
        note_told(client, notice, now_s)

    world.checker.dropped = was_dropped  # type: ignore[method-assign]
    world.checker.told_gap = was_told  # type: ignore[method-assign]
    for _ in range(40):
        world.publish("p", {"a": 6})
    world.run()
    check_rest(world, [])
    assert world.checker.violations == []
    assert dropped
    assert [number for each in told for number in range(each.first or 0, (each.last or 0) + 1)] == dropped


def test_a_client_whose_lease_is_over_is_told_what_was_given_up() -> None:
    world = World(1)
    told: list[GapNotice] = []
    for name in ("B1", "B2"):
        world.add_broker(BrokerConfig(name))
    world.add_link("B1", "B2", 0.01)
    world.run()
    for client, broker in (("p", "B1"), ("quiet", "B1"), ("s", "B2")):
        world.add_client(client, broker)
    world.run()
    for publisher in ("p", "quiet"):
        world.advertise(publisher, Filter.parse("a > 1"))
    world.subscribe("s", Filter.parse("a > 1"))
    world.run()
    note_told = world.checker.told_gap

    def was_told(client: str, notice: GapNotice, now_s: float) -> None:
        told.append(notice)
        note_told(client, notice, now_s)

    world.checker.told_gap = was_told  # type: ignore[method-assign]
    begin_s = world.now_s
    world.publish("quiet", {"a": 6})
    for after_s in (1.0, 2.0, 20.0, 30.0, 90.0):
        world.at(begin_s + after_s, world.publish, "p", {"a": 6})
    world.add_fault(Cut(between=("s", "B2"), at_s=begin_s + 10.0, for_s=70.0))
    world.run()
    check_rest(world, [("B1", "B2")])
    assert world.checker.violations == []
    assert [(each.publisher, each.first, each.last) for each in told] == [("", None, None), ("p", 3, 4)]
    assert told[0].reason == "B2 has forgotten this client, and with it what it had for it"
