"""A head coordinates phases: one at a time, with those who answer, until all clients have answered or time is up."""

from __future__ import annotations

from tests.policies.padres.hosts import FakeHost
from trimtab.language import Filter
from trimtab.policies.api import (
    AgentAction,
    AskRoundTrips,
    BrokerCapacity,
    ClientSubscribed,
    Heard,
    MoveClient,
    RoundTripsTold,
    Tell,
    Woken,
)
from trimtab.policies.delay.config import DelayConfig
from trimtab.policies.delay.head import DelayHead
from trimtab.policies.delay.messages import (
    HEADS,
    Answer,
    Ask,
    Begin,
    Candidates,
    Content,
    Done,
    EdgeLoad,
    Go,
    HeadLoad,
    Moved,
    OffloadList,
    Ping,
    Pong,
    Refusal,
    Request,
    from_values,
    to_values,
)
from trimtab.policies.delay.metrics import EdgeMetrics, HeadMetrics, State
from trimtab.policies.delay.selection import Selected

CONFIG = DelayConfig()


def load(uplink_ratio: float = 0.5, *filters: Filter, is_busy: bool = False) -> EdgeLoad:
    return EdgeLoad(
        metrics=EdgeMetrics(0.1, 0.1, uplink_ratio),
        state=State.LOW,
        capacity=BrokerCapacity(1e6, 1e9, 0.0),
        matching_delay_s=0.001,
        input_rate_per_s=10.0,
        is_busy=is_busy,
        filters=filters,
    )


class Head:
    """A head with three edges that have told their load."""

    def __init__(self) -> None:
        self.host = FakeHost("Bh")
        self.part = DelayHead(self.host, CONFIG, 0.0)
        for edge in ("b0", "b1", "b2"):
            self.hears(edge, load(), 1.0)

    def hears(self, sender: str, content: Content, now_s: float) -> list[tuple[str, Content]]:
        return said(self.part.handle(Heard(to_values(content, sender, "Bh")), now_s))


def said(actions: list[AgentAction]) -> list[tuple[str, Content]]:
    found: list[tuple[str, Content]] = []
    for action in actions:
        assert isinstance(action, Tell)
        if action.values["to"] == HEADS:
            continue  # what heads tell each other all the time
        received = from_values(action.values)
        assert received is not None
        found.append((str(action.values["to"]), received.content))
    return found


REQUEST = Request(phase="b1/1", candidates=("b0", "b2"))
SELECTED = (Selected(("S1", "S2"), "b0"),)


def test_a_phase_from_request_to_done() -> None:
    head = Head()
    assert head.hears("b1", REQUEST, 2.0) == [("b0", Ask(phase="b1/1")), ("b2", Ask(phase="b1/1"))]
    assert head.hears("b0", Answer(phase="b1/1", load=load(0.3)), 2.1) == []
    told = head.hears("b2", Answer(phase="b1/1", load=load(0.4, is_busy=True)), 2.2)
    assert told == [("b1", Candidates(phase="b1/1", loads={"b0": load(0.3)}))]
    assert head.hears("b1", OffloadList(phase="b1/1", selected=SELECTED), 2.5) == [
        ("b0", Begin(phase="b1/1")),
        ("b1", Go(phase="b1/1", selected=SELECTED)),
    ]
    assert head.hears("b1", Moved(phase="b1/1", client="S1"), 3.0) == []
    assert head.hears("b1", Moved(phase="b1/1", client="S1"), 3.1) == []  # said twice
    done = Done(phase="b1/1", took_s=1.5)
    assert head.hears("b1", Moved(phase="b1/1", client="S2", reason="left"), 3.5) == [("b1", done), ("b0", done)]
    assert head.part.phase is None


def test_a_second_phase_is_refused_while_one_is_under_way() -> None:
    head = Head()
    head.hears("b1", REQUEST, 2.0)
    refused = head.hears("b2", Request(phase="b2/1", candidates=("b0",)), 2.1)
    assert refused == [("b2", Refusal(phase="b2/1", reason="b1 is being balanced"))]


def test_candidates_that_nobody_knows_are_refused() -> None:
    refused = Head().hears("b1", Request(phase="b1/1", candidates=("b9", "b1")), 2.0)
    assert refused == [("b1", Refusal(phase="b1/1", reason="the head knows none of the candidates"))]


def test_those_who_do_not_answer_are_left_out() -> None:
    head = Head()
    head.hears("b1", REQUEST, 2.0)
    head.hears("b0", Answer(phase="b1/1", load=load(0.3)), 2.1)
    assert head.part.wake_at_s() <= 2.0 + CONFIG.reply_timeout_s
    told = said([each for each in head.part.handle(Woken(), 3.0) if isinstance(each, Tell)])
    assert told == [("b1", Candidates(phase="b1/1", loads={"b0": load(0.3)}))]


