"""Figure 5 and algorithm 5: what waits for a route, and what is kept for late subscriptions; the end of two ways."""

from collections import deque

from trimtab.language import Filter
from trimtab.protocol.codec import encode_message
from trimtab.protocol.frames import Sendable
from trimtab.protocol.messages import Publish, Unadvertise
from trimtab.replication.kept import KeptPublications
from trimtab.replication.merge import OrderedMerge
from trimtab.replication.scheduling import put_back
from trimtab.replication.wait_ready import WaitReadyQueue


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
    kept = KeptPublications(max_count=10)
    kept.add(publication(1, x=1), "N1", ["N2"])
    kept.add(publication(2, x=9), "N1", [])
    assert kept.for_neighbour("N3", Filter.parse("x > 0")) == [publication(1, x=1), publication(2, x=9)]
    assert kept.for_neighbour("N3", Filter.parse("x > 5")) == []
    assert kept.for_neighbour("N2", Filter.parse("x > 0")) == [publication(2, x=9)]
    assert kept.for_neighbour("N1", Filter.parse("x > 0")) == []


def test_a_client_gets_what_any_of_its_filters_wants_in_the_order_of_passing() -> None:
    kept = KeptPublications(max_count=2)
    for sequence, x in ((1, 9), (2, 1), (3, 9)):
        kept.add(publication(sequence, x), "N1", [])
    assert kept.for_client([Filter.parse("x > 5"), Filter.parse("x < 2")]) == [publication(2, x=1), publication(3, x=9)]
    assert kept.forgotten_count == 1


def test_what_an_assistant_did_not_get_takes_its_place_in_the_usual_queue_before_the_end_of_its_routes() -> None:
    queue: deque[Sendable] = deque([publication(2), encode_message(publication(5)), Unadvertise(id="a1")])
    put_back(queue, [publication(1), publication(4), publication(6)])
    assert list(queue) == [
        publication(1),
        publication(2),
        publication(4),
        encode_message(publication(5)),
        publication(6),
        Unadvertise(id="a1"),
    ]


def test_when_one_way_is_left_all_goes_on_and_it_is_known_what_may_come_late() -> None:
    out: list[int] = []
    merge = OrderedMerge(lambda source, message: out.append(message.sequence))
    merge.came("assistant", "R", publication(6))
    merge.came("assistant", "R", publication(3))
    merge.came("usual", "F", publication(4))
    assert merge.has_later_than(publication(5))
    assert not merge.has_later_than(publication(6))
    assert merge.end() == [("p", 1, 2), ("p", 5, 5)]
    assert out == [3, 4, 6]
