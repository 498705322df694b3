"""Which of the things that may happen next must be tried, so that no end of the network is overlooked.

Source: P. Godefroid, Partial-order methods for the verification of concurrent systems, 1996 (persistent sets).

Two events at different nodes can change places: each changes its own node, takes what is under way to it and adds to
what is under way from it. So if nothing that happens elsewhere can make another event possible at a node X, it is
enough to try what may happen at X now; all else can happen afterwards. That is so when

- each neighbour of X either has something under way to X already (its delivery is one of those that are tried, and what
  is sent behind it can be delivered afterwards), or cannot come to say anything without X: no event is possible at any
  node from which a chain of connections leads to it without passing X; and
- nothing is under way from X: what X says would be delivered together with that, and what happens when it is delivered
  without it would be overlooked; and
- neither X nor a neighbour of X can die any more, because a death takes what is under way to and from X.

A client that has yet to move may connect to every broker, and counts as a neighbour of all of them.

Deaths and time passing are never left out: time passes only when nothing else is possible anywhere. The checker is
something that all nodes touch, too. What it is told at different nodes can change places as long as subscriptions come
into force before and end after everything else; in cases where applications subscribe, unsubscribe or leave with
subscriptions nothing is left out, nor in those where clients go away, which changes two nodes at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.simulation.explore.state import ABSENT, GONE, Choice, State, World


class Reduction:
    """What must be tried in the states of one case."""

    def __init__(self, world: World) -> None:
        self._world = world
        case = world.case
        subscribers = {act.client for act in case.setup if act.what == "subscribe"}
        self._is_sound = not any(
            act.what in ("subscribe", "unsubscribe", "away", "back")
            or (act.what == "leave" and act.client in subscribers)
            for script in case.scripts
            for act in script
        )
        self._ends = [(world.place[first], world.place[second]) for first, second in world.pairs]

    def needed(self, state: State, actions: Sequence[Choice]) -> Sequence[Choice]:
        """Those of the actions that must be tried."""
        if not self._is_sound or len(actions) < 2:
            return actions
        at: dict[int, list[Choice]] = {}
        dying: list[int] = []
        for action in actions:
            if action[0] == "kill":
                dying.append(action[1])
            elif action[0] != "pass":
                at.setdefault(self._node_of(action), []).append(action)
        neighbours = self._neighbours(state)
        untouchable = {each for place in dying for each in (place, *neighbours[place])}
        for place in sorted(at, key=lambda each: len(at[each])):
            if place in untouchable or any(what in ("act", "start") for what, _, _ in at[place]):
                continue
            if any(state.queues[self._queue(place, each)] for each in neighbours[place]):
                continue
            if self._is_persistent(state, place, at, neighbours):
                return at[place]
        return actions

    def _node_of(self, action: Choice) -> int:
        """The node that an action changes."""
        what, number, _ = action
        match what:
            case "deliver":
                return self._ends[number // 2][1 - number % 2]
            case "reconnect":
                return self._ends[number][0]
            case "act":
                return self._world.place[self._world.case.scripts[number][0].client]
            case _:
                return number

    def _neighbours(self, state: State) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in state.nodes]
        for number, status in enumerate(state.connections):
            first, second = self._ends[number]
            if status != ABSENT or self._may_connect(state, first):
                found[first].append(second)
                found[second].append(first)
        return found

    def _may_connect(self, state: State, place: int) -> bool:
        """Whether a client may open another connection yet."""
        name = self._world.names[place]
        return state.nodes[place] != GONE and any(
            act.client == name and act.what == "move"
            for script, done_count in zip(self._world.case.scripts, state.scripts, strict=True)
            for act in script[done_count:]
        )

    def _is_persistent(
        self, state: State, place: int, at: dict[int, list[Choice]], neighbours: list[list[int]]
    ) -> bool:
        """Whether nothing that happens elsewhere makes another event possible at a node."""
        speaking = {number for what, number, _ in at[place] if what == "deliver"}
        may_speak = [each for each in at if each != place]
        met = set(may_speak)
        while may_speak:
            for each in neighbours[may_speak.pop()]:
                if each != place and each not in met:
                    met.add(each)
                    may_speak.append(each)
        return all(each not in met or self._queue(each, place) in speaking for each in neighbours[place])

    def _queue(self, sender: int, receiver: int) -> int:
        ends = (sender, receiver)
        return 2 * self._ends.index(ends) if ends in self._ends else 2 * self._ends.index((receiver, sender)) + 1
