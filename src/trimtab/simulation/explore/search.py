"""The search through all states of a case: those first that deviate least from the usual order.

Of what may happen next, one is the usual (`World.actions` names it first); to do something else instead is a deviation,
to die is not. States are looked at in the order of the least number of deviations that lead to them, and of those with
the same number the latest first. So the usual order with every moment of death comes first, most mistakes show after few
deviations (this is delay-bounded search: Emmi, Qadeer, Rakamaric, Delay-bounded scheduling, POPL 2011), and what leads
to a violation is short to read. What is left when the bound is reached is told.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from time import perf_counter
from typing import Final

import msgspec

from trimtab.broker.config import Acknowledges
from trimtab.matching.engines import ENGINE_VARIABLE
from trimtab.simulation.bugs import Bug
from trimtab.simulation.checkers import Violation
from trimtab.simulation.explore.cases import Case
from trimtab.simulation.explore.state import Action, State, World

VIOLATIONS_MAX_COUNT: Final = 10


class Found(msgspec.Struct, frozen=True):
    violation: Violation
    actions: tuple[Action, ...]


class Exploration(msgspec.Struct, frozen=True):
    case: str
    level: Acknowledges
    states_count: int
    left_count: int
    ends_count: int
    violated_count: int
    found: list[Found]
    worked_out_count: int


def explore(case: Case, level: Acknowledges, states_max_count: int, bug: Bug | None = None) -> Exploration:
    with _python_engine(), nullcontext() if bug is None else bug.active():
        return _Search(World(case, level), states_max_count).run()


@contextmanager
def _python_engine() -> Iterator[None]:
    before = os.environ.get(ENGINE_VARIABLE)
    os.environ[ENGINE_VARIABLE] = "python"
    try:
        yield
    finally:
        if before is None:
            del os.environ[ENGINE_VARIABLE]
        else:
            os.environ[ENGINE_VARIABLE] = before


class _Search:
    def __init__(self, world: World, states_max_count: int) -> None:
        self.world = world
        self.max = states_max_count
        self.parents: dict[State, tuple[State | None, Action | None]] = {}
        self.found: dict[tuple[str, str], Found] = {}
        self.violated_count = 0

    def run(self) -> Exploration:
        world = self.world
        first = world.begin()
        self.parents[first] = (None, None)
        waiting: list[list[State]] = [[first]]
        cost_of = {first: 0}
        done: set[State] = set()
        ends = 0
        while waiting and len(cost_of) < self.max:
            cost = next((i for i, each in enumerate(waiting) if each), None)
            if cost is None:
                break
            state = waiting[cost].pop()
            if state in done:
                continue
            done.add(state)
            actions = world.actions(state)
            if world.is_at_rest(actions):
                ends += 1
                self.note(state, world.check_at_rest(state))
            usual = actions[0] if actions and actions[0][0] != "kill" else None
            for action in reversed(actions):
                after = world.step(state, action)
                violations = world.violations
                after_cost = cost + (action != usual and action[0] != "kill")
                known = cost_of.get(after)
                if known is None or after_cost < known:
                    cost_of[after] = after_cost
                    self.parents[after] = (state, action)
                    if violations:
                        done.add(after)
                        self.note(after, violations)
                        continue
                    if after not in done:
                        while len(waiting) <= after_cost:
                            waiting.append([])
                        waiting[after_cost].append(after)
        left = len(cost_of) - len(done)
        return Exploration(world.case.name, world.level, len(cost_of), left, ends, self.violated_count, list(self.found.values()), world.nodes.worked_out_count)

    def note(self, state, violations):
        if violations: self.violated_count += 1
        for v in violations:
            key=(v.kind, v.text)
            if key not in self.found and len(self.found) < VIOLATIONS_MAX_COUNT:
                self.found[key] = Found(v, self.path(state))

    def path(self, state):
        out=[]
        while True:
            parent, action = self.parents[state]
            if parent is None: return tuple(reversed(out))
            out.append(action); state=parent
