"""What a broker tells whoever watches it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from trimtab.broker.config import BrokerConfig
from trimtab.broker.core import Broker
from trimtab.language import Filter
from trimtab.protocol.effects import Close, Effect
from trimtab.protocol.events import Connected, Disconnected, KeepClients, Received, Step, Wake
from trimtab.protocol.frames import Hello, Payload
from trimtab.protocol.link import LinkConfig
from trimtab.protocol.messages import (
    VERSION,
    Advertise,
    AnyMessage,
    Handover,
    KnownSubscription,
    MoveIn,
    Publish,
    Subscribe,
)

QUEUE_MAX_COUNT = 2


class Notebook:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def accepted(self, message: Publish, now_s: float) -> None:
        self.told.append(("accepted", message.publisher, message.sequence, now_s))

    def recovered(self, message: Publish) -> None:
        self.told.append(("recovered", message.publisher, message.sequence))

    def dropped(self, client: str, message: Publish) -> None:
        self.told.append(("dropped", client, message.sequence))

    def client_queue_full(self, client: str, queued_count: int) -> None:
        self.told.append(("full", client, queued_count))

    def disconnected_as_slow(self, client: str) -> None:
        self.told.append(("slow", client))

    def lease_lapsed(self, client: str, subscriptions: Iterable[str]) -> None:
        self.told.append(("lapsed", client, *subscriptions))

    def passed_by_stand_in(self, message: Publish) -> None:
        self.told.append(("passed", message.publisher, message.sequence))

    def left_unheard(self, client: str, undelivered: Iterable[Publish]) -> None:
        self.told.append(("unheard", client, *(message.sequence for message in undelivered)))

    def came(self, client: str, old_broker: str, cause: str, now_s: float) -> None:
        self.told.append(("came", client, old_broker, cause, now_s))

    def may_come_late(self, publisher: str, first: int, last: int) -> None:
        self.told.append(("late", publisher, first, last))


class Watched:
    """A broker with a publisher p and a subscriber s, of whom the latter reads nothing."""

    def __init__(self, slow_policy: Literal["block", "drop-oldest", "disconnect"] = "block") -> None:
        self.notebook = Notebook()
        config = BrokerConfig(
            "B1",
            slow_policy=slow_policy,
            client_queue_max_count=QUEUE_MAX_COUNT,
            client_lease_s=10.0,
            link=LinkConfig(window_frames_count=1),
        )
        self.broker = Broker(config, observer=self.notebook)
        self._sent_count = {"p": 0, "s": 0}
        for client in self._sent_count:
            self.broker.handle(Connected(client, Hello(VERSION, "client", client, "1", 1)), 0.0)
        self.say("p", Advertise(id="p/a1", filter=Filter.parse("x >= 0")))
        self.say("s", Subscribe(id="s/s1", filter=Filter.parse("x >= 0")))

    def say(self, client: str, message: AnyMessage) -> list[Effect]:
        self._sent_count[client] += 1
        self.broker.handle(Received(client, Payload(self._sent_count[client], 0, [message])), 1.0)
        return self.broker.handle(Step(), 1.0)

    def publish(self, *numbers: int) -> list[Effect]:
        effects: list[Effect] = []
        for number in numbers:
            effects += self.say("p", Publish(publisher="p", sequence=number, values={"x": number}, origin_s=1.0))
        return effects


def test_a_publication_is_accepted_once_and_only_if_it_is_announced() -> None:
    watched = Watched()
    watched.publish(1, 1)
    watched.say("p", Publish(publisher="p", sequence=2, values={"y": 2}, origin_s=1.0))
    assert watched.notebook.told == [("accepted", "p", 1, 1.0)]


def test_what_a_slow_client_loses_is_told() -> None:
    watched = Watched("drop-oldest")
    watched.publish(1, 2, 3)
    assert [each for each in watched.notebook.told if each[0] != "accepted"] == [
        ("full", "s", 2),
        ("dropped", "s", 1),
        ("full", "s", 2),
    ]


def test_a_client_that_is_disconnected_as_slow_is_told() -> None:
    watched = Watched("disconnect")
    effects = watched.publish(1, 2, 3)
    assert [effect.peer for effect in effects if isinstance(effect, Close)] == ["s"]
    assert watched.notebook.told[-1] == ("slow", "s")


def test_a_lease_that_lapses_is_told_with_the_subscriptions_that_end() -> None:
    watched = Watched()
    watched.broker.handle(Disconnected("s"), 2.0)
    watched.broker.handle(Wake(), 11.9)
    assert watched.notebook.told == []
    watched.broker.handle(Wake(), 12.0)
    assert watched.notebook.told == [("lapsed", "s", "s/s1")]


def test_a_client_that_has_moved_on_and_never_hears_so_is_told_with_what_is_given_up() -> None:
    watched = Watched()
    watched.broker.handle(Connected("B2", Hello(VERSION, "broker", "B2", "1", 1)), 1.0)
    watched.broker.handle(Disconnected("s"), 2.0)
    watched.publish(1, 2)
    marker = Handover(client="s", session="1", stay=2, old_broker="B1", new_broker="B2")
    watched.broker.handle(Received("B2", Payload(1, 0, [marker])), 3.0)
    watched.broker.handle(Step(), 3.0)
    watched.broker.handle(Wake(), 12.0)
    assert watched.notebook.told[-1] == ("unheard", "s", 1, 2)


def test_a_client_on_its_way_here_that_never_comes_is_not_told() -> None:
    """For all it knows it has never left its old broker."""
    watched = Watched()
    watched.broker.handle(Connected("B2", Hello(VERSION, "broker", "B2", "1", 1)), 1.0)
    watched.broker.handle(Connected("t", Hello(VERSION, "client", "t", "1", 1, stay=2)), 1.0)
    coming = MoveIn(stay=2, old_broker="B2", subscriptions=(KnownSubscription("t/s1", Filter.parse("x >= 0")),))
    watched.broker.handle(Received("t", Payload(1, 0, [coming])), 1.0)
    watched.broker.handle(Step(), 1.0)
    watched.broker.handle(Disconnected("t"), 2.0)
    watched.broker.handle(Wake(), 12.0)
    assert "t" not in watched.broker.peers
    assert watched.notebook.told == []


def test_a_broker_that_keeps_its_clients_asks_none_to_move() -> None:
    watched = Watched()
    watched.broker.handle(KeepClients(), 1.0)
    watched.broker.handle(Connected("B2", Hello(VERSION, "broker", "B2", "1", 1)), 1.0)
    cause, objection = watched.broker.admission.move_by_hand("s", "B2", 1.0)
    assert (objection, watched.broker.admission.outcome(cause)) == ("", "this broker keeps its clients")
    assert watched.broker.admission.asked() == []
