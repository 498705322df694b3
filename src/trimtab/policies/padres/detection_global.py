"""Global detection: whether a cluster balances with another cluster, and whom its head asks.

Source: A. Cheung, dynamic load balancing in distributed content-based publish/subscribe (thesis, 2006), sections
3.3.1.2, 3.3.2.2 and 3.3.2.3, and for the end of a session section 3.4.3.

A cluster's load is the mean of its edge-brokers'. Its head compares it with the neighbouring clusters' and asks the
ones that lie furthest below. An overloaded broker that finds no help in its cluster calls its head, which then asks
others at once, or, after several calls, gives up the session it is in.

Deviations:
- An overloaded cluster (N/A) whose means differ from no neighbour's by more than the threshold asks the available
  neighbours all the same when one of its brokers called for help, least loaded first: the mean hides a single
  overloaded broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

import msgspec

from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.padres.decisions import LoadIndex, NoAction, Reason, Status
from trimtab.policies.padres.detection import CandidateCard, index_differences, overload_action
from trimtab.policies.padres.snapshot import BrokerLoad, ClusterLoad, KnownCluster


class GlobalTrigger(msgspec.Struct, frozen=True):
    """Start a session with another cluster: the clusters to ask, in order."""

    ask: tuple[str, ...]
    cards: tuple[CandidateCard, ...]


class HelpAnswer(Enum):
    """What a cluster-head does about a call for help."""

    DETECT = "look for another cluster now"
    WAIT = "the session under way may still help"
    CHANGE_CLUSTER = "end the session under way and look for another cluster"


def cluster_status(in_session: bool, edge_brokers: Iterable[BrokerLoad], config: PadresConfig) -> Status:
    """A cluster's status: busy in a session, not available while some edge-broker is overloaded (Figure 3.3b).

    A broker that waits for its load to settle, or is in a session, is overloaded by what it tells of its load.
    """
    if in_session:
        return Status.BUSY
    return Status.NOT_AVAILABLE if any(is_overloaded(load, config) for load in edge_brokers) else Status.OK


def is_overloaded(load: BrokerLoad, config: PadresConfig) -> bool:
    """Whether an edge-broker takes no more load, whatever it does at present (section 3.3.2.2)."""
    if load.status in (Status.STABILIZING, Status.BUSY):
        return overload_action(load, config.lower_overload_ratio) is not None
    return load.status == Status.NOT_AVAILABLE


def cluster_load(
    cluster: str, head: str, in_session: bool, edge_brokers: Sequence[BrokerLoad], config: PadresConfig
) -> ClusterLoad | None:
    """The means over the edge-brokers; None while none of them is known."""
    if not edge_brokers:
        return None
    count = len(edge_brokers)
    return ClusterLoad(
        cluster=cluster,
        head=head,
        status=cluster_status(in_session, edge_brokers, config),
        input_utilization_ratio=sum(load.input_utilization_ratio for load in edge_brokers) / count,
        output_utilization_ratio=sum(load.output_utilization_ratio for load in edge_brokers) / count,
        matching_delay_s=sum(load.matching_delay_s for load in edge_brokers) / count,
        edge_broker_count=count,
        sent_by=head,
    )


def detect_global(
    ours: ClusterLoad,
    known: Mapping[str, KnownCluster],
    config: PadresConfig,
    *,
    called_for_help: bool = False,
    saturated: bool = False,
) -> GlobalTrigger | NoAction:
    """Compare our cluster with the others that are known; a saturated one need not wait for the overloaded ones that it
    could not help."""
    if ours.status == Status.BUSY:
        return NoAction(Reason.BUSY)
    others = [entry.load for name, entry in sorted(known.items()) if name != ours.cluster]
    if not others:
        return NoAction(Reason.NOBODY_KNOWN)
    overloaded = [load.cluster for load in others if load.status == Status.NOT_AVAILABLE]
    if ours.status == Status.OK and overloaded and not called_for_help and not saturated:
        return NoAction(Reason.OVERLOADED_FIRST, overloaded[0])
    cards = sorted(
        (_card(ours, theirs, config, called_for_help) for theirs in others),
        key=lambda card: (-card.difference, card.broker),
    )
    ask = tuple(card.broker for card in cards if card.chosen)
    if ask:
        return GlobalTrigger(ask, tuple(cards))
    available = any(load.status == Status.OK for load in others)
    return NoAction(Reason.BALANCED if available else Reason.NOBODY_AVAILABLE)


def _card(ours: ClusterLoad, theirs: ClusterLoad, config: PadresConfig, called_for_help: bool) -> CandidateCard:
    differences = index_differences(ours, theirs, config)
    beyond = {
        action: difference
        for action, difference in differences.items()
        if difference > (config.global_delay_threshold if action == LoadIndex.MATCH else config.global_ratio_threshold)
    }
    action = max(beyond or differences, key=lambda each: differences[each])
    if theirs.status != Status.OK:
        chosen, why = False, f"its status is {theirs.status.value}"
    elif beyond:
        chosen, why = True, f"we exceed it by {differences[action]:.3f} in {action.value}"
    elif called_for_help:
        chosen, why = True, "an overloaded broker of ours found no help in our cluster"
    else:
        chosen, why = False, "within the threshold, or more loaded than we are"
    return CandidateCard(theirs.cluster, theirs.status, action, differences[action], chosen, why)


def answer_call_for_help(status: Status, calls_count: int, config: PadresConfig) -> HelpAnswer:
    """What to do about a call for help, the calls during the session under way counted with this one.

    >>> [answer_call_for_help(Status.BUSY, count, PadresConfig()).name for count in (1, 2, 3)]
    ['WAIT', 'WAIT', 'CHANGE_CLUSTER']
    """
    if status != Status.BUSY:
        return HelpAnswer.DETECT
    return HelpAnswer.CHANGE_CLUSTER if calls_count >= config.global_request_threshold_count else HelpAnswer.WAIT


def is_complete(loads: Iterable[BrokerLoad], members: Sequence[str]) -> bool:
    """Whether all brokers of two clusters have told that they are balanced with all others of both: the session
    between the clusters is done (section 3.4.3)."""
    balanced = {load.broker: {load.broker, *load.balanced_with} for load in loads}
    return all(set(members) <= balanced.get(member, set()) for member in members)
