"""PRESS: which of a sample of publications each subscriber matches, as bit sets, and what follows from that.

Source: A. Cheung, dynamic load balancing in distributed content-based publish/subscribe (thesis, 2006), section 4.1.1,
equations 4.1 to 4.6, Table 4.1.

A broker that wants to give load away looks at the next N publications that it receives and notes for each of its
subscribers which of them it matched, and which of them the accepting broker receives anyway (it knows that broker's
covering subscription set). Each note is one bit, so that "what would come in addition" is one AND-NOT and a count of
bits. Rates and bandwidths follow from the counts and from the rate at which publications arrived meanwhile.

Deviations:
- The unit is a client with all of its subscriptions, since clients move as a whole. A broker sends a publication to a
  client once, however many of its subscriptions match; a client's bits are therefore the union of theirs.
- Bandwidth is computed from the sizes of the publications that were matched, not from the mean size of all.
- Bits are tied to publication ids. Samples that several brokers took of the same time can so be laid over each other
  (`on_common_window`), and a publication seen twice counts once.
- Publications that a broker receives whatever its clients want (in transit, or published by its own clients) are noted
  as `fixed_bits`; no move of clients reduces them. In the thesis's clusters there are none at edge-brokers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from trimtab.language import Filter

Bits: TypeAlias = int
"""A set of sampled publications: bit i stands for the i-th of the window."""

PublicationId: TypeAlias = tuple[str, int]
"""A publisher, with its session where that matters, and a sequence number."""


def union(vectors: Iterable[Bits]) -> Bits:
    """Publications in any of the sets (OR, equations 4.3 and 4.6).

    >>> f"{union([0b110000, 0b000001, 0b000000]):06b}"
    '110001'
    """
    together = 0
    for bits in vectors:
        together |= bits
    return together


def and_not(bits: Bits, others: Bits) -> Bits:
    """Publications in the first set only (ANDNOT, equation 4.4).

    >>> f"{and_not(0b110111, 0b110001):06b}"
    '000110'
    """
    return bits & ~others


def only_once(vectors: Iterable[Bits]) -> Bits:
    """Publications in exactly one of the sets: what a broker would no longer receive if that one left.

    >>> f"{only_once([0b1100, 0b0110, 0b0001]):04b}"
    '1011'
    """
    once = several = 0
    for bits in vectors:
        several |= once & bits
        once |= bits
    return once & ~several


def publication_rate_per_s(matched_count: int, sample_count: int, input_rate_per_s: float) -> float:
    """The rate of publications of which so many of the sample matched (s_PR, equation 4.1).

    >>> publication_rate_per_s(5, 6, input_rate_per_s=3.0)
    2.5
    """
    return input_rate_per_s * matched_count / sample_count if sample_count else 0.0


class ClientProfile(msgspec.Struct, frozen=True):
    """A client, what it subscribes to, and which of the sampled publications it was sent."""

    client: str
    filters: tuple[Filter, ...]
    bits: Bits


class Interest(msgspec.Struct, frozen=True):
    """What one or more clients of a broker want in common: the same filters, hence the same publications."""

    filters: tuple[Filter, ...]
    clients: tuple[str, ...]
    bits: Bits

    @property
    def subscriptions_per_client_count(self) -> int:
        """Subscriptions that move with each of these clients."""
        return len(self.filters)

    def __str__(self) -> str:
        """The filters, for people."""
        return " or ".join(str(filter) for filter in self.filters)


class Sample(msgspec.Struct, frozen=True):
    """What a broker noted while it sampled."""

    publications: tuple[PublicationId, ...]
    """The window; bit i of every bit set is its i-th publication."""

    sizes_bytes: tuple[int, ...]
    """The size of each of them on the wire."""

    duration_s: float
    input_rate_per_s: float
    """The rate at which publications arrived meanwhile (i_r of equation 4.1)."""

    clients: tuple[ClientProfile, ...]
    accepted_bits: Bits = 0
    """Publications that the accepting broker receives anyway: the union over its covering set (equation 4.3)."""

    fixed_bits: Bits = 0
    """Publications that this broker receives whatever its clients want."""

    @property
    def sample_count(self) -> int:
        """The publications looked at (N)."""
        return len(self.publications)

    @property
    def mean_size_bytes(self) -> float:
        """The mean size of the publications looked at."""
        return sum(self.sizes_bytes) / len(self.sizes_bytes) if self.sizes_bytes else 0.0

    def rate_per_s(self, bits: Bits) -> float:
        """The rate of the publications in a set (equation 4.1)."""
        return publication_rate_per_s(bits.bit_count(), self.sample_count, self.input_rate_per_s)

    def bandwidth_bytes_per_s(self, bits: Bits) -> float:
        """The bandwidth that sending the publications in a set to one client takes."""
        if not self.sizes_bytes:
            return 0.0
        return total_size_bytes(bits, self.sizes_bytes) * self.input_rate_per_s / self.sample_count

    def additional_rate_per_s(self, bits: Bits) -> float:
        """What wanting these publications would add to the accepting broker's input (equations 4.4 and 4.5)."""
        return self.rate_per_s(and_not(bits, self.accepted_bits))

    def interests(self) -> tuple[Interest, ...]:
        """The clients grouped by what they want, in the order in which they are listed."""
        groups: dict[frozenset[Filter], list[ClientProfile]] = {}
        for client in self.clients:
            groups.setdefault(frozenset(client.filters), []).append(client)
        return tuple(
            Interest(same[0].filters, tuple(client.client for client in same), union(client.bits for client in same))
            for same in groups.values()
        )


