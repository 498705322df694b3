"""GRAPE, phase 1: which publications of a session were delivered at which broker, as bit vectors.

Source: A. Cheung and H.-A. Jacobsen, publisher relocation algorithms (CSRG-597, 2009), section 4.1 and Figure 3.

All publications of a trace session carry its name. A broker sets the bit of each one that it delivers to a client of
its own, and counts the deliveries. One request at the end of the session runs down all links that publications of the
session went over, and one answer from each broker comes back, with those of the brokers behind it.

Deviations: a request overtakes publications, so it tells how many of the session were sent over the link, and is
answered when all of them have come; after `answer_timeout_s` it is answered with what there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from trimtab.policies.relocation.config import TRACE_MAX_COUNT, RelocationConfig
from trimtab.policies.relocation.tags import first_sequence_of


class Headroom(msgspec.Struct, frozen=True, kw_only=True):
    """How much a broker carries and can carry, for placements that must not overload it."""

    input_rate_per_s: float
    matching_delay_s: float
    output_rate_bytes_per_s: float
    bandwidth_bytes_per_s: float
    publication_bytes: float

    @property
    def input_ratio(self) -> float:
        """The share of its matching capacity that is in use."""
        return self.input_rate_per_s * self.matching_delay_s

    @property
    def output_ratio(self) -> float:
        """The share of its bandwidth that is in use."""
        return self.output_rate_bytes_per_s / self.bandwidth_bytes_per_s

    def with_more(self, input_per_s: float, output_per_s: float) -> Headroom:
        """The same broker with so many more publications a second coming in and going out."""
        return msgspec.structs.replace(
            self,
            input_rate_per_s=max(self.input_rate_per_s + input_per_s, 0.0),
            output_rate_bytes_per_s=max(self.output_rate_bytes_per_s + output_per_s * self.publication_bytes, 0.0),
        )


class BrokerTrace(msgspec.Struct, frozen=True, kw_only=True):
    """What one broker has to say of a trace session (the seven parts of a trace information answer)."""

    broker: str
    neighbours: tuple[str, ...]
    bits_hex: str = "0"
    """The bit vector; bit D stands for the publication D after the first one of the session."""

    deliveries_count: int = 0
    """Deliveries to local clients (total number of local deliveries)."""

    input_delay_s: float = 0.0
    matching_delay_s: float = 0.0
    output_delays_s: Annotated[dict[str, float], msgspec.Meta(max_length=10_000)] = {}
    """Output queueing delay by neighbour."""

    client_output_delay_s: float = 0.0
    """Output queueing delay to clients."""

    links_s: Annotated[dict[str, float], msgspec.Meta(max_length=10_000)] = {}
    """How long the links to neighbours take, one way, where this broker has measured it (`own_delays.py`)."""

    serves_publishers: bool = True
    """Whether publishers may move here: in a PEER network only cluster-heads serve them."""

    room: Headroom | None = None
    """Load and capacity, for joint placement."""

    @property
    def bits(self) -> int:
        """The bit vector as a number."""
        return int(self.bits_hex, 16)

    def delay_to_s(self, neighbour: str) -> float:
        """From arrival to departure towards a neighbour (queueAndMatchDelaysTo)."""
        return self.input_delay_s + self.matching_delay_s + self.output_delays_s.get(neighbour, 0.0)

    @property
    def delay_to_clients_s(self) -> float:
        """From arrival to departure towards a client."""
        return self.input_delay_s + self.matching_delay_s + self.client_output_delay_s


class SessionTrace:
    """What a broker keeps of one trace session: a name and a bit vector, and whom publications went to.

    >>> trace = SessionTrace("trace/grape/B1/P/212", "P", upstream="", now_s=0.0)
    >>> for sequence, clients in ((212, 1), (213, 0), (215, 2)):
    ...     trace.saw(sequence, clients, ["B2"])
    >>> f"{trace.bits:04b}", trace.deliveries_count, trace.sent_counts
    ('1001', 3, {'B2': 3})
    """

    def __init__(self, session: str, publisher: str, upstream: str, now_s: float) -> None:
        self.session = session
        self.publisher = publisher
        self.upstream = upstream
        self.touched_s = now_s
        self.bits = 0
        self.deliveries_count = 0
        self.received_count = 0
        self.sent_counts: dict[str, int] = {}
        """Publications of the session sent to each neighbour."""
        self._first_sequence = first_sequence_of(session)

    def saw(self, sequence: int, clients_count: int, neighbours: Sequence[str]) -> None:
        """A publication of the session was delivered to so many clients here and sent to these neighbours."""
        if self._first_sequence is None or not 0 <= sequence - self._first_sequence < TRACE_MAX_COUNT:
            return
        self.received_count += 1
        if clients_count:
            self.bits |= 1 << (sequence - self._first_sequence)
            self.deliveries_count += clients_count
        for neighbour in neighbours:
            self.sent_counts[neighbour] = self.sent_counts.get(neighbour, 0) + 1

    @property
    def kept_bytes(self) -> int:
        """What this takes, about: the name, the vector, and a few numbers."""
        return 200 + len(self.session) + self.bits.bit_length() // 8 + 60 * len(self.sent_counts)


class Collected(msgspec.Struct, frozen=True):
    """A session's answers, complete or as far as they came; `to` is empty at the publisher's own broker."""

    to: str
    session: str
    publisher: str
    traces: tuple[BrokerTrace, ...]
    missing: tuple[str, ...]
    """Neighbours whose answers did not come."""


class Ask(msgspec.Struct, frozen=True):
    """A request to a neighbour: so many publications of the session were sent to it."""

    to: str
    session: str
    publisher: str
    sent_count: int


class _Request:
    """A session that was asked for, and whose answers are awaited."""

    def __init__(self, trace: SessionTrace, expected_count: int, now_s: float) -> None:
        self.trace = trace
        self.expected_count = expected_count
        """Publications that must have come before anybody else is asked."""
        self.ends_s = now_s
        self.waiting: dict[str, None] | None = None
        """Neighbours that were asked; None before."""
        self.answers: list[BrokerTrace] = []


class GrapeTraces:
    """The trace sessions that one broker has seen, and the requests it has not answered."""

    def __init__(self, config: RelocationConfig) -> None:
        self._config = config
        self._traces: dict[str, SessionTrace] = {}
        self._requests: dict[str, _Request] = {}

    def saw(  # noqa: PLR0917 (a publication's way through a broker)
        self,
        session: str,
        publication: tuple[str, int],
        upstream: str,
        clients_count: int,
        neighbours: Sequence[str],
        now_s: float,
    ) -> list[Ask | Collected]:
        """A publication of a session came by; it may be the last one that a request waits for."""
        publisher, sequence = publication
        trace = self._traces.get(session)
        if trace is None:
            if len(self._traces) >= self._config.traces_max_count:
                self._drop(next(iter(self._traces)))
            trace = self._traces[session] = SessionTrace(session, publisher, upstream, now_s)
        trace.touched_s = now_s
        trace.saw(sequence, clients_count, neighbours)
        return self._go_on(session) if session in self._requests else []

    def asked(
        self, session: str, publisher: str, upstream: str, sent_count: int, now_s: float
    ) -> list[Ask | Collected]:
        """A session is asked for: by the neighbour it comes from, or at its end by this broker itself."""
        if session in self._requests:
            return []
        trace = self._traces.setdefault(session, SessionTrace(session, publisher, upstream, now_s))
        request = self._requests[session] = _Request(trace, sent_count, now_s)
        request.ends_s = now_s + self._config.answer_timeout_s
        return self._go_on(session)

    def answered(self, session: str, neighbour: str, traces: Sequence[BrokerTrace]) -> list[Ask | Collected]:
        """A neighbour tells what it and the brokers behind it have; what is not awaited (any more) is ignored."""
        request = self._requests.get(session)
        if request is None or request.waiting is None or neighbour not in request.waiting:
            return []
        del request.waiting[neighbour]
        request.answers.extend(traces)
        return self._go_on(session)

    def overdue(self, now_s: float) -> list[Ask | Collected]:
        """Answer with what there is where answers should have come; forget sessions that nobody asks for."""
        done: list[Ask | Collected] = []
        for session in [name for name, request in self._requests.items() if request.ends_s <= now_s]:
            request = self._requests[session]
            missing = tuple(request.waiting if request.waiting is not None else request.trace.sent_counts)
            done.append(self._collected(session, missing))
        idle_s = now_s - 10 * self._config.answer_timeout_s
        for session in [name for name, trace in self._traces.items() if trace.touched_s < idle_s]:
            self._drop(session)
        return done

    def next_overdue_s(self) -> float | None:
        """When an answer is overdue."""
        return min((request.ends_s for request in self._requests.values()), default=None)

    def forget(self, session: str) -> None:
        """Nobody will ask for a session."""
        self._drop(session)

    @property
    def kept_bytes(self) -> int:
        """What all of this takes, about."""
        return sum(trace.kept_bytes for trace in self._traces.values())

    def trace_of(self, session: str) -> SessionTrace | None:
        """What is kept of a session here."""
        return self._traces.get(session)

    def _drop(self, session: str) -> None:
        self._traces.pop(session, None)
        self._requests.pop(session, None)

    def _go_on(self, session: str) -> list[Ask | Collected]:
        request = self._requests[session]
        trace = request.trace
        if request.waiting is None:
            if trace.received_count < request.expected_count:
                return []
            request.waiting = dict.fromkeys(trace.sent_counts)
            if request.waiting:
                return [Ask(name, session, trace.publisher, trace.sent_counts[name]) for name in request.waiting]
        return [] if request.waiting else [self._collected(session, ())]

    def _collected(self, session: str, missing: tuple[str, ...]) -> Collected:
        request = self._requests[session]
        own = request.trace
        self._drop(session)
        here = BrokerTrace(broker="", neighbours=(), bits_hex=f"{own.bits:x}", deliveries_count=own.deliveries_count)
        return Collected(own.upstream, session, own.publisher, (here, *request.answers), missing)
