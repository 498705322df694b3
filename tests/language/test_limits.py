"""Input beyond the limits is refused, and the largest accepted input is still handled."""

import pytest

from trimtab import Filter, LanguageError, LimitError, ParseError, Predicate, Publication, Relation, not_like, relate
from trimtab.language import Op, limits
from trimtab.language.patterns import Pattern
from trimtab.language.string_sets import Like, SearchBudget, satisfiable

TOO_MANY_OR = " OR ".join(f"v = {number}" for number in range(limits.CONJUNCTIONS_MAX_COUNT + 1))


@pytest.mark.parametrize(
    ("text", "essence"),
    [
        ("v" * 1_000_000, "a filter of 1,000,000 characters; at most 131,072 are allowed"),
        ("[v,eq,'" + "x" * 1_000_000 + "']", "a filter of"),
        (" " * (limits.FILTER_TEXT_MAX_CHARS + 1), "a filter of"),
        (",".join(f"[v{number},=,1]" for number in range(10_000)), "more than 256 predicates"),
        (" AND ".join(f"v{number} = 1" for number in range(8_000)), "more than 4,096 predicates in one text"),
        (" AND ".join(f"v{number} = 1" for number in range(257)), "more than 256 predicates"),
        (f"({TOO_MANY_OR}) AND w = 1", "more than 256 filters"),
        (f"NOT ({TOO_MANY_OR})", "more than 256 predicates"),
        ("v IN (" + ",".join(map(str, range(257))) + ")", "more than 256 filters"),
        ("v NOT IN (" + ",".join(map(str, range(257))) + ")", "more than 256 predicates"),
        (" AND ".join(["(a = 1 OR b = 2)"] * 9), "more than 256 filters"),
        ("(a = 1 OR b = 2) AND " * 1_000 + "c = 3", "more than 256 filters"),
        ("v IN (" + ",".join(map(str, range(200))) + ")" + " AND w <> 1" * 30, "more than 4,096 predicates in all"),
        ("(" * 65 + "v = 1" + ")" * 65, "nested deeper than 64 levels"),
        ("(" * 100_000, "nested deeper than 64 levels"),
        ("NOT " * 30_000 + "v = 1", "nested deeper than 64 levels"),
        ("[" * 100_000, "not JSON"),
        ("[v,eq,'" + "x" * 4_097 + "']", "a string of 4,097 characters; at most 4,096 are allowed"),
        ("v LIKE '" + "x" * 4_097 + "%'", "a pattern of 4,097 characters; at most 4,096 are allowed"),
        ("v LIKE '" + "_" * 257 + "'", "a pattern with wildcards inside of 257 characters; at most 256 are allowed"),
        ("v LIKE '" + "x" * 9_000 + "'", "a string of 9,000 characters"),
        ("v eq '" + "'',''" * 20_000, "no closing ' for this quote"),
        (",".join(f"[v{number},eq,'{'x' * 4_000}']" for number in range(5)), "characters in names and values"),
        ("[v,=," + "1" * 100_000 + "]", "an integer beyond 64 bits"),
        ("[v,=,0." + "1" * 100_000 + "e400]", "beyond the range of decimals"),
    ],
    ids=range(25),
)
def test_a_filter_beyond_a_limit_is_refused(text: str, essence: str) -> None:
    with pytest.raises(ParseError) as caught:
        Filter.parse(text)
    assert essence in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("text", "essence"),
    [
        ("[v,'" + "x" * 1_048_576 + "']", "a publication of 1,048,582 characters; at most 1,048,576"),
        (",".join(f"[v{number},1]" for number in range(1_025)), "more than 1,024 attributes"),
        (",".join(f"v{number}=1" for number in range(50_000)), "more than 1,024 attributes"),
        ("{" + ",".join(f'"v{number}":1' for number in range(1_025)) + "}", "1,025 attributes; at most 1,024"),
        ('{"v":' * 100_000, "not JSON"),
    ],
    ids=range(5),
)
def test_a_publication_beyond_a_limit_is_refused(text: str, essence: str) -> None:
    with pytest.raises(ParseError) as caught:
        Publication.parse(text)
    assert essence in str(caught.value)


