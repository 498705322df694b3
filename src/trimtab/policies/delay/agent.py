"""The management agent (MA) of delay-sensitive load management in a broker: HMA at a head, EMA at an edge.

Source: R. Tao, S. Poslad, J. Bigham (2013), section III.B. Roles follow the topology as in the thesis that the paper
extends, and so does the rule that publishers are served by heads (`trimtab.policies.padres.agent`).
"""

from __future__ import annotations

from random import Random

from trimtab.policies.api import AgentPlace
from trimtab.policies.delay.config import DelayConfig
from trimtab.policies.delay.edge import DelayEdge
from trimtab.policies.delay.head import DelayHead
from trimtab.policies.delay.messages import ANNOUNCED
from trimtab.policies.padres.agent import PadresAgent
from trimtab.policies.padres.config import PadresConfig


def delay_agent(config: DelayConfig, rng: Random) -> PadresAgent:
    """The agent of one broker.

    >>> delay_agent(DelayConfig(), Random(1)).name
    'delay'
    """
    return PadresAgent(
        PadresConfig(),
        rng,
        name="delay",
        edge=lambda host, cluster, _, __, now_s: DelayEdge(host, cluster, config, now_s),
        head=lambda host, _, __, ___, now_s: DelayHead(host, config, now_s),
        announced=(ANNOUNCED,),
    )


def agent_of(config: DelayConfig, place: AgentPlace) -> PadresAgent:
    """The same, at a place."""
    return delay_agent(config, place.rng("delay"))
