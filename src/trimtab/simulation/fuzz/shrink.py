"""Makes the plan of a failed run smaller while it still fails in the same way.

After A. Zeller and R. Hildebrandt, *Simplifying and isolating failure-inducing input* (2002): remove large parts first,
then smaller ones, and begin again as long as anything could be removed. Whole features go first, because each of them
makes everything behind it easier to read; then deaths and faults, clients, brokers, and single acts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

import msgspec

from trimtab.simulation.checkers.deliveries import Violation
from trimtab.simulation.faults.faults import Cut, FrameFault, Partition
from trimtab.simulation.fuzz.plans import FuzzPlan, client_of
from trimtab.simulation.fuzz.run import RunReport, run_plan
from trimtab.simulation.world.capacity import SimulatedCapacity

SHRINK_RUNS_MAX_COUNT: Final = 300
SHRINK_WITHIN_S: Final = 60.0
"""More runs and more time shrink a plan a little further; these show most failures with a handful of acts."""

_Part = TypeVar("_Part")


class Shrunk(msgspec.Struct, frozen=True):
    """A smaller plan that fails as the one before did."""

    plan: FuzzPlan
    report: RunReport
    runs_count: int
    """Runs that it took."""


def signature(violation: Violation) -> str:
    """What two violations have in common if they are the same failure: the kind, and of a crash the exception.

    >>> signature(Violation("crash", "KeyError: 'B1' (route at 3.1 s)"))
    'crash KeyError'
    """
    return f"crash {violation.text.partition(':')[0]}" if violation.kind == "crash" else violation.kind


def shrink(
    plan: FuzzPlan,
    report: RunReport,
    run: Callable[[FuzzPlan], RunReport] = run_plan,
    runs_max_count: int = SHRINK_RUNS_MAX_COUNT,
    within_s: float = SHRINK_WITHIN_S,
) -> Shrunk:
    """Remove what can be removed from the plan of a failed run without losing its first violation's kind."""
    return _Shrinking(plan, report, run, runs_max_count, time.monotonic() + within_s).shrunk()


class _Shrinking:
    def __init__(
        self,
        plan: FuzzPlan,
        report: RunReport,
        run: Callable[[FuzzPlan], RunReport],
        runs_max_count: int,
        until_s: float,
    ) -> None:
        self._plan = plan
        self._report = report
        self._run = run
        self._runs_left_count = runs_max_count
        self._runs_max_count = runs_max_count
        self._until_s = until_s
        self._wanted = signature(report.violations[0])

    def shrunk(self) -> Shrunk:
        while True:
            before = self._plan
            for candidates in (_without_features, _without_clients, _without_brokers):
                self._try_all(candidates)
            self._remove_parts(_deaths_of, _with_deaths)
            self._remove_parts(lambda plan: plan.faults, lambda plan, parts: _replace(plan, faults=parts))
            self._remove_parts(lambda plan: plan.channel_acts, lambda plan, parts: _replace(plan, channel_acts=parts))
            self._remove_parts(lambda plan: plan.acts, lambda plan, parts: _replace(plan, acts=parts))
            if self._plan == before or self._is_over:
                return Shrunk(self._plan, self._report, self._runs_max_count - self._runs_left_count)

    @property
    def _is_over(self) -> bool:
        return self._runs_left_count <= 0 or time.monotonic() > self._until_s

    def _try(self, plan: FuzzPlan) -> bool:
        """Go on with a smaller plan if it fails in the same way."""
        if self._is_over or plan == self._plan:
            return False
        self._runs_left_count -= 1
        report = self._run(plan)
        if self._wanted not in map(signature, report.violations):
            return False
        self._plan, self._report = plan, report
        return True

    def _try_all(self, candidates: Callable[[FuzzPlan], Iterator[Callable[[FuzzPlan], FuzzPlan]]]) -> None:
        for smaller in list(candidates(self._plan)):
            self._try(smaller(self._plan))

    def _remove_parts(
        self, parts_of: Callable[[FuzzPlan], Sequence[_Part]], with_parts: Callable[[FuzzPlan, list[_Part]], FuzzPlan]
    ) -> None:
        """Remove parts of a list, large ones first."""
        size = len(parts_of(self._plan))
        while size and not self._is_over:
            place = 0
            while place < len(parts := list(parts_of(self._plan))) and not self._is_over:
                if not self._try(with_parts(self._plan, parts[:place] + parts[place + size :])):
                    place += size
            size //= 2


def _replace(plan: FuzzPlan, **changes: object) -> FuzzPlan:
    return msgspec.structs.replace(plan, **changes)


def _deaths_of(plan: FuzzPlan) -> Sequence[object]:
    return () if plan.deaths is None else (*plan.deaths.failures, *plan.deaths.helped)


