"""The latency requirements of a client's subscriptions, and which deliveries came too late for them."""

from __future__ import annotations

from trimtab.language import LanguageError
from trimtab.language.durations import DURATION_MAX_S


class Requirements:
    """By subscription: within which time its publications are to come, and how many came later.

    >>> wanted = Requirements()
    >>> wanted.add("s1", 1.5), wanted.add("s2", None)
    (None, None)
    >>> wanted.missed(("s1", "s2"), 2.0), wanted.missed(("s1", "s2"), 1.0)
    (('s1',), ())
    >>> wanted.late_counts, wanted.of("s1"), wanted.of("s2")
    ({'s1': 1}, 1.5, None)
    """

    __slots__ = ("late_counts", "within_s")

    def __init__(self) -> None:
        self.within_s: dict[str, float] = {}
        """Of the subscriptions that have one."""
        self.late_counts: dict[str, int] = {}
        """Late deliveries of each subscription that ever had one, ended ones included."""

    def add(self, id: str, within_s: float | None) -> None:
        """A subscription with or without a requirement."""
        if within_s is None:
            return
        if not 0 < within_s <= DURATION_MAX_S:
            raise LanguageError(f"a latency requirement is above 0 s and at most a year, not {within_s} s")
        self.within_s[id] = within_s

    def remove(self, id: str) -> None:
        """A subscription ends."""
        self.within_s.pop(id, None)

    def of(self, id: str) -> float | None:
        """A subscription's requirement."""
        return self.within_s.get(id)

    def missed(self, ids: tuple[str, ...], delay_s: float) -> tuple[str, ...]:
        """Those of the subscriptions for which a delivery is late; it is counted."""
        late = tuple(id for id in ids if delay_s > self.within_s.get(id, delay_s))
        for id in late:
            self.late_counts[id] = self.late_counts.get(id, 0) + 1
        return late
