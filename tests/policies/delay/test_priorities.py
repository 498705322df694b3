"""Who is moved first (Table IV), and who moves together."""

from __future__ import annotations

import math

from trimtab.language import Filter
from trimtab.load.profiles import ClientProfile
from trimtab.policies.delay.metrics import Metric
from trimtab.policies.delay.priorities import (
    PUBLISHER_ORDER,
    Bundle,
    Locality,
    Waiting,
    grouped,
    in_order,
    reach_of,
)


def bundle(
    name: str, *, wait_s: float = 1.0, reach: Locality = Locality.LOCAL, waiting: Waiting = Waiting.NOTHING
) -> Bundle:
    return Bundle(
        clients=(name,),
        bits=1,
        output_bytes_per_s=1.0,
        subscriptions_count=1,
        allowed_wait_s=wait_s,
        reach=reach,
        waiting=waiting,
    )


def names(bundles: list[Bundle]) -> str:
    return "".join(each.clients[0] for each in bundles)


BY_REACH = [
    bundle("n", reach=Locality.NONE),
    bundle("l", reach=Locality.LOCAL),
    bundle("b", reach=Locality.BOTH),
    bundle("r", reach=Locality.REMOTE),
]


def test_subscribers_of_remote_publishers_relieve_links_most() -> None:
    assert names(in_order(BY_REACH, Metric.DOWNLINK)) == "rbln"
    assert names(in_order(BY_REACH, Metric.UPLINK)) == "rbln"


def test_subscribers_without_publishers_go_first_when_matching_is_overloaded_and_all_others_are_alike() -> None:
    assert names(in_order(BY_REACH, Metric.MATCHING)) == "nlbr"


def test_subscribers_with_empty_queues_go_first_when_queues_are_too_long() -> None:
    bundles = [
        bundle("o", waiting=Waiting.TOO_LONG, wait_s=100.0),
        bundle("w", waiting=Waiting.SOMETHING),
        bundle("e", waiting=Waiting.NOTHING),
    ]
    assert names(in_order(bundles, Metric.QUEUE_DEPTH)) == "ewo"


def test_who_can_wait_longer_goes_first_and_who_has_no_requirement_before_all() -> None:
    bundles = [bundle("a", wait_s=0.5), bundle("b", wait_s=50.0), bundle("c", wait_s=math.inf)]
    assert names(in_order(bundles, Metric.QUEUE_DEPTH)) == "cba"


def test_publishers_that_nobody_hears_relieve_the_downlink_only() -> None:
    downlink, uplink = PUBLISHER_ORDER[Metric.DOWNLINK], PUBLISHER_ORDER[Metric.UPLINK]
    assert sorted(Locality, key=downlink.__getitem__) == [Locality.NONE, Locality.REMOTE, Locality.BOTH, Locality.LOCAL]
    assert sorted(Locality, key=uplink.__getitem__) == [Locality.REMOTE, Locality.BOTH, Locality.LOCAL, Locality.NONE]
    assert reach_of(has_local=False, has_remote=False) is Locality.NONE


def test_clients_with_the_same_or_nearly_the_same_interest_are_one_bundle() -> None:
    topic, part, other = (Filter.parse(text) for text in ("topic = 8", "topic = 8 AND n > 0", "topic = 9"))
    profiles = [
        ClientProfile("a", (topic,), 0b1111111111),
        ClientProfile("b", (part,), 0b1111111110),
        ClientProfile("c", (other,), 0b1 << 12),
        ClientProfile("d", (topic,), 0b1111111111),
        ClientProfile("e", (Filter.parse("topic = 10"),), 0),
        ClientProfile("f", (Filter.parse("topic = 11"),), 0),
    ]
    bundles = [[each.client for each in group] for group in grouped(profiles, 0.9)]
    assert bundles == [["a", "b", "d"], ["c"], ["e"], ["f"]]
