"""What deliveries must be like while a broker is replaced: complete and ordered, strongly or weakly.

Source: Y. Yoon, V. Muthusamy, H.-A. Jacobsen, on-demand replication for highly available content-based
publish/subscribe messaging, section 3.3, properties 1 to 4.

Whoever asks for the same must get the same: what one of two subscribers received and the other did not, between two
publications that both received, is a hole. And whoever gets two publications of one publisher must get them in the
order of publishing. The weak forms leave out publications that were inside the broker that failed.

Deviations: a publication that comes twice counts at its first arrival; repetitions are found by `repeated_deliveries`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import combinations
from typing import Literal, NamedTuple, TypeAlias

import msgspec

PropertyName: TypeAlias = Literal["strong complete", "strong ordered", "weak complete", "weak ordered"]


class PublicationKey(NamedTuple):
    """A publication: its publisher and its place among all of that publisher."""

    publisher: str
    sequence: int


class Reception(msgspec.Struct, frozen=True):
    """All that one subscriber received for one subscription, in the order of arrival."""

    subscriber: str
    subscription: str
    """What it asked for; subscribers with equal texts asked for the same."""
    publications: tuple[PublicationKey, ...]


class PropertyViolation(msgspec.Struct, frozen=True):
    """A property that a history does not have, and where that shows."""

    name: PropertyName
    text: str


def incomplete_deliveries(history: Collection[Reception]) -> Iterator[str]:
    """Property 1: what one of two equal subscribers misses between two publications that both received.

    >>> both = (PublicationKey("p", 1), PublicationKey("p", 3))
    >>> all_three = (PublicationKey("p", 1), PublicationKey("p", 2), PublicationKey("p", 3))
    >>> list(incomplete_deliveries([Reception("ann", "a > 1", both), Reception("bob", "a > 1", all_three)]))
    ['ann misses p:2, which bob received for a > 1']
    """
    by_subscription: dict[str, list[Reception]] = {}
    for reception in history:
        by_subscription.setdefault(reception.subscription, []).append(reception)
    for subscription, receptions in by_subscription.items():
        for one, other in combinations(receptions, 2):
            for misser, haver, missed in _holes(one, other):
                yield f"{misser} misses {missed.publisher}:{missed.sequence}, which {haver} received for {subscription}"


def _holes(one: Reception, other: Reception) -> Iterator[tuple[str, str, PublicationKey]]:
    ours, theirs = _sequences(one), _sequences(other)
    for publisher, our_sequences in ours.items():
        their_sequences = theirs.get(publisher, set())
        common = our_sequences & their_sequences
        if not common:
            continue
        first, last = min(common), max(common)
        for sequence in sorted(our_sequences ^ their_sequences):
            if first < sequence < last:
                missed = PublicationKey(publisher, sequence)
                if sequence in our_sequences:
                    yield other.subscriber, one.subscriber, missed
                else:
                    yield one.subscriber, other.subscriber, missed


def _sequences(reception: Reception) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for publisher, sequence in reception.publications:
        found.setdefault(publisher, set()).add(sequence)
    return found


def disordered_deliveries(history: Collection[Reception]) -> Iterator[str]:
    """Property 2: publications that came for the first time after a later one of the same publisher.

    >>> came = (PublicationKey("p", 2), PublicationKey("p", 1))
    >>> list(disordered_deliveries([Reception("ann", "a > 1", came)]))
    ['ann received p:1 after p:2']
    """
    for reception in history:
        last: dict[str, int] = {}
        seen: set[PublicationKey] = set()
        for publication in reception.publications:
            publisher, sequence = publication
            if publication in seen:
                continue
            seen.add(publication)
            before = last.get(publisher, sequence)
            if sequence < before:
                yield f"{reception.subscriber} received {publisher}:{sequence} after {publisher}:{before}"
            last[publisher] = max(before, sequence)


def repeated_deliveries(history: Collection[Reception]) -> Iterator[str]:
    """Publications that came more than once; the paper has no property for this, we allow none.

    >>> came = (PublicationKey("p", 2), PublicationKey("p", 2))
    >>> list(repeated_deliveries([Reception("ann", "a > 1", came)]))
    ['ann received p:2 again']
    """
    for reception in history:
        seen: set[PublicationKey] = set()
        for publication in reception.publications:
            if publication in seen:
                yield f"{reception.subscriber} received {publication.publisher}:{publication.sequence} again"
            seen.add(publication)


def without(history: Collection[Reception], left_out: Collection[PublicationKey]) -> list[Reception]:
    """The history without some publications."""
    out = frozenset(left_out)
    return [
        msgspec.structs.replace(
            reception, publications=tuple(each for each in reception.publications if each not in out)
        )
        for reception in history
    ]


def check_properties(
    history: Collection[Reception], in_faulty_broker: Collection[PublicationKey]
) -> list[PropertyViolation]:
    """All four properties of a history; publications that were in the broker that failed count for the strong ones.

    >>> came = (PublicationKey("p", 2), PublicationKey("p", 1))
    >>> [each.name for each in check_properties([Reception("ann", "a > 1", came)], {PublicationKey("p", 1)})]
    ['strong ordered']
    """
    weak_history = without(history, in_faulty_broker)
    return [
        *(PropertyViolation("strong complete", text) for text in incomplete_deliveries(history)),
        *(PropertyViolation("strong ordered", text) for text in disordered_deliveries(history)),
        *(PropertyViolation("weak complete", text) for text in incomplete_deliveries(weak_history)),
        *(PropertyViolation("weak ordered", text) for text in disordered_deliveries(weak_history)),
    ]


def ordering_degree_ratio(sequences: Sequence[int]) -> float:
    """The normalised ordering degree of the sequence numbers of one publisher in the order of arrival.

    Source: Yoon, Muthusamy, Jacobsen, section 5 (publication ordering degree). Each publication is displaced by the
    distance between its place among those that arrived and its place if they had arrived in order. Of S publications
    one that is displaced by D counts S - D; divided by the most that can be reached, S squared, the degree is 1 for a
    perfect order.

    >>> ordering_degree_ratio([1, 2, 5, 9]), ordering_degree_ratio([2, 1]), ordering_degree_ratio([])
    (1.0, 0.5, 1.0)
    """
    count = len(sequences)
    if not count:
        return 1.0
    place = {sequence: index for index, sequence in enumerate(sorted(sequences))}
    if len(place) < count:
        raise ValueError("a publication that came twice has no place in the order")
    return sum(count - abs(index - place[sequence]) for index, sequence in enumerate(sequences)) / count**2
