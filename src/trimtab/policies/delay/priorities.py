"""Who is to be moved first: groups of publishers at heads, groups of subscribers at edges, and bundles.

Source: R. Tao, S. Poslad, J. Bigham (2013), section IV.C.2, Table IV.

Publishers that nobody hears cost the downlink and help nobody; those heard elsewhere only may as well publish there.
Subscribers of distant publishers cost more than those of near ones. When queues are too long, moving those whose
queues are empty makes room at once, without anything to work off first. Clients that can wait longest go first.

Deviations:
- A bundle is not a topic but a set of clients whose interests overlap, by which sampled publications each was sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final

import msgspec

from trimtab.load.profiles import Bits, ClientProfile, union
from trimtab.policies.delay.metrics import Metric


class Locality(Enum):
    """Where a publisher's subscribers are, or a subscriber's publishers."""

    REMOTE = "remote only"
    BOTH = "remote and local"
    LOCAL = "local only"
    NONE = "nowhere"


class Waiting(Enum):
    """What waits for a subscriber."""

    NOTHING = "nothing waits"
    SOMETHING = "something waits, not too long"
    TOO_LONG = "too much waits"


def reach_of(*, has_local: bool, has_remote: bool) -> Locality:
    """The group of a client.

    >>> reach_of(has_local=True, has_remote=False).value
    'local only'
    """
    if has_remote:
        return Locality.BOTH if has_local else Locality.REMOTE
    return Locality.LOCAL if has_local else Locality.NONE


PUBLISHER_ORDER: Final[Mapping[Metric, Mapping[Locality, int]]] = {
    Metric.DOWNLINK: {Locality.NONE: 0, Locality.REMOTE: 1, Locality.BOTH: 2, Locality.LOCAL: 3},
    Metric.UPLINK: {Locality.REMOTE: 0, Locality.BOTH: 1, Locality.LOCAL: 2, Locality.NONE: 3},
}
"""P_n > P_r > P_r-l > P_l for the downlink, P_r > P_r-l > P_l > P_n for the uplink; lower numbers go first."""

_BY_DISTANCE: Final = {Locality.REMOTE: 0, Locality.BOTH: 1, Locality.LOCAL: 2, Locality.NONE: 3}
SUBSCRIBER_ORDER: Final[Mapping[Metric, Mapping[Locality, int]]] = {
    Metric.DOWNLINK: _BY_DISTANCE,
    Metric.UPLINK: _BY_DISTANCE,
    Metric.MATCHING: {Locality.NONE: 0, Locality.REMOTE: 1, Locality.BOTH: 1, Locality.LOCAL: 1},
}
"""Table IV by the places of publishers."""

QUEUE_ORDER: Final[Mapping[Waiting, int]] = {Waiting.NOTHING: 0, Waiting.SOMETHING: 1, Waiting.TOO_LONG: 2}
"""Table IV by what waits."""


class Bundle(msgspec.Struct, frozen=True, kw_only=True):
    """Clients that move together."""

    clients: tuple[str, ...]
    bits: Bits
    """The sampled publications that any of them was sent."""

    output_bytes_per_s: float
    """What sending to all of them takes."""

    subscriptions_count: int
    allowed_wait_s: float
    """The shortest of theirs; infinite without requirements."""

    reach: Locality = Locality.LOCAL
    waiting: Waiting = Waiting.NOTHING


def rank(bundle: Bundle, metric: Metric) -> tuple[int, float]:
    """The place of a bundle among those to be moved: its group, then the longer wait first.

    >>> calm = Bundle(clients=("a",), bits=1, output_bytes_per_s=1.0, subscriptions_count=1, allowed_wait_s=30.0)
    >>> strict = msgspec.structs.replace(calm, clients=("b",), allowed_wait_s=0.5, waiting=Waiting.TOO_LONG)
    >>> [rank(each, Metric.QUEUE_DEPTH) for each in (calm, strict)]
    [(0, -30.0), (2, -0.5)]
    """
    group = QUEUE_ORDER[bundle.waiting] if metric is Metric.QUEUE_DEPTH else SUBSCRIBER_ORDER[metric][bundle.reach]
    return group, -bundle.allowed_wait_s


def in_order(bundles: Sequence[Bundle], metric: Metric) -> list[Bundle]:
    """The bundles, the one to be moved first at the front."""
    return sorted(bundles, key=lambda bundle: rank(bundle, metric))


def overlap_ratio(first: Bits, second: Bits) -> float:
    """Common publications among all of two interests; 1 for two that were sent nothing.

    >>> overlap_ratio(0b111, 0b011), overlap_ratio(0, 0)
    (0.6666666666666666, 1.0)
    """
    together = (first | second).bit_count()
    return (first & second).bit_count() / together if together else 1.0


def grouped(profiles: Sequence[ClientProfile], bundle_ratio: float) -> list[list[ClientProfile]]:
    """Clients with the same filters together, and with them those whose interests overlap by the ratio."""
    groups: list[list[ClientProfile]] = []
    places: dict[frozenset[object], int] = {}
    for profile in profiles:
        key = frozenset(profile.filters)
        place = places.get(key)
        if place is None and profile.bits:
            overlapping = (
                number
                for number, group in enumerate(groups)
                if group[0].bits and overlap_ratio(union(each.bits for each in group), profile.bits) >= bundle_ratio
            )
            place = next(overlapping, None)
        if place is None:
            place = len(groups)
            groups.append([])
        places[key] = place
        groups[place].append(profile)
    return groups
