"""What must, may and must not be delivered, known from a global view and computed without any routing.

A publication that its broker accepts while a subscription is in force must reach it if the filter matches; earlier ones
may. None comes twice, and those of one publisher come in order. Of a subscription that has ended nothing more is
demanded, but what it was given must have no holes. Which subscriptions a publication must reach is asked of a matching
engine; a sample of the answers is compared with brute force.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from trimtab.language import Filter, Value
from trimtab.matching import Matcher
from trimtab.protocol.channels import STREAM_MARK
from trimtab.protocol.effects import Deliver, GapNotice
from trimtab.simulation.checkers.channels import ChannelChecker
from trimtab.simulation.checkers.gap_notices import GapChecker
from trimtab.simulation.world.delays import Delays

_SAMPLE_EVERY: Final = 256
"""Every so many publications the engine's answer is compared with brute force."""

_ALWAYS_SAMPLED_COUNT: Final = 32
"""The first publications are always compared."""

_VALUES_MAX_COUNT: Final = 50_000
"""So many publications are remembered; far more than are under way at any time."""

_VIOLATIONS_MAX_COUNT: Final = 1_000


class Violation(msgspec.Struct, frozen=True):
    """A promise that was not kept."""

    kind: str
    text: str


class Subscription:
    """A subscription as the checker sees it."""

    __slots__ = ("client", "ended", "filter", "has_lapsed", "id", "in_force", "last", "since_count")

    def __init__(self, id: str, client: str, filter: Filter) -> None:
        self.id = id
        self.client = client
        self.filter = filter
        self.in_force = False
        self.since_count = 0
        """So many publications had been accepted when it came into force."""
        self.ended = False
        self.has_lapsed = False
        """Whether its client was away for longer than its lease and has not come back into force since."""
        self.last: dict[str, int] = {}
        """The last sequence number delivered, by publisher."""


