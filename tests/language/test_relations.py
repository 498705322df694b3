"""Relations between filters, compared with brute force over every publication of a small world.

The worlds are rich enough to be exact: operands are made of few letters, and the texts of the world hold one letter of
every kind that the operands tell apart (below, equal, between, above) up to a length that leaves room for a witness.
"""

from collections.abc import Sequence
from functools import reduce
from itertools import product
from operator import or_

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.language.generators import predicates_on
from tests.language.oracles import Universe, texts_over
from trimtab import ContradictionError, Filter, Predicate, Publication, Relation, relate
from trimtab.language import Op, Value
from trimtab.language.relations import union_covers

NUMBERS: list[Value] = [-1, 0, 0.5, 1, 1.5, 2, 3]
BOOLEANS: list[Value] = [True, False]
number_operands = st.sampled_from([0, 1, 1.0, 2])


def texts_up_to(letters: str, max_size: int) -> st.SearchStrategy[str]:
    return st.text(letters, max_size=max_size)


def plain_patterns(letters: str, max_size: int) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from([*letters, "%", "_"]), max_size=max_size).map("".join)


def letters_count(predicates: Sequence[Predicate]) -> int:
    """How long a witness may have to be, roughly: all operands one after the other."""
    return sum(len(p.operand) for p in predicates if isinstance(p.operand, str))


def decide(predicates: Sequence[Predicate], universe: Universe) -> tuple[Filter, int]:
    """The filter of predicates on one attribute and the values that satisfy it; both must agree on contradictions."""
    expected = universe.satisfying(predicates)
    try:
        return Filter(predicates), expected
    except ContradictionError:
        assert expected == 0
        assume(False)
        raise


def relation_of(first: int, second: int) -> Relation:
    if first == second:
        return Relation.EQUAL
    if second & ~first == 0:
        return Relation.COVERS
    if first & ~second == 0:
        return Relation.COVERED
    return Relation.INTERSECTS if first & second else Relation.DISJOINT


def assert_exact(ours: Sequence[Predicate], theirs: Sequence[Predicate], universe: Universe) -> None:
    first, first_set = decide(ours, universe)
    second, second_set = decide(theirs, universe)
    assert first_set and second_set, "a filter that nothing satisfies was accepted"
    assert first.covers(second) is (second_set & ~first_set == 0)
    assert second.covers(first) is (first_set & ~second_set == 0)
    assert first.overlaps(second) is second.overlaps(first) is (first_set & second_set != 0)
    assert first.disjoint(second) is (first_set & second_set == 0)
    assert relate(first, second) is relation_of(first_set, second_set)
    if first == second:
        assert first_set == second_set
    assert_a_single_text_is_kept_as_an_equality(first, first_set, universe)


def assert_a_single_text_is_kept_as_an_equality(wanted: Filter, matched: int, universe: Universe) -> None:
    text = universe.values[matched.bit_length() - 1]
    if isinstance(text, str):
        single = Filter.where(v=text)
        assert single.covers(wanted) is (single == wanted)


ALL_KINDS = Universe([*NUMBERS, *BOOLEANS, *texts_over("Aab", 4)])
any_kind = predicates_on(st.just("v"), number_operands, texts_up_to("a", 1), plain_patterns("a", 2))


@settings(max_examples=250)
@given(st.lists(any_kind, min_size=1, max_size=3), st.lists(any_kind, min_size=1, max_size=3))
def test_relations_of_any_kinds_are_exact(ours: list[Predicate], theirs: list[Predicate]) -> None:
    assume(letters_count([*ours, *theirs]) <= 4)
    assert_exact(ours, theirs, ALL_KINDS)


numbers_only = st.builds(
    Predicate.of,
    st.just("v"),
    st.sampled_from([Op.EQ, Op.NEQ, Op.LT, Op.LE, Op.GT, Op.GE, Op.PRESENT]),
    number_operands,
)


@settings(max_examples=250)
@given(st.lists(numbers_only, min_size=1, max_size=4), st.lists(numbers_only, min_size=1, max_size=4))
def test_relations_of_numbers_are_exact(ours: list[Predicate], theirs: list[Predicate]) -> None:
    assert_exact(ours, theirs, ALL_KINDS)


