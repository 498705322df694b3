"""Figure 5 and algorithm 5: what waits for a route, and what is kept for late subscriptions; the end of two ways."""

from collections import deque

from trimtab.broker.replication.merge import OrderedMerge
from trimtab.broker.replication.publication_store import PublicationStore
from trimtab.broker.replication.wait_ready import WaitReadyQueue
from trimtab.language import Filter
from trimtab.protocol.frames import Sendable
from trimtab.protocol.messages import Publish, Unadvertise


def publication(sequence: int, x: int = 0) -> Publish:
    return Publish(publisher="p", sequence=sequence, values={"x": x}, origin_s=0.0)


def matching(message: Publish | bytes) -> list[str]:
    """The subscriptions of figure 5: p1 matches S1 and S2, p2 matches S2, p3 matches S3."""
    assert isinstance(message, Publish)
    return {1: ["S1", "S2"], 2: ["S2"], 3: ["S3"]}.get(message.sequence, [])


def test_publications_wait_under_each_subscription_and_go_on_once() -> None:
    ready: deque[Sendable] = deque()
    queue = WaitReadyQueue(ready, matching)
    for sequence in (1, 2, 3):
        queue.append(publication(sequence))
    assert len(queue) == 3
    queue.make_ready("S2")
    assert list(ready) == [publication(1), publication(2)]
    queue.make_ready("S1")
    assert list(ready) == [publication(1), publication(2)]
    queue.append(publication(2))
    assert list(ready)[2:] == [publication(2)]


def test_the_rest_and_markers_go_on_when_the_replica_is_complete() -> None:
    ready: deque[Sendable] = deque()
    queue = WaitReadyQueue(ready, matching)
    queue.append(publication(3))
    queue.append(Unadvertise(id="a1"))
    assert queue.waiting() == [publication(3), Unadvertise(id="a1")]
    queue.end()
    assert list(ready) == [publication(3), Unadvertise(id="a1")]


def test_a_late_subscription_gets_what_passed_once_for_each_neighbour() -> None:
    kept = PublicationStore(max_count=10)
    kept.add(publication(1, x=1), "N1", ["N2"])
    kept.add(publication(2, x=9), "N1", [])
    assert kept.for_neighbour("N3", Filter.parse("x > 0")) == [publication(1, x=1), publication(2, x=9)]
    assert kept.for_neighbour("N3", Filter.parse("x > 5")) == []
    assert kept.for_neighbour("N2", Filter.parse("x > 0")) == [publication(2, x=9)]
    assert kept.for_neighbour("N1", Filter.parse("x > 0")) == []


def test_a_client_gets_what_any_of_its_filters_wants_in_the_order_of_passing() -> None:
    kept = PublicationStore(max_count=2)
    for sequence, x in ((1, 9), (2, 1), (3, 9)):
        kept.add(publication(sequence, x), "N1", [])
    assert kept.for_client([Filter.parse("x > 5"), Filter.parse("x < 2")]) == [publication(2, x=1), publication(3, x=9)]
    assert kept.forgotten_count == 1


def test_when_one_way_is_left_all_goes_on_in_order_and_what_came_twice_goes_on_twice() -> None:
    merge = OrderedMerge()
    for way, source, sequence in (("assistant", "R", 6), ("assistant", "R", 3), ("usual", "F", 4), ("usual", "F", 3)):
        merge.came(way, (source, publication(sequence), None))  # type: ignore[arg-type]
    assert (merge.take(), len(merge), merge.holds_until(4), merge.holds_until(0)) == ([], 4, True, False)
    merge.end()
    assert [(source, message.sequence) for source, message, _ in merge.take()] == [
        ("R", 3),
        ("F", 3),
        ("F", 4),
        ("R", 6),
    ]
    assert not merge.holds_until(4)
