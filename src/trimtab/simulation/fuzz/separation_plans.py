"""Random runs in which the way between two halves of a network is cut for so long that one half replaces a broker.

One link is cut, so that one broker is missed: several that are replaced at once are more than one death, which `safe`
does not promise to survive. Nothing else fails in these runs, and no agents talk.
"""

from __future__ import annotations

from random import Random

import msgspec

from trimtab.simulation.faults.deaths import Deaths
from trimtab.simulation.faults.faults import FrameFault
from trimtab.simulation.faults.separation import Separation
from trimtab.simulation.fuzz.plans import CHURN_S, FuzzPlan

_BROKERS_MIN_COUNT = 3
"""Two cannot outvote each other."""


def with_separation(plan: FuzzPlan, probability: float) -> FuzzPlan:
    """The same run, in some cases with a separation instead of deaths."""
    rng = Random(f"trimtab fuzz separation {plan.seed}")
    deaths = plan.deaths
    if deaths is None or deaths.acknowledges != "safe" or len(plan.brokers) < _BROKERS_MIN_COUNT:
        return plan
    if rng.random() >= probability:
        return plan
    at_s, for_s = rng.uniform(3.0, CHURN_S - 6.0), rng.choice((1.0, 3.0, 8.0)) * rng.uniform(0.3, 1.0)
    first, second, _ = rng.choice([link for link in plan.links if link[0] in plan.brokers and link[1] in plan.brokers])
    separation = Separation(brokers=_behind(plan, first, second), at_s=at_s, for_s=for_s)
    return msgspec.structs.replace(
        plan,
        guests=[],
        is_balanced=False,
        coordinator="",
        relocation="",
        channel_acts=[],
        acts=[act for act in plan.acts if "@" not in act.client],
        faults=[fault for fault in plan.faults if isinstance(fault, FrameFault)],
        deaths=_separated(deaths, separation),
    )


def _separated(deaths: Deaths, separation: Separation) -> Deaths:
    return msgspec.structs.replace(deaths, failures=(), helped=(), separation=separation)


def _behind(plan: FuzzPlan, first: str, second: str) -> tuple[str, ...]:
    """The brokers on the second one's side of a link, in the order of the plan."""
    found = {second}
    links = [(one, other) for one, other, _ in plan.links if {one, other} != {first, second}]
    for _ in plan.brokers:
        found.update(other for link in links for one, other in (link, link[::-1]) if one in found)
    return tuple(name for name in plan.brokers if name in found)
