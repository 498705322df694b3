"""Whose turn it is to send: earliest deadline first, and a fair share for the late and those without requirement."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from trimtab.broker.flow.fair_queue import PATIENT_EVERY_COUNT, FairScheduler


class Queues:
    """Messages that wait, and a world that tells of them."""

    def __init__(self) -> None:
        self.turns = FairScheduler()
        self.counts: Counter[str] = Counter()
        self.within_s: dict[str, float | None] = {}

    def queue(self, peer: str, within_s: float | None, now_s: float, count: int = 1) -> None:
        self.counts[peer] += count
        self.within_s[peer] = within_s
        self.turns.waits(peer, self.counts[peer], within_s, now_s)

    def take(self, now_s: float) -> str:
        peer = self.turns.take(now_s)
        if peer:
            self.counts[peer] -= 1
            if self.counts[peer]:
                self.turns.waits(peer, self.counts[peer], self.within_s[peer], now_s)
        return peer

    def drain(self, now_s: float, count: int = 1_000) -> list[str]:
        order: list[str] = []
        while len(order) < count and (peer := self.take(now_s)):
            order.append(peer)
        return order


def test_the_earliest_deadline_goes_first_whoever_was_queued_first() -> None:
    queues = Queues()
    queues.queue("slow", 10.0, 0.0)
    queues.queue("fast", 1.0, 0.2)
    queues.queue("middle", 5.0, 0.1)
    assert queues.drain(0.3) == ["fast", "middle", "slow"]


def test_an_older_message_of_a_patient_subscriber_comes_before_a_newer_one_of_an_urgent_one() -> None:
    queues = Queues()
    queues.queue("slow", 10.0, 0.0)
    queues.queue("fast", 1.0, 9.5)
    assert queues.take(9.6) == "slow"


def test_one_peers_messages_are_due_one_after_the_other() -> None:
    queues = Queues()
    for time_s in (0.0, 0.1, 0.2):
        queues.queue("a", 1.0, time_s)
    queues.queue("b", 0.95, 0.1)
    assert queues.drain(0.3) == ["a", "b", "a", "a"]


def test_without_requirements_peers_take_turns() -> None:
    queues = Queues()
    for peer in ("a", "b", "c"):
        queues.queue(peer, None, 0.0, 3)
    assert queues.drain(0.0) == ["a", "b", "c"] * 3


def test_those_without_a_requirement_get_one_frame_in_four() -> None:
    queues = Queues()
    queues.queue("urgent", 1.0, 0.0, 60)
    queues.queue("a", None, 0.0, 60)
    queues.queue("b", None, 0.0, 60)
    assert Counter(queues.drain(0.1, 40)) == {"urgent": 30, "a": 5, "b": 5}


def test_who_is_late_waits_with_the_patient_and_does_not_make_others_late() -> None:
    """A heavy subscriber has a backlog that is late: another's message is still in time."""
    queues = Queues()
    queues.queue("heavy", 0.5, 0.0, 1_000)
    queues.queue("light", 0.5, 1.0)
    assert "light" in queues.drain(1.1, 2)


def test_who_is_late_is_urgent_again_when_its_backlog_is_gone() -> None:
    queues = Queues()
    queues.queue("a", 0.5, 0.0)
    queues.queue("b", 0.5, 1.0)
    queues.queue("a", 0.4, 1.05)
    queues.queue("c", None, 1.0, 2)
    assert queues.drain(1.1) == ["b", "c", "a", "a", "c"]


def test_messages_that_were_given_up_do_not_make_those_behind_older() -> None:
    queues = Queues()
    queues.queue("a", 1.0, 0.0, 5)
    queues.queue("a", 1.0, 0.9, 1)
    queues.turns.waits("a", 1, 1.0, 0.9)
    queues.counts["a"] = 1
    queues.take(0.95)
    queues.queue("a", 1.0, 1.0)
    queues.queue("b", 1.5, 0.6)
    assert queues.drain(1.0) == ["a", "b"]


def test_a_peer_may_be_taken_out_of_turn() -> None:
    queues = Queues()
    queues.queue("a", 1.0, 0.0)
    queues.queue("b", 2.0, 0.0)
    assert queues.turns.take_this("b") == "b"
    assert queues.turns.peers() == ["a"]
    assert queues.drain(0.0) == ["a"]


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.floats(0, 0.2), st.integers(0, 3)), max_size=200))
def test_nobody_starves_and_nothing_is_forgotten(steps: list[tuple[str, float, int]]) -> None:
    """Who has no requirement gets a frame before others have had some four for each peer."""
    within_s = {"a": 0.01, "b": 0.1, "c": 1.0, "d": 30.0, "e": None, "f": None}
    queues = Queues()
    now_s = 0.0
    queued: Counter[str] = Counter()
    sent: Counter[str] = Counter()
    waited: dict[str, int] = {}
    for peer, pause_s, count in steps:
        now_s += pause_s
        queues.queue(peer, within_s[peer], now_s)
        queued[peer] += 1
        for taken in queues.drain(now_s, count):
            sent[taken] += 1
            waited = {each: waited.get(each, 0) + 1 for each in "ef" if sent[each] < queued[each] and each != taken}
            assert all(frames_count <= PATIENT_EVERY_COUNT * 7 for frames_count in waited.values())
    sent += Counter(queues.drain(now_s))
    assert sent == queued


@given(st.lists(st.floats(0.05, 2.0), min_size=1, max_size=40))
def test_if_any_order_keeps_all_deadlines_this_one_does(within_s: list[float]) -> None:
    """All queued at once, one frame each 10 ms: sorting by deadline is the best order there is."""
    if any(0.01 * (place + 1) > each_s for place, each_s in enumerate(sorted(within_s))):
        return
    queues = Queues()
    peers = {f"p{number}": each_s for number, each_s in enumerate(within_s)}
    for peer, each_s in peers.items():
        queues.queue(peer, each_s, 0.0)
    now_s = 0.0
    for _ in peers:
        taken = queues.take(now_s)
        now_s += 0.01
        assert now_s <= peers[taken] + 1e-9
