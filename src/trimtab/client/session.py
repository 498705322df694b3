"""A client without its sockets: what it publishes and subscribes to, over one link to a broker.

Publications are numbered and kept until the broker has accepted them; they wait until an advertisement that announces
them is in force. Of each publisher only the last sequence number delivered is kept: every stream is in order, so what
is not above it has been delivered before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import msgspec

from trimtab.language import Filter, LanguageError, Publication, Value
from trimtab.matching import Matcher
from trimtab.protocol.effects import Deliver, Effect, InForce, Rejected, Taken
from trimtab.protocol.events import Connected, Disconnected, Event, LinkRemoved, Received, Step, Wake
from trimtab.protocol.frames import Ack, Hello, Payload
from trimtab.protocol.link import Link, LinkConfig
from trimtab.protocol.messages import (
    VERSION,
    Accepted,
    Advertise,
    AnyMessage,
    Confirmed,
    Publish,
    Refused,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)


class ClientConfig(msgspec.Struct, frozen=True):
    """One client's settings."""

    name: str
    session: str = "1"
    """Told in greetings; differs after each start of the client, so that the broker notices a restart."""

    publish_window_count: int = 1_000
    """Publications that may wait for the broker's acceptance; a full window holds the application back."""

    link: LinkConfig = LinkConfig()

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a client needs a name")
        if self.publish_window_count < 1:
            raise ValueError("the publish window holds at least one publication")


class WindowFull(Exception):
    """Too many publications wait for acceptance; try again after the next `Taken`."""


