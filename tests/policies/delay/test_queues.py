"""Whose queue counts as too long: not that of a subscriber that does not read, and not where the uplink has room."""

from __future__ import annotations

from tests.policies.padres.hosts import FakeHost
from trimtab.language import Filter
from trimtab.load.indices import LoadIndices
from trimtab.policies.api import QueueReading
from trimtab.policies.delay.config import DelayConfig
from trimtab.policies.delay.priorities import Waiting
from trimtab.policies.delay.queues import Queues, Ways

FILTER = Filter.parse("topic = 8")


class DemandingHost(FakeHost):
    """Every client wants everything within a second."""

    def requirements_of(self, client: str) -> list[float | None]:
        return [1.0 for _ in self.filters_of(client)]


def load(uplink_ratio: float) -> LoadIndices:
    return LoadIndices(100.0, 0.001, 1_000.0, 0.1, uplink_ratio, 0.1, 0, 0, 0, 0, 0)


def overloaded_after(readings: list[QueueReading], uplink_ratio: float = 1.1) -> list[str]:
    host = DemandingHost("b1", {"S": [FILTER]})
    queues = Queues(host, DelayConfig())
    for number, reading in enumerate(readings):
        host.queues["S"] = reading
        queues.read(load(uplink_ratio), Ways(), 0.5, 10.0, number * 0.5)
    return queues.overloaded()


GROWING = [QueueReading(100 * number, 30 * number) for number in range(5)]


def test_a_queue_that_grows_beyond_its_threshold_is_found_at_the_second_reading() -> None:
    assert overloaded_after(GROWING[:3]) == ["S"]
    assert overloaded_after(GROWING[:2]) == []


def test_a_queue_that_grows_though_the_uplink_has_room_is_nobodys_overload() -> None:
    assert overloaded_after(GROWING, uplink_ratio=0.5) == []


def test_a_subscriber_that_does_not_read_is_nobodys_overload() -> None:
    held = [QueueReading(each.entered_count, each.queued_count, True) for each in GROWING]
    assert overloaded_after(held) == []


def test_the_way_to_a_subscriber_is_taken_from_what_it_may_wait() -> None:
    host = DemandingHost("b1", {"near": [FILTER], "far": [FILTER]})
    queues = Queues(host, DelayConfig())
    ways = Ways(publisher_head_s=0.1, head_s=0.05, head_edge_s=0.1, subscriber_round_trips_s={"near": 0.1, "far": 0.4})
    queues.read(load(0.5), ways, 0.5, 0.0, 0.0)
    assert {client: round(wait_s, 3) for client, wait_s in queues.waits_s.items()} == {"near": 0.699, "far": 0.549}


def test_one_that_was_not_measured_counts_as_far_as_the_farthest() -> None:
    ways = Ways(subscriber_round_trips_s={"near": 0.1, "far": 0.4})
    assert ways.edge_subscriber_s("new") == 0.2


def test_a_bundle_waits_as_its_worst_member_does() -> None:
    host = DemandingHost("b1", {"S": [FILTER], "T": [FILTER]})
    queues = Queues(host, DelayConfig())
    host.queues = {"S": QueueReading(5, 1), "T": QueueReading(5, 0)}
    queues.read(load(1.1), Ways(), 0.5, 10.0, 0.0)
    assert queues.waiting(["T"]) is Waiting.NOTHING
    assert queues.waiting(["S", "T"]) is Waiting.SOMETHING