class DeliveryChecker:
    """Told everything that happens, at the moment it happens."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.channels = ChannelChecker(self._violate)
        self.subscriptions: dict[str, Subscription] = {}
        self.advertisements: dict[str, tuple[str, Filter]] = {}
        """Live ones: the client and the filter."""
        self.advertisements_in_force: dict[str, None] = {}
        self.misbehaving: dict[str, None] = {}
        """Clients that misbehave on purpose: they may be refused what they ask for."""
        self.on_delivery: Callable[[str, Deliver, float], None] | None = None
        """Who else is told of each delivery of a publication, and when it happened."""
        self.let_read: Callable[[str], object] = lambda client: None
        """Has a client read what has arrived for it, before something ends for it."""
        self.order_is_promised = True
        """Whether publications of one publisher must come in order."""
        self.delays = Delays()
        self.gaps = GapChecker(self._violate)
        """What may be lost, and what was told of it."""
        self.deliveries_count = 0
        self.accepted_count = 0
        self.published_count = 0
        self.dropped_count = 0
        self.disconnected_count = 0
        self._matcher: Matcher = Matcher()
        self._due: dict[tuple[str, int], dict[str, None]] = {}
        """By publication: the subscriptions that still wait for it."""
        self._values: dict[tuple[str, int], tuple[Mapping[str, Value], int]] = {}
        """The values of the latest publications, and which one in the order of their first acceptance each was."""
        self._note_delay = self.delays.recent_s.append
        self._accepted_until: dict[str, int] = {}
        self._taken_until: dict[str, int] = {}
        self._again_until: dict[str, int] = {}
        """Publishers whose broker died: up to here publications may be accepted again by its replica."""
        self._forgotten_until: dict[str, int] = {}
        self._had: dict[tuple[str, str], set[int]] | None = None
        """By subscription and publisher: all that was delivered, where the last number does not tell."""
        self._is_in_gap = False

    def promise_no_order(self) -> None:
        """The network does not promise order: remember each delivery, before there is any."""
        if self.order_is_promised:
            self.order_is_promised = False
            self._had = {}

    # ---- what happens ----

    def advertised(self, id: str, client: str, filter: Filter) -> None:
        """A client has asked to advertise."""
        self.advertisements[id] = (client, filter)

    def unadvertised(self, id: str) -> None:
        """A client has ended an advertisement."""
        self.advertisements.pop(id, None)
        self.advertisements_in_force.pop(id, None)

    def subscribed(self, id: str, client: str, filter: Filter) -> None:
        """A client has asked to subscribe."""
        self.subscriptions[id] = Subscription(id, client, filter)

    def unsubscribed(self, id: str) -> None:
        """A client has ended a subscription."""
        subscription = self.subscriptions[id]
        subscription.ended = True
        if subscription.in_force:
            self._matcher.remove(id)
            subscription.in_force = False

    def left(self, client: str) -> None:
        """A client has gone for good."""
        self.channels.left(client)
        for subscription in self.subscriptions.values():
            if subscription.client == client and not subscription.ended:
                self.unsubscribed(subscription.id)
        for id in [id for id, (owner, _) in self.advertisements.items() if owner == client]:
            self.unadvertised(id)

    def lapsed(self, ids: Iterable[str]) -> None:
        """A client's lease has ended: its subscriptions are no longer in force, and what waited for them is lost."""
        for id in ids:
            subscription = self.subscriptions.get(id)
            if subscription is None or subscription.ended:
                continue
            if subscription.in_force:
                self._matcher.remove(id)
            subscription.in_force = False
            subscription.has_lapsed = True
            self.gaps.may_miss(subscription.client)
            for key, due in self._due.items():
                if due.pop(id, 0) is None:
                    self.gaps.may_be_lost(key, (id,))

    def dropped(self, client: str, publisher: str, sequence: int) -> None:
        """A broker has given up a publication that waited for a slow client, and counts it as dropped."""
        self.dropped_count += 1
        self._excuse(client, (publisher, sequence))

    def excused(self, client: str, publications: Iterable[tuple[str, int]]) -> None:
        """A broker has given up what waited for a client that was away for longer than its lease."""
        for key in publications:
            self._excuse(client, key)

    def _excuse(self, client: str, key: tuple[str, int]) -> None:
        """A client need not get a publication, but must be told so."""
        due = self._due.get(key, {})
        ids = [id for id in due if self.subscriptions[id].client == client]
        for id in ids:
            del due[id]
        self.gaps.may_miss(client)
        self.gaps.may_be_lost(key, ids)

    def disconnected(self, client: str) -> None:
        """A broker has disconnected a slow client for good: nothing more may come, and nothing is demanded."""
        self.let_read(client)
        self.disconnected_count += 1
        self.left(client)
        for due in self._due.values():
            for id in [id for id in due if self.subscriptions[id].client == client]:
                del due[id]

    def in_force(self, id: str, now_s: float) -> None:
        """A client was told that its advertisement or subscription is in force."""
        subscription = self.subscriptions.get(id)
        if subscription is None:
            self.advertisements_in_force[id] = None
        elif not subscription.ended and not subscription.in_force:
            subscription.in_force = True
            subscription.since_count = self.accepted_count
            subscription.has_lapsed = False
            self._matcher.add(id, subscription.filter)

    def is_in_force(self, id: str) -> bool:
        """Whether a client was told that an advertisement or subscription is in force, and it has not ended."""
        subscription = self.subscriptions.get(id)
        return subscription.in_force if subscription is not None else id in self.advertisements_in_force

    def published(self, publisher: str, sequence: int) -> None:
        """An application has handed over a publication."""
        self.published_count += 1

    def accepted(self, publisher: str, sequence: int, values: Mapping[str, Value], now_s: float) -> None:
        """A publisher's broker answers for a publication from now on."""
        self.accepted_count += 1
        if sequence <= self._accepted_until.get(publisher, 0):
            self._violate("accepted twice", f"{publisher}:{sequence} at {now_s:.6f} s")
        self._accepted_until[publisher] = sequence
        due: dict[str, None] = dict.fromkeys(self._matcher.match(values))  # type: ignore[arg-type]
        if self.accepted_count <= _ALWAYS_SAMPLED_COUNT or self.accepted_count % _SAMPLE_EVERY == 0:
            self._compare_with_brute_force(due, values)
        ordinal = self.accepted_count
        if self._again_until and sequence <= self._again_until.get(publisher, 0):
            _, ordinal = self._values.get((publisher, sequence), (values, ordinal))
            due = {id: None for id in due if self.subscriptions[id].since_count < ordinal}
            had = {each.client for each in self.subscriptions.values() if self._has_had(each, publisher, sequence)}
            due = {id: None for id in due if self.subscriptions[id].client not in had}
        self.gaps.accepted((publisher, sequence))
        if due and self._is_in_gap:
            self.gaps.may_be_lost((publisher, sequence), due)
        elif due:
            self._due[publisher, sequence] = due
        self._values[publisher, sequence] = (values, ordinal)
        if len(self._values) > _VALUES_MAX_COUNT:
            oldest = next(iter(self._values))
            del self._values[oldest]
            self._forgotten_until[oldest[0]] = oldest[1]
        self.delays.fold_if_many()

    def _has_had(self, subscription: Subscription, publisher: str, sequence: int) -> bool:
        if self._had is not None and not self.order_is_promised:
            return sequence in self._had.get((subscription.id, publisher), ())
        return subscription.last.get(publisher, 0) >= sequence

    def taken(self, publisher: str, sequence: int) -> None:
        """A publisher was told that its publications up to a number are accepted."""
        self._taken_until[publisher] = sequence
        if publisher in self.misbehaving:
            return  # what was refused is acknowledged as well
        if sequence > self._accepted_until.get(publisher, 0):
            self._violate("accepted too early", f"{publisher}:{sequence} was acknowledged, but no broker has it")

    def broker_died(self, clients: Iterable[str], lost: Iterable[tuple[str, int]]) -> None:
        """A broker lost its memory: its clients say again what it did not acknowledge, and what it held may be lost."""
        for client in clients:
            until = self._accepted_until.get(client, 0)
            self._again_until[client] = max(until, self._again_until.get(client, 0))
            self._accepted_until[client] = min(until, self._taken_until.get(client, 0))
        for key in lost:
            self.gaps.may_be_lost(key, self._due.pop(key, {}))

    def recovered(self, publisher: str, sequence: int) -> None:
        """A broker has found a publication on its disk that it accepted in an earlier incarnation."""
        self._accepted_until[publisher] = max(sequence, self._accepted_until.get(publisher, 0))

    def may_be_lost(self, publisher: str, sequence: int) -> None:
        """A publication is where the protocol in use may lose it: nobody must get it, but whoever does gets it once."""
        self.gaps.may_be_lost((publisher, sequence), self._due.pop((publisher, sequence), {}))

    def damaged_on_disk(self, publisher: str, sequence: int) -> None:
        """The record of a publication on its broker's disk is damaged: whoever has not had it may never get it."""
        self.may_be_lost(publisher, sequence)

    def begin_gap(self) -> None:
        """More has failed at once than the level of acknowledgement survives: what is under way may be lost."""
        self._is_in_gap = True
        self.gaps.may_lose()
        for key, due in self._due.items():
            self.gaps.may_be_lost(key, due)
        self._due.clear()

    def end_gap(self) -> None:
        """What is accepted from now on must arrive again."""
        self._is_in_gap = False

    def rejected(self, client: str, about: str, reason: str, now_s: float) -> None:
        """A client's request was refused, which only those who misbehave on purpose may expect."""
        if client in self.misbehaving:
            return
        self._violate("refused", f"{client}: {about} at {now_s:.6f} s: {reason}")

    def told_gap(self, client: str, notice: GapNotice, now_s: float) -> None:
        """A client has told its application that something may be lost."""
        self.gaps.told(client, notice, now_s)

    def delivered(self, client: str, deliver: Deliver, now_s: float) -> None:
        """A client has handed a publication to its application."""
        self.delivered_run(client, ((now_s, deliver),))

    def delivered_run(self, client: str, run: Sequence[tuple[float, Deliver]]) -> None:
        """A client has handed publications to its application, one after the other."""
        all_due, subscriptions, note_delay, told = self._due, self.subscriptions, self._note_delay, self.on_delivery
        all_had, gaps = self._had, self.gaps
        for at_s, deliver in run:
            publisher, sequence, ids = deliver.publisher, deliver.sequence, deliver.subscriptions
            if publisher[0] == STREAM_MARK:
                self.channels.delivered(ids[0], sequence, at_s)
                continue
            if told is not None:
                told(client, deliver, at_s)
            key = (publisher, sequence)
            due = all_due.get(key)
            if gaps.has_any:
                gaps.delivered(client, key, ids)
            self.deliveries_count += len(ids)
            note_delay(deliver.delay_s)
            for id in ids:
                subscription = subscriptions[id]
                if due is None or due.pop(id, 0) is not None:
                    self._check_undemanded(subscription, client, deliver, at_s)
                last = subscription.last.get(publisher, 0)
                if sequence > last:
                    subscription.last[publisher] = sequence
                else:
                    self._check_late(id, publisher, sequence, last, at_s)
                if all_had is not None:
                    all_had.setdefault((id, publisher), set()).add(sequence)
            if due is not None and not due:
                del all_due[key]

    def _check_late(self, id: str, publisher: str, sequence: int, last: int, at_s: float) -> None:
        """A publication came that is not after the last one of its publisher."""
        is_repeated = sequence == last or (self._had is not None and sequence in self._had.get((id, publisher), ()))
        if is_repeated or self.order_is_promised:
            kind = "delivered twice" if is_repeated else "out of order"
            self._violate(kind, f"{publisher}:{sequence} after :{last} to {id} at {at_s:.6f} s")

    def _check_undemanded(self, subscription: Subscription, client: str, deliver: Deliver, now_s: float) -> None:
        what = f"{deliver.publisher}:{deliver.sequence} to {subscription.id} at {now_s:.6f} s"
        values, _ = self._values.get((deliver.publisher, deliver.sequence), (None, 0))
        if values is None and 0 < deliver.sequence <= self._forgotten_until.get(deliver.publisher, 0):
            values = deliver.publication.values_by_name  # long ago: only whether it matches can be told
        if subscription.client != client or subscription.ended:
            self._violate("not asked for", what)
        elif values is None:
            self._violate("never accepted", what)
        elif values != deliver.publication.values_by_name:
            self._violate("altered", what)
        elif not subscription.filter.matches(values):
            self._violate("does not match", f"{what}: {deliver.publication} against {subscription.filter}")

    def _compare_with_brute_force(self, due: Mapping[str, None], values: Mapping[str, Value]) -> None:
        expected = {s.id for s in self.subscriptions.values() if s.in_force and s.filter.matches(values)}
        if expected != set(due):
            self._violate("engine", f"matching found {sorted(due)}, brute force {sorted(expected)}")

    # ---- at rest ----

    def check_at_rest(self) -> None:
        """Nothing is under way any more: what must have been delivered and was not is missing."""
        self.channels.check_at_rest()
        self.gaps.check_at_rest(self.subscriptions, {client for client, _ in self.advertisements.values()})
        for publisher, sequence, subscription in self._undelivered():
            if not subscription.ended:
                self._violate("missing", f"{publisher}:{sequence} to {subscription.id}")
            elif subscription.last.get(publisher, 0) > sequence and self.order_is_promised:
                self._violate(
                    "missing", f"{publisher}:{sequence} to {subscription.id}, which got a later one and ended"
                )
        for subscription in self.subscriptions.values():
            if not subscription.ended and not subscription.in_force and not subscription.has_lapsed:
                self._violate("never in force", subscription.id)
        for id in self.advertisements:
            if id not in self.advertisements_in_force:
                self._violate("never in force", id)

    @property
    def undelivered_count(self) -> int:
        """Deliveries that must still happen."""
        return sum(len(ids) for ids in self._due.values())

    def due_count_of(self, publisher: str, sequence: int) -> int:
        """Subscriptions that still wait for a publication."""
        return len(self._due.get((publisher, sequence), ()))

    def _undelivered(self) -> Iterator[tuple[str, int, Subscription]]:
        for (publisher, sequence), ids in self._due.items():
            for id in ids:
                yield publisher, sequence, self.subscriptions[id]

    def violate(self, kind: str, text: str) -> None:
        """Note a promise that another checker found broken."""
        self._violate(kind, text)

    def _violate(self, kind: str, text: str) -> None:
        if len(self.violations) < _VIOLATIONS_MAX_COUNT:
            self.violations.append(Violation(kind, text))
