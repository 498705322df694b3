"""Local detection: whether a broker gives load to another one of its cluster, which index, and whom to ask.

Source: A. Cheung, dynamic load balancing in distributed content-based publish/subscribe (thesis, 2006), section 3.3.2,
equations 3.4 (`trimtab.load.indices.smoothed_indices`) and 3.5, sections 3.3.2.1 and 3.3.2.3.

A broker first looks at itself: beyond the lower threshold it accepts nothing, beyond the higher one it gives load away
at once. If it is well and its last session has settled, it compares itself with the others and balances the largest
difference. Only the more loaded of two brokers acts, and overloaded brokers go first.

Deviations:
- An overloaded broker asks brokers that are ready before those that are busy or stabilising; of two that would have
  to refuse, asking costs only time. Differences are balanced with brokers that are ready only.
- Only a broker beyond the higher threshold has priority, and for a limited time (`overload_priority_s`). A broker
  between the two thresholds is not available but does not act, and would stop all others for good.
- A broker that stays between the two thresholds balances differences after a while (`inert_patience_s`), though it
  still accepts nothing. In the thesis it does nothing, and under steady load it would stay there for good.
- Each other broker stands in the list once, with the index in which it differs most of those that another try is due
  for (`trimtab.policies.padres.empty_sessions`).
- Brokers count as balanced in an index, too, when a plan to level it has just found nothing to move.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.padres.decisions import LoadIndex, NoAction, Reason, Status
from trimtab.policies.padres.empty_sessions import EmptySessions
from trimtab.policies.padres.snapshot import BrokerLoad, ClusterLoad, KnownBroker, delay_difference

_NO_TRIES: Final = EmptySessions()
_TRIED: Final = "a plan for it found nothing to move a short while ago"

_AsksAgain: TypeAlias = Callable[[str, LoadIndex, bool], bool]
"""Whether a broker may be asked for an index once more; the last value says whether we are overloaded."""


class BrokerAction(msgspec.Struct, frozen=True):
    """A broker to ask, and the index to balance with it."""

    broker: str
    action: LoadIndex


class CandidateCard(msgspec.Struct, frozen=True):
    """Another broker as detection saw it: how far it lies below us, and why it is asked or not."""

    broker: str
    status: Status
    action: LoadIndex
    difference: float
    """By how much we exceed it in that index: a ratio, or a delay by equation 3.5."""

    chosen: bool
    why: str


class Trigger(msgspec.Struct, frozen=True):
    """Start a session: the brokers to ask, in order."""

    overloaded: bool
    ask: tuple[BrokerAction, ...]
    cards: tuple[CandidateCard, ...]


class Detection(msgspec.Struct, frozen=True):
    """What one look at the load came to."""

    status: Status
    """The status that the broker has from now on."""

    balanced_with: tuple[str, ...]
    outcome: Trigger | NoAction
    cards: tuple[CandidateCard, ...] = ()
    call_for_help: bool = False
    """Overloaded, and nobody in the cluster can help: the cluster-head is to be asked (Figure 3.5)."""


class Reading(msgspec.Struct, frozen=True):
    """The broker's own load at some moment."""

    at_s: float
    load: BrokerLoad


class History(msgspec.Struct, frozen=True):
    """What stabilising is judged by."""

    readings: tuple[Reading, ...] = ()
    """Own readings, oldest first."""

    session_ended_s: float | None = None
    """When the last session ended; None once it has settled, or if there was none."""

    inert_since_s: float | None = None
    """Since when some utilisation has been beyond the lower overload threshold and none beyond the higher one."""


def with_reading(history: History, load: BrokerLoad, now_s: float, config: PadresConfig) -> History:
    """The history with one more reading; readings older than the interval go, but for the last of them."""
    oldest_s = now_s - config.stabilize_interval_s
    recent = [each for each in history.readings if each.at_s > oldest_s]
    before = [each for each in history.readings if each.at_s <= oldest_s]
    inert = overload_action(load, config.lower_overload_ratio) is not None
    inert = inert and overload_action(load, config.higher_overload_ratio) is None
    since_s = (now_s if history.inert_since_s is None else history.inert_since_s) if inert else None
    return History((*before[-1:], *recent, Reading(now_s, load)), history.session_ended_s, since_s)


