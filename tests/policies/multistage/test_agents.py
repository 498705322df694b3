"""The coordinator's agent and the agents that it leads, without brokers; and all that they say, read back."""

from __future__ import annotations

from random import Random
from typing import get_args

import pytest

from tests.policies.padres.hosts import FakeHost
from trimtab.language import Filter
from trimtab.policies.api import (
    AgentAction,
    Announce,
    ClientLeft,
    ClientPlacement,
    ClientStayed,
    ClientSubscribed,
    Heard,
    Listen,
    MoveClient,
    Tell,
    Woken,
)
from trimtab.policies.multistage.config import CoordinatorConfig
from trimtab.policies.multistage.coordinated_agent import CoordinatedAgent
from trimtab.policies.multistage.coordinator import ClientTold
from trimtab.policies.multistage.coordinator_agent import CoordinatorAgent
from trimtab.policies.multistage.messages import (
    EVERYBODY,
    AnyCoordination,
    FromCoordinator,
    MalformedError,
    MoveResult,
    Moves,
    Present,
    Report,
    from_broker,
    from_coordinator,
    to_values,
)

A, B = Filter.parse("class = 'A'"), Filter.parse("class = 'B' AND x > 3")

MESSAGES: list[AnyCoordination] = [
    Present(life="l", report_every_s=10.0),
    Moves(life="l", cause="l/1/2", moves=(("C1", "B2"), ("C2", "B3"))),
    Report(
        life="l",
        broker="B1",
        is_whole=True,
        clients=(ClientTold("C1", ("a", "b")),),
        gone=("C9",),
        rates_bytes_per_s={"a": 1.5},
        site=(1.0, 2.0),
        address="127.0.0.1:7001",
    ),
    MoveResult(life="l", broker="B1", client="C1", cause="l/1/2", is_moved=False, reason="it publishes"),
]


def test_no_message_is_forgotten_here() -> None:
    assert {type(message) for message in MESSAGES} == set(get_args(AnyCoordination))


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_every_message_is_read_back_as_it_was(message: AnyCoordination) -> None:
    values = to_values(message, "B1")
    read = from_coordinator(values) if isinstance(message, FromCoordinator) else from_broker(values)
    assert read == message


@pytest.mark.parametrize("body", ["", "{}", '{"kind":"party"}', '{"kind":"moves","life":3}', "[1]"])
def test_what_is_no_message_is_refused_and_agents_go_on(body: str) -> None:
    for read in (from_broker, from_coordinator):
        with pytest.raises(MalformedError):
            read({"body": body})
    agent = CoordinatedAgent()
    agent.start(FakeHost("B1"), 0.0)
    assert agent.handle(Heard({"class": "COORDINATOR", "body": body}), 1.0) == []
    coordinator = CoordinatorAgent(CoordinatorConfig(), Random(1), "l")
    coordinator.start(FakeHost("coordinator"), 0.0)
    assert coordinator.handle(Heard({"class": "COORDINATED", "body": body}), 1.0) == []


def said(actions: list[AgentAction]) -> list[AnyCoordination]:
    """The messages among actions."""
    found: list[AnyCoordination] = []
    for action in actions:
        if isinstance(action, Tell):
            is_order = action.values["class"] == "COORDINATOR"
            found.append(from_coordinator(action.values) if is_order else from_broker(action.values))
    return found


def led() -> tuple[CoordinatedAgent, FakeHost, list[AnyCoordination]]:
    """An agent that has heard of a coordinator, with its first report."""
    host = FakeHost("B1", {"C1": [A], "C2": [A, B]})
    agent = CoordinatedAgent(site=(3.0, 4.0))
    assert [type(action) for action in agent.start(host, 0.0)] == [Announce, Listen, Listen]
    assert agent.wake_at_s() is None and not agent.observes
    present = to_values(Present(life="l", report_every_s=10.0), EVERYBODY)
    return agent, host, said(agent.handle(Heard(present), 1.0))


def test_a_broker_tells_a_new_coordinator_everything_and_then_what_changes() -> None:
    agent, host, (first,) = led()
    assert isinstance(first, Report)
    assert (first.is_whole, first.broker, first.site, first.address) == (True, "B1", (3.0, 4.0), "B1:1")
    names = {told.client: told.subscriptions for told in first.clients}
    assert names.keys() == {"C1", "C2"}
    assert set(names["C1"]) < set(names["C2"])
    assert agent.wake_at_s() == 11.0 and agent.observes
    del host.served["C1"]
    host.served["C3"] = [B]
    (second,) = said(agent.handle(Woken(), 11.0))
    assert isinstance(second, Report)
    assert not second.is_whole
    assert [told.client for told in second.clients] == ["C3"]
    assert second.gone == ("C1",)


def test_rates_are_those_of_publications_once_for_each_distinct_filter() -> None:
    agent, _, (first,) = led()
    assert isinstance(first, Report)
    names = {told.client: told.subscriptions for told in first.clients}
    (name_a,) = names["C1"]
    (name_b,) = set(names["C2"]) - {name_a}
    for _ in range(20):
        agent.matched(("P", 1), {"class": "A"}, ["C1", "C2", "B0"], 2.0)
    agent.matched(("P", 1), {"class": "B", "x": 4}, ["C2"], 3.0)
    (report,) = said(agent.handle(Woken(), 11.0))
    assert isinstance(report, Report)
    assert report.rates_bytes_per_s == {name_a: 20.0, name_b: 1.0}  # 10 bytes each, in ten seconds
    agent.matched(("P", 1), {"class": "B", "x": 4}, ["C2"], 12.0)
    (report,) = said(agent.handle(Woken(), 21.0))
    assert isinstance(report, Report)
    assert report.rates_bytes_per_s == {name_a: pytest.approx(14.0)}  # the other has not changed


