"""GRAPE, section 4.1, item 7: the output delay is told for each neighbour and for the client binding."""

from __future__ import annotations

import pytest

from tests.policies.padres.hosts import FakeHost
from trimtab.broker.routing.tables import RoutingTables
from trimtab.language import Filter
from trimtab.policies.api import QueueReading
from trimtab.policies.delay.messages import DELAY
from trimtab.policies.multistage.messages import COORDINATED, COORDINATOR
from trimtab.policies.padres.messages import LB_CONTROL
from trimtab.policies.padres.snapshot import GLOBAL_PIE, LOCAL_PIE
from trimtab.policies.relocation.messages import RELOCATION
from trimtab.policies.relocation.own_delays import OwnDelays
from trimtab.protocol.messages import CONTROL_CLASSES

STOCK = Filter.parse("[class,eq,'STOCK']")


class Host(FakeHost):
    def neighbours(self) -> list[str]:
        return ["B0", "B2"]


def test_a_backlog_for_one_neighbour_is_not_told_of_the_others() -> None:
    """Ten publications a second go each way; 20 wait for B0, none for B2, and five for each of two clients."""
    host = Host("B1", {"alice": [STOCK], "bob": [STOCK]})
    delays = OwnDelays(host)
    for second in range(10):
        host.queues = {
            "B0": QueueReading(20 + 10 * second, 20),
            "B2": QueueReading(10 * second, 0),
            "alice": QueueReading(5 + 10 * second, 5),
            "bob": QueueReading(5 + 10 * second, 5),
        }
        assert delays.sample(100.0 + second)
    assert delays.outputs_s == {"B0": pytest.approx(2.0), "B2": 0.0}
    assert delays.clients_output_s == pytest.approx(0.5)


def test_a_client_that_leaves_takes_nothing_of_the_binding_with_it() -> None:
    host = Host("B1", {"alice": [STOCK], "bob": [STOCK]})
    delays = OwnDelays(host)
    for second in range(20):
        if second == 10:
            del host.served["bob"]
        host.queues = {name: QueueReading(5 + 10 * second, 5) for name in ("alice", "bob")}
        delays.sample(100.0 + second)
    assert delays.clients_output_s == pytest.approx(0.5)


def test_agents_subscriptions_cost_clients_publications_no_matching() -> None:
    """They stand in an index of their own, which only control publications are matched against."""
    tables = RoutingTables()
    tables.add_neighbour("B2")
    tables.add_subscription("c/1", STOCK, "carol")
    tables.add_subscription("B1/grape/1", Filter.where({"class": RELOCATION, "brokerID": "B1"}), "B1/grape")
    tables.add_subscription("any/1", Filter.parse("[brokerID,isPresent,'']"), "dave")
    assert (len(tables.subscriptions), tables.matched_count) == (3, 2)
    assert tables.hops_for({"class": "STOCK"}) == ["carol"]
    assert sorted(tables.hops_for({"class": RELOCATION, "brokerID": "B1"})) == ["B1/grape", "dave"]
    assert tables.hops_for({"class": RELOCATION, "brokerID": "B2"}) == ["dave"]
    tables.remove_subscription("B1/grape/1", "B1/grape")
    assert tables.hops_for({"class": RELOCATION, "brokerID": "B1"}) == ["dave"]
    assert tables.matched_count == 2


def test_all_classes_of_control_publications_are_known() -> None:
    classes = {LOCAL_PIE, GLOBAL_PIE, LB_CONTROL, RELOCATION, DELAY, COORDINATOR, COORDINATED}
    assert set(CONTROL_CLASSES) == classes
