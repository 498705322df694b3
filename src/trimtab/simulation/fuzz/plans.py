"""Random runs as declared data, each drawn from its seed alone: brokers, links, clients, what they do when, faults."""

from __future__ import annotations

from random import Random
from typing import Final, Literal, TypeAlias

import msgspec

from trimtab.broker.config import SlowPolicy
from trimtab.language import Filter
from trimtab.simulation.faults.deaths import Deaths
from trimtab.simulation.faults.faults import Cut, Delay, Drop, Duplicate, Fault, Partition, Pause, Reorder
from trimtab.simulation.fuzz.weights import WEIGHTS
from trimtab.simulation.world.capacity import SimulatedCapacity

CHURN_S: Final = 20.0
"""Clients act and faults happen during so many seconds; then everything heals and comes to rest."""
_CLASSES: Final = ("a", "b")


What: TypeAlias = Literal[
    "advertise", "unadvertise", "subscribe", "unsubscribe", "publish", "move", "leave", "leave-acknowledged"
]
"""What clients do. They leave if nothing of theirs waits to be acknowledged, or as soon as nothing does."""


class Act(msgspec.Struct, frozen=True):
    """What a client does at a time; `which` picks one of its subscriptions or advertisements to end (-1: the last)."""

    at_s: float
    client: str
    what: What
    filter: Filter | None = None
    values: dict[str, int | str] | None = None
    which: int = 0
    broker: str = ""


class ChannelAct(msgspec.Struct, frozen=True):
    """What happens to channels at a time: a result, a client that wants one or wants it no more, an absence."""

    at_s: float
    what: Literal["happen", "want", "unwant", "away"]
    argument: int = 0
    client: str = ""
    for_s: float = 0.0


class Guest(msgspec.Struct, frozen=True):
    """A broker that joins the running network as a leaf; it leaves again, or stays and gets a client."""

    name: str
    neighbour: str
    latency_s: float
    join_s: float
    leave_s: float | None


class FuzzPlan(msgspec.Struct, frozen=True):
    """One run."""

    seed: int
    subscription_covering: bool
    advertisement_covering: bool
    window_frames_count: int
    acknowledge_after_s: float
    bundle_s: float
    slow_policy: SlowPolicy
    client_queue_max_count: int
    brokers: dict[str, SimulatedCapacity]
    links: list[tuple[str, str, float]]
    clients: list[tuple[str, str, float]]
    guests: list[Guest]
    acts: list[Act]
    faults: list[Fault]
    data_window_count: int
    broker_queue_high_count: int
    is_balanced: bool
    """Whether agents in the brokers move subscribers, hastily."""
    channel_acts: list[ChannelAct]
    back_end_latency_s: float
    coordinator: str
    """The broker that coordinates the others, hastily, and sends its own subscribers away; empty if none does."""
    relocation: str
    """How agents in the brokers move publishers, hastily; empty if they do not."""
    deaths: Deaths | None = None
    """Which brokers fail and how they are replaced; none do without it."""


_RELOCATIONS: Final = ("pop", "grape-load100", "grape-delay50", "grape-joint")

AGENTS_NEED_MHZ: Final = 0.5
"""What hasty agents say is matched like publications, and before them. In the middle of nine brokers one of 0.2 MHz
took 2.1 s for each of 210 such messages and 3.1 s for each of 101 publications: longer than a run may last."""


def draw_plan(seed: int) -> FuzzPlan:
    """A random run, in which brokers with agents that talk all the time are fast enough to come to their data."""
    plan = draw_plan_of_any_speed(seed)
    if plan.is_balanced or plan.coordinator:
        return msgspec.structs.replace(plan, brokers=fast_enough(plan.brokers, AGENTS_NEED_MHZ))
    return plan


