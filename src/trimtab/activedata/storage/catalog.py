"""The definitions, subscriptions, positions and counts of active data, in SQLite.

What a reader sees (records, results) is in Delta tables; here stands what is needed to go on after a restart. Where
both know something (how far a channel has come), the Delta table is right, and the catalog is brought forward.

A change is on the disk when its call returns. Those that are made again from the tables after a loss of power, and
counts for people, reach the disk with the next change that waits for it (`lazily`).
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from trimtab.activedata.definitions.fields import Field, Scalar
from trimtab.activedata.definitions.statements import Source
from trimtab.activedata.errors import ActiveDataError, NotFoundError, StorageError
from trimtab.activedata.storage.catalog_entries import (
    BrokerEntry,
    ChannelEntry,
    DatasetEntry,
    DatasetOptions,
    FeedEntry,
    FilePosition,
    SubscriptionEntry,
)

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS datasets (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE COLLATE NOCASE, fields TEXT NOT NULL,
    key TEXT NOT NULL, active INTEGER NOT NULL, options TEXT NOT NULL DEFAULT '{}');
CREATE TABLE IF NOT EXISTS feeds (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE COLLATE NOCASE,
    dataset TEXT NOT NULL COLLATE NOCASE, source TEXT NOT NULL, running INTEGER NOT NULL DEFAULT 0,
    accepted INTEGER NOT NULL DEFAULT 0,
    repeated INTEGER NOT NULL DEFAULT 0, rejected INTEGER NOT NULL DEFAULT 0, error TEXT);
CREATE TABLE IF NOT EXISTS offsets (
    feed INTEGER NOT NULL, source TEXT NOT NULL, offset INTEGER NOT NULL, PRIMARY KEY (feed, source)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS file_positions (
    feed INTEGER NOT NULL, file TEXT NOT NULL, offset INTEGER NOT NULL, generation INTEGER NOT NULL,
    "check" TEXT NOT NULL, PRIMARY KEY (feed, file)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS channels (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE COLLATE NOCASE, parameters TEXT NOT NULL,
    period_s REAL, retain_s REAL NOT NULL, body TEXT NOT NULL, driver TEXT NOT NULL COLLATE NOCASE,
    lookups TEXT NOT NULL, columns TEXT NOT NULL, position INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS brokers (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE COLLATE NOCASE, address TEXT NOT NULL,
    seen_s REAL);
CREATE TABLE IF NOT EXISTS subscriptions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, channel INTEGER NOT NULL, arguments TEXT NOT NULL, since INTEGER NOT NULL,
    UNIQUE (channel, arguments));
CREATE TABLE IF NOT EXISTS subscribers (
    broker INTEGER NOT NULL, subscription INTEGER NOT NULL, PRIMARY KEY (broker, subscription)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS declared (
    broker INTEGER NOT NULL, subscription INTEGER NOT NULL, PRIMARY KEY (broker, subscription)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS subscribers_of_subscription ON subscribers (subscription);
CREATE TABLE IF NOT EXISTS routines (
    kind TEXT NOT NULL, name TEXT NOT NULL COLLATE NOCASE, definition TEXT NOT NULL, PRIMARY KEY (kind, name));
CREATE TABLE IF NOT EXISTS suspended (subscription INTEGER PRIMARY KEY, reason TEXT NOT NULL, at_s REAL NOT NULL);
CREATE TABLE IF NOT EXISTS notes (
    kind TEXT NOT NULL, id INTEGER NOT NULL, text TEXT NOT NULL, PRIMARY KEY (kind, id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS acknowledged (name TEXT PRIMARY KEY, version INTEGER NOT NULL) WITHOUT ROWID;
"""


FORMAT: Final = 2
"""The format of the directory: 1 kept the keys of active datasets in this file, and had no changes beside a base."""

DROPPED_KIND: Final = "DROPPED"
"""The kind of notes on datasets that were dropped and whose files may still be there."""

SEEN_WRITTEN_EVERY_S: Final = 5.0


