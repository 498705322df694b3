"""What a publisher's move costs, and what it does to routing tables (section 3.3 of the paper)."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.broker.direct import Direct
from trimtab import Filter
from trimtab.broker.config import BrokerConfig
from trimtab.protocol.effects import Moved, Open, Shut
from trimtab.protocol.events import Connected, LinkRemoved, MoveTo, Received, Step
from trimtab.protocol.frames import Payload
from trimtab.protocol.messages import (
    Advertise,
    Complete,
    Confirmed,
    Handover,
    Publish,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)
from trimtab.protocol.records import AnyRecord, MoveRecord
from trimtab.simulation.checkers.rest import check_rest
from trimtab.simulation.world.capacity import SimulatedCapacity
from trimtab.simulation.world.connections import Connection, Frames
from trimtab.simulation.world.recording import WorldRecords
from trimtab.simulation.world.world import World

NUMBERS = Filter.parse("[n,isPresent,0]")
LATENCY_S = 0.02


class Kept:
    """Keeps records in a list."""

    def __init__(self) -> None:
        self.moves: list[MoveRecord] = []

    def record(self, record: AnyRecord) -> None:
        if isinstance(record, MoveRecord):
            self.moves.append(record)


def chain(hops_count: int, capacity: SimulatedCapacity | None = None) -> tuple[World, Kept, list[tuple[str, str]]]:
    """Brokers V0 to Vn in a row, each with one W beside it that has a subscriber; a publisher at V0."""
    world, kept = World(1), Kept()
    world.keep_records(WorldRecords(kept))
    links = [(f"V{number}", f"V{number + 1}") for number in range(hops_count)]
    links += [(f"V{number}", f"W{number}") for number in range(hops_count + 1)]
    for name in dict.fromkeys(name for link in links for name in link):
        neighbours = tuple(second if first == name else first for first, second in links if name in (first, second))
        world.add_broker(BrokerConfig(name, neighbours=neighbours), capacity)
    for first, second in links:
        world.add_link(first, second, LATENCY_S)
    world.add_client("p", "V0", LATENCY_S)
    for number in range(hops_count + 1):
        world.add_client(f"s{number}", f"W{number}", LATENCY_S)
    world.run(1.0)
    world.advertise("p", NUMBERS)
    world.run(3.0)
    for number in range(hops_count + 1):
        world.subscribe(f"s{number}", Filter.parse(f"[n,>,{-number}]"))
    return world, kept, links


@pytest.mark.parametrize("hops_count", [1, 3, 10])
def test_a_publisher_waits_at_most_three_round_trips_of_the_path(hops_count: int) -> None:
    world, kept, links = chain(hops_count, SimulatedCapacity(cpu_mhz=100, bandwidth_mbps=10))
    for number in range(400):
        world.at(5.0 + number * 0.01, world.publish, "p", {"n": number + 1})
    world.at(6.0, world.move, "p", f"V{hops_count}")
    world.run()
    check_rest(world, links)
    assert world.checker.violations == []
    assert world.checker.deliveries_count == 400 * (hops_count + 1)
    (move,) = kept.moves
    assert (move.outcome, move.to_broker) == ("moved", f"V{hops_count}")
    round_trip_s = 2 * hops_count * LATENCY_S
    client_round_trip_s = 2 * LATENCY_S
    assert move.publisher_wait_s < 1.2 * round_trip_s + 2.1 * client_round_trip_s
    assert move.publisher_wait_s < 3 * round_trip_s or hops_count == 1


def messages_of_a_move(hops_count: int) -> tuple[Counter[str], Counter[tuple[str, str]], Counter[str]]:
    """What is said during a move over so many hops: by kind, for each link of the path, and beside the path."""
    world, _, _ = chain(hops_count)
    world.run(5.0)
    kinds: Counter[str] = Counter()
    links: Counter[tuple[str, str]] = Counter()
    beside: Counter[str] = Counter()
    transmit = world.transport.transmit

    def noting(connection: Connection, sender: str, frames: Frames, departs_s: float) -> None:
        receiver = connection.other(sender)
        messages = [message for frame in frames if isinstance(frame, Payload) for message in frame.messages]
        for message in messages:
            if sender[0] == receiver[0] == "V":
                kinds[type(message).__name__] += 1
                links[sender, receiver] += 1
            elif "W" in (sender[0], receiver[0]):
                beside[type(message).__name__] += 1
        transmit(connection, sender, frames, departs_s)

    world.transport.transmit = noting  # type: ignore[method-assign]
    world.at(6.0, world.move, "p", f"V{hops_count}")
    world.run()
    assert world.moves_count == 1
    return kinds, links, beside


def test_a_move_takes_messages_in_proportion_to_the_path_and_none_beside_it() -> None:
    for hops_count in (2, 4, 8, 16):
        kinds, links, beside = messages_of_a_move(hops_count)
        assert beside == Counter(), "brokers beside the path say and hear nothing"
        assert kinds["Handover"] == kinds["Complete"] == hops_count
        assert kinds["Advertise"] == kinds["Unadvertise"] == hops_count, "told ahead of the marker, ended behind it"
        assert kinds["Subscribe"] == kinds["Unsubscribe"] == hops_count, "one covering subscription over each link"
        assert kinds["Confirmed"] == 2 * hops_count
        assert sum(kinds.values()) == 8 * hops_count
        assert max(links.values()) <= 4


class Figure1(Direct):
    """The network of the paper's Figure 1: publisher P at B1, 10 subscribers left of B5 and 15 right of it.

    B1 has B2, B3 and B4 beside it, and B5 behind; B5 has B6 behind, and that B7. One subscriber stands for many.
    """

    LINKS = (("B1", "B2"), ("B1", "B3"), ("B1", "B4"), ("B1", "B5"), ("B5", "B6"), ("B6", "B7"))

    def __init__(self) -> None:
        super().__init__("B1", "B2", "B3", "B4", "B5", "B6", "B7", covering=False)
        self.said: list[tuple[str, str, object]] = []
        for first, second in self.LINKS:
            self.connect(first, second)
        self.client("P", "B1").advertise(NUMBERS, 0.0)
        self.run()
        for broker in ("B2", "B3", "B6", "B7"):
            self.client(f"s@{broker}", broker).subscribe(NUMBERS, 0.0)
        self.run()

    def move(self, client: str, broker: str) -> None:
        """Let a client move, and note what brokers say to each other."""
        session, old = self.clients[client], self.clients[client].broker
        waiting = session.handle(MoveTo(broker), 0.0)
        assert isinstance(waiting[0], Open)
        greetings = self.brokers[broker].greeting(client), session.greeting(broker)
        session.handle(Connected(broker, greetings[0]), 0.0)
        self.brokers[broker].handle(Connected(client, greetings[1]), 0.0)
        busy = True
        while busy:
            busy = False
            for name, role in self.brokers.items():
                while role.input_count:
                    role.handle(Step(), 0.0)
                for peer in role.sendable():
                    for frame in role.output.take_frames(peer, 0.0):
                        busy = True
                        if peer in self.brokers and isinstance(frame, Payload):
                            self.said += [(name, peer, message) for message in frame.messages]
                        receiver = self.brokers.get(peer) or self.clients[peer]
                        self.effects += [(peer, each) for each in receiver.handle(Received(name, frame), 0.0)]
            for name, each in self.clients.items():
                for at in (old, broker):
                    while (own := each.take_frame(0.0, at)) is not None:
                        busy = True
                        self.brokers[at].handle(Received(name, own), 0.0)
        assert (client, Shut(old)) in self.effects
        assert (client, Moved(broker)) in self.effects
        self.brokers[old].handle(LinkRemoved(client), 0.0)


def test_figure_1_the_three_operations_on_the_path_from_b1_to_b6() -> None:
    network = Figure1()
    assert sorted(network.table("B1")) == sorted(
        [("B2", "[n,isPresent,0]"), ("B3", "[n,isPresent,0]"), ("B5", "[n,isPresent,0]"), ("B5", "[n,isPresent,0]")]
    )
    network.move("P", "B6")
    tables = {name: broker.tables.advertisements.values() for name, broker in network.brokers.items()}
    hops = {name: [hop for route in routes for hop in route.hops] for name, routes in tables.items()}
    assert hops == {  # operation 1, on the path alone
        "B1": ["B5"], "B5": ["B6"], "B6": ["P"],
        "B2": ["B1"], "B3": ["B1"], "B4": ["B1"], "B7": ["B6"],
    }  # fmt: skip
    came_from = {name: sorted(hop for hop, _ in network.table(name)) for name in network.brokers}
    assert came_from["B1"] == ["B2", "B3"], "operation 2: those from the right of B5 have gone"
    assert came_from["B5"] == ["B1", "B1"], "operations 2 and 3"
    assert came_from["B6"] == ["B5", "B5", "B7", "s@B6"], "operation 3: those from the left of B5 have come"
    told = [(sender, receiver, type(message)) for sender, receiver, message in network.said]
    assert told.count(("B6", "B5", Handover)) == told.count(("B5", "B1", Handover)) == 1
    assert told.count(("B1", "B5", Complete)) == told.count(("B5", "B6", Complete)) == 1
    assert told.count(("B1", "B5", Subscribe)) == told.count(("B5", "B6", Subscribe)) == 2
    assert told.count(("B5", "B1", Unsubscribe)) == told.count(("B6", "B5", Unsubscribe)) == 2
    assert told.count(("B6", "B5", Advertise)) == told.count(("B5", "B1", Advertise)) == 1
    assert told.count(("B1", "B5", Unadvertise)) == told.count(("B5", "B6", Unadvertise)) == 1
    assert [kind for _, _, kind in told].count(Confirmed) == 6, "four subscriptions and the advertisement twice"
    assert len(told) == 22
    network.clients["P"].publish({"n": 1}, 0.0)
    network.run()
    assert all(network.deliveries(f"s@{name}") == [("P", 1)] for name in ("B2", "B3", "B6", "B7"))
    assert not any(isinstance(message, Publish) for _, _, message in network.said)
