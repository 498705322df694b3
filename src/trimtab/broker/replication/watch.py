"""A broker's watch over its neighbours: their signs of life, their own neighbours, and who asks for a replica when.

Each broker tells its neighbours who its other neighbours are, whenever that changes, so that they know whom a replica
must be linked to: a directory without a server. The neighbours of a failed broker cannot talk to each other, for it
stood between them; they ask for a replica in the order of their names, each a while after the one before it, until
one is there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from trimtab.broker.replication.config import ReplicationConfig
from trimtab.broker.replication.detection import Inspection, Signs, Verdict, Watched
from trimtab.protocol.effects import Assist, Replace
from trimtab.protocol.messages import Neighbours

EXPECTED_TURNS_COUNT: Final = 2
"""A neighbour that never came is asked for after so many turns of those who may know more: it may be a leaf."""


class _Neighbour:
    """What is known of one neighbour."""

    __slots__ = ("asks_next_s", "away_until_s", "epoch", "neighbours", "session", "verdict", "watched")

    def __init__(self, session: str, epoch: int, watched: Watched) -> None:
        self.session = session
        self.epoch = epoch
        self.watched = watched
        self.neighbours: dict[str, str] | None = None
        """Its neighbours and their addresses, once it has told; a replica needs them all."""
        self.verdict: Verdict = "alive"
        self.asks_next_s: float | None = None
        self.away_until_s = 0.0
        """It has said that it returns, by then at the latest."""


class NeighbourWatch:
    """The neighbours of the broker of a name, found at an address."""

    def __init__(self, name: str, address: str, config: ReplicationConfig) -> None:
        self._name = name
        self._address = address
        self._config = config
        self._neighbours: dict[str, _Neighbour] = {}
        self._look_at_s: float | None = None
        self._is_retired = False

    def expect(self, name: str, now_s: float) -> None:
        """A neighbour is to come, of which a replica was told; it may have died together with the one before.

        Its other neighbours, if it has any, know more of it and ask first.
        """
        known = self._neighbours[name] = _Neighbour("", 0, Watched(self._config, now_s))
        known.neighbours = {}
        known.away_until_s = now_s + EXPECTED_TURNS_COUNT * self._config.ask_again_s
        self._look_at_s = now_s + self._config.look_every_s

    def came(self, name: str, session: str, now_s: float, epoch: int = 1) -> None:
        """A neighbour is there, or a later incarnation of it."""
        known = self._neighbours.get(name)
        self._neighbours[name] = _Neighbour(session, epoch, Watched(self._config, now_s))
        if known is not None and known.session:
            self._neighbours[name].neighbours = known.neighbours
        if self._look_at_s is None and not self._is_retired:
            self._look_at_s = now_s + self._config.look_every_s

    def away(self, name: str, now_s: float) -> None:
        """A neighbour was asked to end, and returns."""
        if name in self._neighbours:
            self._neighbours[name].away_until_s = now_s + self._config.returns_within_s

    def gone(self, name: str) -> None:
        """A link was taken away."""
        self._neighbours.pop(name, None)
        if not self._neighbours:
            self._look_at_s = None

    def told(self, name: str, message: Neighbours) -> None:
        """A neighbour tells who its neighbours are."""
        known = self._neighbours.get(name)
        if known is not None:
            addresses = [*message.addresses, *[""] * len(message.names)]
            known.neighbours = dict(zip(message.names, addresses, strict=False))

    def neighbours_of(self, name: str) -> dict[str, str]:
        """The neighbours of a neighbour and their addresses, with this broker."""
        known = self._neighbours.get(name)
        return {} if known is None else {**(known.neighbours or {}), self._name: self._address}

    def verdicts(self) -> dict[str, Verdict]:
        """What the last look at each neighbour showed."""
        return {name: known.verdict for name, known in self._neighbours.items()}

    def retire(self) -> None:
        """Look no more, for the end of an experiment."""
        self._is_retired = True
        self._look_at_s = None

    def wake_at_s(self) -> float | None:
        """When to look next."""
        return self._look_at_s

    def look(
        self, signs_of: Callable[[str], Signs], ask: Callable[[str], None], now_s: float
    ) -> list[Replace | Assist]:
        """Look at all neighbours if it is time; returns what is to be replaced or assisted."""
        if self._look_at_s is None or now_s < self._look_at_s:
            return []
        self._look_at_s = now_s + self._config.look_every_s
        wanted: list[Replace | Assist] = []
        assists = self._config.assisting != "never"
        for name, known in self._neighbours.items():
            if now_s < known.away_until_s:
                continue
            look: Inspection = known.watched.look(signs_of(name), now_s)
            known.verdict = look.verdict
            if look.asks:
                ask(name)
            if look.verdict not in ("crash", "hang") and not (assists and look.verdict == "congestion"):
                known.asks_next_s = None
                continue
            if known.neighbours is None:
                continue  # others know more
            everyone = self.neighbours_of(name)
            if known.asks_next_s is None:
                known.asks_next_s = now_s + sorted(everyone).index(self._name) * self._config.ask_again_s
            if now_s >= known.asks_next_s:
                known.asks_next_s = now_s + len(everyone) * self._config.ask_again_s
                found = tuple(sorted(everyone.items()))
                wanted.append(self._request(name, known, look.verdict, found))
        return wanted

    def _request(
        self, name: str, known: _Neighbour, verdict: Verdict, found: tuple[tuple[str, str], ...]
    ) -> Replace | Assist:
        config = self._config
        if verdict == "congestion":
            return Assist(name, known.session, config.protocol, config.assisting == "reordering", found, known.epoch)
        return Replace(name, known.session, verdict, config.protocol, found, known.epoch)