def strings_only(letters: str) -> st.SearchStrategy[Predicate]:
    ops = [Op.EQ, Op.NEQ, Op.LT, Op.LE, Op.GT, Op.GE, Op.PREFIX, Op.SUFFIX, Op.CONTAINS]
    return st.one_of(
        st.builds(Predicate.of, st.just("v"), st.sampled_from(ops), texts_up_to(letters, 2)),
        st.builds(Predicate.of, st.just("v"), st.sampled_from([Op.LIKE, Op.NOT_LIKE]), plain_patterns(letters, 4)),
    )


NEIGHBOURING_LETTERS = Universe(texts_over("Aabz", 6))
SEPARATE_LETTERS = Universe(texts_over("Aabcz", 5))
strings_over_ab = st.lists(strings_only("ab"), min_size=1, max_size=2)
strings_over_ac = st.lists(strings_only("ac"), min_size=1, max_size=2)


@settings(max_examples=300)
@given(strings_over_ab, strings_over_ab)
def test_relations_of_strings_over_neighbouring_letters_are_exact(
    ours: list[Predicate], theirs: list[Predicate]
) -> None:
    assume(letters_count([*ours, *theirs]) <= 5)
    assert_exact(ours, theirs, NEIGHBOURING_LETTERS)


@settings(max_examples=300)
@given(strings_over_ac, strings_over_ac)
def test_relations_of_strings_with_letters_between_are_exact(ours: list[Predicate], theirs: list[Predicate]) -> None:
    assume(letters_count([*ours, *theirs]) <= 4)
    assert_exact(ours, theirs, SEPARATE_LETTERS)


@given(st.data())
def test_relations_of_longer_strings_agree_with_texts_made_from_their_operands(data: st.DataObject) -> None:
    predicates = strings_only("aby")
    longer = st.builds(
        Predicate.of, st.just("v"), st.sampled_from([Op.LT, Op.GE, Op.PREFIX]), st.text("aby", max_size=9)
    )
    ours = data.draw(st.lists(st.one_of(predicates, longer), min_size=1, max_size=3))
    theirs = data.draw(st.lists(st.one_of(predicates, longer), min_size=1, max_size=3))
    world = Universe(sorted({text for p in (*ours, *theirs) for text in texts_near(str(p.operand))}))
    first, first_set = decide_soundly(ours, world)
    second, second_set = decide_soundly(theirs, world)
    if first.covers(second):
        assert second_set & ~first_set == 0
    if second.covers(first):
        assert first_set & ~second_set == 0
    if first.disjoint(second):
        assert first_set & second_set == 0
    if relate(first, second) is Relation.EQUAL:
        assert first_set == second_set


def decide_soundly(predicates: Sequence[Predicate], universe: Universe) -> tuple[Filter, int]:
    found = universe.satisfying(predicates)
    try:
        return Filter(predicates), found
    except ContradictionError:
        assert found == 0
        assume(False)
        raise


def texts_near(operand: str) -> list[str]:
    """The operand itself, just above and below it, inside others, and with a letter that no operand has."""
    plain = operand.replace("%", "").replace("_", "m")
    before = plain[:-1] + chr(ord(plain[-1]) - 1) if plain else ""
    return [
        plain,
        plain + "\0",
        plain + "~",
        "~" + plain,
        f"~{plain}~",
        before,
        before + "\U0010ffff",
        plain[:-1],
        plain + plain,
        plain[::-1],
        operand.replace("%", "mm").replace("_", "n"),
    ]


UNION_X = Universe([*NUMBERS, *BOOLEANS, *texts_over("Aab", 6)])
UNION_Y = Universe([*NUMBERS, *BOOLEANS, "", "A", "a", "b"])
union_x = predicates_on(st.just("x"), number_operands, st.just("a"), st.sampled_from(["_", "a_", "%a_", "a%a", "%_a"]))
union_y = st.one_of(
    st.builds(Predicate.of, st.just("y"), st.sampled_from([Op.EQ, Op.NEQ, Op.LT, Op.GE, Op.PRESENT]), number_operands),
    st.builds(Predicate.of, st.just("y"), st.sampled_from([Op.EQ, Op.NEQ, Op.PRESENT]), st.booleans()),
    st.builds(Predicate.of, st.just("y"), st.sampled_from([Op.EQ, Op.NEQ, Op.PRESENT]), st.just("a")),
    st.builds(Predicate.of, st.just("y"), st.just(Op.PRESENT), st.none()),
)
conjunctions = st.tuples(st.lists(union_x, max_size=2), st.lists(union_y, max_size=2))
alternatives = st.lists(conjunctions, min_size=1, max_size=4)


