"""What records tell of balancing: every session, and the story of one client, as values."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import msgspec

from trimtab.protocol.records import RecordsError
from trimtab.records.files import deliveries_one_in, read_records

SAME_MOVE_WITHIN_S: Final = 5.0
"""A client and its new broker see the end of a move at about the same time."""

SIMILAR_MAX_COUNT: Final = 5
"""Names that are offered instead of an unknown one."""

MOMENTS: Final = ("before", "estimated", "observed")
INDICES: Final = ("input_utilization_ratio", "matching_delay_s", "output_utilization_ratio")


class LookedAt(msgspec.Struct, frozen=True):
    """A broker or cluster that detection looked at."""

    broker: str
    status: str
    index: str
    difference: float
    asked: bool
    why: str


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """Clients with the same filters that the plan looked at: a report card."""

    filters: str
    clients: list[str]
    taken: bool
    why: str
    difference: float
    covered: bool
    reduced_rate_per_s: float
    output_rate_bytes_per_s: float
    extra_input_rate_per_s: float


class BrokerIndices(msgspec.Struct, frozen=True):
    """The three load indices of one broker at one moment of a session; None where not known."""

    input_utilization_ratio: float | None
    matching_delay_s: float | None
    output_utilization_ratio: float | None


class SessionStory(msgspec.Struct, frozen=True, kw_only=True):
    """One session, or an attempt that nobody agreed to (no acceptor)."""

    run: str
    session: str
    kind: str
    index: str
    begin_s: float
    end_s: float
    initiator: str
    acceptor: str
    reason: str
    outcome: str
    moved_count: int
    looked_at: list[LookedAt]
    offload: list[str]
    """The clients chosen to move, in order."""
    steps: dict[str, int]
    """How many of them each step of the algorithm chose."""
    stopped: str
    """Why no more was chosen."""
    candidates: list[Candidate]
    candidates_count: int
    initiator_indices: dict[str, BrokerIndices]
    """By moment: before, estimated, observed."""
    acceptor_indices: dict[str, BrokerIndices]


class Stay(msgspec.Struct, frozen=True, kw_only=True):
    """A client's time at one broker, with what was delivered to it there."""

    broker: str
    from_s: float | None
    until_s: float | None
    deliveries_count: int | None
    """As far as they were recorded; None if none were."""
    delay_mean_s: float | None


class RelocationStory(msgspec.Struct, frozen=True, kw_only=True):
    """Why a publisher was to move."""

    algorithm: str
    evidence: str
    traced_count: int
    candidates_count: int
    gain_ratio: float
    reason: str


class MoveStory(msgspec.Struct, frozen=True, kw_only=True):
    """A client's move, or its attempt, and the session behind it."""

    begin_s: float
    end_s: float
    from_broker: str
    to_broker: str
    outcome: str
    reason: str
    cause: str
    session: SessionStory | None
    """None if something else made it move, or the session is not told (yet)."""
    load: Candidate | None
    """The report card by which it was chosen: its filters and its estimated load."""
    publisher_wait_s: float
    """How long its publications were held back."""
    relocation: RelocationStory | None
    """What was decided about it as a publisher; None if something else made it move."""


class ClientStory(msgspec.Struct, frozen=True, kw_only=True):
    """Where a client was and why."""

    client: str
    runs: list[str]
    stays: list[Stay]
    moves: list[MoveStory]
    deliveries_sampled_one_in: int


def read_sessions(folder: str | Path) -> list[SessionStory]:
    """All sessions in the order of their beginning; raises `RecordsError` without a folder or records."""
    _check_folder(folder)
    rows = read_records(folder, "sessions").to_pylist()
    return [_session(row) for row in sorted(rows, key=lambda row: (row["run"], row["begin_s"], row["session"]))]


def _check_folder(folder: str | Path) -> None:
    path = Path(folder)
    if not path.is_dir():
        raise RecordsError(f"{folder}: {'not a folder' if path.exists() else 'there is no such folder'}")
    if not any((path / table).is_dir() for table in ("load", "moves", "arrivals", "sessions", "deliveries")):
        raise RecordsError(f"{folder}: no records here; `trimtab sim run NAME --out {folder}` writes some")


def _session(row: dict[str, Any]) -> SessionStory:
    try:
        looked_at = [
            LookedAt(card["broker"], card["status"], card["action"], card["difference"], card["chosen"], card["why"])
            for card in msgspec.json.decode(row["candidates_json"] or "[]")
        ]
        offload = msgspec.json.decode(row["offload_json"] or "{}")
        moves = offload.get("moves", [])
        candidates = msgspec.convert(offload.get("cards", []), list[Candidate])
        steps: dict[str, int] = {}
        for step in [str(move["step"]) for move in moves if "step" in move]:
            steps[step] = steps.get(step, 0) + 1
        chosen = [str(move["client"]) for move in moves]
    except (msgspec.MsgspecError, KeyError, TypeError, AttributeError) as error:
        raise RecordsError(f"session {row['session']}: its candidates or plan cannot be read: {error}") from None
    return SessionStory(
        run=row["run"],
        session=row["session"],
        kind=row["kind"],
        index=row["index"],
        begin_s=row["begin_s"],
        end_s=row["end_s"],
        initiator=row["initiator"],
        acceptor=row["acceptor"],
        reason=row["reason"],
        outcome=row["outcome"],
        moved_count=row["subscribers_moved_count"],
        looked_at=looked_at,
        offload=chosen,
        steps=steps,
        stopped=str(offload.get("stopped", "")),
        candidates=candidates,
        candidates_count=int(offload.get("cards_count", len(candidates))),
        initiator_indices=_indices(row, "initiator"),
        acceptor_indices=_indices(row, "acceptor"),
    )


