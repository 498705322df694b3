"""Brokers whose results are passed on by this process: posted to an address, or written into files."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from trimtab.activedata.definitions.fields import ValueMistake
from trimtab.activedata.sinks.file_sink import FileSink
from trimtab.activedata.sinks.result_cursor import NOTE, ResultCursor, SinkNote
from trimtab.activedata.sinks.webhook import Webhook, check_url, checked_secret
from trimtab.activedata.storage.catalog import Catalog
from trimtab.activedata.storage.catalog_entries import BrokerEntry
from trimtab.activedata.storage.dead_letters import DeadLetters
from trimtab.activedata.storage.results import Results
from trimtab.activedata.supervision import SupervisedThread

SCHEMES: Final = ("http", "https", "file")


class Sinks:
    """The brokers with such addresses, each with a thread of its own: one that is slow holds up no other."""

    def __init__(
        self,
        catalog: Catalog,
        results: Results,
        dead_letters: DeadLetters,
        check_path: Callable[[str], None],
    ) -> None:
        self._catalog = catalog
        self._results = results
        self._dead_letters = dead_letters
        self._check_path = check_path
        self._running: dict[int, tuple[Webhook | FileSink, SupervisedThread]] = {}

    def start(self) -> None:
        """Go on for all of them."""
        for entry in self._catalog.brokers():
            if self.is_sink(entry):
                self._start(entry)

    def stop(self) -> None:
        """Stop; the next process goes on."""
        for broker_id in list(self._running):
            self.end(broker_id)

    def is_sink(self, entry: BrokerEntry) -> bool:
        """Whether this process passes on a broker's results."""
        return self._catalog.note(NOTE, entry.id) is not None

    def takes(self, address: str) -> bool:
        """Whether an address is one that results are passed on to."""
        return urlsplit(address).scheme in SCHEMES

    def create(self, name: str, address: str, secret: str | None) -> str | None:
        """Make a sink, or give one another address; answers the secret of a webhook that was made for it."""
        is_file = urlsplit(address).scheme == "file"
        if is_file:
            if secret is not None:
                raise ValueMistake("files are not signed: SECRET is for an http address")
            self._check_path(str(folder_of(address)))
        else:
            check_url(address)
        known = next((each for each in self._catalog.brokers() if each.name.lower() == name.lower()), None)
        if known is not None and not self.is_sink(known):
            raise ValueMistake(f"there is a broker {known.name!r} already, which fetches its results itself")
        new_secret = "whsec_" + base64.b64encode(secrets.token_bytes(24)).decode()
        entry = self._catalog.add_broker(name, address)
        made = None
        if known is None:
            own = "" if is_file else checked_secret(secret, new_secret)
            made = own if secret is None and not is_file else None
            self._note(entry, SinkNote(self._results.last_position, own))
        elif secret is not None:
            cursor = ResultCursor(entry, self._catalog, self._results)
            self._note(entry, msgspec.structs.replace(cursor.note, secret=checked_secret(secret, new_secret)))
        self.end(entry.id)
        self._start(entry)
        return made

    def drop(self, broker_id: int) -> None:
        """Pass on no more for a broker that is dropped."""
        self.end(broker_id)
        self._catalog.set_note(NOTE, broker_id, None)

    def end(self, broker_id: int) -> None:
        """Pass on no more for a broker."""
        found = self._running.pop(broker_id, None)
        if found is not None:
            found[1].stop()

    def sent_count(self, broker_id: int) -> int | None:
        """How many results were passed on since the process started; None if the broker is no sink."""
        found = self._running.get(broker_id)
        return None if found is None else found[0].sent_count

    def error(self, broker_id: int) -> str | None:
        """What keeps a sink from getting on."""
        found = self._running.get(broker_id)
        return None if found is None else (found[0].error or found[1].error)

    def _note(self, entry: BrokerEntry, note: SinkNote) -> None:
        self._catalog.set_note(NOTE, entry.id, msgspec.json.encode(note).decode())

    def _start(self, entry: BrokerEntry) -> None:
        cursor = ResultCursor(entry, self._catalog, self._results)
        sink: Webhook | FileSink
        if urlsplit(entry.address).scheme == "file":
            sink = FileSink(cursor, folder_of(entry.address))
        else:
            sink = Webhook(cursor, self._dead_letters)
        thread = SupervisedThread(f"broker {entry.name}", sink.work, lambda reason: setattr(sink, "error", reason))
        self._running[entry.id] = (sink, thread)
        thread.start()


def folder_of(address: str) -> Path:
    """The folder that a `file:` address names.

    >>> folder_of("file:/data/out"), folder_of("file:///data/out")
    (PosixPath('/data/out'), PosixPath('/data/out'))
    """
    parts = urlsplit(address)
    path = Path(unquote(parts.path))
    if parts.netloc or not path.is_absolute():
        raise ValueMistake(f"{address!r} names no folder: expected file:/FOLDER")
    return path
