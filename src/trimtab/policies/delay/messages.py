"""What the agents of delay-sensitive load management say to each other, as flat control publications.

Each is addressed to one broker, or to all brokers of a cluster, and has its content as JSON text beside, so that people
and filters see who says what to whom.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, TypeAlias

import msgspec

from trimtab.language import Filter, Value
from trimtab.policies.api import BrokerCapacity
from trimtab.policies.delay.metrics import EdgeMetrics, HeadMetrics, State
from trimtab.policies.delay.selection import Selected
from trimtab.protocol.codec import decode_filter, encode_filter

DELAY: Final = "DELAY"
HEADS: Final = "all heads"
"""How cluster-heads are addressed together; names of brokers have no spaces."""

PUBLISHERS_MAX_COUNT: Final = 1_000
"""Publishers whose ways a head tells; of others the longest way counts."""

FILTERS_MAX_COUNT: Final = 500
"""Filters that a broker tells of what it receives: with more, brokers know less of similarity, and nothing breaks."""

ANNOUNCED: Final = Filter.parse(
    f"[class,eq,'{DELAY}'],[to,isPresent,''],[from,isPresent,''],[kind,isPresent,''],[body,isPresent,'']"
)


class _Content(msgspec.Struct, frozen=True, tag_field="kind", kw_only=True, omit_defaults=True):
    """A message's content."""


class EdgeLoad(_Content, frozen=True, tag="load"):
    """An edge-broker tells its cluster how it is."""

    metrics: EdgeMetrics
    state: State
    capacity: BrokerCapacity
    matching_delay_s: float
    input_rate_per_s: float
    is_busy: bool = False
    """Whether it takes part in a load-balancing phase."""

    filters: tuple[Filter, ...] = ()
    """What it receives (its covering set)."""


class HeadLoad(_Content, frozen=True, tag="head"):
    """A cluster-head tells other heads how it is, and which of its edge-brokers could take subscribers."""

    metrics: HeadMetrics
    state: State
    capacity: BrokerCapacity
    edges: dict[str, EdgeLoad] = {}
    """Those with little load, without what they receive."""


class Ping(_Content, frozen=True, tag="ping"):
    """An edge asks its head for an answer, in order to know how long that takes."""

    number: int


class PublisherWay(msgspec.Struct, frozen=True):
    """How long a publisher's publications take until they have left a head."""

    links_s: float
    """From the publisher to its head, and from there to this one (t_p-h and t_h-h)."""

    heads_s: float
    """In these heads (t_h, and for a publisher of another cluster t_remote-h as well)."""

    @property
    def total_s(self) -> float:
        """Both."""
        return self.links_s + self.heads_s


class Pong(_Content, frozen=True, tag="pong"):
    """The answer, with what the head knows of the ways before it."""

    number: int
    publisher_head_s: float
    """The longest way from a publisher of this cluster to the head."""

    ways: Annotated[dict[str, PublisherWay], msgspec.Meta(max_length=PUBLISHERS_MAX_COUNT)] = {}
    """Of single publishers, of this cluster and of others, as far as they are known."""

    head_s: float = 0.0
    """What a publication spends in the head."""

    local_publishers: tuple[str, ...] = ()
    has_other_clusters: bool = False
    """Whether the head has heard of other heads."""


class Request(_Content, frozen=True, tag="request"):
    """An overloaded edge asks its head for a load-balancing phase with these brokers (step 1).

    Without candidates it asks for brokers of other clusters.
    """

    phase: str
    candidates: tuple[str, ...]


class Refusal(_Content, frozen=True, tag="refusal"):
    """The head does not begin a phase."""

    phase: str
    reason: str


class Ask(_Content, frozen=True, tag="ask"):
    """The head asks a candidate for its metrics."""

    phase: str


class Answer(_Content, frozen=True, tag="answer"):
    """A candidate's metrics."""

    phase: str
    load: EdgeLoad


class Candidates(_Content, frozen=True, tag="candidates"):
    """The head tells the overloaded edge what the candidates answered."""

    phase: str
    loads: dict[str, EdgeLoad]


class OffloadList(_Content, frozen=True, tag="plan"):
    """The offloading list (step 2); an empty one ends the phase."""

    phase: str
    selected: tuple[Selected, ...]


class Go(_Content, frozen=True, tag="go"):
    """The head has the clients of the list moved (step 3): told to the edge that serves them."""

    phase: str
    selected: tuple[Selected, ...]


class Begin(_Content, frozen=True, tag="begin"):
    """The head tells an accepting edge that it takes part in a phase."""

    phase: str


class Moved(_Content, frozen=True, tag="moved"):
    """A client of the list has moved, or not."""

    phase: str
    client: str
    reason: str = ""
    """Why it has not."""


class Done(_Content, frozen=True, tag="done"):
    """The phase is over."""

    phase: str
    took_s: float = 0.0


Content: TypeAlias = (
    EdgeLoad
    | HeadLoad
    | Ping
    | Pong
    | Request
    | Refusal
    | Ask
    | Answer
    | Candidates
    | OffloadList
    | Go
    | Begin
    | Moved
    | Done
)


class HeardMessage(msgspec.Struct, frozen=True):
    """A message that was heard."""

    sender: str
    content: Content


def cluster_address(head: str) -> str:
    """How all brokers of a cluster are addressed.

    >>> cluster_address("B0")
    'cluster B0'
    """
    return f"cluster {head}"


def filter_for(address: str) -> Filter:
    """What is said to an address."""
    return Filter.where({"class": DELAY, "to": address})


def to_values(content: Content, sender: str, to: str) -> dict[str, Value]:
    """A message as the attributes of a publication.

    >>> values = to_values(Ask(phase="b1/1"), "Bh", "b2")
    >>> values["kind"], values["to"], from_values(values) == HeardMessage("Bh", Ask(phase="b1/1"))
    ('ask', 'b2', True)
    """
    kind = str(type(content).__struct_config__.tag)
    body = _ENCODER.encode(content).decode()
    return {"class": DELAY, "to": to, "from": sender, "kind": kind, "body": body}


_ENCODER: Final = msgspec.json.Encoder(enc_hook=encode_filter)
_DECODER: Final = msgspec.json.Decoder(Content, dec_hook=decode_filter)


def from_values(values: Mapping[str, Value]) -> HeardMessage | None:
    """Read a message; None if it is not one of these, and a ValueError that says what is wrong with one that is."""
    if values.get("class") != DELAY:
        return None
    try:
        return HeardMessage(str(values.get("from", "")), _DECODER.decode(str(values.get("body", ""))))
    except msgspec.DecodeError as error:
        raise ValueError(f"not a message of delay-sensitive balancing: {error}") from None
