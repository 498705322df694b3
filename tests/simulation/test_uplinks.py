"""How output queues share a bandwidth: control first, where that is wanted."""

from __future__ import annotations

from trimtab.broker.config import BrokerConfig
from trimtab.broker.core import Broker
from trimtab.broker.peers import Peer
from trimtab.protocol.link import Link, LinkConfig
from trimtab.protocol.messages import Confirmed, Publish
from trimtab.simulation.uplinks import ControlFirst


def broker_with(*names: str) -> Broker:
    broker = Broker(BrokerConfig("B1"))
    for name in names:
        broker.peers[name] = Peer(name, "client", "s", Link(LinkConfig()), 100)
        broker.peers[name].link.data.append(Publish(publisher="p", sequence=1, values={}, origin_s=0.0))
    return broker


def test_whoever_a_control_message_waits_for_comes_before_the_others_which_go_in_turn() -> None:
    broker = broker_with("a", "b", "c")
    line = ControlFirst(broker)
    for name in ("a", "b", "c"):
        line[name] = None
    broker.peers["c"].link.enqueue(Confirmed(id="x"), 0.0)
    line["c"] = None
    assert [line.popitem()[0] for _ in range(4)] == ["c", "a", "b", "c"]
    assert not line


def test_a_peer_with_more_to_send_goes_to_the_end() -> None:
    line = ControlFirst(broker_with("a", "b"))
    line["a"] = None
    line["b"] = None
    assert line.popitem()[0] == "a"
    line.setdefault("a")
    assert [line.popitem()[0] for _ in range(2)] == ["b", "a"]
