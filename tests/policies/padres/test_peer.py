"""PEER: roles and redirections (thesis, section 3.2)."""

from __future__ import annotations

from random import Random

import pytest

from trimtab.policies.padres.peer import (
    BrokerRole,
    ClientKind,
    Topology,
    cluster_of,
    edge_brokers,
    moves_after_change,
    neighbouring_heads,
    redirect,
    roles,
)

TWO = Topology(("B0", "B1"), (("B0", "B1"),))
LOCAL = Topology(("B0", "B1", "B2", "B3", "B4"), (("B0", "B1"), ("B0", "B2"), ("B0", "B3"), ("B0", "B4")))
GLOBAL = Topology(
    ("B10", "B11", "B12", "B20", "B21", "B22"),
    (("B10", "B11"), ("B10", "B12"), ("B10", "B20"), ("B20", "B21"), ("B20", "B22")),
)


def test_two_brokers_serve_everybody() -> None:
    assert set(roles(TWO).values()) == {BrokerRole.UNCLASSIFIED}
    assert redirect(TWO, "B0", ClientKind.SUBSCRIBER, (), Random(1)) is None
    assert cluster_of(TWO, "B0") is None


def test_the_third_broker_makes_the_one_in_the_middle_a_cluster_head() -> None:
    three = Topology((*TWO.brokers, "B2"), (*TWO.links, ("B0", "B2")))
    assert roles(three) == {
        "B0": BrokerRole.CLUSTER_HEAD,
        "B1": BrokerRole.EDGE_BROKER,
        "B2": BrokerRole.EDGE_BROKER,
    }
    clients = {
        "B0": {"s": ClientKind.SUBSCRIBER, "p": ClientKind.PUBLISHER, "agent": ClientKind.AGENT},
        "B1": {"q": ClientKind.PUBLISHER, "t": ClientKind.SUBSCRIBER},
    }
    moves = moves_after_change(three, clients, (), Random(1))
    assert set(moves) == {"s", "q"}
    assert (moves["s"] in {"B1", "B2"}, moves["q"]) == (True, "B0")


def test_a_broker_that_connects_to_an_edge_broker_makes_it_a_cluster_head() -> None:
    grown = Topology((*LOCAL.brokers, "B5"), (*LOCAL.links, ("B4", "B5")))
    assert roles(grown)["B4"] == BrokerRole.CLUSTER_HEAD
    assert cluster_of(grown, "B5") == "B4"
    assert moves_after_change(grown, {"B4": {"s": ClientKind.SUBSCRIBER}}, (), Random(1)) == {"s": "B5"}


def test_clusters_of_the_thesis_global_experiment() -> None:
    assert [cluster_of(GLOBAL, name) for name in GLOBAL.brokers] == ["B10", "B10", "B10", "B20", "B20", "B20"]
    assert edge_brokers(GLOBAL, "B10") == ("B11", "B12")
    assert neighbouring_heads(GLOBAL, "B10") == ("B20",)


def test_subscribers_are_spread_over_edge_brokers_that_are_not_overloaded() -> None:
    rng = Random(7)
    targets = {redirect(LOCAL, "B0", ClientKind.SUBSCRIBER, {"B1", "B2"}, rng) for _ in range(50)}
    assert targets == {"B3", "B4"}
    everybody = {redirect(LOCAL, "B0", ClientKind.SUBSCRIBER, set(LOCAL.brokers), rng) for _ in range(50)}
    assert everybody == {"B1", "B2", "B3", "B4"}


def test_clients_at_the_right_kind_of_broker_stay() -> None:
    for name, kind in (("B0", ClientKind.PUBLISHER), ("B1", ClientKind.SUBSCRIBER), ("B1", ClientKind.AGENT)):
        assert redirect(LOCAL, name, kind, (), Random(1)) is None


def test_a_head_without_edge_brokers_sends_subscribers_to_the_nearest_cluster() -> None:
    chain = Topology(("A", "B", "C", "D", "E"), (("A", "B"), ("B", "C"), ("C", "D"), ("D", "E")))
    assert redirect(chain, "C", ClientKind.SUBSCRIBER, (), Random(1)) in {"A", "E"}


def test_a_link_to_an_unknown_broker_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown broker: B9"):
        Topology(("B0",), (("B0", "B9"),))
