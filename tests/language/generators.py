"""Generated values, predicates and their spellings, for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from trimtab.language.predicates import Op, Predicate
from trimtab.language.values import Value, format_value

ORDER_OPS = [Op.EQ, Op.NEQ, Op.LT, Op.LE, Op.GT, Op.GE]
STRING_OPS = [*ORDER_OPS, Op.PREFIX, Op.SUFFIX, Op.CONTAINS]
LIKE_OPS = [Op.LIKE, Op.NOT_LIKE]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([0.5, -0.5, 1.0, 2.5, 1e300, -1e-300, 2.0**53, 1e19]),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
)
values: st.SearchStrategy[Value] = st.one_of(texts, numbers, st.booleans())
names = st.one_of(
    st.sampled_from(["class", "volume", "and", "NULL", "e", "two words", "größe", "a-b.c", "[x]", "0", "true"]),
    st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="`"), min_size=1, max_size=6),
)


def predicates_on(
    names: st.SearchStrategy[str],
    numbers: st.SearchStrategy[int | float],
    texts: st.SearchStrategy[str],
    patterns: st.SearchStrategy[str],
) -> st.SearchStrategy[Predicate]:
    """Predicates with any operator on the names, with operands of all kinds."""
    return st.one_of(
        st.builds(Predicate.of, names, st.sampled_from([*ORDER_OPS, Op.PRESENT]), numbers),
        st.builds(Predicate.of, names, st.sampled_from([*STRING_OPS, Op.PRESENT]), texts),
        st.builds(Predicate.of, names, st.sampled_from(LIKE_OPS), patterns),
        st.builds(Predicate.of, names, st.sampled_from([Op.EQ, Op.NEQ, Op.PRESENT]), st.booleans()),
        st.builds(Predicate.of, names, st.just(Op.PRESENT), st.none()),
    )


def patterns_over(letters: str, max_size: int = 5) -> st.SearchStrategy[str]:
    """LIKE patterns of letters and wildcards; a wildcard is also taken literally at times."""
    parts = st.sampled_from([*letters, "%", "_", "\\%", "\\_", "\\\\"])
    return st.lists(parts, max_size=max_size).map("".join)


any_predicates = predicates_on(names, numbers, texts, patterns_over("ab'\n"))

_BRACKET_SPELLINGS = {
    Op.EQ: ["eq", "=", "==", "EQ"],
    Op.NEQ: ["neq", "<>", "!="],
    Op.LT: ["<", "str-lt"],
    Op.LE: ["<=", "str-le"],
    Op.GT: [">", "str-gt"],
    Op.GE: [">=", "str-ge"],
    Op.PREFIX: ["str-prefix", "STR-PREFIX"],
    Op.SUFFIX: ["str-suffix", "str-postfix"],
    Op.CONTAINS: ["str-contains"],
    Op.LIKE: ["str-like"],
    Op.NOT_LIKE: ["str-not-like"],
    Op.PRESENT: ["isPresent", "ispresent"],
}


@st.composite
def bracket_texts(draw: st.DrawFn, predicate: Predicate) -> str:
    """One of the ways to write a predicate in brackets."""
    name = f"`{predicate.attribute}`"
    space = draw(st.sampled_from(["", " ", "\t"]))
    if predicate.operand is None:
        return draw(
            st.sampled_from([f"[{name},*]", f"[{name},eq,*]", f"[{name},isPresent]", f"[{name}, isPresent, *]"])
        )
    spellings = [
        spelling
        for spelling in _BRACKET_SPELLINGS[predicate.op]
        if isinstance(predicate.operand, str) or not spelling.startswith("str-")
    ]
    return f"[{space}{name},{draw(st.sampled_from(spellings))}{space},{format_value(predicate.operand)}{space}]"


@st.composite
def sql_texts(draw: st.DrawFn, predicate: Predicate) -> str:
    """One of the ways to write a predicate in SQL's manner."""
    name = f"`{predicate.attribute}`"
    if predicate.operand is None:
        return draw(st.sampled_from([f"{name} IS NOT NULL", f"{name} = *", f"{name} is not null"]))
    value = format_value(predicate.operand)
    mirrored = {Op.EQ: "=", Op.NEQ: "<>", Op.LT: ">", Op.LE: ">=", Op.GT: "<", Op.GE: "<="}
    forms = [f"{name} {spelling} {value}" for spelling in _BRACKET_SPELLINGS[predicate.op] if "str-" not in spelling]
    if predicate.op in mirrored:
        forms.append(f"{value} {mirrored[predicate.op]} {name}")
    if predicate.pattern is not None:
        negation = "NOT " if predicate.op is Op.NOT_LIKE else ""
        pattern = predicate.operand if predicate.op in LIKE_OPS else predicate.pattern.text
        forms = [f"{name} {negation}LIKE {format_value(pattern)}", f"{name} {predicate.op} {value}"]
    if predicate.op is Op.EQ:
        forms.append(f"{name} IN ({value})")
    if predicate.op is Op.NEQ:
        forms += [f"NOT {name} = {value}", f"{name} NOT IN ({value})", f"NOT ({name} IN ({value}))"]
    return draw(st.sampled_from(forms))
