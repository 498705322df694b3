"""Configured capacities, enforced: a broker that works and sends no faster than its entry in the network file says.

The matching delay is that of the simulator (calibrated from Cheung's thesis, chapter 5), so that both worlds agree.
"""

from __future__ import annotations

from typing import Final

from trimtab.network.network_file import BYTES_PER_MEGABIT, MATCHING_S_MHZ_PER_SUBSCRIPTION, BrokerEntry

BURST_S: Final = 0.02
"""Work and bytes that may be taken in advance, so that timers need not be exact."""


class EnforcedCapacity:
    """How long matching and sending must wait.

    >>> from trimtab.network.links.address import Address
    >>> capacity = EnforcedCapacity(cpu_mhz=100.0, bandwidth_mbps=None)
    >>> [round(capacity.matching_wait_s(120, 10.0), 4) for _ in range(3)]
    [0.0, 0.0, 0.0196]
    """

    def __init__(self, cpu_mhz: float | None, bandwidth_mbps: float | None) -> None:
        self._cpu_mhz = cpu_mhz
        self._bytes_per_s = None if bandwidth_mbps is None else bandwidth_mbps * BYTES_PER_MEGABIT
        self._matching_free_at_s = 0.0
        self._sending_free_at_s = 0.0

    @staticmethod
    def of(entry: BrokerEntry) -> EnforcedCapacity | None:
        """The limits of a broker's entry, None if it has none."""
        if entry.cpu_mhz is None and entry.bandwidth_mbps is None:
            return None
        return EnforcedCapacity(entry.cpu_mhz, entry.bandwidth_mbps)

    def matching_s(self, subscriptions_count: int) -> float:
        """What matching one publication takes, 0 if the processor is not limited."""
        if self._cpu_mhz is None:
            return 0.0
        return MATCHING_S_MHZ_PER_SUBSCRIPTION * subscriptions_count / self._cpu_mhz

    def matching_wait_s(self, subscriptions_count: int, now_s: float) -> float:
        """How long the next publication must wait; none if its turn is now, and then the time it takes is booked."""
        if self._cpu_mhz is None:
            return 0.0
        wait_s = self._matching_free_at_s - now_s - BURST_S
        if wait_s > 0:
            return wait_s
        begins_s = max(self._matching_free_at_s, now_s)
        self._matching_free_at_s = begins_s + self.matching_s(subscriptions_count)
        return 0.0

    def sending_wait_s(self, now_s: float) -> float:
        """How long sending must wait."""
        return max(0.0, self._sending_free_at_s - now_s - BURST_S)

    def spend_bytes(self, size_bytes: int, now_s: float) -> bool:
        """Book bytes that are sent; whether more may follow at once."""
        if self._bytes_per_s is None:
            return True
        self._sending_free_at_s = max(self._sending_free_at_s, now_s) + size_bytes / self._bytes_per_s
        return self.sending_wait_s(now_s) <= 0
