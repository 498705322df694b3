"""The search through all states of a case: those first that deviate least from the usual order.

Of what may happen next, one is the usual (`World.actions` names it first); to do something else instead is a deviation,
to die is not. States are looked at in the order of the least number of deviations that lead to them, and of those with
the same number the latest first. So the usual order with every moment of death comes first, most mistakes show after
few deviations (this is delay-bounded search: Emmi, Qadeer, Rakamaric, Delay-bounded scheduling, POPL 2011), and what
leads to a violation is short to read. What is left when the bound is reached is told.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from time import perf_counter
from typing import Final

import msgspec

from trimtab.broker.config import Acknowledges
from trimtab.matching.engines import ENGINE_VARIABLE
from trimtab.simulation.checkers.deliveries import Violation
from trimtab.simulation.explore.cases import Case
from trimtab.simulation.explore.reduction import Reduction
from trimtab.simulation.explore.report import transcript
from trimtab.simulation.explore.state import Choice, State, World
from trimtab.simulation.fuzz.bugs.core_bugs import Bug

FOUND_MAX_COUNT: Final = 5
"""So many ways to a violation are told; the others are counted."""

_PROGRESS_EVERY_COUNT: Final = 5_000

OnProgress = Callable[[int, int], None]
"""Told how many states were seen, and how many of them are left."""


class Found(msgspec.Struct, frozen=True):
    """What is wrong at the end of a way through the states, and that way for people."""

    violations: tuple[Violation, ...]
    transcript: tuple[str, ...]


class Exploration(msgspec.Struct, frozen=True):
    """What came of exploring a case at a level."""

    case: str
    level: Acknowledges
    states_count: int
    left_count: int
    """States that were seen and not gone on from; 0 means that the case is complete."""
    ends_count: int
    """States at rest that were checked."""
    violated_count: int
    """States with something wrong."""
    found: tuple[Found, ...]
    """The first way to each kind of them."""
    took_s: float


def explore(
    case: Case,
    level: Acknowledges,
    states_max_count: int,
    bug: Bug | None = None,
    on_progress: OnProgress | None = None,
    *,
    is_reduced: bool = True,
) -> Exploration:
    """Explore a case until it is complete or so many states were seen; unreduced to show that reducing is sound."""
    with _python_engine(), nullcontext() if bug is None else bug.active():
        return _Search(World(case, level), states_max_count, on_progress, is_reduced=is_reduced).run()


@contextmanager
def _python_engine() -> Iterator[None]:
    """The compiled index of filters cannot be copied."""
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
    def __init__(
        self, world: World, states_max_count: int, on_progress: OnProgress | None, *, is_reduced: bool
    ) -> None:
        self._world = world
        self._max_count = states_max_count
        self._on_progress = on_progress
        self._reduction = Reduction(world) if is_reduced else None
        self._deviations: dict[State, int] = {}
        """For each state that was seen the least number of deviations that lead to it."""
        self._came_by: dict[State, tuple[State, Choice]] = {}
        self._done: set[State] = set()
        self._waiting: list[list[State]] = []
        """By the number of deviations."""
        self._found: list[tuple[tuple[Violation, ...], tuple[Choice, ...]]] = []
        self._told: set[Violation] = set()
        self._violated_count = 0
        self._ends_count = 0

    def run(self) -> Exploration:
        """Search until nothing is left, or too much was seen."""
        began_s = perf_counter()
        first = self._world.begin()
        self._deviations[first] = 0
        self._wait(first, 0)
        while len(self._deviations) < self._max_count and (state := self._next()) is not None:
            self._go_on(state)
            if self._on_progress is not None and len(self._done) % _PROGRESS_EVERY_COUNT == 0:
                self._on_progress(len(self._deviations), self._left_count)
        return Exploration(
            self._world.case.name,
            self._world.level,
            len(self._deviations),
            self._left_count,
            self._ends_count,
            self._violated_count,
            tuple(Found(violations, tuple(transcript(self._world, actions))) for violations, actions in self._found),
            perf_counter() - began_s,
        )

    @property
    def _left_count(self) -> int:
        return len(self._deviations) - len(self._done)

    def _wait(self, state: State, deviations_count: int) -> None:
        while len(self._waiting) <= deviations_count:
            self._waiting.append([])
        self._waiting[deviations_count].append(state)

    def _next(self) -> State | None:
        for waiting in self._waiting:
            while waiting:
                state = waiting.pop()
                if state not in self._done:
                    return state
        return None

    def _go_on(self, state: State) -> None:
        """See what may happen next."""
        world = self._world
        self._done.add(state)
        actions: Sequence[Choice] = world.actions(state)
        if world.is_at_rest(actions):
            self._ends_count += 1
            self._note(state, world.check_at_rest(state))
        if self._reduction is not None:
            actions = self._reduction.needed(state, actions)
        for action in reversed(actions):
            after = world.step(state, action)
            is_usual = action is actions[0] or action[0] == "kill"
            deviations_count = self._deviations[state] + (not is_usual)
            if after in self._done or deviations_count >= self._deviations.get(after, deviations_count + 1):
                continue
            self._deviations[after] = deviations_count
            self._came_by[after] = (state, action)
            if world.violations:
                self._done.add(after)
                self._note(after, world.violations)
            else:
                self._wait(after, deviations_count)

    def _note(self, state: State, violations: Sequence[Violation]) -> None:
        self._violated_count += bool(violations)
        unknown = tuple(each for each in violations if each not in self._told)
        if unknown and len(self._found) < FOUND_MAX_COUNT:
            self._told.update(unknown)
            self._found.append((unknown, self._way_to(state)))

    def _way_to(self, state: State) -> tuple[Choice, ...]:
        actions: list[Choice] = []
        while state in self._came_by:
            state, action = self._came_by[state]
            actions.append(action)
        return tuple(reversed(actions))
