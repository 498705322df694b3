"""The offload algorithm for an action, and the load that it begins with."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.language import Filter
from trimtab.load.estimation import BrokerResources, LoadChange, after_change
from trimtab.load.profiles import Sample, and_not, union
from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.padres.decisions import LoadIndex, NoAction
from trimtab.policies.padres.offload import OffloadPlan
from trimtab.policies.padres.offload_input import plan_input_offload
from trimtab.policies.padres.offload_match import plan_match_offload
from trimtab.policies.padres.offload_output import plan_output_offload


def plan_offload(
    action: LoadIndex,
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
        LoadIndex.INPUT: plan_input_offload,
        LoadIndex.MATCH: plan_match_offload,
        LoadIndex.OUTPUT: plan_output_offload,
    }[action]
    return algorithm(ours, theirs, sample, their_filters, config)


def without_leaving(ours: BrokerResources, staying: Sample, leaving: Sample) -> BrokerResources:
    """Our load once the clients that were asked to move have left; both samples are of the same publications.

    Clients leave an overloaded broker only when they have been sent what waits there for them, which may take minutes.
    Until then they count in everything that is measured, and the next plan would give their load away once more.
    """
    wanted = union(client.bits for client in staying.clients) | staying.fixed_bits
    spared_per_s = leaving.rate_per_s(and_not(union(client.bits for client in leaving.clients), wanted))
    return after_change(
        ours,
        LoadChange(
            -sum(len(client.filters) for client in leaving.clients),
            -spared_per_s,
            -spared_per_s * leaving.mean_size_bytes,
            -sum(leaving.bandwidth_bytes_per_s(client.bits) for client in leaving.clients),
        ),
    )