def publications_of(x: Sequence[Predicate], y: Sequence[Predicate]) -> int:
    """All pairs of values that satisfy the predicates on x and on y, one row of bits for each value of y."""
    row, width = UNION_X.satisfying(x), len(UNION_X.values)
    chosen = UNION_Y.satisfying(y)
    return sum(row << (width * place) for place in range(len(UNION_Y.values)) if chosen >> place & 1)


def decide_union(parts: list[tuple[list[Predicate], list[Predicate]]]) -> tuple[list[Filter], int]:
    filters: list[Filter] = []
    sets: list[int] = []
    for x, y in parts:
        matched = publications_of(x, y)
        try:
            filters.append(Filter([*x, *y]))
            sets.append(matched)
        except ContradictionError:
            assert matched == 0
    assume(filters)
    return filters, reduce(or_, sets)


@settings(max_examples=250)
@given(alternatives, alternatives)
def test_relations_of_texts_with_or_are_exact(
    ours: list[tuple[list[Predicate], list[Predicate]]], theirs: list[tuple[list[Predicate], list[Predicate]]]
) -> None:
    first, first_set = decide_union(ours)
    second, second_set = decide_union(theirs)
    assert relate(first, second) is relation_of(first_set, second_set)
    assert union_covers(first, second) is (second_set & ~first_set == 0)
    assert union_covers(second, first) is (first_set & ~second_set == 0)


ADVERTISED: dict[str, list[Value | None]] = {
    "x": [None, *NUMBERS, *BOOLEANS, *texts_over("Aab", 3)],
    "y": [None, 0, 1, True, False, "a", "b"],
    "z": [None, 1, "a"],
}
PUBLICATIONS = [
    Publication({name: value for name, value in zip(ADVERTISED, row, strict=True) if value is not None})
    for row in product(*ADVERTISED.values())
]
on_x = predicates_on(st.just("x"), number_operands, texts_up_to("a", 1), st.sampled_from(["_", "a_", "%a_"]))
on_y = st.builds(
    Predicate.of, st.just("y"), st.sampled_from([Op.EQ, Op.NEQ, Op.PRESENT]), st.sampled_from([1, True, "a"])
)
on_z = st.builds(Predicate.of, st.just("z"), st.sampled_from([Op.EQ, Op.PRESENT]), st.sampled_from([1, "a"]))


def some_of(*choices: st.SearchStrategy[Predicate]) -> st.SearchStrategy[list[Predicate]]:
    """At most one predicate of each."""
    return st.tuples(*(st.one_of(st.none(), choice) for choice in choices)).map(lambda row: [p for p in row if p])


def announced_by(advertisement: Sequence[Predicate], publication: Publication) -> bool:
    """Every attribute is advertised, and its value satisfies what was advertised for it."""
    return all(
        any(predicate.attribute == name for predicate in advertisement)
        and all(predicate.holds(value) for predicate in advertisement if predicate.attribute == name)
        for name, value in publication.items()
    )


