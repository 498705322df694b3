"""A subscriber moves between brokers while publications flow: the application sees one stream, whole and in order."""

from __future__ import annotations

from collections import deque
from random import Random

import pytest

from trimtab import Filter
from trimtab.broker.config import BrokerConfig
from trimtab.broker.core import Broker
from trimtab.client.config import ClientConfig
from trimtab.client.session import ClientSession
from trimtab.protocol.effects import Deliver, Effect, InForce, Moved, NotMoved, Open, Shut
from trimtab.protocol.events import Connected, Disconnected, MoveTo, Received, Step
from trimtab.protocol.frames import Ack, Payload

NUMBERS = Filter.parse("[n,isPresent,0]")
BROKERS = ("B1", "B2", "B3", "B4", "B5")
LINKS = (("B1", "B2"), ("B2", "B3"), ("B2", "B4"), ("B4", "B5"))


class Slow:
    """Brokers and clients whose frames wait in their connections until a random choice moves one of them."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.brokers = {name: Broker(BrokerConfig(name)) for name in BROKERS}
        self.clients: dict[str, ClientSession] = {}
        self.wires: dict[tuple[str, str], deque[Payload | Ack]] = {}
        self.effects: dict[str, list[Effect]] = {}
        for first, second in LINKS:
            self.connect(first, second)

    def role(self, name: str) -> Broker | ClientSession:
        return self.brokers[name] if name in self.brokers else self.clients[name]

    def client(self, name: str, broker: str) -> ClientSession:
        self.clients[name] = ClientSession(ClientConfig(name))
        self.effects[name] = []
        self.connect(name, broker)
        return self.clients[name]

    def connect(self, first: str, second: str) -> None:
        greetings = {first: self.role(first).greeting(second), second: self.role(second).greeting(first)}
        for name, peer in ((first, second), (second, first)):
            self.wires[name, peer] = deque()
            self.role(name).handle(Connected(peer, greetings[peer]), 0.0)

    def obey(self, client: str, effects: list[Effect]) -> None:
        self.effects[client].extend(effects)
        for effect in effects:
            if isinstance(effect, Open):
                self.connect(client, effect.broker)
            elif isinstance(effect, Shut):
                for pair in ((client, effect.broker), (effect.broker, client)):
                    self.wires.pop(pair, None)
                self.brokers[effect.broker].handle(Disconnected(client), 0.0)

    def act(self) -> bool:
        """One random step of one broker or one frame; whether there was anything to do."""
        choices: list[tuple[str, str]] = [(name, "") for name, broker in self.brokers.items() if broker.input_count]
        for (source, target), frames in self.wires.items():
            role = self.role(source)
            sends = role.has_frame(target) if isinstance(role, ClientSession) else target in role.sendable()
            if frames or sends:
                choices.append((source, target))
        if not choices:
            return False
        source, target = self.rng.choice(choices)
        if not target:
            self.brokers[source].handle(Step(), 0.0)
            return True
        frames, role = self.wires[source, target], self.role(source)
        if not frames or self.rng.random() < 0.5:
            frame = role.take_frame(0.0, target) if isinstance(role, ClientSession) else role.take_frame(target, 0.0)
            if frame is not None:
                frames.append(frame)
        if frames and self.rng.random() < 0.7:
            effects = self.role(target).handle(Received(source, frames.popleft()), 0.0)
            if target in self.clients:
                self.obey(target, effects)
        return True

    def rest(self) -> None:
        while self.act():
            pass


@pytest.mark.parametrize("seed", range(150))
def test_whatever_the_timing_a_moving_subscriber_misses_nothing_and_gets_nothing_twice(seed: int) -> None:
    rng = Random(seed)
    network = Slow(rng)
    publishers = [network.client(f"p{number}", rng.choice(BROKERS)) for number in range(2)]
    subscriber = network.client("s", "B1")
    for publisher in publishers:
        publisher.advertise(NUMBERS, 0.0)
    if rng.random() < 0.5:
        network.client("other", rng.choice(BROKERS)).subscribe(NUMBERS, 0.0)
    network.rest()
    subscription = subscriber.subscribe(Filter.parse(rng.choice(["[n,>,0]", "[n,isPresent,0]"])), 0.0)
    network.rest()
    assert InForce(subscription) in network.effects["s"]
    sent: dict[str, int] = {publisher.name: 0 for publisher in publishers}
    moves = 0
    while min(sent.values()) < 30:
        for _ in range(rng.randint(0, 6)):
            network.act()
        publisher = rng.choice(publishers)
        sent[publisher.name] = publisher.publish({"n": 1 + sent[publisher.name]}, 0.0)
        if rng.random() < 0.1:
            target = rng.choice([name for name in BROKERS if name != subscriber.broker])
            before = len(network.effects["s"])
            network.obey("s", subscriber.handle(MoveTo(target), 0.0))
            moves += not isinstance(network.effects["s"][before], NotMoved)
    network.rest()
    delivered = [effect for effect in network.effects["s"] if isinstance(effect, Deliver)]
    for name, last in sent.items():
        assert [each.sequence for each in delivered if each.publisher == name] == list(range(1, last + 1))
    assert sum(isinstance(effect, Moved) for effect in network.effects["s"]) == moves
    routes = {name: [e.id for e in broker.tables.subscriptions.values()] for name, broker in network.brokers.items()}
    own = {name: [id for id in ids if id.startswith("s/")] for name, ids in routes.items()}
    assert len(own[subscriber.broker]) == 1
    assert all(set(ids) <= set(own[subscriber.broker]) for ids in own.values())


def test_a_move_to_a_broker_that_no_way_leads_from_leaves_the_client_where_it_was() -> None:
    network = Slow(Random(1))
    network.brokers["alone"] = Broker(BrokerConfig("alone"))
    subscriber = network.client("s", "B1")
    subscriber.subscribe(NUMBERS, 0.0)
    network.rest()
    network.obey("s", subscriber.handle(MoveTo("alone"), 0.0))
    network.rest()
    assert subscriber.broker == "B1"
    assert [effect for effect in network.effects["s"] if isinstance(effect, NotMoved)] == [
        NotMoved("alone", "no way leads to B1")
    ]


def test_an_unsubscription_during_a_move_is_told_to_the_new_broker() -> None:
    network = Slow(Random(2))
    network.client("p", "B3").advertise(NUMBERS, 0.0)
    subscriber = network.client("s", "B1")
    subscription = subscriber.subscribe(NUMBERS, 0.0)
    network.rest()
    network.obey("s", subscriber.handle(MoveTo("B5"), 0.0))
    subscriber.unsubscribe(subscription, 0.0)
    network.rest()
    assert subscriber.broker == "B5"
    assert all(not broker.tables.subscriptions for broker in network.brokers.values())
