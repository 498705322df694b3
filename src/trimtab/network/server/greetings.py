"""Greetings: who is let in, who must greet again, and which of two processes has a name.

A peer has greeted when its greeting was read and answered; until then its connection has no meaning. Which incarnation
of a neighbour counts, `NeighbourLinks` knows; whether the one that is connected lives, `LivenessProbes` find out.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import msgspec

from trimtab.network.clock import now_s
from trimtab.network.failover.liveness_probe import LivenessProbes
from trimtab.network.links.connection import PLACE_TAKEN, Connection
from trimtab.protocol.effects import Close
from trimtab.protocol.events import Connected
from trimtab.protocol.frames import Hello, version_problem

if TYPE_CHECKING:
    from trimtab.network.server.broker_process import BrokerServer

REPLACED_ALREADY: Final = "another process has replaced this broker already"
"""What an incarnation is told that has lost its place; it ends without a word, lest neighbours think that the broker
leaves."""

PLACE_IS_TAKEN: Final = "the broker of this name lives and keeps its place"
"""What an incarnation is told that greets while another one is connected and answers; it may greet again."""

log = logging.getLogger("trimtab.broker")


class Greetings:
    """The greetings of one broker's process."""

    def __init__(self, server: BrokerServer) -> None:
        self._server = server
        self._broker = server.broker
        self._links = server.links
        self._connections = server.connections
        self._ungreeted: dict[Connection, None] = {}
        self.probes = LivenessProbes(server.broker, server.schedule)

    @property
    def ungreeted(self) -> list[Connection]:
        """Connections that have no meaning yet."""
        return list(self._ungreeted)

    def opened(self, connection: Connection) -> None:
        """A peer called or answered: whoever called greets first, and soon."""
        self._ungreeted[connection] = None
        if problem := self._server.access.opened(connection):
            self._server.refuse(connection, problem)
            return
        if connection.dialled:
            self._greet(connection, self._broker.greeting(connection.dialled))
        else:
            while len(self._ungreeted) > self._server.limits.ungreeted_max_count and self.make_room():
                pass
        self._await(connection, self._server.limits.greet_within_s)

    def make_room(self) -> bool:
        """Close the oldest connection that has no meaning yet, to make room for another; whether there was one."""
        is_bare = self._server.access.is_bare
        oldest = next((each for each in self._ungreeted if not each.dialled and is_bare(each)), None)
        if oldest is not None:
            self._server.refuse(oldest, "too many connections that have not greeted")
        return oldest is not None

    def await_soon(self, connection: Connection) -> None:
        """A request was answered: another one, or a greeting, may follow soon over the same connection."""
        if not connection.peer and connection.is_open():
            self._await(connection, self._server.limits.idle_within_s)

    def _await(self, connection: Connection, within_s: float) -> None:
        self.await_no_more(connection)
        connection.greeting_timer = self._server.loop.call_later(
            within_s, self._server.refuse, connection, f"no greeting within {within_s:g} s"
        )

    def await_no_more(self, connection: Connection) -> None:
        """It has greeted, or does not need to."""
        if connection.greeting_timer is not None:
            connection.greeting_timer.cancel()

    def forget(self, connection: Connection) -> None:
        """A connection is over, whether it has greeted or not."""
        self._ungreeted.pop(connection, None)

    def came(self, connection: Connection, hello: Hello, silent: Connection | None = None) -> None:
        """A peer greets; one connection of its name may have been asked for a heartbeat, and was silent."""
        name, server = hello.name, self._server
        if problem := version_problem(hello, self._broker.config.wire_version_max):
            server.refuse(connection, problem)
            return
        if connection.dialled and (name != connection.dialled or hello.role != "broker"):
            server.refuse(connection, f"broker {connection.dialled} was expected here, not {hello.role} {name[:100]!r}")
            return
        if self._links.is_to_greet_again(connection, hello):
            self._links.greets_again(connection)
            self._dismiss(connection)
            return
        if self._links.is_not_later(hello):
            self._refuse_epoch(connection, hello)
            return
        if self._must_wait(connection, hello, silent):
            return
        if self._links.has_replaced_us(hello):
            self.lose_place()
            return
        if hello.role == "broker" and self._links.is_out_of_turn(connection, hello):
            self._dismiss(connection)
            return
        known = self._broker.peers.get(name)
        is_another = hello.role == "broker" and known is not None and known.session != hello.session
        answer = self._let_in(connection, hello)
        if answer is None:
            return
        former = self._connections.pop(name, None)
        if former is not None:
            former.peer = ""
            former.close(REPLACED_ALREADY if is_another else PLACE_TAKEN)
        self._ungreeted.pop(connection, None)
        self.await_no_more(connection)
        connection.peer = name
        self._connections[name] = connection
        if not connection.dialled:
            self._greet(connection, answer if hello.role == "broker" else server.with_elsewhere(answer))
        connection.allow_frames_of_clients()
        if hello.role == "broker":
            connection.allow_frames_of_brokers()
            log.info("%s: link to %s is up", self._broker.name, name)
            self._links.went_up(connection, hello)
            server.report_links()
        server.schedule()

    def dismissed(self, connection: Connection, reason: str, *, was_linked: bool) -> None:
        """A neighbour has ended a connection: it may have no place for this process any more."""
        name, server = self._broker.name, self._server
        if self._broker.config.assists:
            server.stop()  # one that is not wanted somewhere is not wanted at all
        if reason == REPLACED_ALREADY:
            if connection.dialled and not was_linked and connection.epoch < self._broker.epoch:
                self._links.greets_again(connection)  # it has not heard the latest epoch
            else:
                self.lose_place()
        elif connection.dialled and reason == PLACE_IS_TAKEN and self._links.is_unwanted(connection):
            server.lose_place(f"{name} lives, as {connection.dialled} says: this replica of it is not needed, and ends")

    def lose_place(self) -> None:
        """Another incarnation of this broker has its place."""
        self._server.lose_place(f"{self._broker.name} was replaced already by another process")

    def _must_wait(self, connection: Connection, hello: Hello, silent: Connection | None) -> bool:
        """Whether a greeting is put off: a neighbour of that name is connected, and is asked whether it lives."""
        present = self._connections.get(hello.name)
        if connection.dialled or present is None or present is silent or not self.probes.is_needed(hello):
            return False
        if self.probes.is_waiting(connection):
            self._server.refuse(connection, "a second greeting")
        elif self.probes.is_full:
            self._server.refuse(connection, PLACE_IS_TAKEN)
        else:

            def told(lives: bool) -> None:
                if lives:
                    self._server.refuse(connection, PLACE_IS_TAKEN)
                else:
                    self.came(connection, hello, present)

            self.probes.ask(hello.name, present, connection, told)
        return True

    def _let_in(self, connection: Connection, hello: Hello) -> Hello | None:
        """Hand a greeting to the broker; returns its own one in return, None if the connection is refused."""
        name, broker, epoch = hello.name, self._broker, self._broker.epoch
        answer = broker.greeting(name)
        effects = broker.handle(Connected(name, hello, self._server.access.rights_of(connection)), now_s())
        if broker.epoch > epoch:
            log.info("%s is the incarnation %d of its name, as %s knows", broker.name, broker.epoch, name)
            if self._server.disk is not None:
                self._server.disk.begin_epoch(broker.epoch)
            self._greet_again()
            if connection.dialled:
                self._links.greets_again(connection)
                self._dismiss(connection)
                return None
            answer = msgspec.structs.replace(answer, epoch=broker.epoch)
            if hello.role == "broker":
                effects = broker.handle(Connected(name, hello), now_s())
        problem = next((effect.reason for effect in effects if isinstance(effect, Close) and effect.peer == name), None)
        if problem is not None:
            self._server.refuse(connection, problem)
            return None
        self._server.carry_out(effects)
        return answer

    def _greet_again(self) -> None:
        """This broker has a higher epoch than it has greeted with: every neighbour must know the same one."""
        for name in [name for name, peer in self._broker.peers.items() if peer.role == "broker"]:
            if name in self._connections:
                connection = self._connections[name]
                self._server.forget(connection)
                connection.close()

    def _refuse_epoch(self, connection: Connection, hello: Hello) -> None:
        """A neighbour's incarnation is not later than the one that is known: it must greet as a later one, or end."""
        claim = "replaced" if connection.dialled else self._links.claim_of(hello)
        if claim != "started anew":
            self._server.refuse(connection, REPLACED_ALREADY if claim == "replaced" else PLACE_IS_TAKEN)
            return
        log.info("%s: %s is told that its incarnation has a higher number", self._broker.name, hello.name)
        connection.send(self._broker.greeting(hello.name))
        self._dismiss(connection)

    def _dismiss(self, connection: Connection) -> None:
        """Close a connection that has no meaning yet, without a word."""
        self._ungreeted.pop(connection, None)
        connection.close()

    def _greet(self, connection: Connection, hello: Hello) -> None:
        connection.epoch = hello.epoch
        connection.send(hello)
