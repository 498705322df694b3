"""The statements of active data, and the parser that reads them.

The words follow the original's where they are good: datasets, feeds, channels, brokers, subscribe. Every mistake is
told with its position. The body of a channel and plain queries are Spark's own SQL, and are passed on as text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from trimtab.activedata.definitions.data_statements import (
    FORMATS,
    DataStatement,
    Put,
    format_of,
    read_alter,
    read_copy,
    read_delete,
    read_duration_s,
    read_put,
    read_update,
    read_value,
)
from trimtab.activedata.definitions.fields import Field, Scalar
from trimtab.activedata.definitions.routines import (
    CreateFunction,
    CreateProcedure,
    Execute,
    read_function,
    read_procedure,
)
from trimtab.activedata.definitions.tokens import Token, TokenReader
from trimtab.activedata.definitions.types import read_type

__all__ = ["Put", "Statement", "parse_call", "parse_statements"]

RESERVED_NAMES: Final = frozenset({"results", "dead_letters", "subscriptions", "rates"})
"""Names that queries use for what every active-data store has."""

POLL_MIN_S: Final = 0.1
PERIOD_MIN_S: Final = 0.01


class CreateDataset(msgspec.Struct, frozen=True):
    """`CREATE [ACTIVE] DATASET name (field TYPE [OPTIONAL], ...) [KEY field | KEY (field, ...)] [EVOLVING]
    [PARTITION BY field | DAY(field), ...] [RETAIN n DAYS [BY field]]`.

    An evolving dataset gets the fields that records of feeds have and it has not.
    """

    name: str
    fields: tuple[Field, ...]
    keys: tuple[str, ...]
    active: bool
    if_not_exists: bool = False
    partition_by: tuple[str, ...] = ()
    retain_s: float | None = None
    retain_by: str | None = None
    evolving: bool = False


class InferDataset(msgspec.Struct, frozen=True):
    """`CREATE [ACTIVE] DATASET name FROM 'path' [FORMAT f] KEY ...`: Spark says which fields the files have.

    `clauses` is what follows, as text; fields that are no key are OPTIONAL.
    """

    name: str
    path: str
    format: str
    clauses: str
    active: bool
    if_not_exists: bool = False
    position: int = 0

    def defined(self, fields: Mapping[str, str]) -> str:
        """The statement with its fields, by their names and types.

        >>> InferDataset("T", "x.csv", "CSV", "KEY id", False).defined({"id": "INT", "n": "STRING"})
        'CREATE DATASET T (`id` INT, `n` STRING OPTIONAL) KEY id'
        """
        words = {token.text.strip("`") for token in TokenReader(self.clauses).tokens if token.kind != "mark"}
        said = [f"`{name}` {type_}{'' if name in words else ' OPTIONAL'}" for name, type_ in fields.items()]
        kind = "ACTIVE DATASET" if self.active else "DATASET"
        return f"CREATE {kind} {self.name} ({', '.join(said)}) {self.clauses}".rstrip()


class DirectorySource(msgspec.Struct, frozen=True, tag="directory"):
    """Files in a directory, in the order of their names; their names say the format unless it is given."""

    path: str
    format: str | None = None


class HttpSource(msgspec.Struct, frozen=True, tag="http"):
    """Lines that are posted to the service."""


class OverlaySource(msgspec.Struct, frozen=True, tag="overlay"):
    """Publications that match a filter at a broker of the overlay."""

    filter: str
    broker: str


class JdbcSource(msgspec.Struct, frozen=True, tag="jdbc"):
    """A table of PostgreSQL that is read again and again; from the last value on if a column grows."""

    url: str
    table: str
    by: str | None = None
    every_s: float = 5.0
    user: str | None = None
    password: str | None = None


Source: TypeAlias = DirectorySource | HttpSource | OverlaySource | JdbcSource


class CreateFeed(msgspec.Struct, frozen=True):
    """`CREATE FEED name INTO dataset FROM` a directory, HTTP, a table or the overlay."""

    name: str
    dataset: str
    source: Source
    if_not_exists: bool = False
    position: int = 0


class SwitchFeed(msgspec.Struct, frozen=True):
    """`START FEED name` or `STOP FEED name`."""

    name: str
    running: bool


class CreateChannel(msgspec.Struct, frozen=True):
    """`CREATE [CONTINUOUS | REPETITIVE] [PUSH] CHANNEL name(parameter TYPE, ...) [PERIOD n SECONDS] ... AS SELECT ...`.

    A channel without a period is continuous. A repetitive one runs its whole body each period, any other sees new
    records only. `body_start` is where the body stands in the text.
    """

    name: str
    parameters: tuple[Field, ...]
    period_s: float | None
    retain_s: float | None
    body: str
    body_start: int = 0
    if_not_exists: bool = False
    repetitive: bool = False
    push: bool = False
    wait_s: float | None = None
    wait_for: str = ""


class CreateBroker(msgspec.Struct, frozen=True):
    """`CREATE [PUBLISHING] BROKER name AT 'address' [SECRET 'text']`: its results are fetched, or published there.

    Results for an address with http, https or file are posted or written there by the process.
    """

    name: str
    address: str
    if_not_exists: bool = False
    publishes: bool = False
    position: int = 0
    secret: str | None = None


class Subscribe(msgspec.Struct, frozen=True):
    """`SUBSCRIBE TO channel(value, ...) ON broker`, or with `parameter => value`."""

    channel: str
    positional: tuple[Scalar, ...]
    named: dict[str, Scalar]
    broker: str
    position: int = 0


class Unsubscribe(msgspec.Struct, frozen=True):
    """`UNSUBSCRIBE id [ON broker]`: that broker does not want it any more, or nobody does."""

    subscription: int
    broker: str | None = None


class SwitchSubscription(msgspec.Struct, frozen=True):
    """`PAUSE SUBSCRIPTION id` or `RESUME SUBSCRIPTION id`: no results for records until it is resumed."""

    subscription: int
    running: bool


class Drop(msgspec.Struct, frozen=True):
    """`DROP DATASET | FEED | CHANNEL | BROKER [IF EXISTS] name [CASCADE]`; only a broker's drop may cascade."""

    kind: str
    name: str
    if_exists: bool = False
    cascade: bool = False


