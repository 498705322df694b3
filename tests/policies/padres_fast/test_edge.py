"""What an edge-broker and a cluster-head say to each other where heads plan for all brokers."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.policies.padres.hosts import FakeHost
from trimtab.language import Filter
from trimtab.load.estimation import BrokerResources
from trimtab.policies.api import AgentAction, ClientLeft, ClientStayed, Heard, MoveClient, Tell, Woken
from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.padres.decisions import Status
from trimtab.policies.padres.messages import (
    AnyControl,
    ClientTold,
    MoveOrder,
    MoveReport,
    OffloadCancel,
    ProfileReply,
    ProfileRequest,
    control_from_values,
    control_to_values,
)
from trimtab.policies.padres.snapshot import BrokerLoad, broker_load_to_values
from trimtab.policies.padres_fast.edge import FastEdge
from trimtab.policies.padres_fast.head import FastHead

STOCK = Filter.parse("[class,eq,'STOCK']")
CONFIG = PadresConfig()


def edge(*clients: str) -> tuple[FastEdge, FakeHost]:
    host = FakeHost("B1", {client: [STOCK] for client in clients})
    return FastEdge(host, "B0", CONFIG, Random(1), 0.0), host


def heard(kind: Any, sender: str = "B0", session: str = "B0/1", to: str = "B1", **more: Any) -> Heard:
    return Heard(control_to_values(kind(session=session, sender=sender, **more), to))


def said(actions: list[AgentAction]) -> list[AnyControl]:
    return [control_from_values(each.values) for each in actions if isinstance(each, Tell) and "body" in each.values]


def test_an_edge_broker_tells_all_its_clients_once_and_after_that_what_changed() -> None:
    part, host = edge("alice", "bob")
    (first,) = said(part.handle(heard(ProfileRequest), 1.0))
    assert isinstance(first, ProfileReply)
    assert (first.number, first.since) == (1, 0)
    assert first.came == (ClientTold("alice", (STOCK,)), ClientTold("bob", (STOCK,)))
    del host.served["alice"]
    host.served["carol"] = [STOCK]
    (second,) = said(part.handle(heard(ProfileRequest, heard=1), 2.0))
    assert isinstance(second, ProfileReply)
    assert (second.number, second.since) == (2, 1)
    assert (second.came, second.left) == ((ClientTold("carol", (STOCK,)),), ("alice",))
    (again,) = said(part.handle(heard(ProfileRequest, heard=1), 3.0))
    assert isinstance(again, ProfileReply)
    assert (again.since, len(again.came)) == (0, 2), "a head that missed an answer is told everything"


def test_an_edge_broker_serves_one_head_at_a_time() -> None:
    part, _ = edge("alice")
    part.handle(heard(ProfileRequest), 1.0)
    refusal = said(part.handle(heard(ProfileRequest, sender="B9", session="B9/1"), 2.0))
    assert refusal == [ProfileReply(session="B9/1", sender="B1", status=Status.BUSY)]
    part.handle(heard(OffloadCancel, reason="done"), 3.0)
    (answer,) = said(part.handle(heard(ProfileRequest, sender="B9", session="B9/1"), 4.0))
    assert isinstance(answer, ProfileReply) and answer.status == Status.OK
    (late,) = said(part.handle(heard(ProfileRequest), 65.0))
    assert isinstance(late, ProfileReply) and late.status == Status.OK, "a head that died does not hold it for ever"


def test_an_order_is_carried_out_and_reported() -> None:
    part, _ = edge("alice", "bob")
    part.handle(heard(ProfileRequest), 1.0)
    moves = (("alice", "B2"), ("bob", "B3"))
    assert part.handle(heard(MoveOrder, moves=moves), 2.0) == [
        MoveClient("alice", "B2", "B0/1"),
        MoveClient("bob", "B3", "B0/1"),
    ]
    assert part.handle(ClientLeft("alice", "B0/1"), 3.0) == []
    report = MoveReport(session="B0/1", sender="B1", stayed=("bob",))
    assert said(part.handle(ClientStayed("bob", "B0/1", "it has left"), 4.0)) == [report]


def test_an_order_of_a_session_that_was_given_up_moves_nobody() -> None:
    part, _ = edge("alice")
    actions = part.handle(heard(MoveOrder, moves=(("alice", "B2"),)), 2.0)
    assert said(actions) == [MoveReport(session="B0/1", sender="B1", stayed=("alice",))]
    assert len(actions) == 1


def pie(broker: str, ratio: float) -> Heard:
    load = BrokerLoad(
        broker=broker,
        cluster="B0",
        status=Status.OK,
        input_utilization_ratio=ratio,
        output_utilization_ratio=ratio,
        matching_delay_s=ratio / 10,
    )
    return Heard(broker_load_to_values(load))


def resources(count: int) -> BrokerResources:
    return BrokerResources(
        input_rate_per_s=5.0,
        input_rate_bytes_per_s=50.0,
        matching_delay_s=0.001 * count,
        subscription_count=count,
        output_rate_bytes_per_s=100.0 * count,
        bandwidth_bytes_per_s=10_000.0,
    )


def reply(broker: str, session: str, clients: list[str], **more: Any) -> Heard:
    told = tuple(ClientTold(client, (STOCK,)) for client in clients)
    return heard(
        ProfileReply,
        sender=broker,
        session=session,
        to="B0",
        status=Status.OK,
        resources=resources(max(len(clients), 1)),
        number=1,
        came=told,
        **more,
    )


def head() -> FastHead:
    part = FastHead(FakeHost("B0"), "B0", CONFIG, Random(1), 0.0)
    for number in range(100):
        part.matched(("p", number), {"class": "STOCK"}, [], number * 0.1)
    return part


def test_a_head_that_sees_a_large_difference_asks_plans_and_orders() -> None:
    part = head()
    part.handle(pie("B1", 0.6), 1.0)
    part.handle(pie("B2", 0.1), 1.0)
    asked = said(part.handle(Woken(), 10.0))
    session = asked[0].session
    assert asked == [ProfileRequest(session=session, sender="B0") for _ in ("B1", "B2")]
    crowd = [f"c{number}" for number in range(40)]
    assert part.handle(reply("B1", session, crowd), 10.1) == []
    (order,) = said(part.handle(reply("B2", session, ["d1"]), 10.2))
    assert isinstance(order, MoveOrder)
    assert 15 <= len(order.moves) <= 25
    assert {to_broker for _, to_broker in order.moves} == {"B2"}
    released = said(part.handle(heard(MoveReport, sender="B1", session=session, to="B0"), 11.0))
    assert [type(message) for message in released] == [OffloadCancel, OffloadCancel]


def test_a_head_leaves_level_brokers_alone() -> None:
    part = head()
    for second in range(0, 200, 10):
        part.handle(pie("B1", 0.32), float(second))
        part.handle(pie("B2", 0.3), float(second))
        assert part.handle(Woken(), float(second + 1)) == []


def test_a_small_difference_counts_when_it_lasts() -> None:
    part = head()
    asked_s = []
    for second in range(0, 100, 10):
        part.handle(pie("B1", 0.37), float(second))
        part.handle(pie("B2", 0.3), float(second))
        if said(part.handle(Woken(), second + 9.9)):
            asked_s.append(second)
    assert asked_s[0] == 50


def test_a_broker_that_does_not_answer_is_planned_without() -> None:
    part = head()
    for broker, ratio in (("B1", 0.6), ("B2", 0.1), ("B3", 0.1)):
        part.handle(pie(broker, ratio), 1.0)
    session = said(part.handle(Woken(), 10.0))[0].session
    part.handle(reply("B1", session, [f"c{number}" for number in range(40)]), 10.1)
    part.handle(reply("B2", session, ["d1"]), 10.2)
    (order,) = [each for each in said(part.handle(Woken(), 15.1)) if isinstance(each, MoveOrder)]
    assert {to_broker for _, to_broker in order.moves} == {"B2"}
