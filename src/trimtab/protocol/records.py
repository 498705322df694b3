"""Records: what both worlds write down about a run, one frozen struct for each table, its fields the columns.

Everything that people look at later is computed from these tables. Whoever keeps records puts the name of the run
beside each, in a column of its own, because protocol roles do not know it. Times are seconds of virtual time in the
simulation, and seconds since 1970 in a network. A description stands beside each column; docs/records.md and the files
repeat it.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, Protocol, TypeAlias

import msgspec


def _says(description: str) -> msgspec.Meta:
    return msgspec.Meta(description=description)


class LoadRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A broker's load at one moment, and what it has done since its last record."""

    time_s: Annotated[float, _says("when")]
    broker: Annotated[str, _says("which broker")]
    input_rate_per_s: Annotated[float, _says("publications that enter the input queue (i_r of the thesis)")]
    matching_delay_s: Annotated[float, _says("mean time to match one publication (d_m)")]
    output_rate_bytes_per_s: Annotated[float, _says("bytes that enter output queues (o_r)")]
    input_utilization_ratio: Annotated[float, _says("share of the matching capacity in use (I_r)")]
    output_utilization_ratio: Annotated[float, _says("share of the bandwidth in use (O_r)")]
    cpu_utilization_ratio: Annotated[float, _says("share of time spent on matching")]
    input_queue_count: Annotated[int, _says("messages in the input queue")]
    input_queue_delay_s: Annotated[float, _says("how long the last publication waited in the input queue")]
    output_queue_count: Annotated[int, _says("messages in all output queues")]
    output_queue_delay_s: Annotated[float, _says("how long a message waited in an output queue lately")]
    memory_bytes: Annotated[
        int, _says("memory that work takes: by how much the process has grown, or as modelled in the simulation")
    ]
    advertisements_count: Annotated[int, _says("advertisements in the routing tables")]
    subscriptions_count: Annotated[int, _says("subscriptions in the routing tables")]
    clients_count: Annotated[int, _says("client sessions")]
    control_in_count: Annotated[int, _says("control messages processed since the last record")]
    control_out_count: Annotated[int, _says("control messages queued for peers since the last record")]
    publications_in_count: Annotated[int, _says("publications processed since the last record")]
    publications_out_count: Annotated[int, _says("publications queued for peers since the last record")]
    dropped_count: Annotated[int, _says("publications dropped for slow subscribers since the last record")]
    refused_count: Annotated[int, _says("requests refused since the last record")]


class DeliveryRecord(msgspec.Struct, frozen=True):
    """A publication that a client handed to its application."""

    time_s: Annotated[float, _says("when it was delivered")]
    client: Annotated[str, _says("to whom")]
    broker: Annotated[str, _says("the broker that served the client")]
    publisher: Annotated[str, _says("who published it")]
    sequence: Annotated[int, _says("its number among the publisher's")]
    delay_s: Annotated[float, _says("time from publisher to subscriber")]
    hops: Annotated[int, _says("brokers on its way")]
    subscriptions_count: Annotated[int, _says("subscriptions of the client that it matched")]
    late_count: Annotated[int, _says("those of them that wanted it within a shorter time")] = 0


class MoveRecord(msgspec.Struct, frozen=True):
    """A client that moved from one broker to another, or tried to."""

    begin_s: Annotated[float, _says("when the client was asked to move")]
    end_s: Annotated[float, _says("when the move was done, undone or refused")]
    client: Annotated[str, _says("who moved")]
    from_broker: Annotated[str, _says("the broker before")]
    to_broker: Annotated[str, _says("the broker wanted")]
    cause: Annotated[str, _says("the id of what made it move: a session, or the scenario")]
    outcome: Annotated[Literal["moved", "stayed"], _says("how it ended: moved or stayed")]
    reason: Annotated[str, _says("why it stayed, empty if it moved")]
    publisher_wait_s: Annotated[float, _says("how long its publications waited, if it publishes")] = 0.0


class ArrivalRecord(msgspec.Struct, frozen=True):
    """A client that came from another broker, as its new broker saw it."""

    time_s: Annotated[float, _says("when its old broker had ended its stay there")]
    client: Annotated[str, _says("who came")]
    from_broker: Annotated[str, _says("the broker before")]
    to_broker: Annotated[str, _says("the broker that writes this")]
    cause: Annotated[str, _says("the id of what made it move: a session, or the scenario")]


