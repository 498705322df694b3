"""The time of the network world: steady like a monotonic clock, and comparable between processes."""

from __future__ import annotations

import time
from typing import Final

_OFFSET_S: Final = time.time() - time.monotonic()


def now_s() -> float:
    """Seconds since 1970 as seen when the process began, counted on steadily from there."""
    return time.monotonic() + _OFFSET_S
