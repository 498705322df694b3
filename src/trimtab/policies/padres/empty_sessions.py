"""Sessions that found nothing to move, remembered for a while by both brokers.

This goes beyond A. Cheung's thesis (2006), which says what a broker does after a session that moved clients, and not
after one that did not. Both brokers are ready again at once, tell so, and wake each other's detection, which would find
the same difference and the same answer every few seconds; and a difference that no move makes smaller (output is
balanced only as far as input allows, section 4.2.3) would keep a session between clusters from ever being complete.

So after a fruitless session the broker that wanted to give leaves that index of that partner alone for a while, and
both count themselves as balanced in it: as far as it goes, they are.
"""

from __future__ import annotations

import msgspec

from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.padres.decisions import LoadIndex

_BELIEVED_PERIODS = 2
"""Two brokers count as balanced for so many times the patience: long enough for another try to say so again."""


class EmptySessions(msgspec.Struct, frozen=True):
    """When a broker last failed to give to, or to take from, each of the others, by index.

    >>> config = PadresConfig(fruitless_patience_s=60.0)
    >>> tries = EmptySessions().gave_nothing("B2", LoadIndex.OUTPUT, now_s=100.0)
    >>> tries.asks_again("B2", LoadIndex.OUTPUT, 150.0, config), tries.asks_again("B2", LoadIndex.INPUT, 150.0, config)
    (False, True)
    >>> tries.asks_again("B2", LoadIndex.OUTPUT, 160.0, config)
    True
    >>> tries.is_all_that_goes("B2", LoadIndex.OUTPUT, 0.3, 160.0, config)
    True
    """

    gave: dict[tuple[str, LoadIndex], float] = {}
    took: dict[tuple[str, LoadIndex], float] = {}

    def gave_nothing(self, broker: str, action: LoadIndex, now_s: float) -> EmptySessions:
        """A plan was made to give to this broker, and came out empty."""
        return EmptySessions({**self.gave, (broker, action): now_s}, self.took)

    def took_nothing(self, broker: str, action: LoadIndex, now_s: float) -> EmptySessions:
        """This broker made a plan to give to us, and it came out empty."""
        return EmptySessions(self.gave, {**self.took, (broker, action): now_s})

    def asks_again(
        self, broker: str, action: LoadIndex, now_s: float, config: PadresConfig, *, overloaded: bool = False
    ) -> bool:
        """Whether another try is due; an overloaded broker waits no longer than until its next usual detection."""
        patience_s = config.local_detection_min_interval_s if overloaded else config.fruitless_patience_s
        tried_s = self.gave.get((broker, action))
        return tried_s is None or now_s - tried_s >= patience_s

    def is_all_that_goes(
        self, broker: str, action: LoadIndex, difference: float, now_s: float, config: PadresConfig
    ) -> bool:
        """Whether a difference (positive if we are the more loaded of the two) could not be made smaller."""
        tried_s = (self.gave if difference > 0 else self.took).get((broker, action))
        return tried_s is not None and now_s - tried_s < _BELIEVED_PERIODS * config.fruitless_patience_s

    def still_believed(self, now_s: float, config: PadresConfig) -> EmptySessions:
        """Without what is too old to matter."""
        oldest_s = now_s - _BELIEVED_PERIODS * config.fruitless_patience_s
        return EmptySessions(
            {key: tried_s for key, tried_s in self.gave.items() if tried_s > oldest_s},
            {key: tried_s for key, tried_s in self.took.items() if tried_s > oldest_s},
        )