def test_channels_are_back_end_subscriptions_too_with_the_rate_of_their_results() -> None:
    host = FakeHost("B1", {"C1": [A]})
    host.streams = {"C1": {"#Alarm(1)": 70}, "C2": {"#Alarm(1)": 70, "#Alarm(2)": 0}}
    agent = CoordinatedAgent()
    agent.start(host, 0.0)
    (first,) = said(agent.handle(Heard(to_values(Present(life="l", report_every_s=10.0), EVERYBODY)), 1.0))
    assert isinstance(first, Report)
    names = {told.client: set(told.subscriptions) for told in first.clients}
    assert [len(names[client]) for client in ("C1", "C2")] == [2, 2]
    (shared,) = names["C1"] & names["C2"]
    host.streams = {"C1": {"#Alarm(1)": 120}, "C2": {"#Alarm(1)": 120, "#Alarm(2)": 0}}
    (second,) = said(agent.handle(Woken(), 11.0))
    assert isinstance(second, Report)
    assert second.clients == ()
    assert second.rates_bytes_per_s == {shared: 5.0}  # 50 bytes of results in ten seconds


def test_orders_become_moves_and_their_ends_are_told() -> None:
    agent, _, _ = led()
    order = to_values(Moves(life="l", cause="l/60/1", moves=(("C1", "B2"), ("C2", "B3"))), "B1")
    assert agent.handle(Heard(order), 2.0) == [MoveClient("C1", "B2", "l/60/1"), MoveClient("C2", "B3", "l/60/1")]
    assert said(agent.handle(ClientLeft("C1", "l/60/1"), 3.0)) == [
        MoveResult(life="l", broker="B1", client="C1", cause="l/60/1", is_moved=True)
    ]
    assert said(agent.handle(ClientStayed("C2", "l/60/1", "it publishes"), 3.0)) == [
        MoveResult(life="l", broker="B1", client="C2", cause="l/60/1", is_moved=False, reason="it publishes")
    ]
    assert agent.handle(ClientLeft("C2", "scenario"), 4.0) == []
    stale = to_values(Moves(life="before", cause="before/1", moves=(("C1", "B2"),)), "B1")
    assert agent.handle(Heard(stale), 5.0) == []


def test_a_coordinator_that_is_silent_is_told_nothing_more_and_one_that_returns_everything() -> None:
    agent, _, _ = led()
    for number in range(3):
        assert len(said(agent.handle(Woken(), 11.0 + 10 * number))) == 1
    assert agent.handle(Woken(), 41.0) == []
    assert agent.wake_at_s() is None and not agent.observes
    again = to_values(Present(life="l", report_every_s=10.0), EVERYBODY)
    (report,) = said(agent.handle(Heard(again), 100.0))
    assert isinstance(report, Report)
    assert report.is_whole and len(report.clients) == 2


def test_a_long_report_comes_in_parts_that_mention_everybody_once() -> None:
    filters = [Filter.parse(f"n = {number}") for number in range(100)]
    host = FakeHost("B1", {f"C{number}": filters for number in range(350)})
    agent = CoordinatedAgent()
    agent.start(host, 0.0)
    parts = said(agent.handle(Heard(to_values(Present(life="l", report_every_s=10.0), EVERYBODY)), 1.0))
    assert len(parts) == 4
    reports = [part for part in parts if isinstance(part, Report)]
    assert [report.is_whole for report in reports] == [True, False, False, False]
    assert [told.client for report in reports for told in report.clients] == list(host.served)
    coordinator = CoordinatorAgent(CoordinatorConfig(), Random(1), "l")
    coordinator.start(FakeHost("coordinator"), 0.0)
    for part in parts:
        coordinator.handle(Heard(to_values(part, "B1")), 2.0)
    assert coordinator.coordinator.population.clients_count == 350
    assert max(len(str(to_values(part, "B1")["body"])) for part in parts) < 500_000


def test_the_coordinator_orders_places_and_sends_its_own_clients_on() -> None:
    agent = CoordinatorAgent(CoordinatorConfig(placement="round-robin", policy="ldm"), Random(1), "l")
    started = agent.start(FakeHost("coordinator"), 0.0)
    assert said(started) == [Present(life="l", report_every_s=10.0)]
    assert agent.place("X", None, 0.5) == ClientPlacement("", "", "no broker has reported yet")
    for broker, clients in (("B1", 4), ("B2", 0)):
        report = Report(
            life="l",
            broker=broker,
            is_whole=True,
            clients=tuple(ClientTold(f"C{number}", (f"k{number}",)) for number in range(clients)),
            rates_bytes_per_s={f"k{number}": 1000.0 for number in range(clients)},
            address=f"host:{broker}",
        )
        assert agent.handle(Heard(to_values(report, broker)), 55.0) == []
    assert agent.place("X", None, 56.0) == ClientPlacement("B1", "host:B1")
    assert agent.handle(ClientSubscribed("Y"), 57.0) == [MoveClient("Y", "B2", "l/placed")]
    actions = agent.handle(Woken(), 60.0)
    assert said(actions)[0] == Present(life="l", report_every_s=10.0)
    (moves,) = [each for each in said(actions) if isinstance(each, Moves)]
    assert sorted(moves.moves) == [("C0", "B2"), ("C1", "B2")]
    assert agent.report().decision.startswith("round 1: cov 1.000 over 2 brokers: 2 moves")
    for client, _ in moves.moves:
        ended = MoveResult(life="l", broker="B1", client=client, cause=moves.cause, is_moved=True)
        agent.handle(Heard(to_values(ended, "B1")), 61.0)
    assert agent.coordinator.moves_count == 2
    assert agent.coordinator.population.loads() == [4000.0, 4000.0]
