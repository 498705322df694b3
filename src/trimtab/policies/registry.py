"""Which agents a broker has, by the name of a policy.

A policy moves subscribers, publishers, or both with a plus between: `padres`, `grape-load75`, `padres+pop`. One that a
user has written is named by its file, `my_policy.py:MyPolicy`. Agents are loaded when they are wanted, for a replica
without any should begin soon.
"""

from __future__ import annotations

from random import Random
from typing import Final, Literal, TypeAlias, get_args

from trimtab.policies.api import Agent
from trimtab.policies.delay.config import DelayConfig
from trimtab.policies.multistage.config import CoordinatorConfig
from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.relocation.config import RelocationConfig, relocation_of
from trimtab.policies.user_policies import is_own, own_policy

Balancing: TypeAlias = Literal[
    "none",
    "naive",
    "padres",
    "padres-fast",
    "delay",
    "coordinated",
    "connection-counts",
    "average-shedding",
    "threshold-shedding",
    "filter-hashing",
    "grape-subscribers",
]
"""none: clients stay where they are; naive: random clients to a random broker that is less loaded; padres: the thesis's
balancing; padres-fast: a plan for all brokers at once; delay: by latency requirements; coordinated: a coordination
server tells who moves; grape-subscribers: subscribers go towards their publishers; the others are what other systems do
(`trimtab.policies.rivals`)."""

Policy: TypeAlias = str
"""One of the above, a relocation policy (pop, grape-load100, grape-delay25, grape-joint ...), or both with a plus."""

COORDINATOR_NAME: Final = "coordinator"
"""The broker of a coordinated network that leads the others."""

POLICIES: tuple[str, ...] = (*get_args(Balancing), "pop", "grape-load100", "grape-delay100", "grape-joint")
"""The policies by name; GRAPE's weights go from 0 to 100."""


def check_policy(policy: str) -> None:
    """Raise a ValueError that says what was expected if there is no such policy.

    >>> check_policy("padres+grape-load75")
    >>> check_policy("grape-load101")
    Traceback (most recent call last):
    ...
    ValueError: policy: no policy is called grape-load101; expected one of none, naive, padres, padres-fast, \
delay, coordinated, connection-counts, average-shedding, threshold-shedding, filter-hashing, \
grape-subscribers, pop, grape-load100, grape-delay100, grape-joint (or another weight), or one of each kind with a plus
    """
    if is_own(policy):
        own_policy(policy)
        return
    parts = policy.split("+")
    moved = ["publishers" if relocation_of(part) is not None else "subscribers" for part in parts]
    unknown = [part for part in parts if part not in get_args(Balancing) and relocation_of(part) is None]
    if unknown or len(set(moved)) != len(moved):
        problem = f"no policy is called {unknown[0]}" if unknown else f"{policy} moves {moved[0]} twice"
        known = ", ".join(POLICIES)
        raise ValueError(
            f"policy: {problem}; expected one of {known} (or another weight), or one of each kind with a plus"
        )


def objection_to_change(policy: str, other: str) -> str:
    """Why a broker that works by a policy cannot work by another from now on, empty if it can.

    Files are named by whoever starts a broker, and not by whoever can reach it.

    >>> objection_to_change("none", "padres"), objection_to_change("none", "my_policy.py:MyPolicy")
    ('', 'a policy in a file is named in the network file, before brokers start')
    """
    if is_own(other):
        return "a policy in a file is named in the network file, before brokers start"
    if "coordinated" in (*policy.split("+"), *other.split("+")):
        return "a network is coordinated from its beginning, or it is not"
    check_policy(other)
    return ""


def agents_of(
    policy: Policy,
    broker: str,
    seed: int | str,
    padres: PadresConfig,
    *,
    coordination: CoordinatorConfig | None = None,
    site: tuple[float, float] | None = None,
    relocation: RelocationConfig | None = None,
    delay: DelayConfig | None = None,
) -> list[Agent]:
    """The agents of one broker; random choices come from the seed and the broker's name.

    >>> [agent.name for agent in agents_of("padres+grape-load75", "B1", 1, PadresConfig())]
    ['padres', 'grape']
    """
    check_policy(policy)
    if is_own(policy):
        return [own_policy(policy)(Random(f"{policy} {broker} {seed}"))]
    agents: list[Agent] = []
    for part in policy.split("+"):
        config = relocation_of(part, relocation)
        if config is not None:
            from trimtab.policies.relocation.agent import RelocationAgent

            agents.append(RelocationAgent(config, Random(f"{config.algorithm} {broker} {seed}")))
        elif part == "delay":
            from trimtab.policies.delay.agent import delay_agent

            agents.append(delay_agent(delay or DelayConfig(), Random(f"delay {broker} {seed}")))
        elif part == "grape-subscribers":
            from trimtab.policies.relocation.subscriber_agent import SubscriberAgent

            rng = Random(f"grape-subscribers {broker} {seed}")
            agents.append(SubscriberAgent(relocation or RelocationConfig(), rng))
        else:
            agents += _balancing_agents(part, broker, seed, padres, coordination, site)
    return agents


def _balancing_agents(  # noqa: PLR0917 (what agents are made of)
    policy: str,
    broker: str,
    seed: int | str,
    padres: PadresConfig,
    coordination: CoordinatorConfig | None,
    site: tuple[float, float] | None,
) -> list[Agent]:
    match policy:
        case "none":
            return []
        case "naive":
            from trimtab.policies.naive.agent import NaiveEdge, NaiveHead
            from trimtab.policies.padres.agent import PadresAgent

            rng = Random(f"naive {broker} {seed}")
            return [PadresAgent(padres, rng, name="naive", edge=NaiveEdge, head=NaiveHead)]
        case "padres-fast":
            from trimtab.policies.padres.agent import PadresAgent
            from trimtab.policies.padres_fast.edge import FastEdge
            from trimtab.policies.padres_fast.head import FastHead

            rng = Random(f"padres-fast {broker} {seed}")
            return [PadresAgent(padres, rng, name="padres-fast", edge=FastEdge, head=FastHead)]
        case "connection-counts" | "average-shedding" | "threshold-shedding" | "filter-hashing":
            from trimtab.policies.rivals.agent import rival_agent

            return [rival_agent(policy, padres, Random(f"{policy} {broker} {seed}"))]
        case "coordinated" if broker == COORDINATOR_NAME:
            from trimtab.policies.multistage.coordinator_agent import CoordinatorAgent  # needs numpy

            rng = Random(f"coordinator {seed}")
            return [CoordinatorAgent(coordination or CoordinatorConfig(), rng, f"coordinator-{seed}")]
        case "coordinated":
            from trimtab.policies.multistage.coordinated_agent import CoordinatedAgent

            return [CoordinatedAgent(site)]
        case _:
            from trimtab.policies.padres.agent import PadresAgent

            return [PadresAgent(padres, Random(f"padres {broker} {seed}"))]
