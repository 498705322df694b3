"""Each engine gives the same answers as asking every filter in turn, whatever was added and removed before."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from tests.matching.strategies import filters, publications
from trimtab.language import Filter, Publication, Value
from trimtab.matching import BruteForceMatcher, Matcher
from trimtab.matching.engines import new_index
from trimtab.matching.index import FilterIndex

EngineName = Literal["kernel", "python"]


@given(stored=st.lists(filters, max_size=30), asked=st.lists(publications, min_size=1, max_size=5))
@settings(max_examples=200)
def test_the_same_filters_match(stored: list[Filter], asked: list[dict[str, Value]], engine: EngineName) -> None:
    matcher, oracle = Matcher(engine), BruteForceMatcher()
    for key, filter in enumerate(stored):
        matcher.add(key, filter)
        oracle.add(key, filter)
    expected = oracle.match_many(asked)
    assert [sorted(map(_int, matcher.match(publication))) for publication in asked] == expected
    assert [
        sorted(map(_int, keys)) for keys in matcher.match_many([Publication(values) for values in asked])
    ] == expected


def _int(key: Hashable) -> int:
    assert isinstance(key, int)
    return key


class IndexMachine(RuleBasedStateMachine):
    """Adds, removes and asks in any order, beside the oracle."""

    engine: EngineName = "python"

    def __init__(self) -> None:
        super().__init__()
        self.index: FilterIndex[int] = new_index(self.engine)
        self.oracle = BruteForceMatcher()
        self.filters: dict[int, Filter] = {}
        self.next_key = 0

    @rule(filter=filters)
    def add(self, filter: Filter) -> None:
        self.index.add(self.next_key, filter)
        self.oracle.add(self.next_key, filter)
        self.filters[self.next_key] = filter
        self.next_key += 1

    @precondition(lambda self: self.filters)
    @rule(data=st.data())
    def add_a_twin(self, data: st.DataObject) -> None:
        self.add(self.filters[self._some_key(data)])

    @precondition(lambda self: self.filters)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        key = self._some_key(data)
        self.index.remove(key)
        self.oracle.remove(key)
        del self.filters[key]

    @rule(asked=st.lists(publications, max_size=3))
    def match(self, asked: list[dict[str, Value]]) -> None:
        found = self.index.match_many(asked)
        expected = self.oracle.match_many(asked)
        assert [sorted(keys) for keys in found] == expected
        assert [len(keys) for keys in found] == [len(keys) for keys in expected]
        assert [bool(keys) for keys in found] == [bool(keys) for keys in expected]

    @rule(filter=filters, data=st.data())
    def find(self, filter: Filter, data: st.DataObject) -> None:
        exclude = data.draw(st.none() | st.sampled_from(sorted(self.filters))) if self.filters else None
        self._compare(filter, exclude)

    @precondition(lambda self: self.filters)
    @rule(data=st.data())
    def find_for_a_stored_filter(self, data: st.DataObject) -> None:
        key = self._some_key(data)
        self._compare(self.filters[key], key)

    def _compare(self, filter: Filter, exclude: int | None) -> None:
        covering = self.index.find_covering(filter, exclude)
        assert (covering is None) == (self.oracle.find_covering(filter, exclude) is None)
        if covering is not None:
            assert self.filters[covering].covers(filter)
            assert exclude is None or self.filters[covering] != self.filters[exclude]
        assert sorted(self.index.find_covered(filter, exclude)) == self.oracle.find_covered(filter, exclude)

    @invariant()
    def the_keys_are_the_same(self) -> None:
        assert len(self.index) == len(self.filters)
        assert all(key in self.index for key in self.filters)
        assert self.next_key not in self.index

    def _some_key(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(self.filters)))


def test_any_history_of_changes_and_questions(engine: EngineName) -> None:
    class Machine(IndexMachine):
        pass

    Machine.engine = engine
    run_state_machine_as_test(Machine, settings=settings(max_examples=100, stateful_step_count=40))


@pytest.mark.parametrize("method", ["match", "match_many"])
def test_the_oracle_refuses_what_is_not_a_publication(method: str) -> None:
    with pytest.raises(TypeError):
        getattr(BruteForceMatcher(), method)([5])
