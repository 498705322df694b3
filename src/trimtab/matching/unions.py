"""The covering set of unions: of several texts that mean several filters each, those that no other text covers.

A text with OR or IN matches what any of its filters matches, so it may be covered by another text although none of that
text's filters covers it alone. What covers a text matches an example of each of its filters: the matcher finds the few
texts that do, and only these are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from trimtab.language import Filter, LimitError
from trimtab.language.examples import example_of
from trimtab.language.relations import union_covers
from trimtab.matching.covering import CoveringSet
from trimtab.matching.matcher import Matcher


class IncomparableError(LimitError):
    """Two unions with too many alternatives to be compared; `first` and `second` are their positions."""

    def __init__(self, first: int, second: int, reason: str) -> None:
        super().__init__(reason)
        self.first = first
        self.second = second


def covering_unions(unions: Sequence[Sequence[Filter]]) -> list[int]:
    """The ascending positions of the unions that no other covers; of several equal ones, the first.

    >>> texts = ["symbol IN ('A', 'B')", "[symbol,eq,'B']", "v < 5 OR v > 3", "[v,isPresent,0]"]
    >>> covering_unions([Filter.parse_all(text) for text in texts])
    [0, 2]
    """
    singles = CoveringSet()
    several: list[int] = []
    for position, union in enumerate(unions):
        if len(union) == 1:
            singles.add(position, union[0])
        else:
            several.append(position)
    left = sorted([*cast(list[int], singles.covering()), *several])
    return _Unions(unions, left).covering() if several else left


class _Unions:
    """Unions of which those of one filter do not cover each other."""

    def __init__(self, unions: Sequence[Sequence[Filter]], positions: Sequence[int]) -> None:
        self._unions = unions
        self._positions = positions
        self._matcher = Matcher()
        for position in positions:
            for number, filter in enumerate(unions[position]):
                self._matcher.add((position, number), filter)

    def covering(self) -> list[int]:
        return [position for position in self._positions if not self._is_covered(position)]

    def _is_covered(self, position: int) -> bool:
        for other in self._may_cover(position):
            compared_before = len(self._unions[other]) == len(self._unions[position]) == 1
            if other == position or compared_before or not self._covers(other, position):
                continue
            if other < position or not self._covers(position, other):
                return True
        return False

    def _may_cover(self, position: int) -> Sequence[int]:
        """The positions, ascending, of unions that match an example of each filter of this one."""
        found = [set(self._matching(filter)) for filter in self._unions[position]]
        return sorted(set.intersection(*found))

    def _matching(self, filter: Filter) -> Iterator[int]:
        example = example_of(filter)
        if example is None:
            return iter(self._positions)
        return (cast(tuple[int, int], key)[0] for key in self._matcher.match(example))

    def _covers(self, outer: int, inner: int) -> bool:
        try:
            return union_covers(self._unions[outer], self._unions[inner])
        except LimitError as error:
            raise IncomparableError(min(outer, inner), max(outer, inner), str(error)) from None
