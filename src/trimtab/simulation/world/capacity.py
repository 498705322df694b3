"""What a broker's machine can do, and what publications, frames and subscriptions cost it.

Source of the constants: A. Cheung, thesis (2006), chapter 5; see `docs/simulation.md`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from trimtab.broker.core import Broker
from trimtab.protocol.codec import encode_frame
from trimtab.protocol.frames import Ack, Payload
from trimtab.protocol.messages import Publish

MATCHING_MHZ_S_PER_SUBSCRIPTION: Final = 0.0165
"""Matching takes this, times the subscriptions in the engine, divided by the CPU speed in MHz (from the thesis)."""

PUBLICATION_BYTES: Final = 320
"""A stock publication on the wire; frames are never counted as less than their own bytes."""

SUBSCRIPTION_BYTES: Final = 2_000
"""A subscription in the routing tables and the matching engine, of the order that the engine's own figures show."""


class SimulatedCapacity(msgspec.Struct, frozen=True):
    """What a broker's machine can do; what is not given is unlimited."""

    cpu_mhz: float | None = None
    memory_mb: float | None = None
    bandwidth_mbps: float | None = None
    """Of what it sends."""

    downlink_mbps: float | None = None
    """Of what it receives: what policies compare its input with, where that is not `bandwidth_mbps`; nothing waits."""


def matching_delay_s(subscriptions_count: int, cpu_mhz: float | None) -> float:
    """How long a broker matches one publication.

    >>> round(matching_delay_s(120, 100), 4), matching_delay_s(120, None)
    (0.0198, 0.0)
    """
    return MATCHING_MHZ_S_PER_SUBSCRIPTION * subscriptions_count / cpu_mhz if cpu_mhz else 0.0


def frame_bytes(frame: Payload | Ack) -> int:
    """What a frame costs on the wire: publications as much as in the thesis, the rest its own bytes.

    >>> frame_bytes(Ack(1)) < PUBLICATION_BYTES
    True
    """
    if type(frame) is Payload and type(frame.messages[0]) is Publish:
        return PUBLICATION_BYTES * len(frame.messages)
    return len(encode_frame(frame))


def memory_bytes(broker: Broker, output_count: int) -> int:
    """What a broker's work takes of its memory: subscriptions, and what waits in its input and output queues.

    The program itself is left out, as in the thesis (equation 4.11) and in processes: load is estimated in proportion
    to subscriptions, and the program is not.
    """
    waiting_count = broker.input_count + output_count
    return SUBSCRIPTION_BYTES * broker.tables.matched_count + PUBLICATION_BYTES * waiting_count