def total_size_bytes(bits: Bits, sizes_bytes: Sequence[int]) -> int:
    """The sizes of the publications in a set together.

    >>> total_size_bytes(0b101, (300, 310, 320))
    620
    """
    total = 0
    while bits:
        lowest = bits & -bits
        total += sizes_bytes[lowest.bit_length() - 1]
        bits ^= lowest
    return total


class Sampler:
    """Takes one sample: from its beginning until N publications have been seen or its time is over.

    >>> sampler = Sampler(sample_count=2, timeout_s=30.0, now_s=100.0)
    >>> sampler.saw(("p", 1), 300, ["alice", "bob"], accepted=True)
    >>> sampler.is_over(100.5)
    False
    >>> sampler.saw(("p", 2), 320, ["bob"])
    >>> sampler.is_over(101.0)
    True
    >>> stock = Filter.parse("[class,eq,'STOCK']")
    >>> sample = sampler.sample({"alice": (stock,), "bob": (stock,), "carol": (stock,)}, 101.0)
    >>> [(each.client, f"{each.bits:02b}") for each in sample.clients], f"{sample.accepted_bits:02b}"
    ([('alice', '01'), ('bob', '11'), ('carol', '00')], '01')
    >>> sample.input_rate_per_s
    2.0
    """

    def __init__(self, sample_count: int, timeout_s: float, now_s: float) -> None:
        if sample_count < 1 or timeout_s <= 0:
            raise ValueError("a sample needs at least one publication and some time")
        self._wanted_count = sample_count
        self._started_s = now_s
        self.ends_at_s = now_s + timeout_s
        self._positions: dict[PublicationId, int] = {}
        self._sizes_bytes: list[int] = []
        self._bits: dict[str, Bits] = {}
        self._accepted_bits = 0
        self._fixed_bits = 0

    def saw(
        self,
        publication: PublicationId,
        size_bytes: int,
        clients: Iterable[str],
        *,
        accepted: bool = False,
        fixed: bool = False,
    ) -> None:
        """Note a publication: to which clients it goes, whether the accepting broker's covering set matches it, and
        whether it would come here even without these clients. Repeated ones, and those beyond N, are left out."""
        position = len(self._sizes_bytes)
        if position >= self._wanted_count or publication in self._positions:
            return
        self._positions[publication] = position
        self._sizes_bytes.append(size_bytes)
        bit = 1 << position
        for client in clients:
            self._bits[client] = self._bits.get(client, 0) | bit
        if accepted:
            self._accepted_bits |= bit
        if fixed:
            self._fixed_bits |= bit

    @property
    def seen_count(self) -> int:
        """The publications noted."""
        return len(self._sizes_bytes)

    def is_over(self, now_s: float) -> bool:
        """Whether enough was seen or the time has passed."""
        return self.seen_count >= self._wanted_count or now_s >= self.ends_at_s

    def sample(
        self, clients: Mapping[str, tuple[Filter, ...]], now_s: float, input_rate_per_s: float | None = None
    ) -> Sample:
        """What was noted about these clients: those that the broker still serves, each with all of its filters.

        The input rate is that of the sample itself, unless the broker has a better one.
        """
        duration_s = now_s - self._started_s
        if input_rate_per_s is None:
            input_rate_per_s = self.seen_count / duration_s if duration_s > 0 else 0.0
        return Sample(
            publications=tuple(self._positions),
            sizes_bytes=tuple(self._sizes_bytes),
            duration_s=duration_s,
            input_rate_per_s=input_rate_per_s,
            clients=tuple(
                ClientProfile(client, filters, self._bits.get(client, 0)) for client, filters in clients.items()
            ),
            accepted_bits=self._accepted_bits,
            fixed_bits=self._fixed_bits,
        )


