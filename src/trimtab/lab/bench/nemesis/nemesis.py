"""Carries out what the schedule says, one round of broker events after the other, with faults of links beside."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from trimtab.lab.bench.nemesis.cluster import Cluster
from trimtab.lab.bench.nemesis.proxy import LinkProxy
from trimtab.lab.bench.nemesis.schedule import (
    DEATHS,
    BrokerEvent,
    Lead,
    LinkEvent,
    Round,
    ScheduleOptions,
    link_events,
    rounds,
)

LOOK_AGAIN_AFTER_S: Final = 0.25
WELL_LOOKS_COUNT: Final = 2
"""The network is well again when so many looks in a row find nothing wrong."""

SETTLES_WITHIN_S: Final = 1.0
"""After a takeover client records are pushed to new guardians; the next death at `safe` comes so much later."""

REPLACED_WITHIN_S: Final = 25.0
"""Who is killed and not replaced by then is started again by hand, and that is told."""


DRAINED_WITHIN_S: Final = 60
"""A drain that takes longer is taken back."""

SILENT_BOTH_WAYS_S: Final = 6.0
"""A link that is silent for longer is so in both directions."""


class Done(msgspec.Struct, frozen=True):
    """Something that the nemesis did, or saw."""

    at_s: float
    wall: str
    what: str
    round_number: int = 0


class Stuck(Exception):
    """The network does not become well again; the message says what is wrong."""


class Nemesis:
    """Does it."""

    def __init__(
        self,
        cluster: Cluster,
        options: ScheduleOptions,
        folder: Path,
        *,
        clock: Callable[[], float],
        disconnected: Callable[[], list[str]],
        well_within_s: float,
    ) -> None:
        """`disconnected` are clients without a connection."""
        self._cluster = cluster
        self._options = options
        self._clock = clock
        self._disconnected = disconnected
        self._well_within_s = well_within_s
        self._log = (folder / "events.jsonl").open("wb", buffering=0)
        self._schedule = (folder / "schedule.jsonl").open("wb", buffering=0)
        self.done: list[Done] = []
        self.counts: Counter[str] = Counter()
        """How often each kind of event happened."""
        self.recoveries_s: list[float] = []
        """After the last event of each round that waited, until the network was well."""
        self.recovering: dict[str, None] = {}
        """Brokers that something happens to at present."""
        self._running: dict[asyncio.Task[None], None] = {}
        self._error: BaseException | None = None

    @property
    def deaths_count(self) -> int:
        """How often a broker died, or was started again."""
        return sum(self.counts[kind] for kind in DEATHS)

    def tell(self, what: str, round_number: int = 0) -> None:
        """Note what was done or seen."""
        wall = time.strftime("%H:%M:%S", time.localtime())
        done = Done(round(self._clock(), 3), wall, what, round_number)
        self.done.append(done)
        self._log.write(msgspec.json.encode(done) + b"\n")

    # ---- brokers ----

    async def torment_brokers(self, until_s: float) -> None:
        """One round after the other; raises `Stuck` if the network does not recover."""
        for drawn in rounds(self._options):
            if self._clock() + drawn.pause_s >= until_s:
                break
            await asyncio.sleep(drawn.pause_s)
            self._schedule.write(msgspec.json.encode(drawn) + b"\n")
            await self._carry_out(drawn)
        await asyncio.gather(*self._running)
        await self.until_well("the last round")

    async def _carry_out(self, drawn: Round) -> None:
        running = [asyncio.create_task(self._event(drawn, event)) for event in drawn.events]
        for task in running:
            self._note(task)
        if not drawn.waits and self._options.has_overlaps:
            return
        await asyncio.gather(*running)
        began_s = self._clock()
        events = ", ".join(f"{event.kind} {event.broker}" for event in drawn.events)
        await self.until_well(f"round {drawn.number} ({events})")
        self.recoveries_s.append(self._clock() - began_s)

    async def _event(self, drawn: Round, event: BrokerEvent) -> None:
        await asyncio.sleep(event.offset_s)
        if event.broker in self.recovering:  # of an earlier round that nobody waited for
            self.tell(f"{event.kind} {event.broker}: something else happens to it already", drawn.number)
            return
        self.recovering[event.broker] = None
        try:
            self.counts[event.kind] += 1
            if event.lead is not None:
                await self._begin_lead(event.broker, event.lead, drawn.number)
            async for what in self._steps(event):
                self.tell(f"{event.kind} {event.broker}: {what}", drawn.number)
        finally:
            del self.recovering[event.broker]

    async def _steps(self, event: BrokerEvent) -> AsyncIterator[str]:
        """Do it; yields what was done, step by step."""
        cluster, broker = self._cluster, event.broker
        match event.kind:
            case "kill":
                yield await cluster.kill(broker)
                await asyncio.sleep(event.for_s)
                yield await self._started(broker)
            case "replace":
                yield await cluster.kill(broker)
                yield await self._replaced(broker)
            case "terminate":
                yield await cluster.terminate(broker)
                await asyncio.sleep(event.for_s)
                yield await self._started(broker)
            case "restart":
                yield await cluster.restart(broker)
                yield await self._started(broker)
            case "pause" | "hang":
                life, what = await cluster.pause(broker)
                yield what
                if life is not None:
                    await asyncio.sleep(event.for_s)
                    yield cluster.go_on(life)
            case "damage":
                yield await cluster.kill(broker)
                yield cluster.damage(broker, event.ratio)
                yield await self._started(broker)
            case "clock":
                yield cluster.set_clock(broker, event.for_s)
            case "drain":
                async for what in self._drained(broker, event.for_s):
                    yield what

    async def _drained(self, broker: str, for_s: float) -> AsyncIterator[str]:
        """Take a broker out and bring it back; one that links others only loses its clients for a while."""
        cluster, neighbours = self._cluster, self._cluster.plan.neighbours_of(broker)
        carries = ["--carry"] if len(neighbours) > 1 else []
        yield await cluster.run("drain", broker, str(cluster.file), *carries, "--within", str(DRAINED_WITHIN_S))
        await asyncio.sleep(for_s)
        if await cluster.is_answering(broker):
            yield await cluster.run("drain", broker, str(cluster.file), "--cancel")
            return
        yield await self._started(broker)
        yield await cluster.run("link", "add", neighbours[0], broker, str(cluster.file))

    async def _begin_lead(self, broker: str, lead: Lead, round_number: int) -> None:
        """Let publications pile up in a broker; ends by itself some time after the death."""
        cluster, neighbour = self._cluster, lead.neighbour
        if lead.kind == "silence":
            proxy = cluster.link_proxies.get((broker, neighbour)) or cluster.link_proxies[neighbour, broker]
            proxy.silence()
            self.tell(f"silence {broker}-{neighbour} before {broker} dies", round_number)
            undo: Callable[[], object] = partial(_forget, proxy)
        else:
            life, what = await cluster.pause(neighbour)
            self.tell(f"pause {neighbour} before {broker} dies: {what}", round_number)
            undo = partial(cluster.go_on, life) if life is not None else _nothing
        await asyncio.sleep(lead.before_s)
        self._later(lead.after_s, undo)

    def _later(self, after_s: float, undo: Callable[[], object]) -> None:
        async def wait() -> None:
            try:
                await asyncio.sleep(after_s)
            finally:
                undo()

        self._note(asyncio.create_task(wait()))

    def _note(self, task: asyncio.Task[None]) -> None:
        self._running[task] = None
        task.add_done_callback(self._is_over)

    def _is_over(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        if not task.cancelled() and task.exception() is not None and self._error is None:
            self._error = task.exception()

    def _check(self) -> None:
        """Raise what went wrong beside."""
        if self._error is not None:
            raise self._error

    async def _started(self, broker: str) -> str:
        """Start a broker as a supervisor would: again, if its process ends before anybody is the broker."""
        said, ends_s = await self._cluster.start_broker(broker), self._clock() + self._well_within_s
        while self._clock() < ends_s:
            if await self._cluster.is_answering(broker):
                return said
            if self._cluster.has_ended(broker):
                self.tell(f"{broker} has ended by itself, see brokers.log")
                await asyncio.sleep(1.0)
                said = await self._cluster.start_broker(broker)
            await asyncio.sleep(LOOK_AGAIN_AFTER_S)
        return f"{said}, and does not answer after {self._well_within_s:g} s"

    async def _replaced(self, broker: str) -> str:
        """Wait until somebody has replaced a broker."""
        if not self._cluster.has_replicas:
            return await self._started(broker)
        began_s = self._clock()
        while self._clock() < began_s + REPLACED_WITHIN_S:
            if await self._cluster.is_answering(broker):
                return f"replaced after {self._clock() - began_s:.1f} s"
            await asyncio.sleep(LOOK_AGAIN_AFTER_S)
        self.counts["not replaced"] += 1
        return f"nobody has replaced it after {REPLACED_WITHIN_S:g} s; {await self._started(broker)}"

    async def until_well(self, after: str) -> None:
        """Wait until all brokers are linked and know all routes and all clients are connected; raises `Stuck`."""
        began_s, well_count = self._clock(), 0
        while well_count < WELL_LOOKS_COUNT:
            self._check()
            problems = await self._cluster.problems()
            problems += [f"{name} is not connected" for name in self._disconnected()]
            well_count = 0 if problems else well_count + 1
            if self._clock() > began_s + self._well_within_s and problems:
                self.tell(f"not well {self._well_within_s:g} s after {after}: {'; '.join(problems)}")
                raise Stuck(f"not well {self._well_within_s:g} s after {after}: {'; '.join(problems)}")
            await asyncio.sleep(LOOK_AGAIN_AFTER_S)
        await asyncio.sleep(SETTLES_WITHIN_S)

    # ---- links ----

    async def torment_links(self, until_s: float) -> None:
        """One fault after the other."""
        for drawn in link_events(self._options):
            if self._clock() + drawn.pause_s + drawn.for_s >= until_s:
                return
            await asyncio.sleep(drawn.pause_s)
            await self._link_event(drawn)

    async def _link_event(self, event: LinkEvent) -> None:
        cluster, ends = self._cluster, "-".join(dict.fromkeys(event.link))
        proxy = (
            cluster.client_proxies[event.link[0]] if event.kind == "cut-client" else cluster.link_proxies[event.link]
        )
        self.counts[event.kind] += 1
        match event.kind:
            case "cut" | "cut-client":
                self.tell(f"{event.kind} {ends} for {event.for_s:.1f} s")
                proxy.cut()
            case "half-close":
                self.tell(f"half-close {ends}, {'forwards' if event.forwards else 'backwards'}")
                proxy.half_close(forwards=event.forwards)
            case "silence":
                both = event.for_s > SILENT_BOTH_WAYS_S
                ways = "both ways" if both else "forwards" if event.forwards else "backwards"
                self.tell(f"silence {ends} for {event.for_s:.1f} s, {ways}")
                proxy.silence(also_new=True, forwards=both or event.forwards, backwards=both or not event.forwards)
        await asyncio.sleep(event.for_s)
        proxy.heal()

    async def end(self) -> None:
        """Begin nothing more, and undo what can be undone."""
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*list(self._running), return_exceptions=True)
        self._cluster.heal()
        self._log.close()
        self._schedule.close()


def _forget(proxy: LinkProxy) -> None:
    """What was under way when a broker died is lost, as if its host had lost power: the system would still send it."""
    proxy.cut()
    proxy.heal()


def _nothing() -> None:
    pass