class ClientSession:
    """The state machine of one client; the application calls its methods, the world its `handle`."""

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self.name = config.name
        self.link = Link(config.link)
        self.broker = ""
        self._broker_session = ""
        self._next_id = 1
        self._next_sequence = 1
        self._advertisements: dict[str, Filter] = {}
        self._in_force: dict[str, None] = {}
        self._subscriptions: dict[str, Filter] = {}
        self._matcher: Matcher = Matcher()
        self._held: deque[Publish] = deque()
        self._unaccepted: deque[Publish] = deque()
        self._last_delivered: dict[str, int] = {}
        self.paused = False

    # ---- the application's side ----

    def advertise(self, filter: Filter, now_s: float) -> str:
        """Announce what will be published; publications wait until this is in force."""
        id = self._new_id("a")
        self._advertisements[id] = filter
        self._say(Advertise(id=id, filter=filter), now_s)
        return id

    def unadvertise(self, id: str, now_s: float) -> None:
        """End an advertisement."""
        self._require(id, self._advertisements)
        del self._advertisements[id]
        self._in_force.pop(id, None)
        self._say(Unadvertise(id=id), now_s)

    def subscribe(self, filter: Filter, now_s: float) -> str:
        """Ask for what the filter matches; an `InForce` effect tells when nothing will be missed."""
        id = self._new_id("s")
        self._subscriptions[id] = filter
        self._matcher.add(id, filter)
        self._say(Subscribe(id=id, filter=filter), now_s)
        return id

    def unsubscribe(self, id: str, now_s: float) -> None:
        """End a subscription."""
        self._require(id, self._subscriptions)
        self._drop_subscription(id)
        self._say(Unsubscribe(id=id), now_s)

    def publish(self, values: Mapping[str, Value], now_s: float) -> int:
        """Hand over a publication; returns its sequence number, or raises `WindowFull`."""
        publication = values if isinstance(values, Publication) else Publication(values)
        if not any(filter.announces(publication) for filter in self._advertisements.values()):
            raise LanguageError("no advertisement of this client announces the publication")
        if self.window_is_full:
            raise WindowFull(f"{self.config.publish_window_count:,} publications wait for acceptance")
        message = Publish(
            publisher=self.name,
            sequence=self._next_sequence,
            values=publication.values_by_name,
            origin_s=now_s,
        )
        self._next_sequence += 1
        self._held.append(message)
        self._release(now_s)
        return message.sequence

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
            case Received(frame=frame):
                return self._receive(frame, now_s)
            case Connected(peer=peer, hello=hello):
                self._connected(peer, hello, now_s)
            case Disconnected():
                self.link.disconnect()
            case Wake():
                self.link.wake(now_s)
            case Step() | LinkRemoved():
                pass  # for brokers
        return []

    def greeting(self) -> Hello:
        """The greeting for a connection to a broker."""
        return Hello(VERSION, "client", self.name, self.config.session, self.link.expects)

    def take_frame(self, now_s: float) -> Payload | Ack | None:
        """The next frame for the broker, None if there is none now."""
        return self.link.take(now_s)

    def has_frame(self) -> bool:
        """Whether `take_frame` would return a frame."""
        return self.link.has_frame()

    def wake_at_s(self) -> float | None:
        """When the session wants its next `Wake`."""
        return self.link.wake_at_s()

    def _connected(self, broker: str, hello: Hello, now_s: float) -> None:
        is_other_life = bool(self._broker_session) and self._broker_session != hello.session
        self.broker = broker
        self._broker_session = hello.session
        if not is_other_life:
            self.link.connect(hello.expects, now_s)
            return
        self.link = Link(self.config.link)
        self.link.connect(1, now_s)
        for id, filter in self._advertisements.items():
            self._say(Advertise(id=id, filter=filter), now_s)
        for id, filter in self._subscriptions.items():
            self._say(Subscribe(id=id, filter=filter), now_s)
        self._in_force.clear()
        self._held = deque([*self._unaccepted, *self._held])
        self._unaccepted.clear()

    def _receive(self, frame: Payload | Ack, now_s: float) -> list[Effect]:
        effects: list[Effect] = []
        for message in self.link.receive(frame, now_s):
            effects.extend(self._message(message, now_s))
        return effects

    def _message(self, message: AnyMessage, now_s: float) -> list[Effect]:
        match message:
            case Publish():
                return self._deliver(message, now_s)
            case Accepted(sequence=sequence):
                while self._unaccepted and self._unaccepted[0].sequence <= sequence:
                    self._unaccepted.popleft()
                return [Taken(sequence)]
            case Confirmed(id=id):
                if id in self._advertisements:
                    self._in_force[id] = None
                    self._release(now_s)
                elif id not in self._subscriptions:
                    return []  # ended meanwhile
                return [InForce(id)]
            case Refused(about=about, reason=reason):
                self._advertisements.pop(about, None)
                if about in self._subscriptions:
                    self._drop_subscription(about)
                return [Rejected(about, reason)]
            case _:
                return []  # brokers say nothing else to clients

    def _deliver(self, message: Publish, now_s: float) -> list[Effect]:
        if message.sequence <= self._last_delivered.get(message.publisher, 0):
            return []
        self._last_delivered[message.publisher] = message.sequence
        wanted = tuple(sorted(str(id) for id in self._matcher.match(message.values)))
        if not wanted:
            return []  # unsubscribed meanwhile
        return [
            Deliver(
                subscriptions=wanted,
                publication=Publication.trusted(message.values),
                publisher=message.publisher,
                sequence=message.sequence,
                delay_s=now_s - message.origin_s,
                hops=message.hops,
            )
        ]

    def _release(self, now_s: float) -> None:
        """Send held publications, in order, as far as advertisements in force announce them."""
        while self._held and not self.paused:
            values = Publication.trusted(self._held[0].values)
            if not any(self._advertisements[id].announces(values) for id in self._in_force):
                return
            message = self._held.popleft()
            self._unaccepted.append(message)
            self._say(message, now_s)

    def _drop_subscription(self, id: str) -> None:
        del self._subscriptions[id]
        self._matcher.remove(id)

    def _new_id(self, kind: str) -> str:
        id = f"{self.name}/{kind}{self._next_id}"
        self._next_id += 1
        return id

    def _require(self, id: str, known: Mapping[str, Filter]) -> None:
        if id not in known:
            raise KeyError(f"{id} is not an id of this client")

    def _say(self, message: AnyMessage, now_s: float) -> None:
        self.link.enqueue(message, now_s)