def index_differences(
    ours: BrokerLoad | ClusterLoad, theirs: BrokerLoad | ClusterLoad, config: PadresConfig
) -> dict[LoadIndex, float]:
    """By how much we exceed them in each index; all three are compared with thresholds of the same kind.

    >>> one = BrokerLoad(broker="B1", cluster="C", status=Status.OK, input_utilization_ratio=0.5,
    ...     output_utilization_ratio=0.5, matching_delay_s=0.03)
    >>> two = BrokerLoad(broker="B2", cluster="C", status=Status.OK, input_utilization_ratio=0.25,
    ...     output_utilization_ratio=0.75, matching_delay_s=0.02)
    >>> differences = index_differences(one, two, PadresConfig())
    >>> {action.value: round(difference, 3) for action, difference in differences.items()}
    {'input': 0.25, 'match': 0.1, 'output': -0.25}
    """
    return {
        LoadIndex.INPUT: ours.input_utilization_ratio - theirs.input_utilization_ratio,
        LoadIndex.MATCH: delay_difference(ours.matching_delay_s, theirs.matching_delay_s, config.delay_normalization_s),
        LoadIndex.OUTPUT: ours.output_utilization_ratio - theirs.output_utilization_ratio,
    }


def utilization_ratios(load: BrokerLoad) -> dict[str, float]:
    """The four utilisations that overload is judged by."""
    return {
        "input": load.input_utilization_ratio,
        "output": load.output_utilization_ratio,
        "cpu": load.cpu_utilization_ratio,
        "memory": load.memory_utilization_ratio,
    }


def overload_action(load: BrokerLoad, threshold_ratio: float) -> LoadIndex | None:
    """Which index to relieve if some utilisation is beyond the threshold: input before all others, since less input
    lowers everything else; otherwise the highest utilisation. Processor and memory are relieved by matching less.

    >>> load = BrokerLoad(broker="B1", cluster="C", status=Status.OK, input_utilization_ratio=0.96,
    ...     output_utilization_ratio=1.2, matching_delay_s=0.03)
    >>> overload_action(load, 0.95), overload_action(load, 1.0), overload_action(load, 1.3)
    (<LoadIndex.INPUT: 'input'>, <LoadIndex.OUTPUT: 'output'>, None)
    """
    beyond = {name: ratio for name, ratio in utilization_ratios(load).items() if ratio > threshold_ratio}
    if not beyond:
        return None
    if "input" in beyond:
        return LoadIndex.INPUT
    return LoadIndex.OUTPUT if max(beyond, key=lambda name: beyond[name]) == "output" else LoadIndex.MATCH


def balanced_with(
    ours: BrokerLoad, known: Sequence[BrokerLoad], fruitless: EmptySessions, now_s: float, config: PadresConfig
) -> tuple[str, ...]:
    """The brokers from which we differ by no more than the thresholds, in either direction, in any index in which that
    can be helped."""
    return tuple(
        sorted(
            theirs.broker
            for theirs in known
            if all(
                abs(difference) <= _local_threshold(action, config)
                or fruitless.is_all_that_goes(theirs.broker, action, difference, now_s, config)
                for action, difference in index_differences(ours, theirs, config).items()
            )
        )
    )


def _local_threshold(action: LoadIndex, config: PadresConfig) -> float:
    return config.local_delay_threshold if action == LoadIndex.MATCH else config.local_ratio_threshold


def is_settled(history: History, now_s: float, config: PadresConfig) -> bool:
    """Whether the last session's effect has shown: some time has passed, and over a whole interval the three indices
    have not changed by more than the stabilize percentage (section 3.3.2.1)."""
    if history.session_ended_s is None:
        return True
    if now_s - history.session_ended_s < config.stabilize_duration_s:
        return False
    loads = [each.load for each in history.readings]
    if not loads or history.readings[0].at_s > now_s - config.stabilize_interval_s:
        return False  # the readings do not cover an interval yet
    spreads = (
        _spread([load.input_utilization_ratio for load in loads]),
        _spread([load.output_utilization_ratio for load in loads]),
        _spread([load.matching_delay_s for load in loads]) / config.delay_normalization_s,
    )
    return max(spreads) < config.stabilize_change


def _spread(values: Sequence[float]) -> float:
    return max(values) - min(values)