class Query(msgspec.Struct, frozen=True):
    """A plain query over datasets, results, dead_letters, subscriptions and rates."""

    text: str


Statement: TypeAlias = (
    CreateDataset
    | InferDataset
    | CreateFeed
    | SwitchFeed
    | CreateChannel
    | CreateBroker
    | Subscribe
    | Unsubscribe
    | SwitchSubscription
    | Drop
    | DataStatement
    | CreateFunction
    | CreateProcedure
    | Execute
    | Query
)


class Placed(msgspec.Struct, frozen=True):
    """A statement and where it starts and ends in the text."""

    statement: Statement
    start: int
    end: int


def parse_statements(text: str) -> list[Placed]:
    """Read all statements of a text, which are separated by semicolons.

    >>> [placed.statement for placed in parse_statements("STOP FEED fires; UNSUBSCRIBE 7")]
    [SwitchFeed(name='fires', running=False), Unsubscribe(subscription=7, broker=None)]
    """
    reader = TokenReader(text)
    found: list[Placed] = []
    while True:
        while reader.skip(";"):
            pass
        if reader.next.kind == "end":
            return found
        start = reader.next.start
        statement = _statement(reader)
        if reader.next.kind != "end" and not reader.at(";"):
            raise reader.expected("';' or the end of the statement")
        found.append(Placed(statement, start, reader.next.start))


def _statement(reader: TokenReader) -> Statement:
    token = reader.next
    match token.upper if token.kind == "word" else "":
        case "CREATE":
            return _create(reader)
        case "START" | "STOP":
            reader.take()
            reader.need("FEED")
            return SwitchFeed(reader.need_name("the feed's name").text, token.upper == "START")
        case "SUBSCRIBE":
            return _subscribe(reader)
        case "UNSUBSCRIBE":
            reader.take()
            number = _subscription(reader)
            broker = reader.need_name("the broker's name").text if reader.skip("ON") else None
            return Unsubscribe(number, broker)
        case "EXECUTE":
            reader.take()
            procedure, positional, named = _call(reader)
            return Execute(procedure.text, positional, named, procedure.start)
        case "PAUSE" | "RESUME":
            reader.take()
            reader.need("SUBSCRIPTION")
            return SwitchSubscription(_subscription(reader), token.upper == "RESUME")
        case "DROP":
            return _drop(reader)
        case "INSERT" | "UPSERT":
            return read_put(reader)
        case "UPDATE":
            return read_update(reader)
        case "DELETE":
            return read_delete(reader)
        case "COPY":
            return read_copy(reader)
        case "ALTER":
            return read_alter(reader)
        case "SELECT" | "WITH" | "EXPLAIN":
            return Query(_rest(reader)[0])
    raise reader.expected(
        "CREATE, ALTER, DROP, START, STOP, SUBSCRIBE, UNSUBSCRIBE, PAUSE, RESUME, INSERT, UPSERT, UPDATE, DELETE, "
        "COPY or SELECT"
    )


