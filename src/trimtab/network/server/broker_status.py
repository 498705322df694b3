"""What a broker process tells about itself, for `trimtab status` and `trimtab up`."""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from typing import Final

import msgspec

from trimtab.broker.core import Broker
from trimtab.load.indices import LoadIndices
from trimtab.network.server.process_meters import resident_bytes
from trimtab.network.server.publication_log import PublicationLog
from trimtab.protocol.frames import AgentStatus, BrokerStatus, ChannelsStatus, DrainStatus, FailureStatus, PeerStatus

CLIENTS_TOLD_MAX_COUNT: Final = 20
"""Clients of a broker that is being drained whose reasons are told."""


def status_of(
    broker: Broker,
    load: LoadIndices,
    samples: Sequence[tuple[float, int, int]],
    time_s: float,
    *,
    uptime_s: float,
    links_missing: tuple[str, ...],
    policy: str,
    is_back_end_reached: bool,
    failures: tuple[FailureStatus, ...] = (),
    assistances: tuple[FailureStatus, ...] = (),
    disk: PublicationLog | None = None,
) -> BrokerStatus:
    """How a broker is; the samples tell the time and how many publications had come and gone, the oldest first."""
    counters, usage = broker.counters, resource.getrusage(resource.RUSAGE_SELF)
    first = samples[0] if samples else (time_s, 0, 0)
    over_s = max(time_s - first[0], 1e-3)
    return BrokerStatus(
        name=broker.name,
        pid=os.getpid(),
        uptime_s=uptime_s,
        cpu_s=usage.ru_utime + usage.ru_stime,
        memory_bytes=resident_bytes()[0],
        input_count=broker.input_count,
        advertisements_count=len(broker.tables.advertisements),
        subscriptions_count=len(broker.tables.subscriptions),
        publications_in_count=counters.publications_in_count,
        publications_out_count=counters.publications_out_count,
        control_in_count=counters.control_in_count,
        control_out_count=counters.control_out_count,
        dropped_count=counters.dropped_count,
        refused_count=counters.refused_count,
        publications_in_per_s=(counters.publications_in_count - first[1]) / over_s,
        publications_out_per_s=(counters.publications_out_count - first[2]) / over_s,
        load=msgspec.to_builtins(load),
        links_missing=links_missing,
        peers=_peers(broker),
        policy=policy,
        agents=_agents(broker, time_s),
        moved_in_count=broker.moves.moved_in_count,
        moved_out_count=broker.moves.moved_out_count,
        channels=_channels(broker, is_back_end_reached),
        session=broker.config.session,
        replica=broker.config.replica,
        failures=failures,
        assistances=assistances,
        epoch=broker.epoch,
        is_learning=not broker.takeover.is_over,
        disk_damage=() if disk is None else disk.damage,
        disk_problem="" if disk is None else disk.problem,
        fenced=broker.fence_problem,
        drain=_drain(broker),
    )


def _drain(broker: Broker) -> DrainStatus | None:
    draining = broker.draining
    if draining is None:
        return None
    clients = draining.clients_left()
    return DrainStatus(
        phase=draining.phase,
        carries=draining.carries,
        moved_count=draining.moved_count,
        clients_count=len(clients),
        clients=clients[:CLIENTS_TOLD_MAX_COUNT],
    )


def _peers(broker: Broker) -> tuple[PeerStatus, ...]:
    verdicts = {} if broker.replacement is None else broker.replacement.verdicts()
    return tuple(
        PeerStatus(
            name=peer.name,
            role=peer.role,
            connected=peer.link.connected,
            queued_count=peer.link.queued_count,
            unacknowledged_count=peer.link.unacknowledged_count,
            advertisements_count=len(peer.advertisements),
            subscriptions_count=len(peer.subscriptions),
            verdict=verdicts.get(peer.name, ""),
            wire_version=peer.version,
        )
        for peer in broker.peers.values()
        if peer.role != "agent"
    )


def _agents(broker: Broker, time_s: float) -> tuple[AgentStatus, ...]:
    return tuple(
        AgentStatus(
            name=agent,
            role=report.role,
            status=report.status,
            doing=report.doing,
            decision=report.decision,
            decided_ago_s=None if report.decided_s is None else time_s - report.decided_s,
        )
        for agent, report in broker.agents.reports().items()
    )


def _channels(broker: Broker, is_back_end_reached: bool) -> ChannelsStatus | None:
    desk = broker.channels
    if desk is None:
        return None
    return ChannelsStatus(
        is_reached=is_back_end_reached,
        streams_count=desk.streams_count,
        subscriptions_count=desk.fronts_count,
        cached_count=desk.cached_count,
        results_in_count=desk.results_in_count,
        results_out_count=desk.results_out_count,
    )