def on_common_window(samples: Sequence[Sample]) -> tuple[Sample, ...]:
    """Samples of several brokers, taken at the same time, with bits that mean the same publications in all of them.

    The window is every publication that any of them saw, in the order of the samples. A broker that did not see a
    publication received it neither for itself nor for its clients, so its bit is 0. The input rates are those of
    the whole window over the longest of the durations, which makes `rate_per_s` agree between the samples.

    >>> stock = Filter.parse("[class,eq,'STOCK']")
    >>> first = Sample((("p", 1), ("p", 2)), (300, 300), 1.0, 2.0, (ClientProfile("alice", (stock,), 0b11),))
    >>> second = Sample((("p", 2), ("q", 1)), (300, 340), 1.0, 2.0, (ClientProfile("bob", (stock,), 0b10),))
    >>> for sample in on_common_window([first, second]):
    ...     print(sample.clients[0].client, f"{sample.clients[0].bits:03b}", sample.input_rate_per_s)
    alice 011 3.0
    bob 100 3.0
    """
    size_by_publication: dict[PublicationId, int] = {}
    for sample in samples:
        for publication, size_bytes in zip(sample.publications, sample.sizes_bytes, strict=True):
            size_by_publication.setdefault(publication, size_bytes)
    position = {publication: number for number, publication in enumerate(size_by_publication)}
    duration_s = max((sample.duration_s for sample in samples), default=0.0)
    rate_per_s = len(position) / duration_s if duration_s > 0 else 0.0
    publications, sizes_bytes = tuple(size_by_publication), tuple(size_by_publication.values())

    def moved(sample: Sample) -> Sample:
        places = [position[publication] for publication in sample.publications]
        return Sample(
            publications=publications,
            sizes_bytes=sizes_bytes,
            duration_s=duration_s,
            input_rate_per_s=rate_per_s,
            clients=tuple(
                ClientProfile(each.client, each.filters, _moved_bits(each.bits, places)) for each in sample.clients
            ),
            accepted_bits=_moved_bits(sample.accepted_bits, places),
            fixed_bits=_moved_bits(sample.fixed_bits, places),
        )

    return tuple(moved(sample) for sample in samples)


def _moved_bits(bits: Bits, places: Sequence[int]) -> Bits:
    moved = 0
    while bits:
        lowest = bits & -bits
        moved |= 1 << places[lowest.bit_length() - 1]
        bits ^= lowest
    return moved
