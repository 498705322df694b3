"""The input offload algorithm: clients whose leaving lets fewer publications come in.

Source: A. Cheung, dynamic load balancing in distributed content-based publish/subscribe (thesis, 2006), section 4.2.1,
Figures 4.1 to 4.4.

Only filters that nothing else here covers bring publications in, so only their clients are candidates; when clients of
one are chosen, it leaves the order of filters, and what it covered is considered in turn. Of the candidates the one is
chosen that leaves the two input ratios closest together. If an overloaded broker cannot be relieved so, matching less
is the next best way.

Deviations: those of `trimtab.policies.padres.offload`.
"""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.language import Filter
from trimtab.load.estimation import BrokerResources
from trimtab.load.profiles import Sample
from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.padres.decisions import LoadIndex, NoAction, Reason
from trimtab.policies.padres.offload import Aim, OffloadPlan, Workspace, choose
from trimtab.policies.padres.offload_match import relieve_by_matching


def plan_input_offload(
    ours: BrokerResources,
    theirs: BrokerResources,
    sample: Sample,
    their_filters: Sequence[Filter],
    config: PadresConfig,
) -> OffloadPlan | NoAction:
    """Which clients to move so that the input ratios of the two brokers meet."""
    if sample.sample_count == 0:
        return NoAction(Reason.NO_SAMPLE)
    work = Workspace(ours, theirs, sample, their_filters, config)
    aim = Aim(LoadIndex.INPUT, ours, config)

    while True:
        if aim.reached(work.ours, work.theirs):
            return work.plan(LoadIndex.INPUT, "the input ratios meet")
        if work.room_count <= 0:
            return work.plan(LoadIndex.INPUT, "as many clients as one session moves")
        cards = work.cards([number for number in work.open if work.is_top(number)], LoadIndex.INPUT, aim.reached)
        number = choose(
            cards,
            work.difference(LoadIndex.INPUT),
            overloaded=aim.still_overloaded(work.ours),
            prefer=lambda card: card.reduced_rate_per_s,
        )
        for each, card in cards.items():
            if each != number:
                work.leave(
                    each,
                    card,
                    "another one leaves the input ratios closer together"
                    if number is not None
                    else "would not bring the input ratios closer together",
                )
        if number is None:
            break
        work.take(number, cards[number], "input")
    if aim.still_overloaded(work.ours):
        return work.plan(LoadIndex.INPUT, relieve_by_matching(work))
    return work.plan(LoadIndex.INPUT, "no candidate brings the input ratios closer together")