def test_a_phase_whose_clients_do_not_answer_ends() -> None:
    head = Head()
    head.hears("b1", REQUEST, 2.0)
    for edge in ("b0", "b2"):
        head.hears(edge, Answer(phase="b1/1", load=load()), 2.1)
    head.hears("b1", OffloadList(phase="b1/1", selected=SELECTED), 2.5)
    late = head.part.handle(Woken(), 2.5 + CONFIG.migration_timeout_s)
    assert [to for to, _ in said([each for each in late if isinstance(each, Tell)])] == ["b1", "b0"]
    assert head.part.phase is None


def test_an_empty_plan_frees_the_cluster() -> None:
    head = Head()
    head.hears("b1", REQUEST, 2.0)
    head.hears("b1", OffloadList(phase="b1/1", selected=()), 2.5)
    assert head.part.phase is None


def test_pings_are_answered_with_the_longest_way_of_publishers() -> None:
    head = Head()
    for name, round_trip_s in (("P1", 0.1), ("P2", 0.4)):
        head.part.handle(RoundTripsTold(name, {"Bh": round_trip_s}, "Bh/ways"), 2.0)
    ((to, pong),) = head.hears("b1", Ping(number=7), 2.0)
    assert isinstance(pong, Pong)
    assert (to, pong.number, pong.publisher_head_s) == ("b1", 7, 0.2)


def test_subscribers_that_come_together_are_sent_on_together_after_a_sample() -> None:
    topic = Filter.parse("topic = 8")
    head = Head()
    head.host.served = {"S1": [topic], "S2": [topic]}
    for edge, told in (("b0", load(0.1)), ("b1", load(0.2)), ("b2", load(0.6, topic))):
        head.hears(edge, told, 9.5)
    for client in ("S1", "S2"):
        assert head.part.handle(ClientSubscribed(client), 10.0) == []
    assert head.part.observes
    for number in range(20):
        assert head.part.matched(("P", number), {"topic": 8}, ["b2"], 10.0 + number / 100) == []
    actions = head.part.handle(Woken(), 10.0 + CONFIG.sample_timeout_s)
    moves = [each for each in actions if isinstance(each, MoveClient)]
    assert [(each.client, each.to_broker) for each in moves] == [("S1", "b2"), ("S2", "b2")]
    assert not any(isinstance(each, AskRoundTrips) for each in moves)
    assert not head.part.observes


def test_brokers_of_other_clusters_are_offered_to_an_edge_that_has_no_candidate_of_its_own() -> None:
    head = Head()
    busy = load(0.3, is_busy=True)
    there = HeadLoad(
        metrics=HeadMetrics(0.1, 0.1), state=State.LOW, capacity=BrokerCapacity(1e6, 1e9, None), edges={"b8": load(0.2)}
    )
    asked = Request(phase="b1/1", candidates=())
    nobody = Refusal(phase="b1/1", reason="no other cluster has a broker in a low load state")
    assert head.hears("b1", asked, 2.0) == [("b1", nobody)]
    head.hears("Bh2", there, 2.1)
    assert head.hears("b1", asked, 2.2) == [("b1", Candidates(phase="b1/1", loads={"b8": load(0.2)}))]
    selected = (Selected(("S1",), "b8"),)
    assert head.hears("b1", OffloadList(phase="b1/1", selected=selected), 2.5) == [
        ("b8", Begin(phase="b1/1")),
        ("b1", Go(phase="b1/1", selected=selected)),
    ]
    told = [each for each in head.part.handle(Woken(), 3.0) if isinstance(each, Tell) and each.values["to"] == HEADS]
    received = from_values(told[0].values)
    assert received is not None
    assert isinstance(received.content, HeadLoad)
    assert list(received.content.edges) == ["b0", "b1", "b2"]
    head.hears("b0", busy, 3.5)
    told = [each for each in head.part.handle(Woken(), 4.5) if isinstance(each, Tell) and each.values["to"] == HEADS]
    received = from_values(told[0].values)
    assert received is not None
    assert isinstance(received.content, HeadLoad)
    assert "b0" not in received.content.edges


def test_an_edge_learns_whether_there_are_other_clusters() -> None:
    head = Head()
    ((_, alone),) = head.hears("b1", Ping(number=1), 2.0)
    assert isinstance(alone, Pong)
    assert not alone.has_other_clusters
    head.hears(
        "Bh2", HeadLoad(metrics=HeadMetrics(0, 0), state=State.LOW, capacity=BrokerCapacity(1e6, 1e9, None)), 2.1
    )
    ((_, together),) = head.hears("b1", Ping(number=2), 2.2)
    assert isinstance(together, Pong)
    assert together.has_other_clusters