def fast_enough(capacities: dict[str, SimulatedCapacity], needed_mhz: float) -> dict[str, SimulatedCapacity]:
    """The same brokers, none of them slower than this.

    >>> fast_enough({"B1": SimulatedCapacity(cpu_mhz=0.2), "B2": SimulatedCapacity()}, 0.5)["B1"].cpu_mhz
    0.5
    """
    return {
        name: capacity
        if capacity.cpu_mhz is None
        else msgspec.structs.replace(capacity, cpu_mhz=max(needed_mhz, capacity.cpu_mhz))
        for name, capacity in capacities.items()
    }


def draw_plan_of_any_speed(seed: int) -> FuzzPlan:
    """A random run, whatever its brokers' agents need; for those who choose the agents themselves."""
    rng = Random(f"trimtab fuzz {seed}")
    brokers = [f"B{number}" for number in range(1, rng.randint(2, 7) + 1)]
    links = [
        (rng.choice(brokers[:index]), name, rng.uniform(0.001, 0.08)) for index, name in enumerate(brokers) if index
    ]
    clients = [
        (f"c{number}", rng.choice(brokers), rng.uniform(0.001, 0.05)) for number in range(1, rng.randint(3, 9) + 1)
    ]
    guests = [_draw_guest(rng, number, brokers) for number in range(1, rng.choice((0, 0, 1, 2)) + 1)]
    slow = rng.random() < WEIGHTS.slow_brokers
    limits = Random(f"trimtab fuzz limits {seed}")
    is_balanced = limits.random() < WEIGHTS.balancing
    coordination = Random(f"trimtab fuzz coordination {seed}")
    is_coordinated = not is_balanced and coordination.random() < WEIGHTS.coordinator
    data_window_count, broker_queue_high_count = limits.choice((1, 3, 1024)), limits.choice((1, 5, 4096))
    has_channels = limits.random() < WEIGHTS.channels
    channel_acts = _draw_channel_acts(limits, [name for name, _, _ in clients]) if has_channels else []
    placing = Random(f"trimtab fuzz placing {seed}")
    may_relocate = not is_coordinated
    relocation = placing.choice(_RELOCATIONS) if may_relocate and placing.random() < WEIGHTS.relocation else ""
    if is_balanced or is_coordinated or relocation:  # agents may send clients to a guest, which therefore stays
        guests = [msgspec.structs.replace(guest, leave_s=None) for guest in guests]
    return FuzzPlan(
        seed=seed,
        subscription_covering=rng.random() < WEIGHTS.subscription_covering,
        advertisement_covering=rng.random() < WEIGHTS.advertisement_covering,
        window_frames_count=rng.choice((1, 2, 5, 1024)),
        acknowledge_after_s=rng.choice((0.0, 0.05, 0.5)),
        bundle_s=rng.choice((0.0, 0.0, 0.025)),
        slow_policy=rng.choice(("block", "block", "block", "block", "drop-oldest", "drop-oldest", "disconnect")),
        client_queue_max_count=rng.choice((1, 3, 10)),
        brokers={name: _draw_capacity(rng, slow) for name in brokers},
        links=links,
        clients=clients,
        guests=guests,
        acts=_with_relocations(
            _draw_acts(rng, [name for name, _, _ in clients] + [client_of(guest) for guest in guests], brokers),
            Random(f"trimtab fuzz relocation {seed}"),
            brokers,
        ),
        faults=_draw_faults(
            rng, brokers, [*links, *clients, *((guest.name, guest.neighbour, guest.latency_s) for guest in guests)]
        ),
        data_window_count=data_window_count,
        broker_queue_high_count=broker_queue_high_count,
        is_balanced=is_balanced,
        channel_acts=channel_acts,
        back_end_latency_s=limits.choice((0.0, 0.02, 0.5)),
        coordinator=coordination.choice(brokers) if is_coordinated else "",
        relocation=relocation,
    )


