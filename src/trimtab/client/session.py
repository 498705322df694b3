"""A client without its sockets: what it publishes and subscribes to, over one link to a broker.

Publications are numbered and kept until the broker has accepted them; they wait until an advertisement that announces
them is in force. Of each publisher only the last sequence number delivered is kept: every stream is in order, so what
is not above it has been delivered before. Where a broker's greeting promises no order, the numbers delivered are kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Mapping, Sequence
from itertools import zip_longest

import msgspec

from trimtab.client.channels import OwnChannels
from trimtab.client.config import ClientConfig
from trimtab.client.delivered_numbers import DeliveredNumbers
from trimtab.client.filters import OwnFilters
from trimtab.client.gaps import Gaps
from trimtab.client.known_epochs import KnownEpochs
from trimtab.client.move_transitions import Move
from trimtab.client.requirements import Requirements
from trimtab.client.withdrawals import EndedAdvertisements
from trimtab.language import Filter, LanguageError, Publication, Value
from trimtab.matching.announcements import Announcements, objection_of
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
    VERSION_MIN,
    Accepted,
    Advertise,
    AnyMessage,
    ChannelConfirmed,
    Confirmed,
    End,
    Gap,
    KnownAdvertisement,
    KnownSubscription,
    Limited,
    Measure,
    Measured,
    Publish,
    Redirect,
    Refused,
    Resume,
    Stay,
    Stayed,
    Stranded,
    Subscribe,
    Swept,
    Unadvertise,
    Unsubscribe,
    WireValue,
    is_control,
)
from trimtab.protocol.versions import OPEN_ADVERTISEMENTS, common_version


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
        self._epochs = KnownEpochs()
        self._versions: dict[str, int] = {}
        """The version of the protocol that is spoken with each broker."""
        self.stay = 1
        """The number of the stay at the present broker."""
        self._stays_count = 1
        """The highest number that a stay has had."""
        self._burned = 0
        """Stays elsewhere up to this one, above the present one, did not happen."""
        self._next_id = 1
        self._next_sequence = 1
        self._advertised_count = 0
        """How often anything was advertised: the number of the last telling."""
        self._advertisements: dict[str, Filter] = {}
        self._subscriptions: dict[str, Filter] = {}
        self._told: dict[str, None] = {}
        """The filters that the present broker was told, and the end of which it was not."""
        self._in_force: dict[str, None] = {}
        self._confirmed: dict[str, None] = {}
        """The advertisements that the present broker has confirmed."""
        self._announced = Announcements()
        """These, except while a move holds publications back; what they announce may be sent."""
        self._own_filters = OwnFilters()
        self._requirements = Requirements()
        self._held: deque[Publish | Unadvertise] = deque()
        self._ending: dict[str, None] = {}
        """Advertisements that end as soon as the publications before their end are sent."""
        self._unaccepted: deque[Publish] = deque()
        self._accepted_until = 0
        self._ended = EndedAdvertisements()
        self._has_published = False
        """Whether a publication was sent to the present broker."""
        self._last_delivered: dict[str, tuple[str, int]] = {}
        """By publisher: its session, and the number of the publication that was delivered last."""
        self._is_owed = config.earlier is not None
        """Whether a subscription has been in force, so that publications may be missing."""
        self._gaps = Gaps(self._last_delivered)
        self._gaps.any_order = config.order == "any"
        self._delivered = DeliveredNumbers({}) if config.order == "any" else None
        """All numbers that were delivered, from when no order is promised; there is no way back from that."""
        self.paused = False
        self._move: Move | None = None
        self._channels = OwnChannels()
        if config.earlier is not None:
            self._broker_session = config.earlier.broker_session
            for filter in config.earlier.filters:
                id = self._new_id("s")
                self._subscriptions[id] = filter
                self._own_filters.add(id, filter)
                self._in_force[id] = self._told[id] = None

    # ---- the application's side ----

    def advertise(self, filter: Filter, now_s: float) -> str:
        """Announce what will be published; publications wait until this is in force."""
        id = self._new_id("a")
        self._advertisements[id] = filter
        self._tell(now_s)
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
        self._tell(now_s)
        return id

    @property
    def knows_open_advertisements(self) -> bool:
        """Whether the present broker does; one that does not is told the attributes that they name, and no others."""
        return self._versions.get(self.broker, VERSION) >= OPEN_ADVERTISEMENTS

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
        if not self._is_leaving:
            self.link.enqueue(self._channels.request(id), now_s)
        return id

    def position_of(self, id: str) -> int | None:
        """The position after which results of a channel come; None if that is not known, or it is no channel's id."""
        return self._channels.position_of(id)

    def _unsubscribe_channel(self, id: str, now_s: float) -> None:
        self._channels.drop(id)
        self._in_force.pop(id, None)
        if not self._is_leaving:
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
        self._tell(now_s)

    def publish(self, values: Mapping[str, Value], now_s: float, sequence: int | None = None) -> int:
        """Hand over a publication; returns its sequence number, or raises `WindowFull`.

        Who has growing numbers of its own, the same in every life, gives them: what was said twice is delivered once.
        """
        publication = values if isinstance(values, Publication) else Publication(values)
        goes_at_once = not (self._held or self._ending or self.paused) and self._announced.announce(
            publication.values_by_name
        )
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
            self._release(now_s)
        return message.sequence

    def _send_publication(self, message: Publish, now_s: float) -> None:
        if message.stay != self.stay:
            message = msgspec.structs.replace(message, stay=self.stay)
        self._unaccepted.append(message)
        self._has_published = True
        self.link.enqueue(message, now_s)

    def _will_announce(self, publication: Publication) -> bool:
        """Whether an advertisement that does not end, in force or not, announces the publication."""
        ours = self._advertisements.items()
        return any(id not in self._ending and filter.announces(publication) for id, filter in ours)

    def _objection_to(self, publication: Publication) -> str:
        ours = [filter for id, filter in self._advertisements.items() if id not in self._ending]
        return objection_of(ours, publication.values_by_name)

    @property
    def window_is_full(self) -> bool:
        """Whether `publish` would be refused now."""
        return len(self._unaccepted) + len(self._held) >= self.config.publish_window_count

    @property
    def waiting_count(self) -> int:
        """Publications that the broker has not accepted yet."""
        return len(self._unaccepted) + len(self._held)

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
                self._epochs.learn(peer, hello.epoch)
                self._versions[peer] = common_version(hello, VERSION)
                if hello.order == "any" and self._delivered is None:
                    self._delivered = DeliveredNumbers(self._last_delivered)
                    self._gaps.any_order = True
                if self._is_leaving and self._move is not None and peer == self._move.broker:
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
                self.link.enqueue(Measured(round_trips_s=round_trips_s, cause=question), now_s)
            case _:
                pass  # for brokers
        return []

    def greeting(self, broker: str = "") -> Hello:
        """The greeting for a connection to a broker, the present one unless another is named."""
        link, session, stay = self.link, self._broker_session, self.stay
        if self._move is not None and self._is_leaving and broker == self._move.broker:
            link, session, stay = self._move.link, self._move.broker_session, self._move.stay
        elif self.broker and broker not in ("", self.broker):
            stay = self._stays_count + 1  # it goes on elsewhere, if that answers
        return Hello(
            VERSION,
            "client",
            self.name,
            self.config.session,
            link.expects,
            session,
            version_min=VERSION_MIN,
            granted=self._epochs.of(broker or self.broker),
            stay=stay,
            burned=self._burned,
        )

    def consumed(self, waiting_count: int = 0) -> bool:
        """The application has dealt with all deliveries except for so many; whether a broker should be told soon.

        Only then does a broker send more, so that what the application does not keep up with waits at the broker. What
        comes from a new broker during a move counts as dealt with when it arrives: the move does not wait for room.
        """
        tell = self.link.did_all_but(waiting_count)
        return (self._is_leaving and self._move is not None and self._move.link.did_all_but(0)) or tell

    @property
    def subscription_ids(self) -> tuple[str, ...]:
        """Its subscriptions to filters."""
        return tuple(self._subscriptions)

    @property
    def broker_session(self) -> str:
        """What the present broker calls its incarnation."""
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
        times = [self.link.wake_at_s(), self._gaps.wake_at_s()]
        move = self._move
        if move is not None and move.is_under_way:
            times += (move.link.wake_at_s(), move.too_long_s(self.config), move.without_old_s(self.config))
        return min((time for time in times if time is not None), default=None)

    def _wake(self, now_s: float) -> list[Effect]:
        self.link.wake(now_s)
        return [*self._gaps.wake(now_s), *self._wake_move(now_s)]

    def _wake_move(self, now_s: float) -> list[Effect]:
        move = self._move
        if move is None or not move.is_under_way:
            return []
        move.link.wake(now_s)
        too_long_s, without_old_s = move.too_long_s(self.config), move.without_old_s(self.config)
        if without_old_s is not None and now_s >= without_old_s:
            reason = f"{self.broker} was away for too long, with what waited there"
            lost = self._gaps.given_up(reason, now_s) if self._is_owed else []
            return [*lost, *self._end_stay(move, now_s)]
        if too_long_s is not None and now_s >= too_long_s:
            if not move.was_asked:
                problem = "took too long to begin" if move.broker_session else "cannot be reached"
                return self._undo(move, f"{move.broker} {problem}", now_s)
            self._ask_to_stay(move, f"the move to {move.broker} took too long", now_s)
        return []

    def _link_to(self, broker: str) -> Link | None:
        if broker == self.broker:
            return self.link
        return self._move.link if self._move is not None and broker == self._move.broker else None

    # ---- moving: the rows of the table in move_transitions.py ----

    @property
    def is_moving(self) -> bool:
        """Whether the client is on its way to another broker."""
        return self._move is not None

    @property
    def _is_leaving(self) -> bool:
        """Whether the present broker is not to be told of new filters: another will be."""
        return self._move is not None and self._move.is_under_way

    @property
    def _holds_back(self) -> bool:
        """Whether publications wait for a move."""
        return self._move is not None and self._move.holds_back

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
        self._move = Move(self._next_stay(), self.name, target, Link(self.config.link), now_s)
        self._move.old_away_s = None if self.link.connected else now_s
        return [Open(target.broker, target.address, target.cause)]

    def _next_stay(self) -> int:
        self._stays_count += 1
        return self._stays_count

    def _connected_to_new(self, move: Move, hello: Hello, now_s: float) -> None:
        """The broker that we are moving to greets, for the first time or again."""
        is_remembered = move.broker_session == hello.session and hello.resumes == self.config.session
        if is_remembered and move.link.fits(hello.expects):
            move.link.connect(hello.expects, now_s)
            return
        move.link = Link(self.config.link)
        move.link.connect(1, now_s)
        move.broker_session = hello.session
        if move.was_asked:
            self._ask(move, now_s)
            move.link.enqueue(Swept(), now_s)
        else:
            self._ask_when_ready(move, now_s)

    def _ask_when_ready(self, move: Move, now_s: float) -> None:
        """Ask the new broker to take the client in, once nothing is left to be done at the old one."""
        if move.phase == "reaching" and move.broker_session:
            advertised = [id for id in self._advertisements if id in self._told]
            if all(id in self._confirmed for id in advertised):
                move.phase, move.held_back_s = "holding", now_s
                move.publishes = self._has_published or bool(advertised)
                self._announced = Announcements()
        if move.phase == "holding" and not self._unaccepted:
            move.phase, move.old_broker = "asked", self.broker
            self._ask(move, now_s)

    def _ask(self, move: Move, now_s: float) -> None:
        wanted = [
            KnownSubscription(id, filter, self._requirements.of(id)) for id, filter in self._subscriptions.items()
        ]
        announced = [KnownAdvertisement(id, filter) for id, filter in self._advertisements.items()]
        move.ask(wanted, announced, now_s, self._accepted_until, self._versions.get(move.broker, VERSION))

    def _ask_to_stay(self, move: Move, reason: str, now_s: float) -> None:
        """Ask the old broker to burn the stay; it knows whether that is too late."""
        if move.phase == "asked":
            move.phase, move.reason = "staying", reason
            self.link.enqueue(Stay(stay=move.stay, cause=move.cause), now_s)

    def _end_stay(self, move: Move, now_s: float) -> list[Effect]:
        """The old broker has sent all that it alone had; go on with the new one."""
        old_broker = self.broker
        move.phase = "settling"
        self._gaps.moved()
        self.link, self.broker, self._broker_session, self.stay = move.link, move.broker, move.broker_session, move.stay
        self._told = move.told
        self._confirmed = {each.id: None for each in move.confirmed if each.id in self._advertisements}
        effects: list[Effect] = [Shut(old_broker)]
        for confirmed in move.confirmed:
            effects.extend(self._message(confirmed, now_s))
        self._tell(now_s)
        self._enqueue_all(self._channels.request_all(), now_s)
        effects += self._deliver_all(move.in_order(), now_s)
        if move.is_refused:
            effects += self._settle_without_way(move, now_s)
        elif move.answered_s is not None or not move.publishes:
            effects += self._settle(move, now_s)
        return effects

    def _settle(self, move: Move, now_s: float) -> list[Effect]:
        """The move is over: go on publishing."""
        self._move, self._has_published = None, False
        self._announce()
        self._release(now_s)
        return [Moved(self.broker, move.waited_s(now_s))]

    def _settle_without_way(self, move: Move, now_s: float) -> list[Effect]:
        """The new broker, asked again, has taken nothing: tell it what there is, and wait for nobody."""
        self._told.clear()
        self._tell_present(now_s)
        return self._settle(move, now_s)

    def _undo(self, move: Move, reason: str, now_s: float) -> list[Effect]:
        """The client never left its broker; one that asked for the move is told."""
        self._move = None
        if move.was_asked:
            self._burned = move.stay
        self._announce()
        if move.asked_by_broker:
            self.link.enqueue(Refused(about=move.cause, reason=reason, cause=move.cause), now_s)
        self._tell(now_s)
        self._enqueue_all(self._channels.catch_up(), now_s)
        self._release(now_s)
        return [NotMoved(move.broker, reason), Shut(move.broker), *self._deliver_all(move.late, now_s)]

    def _deliver_all(self, messages: Sequence[Publish | Gap], now_s: float) -> list[Effect]:
        """Deliver what was kept during a move; what may be missing lies between what was delivered before and after."""
        gaps = [message for message in messages if isinstance(message, Gap)]
        before = dict(self._last_delivered) if gaps else {}
        delivers = (self._deliver(message, now_s) for message in messages if isinstance(message, Publish))
        effects: list[Effect] = [deliver for deliver in delivers if deliver is not None]
        for gap in gaps if self._is_owed else ():
            effects += self._gaps.heard(gap, now_s, before)
        return effects

    def _announce(self) -> None:
        """Publications may be sent that what the present broker has confirmed announces."""
        for id in self._confirmed:
            self._announced.add(id, self._advertisements[id])

    def _about_the_move(self, move: Move, message: AnyMessage, now_s: float) -> list[Effect] | None:
        """What a broker says of a move; None if it is about something else."""
        match message:
            case End(stay=stay) if stay == move.stay and move.was_asked:
                return self._end_stay(move, now_s)
            case Stayed(stay=stay) if stay == move.stay and move.phase == "staying":
                return self._end_stay(move, now_s) if move.goes_on else self._undo(move, move.reason, now_s)
            case Resume(stay=stay) | Stranded(stay=stay) if stay == move.stay:
                return self._answered(move, now_s, goes_on=isinstance(message, Resume))
            case Refused(about=about, reason=reason) if move.is_about(about):
                if move.phase == "asked" and move.asked_count == 1:
                    return self._undo(move, reason, now_s)
                move.is_refused = True
                self._ask_to_stay(move, reason, now_s)
                return self._settle_without_way(move, now_s) if move.phase == "settling" else []
            case End() | Stayed() | Resume() | Stranded():
                return []  # of an earlier move
            case _:
                return None

    def _answered(self, move: Move, now_s: float, *, goes_on: bool) -> list[Effect]:
        """The new broker says that the old stream has passed, or that no way leads to the old broker."""
        move.answered_s, move.goes_on = now_s, goes_on
        if move.phase == "settling":
            return self._settle(move, now_s)
        if not goes_on or move.old_forgot:
            self._ask_to_stay(move, f"no way leads from {move.broker} to {move.old_broker}", now_s)
        return []

    # ---- the present broker ----

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
        return self._begin_again(now_s, is_elsewhere=is_elsewhere)

    def _begin_again(self, now_s: float, *, is_elsewhere: bool) -> list[Effect]:
        """The broker does not remember this client, or not in this incarnation: tell it everything."""
        effects: list[Effect] = []
        self._gaps.link_ended(now_s)
        move = self._move
        if is_elsewhere:
            self.stay = self._next_stay()
            self._move = None
            if move is not None:
                effects = [NotMoved(move.broker, "the broker before it is gone"), Shut(move.broker)]
                if not move.is_under_way:
                    effects = [Moved(self.broker, move.waited_s(now_s))]
                effects += self._deliver_all(move.late, now_s)
        said_again_until = self._unaccepted[-1].sequence if self._unaccepted else 0
        revived, unaccepted = self._ended.begin_again(self._unaccepted)
        self._advertisements.update(revived)
        self._held = deque([*unaccepted, *self._held])
        self._unaccepted.clear()
        self._told.clear()
        self._confirmed.clear()
        self._in_force.clear()
        self._announced = Announcements()
        move = self._move
        if move is not None and move.phase == "holding":
            move.phase = "reaching"  # what was not accepted is said again here before anything moves
        if move is not None and not move.is_under_way:
            move.link = self.link
            self._ask(move, now_s)
            self._told = move.told
        self._tell_present(now_s, move.told if move is not None and move.was_asked else None)
        self._enqueue_all(self._channels.request_all(), now_s)
        self.link.enqueue(Swept(sequence=said_again_until, accepted=self._accepted_until), now_s)
        if move is not None and move.was_asked:
            move.old_away_s, move.old_forgot = None, True
            if move.phase == "staying":
                self.link.enqueue(Stay(stay=move.stay, cause=move.cause), now_s)
            elif move.answered_s is not None:
                self._ask_to_stay(move, f"{self.broker} was started again", now_s)
        return effects

    def _tell(self, now_s: float) -> None:
        """Tell the present broker which filters there are, unless another is about to be the present one."""
        if not self._is_leaving:
            self._tell_present(now_s)

    def _tell_present(self, now_s: float, known: Container[str] | None = None) -> None:
        """Say what has changed since the present broker was told; ends of advertisements keep their place elsewhere.

        An old broker is not told of what the new one does not know: it would be in force until the old stay ends.
        """
        for id in [id for id in self._told if id not in self._subscriptions and id not in self._advertisements]:
            del self._told[id]
            self.link.enqueue(Unsubscribe(id=id), now_s)
        for id, filter in self._advertisements.items():
            if id not in self._told and (known is None or id in known):
                self._told[id] = None
                self._advertised_count += 1
                named = filter if self.knows_open_advertisements else filter.closed()
                self.link.enqueue(Advertise(id=id, filter=named, number=self._advertised_count), now_s)
        for id, filter in self._subscriptions.items():
            if id not in self._told and (known is None or id in known):
                self._told[id] = None
                self.link.enqueue(Subscribe(id=id, filter=filter, within_s=self._requirements.of(id)), now_s)

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
            if move is None:
                if type(message) is Publish:
                    deliver = self._deliver(message, now_s)
                    if deliver is not None:
                        effects.append(deliver)
                    continue
            elif isinstance(message, Publish | Gap) and (link is not self.link or move.holds_old):
                (move.early if link is not self.link else move.late).append(message)
                continue
            elif link is not self.link and isinstance(message, Confirmed):
                move.confirmed.append(message)
                continue
            elif (about := self._about_the_move(move, message, now_s)) is not None:
                effects.extend(about)
                if link is not self.link and (self._move is None or link is not self._move.link):
                    break  # the old broker, or the one that we do not move to, has no more to say
                continue
            if isinstance(message, Redirect):
                target = MoveTo(message.broker, message.address, message.cause or self.name)
                effects.extend(self._begin_move(target, link, now_s))
            else:
                effects.extend(self._message(message, now_s))
        if self._move is not None:
            self._ask_when_ready(self._move, now_s)
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

    def _message(self, message: AnyMessage, now_s: float) -> list[Effect]:
        match message:
            case Publish():
                deliver = self._deliver(message, now_s)
                return [] if deliver is None else [deliver]
            case Gap():
                return [*self._gaps.heard(message, now_s)] if self._is_owed else []
            case Accepted(sequence=sequence):
                while self._unaccepted and self._unaccepted[0].sequence <= sequence:
                    self._unaccepted.popleft()
                self._accepted_until = max(sequence, self._accepted_until)
                self._ended.accepted(sequence)
                return [Taken(sequence)]
            case Confirmed(id=id):
                if id in self._advertisements:
                    self._confirmed[id] = None
                    if not self._holds_back:
                        self._announced.add(id, self._advertisements[id])
                elif id not in self._subscriptions:
                    return []  # ended meanwhile
                self._release(now_s)
                if id in self._in_force:
                    return []  # since before a move
                self._in_force[id] = None
                self._is_owed |= id in self._subscriptions
                return [InForce(id)]
            case ChannelConfirmed(id=id, position=position):
                if not self._channels.confirmed(id, position) or id in self._in_force:
                    return []
                self._in_force[id] = None
                return [InForce(id, self._channels.position_of(id))]
            case Measure(brokers=brokers, addresses=addresses, cause=cause):
                return [MeasureRoundTrips(cause, dict(zip_longest(brokers, addresses[: len(brokers)], fillvalue="")))]
            case Refused(about=about) if about == f"stay {self.stay}":
                self._told.clear()
                self._tell(now_s)  # asked again, it took nothing; the move was over by then
                return []
            case Refused(about=about, reason=reason):
                self._channels.refused(about)
                self._advertisements.pop(about, None)
                self._told.pop(about, None)
                self._confirmed.pop(about, None)
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
        self._last_delivered[publisher] = (session, sequence)
        if delivered is not None:
            delivered.add(publisher, session, sequence)
        if self._gaps.is_open:
            self._gaps.delivered(publisher, session, sequence)
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
                self._end_advertisement(message.id, now_s)
            else:
                if not self._announced.announce(message.values):
                    return
                self._send_publication(message, now_s)
            self._held.popleft()

    def _end_advertisement(self, id: str, now_s: float) -> None:
        """An advertisement ends, behind all that was published before."""
        self._ending.pop(id, None)
        self._in_force.pop(id, None)
        self._confirmed.pop(id, None)
        self._announced.discard(id)
        filter = self._advertisements.pop(id, None)
        if filter is not None:
            self._ended.add(id, filter, self._unaccepted)
            if id in self._told:
                del self._told[id]
                self.link.enqueue(Unadvertise(id=id, number=self._advertised_count), now_s)

    def _drop_subscription(self, id: str) -> None:
        del self._subscriptions[id]
        self._in_force.pop(id, None)
        self._own_filters.remove(id)
        self._requirements.remove(id)

    def _new_id(self, kind: str) -> str:
        id = f"{self.name}/{kind}{self._next_id}"
        self._next_id += 1
        return id

    def _require(self, id: str, known: Mapping[str, Filter]) -> None:
        if id not in known:
            raise KeyError(f"{id} is not an id of this client")