def _with_deaths(plan: FuzzPlan, parts: list[object]) -> FuzzPlan:
    assert plan.deaths is not None
    deaths = msgspec.structs.replace(
        plan.deaths,
        failures=tuple(each for each in plan.deaths.failures if each in parts),
        helped=tuple(each for each in plan.deaths.helped if each in parts),
    )
    return _replace(plan, deaths=deaths)


def _without_features(plan: FuzzPlan) -> Iterator[Callable[[FuzzPlan], FuzzPlan]]:
    """The same plan with one thing less, or with a usual value."""
    simple: dict[str, object] = {
        "channel_acts": [],
        "coordinator": "",
        "is_balanced": False,
        "relocation": "",
        "faults": [],
        "bundle_s": 0.0,
        "acknowledge_after_s": 0.0,
        "subscription_covering": False,
        "advertisement_covering": False,
        "slow_policy": "block",
        "window_frames_count": 1024,
        "data_window_count": 1024,
        "broker_queue_high_count": 4096,
        "brokers": {name: SimulatedCapacity() for name in plan.brokers},
    }
    for name, value in simple.items():
        if name != "brokers":
            yield lambda plan, name=name, value=value: _replace(plan, **{name: value})  # type: ignore[misc]
        else:
            yield lambda plan: _replace(plan, brokers={name: SimulatedCapacity() for name in plan.brokers})
    for guest in plan.guests:
        yield lambda plan, guest=guest: _without_broker(plan, guest.name, guest.neighbour)  # type: ignore[misc]


def _without_clients(plan: FuzzPlan) -> Iterator[Callable[[FuzzPlan], FuzzPlan]]:
    for name, _, _ in plan.clients:
        yield lambda plan, name=name: _without_client(plan, name)  # type: ignore[misc]


def _without_client(plan: FuzzPlan, name: str) -> FuzzPlan:
    return _replace(
        plan,
        clients=[client for client in plan.clients if client[0] != name],
        acts=[act for act in plan.acts if act.client != name],
        channel_acts=[act for act in plan.channel_acts if act.client != name],
        faults=_faults_without(plan, name),
    )


def _without_brokers(plan: FuzzPlan) -> Iterator[Callable[[FuzzPlan], FuzzPlan]]:
    """Without a broker that is a leaf; its clients are at its neighbour instead."""
    for name in reversed(plan.brokers):
        yield lambda plan, name=name: _without_leaf(plan, name)  # type: ignore[misc]


def _without_leaf(plan: FuzzPlan, name: str) -> FuzzPlan:
    neighbours = [second if first == name else first for first, second, _ in plan.links if name in (first, second)]
    neighbours += [guest.name for guest in plan.guests if guest.neighbour == name]
    is_leaf = len(neighbours) == 1 and neighbours[0] in plan.brokers
    return _without_broker(plan, name, neighbours[0]) if is_leaf else plan


def _without_broker(plan: FuzzPlan, name: str, neighbour: str) -> FuzzPlan:
    guest_clients = [client_of(guest) for guest in plan.guests if guest.name == name]
    acts = [
        _replace_act_broker(act, neighbour) if act.broker == name else act
        for act in plan.acts
        if act.client not in guest_clients
    ]
    deaths = plan.deaths
    if deaths is not None:
        helped = [each for each in deaths.helped if each.broker != name]
        deaths = msgspec.structs.replace(
            deaths,
            failures=tuple(each for each in deaths.failures if each.broker != name),
            helped=tuple(
                msgspec.structs.replace(each, neighbours=tuple(other for other in each.neighbours if other != name))
                for each in helped
            ),
        )
    return _replace(
        plan,
        brokers={each: capacity for each, capacity in plan.brokers.items() if each != name},
        links=[link for link in plan.links if name not in link[:2]],
        guests=[guest for guest in plan.guests if guest.name != name],
        clients=[(client, neighbour if at == name else at, latency_s) for client, at, latency_s in plan.clients],
        acts=acts,
        channel_acts=[act for act in plan.channel_acts if act.client not in guest_clients],
        faults=_faults_without(plan, name),
        deaths=deaths,
        coordinator=neighbour if plan.coordinator == name else plan.coordinator,
    )


def _replace_act_broker(act: _Part, broker: str) -> _Part:
    return msgspec.structs.replace(act, broker=broker)  # type: ignore[type-var]


def _faults_without(plan: FuzzPlan, name: str) -> list[object]:
    """The faults that do not concern a broker or client."""
    found: list[object] = []
    for fault in plan.faults:
        match fault:
            case FrameFault(between=between) if between is not None and name in between:
                continue
            case Cut(between=between) if name in between:
                continue
            case Partition(brokers=brokers):
                found.append(msgspec.structs.replace(fault, brokers=tuple(each for each in brokers if each != name)))
            case _ if getattr(fault, "broker", "") == name:
                continue
            case _:
                found.append(fault)
    return found
