"""The simulator's checker as a number, as `nodes` has brokers and clients: what it says to what it is told is kept."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Final

from trimtab.broker.core import Broker
from trimtab.simulation.checkers.deliveries import DeliveryChecker, Violation
from trimtab.simulation.checkers.gap_notices import GapChecker, Key
from trimtab.simulation.explore.freezing import freeze
from trimtab.simulation.explore.nodes import Call
from trimtab.simulation.faults.failures import lost_with


def _ignore(kind: str, text: str) -> None:
    """Nothing is objected to."""


def _nothing(_: object) -> None:
    """What there is to do before something ends for a client, or with a delay."""


class _NoDelays:
    """Delays are of no interest here."""

    def fold_if_many(self) -> None:
        """There are none."""


class _NoGaps(GapChecker):
    """What is told of losses is not looked at here: open intervals are told by time, which does not pass."""

    def may_lose(self) -> None:
        """Nothing is demanded."""

    def may_miss(self, client: str) -> None:
        """Nothing is demanded."""

    def may_be_lost(self, key: Key, subscriptions: Iterable[str]) -> None:
        """Nothing is demanded."""

    def accepted(self, key: Key) -> None:
        """Nothing is counted."""


class ExplorerChecker(DeliveryChecker):
    """A checker that can be copied, and that knows what died with brokers."""

    def __init__(self) -> None:
        super().__init__()
        self.let_read = _nothing
        self.delays = _NoDelays()  # type: ignore[assignment]
        self._note_delay = _nothing
        self.gaps = _NoGaps(_ignore)
        self.lost_with_brokers: set[tuple[str, int]] = set()

    def died(self, broker: Broker, clients: Iterable[str]) -> None:
        """A broker has died whose clients these were."""
        lost, self.lost_with_brokers = lost_with(broker, self.lost_with_brokers)
        self.broker_died(clients, lost)


class Checkers:
    """All that the checker of one case has been."""

    def __init__(self) -> None:
        self._images: list[bytes] = []
        self._by_hash: dict[bytes, int] = {}
        self._told: dict[tuple[int, int], tuple[int, tuple[Violation, ...]]] = {}
        self.first: Final = self.intern(ExplorerChecker())

    def copy(self, number: int) -> ExplorerChecker:
        """The checker as an object."""
        checker: ExplorerChecker = pickle.loads(self._images[number])  # noqa: S301 (images that this process has made)
        return checker

    def intern(self, checker: ExplorerChecker) -> int:
        """The number of a checker."""
        hash = freeze(checker)
        number = self._by_hash.get(hash)
        if number is None:
            number = self._by_hash[hash] = len(self._images)
            self._images.append(pickle.dumps(checker, 5))
        return number

    def tell(self, number: int, calls_number: int, calls: Iterable[Call]) -> tuple[int, tuple[Violation, ...]]:
        """The checker after it was told something, and what it objects to."""
        known = self._told.get((number, calls_number))
        if known is None:
            checker = self.copy(number)
            for name, arguments in calls:
                getattr(checker, name)(*arguments)
            violations = tuple(checker.violations)
            checker.violations.clear()
            known = self._told[number, calls_number] = (self.intern(checker), violations)
        return known