def _indices(row: dict[str, Any], side: str) -> dict[str, BrokerIndices]:
    return {moment: BrokerIndices(*(row[f"{side}_{moment}_{index}"] for index in INDICES)) for moment in MOMENTS}


def read_client_story(folder: str | Path, client: str) -> ClientStory:
    """The story of one client; raises `RecordsError` that says which clients there are if it is not known."""
    _check_folder(folder)
    import pyarrow.compute as pc

    sessions = read_sessions(folder)
    relocations = _relocations(folder, client)
    moves = read_records(folder, "moves")
    deliveries = read_records(folder, "deliveries")
    arrivals = read_records(folder, "arrivals")
    told = moves.filter(pc.equal(moves["client"], client)).to_pylist()
    seen = arrivals.filter(pc.equal(arrivals["client"], client)).to_pylist()
    own_moves = sorted([*told, *_untold(told, seen)], key=lambda row: row["end_s"])
    own_deliveries = deliveries.filter(pc.equal(deliveries["client"], client))
    if not own_moves and not own_deliveries.num_rows:
        names = {name for table in (moves, arrivals, deliveries) for name in table["client"].unique().to_pylist()}
        raise RecordsError(_unknown(str(folder), client, sorted(names)))
    times = sorted(
        zip(
            own_deliveries["time_s"].to_pylist(),
            own_deliveries["broker"].to_pylist(),
            own_deliveries["delay_s"].to_pylist(),
            strict=True,
        )
    )
    is_recorded = deliveries.num_rows > 0
    runs = sorted({*(row["run"] for row in own_moves), *own_deliveries["run"].unique().to_pylist()})
    return ClientStory(
        client=client,
        runs=runs,
        stays=_stays(own_moves, times, is_recorded),
        moves=[_move(row, sessions, relocations) for row in own_moves],
        deliveries_sampled_one_in=deliveries_one_in(folder),
    )


def _untold(told: list[dict[str, Any]], seen: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The moves that brokers saw and the client did not record itself, as if it had."""
    found: list[dict[str, Any]] = []
    for arrival in seen:
        way = (arrival["from_broker"], arrival["to_broker"], arrival["cause"])
        is_told = any(
            (row["from_broker"], row["to_broker"], row["cause"]) == way
            and row["begin_s"] - SAME_MOVE_WITHIN_S <= arrival["time_s"] <= row["end_s"] + SAME_MOVE_WITHIN_S
            for row in told
        )
        if not is_told:
            times = {"begin_s": arrival["time_s"], "end_s": arrival["time_s"], "publisher_wait_s": 0.0}
            found.append({**arrival, **times, "outcome": "moved", "reason": ""})
    return found


def _relocations(folder: str | Path, publisher: str) -> dict[tuple[str, str], RelocationStory]:
    """What was decided about a publisher, by run and evidence."""
    return {
        (row["run"], row["evidence"]): RelocationStory(
            algorithm=row["algorithm"],
            evidence=row["evidence"],
            traced_count=row["traced_count"],
            candidates_count=row["candidates_count"],
            gain_ratio=row["gain_ratio"],
            reason=row["reason"],
        )
        for row in read_records(folder, "relocations").to_pylist()
        if row["publisher"] == publisher and row["to_broker"]
    }


def _unknown(folder: str, client: str, names: list[str]) -> str:
    if not names:
        return f"{folder}: no client {client}: no moves and no deliveries are recorded"
    similar = get_close_matches(client, names, SIMILAR_MAX_COUNT, 0.5) or names[:SIMILAR_MAX_COUNT]
    others = f" Did you mean {', '.join(similar)}?" if similar else ""
    return f"{folder}: no client {client} moved or got a delivery that is recorded; {len(names):,} others did.{others}"


def _stays(moves: list[dict[str, Any]], deliveries: list[tuple[float, str, float]], is_recorded: bool) -> list[Stay]:
    done = [row for row in moves if row["outcome"] == "moved"]
    if done:
        brokers = [done[0]["from_broker"], *(row["to_broker"] for row in done)]
    else:
        brokers = [moves[0]["from_broker"] if moves else deliveries[0][1]]
    ends: list[float | None] = [*(row["end_s"] for row in done), None]
    begins: list[float | None] = [None, *(row["end_s"] for row in done)]
    stays: list[Stay] = []
    for broker, from_s, until_s in zip(brokers, begins, ends, strict=True):
        delays_s = [
            delay_s
            for time_s, _, delay_s in deliveries
            if (from_s is None or time_s >= from_s) and (until_s is None or time_s < until_s)
        ]
        stays.append(
            Stay(
                broker=broker,
                from_s=from_s,
                until_s=until_s,
                deliveries_count=len(delays_s) if is_recorded else None,
                delay_mean_s=sum(delays_s) / len(delays_s) if delays_s else None,
            )
        )
    return stays


def _move(
    row: dict[str, Any], sessions: list[SessionStory], relocations: dict[tuple[str, str], RelocationStory]
) -> MoveStory:
    caused = [each for each in sessions if each.session == row["cause"]]
    wanted = (row["from_broker"], row["to_broker"])  # one plan may be about many brokers
    session = next((each for each in caused if (each.initiator, each.acceptor) == wanted), next(iter(caused), None))
    cards = session.candidates if session is not None else []
    return MoveStory(
        begin_s=row["begin_s"],
        end_s=row["end_s"],
        from_broker=row["from_broker"],
        to_broker=row["to_broker"],
        outcome=row["outcome"],
        reason=row["reason"],
        cause=row["cause"],
        session=session,
        load=next((card for card in cards if card.taken and row["client"] in card.clients), None),
        publisher_wait_s=row["publisher_wait_s"],
        relocation=relocations.get((row["run"], row["cause"])),
    )