def _subscription(reader: TokenReader) -> int:
    number = reader.take()
    if number.kind != "number" or not number.text.isdigit():
        raise reader.expected("the number of a subscription", number)
    return int(number.text)


def _rest(reader: TokenReader) -> tuple[str, int]:
    """Everything up to the semicolon, as text, and where it starts."""
    start = reader.next.start
    end = start
    while reader.next.kind != "end" and not reader.at(";"):
        end = reader.take().end
    return reader.text[start:end], start


def _create(reader: TokenReader) -> Statement:
    reader.need("CREATE")
    if reader.at("ACTIVE") or reader.at("DATASET"):
        active = reader.skip("ACTIVE")
        reader.need("DATASET")
        return _dataset(reader, active)
    if reader.skip("FEED"):
        return _feed(reader)
    if reader.at("CONTINUOUS") or reader.at("REPETITIVE") or reader.at("CHANNEL") or reader.at("PUSH"):
        return _channel(reader)
    if reader.at("PUBLISHING") or reader.at("BROKER"):
        publishes = reader.skip("PUBLISHING")
        reader.need("BROKER")
        if_not_exists = reader.skip("IF", "NOT", "EXISTS")
        name = _own_name(reader, "the broker's name").text
        reader.need("AT")
        at = reader.next.start
        address = reader.need_string("the broker's address")
        secret = reader.need_string("the secret") if not publishes and reader.skip("SECRET") else None
        return CreateBroker(name, address, if_not_exists, publishes, at, secret)
    if reader.skip("FUNCTION"):
        function = _own_name(reader, "the function's name")
        return read_function(reader, function, _fields(reader, "parameter", may_be_optional=False))
    if reader.skip("PROCEDURE"):
        procedure = _own_name(reader, "the procedure's name")
        return read_procedure(reader, procedure, _fields(reader, "parameter", may_be_optional=False), read_duration_s)
    raise reader.expected(
        "[ACTIVE] DATASET, FEED, [CONTINUOUS | REPETITIVE] [PUSH] CHANNEL, [PUBLISHING] BROKER, FUNCTION or PROCEDURE"
    )


def _own_name(reader: TokenReader, what: str) -> Token:
    token = reader.need_name(what)
    if token.text.lower() in RESERVED_NAMES or token.text.startswith("_"):
        raise reader.refuse(token, f"the name {token.text!r} is reserved")
    if not token.text.isidentifier() or not token.text.isascii():
        raise reader.refuse(token, f"{token.text!r} is no name: letters, digits and _ only")
    return token


def _dataset(reader: TokenReader, active: bool) -> CreateDataset | InferDataset:
    if_not_exists = reader.skip("IF", "NOT", "EXISTS")
    name = _own_name(reader, "the dataset's name").text
    if reader.skip("FROM"):
        at = reader.next
        path = reader.need_string("the path of files")
        file_format = _format(reader) or format_of(path)
        if not file_format:
            raise reader.refuse(at, "the format cannot be known from the path; say FORMAT JSON, CSV or PARQUET")
        return InferDataset(name, path, file_format, _rest(reader)[0], active, if_not_exists, at.start)
    fields = _fields(reader, "field", may_be_optional=True)
    if not fields:
        raise reader.refuse(reader.next, "a dataset needs at least one field")
    by_name = {each.name: each for each in fields}
    keys: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    retain_s = retain_by = None
    evolving = False
    while True:
        if reader.skip("EVOLVING"):
            evolving = True
        elif reader.skip("KEY"):
            keys = _keys(reader, by_name)
        elif reader.skip("PARTITION", "BY"):
            partition_by = _partitions(reader, by_name)
        elif reader.skip("RETAIN"):
            retain_s = read_duration_s(reader)
            if reader.skip("BY"):
                retain_by = _known_field(reader, by_name, ("TIMESTAMP", "DATE"), "keeps records by").name
        else:
            break
    return CreateDataset(name, fields, keys, active, if_not_exists, partition_by, retain_s, retain_by, evolving)


