"""How much each back-end subscription brings: notifications and bytes per second, measured by Spark.

Source: the Big Active Data paper (003), "BAD Broker Load": the rate lambda_k of a subscription k is what a broker takes
in for it and passes on to each of its subscribers; the balancing policies add these rates up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WINDOW_S: Final = 300.0
"""Rates are means over this time unless another one is asked for."""


class SubscriptionRate(msgspec.Struct, frozen=True):
    """The rate of one back-end subscription over a window of time (lambda_k)."""

    channel: int
    subscription: int
    notifications_per_s: float
    bytes_per_s: float


def measured_rates(results: DataFrame, from_us: int, to_us: int) -> DataFrame:
    """Notifications and bytes per second of each subscription between two moments, from the table of results."""
    from pyspark.sql import functions

    seconds = max(to_us - from_us, 1) / 1e6
    within = results.where((functions.col("executed_us") > from_us) & (functions.col("executed_us") <= to_us))
    return within.groupBy("channel", "subscription").agg(
        (functions.count("*") / functions.lit(seconds)).alias("notifications_per_s"),
        (functions.sum(functions.octet_length("payload")) / functions.lit(seconds)).alias("bytes_per_s"),
    )
