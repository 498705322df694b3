"""`trimtab sessions` and `trimtab story`: what the records of a run tell of balancing, in words."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Final

import typer

from trimtab.cli.clock_times import moment
from trimtab.cli.input_lines import printable, refuse

if TYPE_CHECKING:
    from trimtab.records.story import (
        BrokerIndices,
        Candidate,
        ClientStory,
        LookedAt,
        MoveStory,
        RelocationStory,
        SessionStory,
    )

_SHOWN_MAX_COUNT: Final = 8
"""Names and candidates shown before "and N more"."""

_INDEX_WORDS: Final = {"input": "input", "match": "matching", "matching": "matching", "output": "output"}

Records = Annotated[str, typer.Option("--records", metavar="DIR", help="A folder that `sim run --out` wrote.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def sessions(
    records: Records,
    session: Annotated[
        str | None, typer.Option("--session", metavar="ID", help="Only this one, with every report card.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Tell every balancing session: who, with whom, why, who moved, what was expected and what came of it.

    \b
    Example:
      trimtab sim run padres-local --set duration_s=600 --out results
      trimtab sessions --records results
    """
    import msgspec

    from trimtab.protocol.records import RecordsError
    from trimtab.records.story import read_sessions

    try:
        found = read_sessions(records)
    except RecordsError as error:
        refuse(str(error))
    if session is not None:
        wanted = [each for each in found if each.session == session]
        if not wanted:
            some = ", ".join(each.session for each in found[:_SHOWN_MAX_COUNT]) or "none at all"
            refuse(f"{records}: no session {session}; there are {len(found):,}, such as {some}")
        found = wanted
    if as_json:
        typer.echo(json.dumps(msgspec.to_builtins(found), indent=2))
        return
    if not found:
        typer.echo(f"{records}: no balancing sessions are recorded.")
        return
    if session is None:
        typer.echo(printable(_overview(found)))
    for each in found:
        typer.echo(printable("\n" + "\n".join(session_lines(each, every_card=session is not None))))


def _overview(found: list[SessionStory]) -> str:
    local = [each for each in found if each.acceptor and not _is_between_heads(each)]
    moving = [each for each in local if each.moved_count]
    global_count = sum(_is_between_heads(each) for each in found)
    in_vain_count = sum(not each.acceptor for each in found)
    moved_count = sum(each.moved_count for each in moving)
    begun = f"{_count(len(local), 'session')} between brokers"
    parts = [f"{begun}, {len(moving):,} of which moved {moved_count:,} subscribers"]
    if global_count:
        parts.append(f"{_count(global_count, 'session')} between clusters")
    if in_vain_count:
        parts.append(f"{_count(in_vain_count, 'time')} nobody agreed")
    return "; ".join(parts) + "."


def _count(number: int, thing: str, things: str = "") -> str:
    """A number of things.

    >>> _count(1, "session"), _count(2000, "session"), _count(2, "delivery", "deliveries")
    ('1 session', '2,000 sessions', '2 deliveries')
    """
    return f"{number:,} {thing if number == 1 else things or f'{thing}s'}"


def _is_between_heads(story: SessionStory) -> bool:
    """Whether two cluster-heads agreed that their clusters balance; the moves belong to sessions of edge-brokers."""
    return story.kind == "global" and bool(story.acceptor) and not story.moved_count and not story.offload


def session_lines(story: SessionStory, *, every_card: bool = False) -> list[str]:
    """One session in words."""
    index = f"{_INDEX_WORDS.get(story.index, story.index)} load"
    took = f"{moment(story.begin_s)} to {moment(story.end_s)}"
    if not story.acceptor:
        lines = [f"At {moment(story.end_s)} {story.initiator} asked in vain for help with its {index}."]
    elif _is_between_heads(story):
        lines = [f"{story.session}, {took}: clusters {story.initiator} and {story.acceptor} balance their {index}."]
    else:
        lines = [f"{story.session}, {took}: {story.initiator} gives {index} to {story.acceptor}."]
    if story.reason:
        lines.append(f"  Why: {_in_name_of(story.initiator, story.reason)}.")
    if story.looked_at:
        lines.append("  Looked at:")
        lines += [
            f"    {each.broker}, {each.status}, {_difference(each.difference)} in "
            f"{_INDEX_WORDS.get(each.index, each.index)}: {_answer(story, each)}"
            for each in story.looked_at
        ]
    if story.acceptor and not _is_between_heads(story):
        lines += _offload_lines(story, every_card)
    if story.acceptor:
        lines += _index_lines(story)
    lines.append(f"  Outcome: {story.outcome}.")
    return lines


