"""Instances for tests: drawn from a seed, or by hypothesis."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from trimtab.policies.multistage.instance import Instance, Places


def random_instance(seed: int, subscribers_count: int, subscriptions_count: int, most_count: int = 8) -> Instance:
    """Subscribers with one to some subscriptions each, popular ones more often."""
    rng = np.random.default_rng(seed)
    weights = 1.0 / np.arange(1, subscriptions_count + 1) ** 0.8
    rows = [
        rng.choice(subscriptions_count, size=rng.integers(1, most_count + 1), replace=False, p=weights / weights.sum())
        for _ in range(subscribers_count)
    ]
    return Instance.of([row.tolist() for row in rows], rng.uniform(10.0, 1000.0, subscriptions_count))


def crowded(seed: int, subscribers_count: int, brokers_count: int) -> Places:
    """An assignment with far more at the first brokers than at the last."""
    rng = np.random.default_rng([seed, 7])
    weights = 1.0 / np.arange(1, brokers_count + 1)
    return rng.choice(brokers_count, size=subscribers_count, p=weights / weights.sum()).astype(np.int64)


@st.composite
def situations(draw: st.DrawFn) -> tuple[Instance, Places, int]:
    """A small instance, an assignment and a count of brokers."""
    brokers_count = draw(st.integers(1, 5))
    subscriptions_count = draw(st.integers(1, 8))
    rates = draw(
        st.lists(
            st.one_of(st.just(0.0), st.floats(0.5, 1000.0)), min_size=subscriptions_count, max_size=subscriptions_count
        )
    )
    rows = draw(st.lists(st.lists(st.integers(0, subscriptions_count - 1), max_size=6), max_size=25))
    brokers = draw(st.lists(st.integers(0, brokers_count - 1), min_size=len(rows), max_size=len(rows)))
    return Instance.of(rows, rates), np.array(brokers, dtype=np.int64), brokers_count
