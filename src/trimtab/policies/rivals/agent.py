"""The agents of the rivals' policies, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Final

from trimtab.policies.api import AgentPlace
from trimtab.policies.naive.agent import NaiveHead
from trimtab.policies.padres.agent import PadresAgent
from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.rivals.average_shedding import AverageShedding
from trimtab.policies.rivals.connection_counts import ConnectionCounts
from trimtab.policies.rivals.decision import Deciding
from trimtab.policies.rivals.edge import RivalEdge
from trimtab.policies.rivals.filter_hashing import FilterHashing
from trimtab.policies.rivals.threshold_shedding import ThresholdShedding

RIVALS: Final[Mapping[str, Callable[[], Deciding]]] = {
    "connection-counts": ConnectionCounts,
    "average-shedding": AverageShedding,
    "threshold-shedding": ThresholdShedding,
    "filter-hashing": FilterHashing,
}


def rival_agent(policy: str, config: PadresConfig, rng: Random) -> PadresAgent:
    """The agent of one broker.

    >>> rival_agent("average-shedding", PadresConfig(), Random(1)).name
    'average-shedding'
    """
    edge = partial(RivalEdge, way=RIVALS[policy]())
    return PadresAgent(config, rng, name=policy, edge=edge, head=NaiveHead)


def agent_of(config: PadresConfig, place: AgentPlace) -> PadresAgent:
    """The same, at a place."""
    return rival_agent(place.policy, config, place.rng(place.policy))