def _draw_channel_acts(rng: Random, clients: list[str]) -> list[ChannelAct]:
    arguments_count = rng.randint(1, 3)
    acts = [ChannelAct(rng.uniform(1.0, CHURN_S), "happen", rng.randrange(arguments_count)) for _ in range(120)]
    for name in clients:
        time_s = rng.uniform(0.5, 6.0)
        for _ in range(rng.randint(0, 6)):
            what: Literal["want", "unwant"] = "want" if rng.random() < 0.7 else "unwant"
            acts.append(ChannelAct(time_s, what, rng.randrange(arguments_count), name))
            time_s += rng.expovariate(1 / rng.choice((0.02, 0.5, 2.0)))
    for _ in range(rng.choice((0, 0, 1, 2))):
        at_s = rng.uniform(1.0, CHURN_S - 2.0)
        acts.append(ChannelAct(at_s, "away", for_s=rng.uniform(0.05, CHURN_S - at_s)))
    return sorted((act for act in acts if act.at_s < CHURN_S), key=lambda act: act.at_s)


def _draw_guest(rng: Random, number: int, brokers: list[str]) -> Guest:
    join_s = rng.uniform(0.5, 8.0)
    leave_s = join_s + rng.uniform(0.01, 8.0) if rng.random() < WEIGHTS.guest_leaves else None
    return Guest(f"G{number}", rng.choice(brokers), rng.uniform(0.001, 0.08), join_s, leave_s)


def client_of(guest: Guest) -> str:
    """The name of the client of a broker that joins and stays."""
    return f"c@{guest.name}"


def _draw_capacity(rng: Random, slow: bool) -> SimulatedCapacity:
    if not slow:
        return SimulatedCapacity()
    return SimulatedCapacity(cpu_mhz=rng.choice((0.2, 1.0, 50.0)), bandwidth_mbps=rng.choice((0.05, 0.3, 10.0)))


def _draw_acts(rng: Random, clients: list[str], brokers: list[str]) -> list[Act]:
    acts: list[Act] = []
    publishers = [name for name in clients if rng.random() < WEIGHTS.publisher] or clients[:1]
    subscribers = [name for name in clients if rng.random() < WEIGHTS.subscriber] or clients[-1:]
    for name in publishers:
        time_s = rng.uniform(1.0, 4.0)
        for _ in range(rng.randint(1, 3)):
            acts.append(Act(time_s, name, "advertise", filter=_draw_advertisement(rng)))
        pace_s = rng.choice((0.02, 0.2, 1.0))
        count = rng.randint(5, 40)
        for _ in range(count):
            time_s += rng.expovariate(1 / pace_s)
            chance = rng.random()
            if chance < WEIGHTS.advertise_again:
                acts.append(Act(time_s, name, "advertise", filter=_draw_advertisement(rng)))
            elif chance < WEIGHTS.advertise_again + WEIGHTS.unadvertise:
                acts.append(Act(time_s, name, "unadvertise", which=rng.randrange(4)))
            else:
                acts.append(Act(time_s, name, "publish", values=_draw_values(rng)))
    for name in subscribers:
        time_s = rng.uniform(0.5, 6.0)
        acts.append(Act(time_s, name, "subscribe", filter=_draw_subscription(rng)))
        for _ in range(rng.randint(0, 10)):
            time_s += rng.expovariate(1 / rng.choice((0.02, 0.5, 2.0)))
            chance = rng.random()
            if chance < WEIGHTS.move:
                acts.append(Act(time_s, name, "move", broker=rng.choice(brokers)))
            elif chance < WEIGHTS.move + WEIGHTS.unsubscribe:
                acts.append(Act(time_s, name, "unsubscribe", which=rng.randrange(6)))
            else:
                acts.append(Act(time_s, name, "subscribe", filter=_draw_subscription(rng)))
    acts.extend(Act(rng.uniform(4.0, CHURN_S), name, "leave") for name in clients if rng.random() < WEIGHTS.leave)
    return sorted((act for act in acts if act.at_s < CHURN_S), key=lambda act: act.at_s)


