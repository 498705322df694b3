"""Random runs in which brokers die for good and are replaced, or are slow and get assistants."""

from __future__ import annotations

from random import Random
from typing import Final, Literal

import msgspec

from trimtab.broker.config import Acknowledges
from trimtab.broker.replication.config import Protocol, ReplicationConfig
from trimtab.simulation.faults.deaths import Deaths, Helped
from trimtab.simulation.faults.faults import Crash, Drop, Duplicate, Hang, Reorder
from trimtab.simulation.fuzz.plans import CHURN_S, FuzzPlan, draw_plan_of_any_speed, fast_enough

OVER_S: Final = CHURN_S + 60.0
AGENTS_NEED_MHZ: Final = 20.0
"""Hasty agents have something to say for four times as long as without deaths: a slower broker would never come to
its data."""

WhoMoves = Literal["none", "clients", "agents"]
"""Who moves: nobody, clients by themselves, or clients whom agents ask for it as well."""


def draw_plan_with_deaths(
    seed: int,
    protocol: Protocol = "synchronous",
    acknowledges: Acknowledges | None = None,
    moves: WhoMoves = "none",
) -> FuzzPlan:
    """A random run in which brokers die, whose clients stay where they are or move all the time.

    Nothing but death looks like death: several brokers that are replaced at once, though they live, are more than one.
    """
    plan = draw_plan_of_any_speed(seed)
    rng = Random(f"trimtab fuzz deaths {seed}")
    busy_s = [act.at_s for act in plan.acts if act.what == "publish" and 2.0 < act.at_s < 11.0]
    replication = ReplicationConfig(
        protocol=protocol,
        look_every_s=rng.choice((0.1, 0.3)),
        crash_after_s=rng.choice((0.2, 1.0)),
        hang_after_s=5.0,
        ask_again_s=1.0,
    )
    return msgspec.structs.replace(
        plan,
        slow_policy="block",
        client_queue_max_count=100_000,
        guests=[],
        acts=[act for act in plan.acts if (moves != "none" or act.what != "move") and "@" not in act.client],
        faults=[fault for fault in plan.faults if isinstance(fault, Drop | Duplicate | Reorder)],
        is_balanced=moves == "agents",
        brokers=fast_enough(plan.brokers, AGENTS_NEED_MHZ) if moves == "agents" else plan.brokers,
        channel_acts=[],
        coordinator="",
        relocation="",
        deaths=Deaths(
            replication=replication,
            failures=tuple(_draw_failures(rng, list(plan.brokers), busy_s)),
            start_after_s=rng.choice((0.0, 0.2, 1.0)),
            clients_return_s=rng.choice((0.0, 0.5, 2.0)),
            acknowledges=acknowledges or ("safe" if seed % 2 else "received"),
            over_s=OVER_S,
        ),
    )


def _draw_failures(rng: Random, brokers: list[str], busy_s: list[float]) -> list[Crash | Hang]:
    """The first failure comes while publications are under way, if there are any."""
    failures: list[Crash | Hang] = []
    time_s = rng.choice(busy_s) + rng.uniform(0.0, 0.2) if busy_s else rng.uniform(2.0, 8.0)
    for _ in range(rng.choice((1, 1, 2))):
        broker = rng.choice(brokers)
        if rng.random() < 0.8:
            failures.append(Crash(broker=broker, at_s=time_s, noticed_after_s=rng.choice((0.0, 0.1, 1.0))))
        else:
            failures.append(Hang(broker=broker, at_s=time_s))
        time_s += rng.uniform(9.0, 11.0)
    return failures


def draw_plan_with_assistants(seed: int, *, with_moves: bool = False) -> FuzzPlan:
    """A random run, perhaps with clients that move, in which a broker is slow and gets an assistant; order is kept."""
    plan = draw_plan_with_deaths(seed, acknowledges="received", moves="clients" if with_moves else "none")
    assert plan.deaths is not None
    rng = Random(f"trimtab fuzz assistants {seed}")
    broker = rng.choice(list(plan.brokers))
    neighbours = tuple(
        second if first == broker else first for first, second, _ in plan.links if broker in (first, second)
    )
    at_s = rng.uniform(2.0, 8.0)
    helped = Helped(
        broker=broker,
        at_s=at_s,
        cpu_mhz=rng.choice((0.2, 1.0, 5.0)),
        for_s=rng.uniform(1.0, 10.0),
        assistant_at_s=at_s + rng.uniform(0.0, 2.0),
        neighbours=neighbours,
        protocol=rng.choice(("synchronous", "incremental")),
    )
    deaths = msgspec.structs.replace(plan.deaths, failures=(), helped=(helped,) if neighbours else ())
    return msgspec.structs.replace(plan, deaths=deaths)
