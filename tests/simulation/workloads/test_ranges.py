"""The ranges workload has the shape that its description promises."""

from collections import Counter
from random import Random

import pytest

from trimtab.language.constraints import Numbers
from trimtab.simulation.workloads.ranges import ATTRIBUTES, DOMAIN, RangesWorkload


@pytest.mark.parametrize("seed", [1, 2])
def test_about_one_filter_in_a_thousand_matches_a_publication(seed: int) -> None:
    workload = RangesWorkload(Random(seed))
    filters = list(workload.subscriptions(3_000))
    publications = [publication.values_by_name for publication in workload.publications(100)]
    matches = sum(filter.matches(publication) for filter in filters for publication in publications)
    assert matches / len(filters) / len(publications) == pytest.approx(0.001, rel=0.25)


def test_filters_have_three_to_five_two_sided_ranges() -> None:
    counts: Counter[int] = Counter()
    for filter in RangesWorkload(Random(1)).subscriptions(3_000):
        counts[len(filter.constraints)] += 1
        for constraint in filter.constraints.values():
            assert isinstance(constraint, Numbers)
            assert constraint.low is not None and constraint.high is not None
            assert 0 <= constraint.low < constraint.high <= DOMAIN * (1 + 1e-12)
    assert sorted(counts) == [3, 4, 5]
    assert min(counts.values()) > 800


def test_popular_attributes_are_asked_for_more_often() -> None:
    asked = Counter(name for filter in RangesWorkload(Random(1)).subscriptions(3_000) for name in filter.constraints)
    assert set(asked) == set(ATTRIBUTES)
    assert asked[ATTRIBUTES[0]] > 1.4 * asked[ATTRIBUTES[1]] > 1.4 * asked[ATTRIBUTES[4]]
    assert asked[ATTRIBUTES[0]] > 7 * asked[ATTRIBUTES[-1]]


def test_publications_carry_all_attributes() -> None:
    for publication in RangesWorkload(Random(1)).publications(20):
        assert tuple(publication) == ATTRIBUTES
        assert all(0 <= value <= DOMAIN for value in publication.values() if isinstance(value, float))


def test_the_same_seed_gives_the_same_workload() -> None:
    first, second = RangesWorkload(Random(5)), RangesWorkload(Random(5))
    assert list(first.subscriptions(50)) == list(second.subscriptions(50))
    assert list(first.publications(50)) == list(second.publications(50))


def test_an_impossible_match_ratio_is_refused() -> None:
    with pytest.raises(ValueError, match="match ratio"):
        RangesWorkload(Random(1), match_ratio=0.9)
