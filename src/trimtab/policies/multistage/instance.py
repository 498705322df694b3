"""Who subscribes to what, and how much each back-end subscription brings: what all decisions of this room are about.

Source: Nguyen, Uddin, Venkatasubramanian, multistage adaptive load balancing for big active data publish/subscribe
systems, the slides on broker load: n subscribers, q subscriptions, rates (lambda_k), the matrix (y_ik).

The matrix is sparse: subscriber i has the subscriptions `subscriptions[starts[i]:starts[i + 1]]`, each once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Places: TypeAlias = npt.NDArray[np.int64]
"""Whole numbers: subscribers, brokers, places in other arrays."""

Names: TypeAlias = npt.NDArray[np.int32]
"""The numbers of back-end subscriptions."""


@dataclass(frozen=True)
class Instance:
    """Subscribers with their back-end subscriptions, and the rates of these.

    >>> instance = Instance.of([[0, 1], [1]], [10.0, 2.0])
    >>> instance.own_loads_bytes_per_s.tolist()
    [12.0, 2.0]
    """

    starts: Places
    """Where each subscriber's subscriptions begin; one more than there are subscribers."""

    subscriptions: Names
    rates_bytes_per_s: Floats
    """Of each back-end subscription's notifications (lambda_k)."""

    def __post_init__(self) -> None:
        if self.starts.ndim != 1 or not len(self.starts) or self.starts[0] != 0:
            raise ValueError("the places where subscribers begin are not a list that begins with 0")
        if self.starts[-1] != len(self.subscriptions) or (np.diff(self.starts) < 0).any():
            raise ValueError("the places where subscribers begin do not fit the subscriptions")
        if len(self.subscriptions):
            if self.subscriptions.min() < 0 or self.subscriptions.max() >= len(self.rates_bytes_per_s):
                raise ValueError("a subscriber has a subscription that has no rate")
        if not np.isfinite(self.rates_bytes_per_s).all() or (self.rates_bytes_per_s < 0).any():
            raise ValueError("a rate is negative or no number")

    @classmethod
    def of(cls, subscriptions: Iterable[Iterable[int]], rates_bytes_per_s: Sequence[float] | Floats) -> Instance:
        """From one collection of subscriptions for each subscriber; what stands in it twice counts once."""
        rows = [sorted(set(row)) for row in subscriptions]
        starts = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum([len(row) for row in rows], out=starts[1:])
        flat = np.fromiter((each for row in rows for each in row), dtype=np.int32, count=int(starts[-1]))
        return cls(starts, flat, np.asarray(rates_bytes_per_s, dtype=np.float64))

    @property
    def subscribers_count(self) -> int:
        """How many subscribers there are (n)."""
        return len(self.starts) - 1

    @property
    def subscriptions_count(self) -> int:
        """How many back-end subscriptions there are (q)."""
        return len(self.rates_bytes_per_s)

    @property
    def front_end_count(self) -> int:
        """How many front-end subscriptions all subscribers have together."""
        return len(self.subscriptions)

    @cached_property
    def own_loads_bytes_per_s(self) -> Floats:
        """What each subscriber is sent (u_i): the rates of its subscriptions."""
        return self.sums(self.rates_bytes_per_s)

    @cached_property
    def subscribers_by_subscription_count(self) -> Places:
        """How many subscribers each back-end subscription has."""
        return np.bincount(self.subscriptions, minlength=self.subscriptions_count).astype(np.int64)

    @cached_property
    def owners(self) -> Places:
        """The subscriber of each front-end subscription."""
        return np.repeat(np.arange(self.subscribers_count, dtype=np.int64), np.diff(self.starts))

    def of_subscriber(self, subscriber: int) -> Names:
        """One subscriber's back-end subscriptions."""
        return self.subscriptions[self.starts[subscriber] : self.starts[subscriber + 1]]

    def sums(self, values: Floats) -> Floats:
        """For each subscriber the sum of the values of its subscriptions; one value for each back-end subscription."""
        totals = np.zeros(self.subscribers_count)
        begins = self.starts[:-1]
        with_some = begins < self.starts[1:]
        if with_some.any():
            totals[with_some] = np.add.reduceat(values[self.subscriptions], begins[with_some])
        return totals

    def part(self, subscribers: Places) -> Instance:
        """The same for some of the subscribers, in the order given."""
        counts = np.diff(self.starts)[subscribers]
        starts = np.zeros(len(subscribers) + 1, dtype=np.int64)
        np.cumsum(counts, out=starts[1:])
        places = np.arange(starts[-1], dtype=np.int64) + np.repeat(self.starts[subscribers] - starts[:-1], counts)
        return Instance(starts, self.subscriptions[places], self.rates_bytes_per_s)
