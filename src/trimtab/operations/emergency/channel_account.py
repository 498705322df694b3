"""What a person must be told through channels, and what it was told: every notification accounted for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import msgspec

from trimtab.network.client.client import Client
from trimtab.network.client.subscription import Delivery
from trimtab.operations.emergency.application import Person, Report, arguments_of, found_by
from trimtab.simulation.workloads.city import Point
from trimtab.simulation.workloads.emergency import Wanted


class ChannelCounts(msgspec.Struct, frozen=True, kw_only=True):
    """All notifications of some accounts."""

    expected_count: int
    arrived_count: int
    """Of those that were expected, repetitions counted."""
    missing_count: int
    twice_count: int
    wrong_count: int
    out_of_order_count: int

    @property
    def is_faultless(self) -> bool:
        """Whether everybody was told exactly what it must be, in order."""
        return not (self.missing_count or self.twice_count or self.wrong_count or self.out_of_order_count)


class ChannelAccount:
    """One person's; what it must be told is computed from reports and places alone (`emergency.found_by`)."""

    def __init__(self, person: Person, on_notification: Callable[[Wanted, Delivery], None] | None = None) -> None:
        self.person = person
        self._on_notification = on_notification
        self._got: dict[Wanted, Counter[str]] = {wanted: Counter() for wanted in person.wants}
        self._expected: dict[Wanted, Counter[str]] = {wanted: Counter() for wanted in person.wants}
        self._early: dict[Wanted, frozenset[str]] = {}
        self._last: dict[Wanted, int] = {}
        self._out_of_order_count = 0
        self.latencies_s: list[float] = []
        """From the execution of a channel to the subscriber."""

    async def subscribe(self, client: Client) -> None:
        """Ask for everything that the person wants."""
        for wanted in self.person.wants:
            await client.subscribe_channel(wanted[0], arguments_of(wanted), callback=self._taker(wanted))

    def _taker(self, wanted: Wanted) -> Callable[[Delivery], None]:
        def take(delivery: Delivery) -> None:
            self._got[wanted][str(delivery.publication["reportId"])] += 1
            self._out_of_order_count += delivery.sequence <= self._last.get(wanted, 0)
            self._last[wanted] = delivery.sequence
            self.latencies_s.append(delivery.delay_s)
            if self._on_notification is not None:
                self._on_notification(wanted, delivery)

        return take

    def allow(self, reports: list[Report], places: dict[str, Point]) -> None:
        """Reports just before it joined: a broker that has not heard of it yet may still tell it."""
        self._early = {wanted: frozenset(found_by(wanted, reports, places)) for wanted in self.person.wants}

    def expect(self, reports: list[Report], places: dict[str, Point]) -> None:
        """Reports that it must be told of where they concern it."""
        for wanted, expected in self._expected.items():
            expected.update(found_by(wanted, reports, places))

    @property
    def waits(self) -> bool:
        """Whether something that it must be told has not come."""
        return any(expected.keys() - self._got[wanted].keys() for wanted, expected in self._expected.items())

    def counts_of(self, wanted: Wanted) -> ChannelCounts:
        """The account of one subscription; its order is told of all together."""
        expected, got = self._expected[wanted], self._got[wanted]
        return ChannelCounts(
            expected_count=expected.total(),
            arrived_count=sum(got[id] for id in expected),
            missing_count=len(expected.keys() - got.keys()),
            twice_count=sum(count - 1 for count in got.values()),
            wrong_count=len(got.keys() - expected.keys() - self._early.get(wanted, frozenset())),
            out_of_order_count=0,
        )

    def counts(self) -> ChannelCounts:
        """The account of all its subscriptions."""
        found = added([self.counts_of(wanted) for wanted in self.person.wants])
        return msgspec.structs.replace(found, out_of_order_count=self._out_of_order_count)


def added(counts: Iterable[ChannelCounts]) -> ChannelCounts:
    """Several accounts as one.

    >>> one = ChannelCounts(
    ...     expected_count=2, arrived_count=1, missing_count=1, twice_count=0, wrong_count=0, out_of_order_count=0)
    >>> added([one, one]).expected_count, added([]).is_faultless
    (4, True)
    """
    each = list(counts)
    return ChannelCounts(**{name: sum(getattr(one, name) for one in each) for name in ChannelCounts.__struct_fields__})
