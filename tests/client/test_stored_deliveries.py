"""A client that stores what it is told goes on, in another life, where it had stored last."""

from __future__ import annotations

import pytest

from trimtab.broker.config import BrokerConfig
from trimtab.broker.core import Broker
from trimtab.client.config import ClientConfig, FormerIncarnation
from trimtab.client.session import ClientSession
from trimtab.language import Filter
from trimtab.protocol.durable_link import LinkPosition
from trimtab.protocol.effects import Close, Deliver, Effect, NotMoved
from trimtab.protocol.events import Connected, Disconnected, MoveTo, Step
from trimtab.protocol.link import LinkConfig
from trimtab.protocol.messages import Refused

FILTER = Filter.parse("a > 0")


class Pair:
    """A broker with a publisher and a reader that stores; the reader may die and live again."""

    def __init__(self, window_count: int = 1_024) -> None:
        self.stored = LinkPosition()
        self._link = LinkConfig(window_count, 1.0, window_count)
        self.broker = Broker(BrokerConfig("B1", session="b", link=self._link))
        self.publisher = ClientSession(ClientConfig("p"))
        self.connect(self.publisher)
        self.publisher.advertise(FILTER, 0.0)
        self.reader = self.live()
        self.reader.subscribe(FILTER, 0.0)
        self.connect(self.reader)

    def store(self) -> None:
        """The reader's application stores all that has arrived."""
        self.stored = self.reader.arrived()
        self.reader.stored(self.stored)

    def live(self, earlier: FormerIncarnation | None = None) -> ClientSession:
        self.reader = ClientSession(ClientConfig("r", session="s", link=self._link, stores=True, earlier=earlier))
        return self.reader

    def die_and_live(self) -> list[Effect]:
        """The reader's process is killed; the next one knows what was stored."""
        self.broker.handle(Disconnected("r"), 0.0)
        self.live(FormerIncarnation(self.reader.broker_session, self.stored, (FILTER,)))
        return self.connect(self.reader)

    def connect(self, client: ClientSession) -> list[Effect]:
        ours, theirs = client.greeting(), self.broker.greeting(client.name)
        self.broker.handle(Connected(client.name, ours), 0.0)
        effects = client.handle(Connected("B1", theirs), 0.0)
        return [*effects, *self.run(client)]

    def run(self, *clients: ClientSession) -> list[Effect]:
        """Move frames between the broker and these clients; what comes out at the clients."""
        effects: list[Effect] = []
        for _ in range(20):
            for client in clients:
                while (frame := client.take_frame(0.0)) is not None:
                    self.broker.receive(client.name, frame, 0.0)
            while self.broker.input_count:
                self.broker.handle(Step(), 0.0)
            for client in clients:
                for frame in self.broker.output.take_frames(client.name, 0.0):
                    effects += client.receive("B1", frame, 0.0)
        return effects

    def publish(self, *values: int) -> None:
        for value in values:
            self.publisher.publish({"a": value}, 0.0)
        self.run(self.publisher)


def numbers(effects: list[Effect]) -> list[object]:
    return [effect.publication["a"] for effect in effects if isinstance(effect, Deliver)]


def test_what_was_not_stored_comes_again_in_the_next_life_and_what_was_does_not() -> None:
    pair = Pair()
    pair.publish(1, 2, 3)
    assert numbers(pair.run(pair.reader)) == [1, 2, 3]
    pair.store()
    pair.publish(4, 5)
    assert numbers(pair.run(pair.reader)) == [4, 5]
    pair.publish(6)
    assert numbers(pair.die_and_live()) == [4, 5, 6]
    pair.publish(7)
    assert numbers(pair.run(pair.reader)) == [7]
    assert numbers(pair.die_and_live()) == [4, 5, 6, 7]


def test_a_new_connection_in_the_same_life_brings_nothing_twice() -> None:
    pair = Pair()
    pair.publish(1, 2)
    assert numbers(pair.run(pair.reader)) == [1, 2]
    pair.broker.handle(Disconnected("r"), 0.0)
    pair.reader.handle(Disconnected("B1"), 0.0)
    pair.publish(3)
    assert numbers(pair.connect(pair.reader)) == [3]


def test_no_more_than_a_window_is_sent_before_something_is_stored_in_each_life() -> None:
    pair = Pair(window_count=4)
    for value in range(1, 13):
        pair.publish(value)
    found = numbers(pair.run(pair.reader))
    assert found == [1, 2, 3]  # the confirmation of the subscription is the fourth
    pair.store()
    found += numbers(pair.run(pair.reader))
    assert found == [1, 2, 3, 4, 5, 6, 7]
    assert numbers(pair.run(pair.reader)) == []
    assert numbers(pair.die_and_live()) == [4, 5, 6, 7]
    assert numbers(pair.run(pair.reader)) == []
    pair.store()
    assert numbers(pair.run(pair.reader)) == [8, 9, 10, 11]
    pair.store()
    assert numbers(pair.run(pair.reader)) == [12]


def test_a_broker_that_has_forgotten_the_client_ends_it_with_a_reason() -> None:
    pair = Pair()
    pair.publish(1)
    pair.run(pair.reader)
    pair.broker = Broker(BrokerConfig("B1", session="another"))
    assert pair.die_and_live() == [Close("B1", "B1 has forgotten the client, and with it what it kept for it")]


def test_it_does_not_move() -> None:
    pair = Pair()
    reason = "a client that stores what it is told does not move"
    assert pair.reader.handle(MoveTo("B2", "b2", "balance"), 0.0) == [NotMoved("B2", reason)]
    frame = pair.reader.take_frame(0.0)
    assert frame is not None and getattr(frame, "messages", None) == [
        Refused(about="balance", reason=reason, cause="balance")
    ]


def test_a_publisher_may_give_growing_numbers_of_its_own() -> None:
    pair = Pair()
    assert pair.publisher.publish({"a": 1}, 0.0, 7) == 7
    assert pair.publisher.publish({"a": 2}, 0.0) == 8
    with pytest.raises(ValueError, match="the number 8 is not above those before it"):
        pair.publisher.publish({"a": 3}, 0.0, 8)
    pair.run(pair.publisher)
    delivered = [each.sequence for each in pair.run(pair.reader) if isinstance(each, Deliver)]
    assert delivered == [7, 8]
