"""Who is where, with every broker's load kept up to date while subscribers move, in steps as small as the move."""

from __future__ import annotations

from typing import Final

import numpy as np

from trimtab.policies.multistage.instance import Floats, Instance, Names, Places
from trimtab.policies.multistage.load import front_end_counts, outgoing_loads

_SUM_AGAIN_EVERY_COUNT: Final = 4096
"""After so many moves the loads' sums are made anew, so that what is lost by rounding does not add up."""


class Standing:
    """An assignment that changes.

    >>> standing = Standing(Instance.of([[0], [0], [1]], [10.0, 2.0]), np.array([0, 0, 1]), 2)
    >>> standing.released(0, 0), standing.added(0, 1)
    (10.0, 20.0)
    >>> standing.move(0, 0, 1)
    >>> standing.loads.tolist()
    [20.0, 24.0]
    """

    def __init__(self, instance: Instance, assignment: Places, brokers_count: int) -> None:
        counts = front_end_counts(instance, assignment, brokers_count)
        self.instance = instance
        self.brokers_count = brokers_count
        self.held: Floats = np.ascontiguousarray((counts > 0).T.astype(np.float64))
        """1 where a broker (column) has a back-end subscription (row), otherwise 0 (z_jk)."""

        self.loads: Floats = instance.rates_bytes_per_s @ self.held + outgoing_loads(
            instance, assignment, brokers_count
        )
        self._counts: list[list[int]] = counts.tolist()
        self._rates: list[float] = instance.rates_bytes_per_s.tolist()
        self._own_loads: list[float] = instance.own_loads_bytes_per_s.tolist()
        self._starts: list[int] = instance.starts.tolist()
        self._assignment: list[int] = assignment.tolist()
        self._moves_count = 0
        self._row_of = -1
        self._last_row: list[int] = []
        self._sum_again()

    def _sum_again(self) -> None:
        self._total = float(self.loads.sum())
        self._squares = float((self.loads**2).sum())

    @property
    def mean(self) -> float:
        """The mean load of brokers (mu)."""
        return self._total / self.brokers_count

    @property
    def cov(self) -> float:
        """How uneven the loads are."""
        mean = self.mean
        if mean <= 0:
            return 0.0
        variance = self._squares / self.brokers_count - mean**2
        return float(max(variance, 0.0) ** 0.5) / mean

    def broker_of(self, subscriber: int) -> int:
        """Where a subscriber is."""
        return self._assignment[subscriber]

    def counts_of(self, broker: int) -> Places:
        """How many subscribers of a broker have each back-end subscription (n_jk)."""
        return np.array(self._counts[broker], dtype=np.int64)

    def counts_of_some(self, broker: int, subscriptions: Names) -> Places:
        """The same for some back-end subscriptions."""
        row = self._counts[broker]
        return np.array([row[each] for each in subscriptions.tolist()], dtype=np.int64)

    def holds_all(self, subscriber: int, broker: int) -> bool:
        """Whether a broker fetches everything that a subscriber wants."""
        row = self._counts[broker]
        return 0 not in [row[each] for each in self._row(subscriber)]

    def released(self, subscriber: int, broker: int) -> float:
        """By how much the load of its broker falls when a subscriber leaves."""
        row, rates, load = self._counts[broker], self._rates, self._own_loads[subscriber]
        for each in self._row(subscriber):
            if row[each] == 1:
                load += rates[each]
        return load

    def added(self, subscriber: int, broker: int) -> float:
        """By how much the load of another broker rises when a subscriber comes."""
        row, rates, load = self._counts[broker], self._rates, self._own_loads[subscriber]
        for each in self._row(subscriber):
            if not row[each]:
                load += rates[each]
        return load

    def move(self, subscriber: int, source: int, target: int) -> None:
        """A subscriber goes from one broker to another."""
        assert self._assignment[subscriber] == source != target
        own_load = self._own_loads[subscriber]
        leaves = comes = own_load
        from_row, to_row, rates, held = self._counts[source], self._counts[target], self._rates, self.held
        for each in self._row(subscriber):
            if from_row[each] == 1:
                leaves += rates[each]
                held[each, source] = 0.0
            from_row[each] -= 1
            if not to_row[each]:
                comes += rates[each]
                held[each, target] = 1.0
            to_row[each] += 1
        self._assignment[subscriber] = target
        self._change(source, -leaves)
        self._change(target, comes)
        self._moves_count += 1
        if self._moves_count % _SUM_AGAIN_EVERY_COUNT == 0:
            self._sum_again()

    def assignment(self) -> Places:
        """Who is where."""
        return np.array(self._assignment, dtype=np.int64)

    def _change(self, broker: int, difference: float) -> None:
        before = float(self.loads[broker])
        after = before + difference
        self.loads[broker] = after
        self._total += difference
        self._squares += after * after - before * before

    def _row(self, subscriber: int) -> list[int]:
        """A subscriber's subscriptions; several questions about the same one follow each other."""
        if subscriber != self._row_of:
            self._row_of = subscriber
            begin, end = self._starts[subscriber], self._starts[subscriber + 1]
            self._last_row = self.instance.subscriptions[begin:end].tolist()
        return self._last_row
