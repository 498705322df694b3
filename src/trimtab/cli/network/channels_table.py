"""What brokers do for subscribers to channels, as a table."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table

from trimtab.protocol.frames import BrokerStatus


def has_channels(found: Mapping[str, BrokerStatus | None]) -> bool:
    """Whether some broker has a back end."""
    return any(status is not None and status.channels is not None for status in found.values())


def channels_table(found: Mapping[str, BrokerStatus | None]) -> Table:
    """A row for each broker with a back end."""
    table = Table("broker", "back end", title="channels", title_justify="left")
    for heading in ("streams", "subscriptions", "fetched", "delivered", "cached"):
        table.add_column(heading, justify="right")
    for name, status in found.items():
        channels = None if status is None else status.channels
        if channels is not None:
            counts = (
                channels.streams_count,
                channels.subscriptions_count,
                channels.results_in_count,
                channels.results_out_count,
                channels.cached_count,
            )
            reached = "answers" if channels.is_reached else "does not answer"
            table.add_row(name, reached, *(f"{count:,}" for count in counts))
    return table
