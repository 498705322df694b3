"""What-if: goes on with a running network in the simulator, once as it is and once with another policy or changes.

The agents of the policy are the real ones: brokers and clients are those that run in processes, driven by virtual time.
Nothing here touches the network; all that is known of it is in the `Present`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from trimtab.operations.plan.changes import changed
from trimtab.operations.plan.observation import READ_EVERY_S, Indices, Outcome, PlanWatch
from trimtab.operations.plan.present import Present, decode_present, encode_present
from trimtab.operations.plan.risks import risks_of
from trimtab.operations.plan.spread import Spread, spread_of
from trimtab.policies.padres.config import PadresConfig
from trimtab.protocol.records import Recorder
from trimtab.simulation.scenarios.continuation import FILL_WITHIN_S, Continuation, begin_after_s, filled_after_s
from trimtab.simulation.scenarios.messages import BrokerPart, LinkPart, NetworkPart, Scenario

PLAN_FILE: Final = "plan.json"
SNAPSHOT_FILE: Final = "snapshot.json"

OnProgress: TypeAlias = Callable[[str, float], None]
"""Told which future is at work, and how much of it is over."""


class WhatIfPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What would happen, beside what happens anyway."""

    network: str
    taken_s: float
    """When the snapshot was taken, in seconds since 1970."""
    sampled_s: float
    seed: int
    policy_now: str
    policy: str
    changes: tuple[str, ...]
    """What was changed besides the policy, in words."""
    clients_count: int
    subscriptions_count: int
    publishers_count: int
    rate_per_s: float
    """Publications per second of all publishers, as measured."""
    now: dict[str, Indices]
    """As the brokers told."""
    as_it_is: Outcome | None
    """The network continued without any change; None if none was asked for."""
    planned: Outcome
    spread: Spread
    """Of all runs of what is planned; `planned` is the first."""
    risks: tuple[str, ...]
    unknown: tuple[str, ...]
    moved_in_count: dict[str, int]
    sessions: dict[str, str]
    """Of each broker, when the snapshot was taken: clients that had moved in, and which life of the broker it was."""


class PlanError(Exception):
    """A plan that cannot be made or read; the message says why."""


def make_plan(
    present: Present,
    *,
    network: str = "",
    policy: str | None = None,
    changes: Sequence[str] = (),
    minutes: float = 30.0,
    seed: int = 1,
    runs_count: int = 1,
    on_progress: OnProgress | None = None,
    recorder: Recorder | None = None,
) -> WhatIfPlan:
    """Continue a network as it is, and as planned with one or more seeds, of which the first may be recorded.

    Raises `ChangeError`, or `PlanError` if that cannot be done.
    """
    wanted, running = policy or present.policy.name, present.policy.name
    altered, words = changed(present, changes)
    for each in dict.fromkeys((wanted, running)):
        if each == "coordinated":
            raise PlanError("a coordinated network cannot be continued: what its coordinator knows is not told")
    if not any(client.publishes for client in altered.clients):
        raise PlanError(
            f"nobody published anything during the sample of {present.sampled_s:g} s: there is no traffic to continue"
        )

    def told(which: str) -> Callable[[float], None] | None:
        return None if on_progress is None else lambda share: on_progress(which, share)

    unfilled: dict[str, None] = {}
    as_it_is = None
    if wanted != running or altered != present:
        as_it_is = continued(present, running, minutes, seed, on_progress=told("as it is"), unfilled=unfilled)
    outcomes: list[Outcome] = []
    for number in range(runs_count):
        which = "as planned" if runs_count == 1 else f"as planned, {number + 1} of {runs_count}"
        outcomes.append(
            continued(
                altered,
                wanted,
                minutes,
                seed + number,
                on_progress=told(which),
                unfilled=unfilled,
                recorder=None if number else recorder,
            )
        )
    planned = outcomes[0]
    return WhatIfPlan(
        network=network,
        taken_s=present.taken_s,
        sampled_s=present.sampled_s,
        seed=seed,
        policy_now=running,
        policy=wanted,
        changes=tuple(words),
        clients_count=len(present.clients),
        subscriptions_count=sum(len(client.subscriptions) for client in present.clients),
        publishers_count=sum(bool(client.advertisements) for client in present.clients),
        rate_per_s=sum(client.rate_per_s for client in present.clients),
        now={each.name: indices_now(each.load, each.clients_count) for each in present.brokers if each.load},
        as_it_is=as_it_is,
        planned=planned,
        spread=spread_of(outcomes),
        risks=risks_of(planned, altered),
        unknown=(*present.unknown, *_unfilled(present, list(unfilled)), *_always_unknown(present)),
        moved_in_count={each.name: each.moved_in_count for each in present.brokers},
        sessions={each.name: each.session for each in present.brokers},
    )


