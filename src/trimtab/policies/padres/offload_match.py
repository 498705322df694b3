"""The match offload algorithm: clients whose leaving shortens matching and disturbs little else.

Source: A. Cheung, dynamic load balancing in distributed content-based publish/subscribe (thesis, 2006), section 4.2.2,
Figures 4.5 to 4.7.

Every subscription makes matching longer, whether it receives anything or not; so clients that receive least move first:
they change the matching delays and hardly anything else. An overloaded broker goes on until its processor, memory and
input are below the lower threshold; another one stops when the matching delays meet.

Deviations: those of `trimtab.policies.padres.offload`.
"""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.language import Filter
from trimtab.load.estimation import BrokerResources
from trimtab.load.profiles import Sample
from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.padres.decisions import LoadIndex, NoAction
from trimtab.policies.padres.offload import OffloadPlan, Workspace, index_difference, overload_measure


def plan_match_offload(
    ours: BrokerResources,
    theirs: BrokerResources,
    sample: Sample,
    their_filters: Sequence[Filter],
    config: PadresConfig,
) -> OffloadPlan | NoAction:
    """Which clients to move so that the matching delays of the two brokers meet, or the overload ends."""
    work = Workspace(ours, theirs, sample, their_filters, config)
    if overload_measure(LoadIndex.MATCH, ours) > config.higher_overload_ratio:
        return work.plan(LoadIndex.MATCH, relieve_by_matching(work))
    return work.plan(LoadIndex.MATCH, _level_matching_delays(work))


def relieve_by_matching(work: Workspace) -> str:
    """Move clients until processor, memory and input are below the lower threshold (Figure 4.6); return why it
    stopped."""
    threshold_ratio = work.config.lower_overload_ratio

    def enough(ours: BrokerResources, _theirs: BrokerResources) -> bool:
        return overload_measure(LoadIndex.MATCH, ours) < threshold_ratio

    while not enough(work.ours, work.theirs):
        number = work.least_traffic() if work.room_count > 0 else None
        if number is None:
            return "no client is left that the accepting broker can bear"
        card = work.card(number, LoadIndex.MATCH, enough)
        if card.clients:
            work.take(number, card, "match, overloaded")
        else:
            work.leave(number, card, "even one client would be too much for the accepting broker")
            work.close(number)
    return "the overload ends"


def _level_matching_delays(work: Workspace) -> str:
    """Move clients until the matching delays meet (Figure 4.5); return why it stopped."""
    config = work.config

    def enough(ours: BrokerResources, theirs: BrokerResources) -> bool:
        return index_difference(LoadIndex.MATCH, ours, theirs, config) < config.balance_difference

    while not enough(work.ours, work.theirs):
        number = work.least_traffic() if work.room_count > 0 else None
        if number is None:
            return "no client is left whose move brings the matching delays closer together"
        card = work.card(number, LoadIndex.MATCH, enough)
        if card.clients and abs(card.difference) < abs(work.difference(LoadIndex.MATCH)):
            work.take(number, card, "match")
        else:
            work.leave(
                number,
                card,
                "would not bring the matching delays closer together"
                if card.clients
                else "even one client would be too much for the accepting broker",
            )
            work.close(number)
    return "the matching delays meet"
