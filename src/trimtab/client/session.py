"""A client without its sockets: what it publishes and subscribes to, over one link to a broker.

Publications are numbered and retained until the broker has accepted them; they wait until an advertisement that
announces them is in force. What is delivered, and how a move goes, stands in `deliveries.py` and `moves.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Mapping, Sequence
from itertools import zip_longest

import msgspec

from trimtab.client.channels import OwnChannels
from trimtab.client.config import ClientConfig
from trimtab.client.deliveries import Deliveries
from trimtab.client.known_brokers import KnownBrokers
from trimtab.client.moves import ClientMoves
from trimtab.client.withdrawals import Withdrawals
from trimtab.language import Filter, LanguageError, Publication, Value
from trimtab.matching.announcements import Announcements, objection_of
from trimtab.protocol.durable_link import DurableLink, LinkPosition
from trimtab.protocol.effects import (
    Close,
    Deliver,
    Effect,
    InForce,
    MeasureRoundTrips,
    Moved,
    NotMoved,
    Rejected,
    Shut,
    Taken,
    Throttled,
)
from trimtab.protocol.events import Connected, Disconnected, Event, MoveTo, Received, RoundTripsMeasured, Wake
from trimtab.protocol.frames import Ack, Hello, Payload
from trimtab.protocol.link import Link
from trimtab.protocol.messages import (
    FROM_NOW_ON,
    VERSION,
    VERSION_MIN,
    Accepted,
    Advertise,
    AnyMessage,
    ChannelConfirmed,
    Confirmed,
    Gap,
    Limited,
    Measure,
    Measured,
    Publish,
    Redirect,
    Refused,
    Stay,
    Subscribe,
    Swept,
    Unadvertise,
    Unsubscribe,
    WireValue,
    is_control,
)
from trimtab.protocol.versions import OPEN_ADVERTISEMENTS


class WindowFull(Exception):
    """Too many publications wait for acceptance; try again after the next `Taken`."""


class ClientSession:
    """The state machine of one client; the application calls its methods, the world its `handle`.

    During a move the session has two links: the world asks for frames by broker. The application sees one stream: all
    that the old broker has sent, then what the new one sends, without what has been delivered already.
    """

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self.name = config.name
        self.link = config.new_link()
        self.broker = ""
        self.broker_session = ""
        self.known_brokers = KnownBrokers()
        self.stay = 1
        """The number of the stay at the present broker."""
        self._next_id = 1
        self._next_sequence = 1
        self._advertised_count = 0
        """How often anything was advertised: the number of the last telling."""
        self.advertisements: dict[str, Filter] = {}
        self.subscriptions: dict[str, Filter] = {}
        self.told: dict[str, None] = {}
        """The filters that the present broker was told, and the end of which it was not."""
        self._in_force: dict[str, None] = {}
        self.confirmed: dict[str, None] = {}
        """The advertisements that the present broker has confirmed."""
        self.announced = Announcements()
        """These, except while a move holds publications back; what they announce may be sent."""
        self._held: deque[Publish | Unadvertise] = deque()
        self._ending: dict[str, None] = {}
        """Advertisements that end as soon as the publications before their end are sent."""
        self.unaccepted: deque[Publish] = deque()
        self.accepted_until = 0
        self._ended = Withdrawals()
        self.has_published = False
        """Whether a publication was sent to the present broker."""
        self.channels = OwnChannels()
        self.deliveries = Deliveries(self.channels, any_order=config.order == "any", is_owed=config.earlier is not None)
        self.moves = ClientMoves(self)
        if config.earlier is not None:
            self.broker_session = config.earlier.broker_session
            for filter in config.earlier.filters:
                id = self._new_id("s")
                self.subscriptions[id] = filter
                self.deliveries.filters.add(id, filter)
                self._in_force[id] = self.told[id] = None

    # ---- the application's side ----

    def advertise(self, filter: Filter, now_s: float) -> str:
        """Announce what will be published; publications wait until this is in force."""
        id = self._new_id("a")
        self.advertisements[id] = filter
        self.tell(now_s)
        return id

    def unadvertise(self, id: str, now_s: float) -> None:
        """End an advertisement."""
        self._require(id, {} if id in self._ending else self.advertisements)
        self._ending[id] = None
        self._held.append(Unadvertise(id=id))
        self.release(now_s)

    def subscribe(self, filter: Filter, now_s: float, within_s: float | None = None) -> str:
        """Ask for what the filter matches, perhaps within a time; `InForce` tells when nothing will be missed."""
        id = self._new_id("s")
        self.deliveries.requirements.add(id, within_s)
        self.subscriptions[id] = filter
        self.deliveries.filters.add(id, filter)
        self.tell(now_s)
        return id

    @property
    def knows_open_advertisements(self) -> bool:
        """Whether the present broker does; one that does not is told the attributes that they name, and no others."""
        return self.known_brokers.version_of(self.broker) >= OPEN_ADVERTISEMENTS

    @property
    def late_counts(self) -> dict[str, int]:
        """Deliveries that came later than wanted, by subscription."""
        return self.deliveries.requirements.late_counts

    def subscribe_channel(
        self, channel: str, arguments: Mapping[str, WireValue], now_s: float, after: int = FROM_NOW_ON
    ) -> str:
        """Ask for the results of a channel, from now on or after a position; `InForce` tells when none is missed."""
        id = self._new_id("c")
        self.channels.add(id, channel, arguments, after)
        if not self.moves.is_leaving:
            self.link.enqueue(self.channels.request(id), now_s)
        return id

    def position_of(self, id: str) -> int | None:
        """The position after which results of a channel come; None if that is not known, or it is no channel's id."""
        return self.channels.position_of(id)

    def _unsubscribe_channel(self, id: str, now_s: float) -> None:
        self.channels.drop(id)
        self._in_force.pop(id, None)
        if not self.moves.is_leaving:
            self.link.enqueue(self.channels.end(id), now_s)

    def enqueue_all(self, messages: Sequence[AnyMessage], now_s: float) -> None:
        for message in messages:
            self.link.enqueue(message, now_s)

    def unsubscribe(self, id: str, now_s: float) -> None:
        """End a subscription, to a filter or to a channel."""
        if id in self.channels:
            self._unsubscribe_channel(id, now_s)
            return
        self._require(id, self.subscriptions)
        self._drop_subscription(id)
        self.tell(now_s)

    def publish(self, values: Mapping[str, Value], now_s: float, sequence: int | None = None) -> int:
        """Hand over a publication; returns its sequence number, or raises `WindowFull`.

        Who has growing numbers of its own, the same in every life, gives them: what was said twice is delivered once.
        """
        publication = values if isinstance(values, Publication) else Publication(values)
        goes_at_once = not (self._held or self._ending) and self.announced.announce(publication.values_by_name)
        if not goes_at_once and not self._will_announce(publication):
            raise LanguageError(self._objection_to(publication))
        if self.window_is_full:
            raise WindowFull(f"{self.config.publish_window_count:,} publications wait for acceptance")
        if sequence is not None and sequence < self._next_sequence:
            raise ValueError(f"the number {sequence} is not above those before it")
        message = Publish(
            publisher=self.name,
            sequence=self._next_sequence if sequence is None else sequence,
            values=publication.values_by_name,
            origin_s=now_s,
            session=self.config.session,
            stay=self.stay,
        )
        self._next_sequence = message.sequence + 1
        if goes_at_once:
            self._send_publication(message, now_s)
        else:
            self._held.append(message)
            self.release(now_s)
        return message.sequence

    def _send_publication(self, message: Publish, now_s: float) -> None:
        if message.stay != self.stay:
            message = msgspec.structs.replace(message, stay=self.stay)
        self.unaccepted.append(message)
        self.has_published = True
        self.link.enqueue(message, now_s)

    def _will_announce(self, publication: Publication) -> bool:
        """Whether an advertisement that does not end, in force or not, announces the publication."""
        ours = self.advertisements.items()
        return any(id not in self._ending and filter.announces(publication) for id, filter in ours)

    def _objection_to(self, publication: Publication) -> str:
        ours = [filter for id, filter in self.advertisements.items() if id not in self._ending]
        return objection_of(ours, publication.values_by_name)

    @property
    def window_is_full(self) -> bool:
        """Whether `publish` would be refused now."""
        return len(self.unaccepted) + len(self._held) >= self.config.publish_window_count

    @property
    def waiting_count(self) -> int:
        """Publications that the broker has not accepted yet."""
        return len(self.unaccepted) + len(self._held)

    # ---- the world's side ----

    def handle(self, event: Event, now_s: float) -> list[Effect]:
        """Take in an event; returns what the world is to do for the application."""
        match event:
            case Received(peer=peer, frame=frame):
                return self.receive(peer, frame, now_s)
            case Connected(peer=peer, hello=hello):
                self.known_brokers.greeted(peer, hello)
                if hello.order == "any":
                    self.deliveries.expect_any_order()
                move = self.moves.current
                if move is not None and move.is_under_way and peer == move.broker:
                    self.moves.connected(move, hello, now_s)
                else:
                    return self._connected(peer, hello, now_s)
            case Disconnected(peer=peer):
                link = self._link_to(peer)
                if link is not None:
                    link.disconnect()
                if self.moves.current is not None and peer == self.broker:
                    self.moves.current.old_away_s = now_s
            case Wake():
                return self._wake(now_s)
            case MoveTo():
                return self.moves.begin(event, self.link, now_s)
            case RoundTripsMeasured(question=question, round_trips_s=round_trips_s):
                self.link.enqueue(Measured(round_trips_s=round_trips_s, cause=question), now_s)
            case _:
                pass  # for brokers
        return []

    def greeting(self, broker: str = "") -> Hello:
        """The greeting for a connection to a broker, the present one unless another is named."""
        link, session, stay = self.link, self.broker_session, self.stay
        if self.moves.current is not None and self.moves.is_leaving and broker == self.moves.current.broker:
            link, session, stay = self.moves.current.link, self.moves.current.broker_session, self.moves.current.stay
        elif self.broker and broker not in ("", self.broker):
            stay = self.moves.coming_stay  # it goes on elsewhere, if that answers
        return Hello(
            VERSION,
            "client",
            self.name,
            self.config.session,
            link.expects,
            session,
            version_min=VERSION_MIN,
            granted=self.known_brokers.epoch_of(broker or self.broker),
            stay=stay,
            burned=self.moves.burned,
        )

    def consumed(self, waiting_count: int = 0) -> bool:
        """The application has dealt with all deliveries except for so many; whether a broker should be told soon.

        Only then does a broker send more, so that what the application does not keep up with waits at the broker. What
        comes from a new broker during a move counts as dealt with when it arrives: the move does not wait for room.
        """
        tell = self.link.did_all_but(waiting_count)
        move = self.moves.current
        return (move is not None and move.is_under_way and move.link.did_all_but(0)) or tell

    @property
    def is_moving(self) -> bool:
        """Whether the client is on its way to another broker."""
        return self.moves.current is not None

    @property
    def subscription_ids(self) -> tuple[str, ...]:
        """Its subscriptions to filters."""
        return tuple(self.subscriptions)

    def arrived(self) -> LinkPosition:
        """How much has arrived, for an application that stores it; all of it has been handed over."""
        return self.link.place if isinstance(self.link, DurableLink) else LinkPosition()

    def stored(self, place: LinkPosition) -> None:
        """The application has stored what had arrived at a place: the broker may forget it."""
        if isinstance(self.link, DurableLink):
            self.link.store(place)

    def take_frame(self, now_s: float, broker: str = "") -> Payload | Ack | None:
        """The next frame for a broker (the present one unless another is named), None if there is none now."""
        link = self._link_to(broker or self.broker)
        return None if link is None else link.take(now_s)

    def heartbeat(self, broker: str) -> Ack | None:
        """What asks a broker at once whether it lives; None if there is no connection to it."""
        link = self._link_to(broker)
        return None if link is None else link.heartbeat(asks=True)

    def has_frame(self, broker: str = "") -> bool:
        """Whether `take_frame` would return a frame."""
        link = self._link_to(broker or self.broker)
        return link is not None and link.has_frame()

    def wake_at_s(self) -> float | None:
        """When the session wants its next `Wake`."""
        times = [self.link.wake_at_s(), self.deliveries.gaps.wake_at_s()]
        move = self.moves.current
        if move is not None and move.is_under_way:
            times += (move.link.wake_at_s(), move.too_long_s(self.config), move.without_old_s(self.config))
        return min((time for time in times if time is not None), default=None)

    def _wake(self, now_s: float) -> list[Effect]:
        self.link.wake(now_s)
        return [*self.deliveries.gaps.wake(now_s), *self.moves.wake(now_s)]

    def _link_to(self, broker: str) -> Link | None:
        if broker == self.broker:
            return self.link
        move = self.moves.current
        return move.link if move is not None and broker == move.broker else None

    def announce(self) -> None:
        """Publications may be sent that what the present broker has confirmed announces."""
        for id in self.confirmed:
            self.announced.add(id, self.advertisements[id])

    # ---- the present broker ----

    def _connected(self, broker: str, hello: Hello, now_s: float) -> list[Effect]:
        is_first = not self.broker_session
        is_remembered = self.broker_session == hello.session and hello.resumes == self.config.session
        goes_on = is_first or (is_remembered and self.link.fits(hello.expects))
        is_elsewhere = bool(self.broker) and broker != self.broker
        self.broker = broker
        self.broker_session = hello.session
        if goes_on:
            self.link.connect(1 if is_first else hello.expects, now_s)
            if self.moves.current is not None:
                self.moves.current.old_away_s = None
            return []
        if self.config.stores:
            return [Close(broker, f"{broker} has forgotten the client, and with it what it kept for it")]
        self.link = Link(self.config.link)
        self.link.connect(1, now_s)
        return self._begin_again(now_s, is_elsewhere=is_elsewhere)

    def _begin_again(self, now_s: float, *, is_elsewhere: bool) -> list[Effect]:
        """The broker does not remember this client, or not in this incarnation: tell it everything."""
        effects: list[Effect] = []
        self.deliveries.gaps.link_ended(now_s)
        move = self.moves.current
        if is_elsewhere:
            self.stay = self.moves.next_stay()
            self.moves.current = None
            if move is not None:
                effects = [NotMoved(move.broker, "the broker before it is gone"), Shut(move.broker)]
                if not move.is_under_way:
                    effects = [Moved(self.broker, move.waited_s(now_s))]
                effects += self.deliveries.deliver_all(move.late, now_s)
        said_again_until = self.unaccepted[-1].sequence if self.unaccepted else 0
        revived, unaccepted = self._ended.begin_again(self.unaccepted)
        self.advertisements.update(revived)
        self._held = deque([*unaccepted, *self._held])
        self.unaccepted.clear()
        self.told.clear()
        self.confirmed.clear()
        self._in_force.clear()
        self.announced = Announcements()
        move = self.moves.current
        if move is not None and move.phase == "holding":
            move.phase = "reaching"  # what was not accepted is said again here before anything moves
        if move is not None and not move.is_under_way:
            move.link = self.link
            self.moves.ask(move, now_s)
            self.told = move.told
        self.tell_present(now_s, move.told if move is not None and move.was_asked else None)
        self.enqueue_all(self.channels.request_all(), now_s)
        self.link.enqueue(Swept(sequence=said_again_until, accepted=self.accepted_until), now_s)
        if move is not None and move.was_asked:
            move.old_away_s, move.old_forgot = None, True
            if move.phase == "staying":
                self.link.enqueue(Stay(stay=move.stay, cause=move.cause), now_s)
            elif move.answered_s is not None:
                self.moves.ask_to_stay(move, f"{self.broker} was started again", now_s)
        return effects

    def tell(self, now_s: float) -> None:
        """Tell the present broker which filters there are, unless another is about to be the present one."""
        if not self.moves.is_leaving:
            self.tell_present(now_s)

    def tell_present(self, now_s: float, known: Container[str] | None = None) -> None:
        """Say what has changed since the present broker was told; ends of advertisements keep their place elsewhere.

        An old broker is not told of what the new one does not know: it would be in force until the old stay ends.
        """
        for id in [id for id in self.told if id not in self.subscriptions and id not in self.advertisements]:
            del self.told[id]
            self.link.enqueue(Unsubscribe(id=id), now_s)
        for id, filter in self.advertisements.items():
            if id not in self.told and (known is None or id in known):
                self.told[id] = None
                self._advertised_count += 1
                named = filter if self.knows_open_advertisements else filter.closed()
                self.link.enqueue(Advertise(id=id, filter=named, number=self._advertised_count), now_s)
        for id, filter in self.subscriptions.items():
            if id not in self.told and (known is None or id in known):
                self.told[id] = None
                self.link.enqueue(Subscribe(id=id, filter=filter, within_s=self.deliveries.requirements.of(id)), now_s)

    def receive(self, broker: str, frame: Payload | Ack, now_s: float) -> list[Effect]:
        """A frame arrived from a broker: the same as the event `Received`, for worlds with very many of them."""
        link = self.link if broker == self.broker else self._link_to(broker)
        if link is None:
            return []
        messages = link.receive(frame, now_s)
        if not messages:
            return []
        if len(messages) == 1 and self.moves.current is None and type(message := messages[0]) is Publish:
            link.data_arrived(1)
            deliver = self.deliveries.deliver(message, now_s)
            return [] if deliver is None else [deliver]
        effects: list[Effect] = []
        link.data_arrived(sum([not is_control(message) for message in messages]))
        for message in messages:
            move = self.moves.current
            if move is None:
                if type(message) is Publish:
                    deliver = self.deliveries.deliver(message, now_s)
                    if deliver is not None:
                        effects.append(deliver)
                    continue
            elif isinstance(message, Publish | Gap) and (link is not self.link or move.holds_old):
                (move.early if link is not self.link else move.late).append(message)
                continue
            elif link is not self.link and isinstance(message, Confirmed):
                move.confirmed.append(message)
                continue
            elif (about := self.moves.heard(move, message, now_s)) is not None:
                effects.extend(about)
                if link is not self.link and (self.moves.current is None or link is not self.moves.current.link):
                    break  # the old broker, or the one that we do not move to, has no more to say
                continue
            if isinstance(message, Redirect):
                target = MoveTo(message.broker, message.address, message.cause or self.name)
                effects.extend(self.moves.begin(target, link, now_s))
            else:
                effects.extend(self.take_message(message, now_s))
        if self.moves.current is not None:
            self.moves.ask_when_ready(self.moves.current, now_s)
        return effects

    def receive_run(self, broker: str, arrivals: Sequence[tuple[float, Payload]]) -> list[tuple[float, Deliver]] | None:
        """Frames with one publication each that came one after the other: what to deliver, and when each came.

        The same as `receive` for each of them; None if they are not to be taken in as a run.
        """
        if self.moves.current is not None or broker != self.broker or not self.link.receive_run(arrivals):
            return None
        deliver = self.deliveries.deliver
        delivered: list[tuple[float, Deliver]] = []
        for at_s, frame in arrivals:
            publication = deliver(frame.messages[0], at_s)  # type: ignore[arg-type]  # what arrives is decoded
            if publication is not None:
                delivered.append((at_s, publication))
        return delivered

    def take_message(self, message: AnyMessage, now_s: float) -> list[Effect]:
        match message:
            case Publish():
                deliver = self.deliveries.deliver(message, now_s)
                return [] if deliver is None else [deliver]
            case Gap():
                return [*self.deliveries.gaps.heard(message, now_s)] if self.deliveries.is_owed else []
            case Accepted(sequence=sequence):
                while self.unaccepted and self.unaccepted[0].sequence <= sequence:
                    self.unaccepted.popleft()
                self.accepted_until = max(sequence, self.accepted_until)
                self._ended.accepted(sequence)
                return [Taken(sequence)]
            case Confirmed(id=id, narrowed=narrowed):
                if narrowed is not None and id in self.subscriptions:
                    self._narrow(id, narrowed)
                if id in self.advertisements:
                    self.confirmed[id] = None
                    if not self.moves.holds_back:
                        self.announced.add(id, self.advertisements[id])
                elif id not in self.subscriptions:
                    return []  # ended meanwhile
                self.release(now_s)
                if id in self._in_force:
                    return []  # since before a move
                self._in_force[id] = None
                self.deliveries.is_owed |= id in self.subscriptions
                return [InForce(id, narrowed=narrowed)]
            case ChannelConfirmed(id=id, position=position):
                if not self.channels.confirmed(id, position) or id in self._in_force:
                    return []
                self._in_force[id] = None
                return [InForce(id, self.channels.position_of(id))]
            case Measure(brokers=brokers, addresses=addresses, cause=cause):
                return [MeasureRoundTrips(cause, dict(zip_longest(brokers, addresses[: len(brokers)], fillvalue="")))]
            case Refused(about=about) if about == f"stay {self.stay}":
                self.told.clear()
                self.tell(now_s)  # asked again, it took nothing; the move was over by then
                return []
            case Refused(about=about, reason=reason):
                self.channels.refused(about)
                self.advertisements.pop(about, None)
                self.told.pop(about, None)
                self.confirmed.pop(about, None)
                self.announced.discard(about)
                if about in self.subscriptions:
                    self._drop_subscription(about)
                return [Rejected(about, reason)]
            case Limited(reason=reason):
                return [Throttled(reason)]
            case _:
                return []  # brokers say nothing else to clients

    def release(self, now_s: float) -> None:
        """Send held publications and ends of advertisements, in order, as far as advertisements in force allow."""
        while self._held and not self.moves.holds_back:
            message = self._held[0]
            if isinstance(message, Unadvertise):
                self._end_advertisement(message.id, now_s)
            else:
                if not self.announced.announce(message.values):
                    return
                self._send_publication(message, now_s)
            self._held.popleft()

    def _end_advertisement(self, id: str, now_s: float) -> None:
        """An advertisement ends, behind all that was published before."""
        self._ending.pop(id, None)
        self._in_force.pop(id, None)
        self.confirmed.pop(id, None)
        self.announced.discard(id)
        filter = self.advertisements.pop(id, None)
        if filter is not None:
            self._ended.add(id, filter, self.unaccepted)
            if id in self.told:
                del self.told[id]
                self.link.enqueue(Unadvertise(id=id, number=self._advertised_count), now_s)

    def _narrow(self, id: str, filter: Filter) -> None:
        """The broker permits a part of a subscription: from now on that is what is asked for, elsewhere as well."""
        self.subscriptions[id] = filter
        self.deliveries.filters.remove(id)
        self.deliveries.filters.add(id, filter)

    def _drop_subscription(self, id: str) -> None:
        del self.subscriptions[id]
        self._in_force.pop(id, None)
        self.deliveries.filters.remove(id)
        self.deliveries.requirements.remove(id)

    def _new_id(self, kind: str) -> str:
        id = f"{self.name}/{kind}{self._next_id}"
        self._next_id += 1
        return id

    def _require(self, id: str, known: Mapping[str, Filter]) -> None:
        if id not in known:
            raise KeyError(f"{id} is not an id of this client")
