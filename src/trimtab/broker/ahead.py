"""Handovers that do not wait for their turn: whoever leaves an overloaded broker is given at once what waits for it.

A handover ends the stream of the old broker and therefore stands behind all that came before it. Before a long backlog
that is a trap: clients leave because the broker cannot keep up, and could leave only once it has worked off what it
cannot keep up with. So the broker looks through its backlog for the client alone, one filter in the place of all, puts
what the client wants into its queue, in order, and hands it over then and there.

The client gets from this broker what it would have got in turn: of all publications that neighbours have passed on and
that stand before the handover those that it wants, in their order, and then the end. When the turn of these
publications comes they do not go to it again, for its subscriptions here have ended; those that go to the new broker as
well are dropped by the client as after every handover. Publications of this broker's own clients that wait before the
handover have not been accepted: in their turn they go to the new broker, where the client waits for them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from trimtab.broker.input_queues import InputQueues
from trimtab.language import Filter
from trimtab.protocol.effects import Effect
from trimtab.protocol.messages import AnyMessage, Handover, Publish, one_hop_further

if TYPE_CHECKING:
    from trimtab.broker.core import Broker


class AheadOfTurn:
    """Handovers of subscribers that leave this broker while it has a backlog."""

    def __init__(self, broker: Broker, input: InputQueues) -> None:
        self._broker = broker
        self._input = input
        self._waiting: deque[tuple[str, Handover]] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def note(self, source: str, messages: Sequence[AnyMessage]) -> None:
        """Messages have entered the input: a handover among them may be behind so much that it is served now."""
        min_count = self._broker.config.ahead_min_count
        if not min_count or len(self._input.data) <= min_count:
            return
        for message in messages:
            if type(message) is Handover and message.old_broker == self._broker.name and not message.new_broker:
                self._waiting.append((source, message))

    @property
    def filters_count(self) -> int:
        """How often the next one asks a filter: each of the client's for each publication before it."""
        _, handover = self._waiting[0]
        return len(handover.old_ids) * len(self._input.data)

    def serve(self, now_s: float) -> list[Effect] | None:
        """Hand the next one over, or leave it to its turn; each is looked at once."""
        broker, data = self._broker, self._input.data
        source, handover = self._waiting.popleft()
        peer, client = broker.peers.get(source), broker.moves.leaving(handover)
        place = next((place for place, (_, message) in enumerate(data) if message is handover), 0)
        if not place or peer is None or client is None or not self._is_usual:
            return None
        entries = [broker.tables.subscriptions.get(id) for id in handover.old_ids]
        filters = [entry.filter for entry in entries if entry is not None and entry.hop == client.name]
        wanted = self._wanted(filters, place)
        if len(client.queue) + len(wanted) >= client.queue_max_count:
            return None
        del data[place]
        for message in wanted:
            client.queue.append(one_hop_further(message))
        broker.counters.publications_out_count += len(wanted)
        broker.touch(client.name)
        if peer.link.did():
            broker.touch(source)
        broker.moves.handover(peer, handover, now_s)
        return []

    @property
    def _is_usual(self) -> bool:
        """Whether publications go the usual way: none waits for room, is kept, shared with an assistant or relearnt."""
        broker = self._broker
        return (
            not self._input.held
            and broker.safe is None
            and broker.choose_hops is None
            and broker.on_publication == broker.route
        )

    def _wanted(self, filters: Sequence[Filter], place: int) -> list[Publish]:
        """The publications of neighbours before a place that one of the filters matches."""
        peers = self._broker.peers
        wanted: list[Publish] = []
        for source, message in islice(self._input.data, place):
            if type(message) is not Publish or not any(filter.matches(message.values) for filter in filters):
                continue
            peer = peers.get(source)
            if peer is None or peer.role == "broker":
                wanted.append(message)
        return wanted