@settings(max_examples=150)
@given(some_of(on_x, on_x, on_y, on_z), some_of(on_x, on_y, on_z))
def test_an_advertisement_intersects_a_subscription_that_some_announced_publication_matches(
    advertised: list[Predicate], subscribed: list[Predicate]
) -> None:
    try:
        advertisement, subscription = Filter(advertised), Filter(subscribed)
    except ContradictionError:
        assume(False)
        raise
    announced = [publication for publication in PUBLICATIONS if announced_by(advertised, publication)]
    assert [p for p in PUBLICATIONS if advertisement.announces(p)] == announced
    expected = any(all(p.holds(publication.get(p.attribute)) for p in subscribed) for publication in announced)
    assert advertisement.intersects(subscription) is expected


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("[v,>,5]", "[v,>,5.0]", Relation.EQUAL),
        ("[v,>=,5]", "[v,>,5]", Relation.COVERS),
        ("[v,=,5]", "[v,<>,4]", Relation.COVERED),
        ("[v,>,5]", "[v,<,6]", Relation.INTERSECTS),
        ("[v,>,5]", "[v,<=,5]", Relation.DISJOINT),
        ("[v,>,5]", "[w,>,5]", Relation.INTERSECTS),
        ("[v,eq,'100']", "[v,=,100]", Relation.DISJOINT),
        ("[v,*]", "[v,isPresent,0]", Relation.COVERS),
        ("*", "[v,*]", Relation.COVERS),
        ("*", "[]", Relation.EQUAL),
        ("[v,str-prefix,'YH']", "[v,str-gt,'Y']", Relation.COVERED),
        ("[v,str-prefix,'YH']", "v >= 'YH' AND v < 'YI'", Relation.EQUAL),
        ("[v,str-prefix,'YH']", "[v,str-lt,'YH']", Relation.DISJOINT),
        ("[v,str-prefix,'YH']", "[v,str-le,'YH']", Relation.INTERSECTS),
        ("[v,str-contains,'OO']", "[v,str-suffix,'HOO']", Relation.COVERS),
        ("[v,str-contains,'aa']", "v LIKE '%a_a%' AND v NOT LIKE '%a_a%' OR v LIKE '%aaa'", Relation.COVERS),
        ("v LIKE 'a_%'", "v > 'a' AND v LIKE 'a%'", Relation.EQUAL),
        ("v > 'a'", r"v >= E'a\0'", Relation.EQUAL),
        ("v < 5 OR v >= 5", "v isPresent 0", Relation.EQUAL),
        ("v = true OR v = false", "v isPresent true", Relation.EQUAL),
        ("v IS NOT NULL", "v isPresent 0 OR v isPresent '' OR v isPresent true", Relation.EQUAL),
        ("v IN (1, 2, 3)", "v IN (3, 1)", Relation.COVERS),
        ("v IN (1, 2)", "v IN (2, 3)", Relation.INTERSECTS),
        ("v IN (1, 2)", "v IN (3, 4)", Relation.DISJOINT),
        ("v < 'm' OR v LIKE 'm%' OR v > 'm'", "v isPresent ''", Relation.EQUAL),
        ("v LIKE '_%' OR v = ''", "v isPresent ''", Relation.EQUAL),
        ("v = 1 OR w = 1", "v = 1 AND w = 1", Relation.COVERS),
        ("v = 1 AND w < 5 OR v = 1 AND w > 3", "v = 1 AND w isPresent 0", Relation.EQUAL),
        ("x >= 0 AND x < 2 AND y >= 0 AND y < 1 OR x > 1 AND y >= 0 AND y < 1", "x >= 0 AND y = 0.5", Relation.COVERS),
    ],
)
def test_how_two_texts_relate(first: str, second: str, expected: Relation) -> None:
    ours, theirs = Filter.parse_all(first), Filter.parse_all(second)
    mirrored = {Relation.COVERS: Relation.COVERED, Relation.COVERED: Relation.COVERS}
    assert relate(ours, theirs) is expected
    assert relate(theirs, ours) is mirrored.get(expected, expected)


def test_a_surrogate_is_never_taken_for_a_witness() -> None:
    with pytest.raises(ContradictionError):
        Filter(
            [
                Predicate.of("v", Op.GT, "\ud7ff"),
                Predicate.of("v", Op.NOT_LIKE, "\ud7ff%"),
                Predicate.of("v", Op.LT, "\ue000"),
            ]
        )


def test_between_two_numbers_there_is_always_another() -> None:
    assert Filter.parse("[v,>,0],[v,<,5e-324]").overlaps(Filter.parse("[v,>,0]"))
    assert not Filter.parse("[v,<=,1]").covers(Filter.parse("[v,<,1.0000000000000002]"))


@pytest.mark.parametrize(
    ("advertisement", "subscription", "expected"),
    [
        ("[class,eq,'STOCK'],[volume,>,0]", "[class,eq,'STOCK']", True),
        ("[class,eq,'STOCK'],[volume,>,0]", "[volume,<,1]", True),
        ("[class,eq,'STOCK'],[volume,>,0]", "[volume,<,0]", False),
        ("[class,eq,'STOCK'],[volume,>,0]", "[volume,eq,'1']", False),
        ("[class,eq,'STOCK'],[volume,>,0]", "[class,eq,'STOCK'],[price,>,0]", False),
        ("[class,eq,'STOCK'],[volume,*]", "[volume,eq,'1']", True),
        ("[class,eq,'STOCK']", "*", True),
        ("*", "*", True),
        ("*", "[class,*]", False),
    ],
)
def test_an_advertised_attribute_may_be_absent_and_no_other_may_be_present(
    advertisement: str, subscription: str, expected: bool
) -> None:
    assert Filter.parse(advertisement).intersects(Filter.parse(subscription)) is expected
