"""Random runs with everything together: brokers that die or get assistants, at every level of acknowledgement and with
every protocol, under agents, channels, moves and all faults.

Nothing but death looks like death: cuts and partitions are shorter than the time after which a broker counts as
crashed, pauses shorter than that after which it hangs. In a few runs one broker pauses for longer; whoever replaces it
ends it first, so that it is a death like others. Several brokers that are replaced at once, though they live, are more
than one death, which `received` and `safe` do not promise to survive.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

import msgspec

from trimtab.broker.replication.config import ReplicationConfig
from trimtab.language import Filter
from trimtab.simulation.faults.deaths import Asked, Deaths, Failure, Helped, Restart
from trimtab.simulation.faults.faults import (
    Congest,
    Crash,
    Cut,
    DiskFault,
    Fault,
    FlipBit,
    FullDisk,
    Hang,
    Partition,
    Pause,
    SlowDisk,
)
from trimtab.simulation.fuzz.death_plans import AGENTS_NEED_MHZ, OVER_S
from trimtab.simulation.fuzz.plans import CHURN_S, Act, FuzzPlan, draw_plan_of_any_speed, fast_enough
from trimtab.simulation.fuzz.separation_plans import with_separation
from trimtab.simulation.fuzz.weights import WEIGHTS, Aim, Weights, choose
from trimtab.simulation.world.capacity import matching_delay_s

_CLIENT_CUT_MAX_S: Final = 1.5
"""Clients come back to a replica within 2 s, or so much later: well within their lease."""

_COORDINATED_WINDOW_COUNT: Final = 16
"""For brokers with a coordinator: with a window of one frame, and acknowledgements that wait for half a second, what
it says takes longer than it has to say, as long as brokers die."""

_PAUSE_RATIO: Final = 0.4
_CUT_RATIO: Final = 0.4
"""Of the time after which a broker counts as dead: the longest pause and cut. Greetings take a while, too."""

_USUAL_COUNT: Final = 10
"""Subscriptions in the tables of a broker, more or less."""

_ALL: Final = Filter.parse("[x,isPresent,0]")
_ANNOUNCES_ALL: Final = Filter.parse("[class,isPresent,''],[x,isPresent,0]")


def draw_plan_with_replication(seed: int) -> FuzzPlan:
    """A random run with everything that a network may have and that may happen to it, as far as the core is ready."""
    return draw_plan_with_everything(seed, WEIGHTS)


def draw_plan_with_everything(seed: int, weights: Weights) -> FuzzPlan:
    """A random run with everything that a network may have and that may happen to it, each as often as is said."""
    rng, near_rng = Random(f"trimtab fuzz everything {seed}"), Random(f"trimtab fuzz near assistants {seed}")
    plan = _with_some_features(draw_plan_of_any_speed(seed), rng, weights)
    acknowledges = choose(rng, weights.acknowledges)
    replication = ReplicationConfig(
        protocol=choose(rng, weights.protocol) if acknowledges == "received" else "synchronous",
        look_every_s=rng.choice((0.1, 0.3)),
        crash_after_s=rng.choice((0.3, 1.0)),
        hang_after_s=5.0,
        ask_again_s=1.0,
        relieved_count=near_rng.choice((1, 1, 4)),
        relieved_after_s=near_rng.choice((0.5, 1.0, 3.0, 10.0)),
    )
    faults = [_harmless(fault, plan, replication) for fault in plan.faults]
    if rng.random() < weights.false_suspicion:
        at_s = rng.uniform(2.0, 12.0)
        for_s = replication.hang_after_s + rng.uniform(1.0, 3.0)
        faults.append(Pause(broker=rng.choice(list(plan.brokers)), at_s=at_s, for_s=for_s))
    plan = _with_backlogs(msgspec.structs.replace(plan, faults=faults), rng, weights)
    is_safe = acknowledges != "received"
    helped_rng = near_rng if is_safe else rng
    helped = _draw_helped(helped_rng, plan, is_safe=is_safe) if helped_rng.random() < weights.assistant else ()
    if helped:  # an assistant is linked to the neighbours of the day, and not to brokers that join later
        plan = _with_load(near_rng, _without_guests(plan), helped[0])
    has_deaths = not helped or helped_rng.random() < weights.deaths_with_assistant
    failures = _draw_failures(rng, plan, weights, is_durable=acknowledges == "durable") if has_deaths else ()
    failures = _with_some_near(near_rng, failures, helped, weights)
    besides = Random(f"trimtab fuzz disks and restarts {seed}")  # of its own: seeds draw what they drew without these
    if failures and besides.random() < weights.rolling_restart:
        failures = _draw_rolling_restart(besides, plan)
    if failures and acknowledges == "durable" and besides.random() < weights.unsynced_death:
        plan, failures = _with_unsynced_death(besides, plan, failures, replication)
    if acknowledges == "durable" and besides.random() < weights.disk_faults:
        disk_faults = [_draw_disk_fault(besides, plan, weights, failures) for _ in range(besides.choice((1, 2, 5)))]
        plan = msgspec.structs.replace(plan, faults=[*plan.faults, *disk_faults])
    plan = msgspec.structs.replace(
        plan,
        deaths=Deaths(
            replication=replication,
            failures=failures,
            start_after_s=rng.choice((0.0, 0.2, 1.0)),
            clients_return_s=rng.choice((0.0, 0.5, 2.0)),
            acknowledges=acknowledges,
            over_s=OVER_S,
            helped=helped,
            waits_for_takeovers=acknowledges != "durable" or rng.random() >= weights.overlapping_deaths,
        ),
    )
    return with_separation(plan, weights.separation)


def _with_some_features(plan: FuzzPlan, rng: Random, weights: Weights) -> FuzzPlan:
    """Agents, channels, brokers that join and moves each stay or go; what `safe` cannot have goes."""
    kept = {feature for feature, weight in weights.feature_kept.items() if rng.random() < weight}
    has_guests = "guests" in kept
    has_moves = rng.random() < weights.moves_kept
    is_balanced = plan.is_balanced and "balancing" in kept
    coordinator = plan.coordinator if "coordinator" in kept else ""
    guests = [msgspec.structs.replace(guest, leave_s=None) for guest in plan.guests] if has_guests else []
    return msgspec.structs.replace(
        plan,
        slow_policy="block",
        client_queue_max_count=100_000,
        guests=guests,
        acts=[act for act in plan.acts if (has_moves or act.what != "move") and (has_guests or "@" not in act.client)],
        is_balanced=is_balanced,
        coordinator=coordinator,
        relocation=plan.relocation if "relocation" in kept else "",
        channel_acts=plan.channel_acts if "channels" in kept else [],
        brokers=fast_enough(plan.brokers, AGENTS_NEED_MHZ) if is_balanced or coordinator else plan.brokers,
        window_frames_count=max(plan.window_frames_count, _COORDINATED_WINDOW_COUNT if coordinator else 1),
    )


def _without_guests(plan: FuzzPlan) -> FuzzPlan:
    return msgspec.structs.replace(plan, guests=[], acts=[act for act in plan.acts if "@" not in act.client])


def _with_load(rng: Random, plan: FuzzPlan, helped: Helped) -> FuzzPlan:
    """More publications than the slow broker can match, from one or two publishers to one or two subscribers."""
    names = [name for name, _, _ in plan.clients]
    acts = [
        Act(helped.at_s - rng.uniform(0.5, 1.5), name, "subscribe", filter=_ALL)
        for name in rng.sample(names, rng.choice((1, 2)))
    ]
    for publisher in rng.sample(names, rng.choice((1, 2))):
        acts.append(Act(helped.at_s - rng.uniform(0.5, 1.5), publisher, "advertise", filter=_ANNOUNCES_ALL))
        every_s, at_s = rng.uniform(0.2, 0.8) * matching_delay_s(_USUAL_COUNT, helped.cpu_mhz), helped.assistant_at_s
        for _ in range(min(150, max(30, int(rng.uniform(3.0, 8.0) / every_s)))):
            at_s += rng.expovariate(1 / every_s)
            acts.append(Act(at_s, publisher, "publish", values={"class": "a", "x": rng.randint(0, 20)}))
    return msgspec.structs.replace(plan, acts=sorted((*plan.acts, *acts), key=lambda act: act.at_s))


def _harmless(fault: Fault, plan: FuzzPlan, replication: ReplicationConfig) -> Fault:
    """The same fault, too short to look like a death."""
    cut_max_s = _CUT_RATIO * replication.crash_after_s
    match fault:
        case Cut(between=between):
            is_inner = all(name in plan.brokers or name.startswith("G") for name in between)
            for_s = min(fault.for_s, cut_max_s if is_inner else _CLIENT_CUT_MAX_S)
            noticed = fault.noticed_after_s
            ratio = for_s / fault.for_s
            return msgspec.structs.replace(fault, for_s=for_s, noticed_after_s=(noticed[0] * ratio, noticed[1] * ratio))
        case Partition():
            return msgspec.structs.replace(fault, for_s=min(fault.for_s, cut_max_s))
        case Pause():
            return msgspec.structs.replace(fault, for_s=min(fault.for_s, _PAUSE_RATIO * replication.hang_after_s))
        case _:
            return fault


# ---- publishers that go with a backlog ----


def _with_backlogs(plan: FuzzPlan, rng: Random, weights: Weights) -> FuzzPlan:
    """Publishers that leave, or end an advertisement, right behind publications, while a broker is slow."""
    for what, weight in (
        ("leave-acknowledged", weights.leave_with_backlog),
        ("unadvertise", weights.unadvertise_with_backlog),
    ):
        if rng.random() >= weight:
            continue
        publisher, subscriber = rng.sample([name for name, _, _ in plan.clients], 2)
        at_s = rng.uniform(4.0, 12.0)
        count = rng.choice((1, 3, 20))
        acts = [
            Act(at_s - rng.uniform(1.0, 3.0), subscriber, "subscribe", filter=_ALL),
            Act(at_s - rng.uniform(0.5, 2.0), publisher, "advertise", filter=_ANNOUNCES_ALL),
            *(Act(at_s, publisher, "publish", values={"class": "a", "x": rng.randint(0, 20)}) for _ in range(count)),
            Act(at_s, publisher, "leave-acknowledged" if what == "leave-acknowledged" else "unadvertise", which=-1),
        ]
        slow = rng.choice(list(plan.brokers))
        from_s, for_s = at_s - rng.uniform(0.0, 0.2), rng.uniform(0.5, 3.0)
        fault: Fault = (
            Congest(broker=slow, at_s=from_s, for_s=for_s, cpu_mhz=rng.choice((0.2, 1.0)))
            if rng.random() < 0.7
            else Pause(broker=slow, at_s=from_s, for_s=min(for_s, 2.0))
        )
        plan = msgspec.structs.replace(
            plan,
            acts=sorted((*plan.acts, *acts), key=lambda act: act.at_s),
            faults=[*plan.faults, fault],
        )
    return plan


# ---- brokers that fail ----


def _draw_failures(rng: Random, plan: FuzzPlan, weights: Weights, *, is_durable: bool) -> tuple[Failure, ...]:
    """One failure or a few, each aimed at something that is under way; at `durable` perhaps two side by side."""
    failures: list[Failure] = []
    for number in range(rng.choice((1, 1, 2))):
        broker, at_s = _draw_aim(rng, plan, choose(rng, weights.aim))
        if number:
            at_s = max(at_s, failures[-1].at_s + rng.uniform(2.0, 11.0))
        failures.append(_draw_failure(rng, weights, broker, at_s))
    if is_durable and rng.random() < weights.adjacent_deaths:
        first = failures[0]
        near = _neighbours(plan, first.broker)
        at_s = first.at_s + rng.choice((0.0, 0.3, 3.0)) * rng.random()
        failures.append(_draw_failure(rng, weights, rng.choice(near), at_s))
    return tuple(sorted(failures, key=lambda failure: failure.at_s))


def _draw_rolling_restart(rng: Random, plan: FuzzPlan) -> tuple[Failure, ...]:
    """Each broker is asked to end and started again, one after the other; the next when all is well, or soon."""
    at_s, gap_s = rng.uniform(2.0, 8.0), rng.choice((0.0, 0.5, 2.0))
    names = rng.sample(list(plan.brokers), len(plan.brokers))
    return tuple(
        Asked(broker=name, at_s=at_s + number * gap_s, after_s=rng.choice((0.01, 0.1, 1.0)) * rng.random())
        for number, name in enumerate(names)
    )


def _draw_failure(rng: Random, weights: Weights, broker: str, at_s: float) -> Failure:
    match choose(rng, weights.failing):
        case "crash":
            return Crash(broker=broker, at_s=at_s, noticed_after_s=rng.choice((0.0, 0.1, 1.0)))
        case "hang":
            return Hang(broker=broker, at_s=at_s)
        case "asked":
            return Asked(broker=broker, at_s=at_s, after_s=rng.choice((0.01, 0.1, 3.0)) * rng.random())
        case _:
            return Restart(broker=broker, at_s=at_s, after_s=rng.choice((0.01, 0.1, 3.0)) * rng.random())


def _with_unsynced_death(
    rng: Random, plan: FuzzPlan, failures: tuple[Failure, ...], replication: ReplicationConfig
) -> tuple[FuzzPlan, tuple[Failure, ...]]:
    """A broker dies before any other, while only its slow disk has, or is about to have, what a client published."""
    (publisher, broker, _), (subscriber, _, _) = rng.sample(plan.clients, 2)
    at_s, count = rng.uniform(3.0, 9.0), rng.choice((1, 5, 20))
    text = "x" * rng.choice((0, 200))
    acts = [
        Act(at_s - 1.5, subscriber, "subscribe", filter=_ALL),
        Act(at_s - 1.0, publisher, "advertise", filter=_ANNOUNCES_ALL),
        *(Act(at_s, publisher, "publish", values={"class": f"a{text}", "x": number}) for number in range(count)),
    ]
    faults: list[Fault] = [
        SlowDisk(broker=broker, at_s=at_s - 0.2, for_s=2.0, write_s=rng.choice((0.01, 0.05, 0.2))),
        Partition(brokers=(broker,), at_s=at_s - 0.02, for_s=_CUT_RATIO * replication.crash_after_s),
    ]
    dies_s = at_s + rng.uniform(0.0, 0.12)
    failure = Restart(broker=broker, at_s=dies_s, after_s=rng.choice((0.01, 1.0)))
    later = [each for each in failures if each.at_s > dies_s]
    acts = sorted((*plan.acts, *acts), key=lambda act: act.at_s)
    plan = msgspec.structs.replace(plan, acts=acts, faults=[*plan.faults, *faults])
    return plan, (failure, *later)


def _draw_disk_fault(rng: Random, plan: FuzzPlan, weights: Weights, failures: Sequence[Failure]) -> DiskFault:
    """Something goes wrong with a disk, mostly of a broker that fails, and about then."""
    broker, about_s = rng.choice(list(plan.brokers)), rng.uniform(2.0, 12.0)
    if failures and rng.random() < 0.8:
        failure = rng.choice(failures)
        broker, about_s = failure.broker, failure.at_s
    at_s = max(0.0, about_s + rng.choice((0.02, 0.5, 3.0)) * rng.uniform(-1.0, 0.3))
    match choose(rng, weights.disk_fault):
        case "flip-bit":
            return FlipBit(broker=broker, at_s=at_s)
        case "full-disk":
            return FullDisk(broker=broker, at_s=at_s, for_s=rng.choice((0.1, 1.0, 10.0)) * rng.random())
        case _:
            write_s = rng.choice((0.02, 0.3, 2.0)) * rng.random()
            return SlowDisk(broker=broker, at_s=at_s, for_s=rng.uniform(0.5, 10.0), write_s=write_s)


def _draw_aim(rng: Random, plan: FuzzPlan, aim: Aim) -> tuple[str, float]:
    """Who dies and when, so that this is under way; anybody at any time if there is no such thing in the plan."""
    brokers = list(plan.brokers)
    broker, soon_s = rng.choice(brokers), rng.choice((0.02, 0.2, 1.0)) * rng.random()
    match aim:
        case "publishing":
            times_s = [act.at_s for act in plan.acts if act.what == "publish"]
        case "moving":
            moves = [act for act in plan.acts if act.what == "move" and act.at_s > 1.0]
            if moves:
                move = rng.choice(moves)
                homes = [home for name, home, _ in plan.clients if name == move.client]
                return rng.choice([broker, *(name for name in (move.broker, *homes) if name in brokers)]), (
                    move.at_s + soon_s
                )
            times_s = []
        case "leaving":
            gone = [act for act in plan.acts if act.what.startswith("leave") or act.which < 0]
            times_s = [act.at_s for act in gone] + [act.at_s for act in gone if act.which < 0] * 3
        case "cut":
            times_s = [fault.at_s for fault in plan.faults if isinstance(fault, Cut | Partition | Pause)]
        case "any":
            times_s = []
    times_s = [time_s for time_s in times_s if 1.0 < time_s < CHURN_S]
    return broker, rng.choice(times_s) + soon_s if times_s else rng.uniform(2.0, 12.0)


def _with_some_near(
    rng: Random, failures: tuple[Failure, ...], helped: tuple[Helped, ...], weights: Weights
) -> tuple[Failure, ...]:
    """Assistants, brokers that they assist and neighbours of both die while they are there, or come or leave."""
    found: list[Failure] = []
    for failure in failures:
        if helped and rng.random() < weights.deaths_near_assistant:
            each = rng.choice(helped)
            broker = rng.choice((f"{each.broker}~", f"{each.broker}~", each.broker, *each.neighbours))
            at_s = each.assistant_at_s + rng.choice((0.2, 2.0, each.for_s)) * rng.random()
            if broker.endswith("~") and isinstance(failure, Asked | Restart):  # nobody starts an assistant again
                failure = Crash(broker=broker, at_s=at_s)
            found.append(msgspec.structs.replace(failure, broker=broker, at_s=at_s))
        else:
            found.append(failure)
    return tuple(sorted(found, key=lambda failure: failure.at_s))


def _draw_helped(rng: Random, plan: FuzzPlan, *, is_safe: bool) -> tuple[Helped, ...]:
    inner = [name for name in plan.brokers if len(_neighbours(plan, name)) > 1]
    broker = rng.choice(inner or list(plan.brokers))
    at_s = rng.uniform(2.0, 8.0)
    return (
        Helped(
            broker=broker,
            at_s=at_s,
            cpu_mhz=rng.choice((0.2, 1.0, 5.0)),
            for_s=rng.uniform(1.0, 10.0),
            assistant_at_s=at_s + rng.uniform(0.0, 2.0),
            neighbours=_neighbours(plan, broker),
            protocol="synchronous" if is_safe else rng.choice(("synchronous", "incremental")),
        ),
    )


def _neighbours(plan: FuzzPlan, broker: str) -> tuple[str, ...]:
    """Every broker of a plan has one at least."""
    return tuple(second if first == broker else first for first, second, _ in plan.links if broker in (first, second))
