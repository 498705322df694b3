"""What the catalog knows of each dataset, feed, channel, broker and subscription."""

from __future__ import annotations

import msgspec

from trimtab.activedata.definitions.fields import Field, Scalar
from trimtab.activedata.definitions.statements import Source


class DatasetOptions(msgspec.Struct, frozen=True):
    """How a dataset is kept: for how long (by a field, or by when it came), in which partitions, with new fields."""

    seed: int = 0
    retain_s: float | None = None
    retain_by: str | None = None
    partition_by: tuple[str, ...] = ()
    evolving: bool = False


class DatasetEntry(msgspec.Struct, frozen=True):
    """A dataset as it was defined."""

    id: int
    name: str
    fields: tuple[Field, ...]
    keys: tuple[str, ...]
    active: bool
    options: DatasetOptions = DatasetOptions()

    @property
    def seed(self) -> int:
        """What fingerprints of its keys begin with; nobody outside knows it."""
        return self.options.seed


class FeedEntry(msgspec.Struct, frozen=True):
    """A feed, whether it runs, and what came of its records."""

    id: int
    name: str
    dataset: str
    source: Source
    running: bool
    accepted_count: int
    repeated_count: int
    rejected_count: int
    error: str | None


class FilePosition(msgspec.Struct, frozen=True):
    """How far a file of a feed's directory is read; `generation` counts how often it was written anew.

    `check` tells whether what was read still stands there.
    """

    offset: int = 0
    generation: int = 0
    check: str = ""


class ChannelEntry(msgspec.Struct, frozen=True):
    """A channel as it was defined, and the last record that it has seen (`position`)."""

    id: int
    name: str
    parameters: tuple[Field, ...]
    period_s: float | None
    retain_s: float
    body: str
    driver: str
    lookups: tuple[str, ...]
    columns: tuple[str, ...]
    position: int


class BrokerEntry(msgspec.Struct, frozen=True):
    """A broker, and when it last asked for something."""

    id: int
    name: str
    address: str
    seen_s: float | None


class SubscriptionEntry(msgspec.Struct, frozen=True):
    """A back-end subscription: a channel's results for these arguments, for records after `since`.

    Brokers that want the same share it, so that its results have the same positions for all of them and a subscriber
    that moves from one broker to another goes on after the last result that it has.
    """

    id: int
    channel: int
    arguments: dict[str, Scalar]
    since: int
