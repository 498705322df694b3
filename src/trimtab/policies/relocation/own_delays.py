"""A broker's own delays: its queues and matching as means over the last while, and how far its neighbours are.

Publications that are traced come at random moments, so that what is read when they come is what publications meet.

Source: A. Cheung and H.-A. Jacobsen, publisher relocation algorithms (CSRG-597, 2009), section 4.1: queueing and
matching delays are measured outside of GRAPE. Output delays are told for each neighbour and for the client binding
(item 7 of what an answer holds); they are read from the numbers of publications in each queue
(`trimtab.load.queue_delay`).

Deviations: the paper leaves the links out. On a lightly loaded network they are most of the delay, so each broker asks
the neighbours that it sends traced publications to now and then for an echo, and half of the way there and back is the
link's delay, in both directions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from trimtab.load.indices import smoothed
from trimtab.load.queue_delay import QueueDelay
from trimtab.policies.api import AgentHost, QueueReading
from trimtab.policies.relocation.messages import EchoAnswer

_EVERY_S: Final = 1.0
"""Delays are read at most so often: reading asks all queues."""

_NEWEST_WEIGHT: Final = 0.1
"""The least weight of a reading of a queue: about the last ten count."""

_ECHOES_COUNT: Final = 3
"""So many echoes are asked for, and the shortest counts: the others met something on the way."""

_ECHO_AGAIN_S: Final = 5.0
"""Between two of them."""

_ECHO_EVERY_S: Final = 600.0
"""After so long they are asked for anew, while something is traced: links change seldom."""


class OwnDelays:
    """Delays of one broker, read now and then."""

    def __init__(self, host: AgentHost) -> None:
        self.input_s = 0.0
        self.matching_s = 0.0
        self.outputs_s: dict[str, float] = {}
        """How long publications wait in the output queue for each neighbour."""
        self.clients_output_s = 0.0
        """The same for the clients of this broker together (the client binding)."""
        self.links_s: dict[str, float] = {}
        """One way to each neighbour that has answered an echo."""
        self._host = host
        self._next_s = 0.0
        self._readings_count = 0
        self._next_echo_s: dict[str, float] = {}
        self._echoes_s: dict[str, list[float]] = {}
        self._queues: dict[str, QueueDelay] = {}
        self._clients_delay = QueueDelay()
        self._client_queues: dict[str, QueueReading] = {}
        self._clients_entered_count = 0
        """Publications that ever entered an output queue for a client, those that have left included."""

    def sample(self, now_s: float) -> bool:
        """Read the delays, unless that was done a moment ago; the matching delay is a mean already."""
        if now_s < self._next_s:
            return False
        load = self._host.load(now_s)
        self._readings_count += 1
        alpha = max(1 / self._readings_count, _NEWEST_WEIGHT)
        self._next_s = now_s + _EVERY_S
        self.input_s = smoothed(load.input_queue_delay_s, self.input_s, alpha)
        self.matching_s = load.matching_delay_s
        self._read_outputs(now_s)
        return True

    def _read_outputs(self, now_s: float) -> None:
        host = self._host
        neighbours = host.neighbours()
        self.outputs_s = {name: self._wait_s(name, host.queue_of(name), now_s) for name in neighbours}
        self._queues = {name: delay for name, delay in self._queues.items() if name in neighbours}
        before, self._client_queues = self._client_queues, {}
        queued_count = 0
        for client in [*host.clients(), *host.publishers()]:
            queue = self._client_queues[client] = host.queue_of(client)
            known = before.get(client, QueueReading())
            self._clients_entered_count += max(queue.entered_count - known.entered_count, 0)
            queued_count += queue.queued_count
        self.clients_output_s = self._clients_delay.read(
            now_s, entered_count=self._clients_entered_count, queued_count=queued_count
        )

    def _wait_s(self, neighbour: str, queue: QueueReading, now_s: float) -> float:
        delay = self._queues.setdefault(neighbour, QueueDelay())
        return delay.read(now_s, entered_count=queue.entered_count, queued_count=queue.queued_count)

    def to_be_asked(self, neighbours: Iterable[str], now_s: float) -> str | None:
        """A neighbour whose echo is wanted; one at a time, lest echoes wait for each other."""
        due = next((name for name in neighbours if now_s >= self._next_echo_s.get(name, 0.0)), None)
        if due is not None:
            self._next_echo_s[due] = now_s + _ECHO_AGAIN_S
        return due

    def echoed(self, answer: EchoAnswer, now_s: float) -> None:
        """A neighbour has answered: half of the time that was not spent matching is the way to it."""
        there_and_back_s = now_s - answer.sent_s
        way_s = max(there_and_back_s / 2 - self.matching_s - answer.matching_delay_s, 0.0)
        echoes_s = self._echoes_s.setdefault(answer.sender, [])
        echoes_s.append(way_s)
        self.links_s[answer.sender] = min(echoes_s)
        if len(echoes_s) >= _ECHOES_COUNT:
            echoes_s.clear()
            self._next_echo_s[answer.sender] = now_s + _ECHO_EVERY_S
