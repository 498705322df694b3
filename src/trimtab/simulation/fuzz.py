"""Random small networks under random churn and faults, each run to rest and checked.

A run is drawn as declared data from its seed (`fuzz_plans.py`), then executed; the seed replays it.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from random import Random
from typing import Final

import msgspec

from trimtab.balancing.multistage.config import CoordinatorConfig, MultistageConfig
from trimtab.balancing.multistage.coordinated_agent import CoordinatedAgent
from trimtab.balancing.multistage.coordinator_agent import CoordinatorAgent
from trimtab.balancing.padres.config import PadresConfig
from trimtab.broker.config import BrokerConfig
from trimtab.broker.policies import agents_of
from trimtab.language import Filter, Publication
from trimtab.load.agents import Agent
from trimtab.protocol.link import LinkConfig
from trimtab.protocol.messages import WireValue
from trimtab.relocation.config import RelocationConfig
from trimtab.simulation.bugs import Bug
from trimtab.simulation.checkers import Violation
from trimtab.simulation.fuzz_plans import CHURN_S, Act, ChannelAct, Guest, Plan, client_of, draw_plan
from trimtab.simulation.queue_bounds import check_queues
from trimtab.simulation.rest import check_rest
from trimtab.simulation.trace import Trace
from trimtab.simulation.world import World

REST_WITHIN_S: Final = 600.0
"""After the churn the network must come to rest within this time."""

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


_MOVE_WITHIN_S: Final = (0.02, 0.5, 30.0)
"""Moves that end in time, and moves that must often be undone."""


_HASTY: Final = PadresConfig(
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
"""Brokers that trace all the time, and move publishers for any gain."""


def run_plan(plan: Plan) -> RunReport:
    """Execute a run to rest and check it."""
    link = LinkConfig(window_frames_count=plan.window_frames_count, data_window_count=plan.data_window_count)
    world = World(
        plan.seed,
        link=link,
        acknowledge_after_s=plan.acknowledge_after_s,
        bundle_s=plan.bundle_s,
        move_within_s=_MOVE_WITHIN_S[plan.seed % len(_MOVE_WITHIN_S)],
    )

    def config(name: str) -> BrokerConfig:
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

    def agents(name: str) -> list[Agent]:
        if plan.coordinator == name:
            return [CoordinatorAgent(_HASTY_COORDINATION, Random(f"coordinator {plan.seed}"), "life")]
        if plan.coordinator:
            return [CoordinatedAgent()]
        policy = "+".join(part for part in ("padres" if plan.is_balanced else "none", plan.relocation) if part)
        return agents_of(policy, name, plan.seed, _HASTY, relocation=_HASTY_RELOCATION)

    world.agents_for = agents
    if plan.channel_acts:
        world.add_back_end(("near",), plan.back_end_latency_s)
    for name, capacity in plan.brokers.items():
        world.add_broker(config(name), capacity, agents(name))
    for first, second, latency_s in plan.links:
        world.add_link(first, second, latency_s)
    for name, broker, latency_s in plan.clients:
        world.add_client(name, broker, latency_s)
    for guest in plan.guests:
        world.at(guest.join_s, _join, world, guest, config(guest.name), agents(guest.name))
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
    world.at(CHURN_S if plan.deaths is None else plan.deaths.over_s, _retire_agents, world)
    try:
        world.run(CHURN_S + REST_WITHIN_S, EVENTS_MAX_COUNT)
    except Exception as error:  # whatever the core raises is a finding
        where = traceback.extract_tb(error.__traceback__)[-1]
        world.checker.violate("crash", f"{type(error).__name__}: {error} ({where.name} at {world.now_s:.6f} s)")
    else:
        staying = [(guest.name, guest.neighbour) for guest in plan.guests if guest.leave_s is None]
        check_rest(world, [*((first, second) for first, second, _ in plan.links), *staying])
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


def _retire_agents(world: World) -> None:
    for host in world.brokers.values():
        host.broker.retire_agents()


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
            if act.which < len(advertisements):
                id, _ = advertisements.pop(act.which)
                world.unadvertise(act.client, id)
        case "unsubscribe":
            if act.which < len(subscriptions):
                world.unsubscribe(act.client, subscriptions.pop(act.which))
        case "move":
            node = world.clients[act.client]
            is_settled = list(node.connections) == [node.session.broker]
            if is_settled and act.broker != node.session.broker:
                world.move(act.client, act.broker)
        case "leave":
            node = world.clients[act.client]
            if not node.session.waiting_count and not node.held_back:
                world.leave(act.client)
        case "publish":
            publication = Publication(act.values)
            if any(filter.announces(publication) for _, filter in advertisements):
                world.publish(act.client, publication)


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


class FuzzReport(msgspec.Struct, frozen=True):
    """What many runs showed."""

    first_seed: int
    runs_count: int
    simulated_s: float
    publications_count: int
    deliveries_count: int
    moves_count: int
    dropped_count: int
    disconnected_count: int
    results_count: int
    """Results of channels that were delivered."""
    faults_count: dict[str, int]
    failures: list[RunReport]
    trace_hash: str
    """The traces of all runs as one hash."""


def fuzz(
    first_seed: int,
    runs_count: int,
    on_run: Callable[[RunReport], None] = lambda _: None,
    bug: Bug | None = None,
    draw: Callable[[int], Plan] = draw_plan,
) -> FuzzReport:
    """Execute runs with consecutive seeds, with a deliberate bug if one is given."""
    simulated_s, totals = 0.0, Counter[str]()
    faults: Counter[str] = Counter()
    failures: list[RunReport] = []
    trace = Trace()
    for seed in range(first_seed, first_seed + runs_count):
        with nullcontext() if bug is None else bug.active():
            report = run_plan(draw(seed))
        on_run(report)
        trace.add((seed, report.trace_hash))
        simulated_s += report.simulated_s
        totals.update(
            publications=report.publications_count,
            deliveries=report.deliveries_count,
            moves=report.moves_count,
            dropped=report.dropped_count,
            disconnected=report.disconnected_count,
            results=report.results_count,
        )
        faults.update(report.faults_count)
        if report.violations:
            failures.append(report)
    return FuzzReport(
        first_seed=first_seed,
        runs_count=runs_count,
        simulated_s=simulated_s,
        publications_count=totals["publications"],
        deliveries_count=totals["deliveries"],
        moves_count=totals["moves"],
        dropped_count=totals["dropped"],
        disconnected_count=totals["disconnected"],
        results_count=totals["results"],
        faults_count=dict(sorted(faults.items())),
        failures=failures,
        trace_hash=trace.hexdigest(),
    )


class BugReport(msgspec.Struct, frozen=True):
    """Whether the fuzzer found a deliberate bug."""

    bug: str
    text: str
    runs_count: int
    """Runs executed: all that were allowed, or up to the one that found it."""

    found_after_runs_count: int | None
    first_violation: str


def fuzz_bug(bug: Bug, first_seed: int, runs_max_count: int, draw: Callable[[int], Plan] = draw_plan) -> BugReport:
    """Execute runs with a deliberate bug until one of them finds it."""
    for number in range(runs_max_count):
        with bug.active():
            violations = run_plan(draw(first_seed + number)).violations
        if violations:
            found = f"{violations[0].kind}: {violations[0].text}"
            return BugReport(bug.name, bug.text, number + 1, number + 1, found)
    return BugReport(bug.name, bug.text, runs_max_count, None, "")
