"""What a failed run leaves: its plan as readable lines, and as a JSON file that runs again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from trimtab.language import Filter
from trimtab.simulation.checkers.deliveries import Violation
from trimtab.simulation.faults.deaths import Asked, Deaths, Failure, Restart
from trimtab.simulation.faults.faults import (
    Congest,
    Crash,
    Cut,
    Delay,
    Fault,
    FlipBit,
    FrameFault,
    FullDisk,
    Hang,
    Partition,
    Pause,
    SlowDisk,
)
from trimtab.simulation.fuzz.plans import Act, ChannelAct, FuzzPlan


class Finding(msgspec.Struct, frozen=True):
    """A run that broke promises, and the smaller plan that breaks them as well."""

    seed: int
    drawn_with: str
    """What `--with` said; empty for runs without deaths."""
    bug: str
    """The deliberate bug in the core, if there was one."""
    violations: list[Violation]
    """Of the plan below."""
    violations_as_drawn: list[Violation]
    """The first ones of the run as it was drawn from its seed."""
    plan: FuzzPlan

    @property
    def file_name(self) -> str:
        """Where it is kept, for people to recognise."""
        parts = [self.drawn_with or "plain", str(self.seed), self.bug]
        return "-".join(part for part in parts if part) + ".json"


class FindingError(ValueError):
    """A file is not the plan of a run."""


def write_finding(finding: Finding, folder: Path) -> Path:
    """Keep a finding in a folder, which is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / finding.file_name
    path.write_bytes(msgspec.json.format(encode_finding(finding), indent=1) + b"\n")
    return path


def encode_finding(finding: Finding) -> bytes:
    """A finding as JSON."""
    return msgspec.json.encode(finding, enc_hook=_encode_filter)


def decode_finding(data: bytes) -> Finding:
    """A finding from JSON."""
    try:
        return msgspec.json.decode(data, type=Finding, dec_hook=_decode_filter)
    except (msgspec.MsgspecError, ValueError) as error:
        raise FindingError(str(error)) from None


def read_finding(path: Path) -> Finding:
    """A finding from a file; a FindingError says what is wrong with it."""
    try:
        return decode_finding(path.read_bytes())
    except OSError as error:
        raise FindingError(f"{path}: {error.strerror or error}") from None
    except FindingError as error:
        raise FindingError(f"{path}: {error}") from None


def _encode_filter(value: Any) -> str:
    if isinstance(value, Filter):
        return str(value)
    raise NotImplementedError(f"{type(value).__name__} has no JSON form")


def _decode_filter(type: type, value: Any) -> Any:
    return Filter.parse(value) if type is Filter else value


# ---- for people ----


def plan_lines(plan: FuzzPlan) -> Iterator[str]:
    """A plan as lines: who is there, how it is configured, and what happens when.

    >>> from trimtab.simulation.fuzz.plans import draw_plan
    >>> lines = list(plan_lines(draw_plan(7)))
    >>> lines[0].startswith("brokers   B1")
    True
    """
    yield "brokers   " + ", ".join(_broker_text(plan, name) for name in plan.brokers)
    yield "links     " + ", ".join(f"{first}-{second} {latency_s:.3f} s" for first, second, latency_s in plan.links)
    yield "clients   " + ", ".join(f"{name} at {broker} {latency_s:.3f} s" for name, broker, latency_s in plan.clients)
    for guest in plan.guests:
        until = "stays" if guest.leave_s is None else f"leaves at {guest.leave_s:.3f} s"
        yield f"guest     {guest.name} joins {guest.neighbour} at {guest.join_s:.3f} s and {until}"
    yield "settings  " + ", ".join(_settings(plan))
    if plan.deaths is not None:
        yield "takeover  " + ", ".join(_takeover(plan.deaths))
    events = [(act.at_s, _act_text(act)) for act in plan.acts]
    events += [(act.at_s, _channel_text(act)) for act in plan.channel_acts]
    events += [(fault.at_s, _fault_text(fault)) for fault in plan.faults]
    if plan.deaths is not None:
        events += [(failure.at_s, _fault_text(failure)) for failure in plan.deaths.failures]
        for each in plan.deaths.helped:
            events.append((each.at_s, f"{each.broker} has {each.cpu_mhz} MHz for {each.for_s:.3f} s"))
            events.append((each.assistant_at_s, f"{each.broker} gets an assistant ({each.protocol})"))
    for at_s, text in sorted(events, key=lambda event: event[0]):
        yield f"{at_s:8.3f} s  {text}"


