"""Agents inside brokers: they hear each other over the broker's own tables and ask clients to move."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trimtab import Filter
from trimtab.broker.config import BrokerConfig
from trimtab.broker.core import Broker
from trimtab.client.config import ClientConfig
from trimtab.client.session import ClientSession
from trimtab.language import Value
from trimtab.policies.api import (
    AgentAction,
    AgentEvent,
    AgentHost,
    Announce,
    ClientAdvertised,
    ClientCame,
    ClientLeft,
    ClientStayed,
    ClientSubscribed,
    Heard,
    Listen,
    MoveClient,
    NeighboursChanged,
    PublisherTurned,
    RelocatePublisher,
    Tell,
    Unlisten,
    Woken,
)
from trimtab.protocol.effects import Deliver, Effect, Moved, NotMoved, Open, Shut
from trimtab.protocol.events import Connected, Disconnected, LinkRemoved, Received, Step, Wake

ALL = Filter.parse("[class,eq,'TALK']")
STOCKS = Filter.parse("[class,eq,'STOCK']")


class Talker:
    """Announces and listens to talk, keeps what it hears, and does what a test tells it at its next waking."""

    name = "talker"

    def __init__(self) -> None:
        self.observes = False
        self.host: AgentHost | None = None
        self.events: list[AgentEvent] = []
        self.seen: list[tuple[str, ...]] = []
        self.todo: list[AgentAction] = []
        self.wake_s: float | None = None

    def start(self, host: AgentHost, now_s: float) -> list[AgentAction]:
        self.host = host
        return [Announce(ALL), Listen("talk", ALL)]

    def handle(self, event: AgentEvent, now_s: float) -> list[AgentAction]:
        if not isinstance(event, NeighboursChanged | ClientSubscribed | ClientAdvertised):
            self.events.append(event)
        if isinstance(event, Woken):
            self.wake_s, (todo, self.todo) = None, (self.todo, [])
            return todo
        return []

    def matched(
        self, publication: tuple[str, int], values: Mapping[str, Value], hops: Sequence[str], now_s: float
    ) -> list[AgentAction]:
        self.seen.append(tuple(hops))
        return []

    def wake_at_s(self) -> float | None:
        return self.wake_s


class Chain:
    """Brokers B1 - B2 - B3, each with a talker, and clients; frames arrive at once."""

    def __init__(self) -> None:
        self.talkers = {name: Talker() for name in ("B1", "B2", "B3")}
        self.brokers = {
            name: Broker(BrokerConfig(name, address=f"{name}.example:1"), [talker])
            for name, talker in self.talkers.items()
        }
        self.clients: dict[str, ClientSession] = {}
        self.effects: dict[str, list[Effect]] = {}
        self.refuses_connections: dict[str, None] = {}
        self.connect("B1", "B2")
        self.connect("B2", "B3")
        self.rest()

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
            self.role(name).handle(Connected(peer, greetings[peer]), 0.0)

    def do(self, broker: str, *actions: AgentAction, now_s: float = 1.0) -> None:
        talker = self.talkers[broker]
        talker.todo, talker.wake_s = list(actions), now_s
        assert self.brokers[broker].wake_at_s() == now_s
        self.brokers[broker].handle(Wake(), now_s)
        self.rest(now_s)

    def obey(self, client: str, effects: list[Effect]) -> None:
        self.effects[client].extend(effects)
        for effect in effects:
            if isinstance(effect, Open) and effect.broker not in self.refuses_connections:
                self.connect(client, effect.broker)
            elif isinstance(effect, Shut) and client in self.brokers[effect.broker].peers:
                self.brokers[effect.broker].handle(LinkRemoved(client), 0.0)

    def rest(self, now_s: float = 0.0) -> None:
        busy = True
        while busy:
            busy = False
            for name, broker in self.brokers.items():
                while broker.input_count:
                    broker.handle(Step(), now_s)
                for peer in broker.sendable():
                    for frame in broker.output.take_frames(peer, now_s):
                        busy = True
                        effects = self.role(peer).handle(Received(name, frame), now_s)
                        if peer in self.clients:
                            self.obey(peer, effects)
            for name, session in self.clients.items():
                for broker_name in self.brokers:
                    while (own := session.take_frame(now_s, broker_name)) is not None:
                        busy = True
                        self.brokers[broker_name].handle(Received(name, own), now_s)


def test_agents_hear_each_other_over_several_brokers_and_not_themselves() -> None:
    chain = Chain()
    chain.do("B1", Tell({"class": "TALK", "x": 1}))
    assert chain.talkers["B1"].events == [Woken()]
    assert chain.talkers["B2"].events == [Heard({"class": "TALK", "x": 1})]
    assert chain.talkers["B3"].events == [Heard({"class": "TALK", "x": 1})]


def test_an_agent_that_no_longer_listens_hears_nothing() -> None:
    chain = Chain()
    chain.do("B3", Unlisten("talk"))
    chain.do("B1", Tell({"class": "TALK"}), now_s=2.0)
    assert chain.talkers["B3"].events == [Woken()]


def test_clients_get_nothing_of_what_agents_say_and_cannot_speak_as_one() -> None:
    chain = Chain()
    curious = chain.client("curious", "B2")
    curious.subscribe(Filter.parse("*"), 0.0)
    curious.advertise(Filter.parse("[class,eq,'TALK'],[x,isPresent,0]"), 0.0)
    chain.rest()
    chain.do("B1", Tell({"class": "TALK", "x": 1}))
    curious.publish({"class": "TALK", "x": 2}, 0.0)
    chain.rest()
    delivered = [effect for effect in chain.effects["curious"] if isinstance(effect, Deliver)]
    assert [each.publication["x"] for each in delivered] == [2]
    assert chain.talkers["B3"].events == [Heard({"class": "TALK", "x": 1})]


def test_an_agent_that_observes_sees_to_whom_publications_go() -> None:
    chain = Chain()
    chain.client("p", "B1").advertise(STOCKS, 0.0)
    chain.rest()
    chain.client("s", "B2").subscribe(STOCKS, 0.0)
    chain.rest()
    chain.talkers["B2"].observes = True
    chain.clients["p"].publish({"class": "STOCK"}, 0.0)
    chain.rest()
    assert chain.talkers["B2"].seen == [("s",)]
    assert chain.talkers["B1"].seen == []


def test_a_client_moves_where_an_agent_wants_it_and_both_agents_are_told() -> None:
    chain = Chain()
    chain.client("p", "B2").advertise(STOCKS, 0.0)
    chain.client("s", "B1").subscribe(STOCKS, 0.0)
    chain.rest()
    chain.do("B1", MoveClient("s", "B3", "session-1"))
    assert chain.clients["s"].broker == "B3"
    assert Open("B3", "B3.example:1", "session-1") in chain.effects["s"]
    assert Moved("B3") in chain.effects["s"]
    assert chain.talkers["B1"].events == [Woken(), ClientLeft("s", "session-1")]
    assert chain.talkers["B3"].events == [ClientCame("s", "session-1")]
    assert "s" not in chain.brokers["B1"].peers
    chain.clients["p"].publish({"class": "STOCK"}, 0.0)
    chain.rest()
    assert sum(isinstance(effect, Deliver) for effect in chain.effects["s"]) == 1


def test_one_intent_at_a_time_is_admitted_for_a_client() -> None:
    chain = Chain()
    chain.client("s", "B1").subscribe(STOCKS, 0.0)
    chain.rest()
    chain.do("B1", MoveClient("s", "B3", "first"), MoveClient("s", "B2", "second"))
    stayed = [event for event in chain.talkers["B1"].events if isinstance(event, ClientStayed)]
    assert stayed == [ClientStayed("s", "second", "it is already asked to move, by first")]
    assert chain.clients["s"].broker == "B3"


def test_only_a_client_that_advertises_and_is_not_on_its_way_is_relocated() -> None:
    chain = Chain()
    chain.client("s", "B1").subscribe(STOCKS, 0.0)
    chain.client("p", "B1").advertise(STOCKS, 0.0)
    chain.rest()
    chain.do(
        "B1",
        RelocatePublisher("s", "B3", "r1"),
        RelocatePublisher("p", "nowhere", "r2"),
        MoveClient("p", "B2", "balancing"),
        RelocatePublisher("p", "B3", "r3"),
    )
    stayed = {event.cause: event.reason for event in chain.talkers["B1"].events if isinstance(event, ClientStayed)}
    assert stayed == {
        "r1": "it advertises nothing",
        "r2": "no way leads to nowhere",
        "r3": "it is already asked to move, by balancing",
    }
    assert chain.clients["p"].broker == "B2"


def test_a_publisher_moves_where_an_agent_wants_it_and_all_agents_on_the_path_are_told() -> None:
    chain = Chain()
    publisher = chain.client("p", "B1")
    publisher.advertise(STOCKS, 0.0)
    chain.client("s", "B2").subscribe(STOCKS, 0.0)
    chain.rest()
    publisher.publish({"class": "STOCK"}, 0.0)
    chain.do("B1", RelocatePublisher("p", "B3", "session-1"), RelocatePublisher("nobody", "B3", "session-1"))
    assert publisher.broker == "B3"
    assert "p" not in chain.brokers["B1"].peers
    publisher.publish({"class": "STOCK"}, 1.0)
    chain.rest(1.0)
    assert [each.sequence for each in chain.effects["s"] if isinstance(each, Deliver)] == [1, 2]
    turned = PublisherTurned("p", "session-1")
    assert chain.talkers["B1"].events == [
        Woken(),
        ClientStayed("nobody", "session-1", "it is not a client of this broker"),
        turned,
        ClientLeft("p", "session-1"),
    ]
    assert chain.talkers["B2"].events == [turned]
    assert chain.talkers["B3"].events == [ClientCame("p", "session-1"), turned]


def test_a_move_to_a_broker_that_cannot_be_reached_is_undone_and_the_agent_told() -> None:
    chain = Chain()
    chain.client("p", "B2").advertise(STOCKS, 0.0)
    session = chain.client("s", "B1")
    session.subscribe(STOCKS, 0.0)
    chain.rest()
    chain.refuses_connections["B3"] = None
    chain.do("B1", MoveClient("s", "B3", "session-1"))
    assert session.wake_at_s() == 31.0
    chain.obey("s", session.handle(Wake(), 31.0))
    chain.rest(31.0)
    assert NotMoved("B3", "B3 cannot be reached") in chain.effects["s"]
    assert chain.talkers["B1"].events[-1] == ClientStayed("s", "session-1", "B3 cannot be reached")
    chain.clients["p"].publish({"class": "STOCK"}, 31.0)
    chain.rest(31.0)
    assert sum(isinstance(effect, Deliver) for effect in chain.effects["s"]) == 1


def test_a_move_whose_marker_is_lost_on_the_way_is_undone_by_the_old_broker() -> None:
    chain = Chain()
    chain.client("p", "B2").advertise(STOCKS, 0.0)
    session = chain.client("s", "B1")
    session.subscribe(STOCKS, 0.0)
    chain.rest()
    for first, second in (("B1", "B2"), ("B2", "B1")):
        chain.brokers[first].handle(Disconnected(second), 0.5)
    chain.do("B1", MoveClient("s", "B3", "session-1"))
    assert session.broker == "B1"
    chain.obey("s", session.handle(Wake(), 601.0))
    chain.rest(601.0)
    assert NotMoved("B3", "the move to B3 took too long") in chain.effects["s"]
    chain.connect("B1", "B2")
    chain.clients["p"].publish({"class": "STOCK"}, 602.0)
    chain.rest(602.0)
    assert session.broker == "B1"
    assert [effect.sequence for effect in chain.effects["s"] if isinstance(effect, Deliver)] == [1]


def test_other_agents_take_over_and_what_the_former_ones_asked_for_ends() -> None:
    chain = Chain()
    former, latter = chain.talkers["B1"], Talker()
    chain.brokers["B1"].change_agents([latter], 1.0)
    chain.brokers["B1"].handle(Wake(), 1.0)
    chain.rest(1.0)
    chain.do("B3", Tell({"class": "TALK", "x": 1}), now_s=2.0)
    assert former.events == []
    assert latter.events == [Heard({"class": "TALK", "x": 1})]
    chain.talkers["B1"] = latter
    chain.do("B1", Tell({"class": "TALK", "x": 2}), now_s=3.0)
    assert chain.talkers["B2"].events[-1] == chain.talkers["B3"].events[-1] == Heard({"class": "TALK", "x": 2})


def test_a_broker_whose_agents_go_keeps_nothing_of_them_and_may_have_others_again() -> None:
    chain = Chain()
    for name, broker in chain.brokers.items():
        broker.change_agents([], 1.0)
        broker.handle(Wake(), 1.0)
        assert not broker.agents.inboxes and broker.wake_at_s() is None, name
    chain.rest(1.0)
    for broker in chain.brokers.values():
        assert (broker.tables.advertisements, broker.tables.subscriptions) == ({}, {})
    chain.talkers = {name: Talker() for name in chain.brokers}
    for name, broker in chain.brokers.items():
        broker.change_agents([chain.talkers[name]], 2.0)
        broker.handle(Wake(), 2.0)
    chain.rest(2.0)
    chain.do("B3", Tell({"class": "TALK"}), now_s=3.0)
    assert chain.talkers["B1"].events == [Heard({"class": "TALK"})]


def test_a_client_that_was_asked_to_move_before_the_agents_changed_still_moves() -> None:
    chain = Chain()
    chain.client("s", "B1").subscribe(STOCKS, 0.0)
    chain.rest()
    talker = chain.talkers["B1"]
    talker.todo, talker.wake_s = [MoveClient("s", "B3", "session-1")], 1.0
    chain.brokers["B1"].handle(Wake(), 1.0)
    chain.brokers["B1"].change_agents([], 1.0)
    chain.rest(1.0)
    assert chain.clients["s"].broker == "B3"
    assert chain.brokers["B1"].admission.asked() == []
