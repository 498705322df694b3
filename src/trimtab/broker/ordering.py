"""What must wait although its turn in the input has come, for its order, its routes or the disk; and how it goes on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from trimtab.broker.moves.streams import Held
from trimtab.broker.replication.retention import Item
from trimtab.protocol.effects import Effect
from trimtab.protocol.messages import AnyMessage, Gap, Handover, Publish, Unadvertise

if TYPE_CHECKING:
    from trimtab.broker.core import Broker


class Ordering:
    """Keeps what belongs behind something else until that has come."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def must_wait(self, name: str, data: AnyMessage, item: Item | None, now_s: float, *, is_stale: bool) -> bool:
        """Whether something must wait although its turn has come; then it goes on by `release`."""
        broker, streams = self._broker, self._broker.takeover.streams
        if broker.replacement is not None and broker.replacement.divisions.must_wait((name, data, item)):
            return True
        match data:
            case Publish() if streams.must_hold(data):
                streams.hold(name, data, item)
            case Unadvertise() | Gap() if streams.holds_from(name):
                peer = broker.peers.get(name)
                streams.hold_behind((name, data, item, -1 if is_stale or peer is None else peer.epoch))
            case Unadvertise() if broker.safe is not None and broker.safe.must_wait_for_disk(name):
                broker.safe.hold_behind_disk(name, (name, data, item))
            case Handover():
                return broker.moves.must_wait(name, data, item, now_s)
            case _:
                return False
        return True

    def release(self, held: Iterable[Held], now_s: float) -> list[Effect]:
        """What has waited goes on: for its order, the end of an earlier stream, the disk, or a record."""
        broker, streams = self._broker, self._broker.takeover.streams
        effects: list[Effect] = []
        for source, message, item in held:
            if isinstance(message, Handover) and broker.moves.must_wait(source, message, item, now_s):
                continue
            if isinstance(message, Publish) and streams.must_hold(message):
                streams.hold(source, message, item)
                continue
            self._forget_retained()
            effects += broker.process(source, message, item, now_s)
        broker.input.let_go()
        for source, end, item, epoch in streams.released_ends():
            if isinstance(end, Handover):
                self._forget_retained()
                if broker.moves.must_wait(source, end, item, now_s):
                    continue
            effects += self.release_marker((source, end, item), epoch, now_s)
        if broker.takeover.sweeps:
            broker.takeover.sweep_what_is_due(now_s)
        return effects

    def release_marker(self, held: Held, epoch: int, now_s: float) -> list[Effect]:
        """A marker that has waited behind publications goes on; it was said in an epoch of its link."""
        source, marker, item = held
        self._forget_retained()
        peer = self._broker.peers.get(source)
        is_stale = peer is None or peer.epoch != epoch
        return self._broker.process(source, marker, item, now_s, is_stale=is_stale)

    def _forget_retained(self) -> None:
        if self._broker.safe is not None:
            self._broker.safe.retention.clear()