def _keys(reader: TokenReader, by_name: dict[str, Field]) -> tuple[str, ...]:
    """The field, or the fields in brackets, that tell records apart."""
    found: list[str] = []
    in_brackets = reader.skip("(")
    while not found or (in_brackets and reader.skip(",")):
        key = reader.need_name("the field that is the key")
        if key.text not in by_name:
            raise reader.refuse(key, f"the key {key.text!r} is no field of the dataset; there are {', '.join(by_name)}")
        if by_name[key.text].optional:
            raise reader.refuse(key, f"the key {key.text!r} cannot be optional")
        if by_name[key.text].type.startswith(("ARRAY", "STRUCT")):
            raise reader.refuse(key, f"the key {key.text!r} cannot be an array or a struct")
        if key.text in found:
            raise reader.refuse(key, f"{key.text!r} stands twice in the key")
        found.append(key.text)
    if in_brackets:
        reader.need(")")
    return tuple(found)


def _partitions(reader: TokenReader, by_name: dict[str, Field]) -> tuple[str, ...]:
    found: list[str] = []
    while not found or reader.skip(","):
        if reader.at("DAY", "("):
            reader.need("DAY", "(")
            found.append(
                f"DAY({_known_field(reader, by_name, ('TIMESTAMP', 'DATE'), 'is partitioned by days of').name})"
            )
            reader.need(")")
        else:
            kinds = ("STRING", "INT", "BIGINT", "BOOLEAN", "DATE")
            found.append(_known_field(reader, by_name, kinds, "is partitioned by").name)
    return tuple(found)


def _known_field(reader: TokenReader, by_name: dict[str, Field], kinds: tuple[str, ...], use: str) -> Field:
    token = reader.need_name("a field")
    field = by_name.get(token.text)
    if field is None:
        raise reader.refuse(token, f"{token.text!r} is no field of the dataset; there are {', '.join(by_name)}")
    if field.type not in kinds:
        raise reader.refuse(
            token, f"a dataset {use} a field of type {' or '.join(kinds)}; {token.text} is {field.type}"
        )
    return field


def _fields(reader: TokenReader, what: str, *, may_be_optional: bool) -> tuple[Field, ...]:
    reader.need("(")
    fields: list[Field] = []
    while not reader.skip(")"):
        if fields:
            reader.need(",")
        name = _own_name(reader, f"the name of a {what}")
        if any(each.name.lower() == name.text.lower() for each in fields):
            raise reader.refuse(name, f"there are two {what}s named {name.text!r}")
        start = reader.next
        type_ = read_type(reader, name.text)
        if what == "parameter" and type_.members:
            raise reader.refuse(start, f"a parameter has one value; {type_.name} is not one")
        optional = may_be_optional and reader.skip("OPTIONAL")
        fields.append(Field(name.text, type_.text, optional))
    return tuple(fields)


def _feed(reader: TokenReader) -> CreateFeed:
    if_not_exists = reader.skip("IF", "NOT", "EXISTS")
    name = _own_name(reader, "the feed's name").text
    reader.need("INTO")
    dataset = reader.need_name("the dataset's name")
    reader.need("FROM")
    source: Source
    if reader.skip("DIRECTORY"):
        path = reader.need_string("the directory")
        source = DirectorySource(path, _format(reader))
    elif reader.skip("HTTP"):
        source = HttpSource()
    elif reader.skip("JDBC"):
        source = _jdbc(reader)
    elif reader.skip("OVERLAY"):
        filter_text = reader.need_string("the filter")
        reader.need("AT")
        source = OverlaySource(filter_text, reader.need_string("the broker's address"))
    else:
        raise reader.expected("DIRECTORY 'path', HTTP, JDBC 'address' TABLE 'name', or OVERLAY 'filter' AT 'host:port'")
    return CreateFeed(name, dataset.text, source, if_not_exists, dataset.start)


def _jdbc(reader: TokenReader) -> JdbcSource:
    url = reader.need_string("the address")
    reader.need("TABLE")
    table = reader.need_string("the table's name")
    by = user = password = None
    every_s = 5.0
    while True:
        if reader.skip("BY"):
            by = reader.need_string("the column's name") if reader.next.kind == "string" else reader.need_name("").text
        elif reader.at("EVERY"):
            every = reader.take()
            every_s = read_duration_s(reader)
            if every_s < POLL_MIN_S:
                raise reader.refuse(every, f"a table is read at most every {POLL_MIN_S:g} seconds")
        elif reader.skip("USER"):
            user = reader.need_string("the user's name")
        elif reader.skip("PASSWORD"):
            password = reader.need_string("the password")
        else:
            return JdbcSource(url, table, by, every_s, user, password)