def detect_local(
    ours: BrokerLoad,
    known: Mapping[str, KnownBroker],
    history: History,
    now_s: float,
    config: PadresConfig,
    *,
    fruitless: EmptySessions = _NO_TRIES,
) -> Detection:
    """Look at our smoothed load and at what is known of the others; `ours.status` is the status so far."""
    others = [entry.load for name, entry in sorted(known.items()) if name != ours.broker]
    balanced = balanced_with(ours, others, fruitless, now_s, config)

    def asks_again(broker: str, action: LoadIndex, overloaded: bool) -> bool:
        return fruitless.asks_again(broker, action, now_s, config, overloaded=overloaded)

    if ours.status == Status.BUSY:
        return Detection(Status.BUSY, balanced, NoAction(Reason.BUSY))
    action = overload_action(ours, config.higher_overload_ratio)
    if action is not None:
        return _detect_overloaded(ours, others, balanced, action, config, asks_again=asks_again)
    if overload_action(ours, config.lower_overload_ratio) is not None:
        since_s = history.inert_since_s
        if since_s is None or now_s - since_s < config.inert_patience_s or not is_settled(history, now_s, config):
            return Detection(Status.NOT_AVAILABLE, balanced, NoAction(Reason.INERT))
        found = _detect_difference(ours, others, balanced, config, asks_again)
        return msgspec.structs.replace(found, status=Status.NOT_AVAILABLE)
    if not is_settled(history, now_s, config):
        return Detection(Status.STABILIZING, balanced, NoAction(Reason.STABILIZING))
    first = _goes_first(ours, known, now_s, config)
    if first is not None:
        return Detection(Status.OK, balanced, NoAction(Reason.OVERLOADED_FIRST, first))
    return _detect_difference(ours, others, balanced, config, asks_again)


def _detect_overloaded(
    ours: BrokerLoad,
    others: Sequence[BrokerLoad],
    balanced: tuple[str, ...],
    action: LoadIndex,
    config: PadresConfig,
    *,
    asks_again: _AsksAgain,
) -> Detection:
    def order(theirs: BrokerLoad) -> tuple[bool, float, str]:
        index = {
            LoadIndex.INPUT: theirs.input_utilization_ratio,
            LoadIndex.MATCH: theirs.matching_delay_s,
            LoadIndex.OUTPUT: theirs.output_utilization_ratio,
        }[action]
        return theirs.status != Status.OK, index, theirs.broker

    def card(theirs: BrokerLoad) -> CandidateCard:
        chosen, why = True, f"we are overloaded in {action.value}"
        if theirs.status == Status.NOT_AVAILABLE:
            chosen, why = False, "overloaded itself"
        elif not asks_again(theirs.broker, action, True):
            chosen, why = False, _TRIED
        difference = index_differences(ours, theirs, config)[action]
        return CandidateCard(theirs.broker, theirs.status, action, difference, chosen, why)

    cards = tuple(card(theirs) for theirs in sorted(others, key=order))
    ask = tuple(BrokerAction(card.broker, action) for card in cards if card.chosen)
    if not ask:
        reason = Reason.NOBODY_AVAILABLE if others else Reason.NOBODY_KNOWN
        return Detection(Status.NOT_AVAILABLE, balanced, NoAction(reason), cards, call_for_help=True)
    return Detection(Status.NOT_AVAILABLE, balanced, Trigger(True, ask, cards), cards)


def _goes_first(ours: BrokerLoad, known: Mapping[str, KnownBroker], now_s: float, config: PadresConfig) -> str | None:
    """An overloaded broker that has not yet had its chance."""
    for name, entry in sorted(known.items()):
        if (
            name != ours.broker
            and entry.load.status == Status.NOT_AVAILABLE
            and now_s - entry.status_since_s < config.overload_priority_s
            and overload_action(entry.load, config.higher_overload_ratio) is not None
        ):
            return name
    return None


def _detect_difference(
    ours: BrokerLoad,
    others: Sequence[BrokerLoad],
    balanced: tuple[str, ...],
    config: PadresConfig,
    asks_again: _AsksAgain,
) -> Detection:
    cards = sorted((_difference_card(ours, theirs, config, asks_again) for theirs in others), key=_by_difference)
    ask = tuple(BrokerAction(card.broker, card.action) for card in cards if card.chosen)
    if ask:
        return Detection(Status.OK, balanced, Trigger(False, ask, tuple(cards)), tuple(cards))
    return Detection(Status.OK, balanced, NoAction(Reason.BALANCED if others else Reason.NOBODY_KNOWN), tuple(cards))


def _by_difference(card: CandidateCard) -> tuple[float, str]:
    return -card.difference, card.broker


def _difference_card(
    ours: BrokerLoad, theirs: BrokerLoad, config: PadresConfig, asks_again: _AsksAgain
) -> CandidateCard:
    differences = index_differences(ours, theirs, config)
    beyond = {
        action: difference
        for action, difference in differences.items()
        if difference > _local_threshold(action, config)
    }
    due = [action for action in beyond if asks_again(theirs.broker, action, False)]
    action = max(due or beyond or differences, key=lambda each: differences[each])
    if not beyond:
        chosen, why = False, "within the threshold, or more loaded than we are"
    elif theirs.status != Status.OK:
        chosen, why = False, f"its status is {theirs.status.value}"
    elif not due:
        chosen, why = False, _TRIED
    else:
        chosen, why = True, f"we exceed it by {differences[action]:.3f} in {action.value}"
    return CandidateCard(theirs.broker, theirs.status, action, differences[action], chosen, why)
