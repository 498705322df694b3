"""The output offload algorithm: clients whose publications the accepting broker receives anyway, then others.

Source: A. Cheung, dynamic load balancing in distributed content-based publish/subscribe (thesis, 2006), section 4.2.3,
Figures 4.8 to 4.10, equation 4.19.

Phase I takes clients whose filters the accepting broker's filters cover: they bring no new publications there. Among
them come first those whose leaving also spares us input (type I), then those that might (type II), then the rest
(type III). Phase II takes others, which enlarge what the accepting broker covers, so that phase I may find more. The
accepting broker's input must not rise so far above ours that it would want to give the clients back.

Deviations:
- The guard compares the input ratios, as the text says; the printed condition compares output ratios. In phase II it
  compares both brokers after the move. In phase I, which the text leaves free, it compares the accepting broker after
  the move with us before it, for there a lower input of ours is a gain (type I), not a danger, and it holds only where
  the moves would cause the excess: if the accepting broker's input exceeds ours anyway, then it cannot give to us
  because our output is full, and without phase I neither broker could ever do anything about that. The guard does not
  hold while our output is overloaded.
- If no candidate of a type helps, the next type is tried, not only when there is none.
- Those of `trimtab.policies.padres.offload`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trimtab.language import Filter
from trimtab.load.estimation import BrokerResources
from trimtab.load.profiles import Sample
from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.padres.decisions import LoadIndex, NoAction, Reason
from trimtab.policies.padres.offload import (
    Aim,
    OffloadPlan,
    ReportCard,
    Workspace,
    choose,
)


def gamma(output_rate_per_s: float, output_rate_bytes_per_s: float, count: int, extra_input_rate_per_s: float) -> float:
    """How much output a candidate takes away for the input that it brings (equation 4.19).

    >>> gamma(2.0, 600.0, 3, 0.5)
    7200.0
    """
    if extra_input_rate_per_s <= 0:
        return float("inf")
    return output_rate_per_s * output_rate_bytes_per_s * count / extra_input_rate_per_s


def plan_output_offload(
    ours: BrokerResources,
    theirs: BrokerResources,
    sample: Sample,
    their_filters: Sequence[Filter],
    config: PadresConfig,
) -> OffloadPlan | NoAction:
    """Which clients to move so that the output ratios of the two brokers meet."""
    if sample.sample_count == 0:
        return NoAction(Reason.NO_SAMPLE)
    work = Workspace(ours, theirs, sample, their_filters, config)
    aim = Aim(LoadIndex.OUTPUT, ours, config)

    already_swung = theirs.input_utilization_ratio - ours.input_utilization_ratio > config.local_ratio_threshold

    def raises_their_input(_ours_then: BrokerResources, theirs_then: BrokerResources) -> bool:
        excess = theirs_then.input_utilization_ratio - work.ours.input_utilization_ratio
        return not already_swung and guarded(excess)

    def swings_the_input(ours_then: BrokerResources, theirs_then: BrokerResources) -> bool:
        return guarded(theirs_then.input_utilization_ratio - ours_then.input_utilization_ratio)

    def guarded(their_excess: float) -> bool:
        return their_excess > config.local_ratio_threshold and not aim.still_overloaded(work.ours)

    def chosen_of(cards: dict[int, ReportCard], prefer: Callable[[ReportCard], float]) -> int | None:
        return choose(
            cards, work.difference(LoadIndex.OUTPUT), overloaded=aim.still_overloaded(work.ours), prefer=prefer
        )

    while True:
        if aim.reached(work.ours, work.theirs):
            return work.plan(LoadIndex.OUTPUT, "the output ratios meet")
        if work.room_count <= 0:
            return work.plan(LoadIndex.OUTPUT, "as many clients as one session moves")
        cards = work.cards(
            [n for n in work.open if work.is_covered(n)], LoadIndex.OUTPUT, aim.reached, raises_their_input
        )
        number, step = _first_of_types(work, cards, chosen_of)
        if number is None:
            _leave_all(work, cards, "covered, but would not bring the output ratios closer together")
            cards = work.cards(
                [n for n in work.open if not work.is_covered(n)], LoadIndex.OUTPUT, aim.reached, swings_the_input
            )
            number, step = chosen_of(cards, _gamma_of_card), "output, phase II"
        if number is None:
            _leave_all(work, cards, "not covered, and would not bring the output ratios closer together")
            return work.plan(LoadIndex.OUTPUT, "no candidate brings the output ratios closer together")
        work.take(number, cards.pop(number), step)
        _leave_all(work, cards, "another one was the better choice, and then the output ratios met")


def _reduced_rate_per_s(card: ReportCard) -> float:
    return card.reduced_rate_per_s


def _gamma_of_card(card: ReportCard) -> float:
    rate_per_s = card.extra_traffic_per_s - card.extra_input_rate_per_s
    return gamma(rate_per_s, card.output_rate_bytes_per_s, len(card.clients), card.extra_input_rate_per_s)


def _first_of_types(
    work: Workspace,
    cards: dict[int, ReportCard],
    chosen_of: Callable[[dict[int, ReportCard], Callable[[ReportCard], float]], int | None],
) -> tuple[int | None, str]:
    """The best candidate of the first type that has a helpful one, and the name of that step."""
    for step, some in _by_type(work, cards):
        number = chosen_of(some, _reduced_rate_per_s)
        if number is not None:
            return number, step
    return None, ""


def _by_type(work: Workspace, cards: dict[int, ReportCard]) -> list[tuple[str, dict[int, ReportCard]]]:
    """The candidates of phase I by type, each list with its step's name."""
    first: dict[int, ReportCard] = {}
    second: dict[int, ReportCard] = {}
    third: dict[int, ReportCard] = {}
    for number, card in cards.items():
        if card.reducible_rate_per_s > 0 and work.is_top(number):
            (first if card.reduced_rate_per_s > 0 else second)[number] = card
        else:
            third[number] = card
    return [
        ("output, phase I, type I", first),
        ("output, phase I, type II", second),
        ("output, phase I, type III", third),
    ]


def _leave_all(work: Workspace, cards: dict[int, ReportCard], why: str) -> None:
    for number, card in cards.items():
        work.leave(number, card, why)
