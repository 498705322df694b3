"""The covering set stays what it would be if it were computed anew after every change."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Literal

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from tests.matching.strategies import SAME_IN_OTHER_WORDS, filters
from trimtab.language import Filter
from trimtab.matching import CoveringChange, CoveringSet

EngineName = Literal["kernel", "python"]


def covering_set_of(engine: EngineName, *texts: str) -> CoveringSet:
    """A covering set with the filters under the keys 0, 1, 2 ..."""
    subscriptions = CoveringSet(engine)
    for number, text in enumerate(texts):
        subscriptions.add(number, Filter.parse(text))
    return subscriptions


def test_a_filter_that_nothing_covers_enters(engine: EngineName) -> None:
    subscriptions = covering_set_of(engine, "[v,>,5]")
    assert subscriptions.add("new", Filter.parse("[w,>,5]")) == CoveringChange(entered=("new",))
    assert subscriptions.covering() == [0, "new"]
    assert subscriptions.covered_by("new") is None


def test_a_covered_filter_does_not_enter(engine: EngineName) -> None:
    subscriptions = covering_set_of(engine, "[v,>,5]")
    change = subscriptions.add("new", Filter.parse("[v,>,6]"))
    assert (change, bool(change)) == (CoveringChange(), False)
    assert (subscriptions.is_covering("new"), subscriptions.covered_by("new")) == (False, 0)


def test_what_a_new_filter_covers_leaves_in_the_order_of_addition(engine: EngineName) -> None:
    subscriptions = covering_set_of(engine, "[v,=,7]", "[w,=,1]", "[v,>,8],[w,=,2]", "[v,=,9],[x,=,1]")
    assert subscriptions.add("new", Filter.parse("[v,>,5]")) == CoveringChange(entered=("new",), left=(0, 2, 3))
    assert subscriptions.covering() == [1, "new"]
    assert [subscriptions.covered_by(key) for key in (0, 2, 3)] == ["new"] * 3


def test_what_only_the_leaving_filter_covered_enters(engine: EngineName) -> None:
    subscriptions = covering_set_of(engine, "[v,>,1]", "[v,>,2]", "[v,>,3]", "[v,>,2],[w,=,1]", "[v,<,9]")
    assert subscriptions.remove(0) == CoveringChange(entered=(1,), left=(0,))
    assert subscriptions.covering() == [1, 4]
    assert subscriptions.covered_by(2) == 1


def test_a_covered_filter_that_leaves_changes_nothing(engine: EngineName) -> None:
    subscriptions = covering_set_of(engine, "[v,>,1]", "[v,>,2]", "[v,>,3]")
    assert subscriptions.remove(1) == CoveringChange()
    assert (subscriptions.covering(), subscriptions.covered_by(2)) == ([0], 0)


def test_what_another_filter_covers_too_stays_covered(engine: EngineName) -> None:
    subscriptions = covering_set_of(engine, "[v,>,1]", "[w,>,1]", "[v,=,5],[w,=,5]")
    first = subscriptions.covered_by(2)
    other = 1 - int(str(first))
    assert subscriptions.remove(first) == CoveringChange(left=(first,))
    assert (subscriptions.covering(), subscriptions.covered_by(2)) == ([other], other)


def test_of_identical_filters_the_first_stands_for_all(engine: EngineName) -> None:
    subscriptions = covering_set_of(engine, "[v,>,1]", "v > 1", "[v,>,1]")
    assert subscriptions.covering() == [0]
    assert [subscriptions.covered_by(key) for key in (0, 1, 2)] == [None, 0, 0]
    assert subscriptions.twins(1) == [0, 1, 2]
    assert subscriptions.descendants(0) == []


def test_the_next_of_identical_filters_takes_the_place_of_the_first(engine: EngineName) -> None:
    subscriptions = covering_set_of(engine, "[v,>,1]", "[v,>,1]", "[v,>,1]")
    assert subscriptions.remove(1) == CoveringChange()
    assert subscriptions.remove(0) == CoveringChange(entered=(2,), left=(0,))
    assert subscriptions.remove(2) == CoveringChange(left=(2,))
    assert (subscriptions.covering(), len(subscriptions)) == ([], 0)


def test_of_filters_with_the_same_meaning_the_first_stands_for_all(engine: EngineName) -> None:
    texts = ["[s,str-prefix,'a']", "[s,str-ge,'a'],[s,str-lt,'b']", "[s,str-prefix,'a'],[s,str-lt,'b']"]
    subscriptions = covering_set_of(engine, *texts)
    assert subscriptions.covering() == [0]
    assert subscriptions.remove(0) == CoveringChange(entered=(1,), left=(0,))
    assert subscriptions.covered_by(2) == 1
    assert subscriptions.add("again", Filter.parse(texts[0])) == CoveringChange()
    assert subscriptions.covering() == [1]


def test_of_orphans_with_the_same_meaning_the_first_enters(engine: EngineName) -> None:
    texts = [
        "[s,isPresent,'']",
        "[s,str-prefix,'a']",
        "[s,str-ge,'a'],[s,str-lt,'b']",
        "[s,str-prefix,'a'],[s,str-lt,'b']",
    ]
    subscriptions = covering_set_of(engine, *texts)
    assert subscriptions.remove(0) == CoveringChange(entered=(1,), left=(0,))
    assert subscriptions.covering() == [1]


def test_descendants_are_all_that_a_filter_covers(engine: EngineName) -> None:
    texts = ["[v,>,1]", "[v,>,2]", "[w,>,0]", "[v,>,2],[w,>,1]", "[v,>,2]", "[v,=,3]"]
    subscriptions = covering_set_of(engine, *texts)
    assert subscriptions.descendants(0) == [1, 4, 3, 5]
    assert subscriptions.descendants(4) == [3, 5]
    assert subscriptions.descendants(2) == [3]
    assert subscriptions.descendants(3) == []


def test_a_filter_can_be_asked_about_before_it_is_added(engine: EngineName) -> None:
    subscriptions = covering_set_of(engine, "[v,>,1]", "[v,>,1]", "[w,=,1],[v,>,4]")
    assert subscriptions.find_covering(Filter.parse("[v,>,1]")) == 0
    assert subscriptions.find_covering(Filter.parse("[v,>,0]")) is None
    assert subscriptions.find_covered(Filter.parse("[v,>,0]")) == [0, 1, 2]
    assert subscriptions.filter_of(1) == Filter.parse("[v,>,1]")


def test_keys_in_use_and_unknown_keys_are_refused(engine: EngineName) -> None:
    subscriptions = covering_set_of(engine, "[v,>,1]")
    with pytest.raises(KeyError, match="the key 0 is already in use"):
        subscriptions.add(0, Filter.parse("[w,>,1]"))
    for ask in (subscriptions.remove, subscriptions.is_covering, subscriptions.covered_by, subscriptions.descendants):
        with pytest.raises(KeyError, match="unknown key 'nobody'"):
            ask("nobody")
    assert (0 in subscriptions, "nobody" in subscriptions, len(subscriptions)) == (True, False, 1)


class CoveringMachine(RuleBasedStateMachine):
    """Adds and removes in any order; after each step everything is computed anew from the filters alone."""

    engine: EngineName = "python"

    def __init__(self) -> None:
        super().__init__()
        self.subscriptions = CoveringSet(self.engine)
        self.keys_by_filter: dict[Filter, list[int]] = {}
        self.next_key = 0

    @rule(filter=st.one_of(filters, st.sampled_from(SAME_IN_OTHER_WORDS)))
    def add(self, filter: Filter) -> None:
        before = self.subscriptions.covering()
        expected_witness = self._is_covered(filter)
        assert (self.subscriptions.find_covering(filter) is not None) == expected_witness
        change = self.subscriptions.add(self.next_key, filter)
        self.keys_by_filter.setdefault(filter, []).append(self.next_key)
        self.next_key += 1
        self._check_change(before, change)

    @precondition(lambda self: self.keys_by_filter)
    @rule(data=st.data())
    def add_a_twin(self, data: st.DataObject) -> None:
        self.add(data.draw(st.sampled_from(list(self.keys_by_filter))))

    @precondition(lambda self: self.keys_by_filter)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        filter = data.draw(st.sampled_from(list(self.keys_by_filter)))
        key = data.draw(st.sampled_from(self.keys_by_filter[filter]))
        self._remove(filter, key)

    @precondition(lambda self: self.keys_by_filter)
    @rule()
    def remove_a_member(self) -> None:
        first = self.subscriptions.covering()[0]
        assert isinstance(first, int)
        self._remove(self.subscriptions.filter_of(first), first)

    def _remove(self, filter: Filter, key: int) -> None:
        before = self.subscriptions.covering()
        change = self.subscriptions.remove(key)
        self.keys_by_filter[filter].remove(key)
        if not self.keys_by_filter[filter]:
            del self.keys_by_filter[filter]
        self._check_change(before, change)

    def _check_change(self, before: list[Hashable], change: CoveringChange) -> None:
        after = self.subscriptions.covering()
        assert change.entered == tuple(key for key in after if key not in before)
        assert change.left == tuple(key for key in before if key not in after)

    def _is_covered(self, filter: Filter) -> bool:
        return any(other.covers(filter) for other in self.keys_by_filter)

    @invariant()
    def the_covering_set_is_what_nothing_covers(self) -> None:
        expected = []
        stored = list(self.keys_by_filter)
        for place, filter in enumerate(stored):
            equal_or_wider = [other for other in stored if other is not filter and other.covers(filter)]
            if all(filter.covers(other) and stored.index(other) > place for other in equal_or_wider):
                expected.append(self.keys_by_filter[filter][0])
        assert self.subscriptions.covering() == expected

    @invariant()
    def every_key_is_covered_by_a_chain_that_ends_in_the_covering_set(self) -> None:
        for filter, keys in self.keys_by_filter.items():
            for key in keys:
                chain: list[Hashable] = [key]
                while (witness := self.subscriptions.covered_by(chain[-1])) is not None:
                    assert witness not in chain
                    chain.append(witness)
                assert all(self.subscriptions.filter_of(above).covers(filter) for above in chain)
                assert self.subscriptions.is_covering(chain[-1])
                assert self.subscriptions.is_covering(key) == (len(chain) == 1)

    @invariant()
    def descendants_are_all_covered_filters(self) -> None:
        for filter, keys in list(self.keys_by_filter.items())[:5]:
            expected = [
                key
                for other, other_keys in self.keys_by_filter.items()
                if other != filter and filter.covers(other)
                for key in other_keys
            ]
            assert self.subscriptions.descendants(keys[-1]) == expected
            assert self.subscriptions.twins(keys[0]) == keys


def test_any_history_of_additions_and_removals(engine: EngineName) -> None:
    class Machine(CoveringMachine):
        pass

    Machine.engine = engine
    run_state_machine_as_test(Machine, settings=settings(max_examples=60, stateful_step_count=30))