def continued(
    present: Present,
    policy: str,
    minutes: float,
    seed: int,
    *,
    on_progress: Callable[[float], None] | None = None,
    unfilled: dict[str, None] | None = None,
    recorder: Recorder | None = None,
) -> Outcome:
    """Go on with a network for some time under a policy; brokers whose queues are shorter than they were are noted."""
    publish_from_s = begin_after_s(present.clients, [each.bandwidth_mbps for each in present.brokers])
    seen_from_s = READ_EVERY_S * math.ceil((publish_from_s + present.options.meter_window_s) / READ_EVERY_S)
    scenario = scenario_of(present, policy, seen_from_s, seed)
    waiting = {each.name: each.waiting_count + each.queued_count for each in present.brokers if each.has_backlog}
    begin_s, never = filled_after_s(
        msgspec.structs.replace(scenario, duration_s=seen_from_s + FILL_WITHIN_S),
        present.clients,
        publish_from_s,
        seen_from_s,
        waiting,
    )
    if unfilled is not None:
        unfilled.update(dict.fromkeys(never))
    scenario = msgspec.structs.replace(scenario, duration_s=begin_s + 60 * minutes)
    watch = PlanWatch(
        begin_s,
        60 * minutes,
        padres=present.policy.config(PadresConfig),
        edges=present.edges,
        on_progress=on_progress,
        recorder=recorder,
    )
    return watch.outcome(policy, Continuation(scenario, present.clients, publish_from_s, begin_s, watch).run())


def scenario_of(present: Present, policy: str, duration_s: float, seed: int) -> Scenario:
    """The brokers, links and settings of a network as a scenario; its clients join by themselves."""
    options = present.options
    return Scenario(
        name="plan",
        duration_s=duration_s,
        seed=seed,
        record_every_s=READ_EVERY_S,
        policy=present.policy.named(policy),
        protection=present.protection or "off",
        network=NetworkPart(
            covering=options.covering,
            advertisement_covering=options.advertisement_covering,
            window_frames_count=options.window_frames_count,
            client_queue_max_count=options.client_queue_max_count,
            slow_policy=options.slow_policy,
            client_lease_s=options.client_lease_s,
            filters_per_client_max_count=options.filters_per_client_max_count,
            clients_max_count=options.clients_max_count,
            meter_window_s=options.meter_window_s,
            uplink=options.uplink,
        ),
        broker=[
            BrokerPart(
                name=each.name,
                cpu_mhz=each.cpu_mhz,
                memory_mb=each.memory_mb,
                bandwidth_mbps=each.bandwidth_mbps,
                site=each.site,
            )
            for each in present.brokers
        ],
        link=[LinkPart(between=link) for link in present.links],
    )


def indices_now(load: dict[str, float], clients_count: int) -> Indices:
    """What a broker tells of itself, as far as a plan is about it."""
    values = {name: load[name] for name in Indices.__struct_fields__ if name != "clients_count"}
    return Indices(clients_count=clients_count, **values)


def _unfilled(present: Present, names: Sequence[str]) -> list[str]:
    if not names:
        return []
    counts = {each.name: each.waiting_count + each.queued_count for each in present.brokers}
    told = ", ".join(f"{counts.get(name, 0):,} at {name}" for name in names)
    return [f"what waits in queues ({told}): traffic as measured does not fill them, and they begin shorter"]


def _always_unknown(present: Present) -> list[str]:
    words = ["how long links take: each takes 1 ms", "bursts: publishers keep a steady pace at their mean rate"]
    if not present.options.enforce_capacities and any(each.bandwidth_mbps for each in present.brokers):
        words.append("bandwidths are kept in the plan, but the network does not enforce them")
    if present.options.acknowledges != "received":
        words.append(f'what acknowledges = "{present.options.acknowledges}" costs')
    return words


# ---- files ----


def write_plan(folder: str | Path, plan: WhatIfPlan, present: Present) -> None:
    """Keep a plan and what it was made from."""
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        (path / PLAN_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(plan)))
        (path / SNAPSHOT_FILE).write_bytes(encode_present(present))
    except OSError as error:
        raise PlanError(f"{folder}: cannot be written: {error.strerror}") from None


def read_plan(folder: str | Path) -> WhatIfPlan:
    """A plan that was kept."""
    path = Path(folder) / PLAN_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=WhatIfPlan)
    except OSError as error:
        raise PlanError(f"{path}: cannot be read: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise PlanError(f"{path}: not a plan: {error}") from None


def read_present(folder: str | Path) -> Present:
    """The snapshot that a plan was made from."""
    path = Path(folder) / SNAPSHOT_FILE
    try:
        return decode_present(path.read_bytes())
    except OSError as error:
        raise PlanError(f"{path}: cannot be read: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise PlanError(f"{path}: not a snapshot: {error}") from None
