"""One run of the nemesis: brokers start, clients work, things happen, all comes to rest, and the checker looks."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from trimtab.lab.bench.nemesis.checker import check, missing
from trimtab.lab.bench.nemesis.cluster import Cluster
from trimtab.lab.bench.nemesis.history import History
from trimtab.lab.bench.nemesis.nemesis import Nemesis, Stuck
from trimtab.lab.bench.nemesis.report import Outcome, explained
from trimtab.lab.bench.nemesis.schedule import USUAL_KINDS, BrokerKind, Level, ScheduleOptions
from trimtab.lab.bench.nemesis.workload import Workload, WorkloadOptions
from trimtab.network.loops import run as run_loop

Report = Callable[[str], None]

PROGRESS_EVERY_S: Final = 5.0
LOOK_AGAIN_AFTER_S: Final = 0.5
ECHOES_WITHIN_S: Final = 1.0
"""What comes twice would come so soon after everything has come."""

REST_WITHIN_S: Final = 600.0
"""A run is at rest by then, also where deliveries go on and on."""


class NemesisBench(msgspec.Struct, frozen=True):
    """What is tried."""

    minutes: float = 5.0
    seed: int = 1
    level: Level = "safe"
    rate_per_s: float = 300.0
    kinds: tuple[BrokerKind, ...] = USUAL_KINDS
    has_replicas: bool = True
    has_link_faults: bool = True
    faketime: str = ""
    """The library with which clocks are set, if they are."""
    lease_s: float = 60.0
    """No client is away for longer; not above the lease that clients count with (`ClientConfig.lease_s`).

    One that leaves while its broker is dead cannot say so: until its lease is over what it wanted waits for it there,
    and at `safe` the acknowledgements of that as well.
    """
    stalls_within_s: float = 100.0
    """So long after anything moved for the last time it counts as stuck; longer than a lease."""
    pause_max_s: float = 3.0
    laden_ratio: float = ScheduleOptions().laden_ratio
    stay_min_s: float = 15.0
    stay_max_s: float = 60.0
    moves_every_s: float = 1.5


class NemesisRun:
    """One run."""

    def __init__(self, bench: NemesisBench, folder: Path, report: Report) -> None:
        self._bench = bench
        self._folder = folder
        self._report = report
        self._began_s = time.monotonic()
        self._is_interrupted = asyncio.Event()
        self.history = History()
        faketime = Path(bench.faketime).resolve() if bench.faketime else None
        self.cluster = Cluster(
            folder, bench.level, lease_s=bench.lease_s, has_replicas=bench.has_replicas, faketime=faketime
        )
        self._workload = Workload(
            self.cluster,
            self.history,
            WorkloadOptions(
                seed=bench.seed,
                rate_per_s=bench.rate_per_s,
                moves_every_s=bench.moves_every_s,
                stay_min_s=bench.stay_min_s,
                stay_max_s=bench.stay_max_s,
            ),
            self._clock,
        )
        self._nemesis = Nemesis(
            self.cluster,
            ScheduleOptions(
                level=bench.level,
                seed=bench.seed,
                kinds=bench.kinds,
                pause_max_s=bench.pause_max_s,
                laden_ratio=bench.laden_ratio,
            ),
            folder,
            clock=self._clock,
            disconnected=self._workload.disconnected,
            well_within_s=bench.stalls_within_s,
        )

    def _clock(self) -> float:
        return time.monotonic() - self._began_s

    async def run(self) -> Outcome:
        """Do it; the first Ctrl-C ends the torment early, the second one everything."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def interrupted() -> None:
            if self._is_interrupted.is_set():
                task.cancel()
            self._is_interrupted.set()

        with suppress(NotImplementedError, ValueError, RuntimeError):  # not the main thread
            loop.add_signal_handler(signal.SIGINT, interrupted)
        self._report("starting seven brokers")
        showing = loop.create_task(self._show())
        try:
            await asyncio.to_thread(self.cluster.start)
            return await self._work()
        finally:
            showing.cancel()
            await self._nemesis.end()
            await self._workload.end()
            await asyncio.to_thread(self.cluster.stop)
            with suppress(NotImplementedError, ValueError, RuntimeError):
                loop.remove_signal_handler(signal.SIGINT)

    async def _work(self) -> Outcome:
        await self._workload.begin()
        problems: list[str] = []
        began_s = self._clock()
        until_s = began_s + self._bench.minutes * 60
        tormenting = [asyncio.create_task(self._nemesis.torment_brokers(until_s))]
        if self._bench.has_link_faults:
            tormenting.append(asyncio.create_task(self._nemesis.torment_links(until_s)))
        interrupting = asyncio.create_task(self._is_interrupted.wait())
        ending = asyncio.create_task(asyncio.sleep(self._bench.minutes * 60))
        try:
            await asyncio.wait([tormenting[0], interrupting], return_when=asyncio.FIRST_COMPLETED)
            if not interrupting.done() and tormenting[0].exception() is None:
                await asyncio.wait([ending, interrupting], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*tormenting, interrupting, ending):
                task.cancel()
            for found in await asyncio.gather(*tormenting, return_exceptions=True):
                if isinstance(found, Stuck):
                    problems.append(str(found))
                elif isinstance(found, Exception):
                    raise found
        if self._is_interrupted.is_set():
            problems.append("interrupted: the run ended early")
        elapsed_s = self._clock() - began_s
        self.cluster.heal()
        self._workload.stop()
        self._report("waiting for rest")
        not_at_rest = await self._until_rest()
        if not_at_rest:
            statuses = msgspec.json.encode(await self.cluster.statuses())
            (self._folder / "statuses.json").write_bytes(msgspec.json.format(statuses))
        await self._workload.end()
        self._report("checking")
        return self._outcome(elapsed_s, problems, not_at_rest)

    async def _until_rest(self) -> list[str]:
        """Wait until all is acknowledged and delivered; returns what is not, if nothing goes on any more."""
        began_s = progress_s = self._clock()
        before: object = None
        while True:
            waiting = [*await self.cluster.problems(), *self._workload.waiting()]
            if not waiting:
                waiting = await asyncio.to_thread(self._missing)  # clients answer their brokers meanwhile
            if not waiting:
                await asyncio.sleep(ECHOES_WITHIN_S)
                return []
            now = (self._workload.deliveries_count, waiting)
            if now != before:
                before, progress_s = now, self._clock()
            now_s = self._clock()
            if now_s > progress_s + self._bench.stalls_within_s or now_s > began_s + REST_WITHIN_S:
                return waiting
            await asyncio.sleep(LOOK_AGAIN_AFTER_S)

    def _missing(self) -> list[str]:
        """What is owed to those who stay and has not come, in words."""
        found: list[str] = []
        for subscription in self.history.subscriptions:
            if subscription.ended_s is None:
                count = sum(1 for _ in missing(self.history, subscription))
                if count:
                    found.append(f"{subscription.subscriber} has not got {count} publications")
        return found

    def _outcome(self, elapsed_s: float, problems: list[str], not_at_rest: list[str]) -> Outcome:
        bench, nemesis, workload = self._bench, self._nemesis, self._workload
        account = check(self.history)
        self.history.write(self._folder / "history.jsonl")
        text = "\n".join(explained(account, self.history, nemesis.done))
        (self._folder / "findings.txt").write_text(text + "\n" if text else "", encoding="utf-8")
        problems = [*problems, *workload.problems]
        is_right = account.is_right(may_lose=bench.level == "received" or "damage" in bench.kinds)
        return Outcome(
            level=bench.level,
            seed=bench.seed,
            minutes=bench.minutes,
            out=str(self._folder),
            elapsed_s=elapsed_s,
            published_count=account.published_count,
            acknowledged_count=account.acknowledged_count,
            owed_count=account.owed_count,
            delivered_count=account.delivered_count,
            lost_count=account.lost_count,
            doubled_count=account.doubled_count,
            reordered_count=account.reordered_count,
            wrong_count=account.wrong_count,
            refused_count=account.refused_count,
            gaps_count=account.gaps_count,
            notices_count=account.notices_count,
            deaths_count=nemesis.deaths_count,
            events=dict(nemesis.counts),
            moved_count=workload.moved_count,
            stayed_count=workload.stayed_count,
            recovered_max_s=max(nemesis.recoveries_s, default=0.0),
            publications_per_s=account.published_count / elapsed_s,
            is_at_rest=not not_at_rest,
            not_at_rest=not_at_rest,
            problems=problems,
            is_right=is_right and not not_at_rest and not problems,
        )

    async def _show(self) -> None:
        """Tell every few seconds how it goes."""
        while True:
            published_count = sum(len(each) for each in self.history.publications.values())
            acknowledged_count = sum(each.accepted_count for each in self.history.publications.values())
            busy = ", ".join(self._nemesis.recovering)
            self._report(
                f"{self._clock():5.0f} s: {published_count:,} published, {acknowledged_count:,} acknowledged, "
                f"{self._workload.deliveries_count:,} delivered, {self._nemesis.deaths_count} deaths and restarts"
                f"{f'; {busy}' if busy else ''}"
            )
            await asyncio.sleep(PROGRESS_EVERY_S)


def run_nemesis(bench: NemesisBench, folder: Path, report: Report) -> Outcome:
    """Do it, with everything that is needed to look into it kept in a folder, which must be empty."""
    folder.mkdir(parents=True, exist_ok=True)

    async def work() -> Outcome:
        return await NemesisRun(bench, folder.resolve(), report).run()

    outcome = run_loop(work())
    (folder / "outcome.json").write_bytes(msgspec.json.format(msgspec.json.encode(outcome)))
    return outcome
