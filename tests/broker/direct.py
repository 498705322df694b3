"""Drives brokers and clients directly, without a world: every frame arrives at once and in order."""

from __future__ import annotations

from trimtab.broker.config import BrokerConfig
from trimtab.broker.core import Broker
from trimtab.client.config import ClientConfig
from trimtab.client.session import ClientSession
from trimtab.protocol.effects import Close, Deliver, Effect, InForce
from trimtab.protocol.events import Connected, Disconnected, Received, Step
from trimtab.protocol.frames import Hello


class Direct:
    """Brokers and clients by name; `run` moves frames until nothing is left to do."""

    def __init__(self, *brokers: str, covering: bool = True) -> None:
        self.brokers = {
            name: Broker(BrokerConfig(name, subscription_covering=covering, advertisement_covering=covering))
            for name in brokers
        }
        self.clients: dict[str, ClientSession] = {}
        self.effects: list[tuple[str, Effect]] = []
        self.now_s = 0.0

    def client(self, name: str, broker: str) -> ClientSession:
        """A new client, connected."""
        self.clients[name] = ClientSession(ClientConfig(name))
        self.connect(name, broker)
        return self.clients[name]

    def connect(self, first: str, second: str) -> None:
        """Exchange greetings."""
        greetings = {first: self._greeting(first, second), second: self._greeting(second, first)}
        for name, peer in ((first, second), (second, first)):
            self._handle(name, Connected(peer, greetings[peer]))
        self.run()

    def disconnect(self, first: str, second: str) -> None:
        """Break a connection."""
        self._handle(first, Disconnected(second))
        self._handle(second, Disconnected(first))

    def run(self) -> None:
        """Move frames until all queues are empty."""
        moved = True
        while moved:
            moved = False
            for name, broker in self.brokers.items():
                while broker.input_count:
                    self._handle(name, Step())
                for peer in broker.sendable():
                    frame = broker.take_frame(peer, self.now_s)
                    if frame is not None:
                        moved = True
                        self._handle(peer, Received(name, frame))
            for name, client in self.clients.items():
                frame = client.take_frame(self.now_s)
                if frame is not None:
                    moved = True
                    self._handle(client.broker, Received(name, frame))

    def deliveries(self, client: str) -> list[tuple[str, int]]:
        """Publisher and sequence of what a client was handed."""
        return [(e.publisher, e.sequence) for name, e in self.effects if name == client and isinstance(e, Deliver)]

    def in_force(self, client: str) -> list[str]:
        """What a client was told is in force."""
        return [effect.id for name, effect in self.effects if name == client and isinstance(effect, InForce)]

    def table(self, broker: str) -> list[tuple[str, str]]:
        """The publication routing table: next hop and filter."""
        routes = self.brokers[broker].tables.subscriptions.values()
        return [(hop, str(route.filter)) for route in routes for hop in route.hops]

    def _greeting(self, name: str, peer: str) -> Hello:
        return self.brokers[name].greeting(peer) if name in self.brokers else self.clients[name].greeting()

    def _handle(self, name: str, event: Connected | Disconnected | Received | Step) -> None:
        role = self.brokers.get(name) or self.clients[name]
        for effect in role.handle(event, self.now_s):
            self.effects.append((name, effect))
            if isinstance(effect, Close):
                other = self.brokers.get(effect.peer) or self.clients.get(effect.peer)
                if other is not None:
                    other.handle(Disconnected(name), self.now_s)
