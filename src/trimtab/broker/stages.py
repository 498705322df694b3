"""What a publication passes between its turn in the input and its routing, where a broker's state asks for more."""

from __future__ import annotations

from typing import Protocol

from trimtab.protocol.effects import Effect
from trimtab.protocol.messages import Publish


class Stage(Protocol):
    """One of the things that happen to publications on their way through a broker."""

    def publication(self, source: str, message: Publish, place: int, now_s: float) -> list[Effect]:
        """A publication has come to this stage; it goes on with `Broker.after_stage(place, ...)`, now or later."""
        ...

    def choose_hops(self, source: str, hops: list[str]) -> list[str]:
        """Which of all who want a publication it goes to, or who else gets it."""
        ...
