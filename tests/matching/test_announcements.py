"""Announcements answer from memory what each advertisement would answer itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trimtab import Filter, Publication
from trimtab.matching.announcements import Announcements

ADVERTISEMENTS = [
    Filter.parse(text)
    for text in (
        "[class,eq,'STOCK'],[volume,isPresent,0]",
        "[class,isPresent,''],[volume,>,5],[volume,<,9]",
        "[flag,isPresent,true],[volume,isPresent,0],[class,str-prefix,'ST']",
        "flag = true AND class = *",
    )
]
VALUES = st.dictionaries(
    st.sampled_from(["class", "volume", "flag", "other"]),
    st.one_of(st.sampled_from(["STOCK", "STONE", "BOND", ""]), st.integers(0, 12), st.floats(0, 12), st.booleans()),
    max_size=4,
)


@given(st.lists(st.sampled_from(range(len(ADVERTISEMENTS))), max_size=4), st.lists(VALUES, max_size=12))
def test_the_answer_is_that_of_asking_each(chosen: list[int], publications: list[dict[str, str | int | float]]) -> None:
    mine = Announcements()
    for number in chosen:
        mine.add(f"a{number}", ADVERTISEMENTS[number])
    for values in publications * 2:
        expected = any(ADVERTISEMENTS[number].announces(Publication(values)) for number in chosen)
        assert mine.announce(values) == expected


def test_what_ended_announces_nothing() -> None:
    mine = Announcements()
    mine.add("a1", ADVERTISEMENTS[0])
    assert mine.announce({"class": "STOCK"})
    mine.discard("a1")
    mine.discard("never there")
    assert not mine.announce({"class": "STOCK"})
