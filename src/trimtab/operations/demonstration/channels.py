"""The channels of the demonstration: the emergency application on Spark, for some of the subscribers.

The channels are continuous ones: they run when reports come, all in one query of Spark. Reports come in ticks of two
seconds, or as fast as all channels have seen those before. Each is told to everybody whom it concerns, through the
channels and the brokers, while subscribers move. What must be told is computed from reports and places alone
(`channel_account.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Final

import msgspec

from trimtab.network.client.subscription import Delivery
from trimtab.operations.emergency.application import TICK_S, EmergencyWorld
from trimtab.operations.emergency.channel_account import ChannelAccount, ChannelCounts, added
from trimtab.operations.emergency.city import statements
from trimtab.operations.load.live_load import LoadRun
from trimtab.operations.own_process import ActiveProcess, OwnProcessError
from trimtab.simulation.workloads.city import Point
from trimtab.simulation.workloads.emergency import CHANNELS, RUN_S, Wanted

PEOPLE_COUNT: Final = 40
"""So many subscribers also subscribe to channels, some five of them each."""

SPEED: Final = 5.0
"""The application's time goes so much faster: a tick is two seconds."""

REPORTS_PER_TICK_COUNT: Final = 5
PLACES_EVERY_TICKS_COUNT: Final = 5
"""People tell where they are every so many ticks; in between Spark keeps the plan of its query."""

RECENT_S: Final = 20.0
"""Latencies are shown of so long."""

QUIET_FOR_S: Final = 30.0
"""What is under way at the end is awaited until nothing has come for so long."""

LOOK_AGAIN_AFTER_S: Final = 0.1


class ChannelView(msgspec.Struct, frozen=True, kw_only=True):
    """One channel, as it is at the moment."""

    name: str
    subscriptions_count: int
    expected_count: int
    arrived_count: int
    latency_median_s: float | None
    """From the report to the subscriber, lately; None if nothing has come."""
    latency_max_s: float | None


class EmergencyChannels:
    """Spark, its feeds and channels, and everybody who is told."""

    def __init__(self, active: ActiveProcess, people_count: int, for_s: float, seed: int) -> None:
        self._active = active
        self._world = EmergencyWorld(
            seed,
            people_count=people_count,
            reports_count=int(REPORTS_PER_TICK_COUNT * RUN_S / TICK_S),
            run_s=for_s * SPEED,
        )
        self._accounts = [ChannelAccount(person, self._notified) for person in self._world.people]
        self._places: dict[str, Point] = {}
        self._fed_s: dict[str, float] = {}
        self._recent: dict[str, deque[tuple[float, float]]] = {name: deque() for name in CHANNELS}
        self._last_s = 0.0
        self.latencies_s: list[tuple[float, float]] = []
        """When a notification came, and how long it took from the report to the subscriber."""
        self.reports_count = 0
        self.doing = "Spark is starting"
        self.problem: str | None = None
        """Why there are no channels, if something went wrong."""

    async def run(self, load: LoadRun) -> None:
        """Start, subscribe, and feed reports until the load ends; a failure is a problem to tell, not an end."""
        try:
            await self._run(load)
        except OwnProcessError as error:
            self.problem = str(error)
            self.doing = f"the channels have failed: {error}"

    async def _run(self, load: LoadRun) -> None:
        await asyncio.to_thread(self._active.wait_until_ready)
        self.doing = "datasets, feeds and channels are being made"
        await asyncio.to_thread(self._active.run, statements(continuous=True))
        self.doing = "waiting for all subscribers to have joined"
        while not (load.all_joined or load.ends.is_set()):
            await asyncio.sleep(LOOK_AGAIN_AFTER_S)
        if not load.ends.is_set():
            await self._show(load)
        if not self.counts().expected_count:
            raise OwnProcessError("Spark was ready too late to show channels; --minutes gives it more time")
        self.doing = "the last notifications are awaited"
        self._last_s = time.monotonic()
        while any(each.waits for each in self._accounts) and time.monotonic() < self._last_s + QUIET_FOR_S:
            await asyncio.sleep(LOOK_AGAIN_AFTER_S)
        self.doing = "done"

    async def _show(self, load: LoadRun) -> None:
        """Everybody asks, and reports are fed until the load ends."""
        self.doing = f"{len(self._accounts)} subscribers ask for channels"
        shelters = [msgspec.to_builtins(each) for each in self._world.shelters]
        await asyncio.to_thread(self._active.feed, "shelters", shelters)
        clients = load.subscribers[: len(self._accounts)]
        for account, client in zip(self._accounts, clients, strict=True):
            await account.subscribe(client)
        self.doing = "reports are fed, and everybody is told what concerns them"
        tick = 0
        while tick < self._world.ticks_count and not load.ends.is_set():
            next_s = time.monotonic() + TICK_S / SPEED
            await self._tick(tick)
            tick += 1
            await asyncio.sleep(max(0.0, next_s - time.monotonic()))

    async def _tick(self, tick: int) -> None:
        """People's places, then reports, then wait until every channel has seen them: nobody moves under its query."""
        if tick % PLACES_EVERY_TICKS_COUNT == 0:
            self._places = self._world.places(tick)
            people = [{"userId": name, "x": x, "y": y} for name, (x, y) in self._places.items()]
            await asyncio.to_thread(self._active.feed, "locations", people)
        reports = self._world.reports(tick)
        for account in self._accounts:
            account.expect(reports, self._places)
        fed_s = time.monotonic()
        self._fed_s.update((report.reportId, fed_s) for report in reports)
        await asyncio.to_thread(self._active.feed, "reports", [msgspec.to_builtins(each) for each in reports])
        self.reports_count += len(reports)
        while any(each["behind_count"] for each in await asyncio.to_thread(self._active.channels)):
            await asyncio.sleep(LOOK_AGAIN_AFTER_S)

    def _notified(self, wanted: Wanted, delivery: Delivery) -> None:
        self._last_s = time.monotonic()
        latency_s = self._last_s - self._fed_s[str(delivery.publication["reportId"])]
        self._recent[wanted[0]].append((self._last_s, latency_s))
        self.latencies_s.append((time.time(), latency_s))

    @property
    def is_under_way(self) -> bool:
        """Whether somebody was told something, or nobody will be."""
        return bool(self.latencies_s) or self.problem is not None

    @property
    def people_count(self) -> int:
        """Who asked for channels."""
        return len(self._accounts)

    def counts(self) -> ChannelCounts:
        """What everybody must be told, and was told."""
        return added(each.counts() for each in self._accounts)

    def views(self) -> list[ChannelView]:
        """Every channel, as it is at the moment."""
        return [self._view(name) for name in CHANNELS]

    def _view(self, name: str) -> ChannelView:
        asked = [(each, wanted) for each in self._accounts for wanted in each.person.wants if wanted[0] == name]
        counts = added(each.counts_of(wanted) for each, wanted in asked)
        recent = self._recent[name]
        while recent and recent[0][0] < time.monotonic() - RECENT_S:
            recent.popleft()
        ordered = sorted(latency_s for _, latency_s in recent)
        return ChannelView(
            name=name,
            subscriptions_count=len(asked),
            expected_count=counts.expected_count,
            arrived_count=counts.arrived_count,
            latency_median_s=ordered[len(ordered) // 2] if ordered else None,
            latency_max_s=ordered[-1] if ordered else None,
        )