class Catalog:
    """All definitions, readable and changeable from any thread, durable when a call returns.

    Whoever reads does not wait for whoever writes: there is a connection for each.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.RLock()
        try:
            self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._check_format()
            self._connection.executescript(f"PRAGMA synchronous = FULL; BEGIN; {_SCHEMA} {self._undeclared()} COMMIT")
            self._migrate()
            (found,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
        except sqlite3.DatabaseError as error:
            found = str(error)
        if found != "ok":
            raise self._damaged(str(found))
        self._changer: int | None = None
        """The thread that is changing something, which sees its own changes."""
        self._reader_lock = threading.Lock()
        self._reader = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._seen_s: dict[int, float] = {}
        """When brokers asked for something, and when that was written down last."""
        self._seen_written_s: dict[int, float] = {}
        try:
            _ = self.datasets(), self.feeds(), self.channels(), self.subscriptions()
        except ValueError as error:
            self.close()
            raise self._damaged(str(error)) from None

    def _undeclared(self) -> str:
        """What a catalog of an earlier version lacks; its brokers' subscriptions count as declared by the brokers."""
        (known,) = self._connection.execute(
            "SELECT count(*) FROM sqlite_master WHERE name = 'declared' AND type = 'table'"
        ).fetchone()
        return "" if known else "INSERT INTO declared SELECT broker, subscription FROM subscribers;"

    def _check_format(self) -> None:
        (found,) = self._connection.execute("PRAGMA user_version").fetchone()
        if found > FORMAT:
            self._connection.close()
            raise StorageError(
                f"{self._path}: the directory has format {found}, and this version of Trimtab knows formats up to "
                f"{FORMAT}: use the version that wrote it; nothing was changed"
            )

    def _migrate(self) -> None:
        """Bring a catalog of format 1 forward; its tables follow when they are opened."""
        if self._connection.execute("PRAGMA user_version").fetchone()[0] == FORMAT:
            return
        columns = [row[1] for row in self._connection.execute("PRAGMA table_info(datasets)")]
        self._connection.execute("BEGIN IMMEDIATE")
        if "options" not in columns:
            self._connection.execute("ALTER TABLE datasets ADD COLUMN options TEXT NOT NULL DEFAULT '{}'")
        for id_, key in self._connection.execute("SELECT id, key FROM datasets").fetchall():
            if not key.startswith("["):
                values = (json.dumps([key]), msgspec.json.encode(DatasetOptions(_drawn_seed())).decode(), id_)
                self._connection.execute("UPDATE datasets SET key = ?, options = ? WHERE id = ?", values)
        self._connection.execute("DROP TABLE IF EXISTS keys")
        self._connection.execute(f"PRAGMA user_version = {FORMAT}")
        self._connection.execute("COMMIT")

    def _damaged(self, problem: str) -> StorageError:
        return StorageError(
            f"{self._path}: {problem}. The catalog is damaged and was left as it is: restore the whole directory "
            f"{self._path.parent} from a backup, or begin with an empty one and feed it again"
        )

    def close(self) -> None:
        """Close the file."""
        with self._lock, self._reader_lock:
            self._connection.close()
            self._reader.close()

    @contextmanager
    def _changing(self, *, lazily: bool = False) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                self._connection.execute(f"PRAGMA synchronous = {'NORMAL' if lazily else 'FULL'}")
                self._connection.execute("BEGIN IMMEDIATE")
                self._changer = threading.get_ident()
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException as error:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.OperationalError):
                    raise StorageError(f"the catalog cannot be written: {error}") from error
                raise
            finally:
                self._changer = None

    def _rows(self, query: str, *values: object) -> list[tuple[object, ...]]:
        if self._changer == threading.get_ident():
            return self._connection.execute(query, values).fetchall()
        with self._reader_lock:
            return self._reader.execute(query, values).fetchall()

    # Datasets

    def add_dataset(
        self,
        name: str,
        fields: tuple[Field, ...],
        keys: tuple[str, ...],
        active: bool,
        options: DatasetOptions = DatasetOptions(),  # noqa: B008 (frozen)
    ) -> DatasetEntry:
        """Define a dataset."""
        options = msgspec.structs.replace(options, seed=_drawn_seed())
        with self._changing() as connection:
            cursor = connection.execute(
                "INSERT INTO datasets (name, fields, key, active, options) VALUES (?, ?, ?, ?, ?)",
                (
                    name,
                    msgspec.json.encode(fields).decode(),
                    json.dumps(keys),
                    active,
                    msgspec.json.encode(options).decode(),
                ),
            )
            return DatasetEntry(cursor.lastrowid or 0, name, fields, keys, active, options)

    def change_dataset(self, entry: DatasetEntry) -> DatasetEntry:
        """Remember a dataset's definition with further fields or other options."""
        with self._changing() as connection:
            connection.execute(
                "UPDATE datasets SET fields = ?, options = ? WHERE id = ?",
                (msgspec.json.encode(entry.fields).decode(), msgspec.json.encode(entry.options).decode(), entry.id),
            )
        return entry

    def datasets(self) -> list[DatasetEntry]:
        """All datasets."""
        rows = self._rows("SELECT id, name, fields, key, active, options FROM datasets ORDER BY id")
        return [
            DatasetEntry(
                int(str(i)),
                str(n),
                msgspec.json.decode(str(f), type=tuple[Field, ...]),
                msgspec.json.decode(str(k), type=tuple[str, ...]),
                bool(a),
                msgspec.json.decode(str(o), type=DatasetOptions),
            )
            for i, n, f, k, a, o in rows
        ]

    def dataset(self, name: str) -> DatasetEntry:
        """One dataset."""
        return _the_one(self.datasets(), name, "dataset")

    # Feeds

    def add_feed(self, name: str, dataset: str, source: Source) -> None:
        """Define a feed, which does not run yet."""
        with self._changing() as connection:
            connection.execute(
                "INSERT INTO feeds (name, dataset, source) VALUES (?, ?, ?)",
                (name, dataset, msgspec.json.encode(source).decode()),
            )

    def feeds(self) -> list[FeedEntry]:
        """All feeds."""
        rows = self._rows(
            "SELECT id, name, dataset, source, running, accepted, repeated, rejected, error FROM feeds ORDER BY id"
        )
        return [
            FeedEntry(
                id=int(str(row[0])),
                name=str(row[1]),
                dataset=str(row[2]),
                source=msgspec.json.decode(str(row[3]), type=Source),
                running=bool(row[4]),
                accepted_count=int(str(row[5])),
                repeated_count=int(str(row[6])),
                rejected_count=int(str(row[7])),
                error=None if row[8] is None else str(row[8]),
            )
            for row in rows
        ]

    def feed(self, name: str) -> FeedEntry:
        """One feed."""
        return _the_one(self.feeds(), name, "feed")

    def switch_feed(self, feed_id: int, running: bool) -> None:
        """Remember whether a feed is to run."""
        with self._changing() as connection:
            connection.execute("UPDATE feeds SET running = ?, error = NULL WHERE id = ?", (running, feed_id))

    def count_fed(self, feed_id: int, accepted: int, repeated: int, rejected: int) -> None:
        """Add to a feed's counts."""
        with self._changing(lazily=True) as connection:
            connection.execute(
                "UPDATE feeds SET accepted = accepted + ?, repeated = repeated + ?, rejected = rejected + ?,"
                " error = NULL WHERE id = ?",
                (accepted, repeated, rejected, feed_id),
            )

    def feed_failed(self, feed_id: int, error: str) -> None:
        """Remember why a feed does not get on."""
        with self._changing() as connection:
            connection.execute("UPDATE feeds SET error = ? WHERE id = ?", (error, feed_id))

    def file_positions(self, feed_id: int) -> dict[str, FilePosition]:
        """How far each file of a feed has been read; directories of earlier versions know offsets alone."""
        found = {
            str(file): FilePosition(int(str(offset)))
            for file, offset in self._rows("SELECT source, offset FROM offsets WHERE feed = ?", feed_id)
        }
        query = 'SELECT file, offset, generation, "check" FROM file_positions WHERE feed = ?'
        for file, offset, generation, check in self._rows(query, feed_id):
            found[str(file)] = FilePosition(int(str(offset)), int(str(generation)), str(check))
        return found

    def set_file_position(self, feed_id: int, file: str, position: FilePosition) -> None:
        """Remember how far a file has been read."""
        with self._changing() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO file_positions VALUES (?, ?, ?, ?, ?)",
                (feed_id, file, position.offset, position.generation, position.check),
            )

    # Versions of tables

    def acknowledged_version(self, table: str) -> int | None:
        """Up to which version somebody was told that a table's commits are stored."""
        rows = self._rows("SELECT version FROM acknowledged WHERE name = ?", table)
        return int(str(rows[0][0])) if rows else None

    def acknowledge_version(self, table: str, version: int) -> None:
        """Write down that a table's commits up to a version are on the disk, before anybody is told."""
        with self._changing() as connection:
            connection.execute("INSERT OR REPLACE INTO acknowledged VALUES (?, ?)", (table, version))

    # What feeds and brokers note for their next life

    def note(self, kind: str, entry_id: int) -> str | None:
        """What was noted last for a definition."""
        rows = self._rows("SELECT text FROM notes WHERE kind = ? AND id = ?", kind, entry_id)
        return str(rows[0][0]) if rows else None

    def dropped_folders(self) -> dict[int, str]:
        """The folders of datasets that were dropped, by number, as long as their files may be there."""
        rows = self._rows("SELECT id, text FROM notes WHERE kind = ?", DROPPED_KIND)
        return {int(str(id_)): str(text) for id_, text in rows}

    def set_note(self, kind: str, entry_id: int, text: str | None) -> None:
        """Note something for a definition in place of what was noted before, or nothing."""
        with self._changing() as connection:
            if text is None:
                connection.execute("DELETE FROM notes WHERE kind = ? AND id = ?", (kind, entry_id))
            else:
                connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?, ?)", (kind, entry_id, text))

    # Channels

    def add_channel(self, entry: ChannelEntry) -> ChannelEntry:
        """Define a channel; its number is given here."""
        with self._changing() as connection:
            cursor = connection.execute(
                "INSERT INTO channels (name, parameters, period_s, retain_s, body, driver, lookups, columns, position)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    entry.name,
                    msgspec.json.encode(entry.parameters).decode(),
                    entry.period_s,
                    entry.retain_s,
                    entry.body,
                    entry.driver,
                    json.dumps(entry.lookups),
                    json.dumps(entry.columns),
                    entry.position,
                ),
            )
            return msgspec.structs.replace(entry, id=cursor.lastrowid or 0)

    def channels(self) -> list[ChannelEntry]:
        """All channels."""
        rows = self._rows(
            "SELECT id, name, parameters, period_s, retain_s, body, driver, lookups, columns, position"
            " FROM channels ORDER BY id"
        )
        return [
            ChannelEntry(
                id=int(str(row[0])),
                name=str(row[1]),
                parameters=msgspec.json.decode(str(row[2]), type=tuple[Field, ...]),
                period_s=None if row[3] is None else float(str(row[3])),
                retain_s=float(str(row[4])),
                body=str(row[5]),
                driver=str(row[6]),
                lookups=tuple(json.loads(str(row[7]))),
                columns=tuple(json.loads(str(row[8]))),
                position=int(str(row[9])),
            )
            for row in rows
        ]

    def channel(self, name: str) -> ChannelEntry:
        """One channel."""
        return _the_one(self.channels(), name, "channel")

    def set_positions(self, positions: dict[int, int]) -> None:
        """Remember the last record that each channel has seen; never goes back."""
        with self._changing(lazily=True) as connection:
            connection.executemany(
                "UPDATE channels SET position = max(position, ?) WHERE id = ?",
                [(position, channel) for channel, position in positions.items()],
            )

    # Functions and procedures

    def add_routine(self, kind: str, name: str, definition: str) -> None:
        """Keep the definition of a function or a procedure."""
        with self._changing() as connection:
            connection.execute("INSERT INTO routines VALUES (?, ?, ?)", (kind, name, definition))

    def routines(self, kind: str) -> list[str]:
        """The definitions of a kind, in the order in which they were made."""
        return [
            str(text) for (text,) in self._rows("SELECT definition FROM routines WHERE kind = ? ORDER BY rowid", kind)
        ]

    def remove_routine(self, kind: str, name: str) -> None:
        """Forget a function or a procedure."""
        with self._changing() as connection:
            connection.execute("DELETE FROM routines WHERE kind = ? AND name = ?", (kind, name))

    # Brokers and subscriptions

    def add_broker(self, name: str, address: str) -> BrokerEntry:
        """Define a broker, or change the address of one; without an address it keeps the one that it has."""
        with self._changing() as connection:
            connection.execute(
                "INSERT INTO brokers (name, address) VALUES (?, ?)"
                " ON CONFLICT (name) DO UPDATE SET address = coalesce(nullif(excluded.address, ''), address)",
                (name, address),
            )
        return self.broker(name)

    def brokers(self) -> list[BrokerEntry]:
        """All brokers."""
        rows = self._rows("SELECT id, name, address, seen_s FROM brokers ORDER BY id")
        return [
            BrokerEntry(id, name, address, self._seen_s.get(id, seen_s))  # type: ignore[call-overload,arg-type]
            for id, name, address, seen_s in rows
        ]

    def broker(self, name: str) -> BrokerEntry:
        """One broker."""
        return _the_one(self.brokers(), name, "broker")

    def broker_seen(self, broker_id: int, now_s: float) -> None:
        """Remember that a broker asked for something, on the disk from time to time: it asks very often."""
        self._seen_s[broker_id] = now_s
        if now_s - self._seen_written_s.get(broker_id, 0.0) >= SEEN_WRITTEN_EVERY_S:
            self._seen_written_s[broker_id] = now_s
            with self._changing(lazily=True) as connection:
                connection.execute("UPDATE brokers SET seen_s = ? WHERE id = ?", (now_s, broker_id))

    def subscribe(
        self,
        channel_id: int,
        broker_id: int,
        arguments: list[dict[str, Scalar]],
        since: int,
        *,
        declared: bool = False,
    ) -> tuple[list[SubscriptionEntry], list[SubscriptionEntry]]:
        """Make a broker subscribe; answers the subscriptions in order, and those of them that did not exist before.

        What the broker itself `declared` it may leave out of its next declaration; what others made for it stays.
        """
        found: list[SubscriptionEntry] = []
        new: dict[int, SubscriptionEntry] = {}
        with self._changing() as connection:
            for values in arguments:
                text = _arguments_text(values)
                cursor = connection.execute(
                    "INSERT OR IGNORE INTO subscriptions (channel, arguments, since) VALUES (?, ?, ?)",
                    (channel_id, text, since),
                )
                row = connection.execute(
                    "SELECT id, since FROM subscriptions WHERE channel = ? AND arguments = ?", (channel_id, text)
                ).fetchone()
                entry = SubscriptionEntry(row[0], channel_id, values, row[1])
                found.append(entry)
                if cursor.rowcount:
                    new[entry.id] = entry
            connection.executemany(
                "INSERT OR IGNORE INTO subscribers (broker, subscription) VALUES (?, ?)",
                [(broker_id, each.id) for each in found],
            )
            if declared:
                connection.executemany(
                    "INSERT OR IGNORE INTO declared (broker, subscription) VALUES (?, ?)",
                    [(broker_id, each.id) for each in found],
                )
        return found, list(new.values())

    def unsubscribe(self, ids: Iterable[int], broker_id: int | None = None) -> list[int]:
        """End subscriptions of a broker, or of all; answers those that no broker wants any more, which are gone."""
        ended: list[int] = []
        with self._changing() as connection:
            for each in ids:
                condition, values = ("", (each,)) if broker_id is None else (" AND broker = ?", (each, broker_id))
                connection.execute(f"DELETE FROM subscribers WHERE subscription = ?{condition}", values)
                connection.execute(f"DELETE FROM declared WHERE subscription = ?{condition}", values)
                cursor = connection.execute(
                    "DELETE FROM subscriptions WHERE id = ? AND NOT EXISTS"
                    " (SELECT 1 FROM subscribers WHERE subscription = subscriptions.id)",
                    (each,),
                )
                if cursor.rowcount:
                    connection.execute("DELETE FROM suspended WHERE subscription = ?", (each,))
                    ended.append(each)
        return ended

    def subscriptions(self, channel_id: int | None = None, broker_id: int | None = None) -> list[SubscriptionEntry]:
        """The subscriptions, all or those of a channel or a broker."""
        conditions, values = ["1"], []
        if channel_id is not None:
            conditions.append("channel = ?")
            values.append(channel_id)
        if broker_id is not None:
            conditions.append("id IN (SELECT subscription FROM subscribers WHERE broker = ?)")
            values.append(broker_id)
        query = f"SELECT id, channel, arguments, since FROM subscriptions WHERE {' AND '.join(conditions)} ORDER BY id"
        return [_subscription(row) for row in self._rows(query, *values)]

    def subscription_ids(self, broker_id: int) -> list[int]:
        """The subscriptions of a broker by number alone, which is soon done."""
        found = self._rows("SELECT subscription FROM subscribers WHERE broker = ? ORDER BY subscription", broker_id)
        return [int(str(row[0])) for row in found]

    def brokers_of_subscriptions(self) -> dict[int, list[str]]:
        """The names of the brokers of each subscription."""
        found: dict[int, list[str]] = {}
        query = "SELECT subscription, name FROM subscribers JOIN brokers ON id = broker ORDER BY name"
        for subscription, name in self._rows(query):
            found.setdefault(int(str(subscription)), []).append(str(name))
        return found

    def declared_ids(self, broker_id: int) -> set[int]:
        """The subscriptions that a broker declared itself."""
        found = self._rows("SELECT subscription FROM declared WHERE broker = ?", broker_id)
        return {int(str(row[0])) for row in found}

    def subscription(self, subscription_id: int) -> SubscriptionEntry:
        """One subscription."""
        rows = self._rows("SELECT id, channel, arguments, since FROM subscriptions WHERE id = ?", subscription_id)
        if not rows:
            raise NotFoundError(f"there is no subscription {subscription_id}")
        return _subscription(rows[0])

    def suspend(self, subscription_id: int, reason: str, at_s: float) -> None:
        """Remember that a subscription gets no results, and why."""
        with self._changing() as connection:
            connection.execute("INSERT OR REPLACE INTO suspended VALUES (?, ?, ?)", (subscription_id, reason, at_s))

    def resume(self, subscription_id: int, since: int) -> None:
        """Let a subscription get results again, for records after `since`."""
        with self._changing() as connection:
            connection.execute("DELETE FROM suspended WHERE subscription = ?", (subscription_id,))
            connection.execute("UPDATE subscriptions SET since = ? WHERE id = ?", (since, subscription_id))

    def suspended(self) -> dict[int, str]:
        """The subscriptions that get no results, with the reasons."""
        return {int(str(n)): str(r) for n, r in self._rows("SELECT subscription, reason FROM suspended")}

    def suspended_count(self, channel_id: int) -> int:
        """How many subscriptions of a channel are suspended."""
        query = "SELECT count(*) FROM suspended JOIN subscriptions ON id = subscription WHERE channel = ?"
        return int(str(self._rows(query, channel_id)[0][0]))

    def subscriptions_count(self, channel_id: int) -> int:
        """How many subscriptions a channel has."""
        return int(str(self._rows("SELECT count(*) FROM subscriptions WHERE channel = ?", channel_id)[0][0]))

    def drop(self, kind: str, entry_id: int) -> None:
        """Forget a definition and what belongs to it alone."""
        with self._changing() as connection:
            connection.execute("DELETE FROM notes WHERE kind = ? AND id = ?", (kind, entry_id))
            match kind:
                case "DATASET":
                    connection.execute(
                        "INSERT OR REPLACE INTO notes SELECT ?, id, name || '-' || id FROM datasets WHERE id = ?",
                        (DROPPED_KIND, entry_id),
                    )
                    connection.execute("DELETE FROM datasets WHERE id = ?", (entry_id,))
                case "FEED":
                    connection.execute("DELETE FROM feeds WHERE id = ?", (entry_id,))
                    connection.execute("DELETE FROM offsets WHERE feed = ?", (entry_id,))
                    connection.execute("DELETE FROM file_positions WHERE feed = ?", (entry_id,))
                case "CHANNEL":
                    connection.execute("DELETE FROM channels WHERE id = ?", (entry_id,))
                    connection.execute("DELETE FROM notes WHERE kind LIKE 'CHANNEL %' AND id = ?", (entry_id,))
                case "BROKER":
                    connection.execute("DELETE FROM subscribers WHERE broker = ?", (entry_id,))
                    connection.execute("DELETE FROM declared WHERE broker = ?", (entry_id,))
                    connection.execute("DELETE FROM brokers WHERE id = ?", (entry_id,))
                case _:
                    raise ActiveDataError(f"nothing of the kind {kind} can be dropped")


def _drawn_seed() -> int:
    return int.from_bytes(os.urandom(8))


def _subscription(row: tuple[object, ...]) -> SubscriptionEntry:
    id, channel, arguments, since = row
    return SubscriptionEntry(int(str(id)), int(str(channel)), json.loads(str(arguments)), int(str(since)))


def _arguments_text(arguments: dict[str, Scalar]) -> str:
    return json.dumps(arguments, sort_keys=True, ensure_ascii=False)


Entry = TypeVar("Entry", DatasetEntry, FeedEntry, ChannelEntry, BrokerEntry)


def _the_one(entries: list[Entry], name: str, kind: str) -> Entry:
    for entry in entries:
        if entry.name.lower() == name.lower():
            return entry
    known = ", ".join(entry.name for entry in entries) or "none"
    raise NotFoundError(f"there is no {kind} {name!r}; there are: {known}")
