"""Peers that have gone silent: each is asked for an answer, and given up if none comes.

A host that loses its power, a path that swallows everything and a process that is stopped leave connections that stand.
TCP notices the first two late, and the third never. So whoever has heard nothing for a while asks (an `Ack` that
`asks`), and whoever is asked answers with whatever it has to say, or with an `Ack`. A connection that carries something
costs nothing more, and one that rests a question and an answer for each such while.

A peer that is only slow is not given up. Whatever comes from it shows that it lives. What we have sent before the
question has to arrive first: as long as it does, bit by bit, the peer has time to answer. A peer of whom we read
nothing at present, because it has sent too much, is asked all the same, for it wants to know whether we live, but it
cannot answer. And the time during which this process did not run, or was stopped, does not count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

import msgspec

if TYPE_CHECKING:
    from trimtab.network.links.connection import Connection

LOOKS_PER_WAIT_COUNT: Final = 10
"""Connections are looked at so many times within the shorter one of the two times; each look takes a few milliseconds
where there are ten thousand."""

Finding: TypeAlias = Literal["alive", "ask", "dead"]


class HeartbeatConfig(msgspec.Struct, frozen=True):
    """After which silence a peer is asked, and when it is given up.

    >>> HeartbeatConfig(silent_after_s=0)
    Traceback (most recent call last):
    ...
    ValueError: a silent peer is asked and given up after positive times
    """

    silent_after_s: float = 5.0
    """A peer of whom nothing was heard for so long is asked: rare enough to cost nothing where thousands rest."""

    answer_within_s: float = 5.0
    """One that was asked and says nothing for so long is given up; above the longest pause of a busy process."""

    def __post_init__(self) -> None:
        if not (0 < self.silent_after_s < float("inf") and 0 < self.answer_within_s < float("inf")):
            raise ValueError("a silent peer is asked and given up after positive times")

    @property
    def look_every_s(self) -> float:
        """How often to look."""
        return min(self.silent_after_s, self.answer_within_s) / LOOKS_PER_WAIT_COUNT


USUAL_HEARTBEAT: Final = HeartbeatConfig()
"""The usual times."""


class Way(Protocol):
    """What a connection shows of the way to its peer."""

    @property
    def is_paused(self) -> bool:
        """Whether nothing is read from the peer at present."""
        ...

    @property
    def written_bytes(self) -> int:
        """What was ever written."""
        ...

    def arrived_bytes(self) -> int:
        """What of that the peer's host has received, as far as is known."""
        ...


class Silence:
    """The silence of one peer."""

    __slots__ = ("_arrived_bytes", "_before_bytes", "_is_asked", "_is_over", "_silent_s", "is_heard")

    def __init__(self) -> None:
        self.is_heard = True
        """Whether anything has come since the last look."""
        self._silent_s = 0.0
        """How long nothing has come; since the question, or since it got on, once the peer is asked."""
        self._is_asked = False
        self._is_over = False
        """Whether the last look found that the time was over."""
        self._before_bytes = 0
        """What was written before the question."""
        self._arrived_bytes = 0

    def look(self, way: Way, elapsed_s: float, config: HeartbeatConfig) -> Finding:
        """Look at a peer, so long after the last time."""
        if self.is_heard:
            self.is_heard = self._is_asked = self._is_over = False
            self._silent_s = 0.0
            return "alive"
        self._silent_s += elapsed_s
        if not self._is_asked:
            return self._ask(way) if self._silent_s >= config.silent_after_s else "alive"
        if way.is_paused:
            return self._ask(way) if self._silent_s >= config.silent_after_s else "alive"
        if self._arrived_bytes < self._before_bytes and (arrived_bytes := way.arrived_bytes()) > self._arrived_bytes:
            self._arrived_bytes = arrived_bytes
            self._silent_s = 0.0
        was_over, self._is_over = self._is_over, self._silent_s >= config.answer_within_s
        # What came while this process was busy is read between two looks.
        return "dead" if was_over and self._is_over else "alive"

    def _ask(self, way: Way) -> Finding:
        self._is_asked, self._is_over = True, False
        self._silent_s = 0.0
        self._before_bytes, self._arrived_bytes = way.written_bytes, way.arrived_bytes()
        return "ask"


class Heartbeat:
    """Looks at the connections of a process from time to time."""

    def __init__(
        self,
        config: HeartbeatConfig,
        connections: Callable[[], Iterable[Connection]],
        ask: Callable[[Connection], None],
        give_up: Callable[[Connection], None],
    ) -> None:
        """`connections` are those whose peers have greeted; a copy, for `give_up` may change them."""
        self._config = config
        self._connections = connections
        self._ask = ask
        self._give_up = give_up
        self._timer: asyncio.TimerHandle | None = None
        self._looked_s = 0.0

    def begin(self) -> None:
        """Look from now on."""
        loop = asyncio.get_running_loop()
        self._looked_s = loop.time()
        self._timer = loop.call_later(self._config.look_every_s, self._look, loop)

    def end(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        time_s, config = loop.time(), self._config
        elapsed_s = min(time_s - self._looked_s, 2 * config.look_every_s)
        self._looked_s = time_s
        self._timer = loop.call_later(config.look_every_s, self._look, loop)
        for connection in self._connections():
            finding = connection.silence.look(connection, elapsed_s, config)
            if finding == "ask":
                self._ask(connection)
            elif finding == "dead":
                self._give_up(connection)
