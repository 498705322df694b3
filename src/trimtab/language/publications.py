"""A publication: a set of named values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from trimtab.language import limits
from trimtab.language.errors import LanguageError, LimitError, ParseError
from trimtab.language.flattening import NESTED_TYPES, flattened
from trimtab.language.json_forms import read_json_publication
from trimtab.language.notation import read_publication
from trimtab.language.values import Value, check_name, check_value, format_name, format_value


class Publication(Mapping[str, Value]):
    """What a publisher sends: attributes and their values; it never changes.

    >>> quote = Publication({"class": "STOCK"}, symbol="YHOO", volume=203400)
    >>> quote["volume"]
    203400
    >>> print(quote)
    [class,'STOCK'],[symbol,'YHOO'],[volume,203400]

    Values inside values get names with dots, places in a list are numbered from 0, and None means absent.

    >>> print(Publication({"address": {"city": "Ayr", "zip": None}, "tags": ["new", "red"]}))
    [address.city,'Ayr'],[tags.0,'new'],[tags.1,'red']
    """

    __slots__ = ("values_by_name",)

    values_by_name: dict[str, Value]
    """The values as a plain dictionary, for matching; not to be changed."""

    def __init__(self, values: Mapping[str, object] | None = None, /, **more: object) -> None:
        if values is not None and not isinstance(values, Mapping):
            raise TypeError(f"a publication is made from names and their values, not from {_named_type(values)}")
        given: dict[str, object] = {**(values or {}), **more}
        if more and values and len(given) < len(values) + len(more):
            raise LanguageError(f"the attribute {min(more.keys() & values.keys())} is given twice")
        if len(given) > limits.ATTRIBUTES_MAX_COUNT:
            raise LimitError(
                f"a publication with {len(given):,} attributes; at most {limits.ATTRIBUTES_MAX_COUNT:,} are allowed"
            )
        if any(type(value) in NESTED_TYPES for value in given.values()):
            given = flattened(given)
        checked: dict[str, Value] = {}
        for name, value in given.items():
            check_name(name)
            try:
                checked[name] = check_value(value)
            except LanguageError as error:
                raise type(error)(f"attribute {name}: {error}") from None
        object.__setattr__(self, "values_by_name", checked)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a publication does not change; make a new one")

    @classmethod
    def trusted(cls, values: dict[str, Value]) -> Publication:
        """Wrap values that have been checked already, without looking at them again."""
        publication = object.__new__(cls)
        _set_values(publication, values)
        return publication

    @classmethod
    def parse(cls, text: str) -> Publication:
        """Read a publication in brackets, as a list of equalities, or as JSON.

        >>> Publication.parse("[class,'STOCK'],[volume,5]") == Publication.parse("class = 'STOCK', volume = 5")
        True
        """
        values = read_publication(text)
        try:
            return cls(values)
        except LanguageError as error:
            raise ParseError(text, 1, str(error)) from error

    @classmethod
    def from_json(cls, text: str | bytes) -> Publication:
        """Read a JSON object of attributes.

        >>> Publication.from_json('{"class": "STOCK", "volume": 203400}')["class"]
        'STOCK'
        """
        return cls(read_json_publication(text))

    def to_json(self) -> str:
        """The publication as a JSON object.

        >>> Publication(volume=5).to_json()
        '{"volume":5}'
        """
        return msgspec.json.encode(self.values_by_name).decode()

    def __getitem__(self, name: str) -> Value:
        return self.values_by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_by_name)

    def __len__(self) -> int:
        return len(self.values_by_name)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Publication):
            return NotImplemented
        return _comparable(self.values_by_name) == _comparable(other.values_by_name)

    def __hash__(self) -> int:
        return hash(frozenset(_comparable(self.values_by_name).items()))

    def __str__(self) -> str:
        """The publication in the bracket notation; one without attributes is written {}."""
        attributes = (f"[{format_name(name)},{format_value(value)}]" for name, value in self.values_by_name.items())
        return ",".join(attributes) or "{}"

    def __repr__(self) -> str:
        return f"Publication.parse({str(self)!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return (Publication, (self.values_by_name,))


_set_values = Publication.__dict__["values_by_name"].__set__


def _named_type(given: object) -> str:
    """A kind of Python object in words.

    >>> _named_type("text"), _named_type(5)
    ('a text; read it with Publication.parse', 'int')
    """
    return "a text; read it with Publication.parse" if isinstance(given, str) else type(given).__name__


def _comparable(values: dict[str, Value]) -> dict[str, tuple[bool, Value]]:
    """Values with booleans told apart from the numbers that Python takes them for."""
    return {name: (isinstance(value, bool), value) for name, value in values.items()}
