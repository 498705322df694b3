"""One random run: a plan is executed to rest and checked."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Final

import msgspec

from trimtab.broker.config import BrokerConfig
from trimtab.language import Filter, Publication
from trimtab.policies.api import Agent
from trimtab.policies.multistage.config import CoordinatorConfig, MultistageConfig
from trimtab.policies.multistage.coordinated_agent import CoordinatedAgent
from trimtab.policies.multistage.coordinator_agent import CoordinatorAgent
from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.registry import PolicyChoice, agents_of
from trimtab.policies.relocation.config import RelocationConfig
from trimtab.protocol.link import LinkConfig
from trimtab.protocol.messages import WireValue
from trimtab.simulation.checkers.deliveries import Violation
from trimtab.simulation.checkers.queue_bounds import check_queues
from trimtab.simulation.checkers.rest import check_rest
from trimtab.simulation.fuzz.plans import CHURN_S, Act, ChannelAct, FuzzPlan, Guest, client_of
from trimtab.simulation.world.world import World

REST_WITHIN_S: Final = 1_800.0
"""After the churn the network must come to rest within this time: a broker of 0.2 MHz with twenty subscriptions takes
1.6 s for a publication, and there may be some hundred."""

QUEUES_EVERY_S: Final = 0.1
"""How often the length of queues is looked at."""

EVENTS_MAX_COUNT: Final = 300_000
"""More than any run needs that comes to rest."""


class RunReport(msgspec.Struct, frozen=True):
    """What a run showed."""

    seed: int
    simulated_s: float
    deliveries_count: int
    publications_count: int
    moves_count: int
    dropped_count: int
    disconnected_count: int
    results_count: int
    """Results of channels that were delivered."""
    faults_count: dict[str, int]
    violations: list[Violation]
    trace_hash: str


_LEAVES_WITHIN_S: Final = 10.0
"""A client that is to leave once all it has published is acknowledged stays if that takes longer."""

_LEAVE_TRIED_EVERY_S: Final = 0.005

_MOVE_WITHIN_S: Final = (0.02, 0.5, 30.0)
"""Moves that end in time, and moves that must often be undone."""


_HASTY_PADRES: Final = PadresConfig(
    local_pie_period_s=0.4,
    global_pie_period_s=0.8,
    local_ratio_threshold=0.0002,
    local_delay_threshold=0.0002,
    global_ratio_threshold=0.0003,
    global_delay_threshold=0.0003,
    balance_difference=0.0001,
    pie_ratio_threshold=0.0001,
    pie_delay_threshold=0.0001,
    stabilize_duration_s=0.3,
    stabilize_change=0.5,
    stabilize_interval_s=0.5,
    local_detection_min_interval_s=0.2,
    local_detection_max_interval_s=0.5,
    global_detection_min_interval_s=0.4,
    global_detection_max_interval_s=0.8,
    press_sample_count=3,
    press_timeout_s=0.6,
    migration_timeout_s=0.5,
    reply_timeout_s=0.5,
    planning_timeout_s=1.0,
    global_session_max_s=3.0,
)
"""Brokers that balance every difference that they see, all the time."""

_HASTY_COORDINATION: Final = CoordinatorConfig(
    placement="random",
    policy="gsh",
    balancing=MultistageConfig(migrate_cov=0.0, gsh_cov=0.0, idle_load_bytes_per_s=0.0),
    round_every_s=0.7,
    report_every_s=0.2,
    broker_lifetime_s=2.0,
    moves_at_once_count=3,
    move_within_s=2.0,
)
"""A coordinator that shuffles all the time."""

_HASTY_RELOCATION: Final = RelocationConfig(
    pop_threshold_count=2,
    grape_threshold_count=3,
    answer_timeout_s=1.0,
    gain_threshold_ratio=0.0,
    move_memory_s=0.0,
    rest_s=0.05,
    joint_wait_s=0.05,
    room_lifetime_s=0.3,
)

_HASTY: Final = PolicyChoice.of(padres=_HASTY_PADRES, relocation=_HASTY_RELOCATION)
"""Brokers that trace all the time, and move publishers for any gain."""


def run_plan(plan: FuzzPlan) -> RunReport:
    """Execute a run to rest and check it."""
    world = _world_of(plan)
    for fault in plan.faults:
        world.add_fault(fault)
    if plan.deaths is not None:
        plan.deaths.declare(world)
    for number in range(int(CHURN_S / QUEUES_EVERY_S)):
        world.at(number * QUEUES_EVERY_S, check_queues, world)
    own = _OwnIds()
    for act in plan.acts:
        world.at(act.at_s, _do, world, own, act)
    for channel_act in plan.channel_acts:
        world.at(channel_act.at_s, _do_channel, world, own, channel_act)
    world.at(CHURN_S if plan.deaths is None else plan.deaths.over_s, world.retire_agents)
    try:
        world.run(CHURN_S + REST_WITHIN_S, EVENTS_MAX_COUNT)
    except Exception as error:  # whatever the core raises is a finding
        where = traceback.extract_tb(error.__traceback__)[-1]
        world.checker.violate("crash", f"{type(error).__name__}: {error} ({where.name} at {world.now_s:.6f} s)")
    else:
        staying = [(guest.name, guest.neighbour) for guest in plan.guests if guest.leave_s is None]
        check_rest(world, [*((first, second) for first, second, _ in plan.links), *staying])
    return _report(plan, world)


def _world_of(plan: FuzzPlan) -> World:
    """The brokers, links and clients of a plan, before anything has happened."""
    link = _link_of(plan)
    world = World(
        plan.seed,
        link=link,
        acknowledge_after_s=plan.acknowledge_after_s,
        bundle_s=plan.bundle_s,
        move_within_s=_MOVE_WITHIN_S[plan.seed % len(_MOVE_WITHIN_S)],
    )
    incarnations: Counter[str] = Counter()

    def agents(name: str) -> list[Agent]:
        incarnations[name] += 1
        return _agents_of(plan, name, incarnations[name])

    world.agents_for = agents
    if plan.channel_acts:
        world.add_back_end(("near",), plan.back_end_latency_s)
    for name, capacity in plan.brokers.items():
        world.add_broker(_config_of(plan, name, link), capacity, agents(name))
    for first, second, latency_s in plan.links:
        world.add_link(first, second, latency_s)
    for name, broker, latency_s in plan.clients:
        world.add_client(name, broker, latency_s)
    for guest in plan.guests:
        world.at(guest.join_s, _join, world, guest, _config_of(plan, guest.name, link), agents(guest.name))
    return world


def _link_of(plan: FuzzPlan) -> LinkConfig:
    return LinkConfig(window_frames_count=plan.window_frames_count, data_window_count=plan.data_window_count)


def _config_of(plan: FuzzPlan, name: str, link: LinkConfig) -> BrokerConfig:
    pairs = [(first, second) for first, second, _ in plan.links]
    pairs += [(guest.name, guest.neighbour) for guest in plan.guests if guest.name == name]
    return BrokerConfig(
        name,
        neighbours=tuple(second if first == name else first for first, second in pairs if name in (first, second)),
        subscription_covering=plan.subscription_covering,
        advertisement_covering=plan.advertisement_covering,
        link=link,
        slow_policy=plan.slow_policy,
        broker_queue_high_count=plan.broker_queue_high_count,
        client_queue_max_count=plan.client_queue_max_count,
        has_back_end=bool(plan.channel_acts),
        results_cached_max_count=plan.seed % 5,
        replication=None if plan.deaths is None else plan.deaths.replication,
        acknowledges="received" if plan.deaths is None else plan.deaths.acknowledges,
    )


def _agents_of(plan: FuzzPlan, name: str, incarnation: int) -> list[Agent]:
    if plan.coordinator == name:
        life = "life" + "+" * (incarnation - 1)
        return [CoordinatorAgent(_HASTY_COORDINATION, Random(f"coordinator {plan.seed}"), life)]
    if plan.coordinator:
        return [CoordinatedAgent()]
    policy = "+".join(part for part in ("padres" if plan.is_balanced else "none", plan.relocation) if part)
    return agents_of(_HASTY.named(policy), name, plan.seed)


def _report(plan: FuzzPlan, world: World) -> RunReport:
    checker = world.checker
    return RunReport(
        seed=plan.seed,
        simulated_s=world.now_s,
        deliveries_count=checker.deliveries_count,
        publications_count=checker.accepted_count,
        moves_count=world.moves_count,
        dropped_count=checker.dropped_count,
        disconnected_count=checker.disconnected_count,
        results_count=checker.channels.delivered_count,
        faults_count={kind: world.faults_count[kind] for kind in sorted(world.faults_count)},
        violations=checker.violations,
        trace_hash=world.trace.hexdigest(),
    )


def _join(world: World, guest: Guest, config: BrokerConfig, agents: Sequence[Agent]) -> None:
    world.add_broker(config, agents=agents)
    world.add_link(guest.name, guest.neighbour, guest.latency_s)
    if guest.leave_s is not None:
        world.at(guest.leave_s, world.remove_link, guest.name, guest.neighbour)
    else:
        world.add_client(client_of(guest), guest.name)


class _OwnIds:
    """What each client advertises and subscribes to, so that it can end it."""

    def __init__(self) -> None:
        self.advertisements: dict[str, list[tuple[str, Filter]]] = {}
        self.subscriptions: dict[str, list[str]] = {}
        self.channels: dict[tuple[str, int], str] = {}


def _do(world: World, own: _OwnIds, act: Act) -> None:
    if act.client not in world.clients or world.clients[act.client].has_left:
        return
    advertisements = own.advertisements.setdefault(act.client, [])
    subscriptions = own.subscriptions.setdefault(act.client, [])
    match act.what:
        case "advertise":
            assert act.filter is not None
            advertisements.append((world.advertise(act.client, act.filter), act.filter))
        case "subscribe":
            assert act.filter is not None
            subscriptions.append(world.subscribe(act.client, act.filter))
        case "unadvertise":
            if advertisements and act.which < len(advertisements):
                id, _ = advertisements.pop(act.which)
                world.unadvertise(act.client, id)
        case "unsubscribe":
            if act.which < len(subscriptions):
                world.unsubscribe(act.client, subscriptions.pop(act.which))
        case "move":
            node = world.clients[act.client]
            is_settled = list(node.connections) == [node.session.broker]
            if is_settled and act.broker in world.brokers and act.broker != node.session.broker:
                world.move(act.client, act.broker)
        case "leave":
            node = world.clients[act.client]
            if not node.session.waiting_count and not node.held_back:
                world.leave(act.client)
        case "leave-acknowledged":
            _leave_when_acknowledged(world, act.client, world.now_s + _LEAVES_WITHIN_S)
        case "publish":
            publication = Publication(act.values)
            if any(filter.announces(publication) for _, filter in advertisements):
                world.publish(act.client, publication)


def _leave_when_acknowledged(world: World, client: str, until_s: float) -> None:
    """A client leaves at the moment when all that it has published is acknowledged."""
    node = world.clients[client]
    if node.has_left:
        return
    if not node.session.waiting_count and not node.held_back:
        world.leave(client)
    elif world.now_s < until_s:
        world.at(world.now_s + _LEAVE_TRIED_EVERY_S, _leave_when_acknowledged, world, client, until_s)


def _do_channel(world: World, own: _OwnIds, act: ChannelAct) -> None:
    assert world.back_end is not None
    arguments: dict[str, WireValue] = {"place": act.argument}
    is_there = act.client in world.clients and not world.clients[act.client].has_left
    match act.what:
        case "happen":
            world.back_end.happen("near", arguments, {"what": "quake"})
        case "want":
            if is_there and (act.client, act.argument) not in own.channels:
                own.channels[act.client, act.argument] = world.subscribe_channel(act.client, "near", arguments)
        case "unwant":
            id = own.channels.pop((act.client, act.argument), None)
            if is_there and id is not None:
                world.unsubscribe_channel(act.client, id)
        case "away":
            world.back_end.go_away(act.for_s)
