"""Functions for queries, and procedures: statements with parameters that run when told to, or by themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from trimtab.activedata.definitions.fields import Field, Scalar
from trimtab.activedata.definitions.tokens import Token, TokenReader, split_tokens
from trimtab.activedata.definitions.types import read_type
from trimtab.activedata.errors import StatementError

IN_PROCEDURES: Final = ("INSERT", "UPSERT", "UPDATE", "DELETE", "COPY")
"""How the statement of a procedure may begin."""

PERIOD_MIN_S: Final = 0.1


class CreateFunction(msgspec.Struct, frozen=True):
    """`CREATE FUNCTION name(parameter TYPE, ...) RETURNS TYPE AS expression`."""

    name: str
    parameters: tuple[Field, ...]
    returns: str
    expression: str
    expression_start: int = 0
    position: int = 0

    @property
    def sql(self) -> str:
        """The statement that makes it in a session of Spark."""
        taken = ", ".join(f"`{each.name}` {each.type}" for each in self.parameters)
        declared = f"`{self.name}`({taken}) RETURNS {self.returns}"
        return f"CREATE OR REPLACE TEMPORARY FUNCTION {declared} RETURN {self.expression}"


class CreateProcedure(msgspec.Struct, frozen=True):
    """`CREATE PROCEDURE name(parameter TYPE, ...) [PERIOD n SECONDS] AS statement`."""

    name: str
    parameters: tuple[Field, ...]
    period_s: float | None
    body: str
    body_start: int = 0
    position: int = 0


class Execute(msgspec.Struct, frozen=True):
    """`EXECUTE procedure(value, ...)`, or with `parameter => value`."""

    procedure: str
    positional: tuple[Scalar, ...]
    named: dict[str, Scalar]
    position: int = 0


def read_function(reader: TokenReader, name: Token, parameters: tuple[Field, ...]) -> CreateFunction:
    """Read a function behind its parameters."""
    reader.need("RETURNS")
    returns = read_type(reader, name.text).text
    if not reader.skip("RETURN"):
        reader.need("AS")
    expression, start = _rest(reader)
    if not expression:
        raise reader.expected("an expression")
    return CreateFunction(name.text, parameters, returns, expression, start, name.start)


def read_procedure(
    reader: TokenReader, name: Token, parameters: tuple[Field, ...], duration_s: Callable[[TokenReader], float]
) -> CreateProcedure:
    """Read a procedure behind its parameters."""
    period_s = None
    if reader.at("PERIOD"):
        period = reader.take()
        period_s = duration_s(reader)
        if period_s < PERIOD_MIN_S:
            raise reader.refuse(period, f"a procedure runs at most every {PERIOD_MIN_S:g} seconds")
        if parameters:
            raise reader.refuse(period, "a procedure that runs by itself has no parameters")
    reader.need("AS")
    if reader.next.upper not in IN_PROCEDURES:
        raise reader.expected(", ".join(IN_PROCEDURES))
    names = {each.name.lower() for each in parameters}
    for token in reader.tokens[reader.index :]:
        if token.text == ";":
            break
        if token.kind == "parameter" and token.text[1:].lower() not in names:
            known = ", ".join(f":{each.name}" for each in parameters) or "none"
            raise reader.refuse(token, f"{token.text} is no parameter of the procedure; there are {known}")
    body, start = _rest(reader)
    return CreateProcedure(name.text, parameters, period_s, body, start, name.start)


def _rest(reader: TokenReader) -> tuple[str, int]:
    start = end = reader.next.start
    while reader.next.kind != "end" and not reader.at(";"):
        end = reader.take().end
    return reader.text[start:end], start


def with_arguments(text: str, arguments: Mapping[str, Scalar]) -> str:
    """A statement with values in place of its parameters.

    >>> with_arguments("DELETE FROM Users WHERE name = :who AND age > :age", {"who": "O'Hara", "age": 3})
    "DELETE FROM Users WHERE name = 'O\\\\'Hara' AND age > 3"
    """
    values = {name.lower(): literal(value) for name, value in arguments.items()}
    written, end = "", 0
    for token in split_tokens(text):
        if token.kind == "parameter":
            if token.text[1:].lower() not in values:
                raise StatementError(text, token.start, f"{token.text} has no value")
            written += text[end : token.start] + values[token.text[1:].lower()]
            end = token.end
    return written + text[end:]


def literal(value: Scalar) -> str:
    """A value as statements write it.

    >>> literal(None), literal(True), literal(-2.5)
    ('NULL', 'true', '-2.5')
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
    escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"'{escaped}'"
