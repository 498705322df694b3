"""Which agents a broker has, by the name of a policy."""

from __future__ import annotations

from random import Random
from typing import Literal, TypeAlias, get_args

from trimtab.balancing.padres.agent import PadresAgent
from trimtab.balancing.padres.config import PadresConfig
from trimtab.balancing.padres.fast_edge import FastEdge
from trimtab.balancing.padres.fast_head import FastHead
from trimtab.balancing.padres.naive_agent import NaiveEdge, NaiveHead
from trimtab.load.agents import Agent

Policy: TypeAlias = Literal["none", "naive", "padres", "padres-fast"]
"""none: clients stay where they are; naive: random clients to a random broker that is less loaded; padres: the thesis's
balancing; padres-fast: a plan for all brokers at once."""

POLICIES: tuple[str, ...] = get_args(Policy)


def agents_of(policy: Policy, broker: str, seed: int | str, padres: PadresConfig) -> list[Agent]:
    """The agents of one broker; random choices come from the seed and the broker's name.

    >>> [agent.name for agent in agents_of("padres", "B1", 1, PadresConfig())]
    ['padres']
    """
    match policy:
        case "none":
            return []
        case "naive":
            rng = Random(f"naive {broker} {seed}")
            return [PadresAgent(padres, rng, name="naive", edge=NaiveEdge, head=NaiveHead)]
        case "padres-fast":
            rng = Random(f"padres-fast {broker} {seed}")
            return [PadresAgent(padres, rng, name="padres-fast", edge=FastEdge, head=FastHead)]
        case "padres":
            return [PadresAgent(padres, Random(f"padres {broker} {seed}"))]
