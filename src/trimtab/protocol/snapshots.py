"""What a broker tells of its clients to somebody who wants to continue the network elsewhere: filters, rates, contents.

A snapshot is asked for without a greeting, and changes nothing: the broker only notes for a while what its own clients
publish. It comes in several frames, because thousands of filters do not fit into one; the last one says so.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from trimtab.language import Filter
from trimtab.protocol.messages import WireValue, Within

SAMPLE_MAX_S: Final = 300.0
"""A broker notes what its clients publish for no longer than this."""


class SnapshotRequest(msgspec.Struct, frozen=True, tag_field="frame", tag="snapshot?", omit_defaults=True):
    """Ask a broker what its clients want and announce, and what they publish during the next while; no greeting."""

    sample_s: Annotated[float, msgspec.Meta(ge=0, le=SAMPLE_MAX_S)] = 5.0


class SubscriptionTold(msgspec.Struct, frozen=True):
    """What a client wants, and within which time if it said."""

    client: str
    filter: Filter
    within_s: Within = None


class AdvertisementTold(msgspec.Struct, frozen=True):
    """What a client announces; `is_open` stands beside the filter, for programs that do not know of it."""

    client: str
    filter: Filter
    is_open: bool = False


class PublisherTold(msgspec.Struct, frozen=True):
    """What a client published during the sample."""

    client: str
    published_count: int
    size_bytes: float
    """The mean size of one of its publications in a frame of its own."""


class PublicationTold(msgspec.Struct, frozen=True):
    """One of the publications that were noted."""

    publisher: str
    values: dict[str, WireValue]


class Snapshot(msgspec.Struct, frozen=True, tag_field="frame", tag="snapshot", kw_only=True, omit_defaults=True):
    """A part of what a broker tells; all parts together are the whole."""

    is_last: bool
    sampled_s: float = 0.0
    """How long publications were noted."""
    left_out_count: int = 0
    """Publications that were counted but not kept, because they were too many or too large."""
    subscriptions: tuple[SubscriptionTold, ...] = ()
    advertisements: tuple[AdvertisementTold, ...] = ()
    publishers: tuple[PublisherTold, ...] = ()
    publications: tuple[PublicationTold, ...] = ()
    problem: str = ""
    """Why nothing is told, if so."""


def joined(parts: list[Snapshot]) -> Snapshot:
    """All parts as one.

    >>> joined([Snapshot(is_last=False, left_out_count=2), Snapshot(is_last=True, sampled_s=5.0)])
    Snapshot(is_last=True, sampled_s=5.0, left_out_count=2, subscriptions=(), advertisements=(), publishers=(), \
publications=(), problem='')
    """
    return Snapshot(
        is_last=True,
        sampled_s=max(part.sampled_s for part in parts),
        left_out_count=sum(part.left_out_count for part in parts),
        subscriptions=tuple(each for part in parts for each in part.subscriptions),
        advertisements=tuple(each for part in parts for each in part.advertisements),
        publishers=tuple(each for part in parts for each in part.publishers),
        publications=tuple(each for part in parts for each in part.publications),
        problem=next((part.problem for part in parts if part.problem), ""),
    )
