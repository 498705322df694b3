"""A client without its sockets: what it publishes and subscribes to, over one link to a broker.

Publications are numbered and kept until the broker has accepted them; they wait until an advertisement that announces
them is in force. Of each publisher only the last sequence number delivered is kept: every stream is in order, so what
is not above it has been delivered before. Where a broker's greeting promises no order, the numbers delivered are kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import zip_longest

from trimtab.client.config import ClientConfig
from trimtab.client.delivered_numbers import DeliveredNumbers
from trimtab.client.ended import EndedAdvertisements
from trimtab.client.moving import Move
from trimtab.client.own_channels import OwnChannels
from trimtab.client.own_filters import OwnFilters
from trimtab.client.requirements import Requirements
from trimtab.client.wire_names import WireNames
from trimtab.language import Filter, LanguageError, Publication, Value
from trimtab.matching.announcements import Announcements
from trimtab.protocol.channels import STREAM_MARK
from trimtab.protocol.effects import (
    Close,
    Deliver,
    Effect,
    HeldBack,
    InForce,
    MeasureRoundTrips,
    Moved,
    NotMoved,
    Open,
    Rejected,
    Shut,
    Taken,
)
from trimtab.protocol.events import Connected, Disconnected, Event, MoveTo, Received, RoundTripsMeasured, Wake
from trimtab.protocol.frames import Ack, Hello, Payload
from trimtab.protocol.kept_link import KeptLink, Place
from trimtab.protocol.link import Link
from trimtab.protocol.messages import (
    FROM_NOW_ON,
    VERSION,
    Accepted,
    Advertise,
    AnyMessage,
    ChannelConfirmed,
    Confirmed,
    End,
    Limited,
    Measure,
    Measured,
    MovedAdvertisement,
    MovedSubscription,
    Publish,
    Redirect,
    Refused,
    Resume,
    Returned,
    Stay,
    Stayed,
    Stranded,
    Subscribe,
    Unadvertise,
    Unsubscribe,
    WireValue,
    is_control,
)


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
        self._broker_session = ""
        self._next_id = 1
        self._next_sequence = 1
        self._advertisements: dict[str, Filter] = {}
        self._in_force: dict[str, None] = {}
        self._announced = Announcements()
        """The advertisements in force; what they announce may be sent."""
        self._subscriptions: dict[str, Filter] = {}
        self._own_filters = OwnFilters()
        self._requirements = Requirements()
        self._held: deque[Publish | Unadvertise] = deque()
        self._ending: dict[str, None] = {}
        """Advertisements that end as soon as the publications before their end are sent."""
        self._unaccepted: deque[Publish] = deque()
        self._ended = EndedAdvertisements()
        self._has_published = False
        """Whether a publication was sent to the present broker."""
        self._last_delivered: dict[str, tuple[str, int]] = {}
        """By publisher: its session, and the number of the publication that was delivered last."""
        self._delivered = DeliveredNumbers({}) if config.order == "any" else None
        """All numbers that were delivered, from when no order is promised; there is no way back from that."""
        self.paused = False
        self._names = WireNames()
        self._move: Move | None = None
        self._settling: Move | None = None
        """A move that has happened, of which the new broker has not said yet that publications may go on."""
        self._channels = OwnChannels()
        self._ended_in_move: list[str] = []
        self._said_in_move: list[AnyMessage] = []
        """What the application asks for during a move; it is said to the broker that serves the client afterwards."""
        if config.earlier is not None:
            self._broker_session = config.earlier.broker_session
            for filter in config.earlier.filters:
                id = self._new_id("s")
                self._subscriptions[id] = filter
                self._own_filters.add(id, filter)
                self._in_force[id] = None

    # ---- the application's side ----

    def advertise(self, filter: Filter, now_s: float) -> str:
        """Announce what will be published; publications wait until this is in force."""
        id = self._new_id("a")
        self._advertisements[id] = filter
        self._say(Advertise(id=id, filter=filter), now_s)
        return id

    def unadvertise(self, id: str, now_s: float) -> None:
        """End an advertisement."""
        self._require(id, {} if id in self._ending else self._advertisements)
        self._ending[id] = None
        self._held.append(Unadvertise(id=id))
        self._release(now_s)

    def subscribe(self, filter: Filter, now_s: float, within_s: float | None = None) -> str:
        """Ask for what the filter matches, perhaps within a time; `InForce` tells when nothing will be missed."""
        id = self._new_id("s")
        self._requirements.add(id, within_s)
        self._subscriptions[id] = filter
        self._own_filters.add(id, filter)
        self._say(self._request(id, id), now_s)
        return id

    def _request(self, id: str, wire_id: str) -> Subscribe:
        return Subscribe(id=wire_id, filter=self._subscriptions[id], within_s=self._requirements.of(id))

    @property
    def late_counts(self) -> dict[str, int]:
        """Deliveries that came later than wanted, by subscription."""
        return self._requirements.late_counts

    def subscribe_channel(
        self, channel: str, arguments: Mapping[str, WireValue], now_s: float, after: int = FROM_NOW_ON
    ) -> str:
        """Ask for the results of a channel, from now on or after a position; `InForce` tells when none is missed."""
        id = self._new_id("c")
        self._channels.add(id, channel, arguments, after)
        if self._move is None:
            self.link.enqueue(self._channels.request(id), now_s)
        return id

    def position_of(self, id: str) -> int | None:
        """The position after which results of a channel come; None if that is not known, or it is no channel's id."""
        return self._channels.position_of(id)

    def _unsubscribe_channel(self, id: str, now_s: float) -> None:
        self._channels.drop(id)
        self._in_force.pop(id, None)
        if self._move is None:
            self.link.enqueue(self._channels.end(id), now_s)

    def _enqueue_all(self, messages: Sequence[AnyMessage], now_s: float) -> None:
        for message in messages:
            self.link.enqueue(message, now_s)

    def unsubscribe(self, id: str, now_s: float) -> None:
        """End a subscription, to a filter or to a channel."""
        if id in self._channels:
            self._unsubscribe_channel(id, now_s)
            return
        self._require(id, self._subscriptions)
        self._drop_subscription(id)
        if self._move is not None and id in self._move.wire_ids:
            self._ended_in_move.append(id)  # told when the move is done
        else:
            self._say(Unsubscribe(id=self._names.forget(id)), now_s)

    def publish(self, values: Mapping[str, Value], now_s: float, sequence: int | None = None) -> int:
        """Hand over a publication; returns its sequence number, or raises `WindowFull`.

        Who has growing numbers of its own, the same in every life, gives them: what was said twice is delivered once.
        """
        publication = values if isinstance(values, Publication) else Publication(values)
        goes_at_once = not (self._held or self._ending or self.paused) and self._announced.announce(
            publication.values_by_name
        )
        if not goes_at_once and not self._will_announce(publication):
            raise LanguageError("no advertisement of this client announces the publication")
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
        )
        self._next_sequence = message.sequence + 1
        if goes_at_once:
            self._send_publication(message, now_s)
        else:
            self._held.append(message)
            self._release(now_s)
        return message.sequence

    def _send_publication(self, message: Publish, now_s: float) -> None:
        self._unaccepted.append(message)
        self._has_published = True
        self.link.enqueue(message, now_s)

    def _will_announce(self, publication: Publication) -> bool:
        """Whether an advertisement that does not end, in force or not, announces the publication."""
        ours = self._advertisements.items()
        return any(id not in self._ending and filter.announces(publication) for id, filter in ours)

    @property
    def window_is_full(self) -> bool:
        """Whether `publish` would be refused now."""
        return len(self._unaccepted) + len(self._held) >= self.config.publish_window_count

    @property
    def waiting_count(self) -> int:
        """Publications that the broker has not accepted yet."""
        return len(self._unaccepted) + len(self._held)

    def wire_id(self, id: str) -> str:
        """What brokers call a subscription: each move gives it a new name."""
        return self._names.of(id)

    def pause(self) -> None:
        """Hold publications back until `resume`."""
        self.paused = True

    def resume(self, now_s: float) -> None:
        """Send what was held back."""
        self.paused = False
        self._release(now_s)

    # ---- the world's side ----

    def handle(self, event: Event, now_s: float) -> list[Effect]:
        """Take in an event; returns what the world is to do for the application."""
        match event:
            case Received(peer=peer, frame=frame):
                return self.receive(peer, frame, now_s)
            case Connected(peer=peer, hello=hello):
                if hello.order == "any" and self._delivered is None:
                    self._delivered = DeliveredNumbers(self._last_delivered)
                if self._move is not None and peer == self._move.broker:
                    self._connected_to_new(self._move, hello, now_s)
                else:
                    return self._connected(peer, hello, now_s)
            case Disconnected(peer=peer):
                link = self._link_to(peer)
                if link is not None:
                    link.disconnect()
                if self._move is not None and peer == self.broker:
                    self._move.old_away_s = now_s
            case Wake():
                return self._wake(now_s)
            case MoveTo():
                return self._begin_move(event, self.link, now_s)
            case RoundTripsMeasured(question=question, round_trips_s=round_trips_s):
                self._say(Measured(round_trips_s=round_trips_s, cause=question), now_s)
            case _:
                pass  # for brokers
        return []

    def greeting(self, broker: str = "") -> Hello:
        """The greeting for a connection to a broker, the present one unless another is named."""
        if self._move is not None and broker == self._move.broker:
            move = self._move
            return Hello(VERSION, "client", self.name, self.config.session, move.link.expects, move.broker_session)
        return Hello(VERSION, "client", self.name, self.config.session, self.link.expects, self._broker_session)

    def consumed(self, waiting_count: int = 0) -> bool:
        """The application has dealt with all deliveries except for so many; whether a broker should be told soon.

        Only then does a broker send more, so that what the application does not keep up with waits at the broker. What
        comes from a new broker during a move counts as dealt with when it arrives: the move does not wait for room.
        """
        tell = self.link.did_all_but(waiting_count)
        return (self._move is not None and self._move.link.did_all_but(0)) or tell

    @property
    def subscription_ids(self) -> tuple[str, ...]:
        """Its subscriptions to filters."""
        return tuple(self._subscriptions)

    @property
    def broker_session(self) -> str:
        """What the present broker calls its life."""
        return self._broker_session

    def arrived(self) -> Place:
        """How much has arrived, for an application that stores it; all of it has been handed over."""
        return self.link.place if isinstance(self.link, KeptLink) else Place()

    def stored(self, place: Place) -> None:
        """The application has stored what had arrived at a place: the broker may forget it."""
        if isinstance(self.link, KeptLink):
            self.link.store(place)

    def take_frame(self, now_s: float, broker: str = "") -> Payload | Ack | None:
        """The next frame for a broker (the present one unless another is named), None if there is none now."""
        link = self._link_to(broker or self.broker)
        return None if link is None else link.take(now_s)

    def has_frame(self, broker: str = "") -> bool:
        """Whether `take_frame` would return a frame."""
        link = self._link_to(broker or self.broker)
        return link is not None and link.has_frame()

    def wake_at_s(self) -> float | None:
        """When the session wants its next `Wake`."""
        times = [self.link.wake_at_s()]
        if self._move is not None:
            times.append(self._move.link.wake_at_s())
            times += (self._move.too_long_s(self.config), self._move.without_old_s(self.config))
        return min((time for time in times if time is not None), default=None)

    def _wake(self, now_s: float) -> list[Effect]:
        self.link.wake(now_s)
        move = self._move
        if move is None:
            return []
        move.link.wake(now_s)
        too_long_s, without_old_s = move.too_long_s(self.config), move.without_old_s(self.config)
        if without_old_s is not None and now_s >= without_old_s:
            return self._end_move(move, now_s)
        if too_long_s is not None and now_s >= too_long_s:
            if not move.has_asked:
                problem = "took too long to begin" if move.broker_session else "cannot be reached"
                return self._undo_move(move, f"{move.broker} {problem}", now_s)
            self._ask_to_stay(move, now_s)
        return []

    def _ask_to_stay(self, move: Move, now_s: float) -> None:
        """Ask the old broker to undo the move; it knows whether that is too late."""
        if not move.asked_to_stay:
            move.asked_to_stay = True
            self.link.enqueue(Stay(move=move.id, cause=move.cause), now_s)

    def _link_to(self, broker: str) -> Link | None:
        if broker == self.broker:
            return self.link
        return self._move.link if self._move is not None and broker == self._move.broker else None

    # ---- moving ----

    @property
    def is_moving(self) -> bool:
        """Whether the client is on its way to another broker."""
        return self._move is not None or self._settling is not None

    @property
    def _holds_back(self) -> bool:
        """Whether publications wait for a move."""
        return self._settling is not None or (self._move is not None and self._move.holds_back)

    def _begin_move(self, target: MoveTo, asked_over: Link, now_s: float) -> list[Effect]:
        """Set out for another broker, or tell the one that asked why not: it may be the one that we are moving to."""
        reason = ""
        if self.is_moving or not self.broker or target.broker == self.broker:
            reason = "the client is already there, or on its way, or has no broker yet"
        elif self.config.stores:
            reason = "a client that stores what it is told does not move"
        if reason:
            if target.cause:
                asked_over.enqueue(Refused(about=target.cause, reason=reason, cause=target.cause), now_s)
            return [NotMoved(target.broker, reason)]
        wire_ids = self._names.plan(self._subscriptions)
        move_id = f"{self.name}/m{self._names.moves_count}"
        self._move = Move(move_id, target, Link(self.config.link), wire_ids, now_s)
        self._move.advertisements = dict.fromkeys(self._advertisements)
        self._move.old_away_s = None if self.link.connected else now_s
        return [Open(target.broker, target.address, target.cause)]

    def _connected_to_new(self, move: Move, hello: Hello, now_s: float) -> None:
        is_remembered = move.broker_session == hello.session and hello.resumes == self.config.session
        if is_remembered and move.link.fits(hello.expects):
            move.link.connect(hello.expects, now_s)
            return
        if move.has_asked:
            move.is_forgotten = True
            move.confirmed.clear()
            self._ask_to_stay(move, now_s)
        move.link = Link(self.config.link)
        move.link.connect(1, now_s)
        move.broker_session = hello.session
        self._ask_to_move_in(move, now_s)

    def _ask_to_move_in(self, move: Move, now_s: float) -> None:
        """Ask the new broker to take the client in, once nothing is left to be done at the old one."""
        advertised = [id for id in move.advertisements if id in self._advertisements]
        if move.has_asked or not move.broker_session or any(id not in self._in_force for id in advertised):
            return
        if not move.holds_back:
            move.holds_back, move.holds_back_s = True, now_s
            move.publishes = self._has_published or bool(advertised)
            self._announced = Announcements()  # publications wait until the move has ended
        if self._unaccepted:
            return
        move.ask(
            self.broker,
            self._broker_session,
            [
                MovedSubscription(self.wire_id(id), wire_id, self._subscriptions[id], self._requirements.of(id))
                for id, wire_id in move.wire_ids.items()
                if id in self._subscriptions
            ],
            [MovedAdvertisement(self.wire_id(id), self._advertisements[id]) for id in advertised],
            now_s,
        )

    def _end_move(self, move: Move, now_s: float) -> list[Effect]:
        """The old broker has sent all that it alone had; go on with the new one."""
        old_broker = self.broker
        self._move, self._settling = None, move
        self.link, self.broker, self._broker_session = move.link, move.broker, move.broker_session
        self._names.take_over(move.wire_ids, self._subscriptions)
        effects: list[Effect] = [Shut(old_broker)]
        if move.is_forgotten:
            effects += self._begin_again(now_s)
        else:
            for id in self._ended_in_move:
                self._names.forget(id)
                if move.wire_ids[id] in move.asked_ids:
                    self._say(Unsubscribe(id=move.wire_ids[id]), now_s)
            self._say_what_waited(now_s)
            self._enqueue_all(self._channels.request_all(), now_s)
            if move.may_publish:
                effects += self._told_how_it_went(move, now_s)
        for confirmed in move.confirmed:
            effects.extend(self._message(confirmed, now_s))
        for message in move.early:
            deliver = self._deliver(message, now_s)
            if deliver is not None:
                effects.append(deliver)
        return effects

    def _advertise_anew(self, move: Move, now_s: float) -> None:
        """The path broke that led here: what moved along it is not known to come from here."""
        self._names.rename(move.advertisements)
        for id in move.advertisements:
            if id in self._advertisements:
                self._in_force.pop(id, None)
                self._say(Advertise(id=self._names.of(id), filter=self._advertisements[id]), now_s)
        move.begin_to_ask_again()

    def _ask_again(self, move: Move, now_s: float) -> None:
        """Ask what became of the old stream, once ways lead to all who want what is advertised, and so to it."""
        if move.asks_again and not move.has_asked and all(id in self._in_force for id in self._advertisements):
            move.ask_again(self.link, now_s)

    def _settle(self, move: Move, now_s: float) -> list[Effect]:
        """The move is over: go on publishing."""
        self._settling, self._has_published = None, False
        self._announce_in_force()
        self._release(now_s)
        return [Moved(self.broker, move.waited_s(now_s))]

    def _announce_in_force(self) -> None:
        for id in self._advertisements:
            if id in self._in_force:
                self._announced.add(id, self._advertisements[id])

    def _undo_move(self, move: Move, reason: str, now_s: float) -> list[Effect]:
        """The client never left its broker; one that asked for the move is told."""
        self._move = None
        self._announce_in_force()
        for id in self._ended_in_move:
            self._say(Unsubscribe(id=self._names.forget(id)), now_s)
        if move.asked_by_broker:
            self._say(Refused(about=move.cause, reason=reason, cause=move.cause), now_s)
        self._say_what_waited(now_s)
        self._enqueue_all(self._channels.catch_up(), now_s)
        self._release(now_s)
        return [NotMoved(move.broker, reason), Shut(move.broker)]

    def _say_what_waited(self, now_s: float) -> None:
        self._ended_in_move.clear()
        for message in self._said_in_move:
            self.link.enqueue(message, now_s)
        self._said_in_move.clear()

    def _connected(self, broker: str, hello: Hello, now_s: float) -> list[Effect]:
        is_first = not self._broker_session
        is_remembered = self._broker_session == hello.session and hello.resumes == self.config.session
        goes_on = is_first or (is_remembered and self.link.fits(hello.expects))
        is_elsewhere = bool(self.broker) and broker != self.broker
        self.broker = broker
        self._broker_session = hello.session
        if goes_on:
            self.link.connect(1 if is_first else hello.expects, now_s)
            if self._move is not None:
                self._move.old_away_s = None
            return []
        if self.config.stores:
            return [Close(broker, f"{broker} has forgotten the client, and with it what it kept for it")]
        self.link = Link(self.config.link)
        self.link.connect(1, now_s)
        if is_elsewhere:  # where brokers know the old names as coming from the broker that is away
            self._names.moves_count += 1
            self._names.rename(self._advertisements)
            self._names.rename(self._subscriptions)
        return self._begin_again(now_s)

    def _begin_again(self, now_s: float) -> list[Effect]:
        """The broker does not remember this client: tell it everything.

        A move from it is over. So is one to it, but what was published before may be on its way here, and goes first.
        """
        move, settled = self._move, self._settling
        if move is not None or settled is not None:
            self._names.rename(self._advertisements)
        self._move = None
        self._ended_in_move.clear()
        self._said_in_move.clear()
        revived, unaccepted = self._ended.begin_again(self._unaccepted)
        for id, filter, wire_id in revived:
            self._advertisements[id] = filter
            self._names.revive(id, wire_id)
        for id, filter in self._advertisements.items():
            self.link.enqueue(Advertise(id=self._names.of(id), filter=filter), now_s)
        for id in self._subscriptions:
            self.link.enqueue(self._request(id, self.wire_id(id)), now_s)
        self._enqueue_all(self._channels.request_all(), now_s)
        self.link.enqueue(Returned(), now_s)
        self._in_force.clear()
        self._announced = Announcements()
        self._held = deque([*unaccepted, *self._held])
        self._unaccepted.clear()
        if move is not None:
            return self._undo_move(move, f"{self.broker} was started again", now_s)
        if settled is None:
            return []
        if not settled.publishes:
            return self._settle(settled, now_s)
        settled.begin_to_ask_again()
        self._ask_again(settled, now_s)
        return []

    def receive(self, broker: str, frame: Payload | Ack, now_s: float) -> list[Effect]:
        """A frame arrived from a broker: the same as the event `Received`, for worlds with very many of them."""
        link = self.link if broker == self.broker else self._link_to(broker)
        if link is None:
            return []
        messages = link.receive(frame, now_s)
        if not messages:
            return []
        if len(messages) == 1 and self._move is None and type(message := messages[0]) is Publish:
            link.data_arrived(1)
            deliver = self._deliver(message, now_s)
            return [] if deliver is None else [deliver]
        effects: list[Effect] = []
        link.data_arrived(sum([not is_control(message) for message in messages]))
        for message in messages:
            move = self._move
            if move is None and type(message) is Publish:
                deliver = self._deliver(message, now_s)
                if deliver is not None:
                    effects.append(deliver)
            elif move is not None and link is move.link and isinstance(message, Publish):
                move.early.append(message)
            elif move is not None and link is move.link and isinstance(message, Confirmed):
                move.confirmed.append(message)
            elif move is not None and isinstance(message, End) and message.move == move.id:
                effects.extend(self._end_move(move, now_s))
                break  # the old broker has no more to say
            elif move is not None and isinstance(message, Refused) and message.about == move.id:
                effects.extend(self._undo_move(move, message.reason, now_s))
                break
            elif self._settling is not None and isinstance(message, Refused) and message.about == self._settling.id:
                effects.extend(self._settle(self._settling, now_s))  # no way leads to what there was before
            elif isinstance(message, Resume | Stranded):
                effects.extend(self._publishing_may_go_on(message, now_s))
            elif move is not None and isinstance(message, Stayed) and message.move == move.id:
                effects.extend(self._undo_move(move, f"the move to {move.broker} took too long", now_s))
            elif isinstance(message, Redirect):
                target = MoveTo(message.broker, message.address, message.cause or self.name)
                effects.extend(self._begin_move(target, link, now_s))
            else:
                effects.extend(self._message(message, now_s))
        if self._move is not None:
            self._ask_to_move_in(self._move, now_s)
        elif self._settling is not None:
            self._ask_again(self._settling, now_s)
        return effects

    def receive_run(self, broker: str, arrivals: Sequence[tuple[float, Payload]]) -> list[tuple[float, Deliver]] | None:
        """Frames with one publication each that came one after the other: what to deliver, and when each came.

        The same as `receive` for each of them; None if they are not to be taken in as a run.
        """
        if self._move is not None or broker != self.broker or not self.link.receive_run(arrivals):
            return None
        deliver = self._deliver
        delivered: list[tuple[float, Deliver]] = []
        for at_s, frame in arrivals:
            publication = deliver(frame.messages[0], at_s)  # type: ignore[arg-type]  # what arrives is decoded
            if publication is not None:
                delivered.append((at_s, publication))
        return delivered

    def _publishing_may_go_on(self, message: Resume | Stranded, now_s: float) -> list[Effect]:
        """What the new broker says of a publisher's move: the old stream has passed, or no way leads from it."""
        move = self._move or self._settling
        if move is None or move.id != message.move:
            return []
        move.told_s, move.may_publish = now_s, True
        move.is_stranded = isinstance(message, Stranded)
        if move is self._settling:
            return self._told_how_it_went(move, now_s)
        if move.is_stranded:
            self._ask_to_stay(move, now_s)
        return []

    def _told_how_it_went(self, move: Move, now_s: float) -> list[Effect]:
        """The move has happened, and the new broker has said whether the old stream has passed."""
        if not move.is_stranded or move.asks_again:
            return self._settle(move, now_s)
        self._advertise_anew(move, now_s)
        self._ask_again(move, now_s)
        return []

    def _message(self, message: AnyMessage, now_s: float) -> list[Effect]:
        match message:
            case Publish():
                deliver = self._deliver(message, now_s)
                return [] if deliver is None else [deliver]
            case Accepted(sequence=sequence):
                while self._unaccepted and self._unaccepted[0].sequence <= sequence:
                    self._unaccepted.popleft()
                self._ended.accepted(sequence)
                return [Taken(sequence)]
            case Confirmed(id=wire_id):
                id = self._names.id_of(wire_id)
                if (id not in self._advertisements and id not in self._subscriptions) or id in self._in_force:
                    return []  # ended meanwhile, or in force since before a move
                self._in_force[id] = None
                if id in self._advertisements and not self._holds_back:
                    self._announced.add(id, self._advertisements[id])
                self._release(now_s)
                return [InForce(id)]
            case ChannelConfirmed(id=id, position=position):
                if not self._channels.confirmed(id, position) or id in self._in_force:
                    return []
                self._in_force[id] = None
                return [InForce(id, self._channels.position_of(id))]
            case Measure(brokers=brokers, addresses=addresses, cause=cause):
                return [MeasureRoundTrips(cause, dict(zip_longest(brokers, addresses[: len(brokers)], fillvalue="")))]
            case Refused(about=about, reason=reason):
                self._channels.refused(about)
                about = self._names.id_of(about)
                self._advertisements.pop(about, None)
                self._announced.discard(about)
                if about in self._subscriptions:
                    self._drop_subscription(about)
                return [Rejected(about, reason)]
            case Limited(reason=reason):
                return [HeldBack(reason)]
            case _:
                return []  # brokers say nothing else to clients

    def _deliver(self, message: Publish, now_s: float) -> Deliver | None:
        publisher, sequence = message.publisher, message.sequence
        if publisher[:1] == STREAM_MARK:
            return self._deliver_result(message, now_s)
        values, session = message.values, message.session
        last = self._last_delivered.get(publisher)
        delivered = self._delivered
        if delivered is not None:
            if delivered.has(publisher, session, sequence):
                return None
        elif last is not None and sequence <= last[1] and last[0] == session:
            return None  # a publisher that was started again counts from 1, in another session
        wanted = self._own_filters.single or self._own_filters.matching(values)
        if not wanted:
            return None  # unsubscribed meanwhile; it may come again for a later subscription
        if delivered is None:
            self._last_delivered[publisher] = (session, sequence)
        else:
            delivered.add(publisher, session, sequence)
        delay_s = now_s - message.origin_s
        late_for = self._requirements.missed(wanted, delay_s) if self._requirements.within_s else ()
        publication = Publication.trusted(values)
        return Deliver(wanted, publication, publisher, sequence, delay_s, message.hops, session, late_for)

    def _deliver_result(self, message: Publish, now_s: float) -> Deliver | None:
        """A result of a channel: its position says whether it is the next one."""
        id = self._channels.accept(message.publisher, message.sequence)
        if id is None:
            return None
        publication = Publication.trusted(message.values)
        return Deliver((id,), publication, message.publisher, message.sequence, now_s - message.origin_s, message.hops)

    def _release(self, now_s: float) -> None:
        """Send held publications and ends of advertisements, in order, as far as advertisements in force allow."""
        while self._held and not self.paused and not self._holds_back:
            message = self._held[0]
            if isinstance(message, Unadvertise):
                self._ending.pop(message.id, None)
                self._in_force.pop(message.id, None)
                self._announced.discard(message.id)
                filter = self._advertisements.pop(message.id, None)
                if filter is not None:
                    self._ended.add(message.id, filter, self._unaccepted)
                    end = Unadvertise(id=self._names.forget(message.id))
                    if self._move is not None and message.id in self._move.advertisements:
                        self.link.enqueue(end, now_s)
                    else:
                        self._say(end, now_s)  # during a move behind its beginning, which has not been said
            else:
                if not self._announced.announce(message.values):
                    return
                self._send_publication(message, now_s)
            self._held.popleft()

    def _drop_subscription(self, id: str) -> None:
        del self._subscriptions[id]
        self._in_force.pop(id, None)
        self._names.expect_nothing_of(id)
        self._own_filters.remove(id)
        self._requirements.remove(id)

    def _new_id(self, kind: str) -> str:
        id = f"{self.name}/{kind}{self._next_id}"
        self._next_id += 1
        return id

    def _require(self, id: str, known: Mapping[str, Filter]) -> None:
        if id not in known:
            raise KeyError(f"{id} is not an id of this client")

    def _say(self, message: AnyMessage, now_s: float) -> None:
        if self._move is None:
            self.link.enqueue(message, now_s)
        else:
            self._said_in_move.append(message)
