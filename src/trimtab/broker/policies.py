"""Which agents a broker has, by the name of a policy."""

from __future__ import annotations

from random import Random
from typing import Final, Literal, TypeAlias, get_args

from trimtab.balancing.multistage.config import CoordinatorConfig
from trimtab.balancing.multistage.coordinated_agent import CoordinatedAgent
from trimtab.balancing.padres.agent import PadresAgent
from trimtab.balancing.padres.config import PadresConfig
from trimtab.balancing.padres.fast_edge import FastEdge
from trimtab.balancing.padres.fast_head import FastHead
from trimtab.balancing.padres.naive_agent import NaiveEdge, NaiveHead
from trimtab.load.agents import Agent

Policy: TypeAlias = Literal["none", "naive", "padres", "padres-fast", "coordinated"]
"""none: clients stay where they are; naive: random clients to a random broker that is less loaded; padres: the thesis's
balancing; padres-fast: a plan for all brokers at once; coordinated: a coordination server tells who moves."""

COORDINATOR_NAME: Final = "coordinator"
"""The broker of a coordinated network that leads the others."""

POLICIES: tuple[str, ...] = get_args(Policy)


def agents_of(
    policy: Policy,
    broker: str,
    seed: int | str,
    padres: PadresConfig,
    *,
    coordination: CoordinatorConfig | None = None,
    site: tuple[float, float] | None = None,
) -> list[Agent]:
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
        case "coordinated" if broker == COORDINATOR_NAME:
            from trimtab.balancing.multistage.coordinator_agent import CoordinatorAgent  # needs numpy

            rng = Random(f"coordinator {seed}")
            return [CoordinatorAgent(coordination or CoordinatorConfig(), rng, f"coordinator-{seed}")]
        case "coordinated":
            return [CoordinatedAgent(site)]
        case "padres":
            return [PadresAgent(padres, Random(f"padres {broker} {seed}"))]
