"""Checks of definitions and arguments that need Spark or the catalog."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from trimtab.activedata.definitions.bodies import Body
from trimtab.activedata.definitions.fields import Field, Scalar, ValueMistake, arrow_type, check_value, example_value
from trimtab.activedata.errors import StatementError
from trimtab.activedata.execution.channel_queries import ChannelQuery, parameter_column
from trimtab.activedata.execution.query_analysis import check_query
from trimtab.activedata.execution.spark_errors import placed_error
from trimtab.activedata.execution.spark_views import SparkViews
from trimtab.activedata.storage.catalog_entries import ChannelEntry
from trimtab.activedata.storage.datasets import StoredDataset

if TYPE_CHECKING:
    import pyarrow as pa


def check_arguments(channel: ChannelEntry, arguments: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """The arguments in the order of the parameters, or a mistake that says what the channel takes."""
    names = [field.name for field in channel.parameters]
    takes = ", ".join(f"{field.name} {field.type}" for field in channel.parameters) or "no arguments"
    unknown = [name for name in arguments if name not in names]
    if unknown:
        raise ValueMistake(f"{channel.name} has no parameter {unknown[0]!r}; it takes {takes}")
    missing = [name for name in names if arguments.get(name) is None]
    if missing:
        raise ValueMistake(f"the argument {missing[0]!r} is missing; {channel.name} takes {takes}")
    try:
        return {field.name: check_value(field, arguments[field.name]) for field in channel.parameters}
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
            check_query(views.session, _plain(body), set(datasets))
            arguments = {each.name: example_value(each.type) for each in parameters}
            views.session.sql(_plain(body), args=arguments)
            compiled = query.text("`_checked_new`", "`_checked_subscriptions`", {})
            frame = views.session.sql(compiled)
            columns = tuple(frame.columns[2:])
            frame.toArrow()
        except PySparkException as error:
            raise placed_error(error, body.text, 0, len(body.text)) from None
    folded = [name.lower() for name in columns]
    for index, name in enumerate(columns):
        if folded.index(name.lower()) != index:
            raise StatementError(body.text, 0, f"two result fields are named {name!r}; name one of them with AS")
    return columns


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