def _answer(story: SessionStory, card: LookedAt) -> str:
    """What came of looking at a broker."""
    _, _, refusal = card.why.partition("; asked, but ")
    if refusal:
        return f"refused, {refusal}"
    if not card.asked:
        return f"not asked, {_in_name_of(story.initiator, card.why)}"
    return "agreed" if card.broker == story.acceptor else "to be asked next"


def _in_name_of(broker: str, reason: str) -> str:
    """A broker's reason, told by somebody else.

    >>> _in_name_of("B1", "we exceed it by 0.141 in input"), _in_name_of("B1", "we are overloaded in output")
    ('B1 exceeds it by 0.141 in input', 'B1 is overloaded in output')
    """
    for ours, theirs in (("we exceed", f"{broker} exceeds"), ("we are", f"{broker} is"), (" ours", f" {broker}'s")):
        reason = reason.replace(ours, theirs)
    return reason


def _difference(difference: float) -> str:
    return f"{abs(difference):.3f} {'below' if difference >= 0 else 'above'}"


def _offload_lines(story: SessionStory, every_card: bool) -> list[str]:
    lines: list[str] = []
    if not story.offload:
        lines.append(f"  Nobody was chosen to move: {story.stopped or 'no plan was made'}.")
    else:
        steps = ", ".join(f"{count:,} by {step}" for step, count in story.steps.items())
        lines.append(
            f"  Moved {story.moved_count:,} of {_count(len(story.offload), 'chosen subscriber')}"
            f"{f' ({steps})' if steps else ''}: "
            f"{_names(story.offload, len(story.offload) if every_card else _SHOWN_MAX_COUNT)}."
        )
        if story.stopped:
            lines.append(f"  No more, because: {story.stopped}.")
    if story.candidates:
        shown = story.candidates if every_card else story.candidates[: _SHOWN_MAX_COUNT // 2]
        lines.append(f"  Candidates ({story.candidates_count:,} groups with the same filters were looked at):")
        lines += [f"    {_card(each)}" for each in shown]
        if story.candidates_count > len(shown):
            lines.append(f"    and {story.candidates_count - len(shown):,} more")
    return lines


def _names(names: list[str], max_count: int) -> str:
    more = f" and {len(names) - max_count:,} more" if len(names) > max_count else ""
    return ", ".join(names[:max_count]) + more


def _card(card: Candidate) -> str:
    """A report card in one line."""
    taken = f"taken, {card.why}" if card.taken and card.why else "taken" if card.taken else f"left, {card.why}"
    news = "already wanted there" if card.covered else f"{card.extra_input_rate_per_s:.3f}/s new there"
    return (
        f"{card.filters}: {_count(len(card.clients), 'client')}, {card.output_rate_bytes_per_s:,.0f} bytes/s each, "
        f"input falls by {card.reduced_rate_per_s:.3f}/s, {news}, {card.difference:+.3f} left; {taken}"
    )


def _index_lines(story: SessionStory) -> list[str]:
    head = f"  {'':<14}{'input ratio':<30}{'matching delay [ms]':<30}{'output ratio':<30}"
    lines = [head.rstrip()]
    for broker, indices in ((story.initiator, story.initiator_indices), (story.acceptor, story.acceptor_indices)):
        before, estimated, observed = (indices[moment] for moment in ("before", "estimated", "observed"))
        cells = [
            _course(
                before.input_utilization_ratio, estimated.input_utilization_ratio, observed.input_utilization_ratio
            ),
            _course(_milliseconds(before), _milliseconds(estimated), _milliseconds(observed), digits_count=1),
            _course(
                before.output_utilization_ratio, estimated.output_utilization_ratio, observed.output_utilization_ratio
            ),
        ]
        lines.append(f"  {broker:<14}{''.join(f'{cell:<30}' for cell in cells)}".rstrip())
    return lines


def _milliseconds(indices: BrokerIndices) -> float | None:
    return None if indices.matching_delay_s is None else 1000 * indices.matching_delay_s


def _course(before: float | None, estimated: float | None, observed: float | None, digits_count: int = 3) -> str:
    """What an index was, was to be, and came to be.

    >>> _course(0.5, 0.25, None)
    '0.500, est. 0.250, obs. ?'
    """
    shown = ["?" if value is None else f"{value:.{digits_count}f}" for value in (before, estimated, observed)]
    return f"{shown[0]}, est. {shown[1]}, obs. {shown[2]}"


def story(
    client: Annotated[str, typer.Argument(metavar="CLIENT", help="A client's name, such as S340.")],
    records: Records,
    as_json: AsJson = False,
) -> None:
    """Tell the story of one client: where it was, when it moved, and because of which session.

    \b
    Example:
      trimtab sim run padres-local --set duration_s=600 --out results
      trimtab story S340 --records results
    """
    import msgspec

    from trimtab.protocol.records import RecordsError
    from trimtab.records.story import read_client_story

    try:
        found = read_client_story(records, client)
    except RecordsError as error:
        refuse(str(error))
    if as_json:
        typer.echo(json.dumps(msgspec.to_builtins(found), indent=2))
        return
    typer.echo(printable("\n".join(story_lines(found))))


def story_lines(found: ClientStory) -> list[str]:
    """A client's story in words."""
    runs = f" ({', '.join(filter(None, found.runs))})" if any(found.runs) else ""
    done_count = sum(each.outcome == "moved" for each in found.moves)
    times = {0: "never", 1: "once", 2: "twice"}.get(done_count, f"{done_count:,} times")
    lines = [f"{found.client}{runs} joined at {found.stays[0].broker} and moved {times}.", *_deliveries_lines(found, 0)]
    stay_number = 0
    for move in found.moves:
        lines += ["", *_move_lines(found.client, move)]
        if move.outcome == "moved":
            stay_number += 1
            lines += _deliveries_lines(found, stay_number)
    if found.deliveries_sampled_one_in > 1:
        lines += ["", f"Of deliveries one in {found.deliveries_sampled_one_in:,} is recorded."]
    return lines


def _deliveries_lines(found: ClientStory, number: int) -> list[str]:
    stay = found.stays[number]
    if stay.deliveries_count is None:
        return []
    until = f" until {moment(stay.until_s)}" if stay.until_s is not None else ""
    if not stay.deliveries_count or stay.delay_mean_s is None:
        return [f"  At {stay.broker}{until} no delivery is recorded."]
    mean = f"{1000 * stay.delay_mean_s:,.1f} ms after publication on average"
    return [f"  At {stay.broker}{until}: {_count(stay.deliveries_count, 'delivery', 'deliveries')}, {mean}."]


def _move_lines(client: str, move: MoveStory) -> list[str]:
    took = f", in {1000 * (move.end_s - move.begin_s):,.0f} ms" if move.end_s > move.begin_s else ""
    if move.outcome == "moved":
        lines = [f"At {moment(move.begin_s)} it moved from {move.from_broker} to {move.to_broker}{took}."]
    else:
        lines = [
            f"At {moment(move.begin_s)} it was to move from {move.from_broker} to {move.to_broker} "
            f"but stayed: {move.reason}."
        ]
    if move.publisher_wait_s:
        lines.append(f"  Its publications waited {1000 * move.publisher_wait_s:,.0f} ms for it.")
    session = move.session
    if move.relocation is not None:
        lines += _relocation_lines(move.relocation)
        return lines
    if session is None:
        lines.append(f"  Cause: {_cause(move.cause)}.")
        return lines
    index = _INDEX_WORDS.get(session.index, session.index)
    lines.append(
        f"  Cause: session {session.session}, in which {session.initiator} gave {index} load to {session.acceptor} "
        f"and {_count(session.moved_count, 'subscriber')} moved."
    )
    lines.append(f"  The session's reason: {_in_name_of(session.initiator, session.reason)}.")
    if move.load is not None:
        lines.append(
            f"  Its subscription {move.load.filters} was estimated at "
            f"{move.load.output_rate_bytes_per_s:,.0f} bytes/s; "
            f"{_count(len(move.load.clients) - 1, 'other')} with the same one went along."
        )
    elif client in session.offload:
        lines.append("  It was on the offload list; its own report card is not kept.")
    lines += _index_lines(session)
    return lines


def _relocation_lines(relocation: RelocationStory) -> list[str]:
    return [
        f"  Cause: {relocation.evidence}, for which {relocation.algorithm} traced "
        f"{_count(relocation.traced_count, 'publication')} and looked at "
        f"{_count(relocation.candidates_count, 'broker')}.",
        f"  The reason: {relocation.reason}.",
    ]


def _cause(cause: str) -> str:
    if "/publisher/" in cause:
        return f"{cause}: it came to an edge-broker, which sends publishers to its cluster-head"
    if "/redirect/" in cause:
        return f"{cause}: it came to a cluster-head, which sends subscribers to an edge-broker"
    return f"{cause or 'not told'}, of which no session is recorded"
