"""Topics of a warning system: who publishes and who subscribes, how large messages are, and which topics burst.

Source: R. Tao, S. Poslad, J. Bigham, resilient delay sensitive load management in environment crisis messaging systems
(2013), section V, Tables V and VI.

A scenario lists topics, or has the numbers of publishers and subscribers and the sizes drawn by the seed, as the paper
does. The subscribers of each topic join in the topic's own second, and at one moment some topics double their rate.

Deviations:
- Drawn numbers are drawn again until all brokers together can carry the load of the burst: the paper chooses its ranges
  with that aim, but most draws would still need more brokers, and no balancing helps then.
- The paper names five of the seven topics that burst (2, 4, 5, 12, 14). Its figures show that 8 is another; with 6 as
  the seventh all brokers together stay furthest below their limits, as its figures have them.
"""

from __future__ import annotations

from random import Random
from typing import Final, Literal, TypeAlias

import msgspec

from trimtab.protocol.messages import Within

Topics: TypeAlias = Literal["listed", "drawn"]

PUBLISHERS_COUNTS: Final = (1, 5)
SUBSCRIBERS_COUNTS: Final = (1, 8)
MESSAGE_BYTES: Final = (200, 1000)
"""The ranges that numbers are drawn from (section V); sizes are hundreds of bytes."""

BEARABLE_RATIO: Final = 0.95
"""The share of all bandwidths that the burst of drawn topics may take."""

_DRAWS_MAX_COUNT: Final = 100_000


class TopicPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[topic]]`: a kind of data (a row of Table VI)."""

    id: int
    """Its number, by which publications and filters name it."""
    publishers: int
    """How many publish it."""
    subscribers: int
    """How many want it."""
    within_s: Within = None
    """The latency requirement of all its subscribers."""

    message_bytes: int
    """The size of a message."""
    rate_per_s: float = 50.0
    """Messages of each publisher."""

    bursts: bool = False
    """Whether it publishes more during the burst."""

    @property
    def output_bytes_per_s(self) -> float:
        """What its subscribers are sent together.

        >>> TopicPart(id=1, publishers=1, subscribers=8, message_bytes=200).output_bytes_per_s
        80000.0
        """
        return self.publishers * self.rate_per_s * self.subscribers * self.message_bytes


class CrisisPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[crisis]`: when and where the clients of topics join, and when some topics burst (section V)."""

    publishers_broker: str
    """Where all publishers join."""
    publishers_at_s: float = 0.5
    """When they join."""
    publishers_latency_s: float = 0.001
    """The paper counts the way from a broker to its subscribers, and none from publishers."""

    allocated_broker: str
    """Where subscribers go under a policy that allocates them: the head."""

    subscribers_broker: str
    """Where they go under any other: one edge-broker, as the paper says of PEER."""

    placement: dict[str, list[int]] = {}
    """Topics by the broker where their subscribers go instead, under a policy that does not allocate them."""

    subscribers_latency_s: float = 0.2
    """Of the connections of subscribers."""
    join_every_s: float = 1.0
    """The subscribers of topic N join in second N."""

    burst_s: float = 30.0
    """When topics that burst begin to."""
    burst_factor: float = 2.0
    """They publish so many times as much then."""
    coarseness: int = 1
    """Messages are so many times larger and fewer than the topics say: the same load, in runs that take less time."""

    window_s: tuple[float, float] = (34.0, 62.0)
    """The paper's balancing stage, in which late deliveries are excused."""

    checked_moves_max_count: int = 3
    """Whether moves after the burst were needed is found out by runs without them, for the first so many brokers that
    gave clients away; 0 asks for none of these runs, which take as long as the first one."""


def topic_filter_text(id: int) -> str:
    """What subscribers of a topic ask for.

    >>> topic_filter_text(8)
    "[class,eq,'EWS'],[topic,=,8]"
    """
    return f"[class,eq,'EWS'],[topic,=,{id}]"


def burst_bytes_per_s(topics: list[TopicPart], factor: float) -> float:
    """What all subscribers are sent during the burst."""
    return sum(topic.output_bytes_per_s * (factor if topic.bursts else 1.0) for topic in topics)


def drawn_topics(topics: list[TopicPart], bandwidth_bytes_per_s: float, factor: float, rng: Random) -> list[TopicPart]:
    """The topics with other numbers of clients and sizes, which brokers with so much bandwidth together can carry."""
    for _ in range(_DRAWS_MAX_COUNT):
        drawn = [
            msgspec.structs.replace(
                topic,
                publishers=rng.randint(*PUBLISHERS_COUNTS),
                subscribers=rng.randint(*SUBSCRIBERS_COUNTS),
                message_bytes=100 * rng.randint(MESSAGE_BYTES[0] // 100, MESSAGE_BYTES[1] // 100),
            )
            for topic in topics
        ]
        if burst_bytes_per_s(drawn, factor) <= BEARABLE_RATIO * bandwidth_bytes_per_s:
            return drawn
    raise ValueError("no numbers of publishers and subscribers were found that the brokers can carry")