def test_the_same_limits_hold_in_python_and_json() -> None:
    with pytest.raises(LimitError, match="257 predicates"):
        Filter([Predicate.of(f"v{number}", Op.EQ, 1) for number in range(257)])
    with pytest.raises(LimitError, match="at most 4,096"):
        Predicate.of("v", Op.EQ, "x" * 4_097)
    with pytest.raises(LimitError, match="names and values"):
        Filter.from_data([[f"v{number}", "eq", "x" * 4_000] for number in range(5)])
    with pytest.raises(LimitError, match="a filter of"):
        Filter.from_json(" " * 200_000)
    with pytest.raises(LimitError, match="attribute v: a string of 1,048,577 characters"):
        Publication(v="x" * 1_048_577)
    with pytest.raises(LimitError, match="1,025 attributes"):
        Publication({f"v{number}": 1 for number in range(1_025)})
    with pytest.raises(LimitError, match="a publication of"):
        Publication.from_json(b" " * 2_000_000)


@pytest.mark.parametrize("char", ["x", "%", "\\", "'", "\0", "\x85", "ü", "\U0001f600"])
@pytest.mark.parametrize("op", [Op.EQ, Op.PREFIX, Op.CONTAINS, Op.GE])
def test_the_largest_filter_survives_every_way_of_writing_it(char: str, op: Op) -> None:
    names = ["k", "l", "m", "n"]
    wanted = Filter([Predicate.of(name, op, char * 4_095) for name in names])
    assert Filter.parse(str(wanted)) == wanted
    assert Filter.parse(wanted.to_sql()) == wanted
    assert Filter.from_json(wanted.to_json().encode()) == wanted


def test_a_long_operand_may_be_negated() -> None:
    text = f"NOT v str-contains '{'%' * 4_096}'"
    assert Filter.parse(text) == Filter.where(v=not_like("%" + "\\%" * 4_096 + "%"))
    assert Filter.parse(Filter.parse(text).to_sql()) == Filter.parse(text)


def test_the_deepest_nesting_is_read() -> None:
    assert Filter.parse("(" * 64 + "v = 1" + ")" * 64) == Filter.parse("v = 1")
    assert Filter.parse("NOT " * 64 + "v = 1") == Filter.parse("v = 1")


def test_as_many_filters_as_allowed_are_made() -> None:
    assert len(Filter.parse_all("v IN (" + ",".join(map(str, range(256))) + ")")) == 256


def hard_conditions(count: int) -> list[Like]:
    """Conditions whose automata have exponentially many states together, and that nothing simple satisfies."""
    return [Like(Pattern.parse(f"%a{'_' * number}"), wanted=number % 2 == 0) for number in range(10, 10 + count)]


def test_a_decision_beyond_the_budget_is_left_open() -> None:
    assert satisfiable(hard_conditions(9), SearchBudget(1_000)) is None


def test_a_filter_that_could_not_be_decided_is_kept_and_related_on_the_safe_side() -> None:
    patterns = [f"v {'' if c.wanted else 'NOT '}LIKE '{c.pattern.text}'" for c in hard_conditions(12)]
    first = Filter.parse(" AND ".join(patterns) + " AND v NOT LIKE '%b%'")
    second = Filter.parse(" AND ".join(patterns) + " AND v LIKE '%b__%'")
    assert first.covers(first)
    assert not first.covers(second)
    assert relate(first, second) in (Relation.INTERSECTS, Relation.DISJOINT)


def test_a_comparison_with_too_many_alternatives_is_given_up_with_an_error() -> None:
    ours = [Filter.parse(" AND ".join(f"v{k} <> {(n * k) % 17}" for k in range(12))) for n in range(40)]
    with pytest.raises(LimitError, match="too many alternatives"):
        relate(ours, Filter.parse(" AND ".join(f"v{k} isPresent 0" for k in range(12))))


def test_many_more_filters_than_the_interpreter_has_stack_are_compared() -> None:
    points = [Filter.parse(f"[v,=,{number}]") for number in range(2_000)]
    assert relate(points, Filter.parse("[v,>=,0]")) is Relation.COVERED
    assert relate(points, Filter.parse("[v,>=,1]")) is Relation.INTERSECTS


def test_every_limit_error_is_a_language_error() -> None:
    assert issubclass(LimitError, LanguageError)
    assert issubclass(ParseError, LanguageError)
    assert issubclass(LanguageError, ValueError)
