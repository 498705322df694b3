"""How peers share a bandwidth: control first, then in turn, by deadline, or first in, first out."""

from __future__ import annotations

from trimtab.broker.flow.uplink import AnyUplink, UplinkScheduler
from trimtab.broker.peers import Peer
from trimtab.protocol.link import Link, LinkConfig
from trimtab.protocol.messages import Confirmed, Publish


def peers_with_data(*names: str) -> dict[str, Peer]:
    peers = {name: Peer(name, "client", "s", Link(LinkConfig()), 100) for name in names}
    for peer in peers.values():
        peer.link.data.append(Publish(publisher="p", sequence=1, values={}, origin_s=0.0))
    return peers


def order_of(policy: AnyUplink) -> list[str]:
    peers = peers_with_data("a", "b", "c")
    uplink = UplinkScheduler(peers, policy)
    for name in peers:
        uplink.add([name], 0.0)
    peers["c"].link.enqueue(Confirmed(id="x"), 0.0)
    uplink.add(["c"], 0.0)
    taken = [uplink.take(0.0) for _ in range(4)]
    assert not uplink
    return taken


def test_whoever_a_control_message_waits_for_comes_before_the_others() -> None:
    assert order_of("turns") == ["c", "a", "b", "c"]
    assert order_of("deadlines") == ["c", "a", "b", "c"]


def test_first_in_first_out_knows_no_classes() -> None:
    assert order_of("fifo") == ["a", "b", "c", "c"]


def test_a_peer_with_more_to_send_goes_to_the_end() -> None:
    uplink = UplinkScheduler(peers_with_data("a", "b"))
    uplink.add(["a"], 0.0)
    uplink.add(["b"], 0.0)
    assert uplink.take(0.0) == "a"
    uplink.goes_on("a", 0.0)
    assert [uplink.take(0.0), uplink.take(0.0)] == ["b", "a"]


def test_first_in_first_out_gives_one_place_to_what_goes_on() -> None:
    uplink = UplinkScheduler(peers_with_data("a", "b"), "fifo")
    for name in ("a", "b", "a"):
        uplink.add([name], 0.0)
    assert uplink.take(0.0) == "a"
    uplink.goes_on("a", 0.0)  # has a place already
    assert [uplink.take(0.0), uplink.take(0.0)] == ["b", "a"]
    assert not uplink


def test_the_most_urgent_deadline_goes_first() -> None:
    peers = peers_with_data("relaxed", "urgent")
    peers["relaxed"].subscriptions["s1"] = 30.0
    peers["urgent"].subscriptions["s2"] = 1.0
    uplink = UplinkScheduler(peers, "deadlines")
    uplink.add(["relaxed"], 0.0)
    uplink.add(["urgent"], 0.5)
    assert [uplink.take(0.6), uplink.take(0.6)] == ["urgent", "relaxed"]
