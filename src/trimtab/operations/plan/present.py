"""The present of a running network, as far as its brokers tell: what a plan goes on from.

Asked are all brokers of the network file, at the same time: each notes for a while what its own clients publish, and
then tells their filters, and how it is. What cannot be known that way is told with it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from trimtab.broker.flow.rate_limits import RateLimitConfig
from trimtab.language import Publication
from trimtab.network.admin.status import ask_snapshot, ask_status
from trimtab.network.network_file import MATCHING_S_MHZ_PER_SUBSCRIPTION, BrokerEntry, NetworkOptions, NetworkPlan
from trimtab.policies.registry import PolicyChoice
from trimtab.protocol.codec import decode_filter, encode_filter
from trimtab.protocol.frames import BrokerStatus
from trimtab.protocol.snapshots import Snapshot
from trimtab.simulation.scenarios.continuation import ContinuedClient, Wanted

BACKLOG_MIN_COUNT: Final = 100
"""Fewer messages than this wait at any busy broker now and then."""

CpuSource: TypeAlias = Literal["enforced", "measured", "unknown"]


class BrokerPresent(msgspec.Struct, frozen=True, kw_only=True):
    """A broker as it is."""

    name: str
    cpu_mhz: float | None
    """What its matching is worth in the simulator; None if that is not known, and then matching takes no time."""
    cpu_source: CpuSource
    """Whether it keeps to the speed of the file, or the speed was found from its matching delay."""
    bandwidth_mbps: float | None
    memory_mb: float | None
    site: tuple[float, float] | None = None
    load: dict[str, float] = {}
    clients_count: int = 0
    subscriptions_count: int = 0
    queued_count: int = 0
    """Messages in its output queues."""
    waiting_count: int = 0
    """Messages in its input queue."""
    moved_in_count: int = 0
    session: str = ""
    """The life of the broker that told this."""

    @property
    def has_backlog(self) -> bool:
        """Whether so much waits that it is no matter of a moment."""
        return self.waiting_count + self.queued_count >= BACKLOG_MIN_COUNT


class Present(msgspec.Struct, frozen=True, kw_only=True):
    """A network at one moment."""

    taken_s: float
    """Seconds since 1970."""
    sampled_s: float
    policy: PolicyChoice
    """The policy that the brokers run, with the settings of the network file."""
    options: NetworkOptions
    protection: RateLimitConfig | None
    brokers: tuple[BrokerPresent, ...]
    links: tuple[tuple[str, str], ...]
    clients: tuple[ContinuedClient, ...]
    unknown: tuple[str, ...] = ()
    """What the snapshot could not know, in words."""

    def broker(self, name: str) -> BrokerPresent:
        """A broker by name; raises KeyError."""
        for each in self.brokers:
            if each.name == name:
                return each
        raise KeyError(name)

    def neighbours_of(self, name: str) -> list[str]:
        """The brokers that a broker has a link to."""
        return [second if first == name else first for first, second in self.links if name in (first, second)]

    @property
    def edges(self) -> list[str]:
        """The brokers with one neighbour, which are those that balance; all if there are none."""
        found = [each.name for each in self.brokers if len(self.neighbours_of(each.name)) == 1]
        return found or [each.name for each in self.brokers]


class SilentBrokerError(Exception):
    """Brokers that do not answer; the message names them."""


def encode_present(present: Present) -> bytes:
    """A present as JSON, for a file."""
    return msgspec.json.encode(present, enc_hook=encode_filter)


def decode_present(text: bytes) -> Present:
    """The present in a file; raises `msgspec.MsgspecError`."""
    return msgspec.json.decode(text, type=Present, dec_hook=decode_filter)


async def take_present(plan: NetworkPlan, sample_s: float, gone: Sequence[str] = ()) -> Present:
    """Ask all brokers; raises `SilentBrokerError` if one of them does not answer that is not said to be gone."""

    async def ask(entry: BrokerEntry) -> tuple[BrokerStatus, Snapshot] | str:
        try:
            snapshot = await ask_snapshot(entry.address, sample_s)
            return await ask_status(entry.address), snapshot
        except (OSError, TimeoutError) as error:
            reason = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
            return f"{entry.name} at {entry.address}: {reason}"

    answers = await asyncio.gather(*(ask(entry) for entry in plan.brokers))
    named = dict(zip([entry.name for entry in plan.brokers], answers, strict=True))
    told = {name: each for name, each in named.items() if not isinstance(each, str)}
    silent = [each for name, each in named.items() if isinstance(each, str) and name not in gone]
    if silent:
        raise SilentBrokerError("; ".join(silent))
    return present_of(plan, told, time.time(), sample_s, gone=[name for name in gone if name not in told])


def present_of(
    plan: NetworkPlan,
    told: Mapping[str, tuple[BrokerStatus, Snapshot]],
    taken_s: float,
    sample_s: float,
    *,
    gone: Sequence[str] = (),
) -> Present:
    """Put together what brokers have told; those that are gone already are told of, and nothing of theirs is known."""
    unknown = [f"broker {name} does not answer: its clients are not in the plan" for name in gone]
    brokers = [
        _broker(plan, entry, told[entry.name][0]) if entry.name in told else _silent(entry) for entry in plan.brokers
    ]
    links = _links(plan, {name: status for name, (status, _) in told.items()}, unknown)
    policies = dict.fromkeys(status.policy for status, _ in told.values())
    if len(policies) > 1:
        unknown.append(f"brokers run different policies: {', '.join(policies)}")
    clients = _clients(told, sample_s, unknown)
    _note_brokers(brokers, told, unknown)
    return Present(
        taken_s=taken_s,
        sampled_s=sample_s,
        policy=plan.policy.named(next(iter(policies), plan.policy.name)),
        options=plan.options,
        protection=plan.protection,
        brokers=tuple(brokers),
        links=tuple(links),
        clients=tuple(clients),
        unknown=tuple(unknown),
    )


def _silent(entry: BrokerEntry) -> BrokerPresent:
    return BrokerPresent(
        name=entry.name,
        cpu_mhz=entry.cpu_mhz,
        cpu_source="unknown",
        bandwidth_mbps=entry.bandwidth_mbps,
        memory_mb=entry.memory_mb,
        site=entry.site,
    )


def _broker(plan: NetworkPlan, entry: BrokerEntry, status: BrokerStatus) -> BrokerPresent:
    cpu_mhz, source = _cpu(plan, entry, status)
    return BrokerPresent(
        name=entry.name,
        cpu_mhz=cpu_mhz,
        cpu_source=source,
        bandwidth_mbps=entry.bandwidth_mbps,
        memory_mb=entry.memory_mb,
        site=entry.site,
        load=status.load,
        clients_count=sum(peer.role == "client" for peer in status.peers),
        subscriptions_count=status.subscriptions_count,
        queued_count=sum(peer.queued_count for peer in status.peers),
        waiting_count=status.input_count,
        moved_in_count=status.moved_in_count,
        session=status.session,
    )


def _cpu(plan: NetworkPlan, entry: BrokerEntry, status: BrokerStatus) -> tuple[float | None, CpuSource]:
    """A processor that would match as fast as this broker does."""
    if plan.options.enforce_capacities and entry.cpu_mhz is not None:
        return entry.cpu_mhz, "enforced"
    delay_s = status.load.get("matching_delay_s", 0.0)
    if delay_s <= 0 or not status.subscriptions_count:
        return None, "unknown"
    return MATCHING_S_MHZ_PER_SUBSCRIPTION * status.subscriptions_count / delay_s, "measured"


def _links(plan: NetworkPlan, statuses: Mapping[str, BrokerStatus], unknown: list[str]) -> list[tuple[str, str]]:
    """The links as the brokers tell them, which may have been changed since they began."""
    names = [entry.name for entry in plan.brokers]
    order = {name: number for number, name in enumerate(names)}
    found: dict[tuple[str, str], None] = {}
    for name, status in statuses.items():
        for peer in status.peers:
            if peer.role != "broker":
                continue
            if peer.name not in order:
                unknown.append(f"broker {peer.name}, a neighbour of {name}, is not in the network file")
                continue
            first, second = sorted((name, peer.name), key=order.__getitem__)
            found[first, second] = None
    for link in plan.links:  # of brokers that do not answer, and links that are down, the file knows
        first, second = sorted((link.first, link.second), key=order.__getitem__)
        is_down = first in statuses and second in statuses and (first, second) not in found
        if is_down and second not in statuses[first].links_missing and first not in statuses[second].links_missing:
            continue  # it was taken away
        if is_down:
            unknown.append(f"the link between {first} and {second} is down; the plan takes it to be up")
        found[first, second] = None
    return list(found)


def _clients(
    told: Mapping[str, tuple[BrokerStatus, Snapshot]], sample_s: float, unknown: list[str]
) -> list[ContinuedClient]:
    found: dict[str, ContinuedClient] = {}
    silent_count, refused_count, left_out_count, twice = 0, 0, 0, 0
    for broker, (status, snapshot) in told.items():
        left_out_count += snapshot.left_out_count
        wanted: dict[str, list[Wanted]] = {}
        announced: dict[str, list[Any]] = {}
        contents: dict[str, list[dict[str, Any]]] = {}
        for subscription in snapshot.subscriptions:
            wanted.setdefault(subscription.client, []).append(Wanted(subscription.filter, subscription.within_s))
        for advertisement in snapshot.advertisements:
            filter = advertisement.filter.opened() if advertisement.is_open else advertisement.filter
            announced.setdefault(advertisement.client, []).append(filter)
        for each in snapshot.publications:
            if any(filter.announces(Publication(each.values)) for filter in announced.get(each.publisher, ())):
                contents.setdefault(each.publisher, []).append(each.values)
            else:
                refused_count += 1
        published = {each.client: each for each in snapshot.publishers}
        for name in dict.fromkeys([*announced, *wanted]):
            if name in found:
                twice += 1  # it moves just now: the broker that it leaves is as good as the one that it joins
                continue
            publisher = published.get(name)
            silent_count += name in announced and publisher is None
            found[name] = ContinuedClient(
                name=name,
                broker=broker,
                subscriptions=tuple(wanted.get(name, ())),
                advertisements=tuple(announced.get(name, ())),
                rate_per_s=publisher.published_count / max(snapshot.sampled_s, 1e-3) if publisher else 0.0,
                size_bytes=round(publisher.size_bytes) if publisher else 0,
                publications=tuple(contents.get(name, ())),
            )
        if status.channels is not None and status.channels.subscriptions_count:
            count = status.channels.subscriptions_count
            unknown.append(f"{count:,} subscriptions to channels at {broker}: results of channels are not continued")
    if silent_count:
        unknown.append(
            f"{silent_count:,} publishers published nothing during the sample of {sample_s:g} s and stay silent; "
            "a longer --sample-s may hear them"
        )
    if refused_count:
        unknown.append(f"{refused_count:,} sampled publications that no advertisement announces are left out")
    if left_out_count:
        unknown.append(f"{left_out_count:,} publications were counted but not kept: rates are right, contents a sample")
    if twice:
        unknown.append(f"{twice:,} clients were on the move; each is continued where it was seen first")
    return list(found.values())


def _note_brokers(
    brokers: Sequence[BrokerPresent], told: Mapping[str, tuple[BrokerStatus, Snapshot]], unknown: list[str]
) -> None:
    measured = [each.name for each in brokers if each.cpu_source == "measured"]
    if measured:
        unknown.append(
            f"the processors of {', '.join(measured)} are taken from the matching delay of this moment, as if matching "
            "took time in proportion to subscriptions"
        )
    free = [each.name for each in brokers if each.cpu_mhz is None and each.name in told]
    if free:
        unknown.append(f"{', '.join(free)} matched nothing: how long matching takes there is not known, and left out")
