"""Checks of definitions and arguments that need Spark or the catalog."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from trimtab.activedata.definitions.bodies import Body, closed_part
from trimtab.activedata.definitions.fields import Field, Scalar, ValueMistake, arrow_type, check_value, example_value
from trimtab.activedata.definitions.tokens import split_tokens
from trimtab.activedata.errors import StatementError
from trimtab.activedata.execution.channel_queries import ChannelQuery, parameter_column
from trimtab.activedata.execution.executions import plan_text
from trimtab.activedata.execution.query_analysis import check_query
from trimtab.activedata.execution.whole_queries import TIMES, WholeQuery, WholeState
from trimtab.activedata.spark.errors import placed_error, spark_reason
from trimtab.activedata.spark.views import SparkViews
from trimtab.activedata.storage.catalog_entries import ChannelEntry
from trimtab.activedata.storage.datasets import StoredDataset

if TYPE_CHECKING:
    import pyarrow as pa


def check_arguments(channel: ChannelEntry, arguments: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """The arguments in the order of the parameters, or a mistake that says what the channel takes."""
    return checked_arguments(channel.name, channel.parameters, arguments)


def checked_arguments(owner: str, parameters: tuple[Field, ...], arguments: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """The arguments in the order of the parameters of a channel or a procedure."""
    names = [field.name for field in parameters]
    takes = ", ".join(f"{field.name} {field.type}" for field in parameters) or "no arguments"
    unknown = [name for name in arguments if name not in names]
    if unknown:
        raise ValueMistake(f"{owner} has no parameter {unknown[0]!r}; it takes {takes}")
    missing = [name for name in names if arguments.get(name) is None]
    if missing:
        raise ValueMistake(f"the argument {missing[0]!r} is missing; {owner} takes {takes}")
    try:
        return {field.name: check_value(field, arguments[field.name]) for field in parameters}
    except ValueMistake as error:
        raise ValueMistake(str(error).replace("field", "argument", 1)) from None


def check_body(
    views: SparkViews,
    datasets: Mapping[str, StoredDataset],
    body: Body,
    query: ChannelQuery,
    parameters: tuple[Field, ...],
) -> tuple[str, ...]:
    """Let Spark check a channel's body as it was written and as it is compiled; answers the names of its result fields.

    The compiled query runs once on a made-up record, which warms it, so that its first execution is not its slowest.
    """
    import pyarrow as pa
    from pyspark.errors import PySparkException

    with views.lock:
        for name in (query.driver, *query.lookups):
            dataset = datasets[name.lower()]
            views.show_store(dataset.entry.name, dataset.store, cached=not dataset.entry.active)
        own = [pa.field(parameter_column(each.name), arrow_type(each.type)) for each in parameters]
        schema = pa.schema([pa.field("_subscription", pa.int64()), pa.field("_since", pa.int64()), *own])
        values = [0, 0, *(example_value(each.type) for each in parameters)]
        views.show_arrow("_checked_subscriptions", _one_row(schema, values), None)
        driver = datasets[query.driver.lower()]
        values = [*(example_value(each.type) for each in driver.entry.fields), 0]
        views.show_arrow("_checked_new", _one_row(driver.schema, values), None)
        try:
            check_query(views.session, _plain(body), set(datasets), views.function_names)
            arguments = {each.name: example_value(each.type) for each in parameters}
            views.session.sql(_plain(body), args=arguments)
            compiled = query.text("`_checked_new`", "`_checked_subscriptions`", {})
            frame = views.session.sql(compiled)
            columns = tuple(frame.columns[2:])
            frame.toArrow()
        except PySparkException as error:
            raise placed_error(error, body.text, 0, len(body.text)) from None
    _refuse_twice(body.text, columns)
    return columns


def _refuse_twice(text: str, columns: tuple[str, ...]) -> None:
    folded = [name.lower() for name in columns]
    for index, name in enumerate(columns):
        if folded.index(name.lower()) != index:
            raise StatementError(text, 0, f"two result fields are named {name!r}; name one of them with AS")


def check_whole(
    views: SparkViews,
    datasets: Mapping[str, StoredDataset],
    text: str,
    query: WholeQuery,
    parameters: tuple[Field, ...],
) -> tuple[str, ...]:
    """Let Spark check a body that runs as a whole; answers the names of its result fields.

    What Spark cannot take apart into joins, so that all subscriptions are one query, is refused.
    """
    import pyarrow as pa
    from pyspark.errors import PySparkException

    with views.lock:
        for name in query.datasets:
            dataset = datasets[name.lower()]
            views.show_store(dataset.entry.name, dataset.store, cached=not dataset.entry.active)
        own = [pa.field(parameter_column(each.name), arrow_type(each.type)) for each in parameters]
        schema = pa.schema([pa.field("_subscription", pa.int64()), pa.field("_since", pa.int64()), *own])
        values = [0, 0, *(example_value(each.type) for each in parameters)]
        views.show_arrow("_checked_subscriptions", _one_row(schema, values), None)
        try:
            plain = _with_times(_without_is_new(text))
            check_query(views.session, plain, set(datasets), views.function_names)
            columns = views.session.sql(
                plain, args={each.name: example_value(each.type) for each in parameters}
            ).columns
        except PySparkException as error:
            raise placed_error(error, text, 0, len(text)) from None
        try:
            frame = views.session.sql(query.text("`_checked_subscriptions`", WholeState(), WholeState()))
            plan_text(frame)
        except PySparkException as error:
            reason = spark_reason(error).partition("] ")[0].strip("[")
            raise StatementError(
                text,
                _nested_parameter(text),
                "parameters cannot stand in this place: all subscriptions are one query, and Spark cannot take this "
                f"body apart for them ({reason}); join what the nested query reads instead",
            ) from None
    shown = tuple(name for name in columns if name != "_sequence")
    _refuse_twice(text, shown)
    return shown


def _nested_parameter(text: str) -> int:
    """Where the first parameter stands that is deepest in brackets: the likely reason why Spark cannot go on."""
    depth, deepest, at = 0, -1, 0
    for token in split_tokens(text):
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        if token.kind == "parameter" and depth > deepest:
            deepest, at = depth, token.start
    return at


def _without_is_new(text: str) -> str:
    """A body with each is_new(...) as true, every character at its place."""
    tokens = split_tokens(text)
    for index, token in enumerate(tokens[:-1]):
        if token.text.lower() == "is_new" and tokens[index + 1].text == "(":
            last = tokens[index + 2 + len(closed_part(tokens, index + 1))]
            text = text[: token.start] + "true".ljust(last.end - token.start) + text[last.end :]
    return text


def _with_times(text: str) -> str:
    """A body with the times of executions as now(), every character at its place."""
    for name in TIMES:
        text = re.sub(rf"\b{name}\b", "now".ljust(len(name)), text, flags=re.IGNORECASE)
    return text


def _one_row(schema: pa.Schema, values: list[object]) -> pa.Table:
    import pyarrow as pa

    arrays = [pa.array([value], field.type) for value, field in zip(values, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _plain(body: Body) -> str:
    """The body as it was written, with is_new(...) as true, every character at its place."""
    text = body.text
    for conjunct in body.where:
        first, last = conjunct.tokens[0], conjunct.tokens[-1]
        if first.text.lower() == "is_new" and len(conjunct.tokens) == 4:
            text = text[: first.start] + "true".ljust(last.end - first.start) + text[last.end :]
    return text
