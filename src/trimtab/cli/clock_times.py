"""Moments for people: the time of day in a network, seconds of virtual time in a simulation."""

from __future__ import annotations

from datetime import datetime
from typing import Final

VIRTUAL_MAX_S: Final = 100_000_000.0
"""Virtual time begins at 0, and no simulation lasts three years; the clock has counted from 1970."""


def moment(time_s: float) -> str:
    """When something happened; another day than today is said.

    >>> moment(12.34)
    '12.3 s'
    >>> len(moment(datetime.now().timestamp()))
    10
    """
    if time_s < VIRTUAL_MAX_S:
        return f"{time_s:,.1f} s"
    then = datetime.fromtimestamp(time_s)
    clock = f"{then:%H:%M:%S}.{then.microsecond // 100_000}"
    return clock if then.date() == datetime.now().date() else f"{then:%Y-%m-%d} {clock}"
