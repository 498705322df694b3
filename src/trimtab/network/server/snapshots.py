"""What a broker's process tells of its clients when it is asked for a snapshot, while everything goes on as before.

Filters are read from the routing tables. What clients publish is noted where frames come in, for the time of the sample
and for nobody else: queues, tables and counters are not touched. Of each publisher a bounded number is kept, each of
its publications with the same probability, and all are counted. Between the frames of an answer the broker goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from random import Random
from typing import Final

from trimtab.broker.core import Broker
from trimtab.network.clock import now_s
from trimtab.protocol.codec import encode_frame, encode_message
from trimtab.protocol.frames import Payload
from trimtab.protocol.messages import Publish
from trimtab.protocol.snapshots import (
    AdvertisementTold,
    PublicationTold,
    PublisherTold,
    Snapshot,
    SnapshotRequest,
    SubscriptionTold,
)

KEPT_PER_PUBLISHER_MAX_COUNT: Final = 200
"""Publications of one publisher that are kept: shares of a tenth are then known to within two hundredths."""

KEPT_MAX_BYTES: Final = 8_000_000
"""All that is kept of one sample."""

PART_BYTES: Final = 200_000
"""About the size of one frame of an answer, which takes some milliseconds to write; a larger item goes alone."""

ITEM_MAX_BYTES: Final = 1_000_000
"""A larger publication is counted, but not told."""

SAMPLINGS_MAX_COUNT: Final = 4
"""Snapshots that are taken of a broker at the same time."""


class Sampling:
    """What clients publish during a while."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._counts: dict[str, int] = {}
        self._bytes: dict[str, int] = {}
        self._last: dict[str, int] = {}
        self._kept: dict[str, list[Publish]] = {}
        self._kept_bytes = 0

    def saw(self, publication: Publish) -> None:
        """A client published; what it sends again after a new connection counts once."""
        name = publication.publisher
        if publication.sequence <= self._last.get(name, 0):
            return
        self._last[name] = publication.sequence
        size_bytes = len(publication.wire or encode_message(publication)) + _FRAME_BYTES
        count = self._counts[name] = self._counts.get(name, 0) + 1
        self._bytes[name] = self._bytes.get(name, 0) + size_bytes
        kept = self._kept.setdefault(name, [])
        if size_bytes > ITEM_MAX_BYTES:
            return
        if len(kept) < KEPT_PER_PUBLISHER_MAX_COUNT:
            if self._kept_bytes + size_bytes <= KEPT_MAX_BYTES:
                kept.append(publication)
                self._kept_bytes += size_bytes
        elif (place := self._rng.randrange(count)) < len(kept):
            kept[place] = publication

    def publishers(self) -> list[PublisherTold]:
        """Who published how much."""
        return [PublisherTold(name, count, self._bytes[name] / count) for name, count in self._counts.items()]

    def publications(self) -> list[PublicationTold]:
        """What was kept."""
        return [PublicationTold(name, dict(each.values)) for name, kept in self._kept.items() for each in kept]

    @property
    def left_out_count(self) -> int:
        """Publications that were counted and not kept."""
        return sum(self._counts.values()) - sum(len(kept) for kept in self._kept.values())


_FRAME_BYTES: Final = len(encode_frame(Payload(1, 0, [b""])))


class Snapshots:
    """Takes snapshots of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.samplings: list[Sampling] = []
        """Those that are being taken; they want to see what clients send."""

    def saw(self, peer: str, frame: Payload) -> None:
        """A frame came in while samples are taken."""
        known = self._broker.peers.get(peer)
        if known is None or known.role != "client":
            return
        for message in frame.messages:
            if type(message) is Publish and message.publisher == peer:
                for sampling in self.samplings:
                    sampling.saw(message)

    async def take(self, request: SnapshotRequest) -> AsyncIterator[Snapshot]:
        """Note for a while what clients publish, then tell all that is known of them, part by part."""
        if len(self.samplings) >= SAMPLINGS_MAX_COUNT:
            yield Snapshot(is_last=True, problem=f"{SAMPLINGS_MAX_COUNT} others take a snapshot of this broker")
            return
        sampling = Sampling(Random(f"snapshot {self._broker.name}"))
        began_s = now_s()
        self.samplings.append(sampling)
        try:
            await asyncio.sleep(request.sample_s)
        finally:
            self.samplings.remove(sampling)
        for part in _parts(self._broker, sampling, now_s() - began_s):
            yield part
            await asyncio.sleep(0)


def _parts(broker: Broker, sampling: Sampling, sampled_s: float) -> Iterator[Snapshot]:
    """All that is told, in frames of a moderate size."""
    part, size_bytes = _Part(), 0
    for item in _items(broker, sampling):
        item_bytes = _size_bytes(item)
        if size_bytes and size_bytes + item_bytes > PART_BYTES:
            yield part.told(is_last=False)
            part, size_bytes = _Part(), 0
        part.add(item)
        size_bytes += item_bytes
    yield part.told(is_last=True, sampled_s=sampled_s, left_out_count=sampling.left_out_count)


_Item = SubscriptionTold | AdvertisementTold | PublisherTold | PublicationTold


def _items(broker: Broker, sampling: Sampling) -> Iterator[_Item]:
    tables = broker.tables
    for peer in list(broker.peers.values()):
        if peer.role != "client":
            continue
        for id, within_s in list(peer.subscriptions.items()):
            if id in tables.subscriptions:
                yield SubscriptionTold(peer.name, tables.subscriptions[id].filter, within_s)
        for id in list(peer.advertisements):
            if id in tables.advertisements:
                filter = tables.advertisements[id].filter
                yield AdvertisementTold(peer.name, filter.closed(), filter.is_open)
    yield from sampling.publishers()
    yield from sampling.publications()


def _size_bytes(item: _Item) -> int:
    """About how much an item takes in a frame."""
    match item:
        case SubscriptionTold(client=client, filter=filter) | AdvertisementTold(client=client, filter=filter):
            return 60 + len(client) + 4 * len(str(filter))
        case PublicationTold(publisher=publisher, values=values):
            texts = sum(4 * len(value) for value in values.values() if isinstance(value, str))
            return 40 + len(publisher) + texts + sum(20 + 4 * len(name) for name in values)
        case PublisherTold(client=client):
            return 60 + len(client)


class _Part:
    """What one frame will tell."""

    def __init__(self) -> None:
        self._items: list[_Item] = []

    def add(self, item: _Item) -> None:
        self._items.append(item)

    def told(self, *, is_last: bool, sampled_s: float = 0.0, left_out_count: int = 0) -> Snapshot:
        items = self._items
        return Snapshot(
            is_last=is_last,
            sampled_s=sampled_s,
            left_out_count=left_out_count,
            subscriptions=tuple(each for each in items if isinstance(each, SubscriptionTold)),
            advertisements=tuple(each for each in items if isinstance(each, AdvertisementTold)),
            publishers=tuple(each for each in items if isinstance(each, PublisherTold)),
            publications=tuple(each for each in items if isinstance(each, PublicationTold)),
        )
