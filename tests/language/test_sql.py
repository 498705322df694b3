"""AND, OR, NOT, IN and BETWEEN: a text with them means what the logic says, whatever filters it becomes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.language.generators import predicates_on
from tests.language.oracles import naive_holds
from trimtab import Filter, ParseError, Predicate, Publication
from trimtab.language import Op, Value
from trimtab.language.sql import format_sql


@dataclass(frozen=True)
class Tree:
    """A condition: a comparison, or AND, OR or NOT of conditions."""

    word: str
    parts: tuple[Tree, ...] = ()
    predicate: Predicate | None = None

    def text(self) -> str:
        """The condition in SQL's manner."""
        if self.predicate is not None:
            return format_sql(self.predicate)
        if self.word == "NOT":
            return f"NOT ({self.parts[0].text()})"
        return "(" + f" {self.word} ".join(part.text() for part in self.parts) + ")"

    def holds(self, values: dict[str, Value], *, negated: bool = False) -> bool:
        """The condition's meaning: NOT turns each comparison into its opposite."""
        if self.predicate is not None:
            return naive_holds(self.predicate, values.get(self.predicate.attribute), negated=negated)
        if self.word == "NOT":
            return self.parts[0].holds(values, negated=not negated)
        answers = [part.holds(values, negated=negated) for part in self.parts]
        return all(answers) if (self.word == "AND") is not negated else any(answers)


comparisons = predicates_on(
    st.sampled_from(["x", "y"]),
    st.sampled_from([0, 1, 2]),
    st.sampled_from(["", "a", "ab"]),
    st.sampled_from(["a_", "%b%a"]),
).filter(lambda predicate: predicate.op is not Op.PRESENT)
trees = st.recursive(
    comparisons.map(lambda predicate: Tree("", predicate=predicate)),
    lambda inner: st.one_of(
        st.builds(Tree, st.sampled_from(["AND", "OR"]), st.lists(inner, min_size=2, max_size=3).map(tuple)),
        st.builds(Tree, st.just("NOT"), st.tuples(inner)),
    ),
    max_leaves=6,
)
VALUES: list[Value | None] = [None, 0, 0.5, 1, 1.5, 2, True, False, "", "a", "aa", "ab", "aba", "b", "ba"]
WORLD: list[dict[str, Value]] = [
    {name: value for name, value in (("x", x), ("y", y)) if value is not None} for x in VALUES for y in VALUES
]


@settings(max_examples=300)
@given(trees)
def test_a_text_matches_what_its_logic_says(tree: Tree) -> None:
    expected = [values for values in WORLD if tree.holds(values)]
    try:
        filters = Filter.parse_all(tree.text())
    except ParseError as error:
        assert "contradictory" in error.reason
        assert expected == []
        assume(False)
        raise
    assert [values for values in WORLD if any(each.matches(values) for each in filters)] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = 1 OR b = 2 AND c = 3", ["[a,=,1]", "[b,=,2],[c,=,3]"]),
        ("(a = 1 OR b = 2) AND c = 3", ["[a,=,1],[c,=,3]", "[b,=,2],[c,=,3]"]),
        ("NOT (a = 1 AND b = 2)", ["[a,<>,1]", "[b,<>,2]"]),
        ("NOT (a = 1 OR b = 2)", ["[a,<>,1],[b,<>,2]"]),
        ("a IN (1, 'x', true)", ["[a,=,1]", "[a,eq,'x']", "[a,eq,true]"]),
        ("a IN (1, 1.0, 1)", ["[a,=,1]"]),
        ("a NOT BETWEEN 1 AND 2", ["[a,<,1]", "[a,>,2]"]),
        ("a BETWEEN 1 AND 2 OR b = 1", ["[a,>=,1],[a,<=,2]", "[b,=,1]"]),
        ("a NOT IN (1, 2) AND a > 1", ["[a,>,1],[a,<>,2]"]),
        ("NOT a NOT LIKE 'x%'", ["[a,str-prefix,'x']"]),
        ("a = 1 or A = 1", ["[a,=,1]", "[A,=,1]"]),
    ],
)
def test_the_filters_that_a_text_becomes(text: str, expected: list[str]) -> None:
    assert [str(each) for each in Filter.parse_all(text)] == expected


def test_names_that_are_keywords_or_have_spaces_are_back_quoted() -> None:
    wanted = Filter.parse("`and` = 1 AND `two words` = 2 AND `true` = 3")
    assert wanted.matches(Publication({"and": 1, "two words": 2, "true": 3}))
    assert wanted.to_sql() == "`and` = 1 AND `true` = 3 AND `two words` = 2"
    assert str(wanted) == "[and,=,1],[true,=,3],[`two words`,=,2]"


def test_text_runs_over_several_lines() -> None:
    assert Filter.parse("a = 1\n\tAND b = 2\r\n") == Filter.parse("a=1 and b=2")