def _with_relocations(acts: list[Act], rng: Random, brokers: list[str]) -> list[Act]:
    """In some of the runs publishers move, among their publications and all the time."""
    if rng.random() < 1 - WEIGHTS.publishers_move:
        return acts
    relocations: list[Act] = []
    for name in dict.fromkeys(act.client for act in acts if act.what == "advertise"):
        times_s = [act.at_s for act in acts if act.client == name and act.what != "leave"]
        for _ in range(rng.randint(0, 8)):
            at_s = rng.choice(times_s) + rng.choice((0.0, 0.01, 0.1, 1.0)) * rng.random()
            relocations.append(Act(at_s, name, "move", broker=rng.choice(brokers)))
    return sorted((act for act in (*acts, *relocations) if act.at_s < CHURN_S), key=lambda act: act.at_s)


def _draw_values(rng: Random) -> dict[str, int | str]:
    values: dict[str, int | str] = {"class": rng.choice(_CLASSES), "x": rng.randint(0, 20)}
    if rng.random() < 0.3:
        values["y"] = rng.randint(0, 20)
    return values


def _draw_range(rng: Random, name: str) -> str:
    low = rng.randint(0, 18)
    match rng.randrange(4):
        case 0:
            return f"[{name},>=,{low}]"
        case 1:
            return f"[{name},<=,{low}]"
        case 2:
            return f"[{name},>=,{low}],[{name},<=,{rng.randint(low, 20)}]"
        case _:
            return f"[{name},isPresent,0]"


def _draw_subscription(rng: Random) -> Filter:
    parts = [f"[class,eq,'{rng.choice(_CLASSES)}']"] if rng.random() < 0.7 else []
    parts.append(_draw_range(rng, "x"))
    if rng.random() < 0.2:
        parts.append(_draw_range(rng, "y"))
    return Filter.parse(",".join(parts))


def _draw_advertisement(rng: Random) -> Filter:
    what = f"[class,eq,'{rng.choice(_CLASSES)}']" if rng.random() < 0.6 else "[class,isPresent,'']"
    parts = [what, "[x,isPresent,0]" if rng.random() < 0.5 else _draw_range(rng, "x")]
    if rng.random() < 0.6:
        parts.append("[y,isPresent,0]")
    return Filter.parse(",".join(parts))


def _draw_faults(rng: Random, brokers: list[str], links: list[tuple[str, str, float]]) -> list[Fault]:
    faults: list[Fault] = []
    kinds = [kind for kind, weight in WEIGHTS.fault.items() for _ in range(weight)]
    for _ in range(rng.choice((0, 1, 3, 6))):
        at_s = rng.uniform(0.0, CHURN_S)
        first, second, _ = rng.choice(links)
        between = None if rng.random() < WEIGHTS.fault_everywhere else (first, second)
        probability = rng.choice((0.02, 0.2, 0.6))
        for_s = min(rng.uniform(0.5, 10.0), CHURN_S - at_s)
        match rng.choice(kinds):
            case "drop":
                faults.append(Drop(between=between, at_s=at_s, for_s=for_s, probability=probability))
            case "duplicate":
                faults.append(Duplicate(between=between, at_s=at_s, for_s=for_s, probability=probability))
            case "delay":
                delay_s = rng.choice((0.1, 2.0))
                faults.append(Delay(between=between, at_s=at_s, for_s=for_s, probability=probability, delay_s=delay_s))
            case "reorder":
                faults.append(
                    Reorder(
                        between=between, at_s=at_s, for_s=for_s, probability=probability, spread_s=rng.uniform(0.1, 1)
                    )
                )
            case "partition":
                inside = tuple(name for name in brokers if rng.random() < 0.5)
                faults.append(Partition(brokers=inside, at_s=at_s, for_s=rng.uniform(0.1, 5.0)))
            case "pause":
                faults.append(Pause(broker=rng.choice(brokers), at_s=at_s, for_s=rng.uniform(0.1, 5.0)))
            case _:
                down_s = rng.uniform(0.01, 5.0)
                noticed = (rng.uniform(0, down_s / 2), rng.uniform(0, down_s / 2))
                faults.append(Cut(between=(first, second), at_s=at_s, for_s=down_s, noticed_after_s=noticed))
    return faults
