"""Active data: datasets that tell who subscribed to them what is new.

`ActiveData` opens a directory, starts Spark and runs the channels. Everything it has acknowledged is in the directory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from trimtab.activedata.definitions.bodies import parse_body
from trimtab.activedata.definitions.checks import check_arguments, check_body, check_whole
from trimtab.activedata.definitions.data_statements import AlterDataset, Copy, DataStatement, Delete, Put, Update
from trimtab.activedata.definitions.fields import Field, Scalar, ValueMistake
from trimtab.activedata.definitions.routines import CreateFunction, CreateProcedure, Execute
from trimtab.activedata.definitions.statements import (
    CreateBroker,
    CreateChannel,
    CreateDataset,
    CreateFeed,
    DirectorySource,
    Drop,
    InferDataset,
    Placed,
    Query,
    Subscribe,
    SwitchFeed,
    SwitchSubscription,
    Unsubscribe,
    parse_statements,
)
from trimtab.activedata.errors import ActiveDataError, NotFoundError, StatementError
from trimtab.activedata.execution.channel_queries import ChannelQuery, Dataset, compile_channel
from trimtab.activedata.execution.channels import ChannelOptions, RunningChannel
from trimtab.activedata.execution.engine import Engine
from trimtab.activedata.execution.executions import Execution
from trimtab.activedata.execution.inference import inferred_fields
from trimtab.activedata.execution.queries import Queries, QueryLimits
from trimtab.activedata.execution.rates import WINDOW_S, SubscriptionRate, measured_rates
from trimtab.activedata.execution.waits import WaitQueries, Waits, compile_waits
from trimtab.activedata.execution.whole_executions import STATE_NOTE
from trimtab.activedata.execution.whole_queries import WholeQuery, WholeState, compile_whole, is_whole
from trimtab.activedata.feeds.feeds import FeedAnswer, Feeds
from trimtab.activedata.overlay import Overlay
from trimtab.activedata.record_statements import RecordStatements
from trimtab.activedata.routines import FUNCTION, PROCEDURE, PythonFunctions, Routines
from trimtab.activedata.sinks.publishing import Publishing, announcement
from trimtab.activedata.sinks.sinks import Sinks
from trimtab.activedata.spark.session import SparkSettings, is_local
from trimtab.activedata.spark.views import SparkViews, SubscriptionRow, SubscriptionTable
from trimtab.activedata.spark.worker_probe import probe_workers
from trimtab.activedata.storage.catalog_entries import (
    BrokerEntry,
    ChannelEntry,
    DatasetEntry,
    DatasetOptions,
    FeedEntry,
    SubscriptionEntry,
)
from trimtab.activedata.storage.datasets import StoredDataset
from trimtab.activedata.storage.dead_letters import DeadLetter
from trimtab.activedata.storage.maintenance import Maintenance
from trimtab.activedata.storage.results import Result
from trimtab.activedata.storage.stored_data import StoredData, storage_folder

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

RETAIN_S: Final = 86_400.0
"""Results are kept for a day unless a channel says otherwise."""

OPTIONS_NOTE: Final = "CHANNEL OPTIONS"
"""In the catalog: how a channel was defined beyond its body."""
PAUSED: Final = "paused"
"""The reason for which a subscription is suspended that a user has paused."""


class Answer(msgspec.Struct, frozen=True):
    """What a statement did, in words, and the rows that it gave."""

    said: str
    rows: list[dict[str, Any]] = []


class ActiveData:
    """Datasets, feeds, channels and results in a directory, on Spark.

    One process at a time has a directory open. `spark` says how Spark is started, or is a session that runs already
    (in a notebook, for example), beside which active data gets one of its own. `limits` are for statements. Feeds from
    the overlay and publishing brokers are clients of the broker network at the addresses that their statements name.
    `functions` are functions of Python that queries and channels may call, by name, with the type that each returns.
    """

    def __init__(
        self,
        directory: str | Path,
        spark: SparkSettings | SparkSession | SparkViews | None = None,
        limits: QueryLimits | None = None,
        functions: PythonFunctions | None = None,
    ) -> None:
        self.directory = storage_folder(directory)
        self._stored = StoredData(self.directory)
        self.catalog = self._stored.catalog
        self.results_store = self._stored.results
        self.dead_letters = self._stored.dead_letters
        self.datasets = self._stored.datasets
        self._owns_spark = not isinstance(spark, SparkViews)
        if isinstance(spark, SparkViews):
            self.views = spark
            self.views.clear()
        else:
            self.views = self._started(spark or SparkSettings())
        own_tables = {"results": self.results_store.store, "dead_letters": self.dead_letters.store}
        self.queries = Queries(
            self.views, self.datasets, own_tables, self._subscriptions_table, limits or QueryLimits()
        )
        self._records = RecordStatements(self.dead_letters, self.queries, self._records_changed)
        for name, (function, returns) in (functions or {}).items():
            self.views.add_python_function(name, function, returns)
        self.routines = Routines(self.catalog, self.views, self.run)
        self.engine = Engine(
            self.catalog,
            self.views,
            self.datasets,
            self.results_store,
            dead_letter=self._put_aside,
            suspend=self._suspend,
        )
        for channel in self.catalog.channels():
            self._run_channel(channel)
        self.engine.start()
        overlay = Overlay()
        self.feeds = Feeds(self.catalog, self.datasets, self.dead_letters, self.engine.wake, overlay, self.views)
        self.feeds.start()
        self.publishing = Publishing(self.catalog, self.results_store, self.dead_letters, overlay)
        self.publishing.start()
        self.sinks = Sinks(self.catalog, self.results_store, self.dead_letters, self.queries.limits.check_path)
        self.sinks.start()
        others = [self.results_store.store, self.dead_letters.store]
        self.maintenance = Maintenance(lambda: list(self.datasets.values()), others)
        self.maintenance.start()
        self.routines.start()

    def _started(self, spark: SparkSettings | SparkSession) -> SparkViews:
        """Spark, after its workers have shown that they can do what is needed; a directory that cannot be is let go."""
        try:
            views = SparkViews(spark, self.directory / "spark")
        except BaseException:
            self._stored.close()
            raise
        try:
            if not is_local(views.master):
                probe_workers(views.session, self.directory)
        except BaseException:
            views.stop()
            self._stored.close()
            raise
        return views

    def __enter__(self) -> ActiveData:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop feeds and channels, and Spark."""
        self.routines.stop()
        self.maintenance.stop()
        self.feeds.stop()
        self.engine.stop()
        self.publishing.stop()
        self.sinks.stop()
        if self._owns_spark:
            self.views.stop()
        self._stored.close()

    # Statements

    def run(self, text: str) -> list[Answer]:
        """Run statements one after the other; the first wrong one stops with its position, those before it stay.

        A statement is told apart by its first word; see docs/active-data.md.
        """
        return list(self.run_each(text))

    def run_each(self, text: str) -> Iterator[Answer]:
        """Run statements and give each one's answer as it comes."""
        if len(text) > self.queries.limits.statements_max_chars:
            raise ActiveDataError(
                f"{len(text):,} characters of statements; at most {self.queries.limits.statements_max_chars:,} at once"
            )
        for placed in parse_statements(text):
            try:
                yield self._run(text, placed)
            except StatementError:
                raise
            except (NotFoundError, ValueMistake) as error:
                raise StatementError(text, _position(placed), str(error)) from error

    def _run(self, text: str, placed: Placed) -> Answer:
        match placed.statement:
            case CreateDataset() as each:
                return self._create_dataset(each, text, placed.start)
            case InferDataset() as each:
                return self._infer_dataset(each, text, placed.start)
            case CreateFeed() as each:
                return self._create_feed(each, text)
            case SwitchFeed(name=name, running=running):
                self.feeds.switch(self.catalog.feed(name), running)
                return Answer(f"feed {name} {'started' if running else 'stopped'}")
            case CreateChannel() as each:
                return self._create_channel(each, text, placed.start)
            case CreateBroker() as each:
                return self._create_broker(each)
            case Subscribe() as each:
                return self._subscribe(each, text)
            case Unsubscribe(subscription=number, broker=broker):
                self.unsubscribe(number, broker)
                return Answer(f"subscription {number} ended")
            case SwitchSubscription(subscription=number, running=running):
                (self.resume if running else self.pause)(number)
                return Answer(f"subscription {number} {'resumed' if running else 'paused'}")
            case Drop() as each:
                return self._drop(each, text, placed.start)
            case Put() | Update() | Delete() | Copy() | AlterDataset() as change:
                return self._change_records(change, text)
            case CreateFunction() as function:
                return Answer(self.routines.create_function(function, text))
            case CreateProcedure() as procedure:
                return Answer(self.routines.create_procedure(procedure, text))
            case Execute() as execute:
                answer: Answer = self.routines.execute(execute)
                return answer
            case Query(text=query):
                return self._query(query, text, placed.start)

    def _create_broker(self, each: CreateBroker) -> Answer:
        rows: list[dict[str, Any]] = []
        if each.publishes:
            self.publishing.create(each.name, each.address)
        elif self.sinks.takes(each.address):
            secret = self.sinks.create(each.name, each.address, each.secret)
            rows = [] if secret is None else [{"broker": each.name, "secret": secret}]
        elif each.secret is not None:
            raise ValueMistake("SECRET is for brokers at an http address")
        else:
            self.add_broker(each.name, each.address)
        return Answer(f"{'publishing ' if each.publishes else ''}broker {each.name} at {each.address}", rows)

    def _create_dataset(self, each: CreateDataset, text: str, start: int) -> Answer:
        if each.name.lower() in self.datasets:
            if each.if_not_exists:
                return Answer(f"dataset {each.name} exists")
            raise StatementError(text, start, f"there is a dataset {each.name!r} already")
        options = DatasetOptions(
            retain_s=each.retain_s,
            retain_by=each.retain_by,
            partition_by=each.partition_by,
            evolving=each.evolving,
        )
        self._stored.open_dataset(self.catalog.add_dataset(each.name, each.fields, each.keys, each.active, options))
        return Answer(f"{'active ' if each.active else ''}dataset {each.name} created")

    def _infer_dataset(self, each: InferDataset, text: str, start: int) -> Answer:
        """Make a dataset with the fields that Spark finds in files, which are not loaded by this."""
        if each.name.lower() in self.datasets and each.if_not_exists:
            return Answer(f"dataset {each.name} exists")
        self.queries.limits.check_path(each.path)
        found = self.views.asked(lambda: inferred_fields(self.views.session, each.path, each.format))
        defined = each.defined(found)
        try:
            (placed,) = parse_statements(defined)
        except StatementError as error:
            raise StatementError(text, start, f"{error.reason}; found was: {defined}") from None
        assert isinstance(placed.statement, CreateDataset)
        answer = self._create_dataset(placed.statement, text, start)
        return msgspec.structs.replace(answer, rows=[{"field": name, "type": type_} for name, type_ in found.items()])

    def _create_feed(self, each: CreateFeed, text: str) -> Answer:
        if each.name.lower() in (feed.name.lower() for feed in self.catalog.feeds()):
            if each.if_not_exists:
                return Answer(f"feed {each.name} exists")
            raise StatementError(text, each.position, f"there is a feed {each.name!r} already")
        if each.dataset.lower() not in self.datasets:
            raise StatementError(text, each.position, f"there is no dataset {each.dataset!r}")
        if isinstance(each.source, DirectorySource):
            self.queries.limits.check_path(each.source.path)
        self.feeds.check(each.source)
        self.catalog.add_feed(each.name, each.dataset, each.source)
        return Answer(f"feed {each.name} into {each.dataset} created; START FEED {each.name} starts it")

    def _create_channel(self, each: CreateChannel, text: str, start: int) -> Answer:
        if each.name.lower() in self.engine.channels:
            if each.if_not_exists:
                return Answer(f"channel {each.name} exists")
            raise StatementError(text, start, f"there is a channel {each.name!r} already")
        try:
            query = self._compiled(each.body, each.parameters, repetitive=each.repetitive)
            if each.wait_s is not None:
                self._waits_of(each.body, each.parameters, each.wait_for)
            columns = self.views.asked(lambda: self._checked(each, query))
        except StatementError as error:
            raise StatementError(text, each.body_start + error.position, error.reason) from None
        driver = self.datasets.get(query.driver.lower())
        entry = self.catalog.add_channel(
            ChannelEntry(
                id=0,
                name=each.name,
                parameters=each.parameters,
                period_s=each.period_s,
                retain_s=each.retain_s or RETAIN_S,
                body=each.body,
                driver=query.driver,
                lookups=query.lookups,
                columns=columns,
                position=driver.last_sequence if driver is not None and isinstance(query, ChannelQuery) else 0,
            )
        )
        options = ChannelOptions(each.repetitive, each.push, each.wait_s, each.wait_for)
        if options != ChannelOptions():
            self.catalog.set_note(OPTIONS_NOTE, entry.id, msgspec.json.encode(options).decode())
        if isinstance(query, WholeQuery):
            positions = {name: self.datasets[name].last_sequence for name in query.new_in}
            state = WholeState(0, int(time.time() * 1e6), positions)
            self.catalog.set_note(STATE_NOTE, entry.id, msgspec.json.encode(state).decode())
        self._run_channel(entry)
        kind = "continuous channel" if each.period_s is None else f"channel, every {each.period_s:g} s,"
        return Answer(f"{'repetitive ' if each.repetitive else ''}{kind} {each.name} created")

    def _compiled(self, body: str, parameters: tuple[Field, ...], *, repetitive: bool) -> ChannelQuery | WholeQuery:
        known = self._known_datasets()
        if is_whole(body, repetitive=repetitive):
            return compile_whole(body, parameters, known, repetitive=repetitive)
        return compile_channel(body, parameters, known)[0]

    def _checked(self, each: CreateChannel, query: ChannelQuery | WholeQuery) -> tuple[str, ...]:
        if isinstance(query, WholeQuery):
            return check_whole(self.views, self.datasets, each.body, query, each.parameters)
        return check_body(self.views, self.datasets, parse_body(each.body), query, each.parameters)

    def _run_channel(self, entry: ChannelEntry) -> RunningChannel:
        noted = self.catalog.note(OPTIONS_NOTE, entry.id)
        options = ChannelOptions() if noted is None else msgspec.json.decode(noted, type=ChannelOptions)
        query = self._compiled(entry.body, entry.parameters, repetitive=options.repetitive)
        position = max(entry.position, self.results_store.channel_position(entry.id))
        suspended = self.catalog.suspended()
        rows = (
            SubscriptionRow(each.id, each.since, each.arguments)
            for each in self.catalog.subscriptions(entry.id)
            if each.id not in suspended
        )
        table = SubscriptionTable(entry.id, entry.parameters, rows)
        new_in = query.new_in if isinstance(query, WholeQuery) else ()
        channel = RunningChannel(
            msgspec.structs.replace(entry, position=position),
            query,
            table,
            time.monotonic(),
            options=options,
            state=self.engine.whole.state_of(entry.id, new_in) if isinstance(query, WholeQuery) else None,
        )
        if options.wait_s is not None:
            queries = self._waits_of(entry.body, entry.parameters, options.wait_for)
            channel.waits = Waits(entry.id, queries, options.wait_s, self.catalog, self.results_store)
        self.engine.add(channel)
        return channel

    def _waits_of(self, body: str, parameters: tuple[Field, ...], alias: str) -> WaitQueries:
        if is_whole(body, repetitive=False):
            raise StatementError(
                body, 0, "a body that runs as a whole cannot wait: its new records are of several datasets"
            )
        return compile_waits(body, parameters, self._known_datasets(), alias)

    def _known_datasets(self) -> dict[str, Dataset]:
        """What queries must know of the datasets, by name in lower case."""
        entries = {name: each.entry for name, each in self.datasets.items()}
        return {name: Dataset(each.name, each.fields, each.active, each.keys) for name, each in entries.items()}

    def _drop(self, each: Drop, text: str, start: int) -> Answer:
        if each.kind in (FUNCTION, PROCEDURE):
            try:
                return Answer(self.routines.drop(each.kind, each.name))
            except NotFoundError:
                if each.if_exists:
                    return Answer(f"there is no {each.kind.lower()} {each.name}")
                raise
        try:
            finders: dict[str, Callable[[str], DatasetEntry | FeedEntry | ChannelEntry | BrokerEntry]] = {
                "DATASET": self.catalog.dataset,
                "FEED": self.catalog.feed,
                "CHANNEL": self.catalog.channel,
                "BROKER": self.catalog.broker,
            }
            entry = finders[each.kind](each.name)
        except NotFoundError:
            if each.if_exists:
                return Answer(f"there is no {each.kind.lower()} {each.name}")
            raise
        users = [] if each.cascade else self._users(each.kind, entry.id, entry.name)
        if users:
            raise StatementError(text, start, f"{entry.name} cannot be dropped: {', '.join(users)} depend on it")
        match each.kind:
            case "CHANNEL":
                self.engine.remove(entry.name)
                self.results_store.remove_channel(entry.id)
            case "FEED":
                self.feeds.switch(self.catalog.feed(entry.name), False)
            case "DATASET":
                self.views.hide(entry.name)
                self.datasets.pop(entry.name.lower())
            case "BROKER":
                self.publishing.end(entry.id)
                self.sinks.drop(entry.id)
                for subscription in self.catalog.subscriptions(broker_id=entry.id):
                    self.unsubscribe(subscription.id, entry.name)
        self.catalog.drop(each.kind, entry.id)
        if each.kind == "DATASET":
            self._stored.remove_dropped()
        return Answer(f"{each.kind.lower()} {entry.name} dropped")

    def _users(self, kind: str, entry_id: int, name: str) -> list[str]:
        """What depends on a definition, in words."""
        found: list[str] = []
        if kind == "DATASET":
            found += [f"feed {each.name}" for each in self.catalog.feeds() if each.dataset.lower() == name.lower()]
            for channel in self.catalog.channels():
                if name.lower() in (channel.driver.lower(), *(each.lower() for each in channel.lookups)):
                    found.append(f"channel {channel.name}")
        if kind == "CHANNEL" and (count := self.catalog.subscriptions_count(entry_id)):
            found.append(f"{count:,} subscriptions")
        if kind == "BROKER" and (count := len(self.catalog.subscriptions(broker_id=entry_id))):
            found.append(f"{count:,} subscriptions (CASCADE ends them)")
        if kind == "FEED" and self.catalog.feed(name).running:
            found.append(f"it is running (STOP FEED {name}), and records")
        return found

    def _change_records(self, statement: DataStatement, text: str) -> Answer:
        name = statement.name if isinstance(statement, AlterDataset) else statement.dataset
        done = self._records.run(statement, self._dataset(name), text)
        return Answer(done.said, done.rows)

    def _records_changed(self) -> None:
        self.engine.wake()

    def _dataset(self, name: str) -> StoredDataset:
        self.catalog.dataset(name)
        return self.datasets[name.lower()]

    def _query(self, query: str, text: str, start: int) -> Answer:
        found = self.views.asked(lambda: self.queries.answer(query, text, start))
        return Answer(f"{'the first ' if found.is_cut else ''}{len(found.rows):,} rows", found.rows)

    def frame(self, query: str) -> DataFrame:
        """A query over datasets, results, dead letters and subscriptions as a DataFrame of Spark, without limits."""
        return self.queries.frame(query)

    def _subscriptions_table(self) -> pa.Table:
        """All subscriptions as queries see them; `state` tells why one that gets no results gets none."""
        import pyarrow as pa

        names = {each.id: each.name for each in self.catalog.channels()}
        brokers = self.catalog.brokers_of_subscriptions()
        suspended = self.catalog.suspended()
        found = self.catalog.subscriptions()
        newest = self.results_store.newest([each.id for each in found], 0)
        columns = {
            "id": pa.array([each.id for each in found], pa.int64()),
            "channel": pa.array([names.get(each.channel) for each in found], pa.string()),
            "arguments": pa.array([msgspec.json.encode(each.arguments).decode() for each in found], pa.string()),
            "brokers": pa.array([", ".join(brokers.get(each.id, [])) for each in found], pa.string()),
            "since": pa.array([each.since for each in found], pa.int64()),
            "last_position": pa.array([newest.get(each.id) for each in found], pa.int64()),
            "state": pa.array([suspended.get(each.id, "active") for each in found], pa.string()),
        }
        return pa.table(columns)

    # Feeds

    def feed(self, name: str, lines: bytes | Iterable[Mapping[str, Any]]) -> FeedAnswer:
        """Give records to a feed; those that it accepts are durable when this returns."""
        if not isinstance(lines, bytes):
            lines = b"\n".join(msgspec.json.encode(each) for each in lines)
        return self.feeds.take_lines(self.catalog.feed(name), lines, "http", 0)

    # Brokers and subscriptions

    def add_broker(self, name: str, address: str) -> BrokerEntry:
        """Register a broker that fetches results, or change its address."""
        known = next((each for each in self.catalog.brokers() if each.name.lower() == name.lower()), None)
        if known is not None and self.publishing.publishes(known):
            raise ValueMistake(f"{known.name} is a publishing broker; another one needs another name")
        if known is not None and self.sinks.is_sink(known):
            raise ValueMistake(f"{known.name} is a broker at {known.address}; another one needs another name")
        return self.catalog.add_broker(name, address)

    def _subscribe(self, each: Subscribe, text: str) -> Answer:
        channel = self.catalog.channel(each.channel)
        names = [field.name for field in channel.parameters]
        if each.positional and len(each.positional) != len(names):
            said = f"{each.channel} takes {len(names)} arguments ({', '.join(names)}), {len(each.positional)} are given"
            raise StatementError(text, each.position, said)
        arguments = dict(zip(names, each.positional, strict=True)) if each.positional else each.named
        made = self.subscribe_many(each.channel, [arguments], each.broker)[0]
        return Answer(f"subscription {made.id}", [{"subscription": made.id}])

    def subscribe(self, channel: str, broker: str, **arguments: Scalar) -> int:
        """Subscribe a broker to a channel; answers the subscription's number, the same if there is one already."""
        return self.subscribe_many(channel, [arguments], broker)[0].id

    def subscribe_many(
        self, channel: str, arguments: list[dict[str, Scalar]], broker: str, *, declared: bool = False
    ) -> list[SubscriptionEntry]:
        """Subscribe a broker to a channel with many sets of arguments; all of them or, if one is wrong, none.

        `declared` says that the broker itself wants them: they end when it declares its set without them.
        """
        entry = self.catalog.channel(channel)
        checked = [check_arguments(entry, each) for each in arguments]
        if self.publishing.publishes(self.catalog.broker(broker)):
            announcement(entry)
        running = self.engine.channels[entry.name.lower()]
        dataset = self.datasets.get(running.query.driver.lower())
        with nullcontext() if dataset is None else dataset.lock:
            since = 0 if dataset is None else dataset.last_sequence
            broker_id = self.catalog.broker(broker).id
            made, new = self.catalog.subscribe(entry.id, broker_id, checked, since, declared=declared)
            running.subscriptions.add([SubscriptionRow(each.id, each.since, each.arguments) for each in new])
        return made

    def unsubscribe(self, subscription: int, broker: str | None = None) -> None:
        """End a subscription of a broker, or of all; once nobody has it, its results can no longer be fetched."""
        entry = self.catalog.subscription(subscription)
        if not self.catalog.unsubscribe([subscription], None if broker is None else self.catalog.broker(broker).id):
            return
        for channel in self.engine.channels.values():
            if channel.entry.id == entry.channel:
                channel.subscriptions.end({subscription})
        self.results_store.forget([subscription])

    def suspended(self) -> dict[int, str]:
        """The subscriptions that are suspended because their channel fails with them, with the reasons."""
        return self.catalog.suspended()

    def suspended_reason(self, subscription: int) -> str | None:
        """Why a subscription is suspended, if it is."""
        return self.catalog.suspended().get(subscription)

    def suspended_of(self, broker_id: int) -> dict[str, str]:
        """The suspended subscriptions of a broker, with the reasons."""
        suspended = self.catalog.suspended()
        mine = set(self.catalog.subscription_ids(broker_id)) if suspended else set()
        return {str(each): reason for each, reason in suspended.items() if each in mine}

    def counts_of(self, subscriptions: list[int]) -> dict[str, list[int]]:
        """How many results subscriptions have had since the process started, and their bytes: the truth of lambda_k."""
        counts = {each: self.results_store.count_of(each) for each in subscriptions}
        return {str(each): [count.results_count, count.results_bytes] for each, count in counts.items()}

    def are_pushed(self, subscriptions: list[int]) -> bool:
        """Whether all of these are of push channels, whose results are told with the news of them."""
        pushed = {each.entry.id for each in self.engine.channels.values() if each.options.push}
        return bool(pushed) and all(self.catalog.subscription(each).channel in pushed for each in subscriptions)

    def pause(self, subscription: int) -> None:
        """Give a subscription no results until it is resumed, for records that come meanwhile never."""
        entry = self.catalog.subscription(subscription)
        if subscription not in self.catalog.suspended():
            running = next(each for each in self.engine.channels.values() if each.entry.id == entry.channel)
            self._suspend(running, subscription, PAUSED)

    def resume(self, subscription: int) -> None:
        """Let a paused or suspended subscription get results again, for records from now on."""
        entry = self.catalog.subscription(subscription)
        if subscription not in self.catalog.suspended():
            raise NotFoundError(f"subscription {subscription} is neither paused nor suspended")
        running = next(each for each in self.engine.channels.values() if each.entry.id == entry.channel)
        dataset = self.datasets.get(running.query.driver.lower())
        with nullcontext() if dataset is None else dataset.lock:
            since = 0 if dataset is None else dataset.last_sequence
            self.catalog.resume(subscription, since)
            running.subscriptions.resume(SubscriptionRow(entry.id, since, entry.arguments))

    def _suspend(self, channel: RunningChannel, subscription: int, reason: str) -> None:
        self.catalog.suspend(subscription, reason, time.time())
        channel.subscriptions.end({subscription})
        with self.results_store.news:  # its owners are told with the next news
            self.results_store.tell_news()

    def executions(self) -> list[Execution]:
        """The last executions of channels, oldest first: how much, how long, and which way they took."""
        return list(self.engine.executions.done)

    # Results

    def results(self, subscription: int, after: int = 0, limit: int = 1_000) -> list[Result]:
        """Results of a subscription above a position, oldest first."""
        self.catalog.subscription(subscription)
        return self.results_store.fetch(subscription, after, limit)

    def wait(self, subscriptions: list[int], after: int, wait_s: float) -> dict[int, int]:
        """Wait until one of these subscriptions has results above a position; answers the newest position of each."""
        end_s = time.monotonic() + wait_s
        while True:
            found = self.results_store.newest(subscriptions, after)
            left_s = end_s - time.monotonic()
            if found or left_s <= 0:
                return found
            with self.results_store.news:
                if self.results_store.last_position <= after:
                    self.results_store.news.wait(left_s)
                else:
                    self.results_store.news.wait(min(left_s, 1.0))

    def rates(self, window_s: float = WINDOW_S) -> list[SubscriptionRate]:
        """Notifications and bytes per second of each subscription (lambda_k) over the last `window_s`, by Spark."""
        to_us = int(time.time() * 1e6)

        def measured() -> pa.Table:
            frame = self.frame("SELECT channel, subscription, executed_us, payload FROM results")
            return measured_rates(frame, to_us - int(window_s * 1e6), to_us).orderBy("subscription").toArrow()

        found = self.views.asked(measured)
        return [SubscriptionRate(**row) for row in found.to_pylist()]

    def settle(self, timeout_s: float = 60.0) -> None:
        """Wait until the continuous channels have seen every record; for tests, notebooks and the command line."""
        end_s = time.monotonic() + timeout_s
        while time.monotonic() < end_s:
            behind = [
                each.entry.name
                for each in self.engine.channels.values()
                if each.entry.period_s is None and (each.busy or self.engine.waiting_count(each) > 0)
            ]
            if not behind:
                return
            time.sleep(0.01)
        raise ActiveDataError(f"after {timeout_s:g} s these channels are still behind: {', '.join(behind)}")

    def _put_aside(self, channel: RunningChannel, records: pa.Table, reason: str) -> None:
        letters = [
            DeadLetter(channel.entry.name, "channel", row.pop("_sequence"), reason, msgspec.json.encode(row).decode())
            for row in records.to_pylist()
        ]
        self.dead_letters.add(letters, {f"channel-{channel.entry.id}": letters[-1].place})


def _position(placed: Placed) -> int:
    return getattr(placed.statement, "position", 0) or placed.start
