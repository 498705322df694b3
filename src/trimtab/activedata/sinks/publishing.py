"""Results that are published into the overlay: content filters at any broker match them like other publications.

A publishing broker is a registration whose subscriptions' results are not fetched but published, by a client of the
broker at its address. A result's position is its sequence number, and the client has the same name and session in every
life of this process. So what was said before a crash and is said again is dropped by whoever had it: each result comes
once, and in order.
"""

from __future__ import annotations

import logging
import secrets
import threading
from typing import TYPE_CHECKING, Any, Final

import msgspec

from trimtab.activedata.definitions.fields import ValueMistake
from trimtab.activedata.errors import ActiveDataError
from trimtab.activedata.storage.catalog import Catalog
from trimtab.activedata.storage.catalog_entries import BrokerEntry, ChannelEntry, SubscriptionEntry
from trimtab.activedata.storage.dead_letters import DeadLetter, DeadLetters
from trimtab.activedata.storage.results import Result, Results
from trimtab.language import Filter, LanguageError, Op, Predicate
from trimtab.protocol.channels import flat_values

if TYPE_CHECKING:
    from trimtab.activedata.overlay import Overlay

logger = logging.getLogger(__name__)

BATCH_MAX_COUNT: Final = 2_000
TRY_AGAIN_AFTER_S: Final = 2.0
NOTE_EVERY_COUNT: Final = 10_000
"""So many results of others are passed over before that is noted."""

ARGUMENT_PREFIX: Final = "for_"
OWN_ATTRIBUTES: Final = ("channel", "subscription", "executed_s")


class _Publisher(msgspec.Struct, frozen=True):
    """Who publishes for a broker, the same in every life, and the position up to which all is accepted."""

    name: str
    session: str
    position: int


class PublishedResult(msgspec.Struct, frozen=True):
    """A result as a publication, and its number among those of this publisher."""

    sequence: int
    values: dict[str, Any]
    announced_by: Filter


class PublishedBatch(msgspec.Struct, frozen=True):
    """The next results to publish, and the position up to which there are no others."""

    results: list[PublishedResult]
    position: int


def announcement(channel: ChannelEntry) -> Filter:
    """The advertisement for a channel's results, or a mistake that says why they cannot be publications."""
    arguments = [f"{ARGUMENT_PREFIX}{field.name}" for field in channel.parameters]
    taken = {*OWN_ATTRIBUTES, *arguments}
    for column in channel.columns:
        if column in taken:
            raise ValueMistake(f"{channel.name} selects {column!r}, which is an attribute of every published result")
    try:
        others = [Predicate.of(name, Op.PRESENT, None) for name in (*OWN_ATTRIBUTES[1:], *arguments, *channel.columns)]
        return Filter([Predicate.of(OWN_ATTRIBUTES[0], Op.EQ, channel.name), *others])
    except LanguageError as error:
        raise ValueMistake(f"results of {channel.name} cannot be published: {error}") from None


class PublishingBroker:
    """What is to be published for one broker; the overlay asks for it and says what was accepted."""

    def __init__(self, entry: BrokerEntry, catalog: Catalog, results: Results, dead_letters: DeadLetters) -> None:
        self.entry = entry
        self._catalog = catalog
        self._results = results
        self._dead_letters = dead_letters
        noted = catalog.note("BROKER", entry.id)
        if noted is None:
            raise ActiveDataError(f"{entry.name} is no publishing broker")
        self._publisher = msgspec.json.decode(noted, type=_Publisher)
        self._after = self._publisher.position
        self.published_count = 0
        self.error: str | None = None

    @property
    def client_name(self) -> str:
        """The publisher's name."""
        return self._publisher.name

    @property
    def session(self) -> str:
        """The publisher's session, which outlives this process."""
        return self._publisher.session

    @property
    def position(self) -> int:
        """The position up to which all results are published."""
        return self._after

    def next(self, wait_s: float) -> PublishedBatch:
        """The results after those that were published, at most some; waits a little if there are none."""
        with self._results.news:
            if self._results.last_position <= self._after:
                self._results.news.wait(wait_s)
            newest = self._results.last_position
        if newest <= self._after:
            return PublishedBatch([], self._after)
        wanted = {each.id: each for each in self._catalog.subscriptions(broker_id=self.entry.id)}
        found = self._results.fetch_many(list(wanted), self._after, BATCH_MAX_COUNT)
        known = self._catalog.channels() if found else []
        asked = {each.channel for each in found}
        channels = {each.id: (each.name, announcement(each)) for each in known if each.id in asked}
        results = [_published(each, wanted[each.subscription], *channels[each.channel]) for each in found]
        return PublishedBatch(results, found[-1].position if len(found) == BATCH_MAX_COUNT else newest)

    def published(self, batch: PublishedBatch) -> None:
        """The broker has accepted a batch."""
        self._after = batch.position
        self.error = None
        self.published_count += len(batch.results)
        if batch.results or batch.position - self._publisher.position > NOTE_EVERY_COUNT:
            self._publisher = msgspec.structs.replace(self._publisher, position=batch.position)
            self._catalog.set_note("BROKER", self.entry.id, msgspec.json.encode(self._publisher).decode())

    def put_aside(self, sequence: int, values: dict[str, Any], reason: str) -> None:
        """A result that the overlay does not take goes to the dead letters, once."""
        letter = DeadLetter(self.entry.name, "published result", sequence, reason, msgspec.json.encode(values).decode())
        self._dead_letters.add([letter], {f"publishing {self.entry.id}": sequence})


