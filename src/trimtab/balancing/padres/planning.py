"""The offload algorithm for an action."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.balancing.padres.config import PadresConfig
from trimtab.balancing.padres.decisions import Action, NoAction
from trimtab.balancing.padres.offload import OffloadPlan
from trimtab.balancing.padres.offload_input import plan_input_offload
from trimtab.balancing.padres.offload_match import plan_match_offload
from trimtab.balancing.padres.offload_output import plan_output_offload
from trimtab.language import Filter
from trimtab.load.estimation import BrokerResources
from trimtab.load.profiles import Sample


def plan_offload(
    action: Action,
    ours: BrokerResources,
    theirs: BrokerResources,
    sample: Sample,
    their_filters: Sequence[Filter],
    *,
    config: PadresConfig,
) -> OffloadPlan | NoAction:
    """Which clients to move to another broker in order to balance an index; `their_filters` is the covering set of all
    that the other broker's routing table holds, so that what it receives anyway is known."""
    algorithm = {
        Action.INPUT: plan_input_offload,
        Action.MATCH: plan_match_offload,
        Action.OUTPUT: plan_output_offload,
    }[action]
    return algorithm(ours, theirs, sample, their_filters, config)
