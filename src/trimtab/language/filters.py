"""A filter: a conjunction of predicates, used as a subscription or as an advertisement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from trimtab.language import limits
from trimtab.language.conditions import Condition, Wanted
from trimtab.language.constraints import ANY_VALUE, Constraint
from trimtab.language.errors import ContradictionError, LimitError, ParseError
from trimtab.language.json_forms import OPEN_MARK, decoded_filter, predicates_from_data, without_open_mark
from trimtab.language.normal_form import constraint_of
from trimtab.language.notation import read_filters
from trimtab.language.predicates import Op, Predicate
from trimtab.language.sql import Conjunctions, format_sql
from trimtab.language.string_sets import SearchBudget
from trimtab.language.values import Value


class Filter:
    """What a subscriber wants or a publisher announces; it never changes and is never contradictory.

    Filters that ask for the same in other words (a range given twice, bounds in another order) are equal.

    >>> wanted = Filter.parse("[class,eq,'STOCK'],[volume,>,300000]")
    >>> wanted == Filter.parse("class = 'STOCK' AND volume > 300000")
    True
    >>> from trimtab import Publication
    >>> wanted.matches(Publication({"class": "STOCK"}, volume=300001))
    True
    """

    __slots__ = ("_hash", "constraints", "is_open")

    constraints: dict[str, Constraint]
    """What is asked of each attribute, by name in ascending order; not to be changed."""

    is_open: bool
    """Whether the filter, read as an advertisement, admits attributes that it does not name."""

    def __init__(
        self, predicates: Iterable[Predicate], budget: SearchBudget | None = None, *, is_open: bool = False
    ) -> None:
        given = predicates if isinstance(predicates, list) else list(predicates)
        _check_size(given)
        by_attribute: dict[str, list[Predicate]] = {}
        for predicate in given:
            by_attribute.setdefault(predicate.attribute, []).append(predicate)
        budget = budget or SearchBudget()
        self.constraints = {name: constraint_of(name, by_attribute[name], budget) for name in sorted(by_attribute)}
        self.is_open = is_open
        self._hash: int | None = None

    @classmethod
    def parse(cls, text: str) -> Filter:
        """Read a filter in either notation; a text that means several filters (OR, IN) is refused.

        >>> Filter.parse("[volume,>,300],[volume,<,5]")
        Traceback (most recent call last):
        ...
        trimtab.language.errors.ParseError: column 17: contradictory filter:
            volume: no number satisfies [volume,>,300] and [volume,<,5]
        """
        filters = cls.parse_all(text)
        if len(filters) > 1:
            raise ParseError(text, 1, f"this text means {len(filters)} filters; read it with Filter.parse_all")
        return filters[0]

    @classmethod
    def parse_all(cls, text: str) -> tuple[Filter, ...]:
        """Read a text that may mean several filters, of which any may match.

        >>> [str(filter) for filter in Filter.parse_all("symbol IN ('A', 'B') AND NOT volume < 5")]
        ["[symbol,eq,'A'],[volume,>=,5]", "[symbol,eq,'B'],[volume,>=,5]"]
        """
        return _filters_of(text, read_filters(text))

    @classmethod
    def where(cls, wanted: Mapping[str, Wanted] | None = None, /, **more: Wanted) -> Filter:
        """Make a filter from values and conditions.

        >>> from trimtab import gt
        >>> print(Filter.where({"class": "STOCK"}, volume=gt(300000)))
        [class,eq,'STOCK'],[volume,>,300000]
        """
        predicates: list[Predicate] = []
        for name, value in (*(wanted or {}).items(), *more.items()):
            if isinstance(value, Condition):
                predicates.extend(value.on(name))
            else:
                predicates.append(Predicate.of(name, Op.EQ, value))
        return cls(predicates)

    @classmethod
    def from_json(cls, text: str | bytes) -> Filter:
        """Read the JSON form: an array of [attribute, operator, value].

        >>> print(Filter.from_json('[["class", "eq", "STOCK"], ["volume", "isPresent", null]]'))
        [class,eq,'STOCK'],[volume,isPresent,*]
        """
        return cls.from_data(decoded_filter(text))

    @classmethod
    def from_data(cls, data: object) -> Filter:
        """Make a filter from the decoded JSON form."""
        named = without_open_mark(data)
        return cls(predicates_from_data(named), is_open=named is not data)

    def to_json(self) -> str:
        """The filter as a JSON array of [attribute, operator, value]; an open one ends in "*".

        >>> Filter.where(volume=5).to_json(), Filter.where(volume=5).opened().to_json()
        ('[["volume","=",5]]', '[["volume","=",5],"*"]')
        """
        return msgspec.json.encode(self.to_data()).decode()

    def to_data(self) -> list[tuple[str, str, Value | None] | str]:
        """What `to_json` writes, not yet as text."""
        named: list[tuple[str, str, Value | None] | str] = [
            (predicate.attribute, predicate.spelling, predicate.operand) for predicate in self.predicates
        ]
        return [*named, OPEN_MARK] if self.is_open else named

    def opened(self) -> Filter:
        """The same filter as an open advertisement: it also admits attributes that it does not name.

        >>> quotes, quote = Filter.parse("class = 'STOCK'"), {"class": "STOCK", "volume": 5}
        >>> quotes.announces(quote), quotes.opened().announces(quote)
        (False, True)
        """
        return self._with(is_open=True)

    def closed(self) -> Filter:
        """The same filter as an advertisement of the attributes that it names, and no others."""
        return self._with(is_open=False)

    def _with(self, *, is_open: bool) -> Filter:
        if self.is_open is is_open:
            return self
        made = object.__new__(Filter)
        made.constraints, made.is_open, made._hash = self.constraints, is_open, None
        return made

    @property
    def predicates(self) -> list[Predicate]:
        """The predicates of the normal form, by attribute."""
        return [p for name, constraint in self.constraints.items() for p in constraint.predicates(name)]

    def matches(self, publication: Mapping[str, Value]) -> bool:
        """Whether a publication satisfies every predicate."""
        for name, constraint in self.constraints.items():
            value = publication.get(name)
            if value is None or not constraint.admits(value):
                return False
        return True

    def covers(self, other: Filter, budget: SearchBudget | None = None) -> bool:
        """Whether every publication that the other filter matches is matched by this one too.

        >>> Filter.parse("[symbol,str-gt,'Y']").covers(Filter.parse("[symbol,str-prefix,'YH']"))
        True
        """
        theirs = other.constraints
        if len(theirs) < len(self.constraints):
            return False
        budget = budget or SearchBudget()
        for name, constraint in self.constraints.items():
            their = theirs.get(name)
            if their is None or not constraint.covers(their, budget):
                return False
        return True

    def overlaps(self, other: Filter, budget: SearchBudget | None = None) -> bool:
        """Whether some publication is matched by both filters.

        >>> Filter.parse("[a,=,1]").overlaps(Filter.parse("[b,=,1]"))
        True
        """
        theirs, budget = other.constraints, budget or SearchBudget()
        for name, constraint in self.constraints.items():
            their = theirs.get(name)
            if their is not None and not constraint.overlaps(their, budget):
                return False
        return True

    def disjoint(self, other: Filter) -> bool:
        """Whether no publication is matched by both filters."""
        return not self.overlaps(other)

    def intersects(self, subscription: Filter) -> bool:
        """Whether this filter, read as an advertisement, announces something that the subscription wants.

        An announced attribute may be absent from a publication, but no publication carries an attribute that was not
        announced; so every attribute that the subscription asks for must be announced, with a value in common. An open
        advertisement announces every attribute that it does not name, with any value.

        >>> quotes = Filter.parse("[class,eq,'STOCK'],[symbol,isPresent,''],[volume,isPresent,0]")
        >>> quotes.intersects(Filter.parse("[class,eq,'STOCK'],[volume,>,5]"))
        True
        >>> quotes.intersects(Filter.parse("[class,eq,'STOCK'],[price,>,5]"))
        False
        """
        announced, budget = self.constraints, SearchBudget()
        for name, constraint in subscription.constraints.items():
            ours = announced.get(name)
            if ours is None:
                if not self.is_open:
                    return False
            elif not ours.overlaps(constraint, budget):
                return False
        return True

    def announces(self, publication: Mapping[str, Value]) -> bool:
        """Whether this filter, read as an advertisement, allows the publication.

        >>> from trimtab import Publication
        >>> Filter.parse("[class,eq,'STOCK'],[volume,>,0]").announces(Publication({"class": "STOCK"}))
        True
        """
        for name, value in publication.items():
            constraint = self.constraints.get(name)
            if constraint is None:
                if not self.is_open:
                    return False
            elif not constraint.admits(value):
                return False
        return True

    def announces_all(self, other: Filter) -> bool:
        """Whether this filter, read as an advertisement, allows every publication that the other one allows.

        >>> Filter.parse("[a,>,0],[b,isPresent,0]").announces_all(Filter.parse("[a,>,5]"))
        True
        >>> Filter.parse("[a,>,0]").opened().announces_all(Filter.parse("[b,=,1]").opened())
        False
        """
        if other.is_open and not self.is_open:
            return False
        ours, theirs = self.constraints, other.constraints
        if other.is_open and not all(ours[name].covers(ANY_VALUE) for name in ours.keys() - theirs.keys()):
            return False
        for name, constraint in theirs.items():
            if name in ours:
                if not ours[name].covers(constraint):
                    return False
            elif not self.is_open:
                return False
        return True

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Filter):
            return NotImplemented
        return self.constraints == other.constraints and self.is_open is other.is_open

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(tuple(self.constraints.items()))
        return self._hash

    def __str__(self) -> str:
        """The filter in the bracket notation; one that asks for nothing is written *, an open one ends in dots.

        >>> print(Filter.parse("class = 'STOCK'").opened())
        [class,eq,'STOCK'],...
        """
        named = ",".join(str(predicate) for predicate in self.predicates) or "*"
        return f"{named},..." if self.is_open else named

    def __repr__(self) -> str:
        return f"Filter.parse({str(self.closed())!r}){'.opened()' if self.is_open else ''}"

    def __reduce__(self) -> tuple[object, ...]:
        return (_made_again, (self.predicates, self.is_open))

    def to_sql(self) -> str:
        """The filter in the notation for people.

        >>> Filter.parse("[symbol,str-prefix,'YH'],[volume,isPresent,*]").to_sql()
        "symbol LIKE 'YH%' AND volume IS NOT NULL"
        """
        return " AND ".join(format_sql(predicate) for predicate in self.predicates) or "*"


def _made_again(predicates: list[Predicate], is_open: bool) -> Filter:
    """What a pickled filter becomes."""
    return Filter(predicates, is_open=is_open)


def _check_size(predicates: list[Predicate]) -> None:
    if len(predicates) > limits.PREDICATES_MAX_COUNT:
        raise LimitError(
            f"a filter with {len(predicates):,} predicates; at most {limits.PREDICATES_MAX_COUNT} are allowed"
        )
    size_chars = sum(predicate.size_chars for predicate in predicates)
    if size_chars > limits.FILTER_SIZE_MAX_CHARS:
        raise LimitError(
            f"a filter with {size_chars:,} characters in names and values; "
            f"at most {limits.FILTER_SIZE_MAX_CHARS:,} are allowed"
        )


def _filters_of(text: str, conjunctions: Conjunctions) -> tuple[Filter, ...]:
    """The filters of all conjunctions; contradictory ones are left out unless all are."""
    found: dict[Filter, None] = {}
    first_mistake: ParseError | None = None
    budget = SearchBudget()
    for placed in conjunctions:
        try:
            found[Filter([predicate for _, predicate in placed], budget)] = None
        except ContradictionError as error:
            column = max(column for column, predicate in placed if predicate.attribute == error.attribute)
            mistake = ParseError(text, column, str(error))
            mistake.__cause__ = error
            first_mistake = first_mistake or mistake
        except LimitError as error:
            raise ParseError(text, 1, str(error)) from error
    if not found and first_mistake is not None:
        raise first_mistake
    return tuple(found)