def _format(reader: TokenReader) -> str | None:
    if not reader.skip("FORMAT"):
        return None
    word = reader.take()
    if word.upper not in FORMATS:
        raise reader.expected("JSON, CSV or PARQUET", word)
    return word.upper


def _channel(reader: TokenReader) -> CreateChannel:
    continuous = reader.skip("CONTINUOUS")
    repetitive = not continuous and reader.skip("REPETITIVE")
    push = reader.skip("PUSH")
    reader.need("CHANNEL")
    if_not_exists = reader.skip("IF", "NOT", "EXISTS")
    name = _own_name(reader, "the channel's name").text
    parameters = _fields(reader, "parameter", may_be_optional=False)
    period_s = retain_s = wait_s = None
    wait_for = ""
    while True:
        if reader.at("PERIOD"):
            period = reader.take()
            if continuous:
                raise reader.refuse(period, "a continuous channel runs when records arrive and has no period")
            period_s = read_duration_s(reader)
            if period_s < PERIOD_MIN_S:
                raise reader.refuse(period, f"a period is at least {PERIOD_MIN_S:g} seconds, not {period_s:g}")
        elif reader.skip("RETAIN"):
            retain_s = read_duration_s(reader)
        elif reader.at("WAIT"):
            wait = reader.take()
            if repetitive:
                raise reader.refuse(wait, "a repetitive channel runs its whole body again; nothing waits")
            reader.need("UP", "TO")
            wait_s = read_duration_s(reader)
            reader.need("FOR")
            wait_for = reader.need_name("the name of a dataset of the FROM").text
        else:
            break
    if not continuous and period_s is None:
        raise reader.expected("PERIOD n SECONDS (or CREATE CONTINUOUS CHANNEL)")
    reader.need("AS")
    if not reader.at("SELECT") and not reader.at("WITH"):
        raise reader.expected("SELECT")
    body, body_start = _rest(reader)
    return CreateChannel(
        name, parameters, period_s, retain_s, body, body_start, if_not_exists, repetitive, push, wait_s, wait_for
    )


def _subscribe(reader: TokenReader) -> Subscribe:
    reader.need("SUBSCRIBE", "TO")
    channel, positional, named = _call(reader)
    reader.need("ON")
    return Subscribe(channel.text, positional, named, reader.need_name("the broker's name").text, channel.start)


def parse_call(text: str) -> tuple[str, tuple[Scalar, ...], dict[str, Scalar]]:
    """Read `channel(value, ...)` or `channel(parameter => value, ...)`.

    >>> parse_call('EmergencyOfType(event => "flood")')
    ('EmergencyOfType', (), {'event': 'flood'})
    """
    reader = TokenReader(text)
    channel, positional, named = _call(reader)
    if reader.next.kind != "end":
        raise reader.expected("the end")
    return channel.text, positional, named


def _call(reader: TokenReader) -> tuple[Token, tuple[Scalar, ...], dict[str, Scalar]]:
    channel = reader.need_name("the channel's name")
    reader.need("(")
    positional: list[Scalar] = []
    named: dict[str, Scalar] = {}
    while not reader.skip(")"):
        if positional or named:
            reader.need(",")
        token = reader.next
        if token.kind in ("word", "name") and reader.tokens[reader.index + 1].text == "=>":
            reader.index += 2
            if token.text in named:
                raise reader.refuse(token, f"{token.text!r} is given twice")
            named[token.text] = read_value(reader)
        else:
            positional.append(read_value(reader))
    if positional and named:
        raise reader.refuse(channel, "give all arguments by position or all by name")
    return channel, tuple(positional), named


def _drop(reader: TokenReader) -> Drop:
    reader.need("DROP")
    kind = reader.take()
    if kind.upper not in ("DATASET", "FEED", "CHANNEL", "BROKER", "FUNCTION", "PROCEDURE"):
        raise reader.expected("DATASET, FEED, CHANNEL, BROKER, FUNCTION or PROCEDURE", kind)
    if_exists = reader.skip("IF", "EXISTS")
    name = reader.need_name("a name")
    cascade = reader.at("CASCADE")
    if cascade and kind.upper != "BROKER":
        raise reader.refuse(reader.next, "only a broker is dropped together with its subscriptions")
    reader.skip("CASCADE")
    return Drop(kind.upper, name.text, if_exists, cascade)
