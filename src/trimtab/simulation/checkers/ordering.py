"""How far publications came from the order in which they were published.

Source: Y. Yoon, V. Muthusamy, H.-A. Jacobsen, on-demand replication for highly available content-based
publish/subscribe messaging, section 5 (publication ordering degree).

Each publication is displaced by the distance between its place among those that arrived and its place if they had
arrived in order. Of S publications one that is displaced by D counts S - D; divided by the most that can be reached, S
squared, the degree is 1 for a perfect order.
"""

from __future__ import annotations

from collections.abc import Sequence


def ordering_degree_ratio(sequences: Sequence[int]) -> float:
    """The normalised ordering degree of the sequence numbers of one publisher in the order of arrival.

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
