"""Groups of keys: whether any key of a group matches, without listing the keys."""

from __future__ import annotations

from random import Random
from typing import Literal

from trimtab.language import Filter
from trimtab.matching import Matcher


def test_a_group_is_named_once_whatever_the_number_of_its_matching_keys(engine: Literal["kernel", "python"]) -> None:
    matcher = Matcher(engine)
    for number in range(10):
        matcher.add(number, Filter.parse(f"[v,>,{number}]"), "low" if number < 5 else "high")
    matcher.add("single", Filter.parse("[v,=,3]"))
    assert matcher.match_groups({"v": 3}) == ["low"]
    assert matcher.match_groups({"v": 7}) == ["low", "high"]
    assert matcher.match_groups({"v": 0}) == []


def test_a_group_ends_with_its_last_key_and_its_place_is_taken_again(engine: Literal["kernel", "python"]) -> None:
    matcher = Matcher(engine)
    for key, group in enumerate(("a", "b", "a", "c")):
        matcher.add(key, Filter.parse(f"[v,>=,{key}]"), group)
    matcher.remove(0)
    assert matcher.match_groups({"v": 9}) == ["a", "b", "c"]
    matcher.remove(2)
    assert matcher.match_groups({"v": 9}) == ["b", "c"]
    matcher.add(4, Filter.parse("[v,>=,4]"), "d")
    assert matcher.match_groups({"v": 9}) == ["d", "b", "c"]


def test_groups_are_those_of_the_matching_keys_in_a_long_random_history(engine: Literal["kernel", "python"]) -> None:
    rng = Random(7)
    matcher = Matcher(engine)
    group_of: dict[int, str] = {}
    for step in range(2_000):
        if group_of and rng.random() < 0.4:
            key = rng.choice(list(group_of))
            matcher.remove(key)
            del group_of[key]
        else:
            low = rng.randint(0, 50)
            text = rng.choice([f"[v,>,{low}]", f"[v,>,{low}],[w,<,{low}]", f"[c,=,{low % 5}]", f"[v,<>,{low}]"])
            group_of[step] = f"g{rng.randint(0, 90)}"
            matcher.add(step, Filter.parse(text), group_of[step])
        values = {"v": rng.randint(0, 60), "w": rng.randint(0, 60), "c": rng.randint(0, 4)}
        groups = matcher.match_groups(values)
        assert len(set(groups)) == len(groups)
        assert set(groups) == {group_of[int(str(key))] for key in matcher.match(values)}