def _broker_text(plan: FuzzPlan, name: str) -> str:
    capacity = plan.brokers[name]
    limited = ((capacity.cpu_mhz, "MHz"), (capacity.bandwidth_mbps, "Mbit/s"))
    limits = [f"{value:g} {unit}" for value, unit in limited if value]
    return name + (f" ({', '.join(limits)})" if limits else "")


def _settings(plan: FuzzPlan) -> Iterator[str]:
    for is_on, text in (
        (plan.subscription_covering, "subscription covering"),
        (plan.advertisement_covering, "advertisement covering"),
        (plan.is_balanced, "hasty balancing"),
        (bool(plan.coordinator), f"hasty coordinator at {plan.coordinator}"),
        (bool(plan.relocation), f"hasty relocation by {plan.relocation}"),
        (bool(plan.channel_acts), f"channels with a back end {plan.back_end_latency_s} s away"),
        (plan.slow_policy != "block", f"slow clients: {plan.slow_policy} beyond {plan.client_queue_max_count}"),
        (plan.bundle_s > 0, f"bundles of {plan.bundle_s} s"),
        (plan.acknowledge_after_s > 0, f"acknowledgements after {plan.acknowledge_after_s} s"),
    ):
        if is_on:
            yield text
    yield f"windows of {plan.window_frames_count} frames and {plan.data_window_count} data messages"
    yield f"queues of {plan.broker_queue_high_count}"


def _takeover(deaths: Deaths) -> Iterator[str]:
    replication = deaths.replication
    yield f"acknowledges {deaths.acknowledges}"
    yield f"protocol {replication.protocol}"
    yield f"crashed after {replication.crash_after_s} s, hangs after {replication.hang_after_s} s"
    yield f"a replica begins {deaths.start_after_s} s later"
    yield f"clients return within {deaths.clients_return_s} s"
    if deaths.waits_for_takeovers:
        yield "each failure waits for the end of takeovers before it"


def _act_text(act: Act) -> str:
    match act.what:
        case "advertise" | "subscribe":
            return f"{act.client} {act.what}s {act.filter}"
        case "publish":
            return f"{act.client} publishes {act.values}"
        case "move":
            return f"{act.client} moves to {act.broker}"
        case "unadvertise" | "unsubscribe":
            return f"{act.client} {act.what}s its {'last' if act.which < 0 else f'number {act.which}'}"
        case "leave":
            return f"{act.client} leaves, unless it has something unacknowledged"
        case "leave-acknowledged":
            return f"{act.client} leaves as soon as all is acknowledged"


def _channel_text(act: ChannelAct) -> str:
    match act.what:
        case "happen":
            return f"a result of channel {act.argument}"
        case "away":
            return f"the back end is away for {act.for_s:.3f} s"
        case "want" | "unwant":
            return f"{act.client} {act.what}s channel {act.argument}"


def _fault_text(fault: Fault | Failure) -> str:
    match fault:
        case FrameFault(between=between, for_s=for_s, probability=probability):
            kind = type(fault).__name__.lower()
            extra = f" by {fault.delay_s} s" if isinstance(fault, Delay) else ""
            where = "everywhere" if between is None else "-".join(between)
            return f"{kind}{extra} {probability:.0%} of frames {where} for {for_s:.3f} s"
        case Cut(between=between, for_s=for_s, noticed_after_s=(first_s, second_s)):
            return f"{'-'.join(between)} is cut for {for_s:.3f} s (noticed after {first_s:.3f} s, {second_s:.3f} s)"
        case Partition(brokers=brokers, for_s=for_s):
            return f"{', '.join(brokers)} are cut off for {for_s:.3f} s"
        case Pause(broker=broker, for_s=for_s):
            return f"{broker} pauses for {for_s:.3f} s"
        case Congest(broker=broker, for_s=for_s, cpu_mhz=cpu_mhz):
            return f"{broker} has {cpu_mhz} MHz for {for_s:.3f} s"
        case FlipBit(broker=broker):
            return f"a bit flips on the disk of {broker}"
        case FullDisk(broker=broker, for_s=for_s):
            return f"the disk of {broker} is full for {for_s:.3f} s"
        case SlowDisk(broker=broker, for_s=for_s, write_s=write_s):
            return f"each write of {broker} takes {write_s:.3f} s for {for_s:.3f} s"
        case Crash(broker=broker, noticed_after_s=noticed_after_s):
            return f"{broker} dies (noticed after {noticed_after_s} s)"
        case Hang(broker=broker):
            return f"{broker} hangs"
        case Asked(broker=broker, after_s=after_s):
            return f"{broker} is asked to end and started again after {after_s:.3f} s"
        case Restart(broker=broker, after_s=after_s):
            return f"{broker} dies and is started again after {after_s:.3f} s"