def _published(result: Result, wanted: SubscriptionEntry, channel: str, announced_by: Filter) -> PublishedResult:
    values = {
        **flat_values(result.fields),
        **flat_values({f"{ARGUMENT_PREFIX}{name}": value for name, value in wanted.arguments.items()}),
        "channel": channel,
        "subscription": result.subscription,
        "executed_s": result.executed_us / 1e6,
    }
    return PublishedResult(result.position, values, announced_by)


class Publishing:
    """The publishing brokers, each with a thread that talks to the overlay."""

    def __init__(self, catalog: Catalog, results: Results, dead_letters: DeadLetters, overlay: Overlay) -> None:
        self._catalog = catalog
        self._results = results
        self._dead_letters = dead_letters
        self._overlay = overlay
        self._running: dict[int, tuple[PublishingBroker, threading.Event, threading.Thread]] = {}

    def start(self) -> None:
        """Go on for all publishing brokers."""
        for entry in self._catalog.brokers():
            if self.publishes(entry):
                self._start(entry)

    def stop(self) -> None:
        """Stop; the next process goes on."""
        for broker_id in list(self._running):
            self.end(broker_id)

    def publishes(self, entry: BrokerEntry) -> bool:
        """Whether a broker is a publishing one."""
        return self._catalog.note("BROKER", entry.id) is not None

    def create(self, name: str, address: str) -> None:
        """Make a publishing broker, or give one another address."""
        self._overlay.check_address(address)
        known = next((each for each in self._catalog.brokers() if each.name.lower() == name.lower()), None)
        if known is not None and not self.publishes(known):
            raise ValueMistake(f"there is a broker {known.name!r} already, which fetches its results itself")
        entry = self._catalog.add_broker(name, address)
        if known is None:
            publisher = _Publisher(
                f"active-{name}-{secrets.token_hex(4)}", secrets.token_hex(5), self._results.last_position
            )
            self._catalog.set_note("BROKER", entry.id, msgspec.json.encode(publisher).decode())
        self.end(entry.id)
        self._start(entry)

    def end(self, broker_id: int) -> None:
        """Publish no more for a broker."""
        found = self._running.pop(broker_id, None)
        if found is not None:
            found[1].set()
            found[2].join()

    def of(self, broker_id: int) -> PublishingBroker | None:
        """How far a publishing broker is."""
        found = self._running.get(broker_id)
        return None if found is None else found[0]

    def _start(self, entry: BrokerEntry) -> None:
        broker = PublishingBroker(entry, self._catalog, self._results, self._dead_letters)
        stop = threading.Event()
        thread = threading.Thread(target=self._work, args=(broker, stop), name=f"publish-{entry.name}", daemon=True)
        self._running[entry.id] = (broker, stop, thread)
        thread.start()

    def _work(self, broker: PublishingBroker, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                self._overlay.publish(broker.entry.address, broker, stop)
            except (OSError, ActiveDataError) as error:
                logger.warning("broker %s: %s", broker.entry.name, error)
                broker.error = str(error)
                stop.wait(TRY_AGAIN_AFTER_S)
