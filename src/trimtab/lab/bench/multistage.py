"""How long decisions for very many subscribers take: a shuffle, and one round of each migration.

The instance: each subscriber has 10 to 30 subscriptions, popular ones more often (Zipf, exponent 0.7), and broker j has
a share of the subscribers in proportion to 1 / sqrt(j). Every result is checked: the loads are made anew from scratch.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from typing import Final

import msgspec
import numpy as np

from trimtab.policies.multistage.config import MultistageConfig
from trimtab.policies.multistage.gsh import plan_gsh
from trimtab.policies.multistage.instance import Instance, Places
from trimtab.policies.multistage.ldm import plan_ldm
from trimtab.policies.multistage.load import broker_loads, cov
from trimtab.policies.multistage.lower_bound import lower_bound
from trimtab.policies.multistage.sdm import plan_sdm

SECONDS_MAX: Final = 10.0
MEMORY_MAX_BYTES: Final = 4_000_000_000


class PlanFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One decision."""

    policy: str
    elapsed_s: float
    cpu_s: float
    moves: int
    max_load: float
    cov: float
    total_load: float
    ratio: float
    """The largest load in relation to the lower bound."""


class MultistageFigures(msgspec.Struct, frozen=True, kw_only=True):
    """All decisions, and the most memory that the process has had."""

    subscribers_count: int
    brokers_count: int
    back_end_count: int
    front_end_count: int
    before: PlanFigures
    plans: list[PlanFigures]
    peak_memory_bytes: int
    seconds_max: float
    memory_max_bytes: int
    is_within: bool


def draw_instance(
    seed: int, subscribers_count: int, brokers_count: int, subscriptions_count: int
) -> tuple[Instance, Places]:
    """Subscribers with their wishes, and where they are."""
    rng = np.random.default_rng(seed)
    wanted = rng.integers(10, 31, subscribers_count)
    popularity = np.cumsum(np.arange(1, subscriptions_count + 1) ** -0.7)
    drawn = np.searchsorted(popularity / popularity[-1], rng.random(int(wanted.sum())))
    owners = np.repeat(np.arange(subscribers_count, dtype=np.int64), wanted)
    cells = np.unique(owners * subscriptions_count + np.minimum(drawn, subscriptions_count - 1))
    starts = np.searchsorted(cells, np.arange(subscribers_count + 1, dtype=np.int64) * subscriptions_count)
    subscriptions = (cells % subscriptions_count).astype(np.int32)
    instance = Instance(starts.astype(np.int64), subscriptions, rng.uniform(10.0, 1000.0, subscriptions_count))
    crowd = np.cumsum(np.arange(1, brokers_count + 1) ** -0.5)
    brokers = np.searchsorted(crowd / crowd[-1], rng.random(subscribers_count))
    return instance, np.minimum(brokers, brokers_count - 1).astype(np.int64)


def measure(
    subscribers_count: int,
    brokers_count: int,
    subscriptions_count: int,
    seed: int = 1,
    on_plan: Callable[[PlanFigures], None] | None = None,
) -> MultistageFigures:
    """Decide with each policy from the same start."""
    instance, start = draw_instance(seed, subscribers_count, brokers_count, subscriptions_count)
    config = MultistageConfig()
    bound = lower_bound(instance, brokers_count).best

    def figures(policy: str, assignment: Places, elapsed_s: float = 0.0, cpu_s: float = 0.0) -> PlanFigures:
        loads = broker_loads(instance, assignment, brokers_count)
        return PlanFigures(
            policy=policy,
            elapsed_s=elapsed_s,
            cpu_s=cpu_s,
            moves=int(np.count_nonzero(assignment != start)),
            max_load=float(loads.max()),
            cov=cov(loads),
            total_load=float(loads.sum()),
            ratio=float(loads.max()) / bound,
        )

    decisions: dict[str, Callable[[], Places]] = {
        "gsh": lambda: plan_gsh(instance, start, brokers_count),
        "ldm": lambda: plan_ldm(instance, start, brokers_count, config).assignment,
        "sdm": lambda: plan_sdm(instance, start, brokers_count, config).assignment,
    }
    plans: list[PlanFigures] = []
    for policy, decide in decisions.items():
        begin_s, begin_cpu_s = time.perf_counter(), time.process_time()
        assignment = decide()
        plans.append(figures(policy, assignment, time.perf_counter() - begin_s, time.process_time() - begin_cpu_s))
        if on_plan is not None:
            on_plan(plans[-1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak_bytes = peak if sys.platform == "darwin" else peak * 1024
    return MultistageFigures(
        subscribers_count=subscribers_count,
        brokers_count=brokers_count,
        back_end_count=subscriptions_count,
        front_end_count=instance.front_end_count,
        before=figures("none", start),
        plans=plans,
        peak_memory_bytes=peak_bytes,
        seconds_max=SECONDS_MAX,
        memory_max_bytes=MEMORY_MAX_BYTES,
        is_within=all(plan.elapsed_s <= SECONDS_MAX for plan in plans) and peak_bytes <= MEMORY_MAX_BYTES,
    )
