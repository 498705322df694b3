"""What clients that misbehave do to others, in a network of real processes: latencies with and without, in one run.

Two brokers, 0.3 s apart as a publisher and a subscriber of the paper are (Table V: 0.1 s between brokers, 0.2 s to
subscribers), with steady publishers at the one and subscribers at the other. Calm and attack take turns, so that
whatever else the machine does falls on both.
"""

from __future__ import annotations

import asyncio
import math
import multiprocessing
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from trimtab.broker.flow.rate_limits import RateLimitConfig
from trimtab.lab.bench.delayed_link import DelayedLink
from trimtab.lab.bench.rogue_clients import RogueReport, misbehave
from trimtab.language import Filter, Publication
from trimtab.network.admin.local_network import Network, free_ports
from trimtab.network.client.client import Client
from trimtab.network.client.subscription import Delivery
from trimtab.network.links.address import Address
from trimtab.network.loops import run
from trimtab.network.network_file import BrokerEntry, LinkEntry, NetworkOptions, NetworkPlan
from trimtab.simulation.faults.attacks import BEARABLE_FACTOR, AttackKind

KINDS: Final[tuple[AttackKind, ...]] = ("flood", "huge", "advertisements", "stalled", "filters")

FAR_S: Final = 0.3
TOPICS_COUNT: Final = 5
SUBSCRIBERS_PER_TOPIC_COUNT: Final = 3
RATE_PER_S: Final = 20.0
"""Publications of each topic's publisher."""

SETTLE_S: Final = 2.0
"""Before calm and after an attack nothing is measured for so long."""

HEARD_WITHIN_S: Final = 60.0
"""An attacker's process starts and answers by then, on any machine that can measure at all."""

PROTECTION: Final = RateLimitConfig(newcomer_rate_per_s=50.0, newcomer_bytes_per_s=50_000.0)

OPTIONS: Final = NetworkOptions(
    slow_policy="disconnect",
    client_queue_max_count=100,
    window_frames_count=256,
    filters_per_client_max_count=100,
    client_lease_s=1.0,
)
OPEN_OPTIONS: Final = NetworkOptions(client_queue_max_count=100, window_frames_count=256, client_lease_s=1.0)
"""The same without any limit that acts: slow subscribers hold publishers back, and filters are as many as one likes."""


class AttackFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of attack."""

    kind: AttackKind
    is_protected: bool
    calm_count: int
    attacked_count: int
    """Deliveries that were measured."""
    calm_p50_s: float
    attacked_p50_s: float
    calm_p99_s: float
    attacked_p99_s: float
    p99_ratio: float
    calm_p99s_s: list[float]
    """Of each calm phase, the first before the first attack and the last after the last one."""
    sent_count: int
    told: dict[str, int]
    """What the attacker was told, and how often."""
    missing_count: int
    """Publications of the honest that did not reach everybody in time to be counted."""

    @property
    def is_contained(self) -> bool:
        """Whether the others hardly noticed."""
        return self.p99_ratio <= BEARABLE_FACTOR and not self.missing_count

    @property
    def noise_ratio(self) -> float:
        """How busy the machine is otherwise: by how much calm phases differ, or the usual delay exceeds the way.

        Where that is large, nothing can be measured.
        """
        return max(max(self.calm_p99s_s) / min(self.calm_p99s_s), self.calm_p50_s / FAR_S)


def attacked_plan(*, is_protected: bool) -> NetworkPlan:
    """A head and an edge-broker that is far away."""
    head, edge, far = free_ports(3)
    return NetworkPlan(
        (BrokerEntry("head", Address("127.0.0.1", head)), BrokerEntry("edge", Address("127.0.0.1", edge))),
        (LinkEntry("head", "edge", Address("127.0.0.1", far)),),
        OPTIONS if is_protected else OPEN_OPTIONS,
        protection=PROTECTION if is_protected else None,
    )


def percentile_s(delays_s: Sequence[float], percent: float) -> float:
    """The delay below or at which that share lies, infinite if there is none.

    >>> percentile_s([3.0, 1.0, 2.0, 4.0], 50)
    2.0
    """
    ordered = sorted(delays_s)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)] if ordered else math.inf


class _Honest:
    """Publishers and subscribers that behave, and the latencies of what they are delivered."""

    def __init__(self, plan: NetworkPlan) -> None:
        self._plan = plan
        self._clients: list[Client] = []
        self._publishing: list[asyncio.Task[None]] = []
        self.delays_s: dict[str, list[float]] = {"calm": [], "attack": []}
        self.phase = ""
        """Of what is published now; empty if it does not count."""
        self._phases: dict[tuple[int, int], str] = {}
        """The phases of publications that are not delivered to everybody yet."""
        self._missing: Counter[tuple[int, int]] = Counter()

    async def join(self) -> None:
        """Connect, announce and subscribe."""
        for topic in range(1, TOPICS_COUNT + 1):
            publisher = await Client.connect(self._plan.broker("head").listen, f"P{topic}")
            await publisher.advertise(
                Filter.parse(f"[class,eq,'EWS'],[topic,=,{topic}],[number,isPresent,0],[text,isPresent,'']")
            )
            self._clients.append(publisher)
            for number in range(SUBSCRIBERS_PER_TOPIC_COUNT):
                subscriber = await Client.connect(self._plan.broker("edge").listen, f"S{topic}.{number}")
                await subscriber.subscribe(
                    Filter.parse(f"[class,eq,'EWS'],[topic,=,{topic}]"), callback=self._delivered
                )
                self._clients.append(subscriber)
            self._publishing.append(asyncio.get_running_loop().create_task(self._publish(publisher, topic)))

    async def _publish(self, publisher: Client, topic: int) -> None:
        loop = asyncio.get_running_loop()
        number, next_s = 0, loop.time() + topic / RATE_PER_S / TOPICS_COUNT
        while True:
            await asyncio.sleep(max(0.0, next_s - loop.time()))
            next_s += 1 / RATE_PER_S
            number += 1
            if self.phase:
                self._phases[topic, number] = self.phase
                self._missing[topic, number] = SUBSCRIBERS_PER_TOPIC_COUNT
            await publisher.publish(Publication({"class": "EWS", "topic": topic, "number": number, "text": "y" * 100}))

    def _delivered(self, delivery: Delivery) -> None:
        if not delivery.publisher.startswith("P"):
            return
        key = (int(delivery.publisher[1:]), int(delivery.publication["number"]))
        phase = self._phases.get(key)
        if phase is not None:
            self.delays_s[phase].append(delivery.delay_s)
            self._missing[key] -= 1
            if not self._missing[key]:
                del self._missing[key], self._phases[key]

    @property
    def missing_count(self) -> int:
        """Publications that have not reached everybody."""
        return len(self._missing)

    async def leave(self) -> None:
        """Go."""
        for task in self._publishing:
            task.cancel()
        await asyncio.gather(*self._publishing, return_exceptions=True)
        await asyncio.gather(*(client.close() for client in self._clients), return_exceptions=True)


class _Attacker:
    """A process that misbehaves when it is told to."""

    def __init__(self, kind: AttackKind, plan: NetworkPlan, number: int) -> None:
        target = plan.broker("edge" if kind in ("stalled", "filters") else "head").listen
        self._pipe, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("spawn").Process(
            target=misbehave, args=(kind, target.host, target.port, f"rogue-{number}", theirs), daemon=True
        )
        self._process.start()

    async def hear(self) -> object:
        """What the process says next."""
        heard = await asyncio.get_running_loop().run_in_executor(None, self._pipe.poll, HEARD_WITHIN_S)
        if not heard:
            raise TimeoutError("the attacker says nothing")
        return self._pipe.recv()

    def begin(self, for_s: float) -> None:
        """Let it attack."""
        self._pipe.send(for_s)

    def end(self) -> None:
        """It is over."""
        self._process.terminate()
        self._process.join()


async def _measure(kind: AttackKind, plan: NetworkPlan, phase_s: float, rounds_count: int) -> AttackFigures:
    honest = _Honest(plan)
    sent_count, told = 0, Counter[str]()
    calm_counts = [0]

    async def be_calm() -> None:
        await asyncio.sleep(SETTLE_S)
        honest.phase = "calm"
        await asyncio.sleep(phase_s)
        calm_counts.append(len(honest.delays_s["calm"]))

    try:
        await honest.join()
        for number in range(rounds_count):
            attacker = _Attacker(kind, plan, number)
            try:
                await attacker.hear()
                await be_calm()
                honest.phase = "attack"
                attacker.begin(phase_s)
                await asyncio.sleep(phase_s)
                honest.phase = ""
                report = await attacker.hear()
            finally:
                attacker.end()
            assert isinstance(report, RogueReport)
            sent_count += report.sent_count
            told += report.told
        await be_calm()
        honest.phase = ""
        await asyncio.sleep(SETTLE_S)
        missing_count = honest.missing_count
    finally:
        await honest.leave()
    calm, attacked = honest.delays_s["calm"], honest.delays_s["attack"]
    return AttackFigures(
        kind=kind,
        is_protected=plan.protection is not None,
        calm_count=len(calm),
        attacked_count=len(attacked),
        calm_p50_s=percentile_s(calm, 50),
        attacked_p50_s=percentile_s(attacked, 50),
        calm_p99_s=percentile_s(calm, 99),
        attacked_p99_s=percentile_s(attacked, 99),
        p99_ratio=percentile_s(attacked, 99) / percentile_s(calm, 99),
        calm_p99s_s=[percentile_s(calm[begin:end], 99) for begin, end in pairwise(calm_counts)],
        sent_count=sent_count,
        told=dict(told),
        missing_count=missing_count,
    )


def measure_attack(
    kind: AttackKind, *, phase_s: float = 10.0, rounds_count: int = 2, is_protected: bool = True
) -> AttackFigures:
    """Start a network, and let calm and one kind of attack take turns."""
    plan = attacked_plan(is_protected=is_protected)
    (link,) = plan.links
    assert link.via is not None
    line = DelayedLink(link.via.port, plan.broker("edge").listen.port, FAR_S)

    async def work() -> AttackFigures:
        await line.start()
        network = Network(plan)
        try:
            await asyncio.get_running_loop().run_in_executor(None, network.start)
            return await _measure(kind, plan, phase_s, rounds_count)
        finally:
            await asyncio.get_running_loop().run_in_executor(None, network.stop)
            await line.close()

    return run(work())


def measure_attacks(
    kinds: Sequence[AttackKind],
    *,
    phase_s: float = 10.0,
    rounds_count: int = 2,
    is_protected: bool = True,
    on_figures: Callable[[AttackFigures], None] | None = None,
) -> list[AttackFigures]:
    """All of these kinds, one after the other."""
    measured: list[AttackFigures] = []
    for kind in kinds:
        figures = measure_attack(kind, phase_s=phase_s, rounds_count=rounds_count, is_protected=is_protected)
        measured.append(figures)
        if on_figures is not None:
            on_figures(figures)
    return measured
