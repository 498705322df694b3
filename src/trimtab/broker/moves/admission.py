"""Which clients are asked to move: the one place in a broker that admits such intents, whoever has them.

At most one is in flight for each client, so that policies cannot fight each other, nor a person a policy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trimtab.policies.api import ClientCame, ClientLeft, ClientStayed
from trimtab.protocol.messages import Redirect

if TYPE_CHECKING:
    from trimtab.broker.core import Broker

OUTCOMES_MAX_COUNT: Final = 100
"""Outcomes of moves by hand that are remembered until somebody asks."""


class Admission:
    """The intents of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._asked: dict[str, str] = {}
        """Clients that were asked to move, with the cause."""
        self._by_hand_count = 0
        self._outcomes: dict[str, str] = {}
        """How moves by hand ended, by cause: empty if the client has moved, otherwise why not."""
        self._keeps_clients = False

    def keep_clients(self) -> None:
        """Let every client stay from here on; whoever wants one to move is told that it stays."""
        self._keeps_clients = True

    def admit(self, client: str, to_broker: str, cause: str, now_s: float) -> str:
        """Ask a client to move; returns why it is not asked, empty if it is."""
        broker = self._broker
        peer = broker.peers.get(client)
        if peer is None or peer.role != "client":
            return "it is not a client of this broker"
        if client in self._asked:
            return f"it is already asked to move, by {self._asked[client]}"
        if broker.topology.towards(to_broker) is None:
            return f"no way leads to {to_broker}"
        self._asked[client] = cause
        if self._keeps_clients:
            self.tell_of_move(ClientStayed(client, cause, "this broker keeps its clients"), now_s)
            return ""
        broker.send(
            client, Redirect(broker=to_broker, address=broker.topology.address_of(to_broker), cause=cause), now_s
        )
        return ""

    def move_by_hand(self, client: str, to_broker: str, now_s: float) -> tuple[str, str]:
        """A person wants a client to move; returns the cause to ask for later, and why it is not asked."""
        self._by_hand_count += 1
        cause = f"{self._broker.name}/by-hand/{self._by_hand_count}"
        peer = self._broker.peers.get(client)
        objection = self._broker.agents.objection_to_leaving(client) if peer is not None and peer.advertisements else ""
        return cause, objection or self.admit(client, to_broker, cause, now_s)

    def outcome(self, cause: str) -> str | None:
        """How a move by hand ended: empty if the client has moved, why it has not, None if that is not known yet."""
        return self._outcomes.pop(cause, None)

    def tell_of_move(self, event: ClientCame | ClientLeft | ClientStayed, now_s: float) -> None:
        """A client has come, left, or stayed: the agents hear of it, and it may be asked to move again."""
        self.ended(event.client, event.reason if isinstance(event, ClientStayed) else "")
        self._broker.agents.tell_all(event, now_s)

    def ended(self, client: str, reason: str) -> str:
        """A client has moved (no reason) or stays; returns what it was asked for, empty if it was not."""
        cause = self._asked.pop(client, "")
        if "/by-hand/" in cause:
            self._outcomes[cause] = reason
            while len(self._outcomes) > OUTCOMES_MAX_COUNT:
                del self._outcomes[next(iter(self._outcomes))]
        return cause

    def asked(self) -> list[str]:
        """Clients that were asked to move and have not answered by word or deed."""
        return list(self._asked)
