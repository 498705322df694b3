"""Brokers and clients without a world, whose frames take as long as a random choice wants."""

from __future__ import annotations

from collections import deque
from random import Random

from trimtab.broker.config import Acknowledges, BrokerConfig
from trimtab.broker.core import Broker
from trimtab.client.config import ClientConfig
from trimtab.client.session import ClientSession
from trimtab.protocol.effects import Append, Deliver, Effect, Open, Shut
from trimtab.protocol.events import Connected, Disconnected, Event, LinkRemoved, MoveTo, Received, Step, Stored, Wake
from trimtab.protocol.frames import Ack, Payload

BROKERS = ("B1", "B2", "B3", "B4", "B5")
LINKS = (("B1", "B2"), ("B2", "B3"), ("B2", "B4"), ("B4", "B5"))


class Slow:
    """Brokers and clients whose frames wait in their connections until a random choice moves one of them."""

    def __init__(
        self,
        rng: Random,
        brokers: tuple[str, ...] = BROKERS,
        links: tuple[tuple[str, str], ...] = LINKS,
        *,
        covering: bool = True,
        acknowledges: Acknowledges = "received",
    ) -> None:
        self.rng = rng
        self.now_s = 0.0
        self.covering = covering
        self.links = links
        self.acknowledges = acknowledges
        self.brokers: dict[str, Broker] = {}
        self.incarnations: dict[str, int] = {}
        self.clients: dict[str, ClientSession] = {}
        self.wires: dict[tuple[str, str], deque[Payload | Ack]] = {}
        self.effects: dict[str, list[Effect]] = {}
        for name in brokers:
            self.add_broker(name)
        for first, second in links:
            self.connect(first, second)

    def add_broker(self, name: str) -> None:
        """A broker, or its next incarnation, which knows its neighbours by configuration and nothing else."""
        self.incarnations[name] = self.incarnations.get(name, 0) + 1
        config = BrokerConfig(
            name,
            session=str(self.incarnations[name]),
            epoch=self.incarnations[name],
            neighbours=tuple(end for link in self.links if name in link for end in link if end != name),
            subscription_covering=self.covering,
            advertisement_covering=self.covering,
            acknowledges=self.acknowledges,
        )
        self.brokers[name] = Broker(config)

    def role(self, name: str) -> Broker | ClientSession:
        """A broker or a client."""
        return self.brokers[name] if name in self.brokers else self.clients[name]

    def client(self, name: str, broker: str) -> ClientSession:
        """A new client, connected."""
        self.clients[name] = ClientSession(ClientConfig(name))
        self.effects[name] = []
        self.connect(name, broker)
        return self.clients[name]

    def connect(self, first: str, second: str) -> None:
        """Exchange greetings."""
        greetings = {first: self.role(first).greeting(second), second: self.role(second).greeting(first)}
        for name, peer in ((first, second), (second, first)):
            self.wires[name, peer] = deque()
        for name, peer in ((first, second), (second, first)):
            self.tell(name, Connected(peer, greetings[peer]))

    def cut(self, first: str, second: str, *, for_good: bool = False) -> None:
        """Break a connection, or take a link away; what is under way on it is lost."""
        for name, peer in ((first, second), (second, first)):
            self.wires.pop((name, peer), None)
            gone_for_good = for_good and name in self.brokers
            self.tell(name, LinkRemoved(peer) if gone_for_good else Disconnected(peer))

    def start_again(self, broker: str) -> None:
        """A broker loses its memory; all that was connected to it connects again."""
        peers = [second for first, second in list(self.wires) if first == broker]
        for peer in peers:
            self.cut(broker, peer)
        self.add_broker(broker)
        for peer in peers:
            self.connect(broker, peer)

    def move(self, client: str, broker: str) -> bool:
        """Ask a client to move; whether it sets out."""
        effects = self.clients[client].handle(MoveTo(broker), self.now_s)
        self.obey(client, effects)
        return isinstance(effects[0], Open)

    def obey(self, client: str, effects: list[Effect]) -> None:
        """Carry out what a client wants."""
        self.effects[client].extend(effects)
        for effect in effects:
            if isinstance(effect, Open):
                self.connect(client, effect.broker)
            elif isinstance(effect, Shut) and self.wires.pop((client, effect.broker), None) is not None:
                self.wires.pop((effect.broker, client))
                self.tell(effect.broker, LinkRemoved(client))

    def tell(self, name: str, event: Event) -> None:
        """A broker or client is told of an event; what a broker wants on its disk is there at once."""
        effects = self.role(name).handle(event, self.now_s)
        if name in self.clients:
            self.obey(name, effects)
            self.clients[name].consumed()
        for effect in effects:
            if isinstance(effect, Append):
                self.tell(name, Stored(effect.number))

    def act(self) -> bool:
        """One random step of one broker or one frame; whether there was anything to do."""
        choices: list[tuple[str, str]] = [(name, "") for name, broker in self.brokers.items() if broker.input_count]
        for (source, target), frames in self.wires.items():
            role = self.role(source)
            sends = role.has_frame(target) if isinstance(role, ClientSession) else target in role.sendable()
            if frames or sends:
                choices.append((source, target))
        if not choices:
            return False
        source, target = self.rng.choice(choices)
        if not target:
            self.tell(source, Step())
            return True
        frames, role = self.wires[source, target], self.role(source)
        if not frames or self.rng.random() < 0.5:
            is_client = isinstance(role, ClientSession)
            frame = role.take_frame(self.now_s, target) if is_client else role.take_frame(target, self.now_s)  # type: ignore[arg-type]
            if frame is not None:
                frames.append(frame)
        if frames and self.rng.random() < 0.7:
            self.tell(target, Received(source, frames.popleft()))
        return True

    def carry(self, source: str, target: str) -> None:
        """All that can be sent over one connection arrives."""
        role = self.role(source)
        while True:
            is_client = isinstance(role, ClientSession)
            frame = role.take_frame(self.now_s, target) if is_client else role.take_frame(target, self.now_s)  # type: ignore[arg-type]
            if frame is None:
                return
            self.tell(target, Received(source, frame))

    def rest(self) -> None:
        """Go on until there is nothing to do."""
        while self.act():
            pass

    def let_time_pass(self, for_s: float) -> None:
        """Time passes; whoever wanted to be woken is."""
        self.now_s += for_s
        for name in [*self.brokers, *self.clients]:
            self.tell(name, Wake())
        self.rest()

    def misleading_routes(self) -> list[tuple[str, str, list[str]]]:
        """Filters of clients in routing tables that come from elsewhere than where the client is; at rest, none."""
        found: list[tuple[str, str, list[str]]] = []
        for name, broker in self.brokers.items():
            for route in (*broker.tables.advertisements.values(), *broker.tables.subscriptions.values()):
                client = route.id.partition("/")[0]
                home = self.clients[client].broker if client in self.clients else ""
                if list(route.hops) != [client if home == name else broker.topology.towards(home)]:
                    found.append((name, route.id, list(route.hops)))
        return found

    def delivered(self, client: str, publisher: str) -> list[int]:
        """What a client was handed of a publisher, by number."""
        effects = self.effects[client]
        return [each.sequence for each in effects if isinstance(each, Deliver) and each.publisher == publisher]
