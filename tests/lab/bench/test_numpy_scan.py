"""The NumPy scans find what brute force finds."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.lab.bench.numpy_scan import NumpyScan
from trimtab.lab.bench.workloads import WorkloadName, open_workload
from trimtab.language import Filter, LanguageError, Op, Predicate, Value


@pytest.mark.parametrize("name", list(WorkloadName))
def test_the_scans_agree_with_brute_force_on_the_workloads(name: WorkloadName) -> None:
    workload = open_workload(name, seed=11)
    publications = list(workload.publications(40))
    filters = list(workload.subscriptions(2_000))
    scan = NumpyScan(filters)
    table_scan = scan.as_table()
    for publication in publications:
        expected = [n for n, filter in enumerate(filters) if filter.matches(publication)]
        assert scan.match(publication).tolist() == table_scan.match(publication).tolist() == expected


NUMBERS = st.integers(-3, 3) | st.sampled_from([-0.5, 0.5, 1e300, 2.0**53])
PREDICATES = st.one_of(
    st.builds(Predicate, st.sampled_from("ab"), st.sampled_from([Op.EQ, Op.LT, Op.LE, Op.GT, Op.GE]), NUMBERS),
    st.builds(Predicate, st.sampled_from("cd"), st.just(Op.EQ), st.sampled_from(["", "x", "y"])),
)
PUBLICATIONS = st.dictionaries(st.sampled_from("abcde"), NUMBERS | st.booleans() | st.sampled_from(["", "x", "y", "z"]))


@given(st.lists(st.lists(PREDICATES, max_size=4), max_size=8), PUBLICATIONS)
def test_the_scans_agree_with_brute_force_on_generated_filters(
    conjunctions: list[list[Predicate]], publication: dict[str, Value]
) -> None:
    filters: list[Filter] = []
    for conjunction in conjunctions:
        try:
            filters.append(Filter(conjunction))
        except LanguageError:
            continue
    expected = [n for n, filter in enumerate(filters) if filter.matches(publication)]
    scan = NumpyScan(filters)
    assert scan.match(publication).tolist() == scan.as_table().match(publication).tolist() == expected


@pytest.mark.parametrize("text", ["[s,str-prefix,'a']", "[v,<>,5]", "[v,isPresent,*]", "[b,eq,true]"])
def test_a_filter_that_the_scan_cannot_express_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="the scan knows"):
        NumpyScan([Filter.parse(text)])


def test_a_number_without_an_exact_float_is_refused() -> None:
    with pytest.raises(ValueError, match="no exact decimal form"):
        NumpyScan([Filter.parse("[v,>,9007199254740993]")])


def test_the_workloads_are_the_same_for_the_same_seed() -> None:
    seed = Random(9).randrange(1_000)
    for name in WorkloadName:
        first, second = open_workload(name, seed), open_workload(name, seed)
        assert list(first.subscriptions(20)) == list(second.subscriptions(20))