class GapRecord(msgspec.Struct, frozen=True):
    """A notice to a client that publications which it wanted may be lost."""

    time_s: Annotated[float, _says("when the client was told")]
    client: Annotated[str, _says("who was told")]
    broker: Annotated[str, _says("the broker that served the client")]
    publisher: Annotated[str, _says("whose publications may be lost, empty if nobody knows")]
    first: Annotated[int | None, _says("the first number that may be lost, missing if nobody knows")]
    last: Annotated[int | None, _says("the last one; missing if all before the next delivery may be lost")]
    reason: Annotated[str, _says("how it came to that")]


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A balancing session between two brokers: why, what moved, what was estimated and what came of it."""

    session: Annotated[str, _says("its id, the cause of its messages and moves")]
    kind: Annotated[Literal["local", "global"], _says("within a cluster (local) or between clusters (global)")]
    index: Annotated[
        Literal["input", "matching", "output"], _says("the load index that it balances: input, matching or output")
    ]
    begin_s: Annotated[float, _says("when it began")]
    end_s: Annotated[float, _says("when it ended")]
    initiator: Annotated[str, _says("the broker that offloads, or the head of the cluster")]
    acceptor: Annotated[str, _says("the broker that takes over, empty if none did")]
    reason: Annotated[str, _says("what detection saw")]
    outcome: Annotated[str, _says("done, or why not")]
    subscribers_moved_count: Annotated[int, _says("subscribers that moved")]
    candidates_json: Annotated[str, _says("the brokers that were looked at, and why each was asked or not, as JSON")]
    offload_json: Annotated[str, _says("the subscribers chosen to move, and the report cards of candidates, as JSON")]
    initiator_before_input_utilization_ratio: Annotated[float, _says("initiator's I_r when it began")]
    initiator_estimated_input_utilization_ratio: Annotated[float | None, _says("initiator's I_r as estimated")]
    initiator_observed_input_utilization_ratio: Annotated[float | None, _says("initiator's I_r after stabilising")]
    initiator_before_matching_delay_s: Annotated[float, _says("initiator's d_m when it began")]
    initiator_estimated_matching_delay_s: Annotated[float | None, _says("initiator's d_m as estimated")]
    initiator_observed_matching_delay_s: Annotated[float | None, _says("initiator's d_m after stabilising")]
    initiator_before_output_utilization_ratio: Annotated[float, _says("initiator's O_r when it began")]
    initiator_estimated_output_utilization_ratio: Annotated[float | None, _says("initiator's O_r as estimated")]
    initiator_observed_output_utilization_ratio: Annotated[float | None, _says("initiator's O_r after stabilising")]
    acceptor_before_input_utilization_ratio: Annotated[float | None, _says("acceptor's I_r when it began")]
    acceptor_estimated_input_utilization_ratio: Annotated[float | None, _says("acceptor's I_r as estimated")]
    acceptor_observed_input_utilization_ratio: Annotated[float | None, _says("acceptor's I_r after stabilising")]
    acceptor_before_matching_delay_s: Annotated[float | None, _says("acceptor's d_m when it began")]
    acceptor_estimated_matching_delay_s: Annotated[float | None, _says("acceptor's d_m as estimated")]
    acceptor_observed_matching_delay_s: Annotated[float | None, _says("acceptor's d_m after stabilising")]
    acceptor_before_output_utilization_ratio: Annotated[float | None, _says("acceptor's O_r when it began")]
    acceptor_estimated_output_utilization_ratio: Annotated[float | None, _says("acceptor's O_r as estimated")]
    acceptor_observed_output_utilization_ratio: Annotated[float | None, _says("acceptor's O_r after stabilising")]


class RelocationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What POP or GRAPE decided about a publisher, told by the publisher's broker."""

    begin_s: Annotated[float, _says("when enough publications were traced")]
    end_s: Annotated[float, _says("when it was decided")]
    broker: Annotated[str, _says("the publisher's broker")]
    publisher: Annotated[str, _says("the publisher's name")]
    algorithm: Annotated[str, _says("pop, grape or grape-joint")]
    evidence: Annotated[str, _says("the trace session or walk, which is the cause of a move")]
    traced_count: Annotated[int, _says("publications that were traced")]
    candidates_count: Annotated[int, _says("brokers that were looked at")]
    to_broker: Annotated[str, _says("where the publisher is to move, empty if it stays")]
    gain_ratio: Annotated[float, _says("what the move promises: share saved, or with POP hops per delivery")]
    reason: Annotated[str, _says("why it moves or stays, in words")]


AnyRecord: TypeAlias = (
    LoadRecord | DeliveryRecord | MoveRecord | ArrivalRecord | GapRecord | SessionRecord | RelocationRecord
)

TABLES: Final[dict[str, type[AnyRecord]]] = {
    "load": LoadRecord,
    "deliveries": DeliveryRecord,
    "moves": MoveRecord,
    "arrivals": ArrivalRecord,
    "gaps": GapRecord,
    "sessions": SessionRecord,
    "relocations": RelocationRecord,
}
"""The tables by name; a table is a folder of that name."""


def as_record(value: object) -> AnyRecord:
    """A value that some table holds, otherwise raise a TypeError."""
    if not isinstance(value, AnyRecord):
        raise TypeError(f"no table holds a {type(value).__name__}")
    return value


class RecordsError(Exception):
    """Records cannot be written or read; the message says which and why."""


class Recorder(Protocol):
    """Who keeps the records of a world."""

    def record(self, record: AnyRecord) -> None:
        """Keep a record; raises `RecordsError` if that cannot be done."""


class Column(msgspec.Struct, frozen=True):
    """A column of a table."""

    name: str
    kind: Literal["text", "integer", "decimal"]
    may_be_missing: bool
    description: str


RUN_COLUMN: Final = Column(
    "run", "text", False, "the scenario with its seed or the network, empty where that is not known"
)
_KINDS: Final[dict[type, Literal["text", "integer", "decimal"]]] = {
    msgspec.inspect.StrType: "text",
    msgspec.inspect.LiteralType: "text",
    msgspec.inspect.IntType: "integer",
    msgspec.inspect.FloatType: "decimal",
}


def columns_of(table: str) -> tuple[Column, ...]:
    """The columns of a table, the run first.

    >>> [column.name for column in columns_of("moves")][:3]
    ['run', 'begin_s', 'end_s']
    """
    info = msgspec.inspect.type_info(TABLES[table])
    assert isinstance(info, msgspec.inspect.StructType)
    return (RUN_COLUMN, *(_column(field) for field in info.fields))


def _column(field: msgspec.inspect.Field) -> Column:
    described = field.type
    assert isinstance(described, msgspec.inspect.Metadata)
    description = str((described.extra_json_schema or {})["description"])
    kind = described.type
    may_be_missing = isinstance(kind, msgspec.inspect.UnionType)
    if isinstance(kind, msgspec.inspect.UnionType):
        kind = next(each for each in kind.types if not isinstance(each, msgspec.inspect.NoneType))
    return Column(field.name, _KINDS[type(kind)], may_be_missing, description)
