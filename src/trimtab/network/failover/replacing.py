"""What a broker's process does about a neighbour that has failed: it makes sure of that, and has a replica started.

A neighbour that is congested gets an assistant, which needs no such care: nobody's place is taken.

The broker decides that a neighbour has failed and asks for a replica (`Replace`). A network cannot tell a dead process
from one that cannot be reached, so before anybody takes its place:

- whoever answers at its address under its name is left alone, for only the link to it is broken;
- a process on this host is looked at. One that hangs is killed, if it proves to be that broker (`process_proof.py`):
  its number came over the wire, and is not believed;
- of all others it counts whether anybody listens at their address. If nobody can tell, because a host cannot be reached
  or a process does not prove who it is, nothing is done, unless the operator asks for it (`trimtab replace`), or the
  network file says that a majority of brokers and stand-bys decides (`membership.py`).

Only brokers of the network file are replaced or assisted. What peers have told of them gets into orders only if it has
the form of a name, an address or a session.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from pathlib import Path
from typing import Final

from trimtab.broker.core import Broker
from trimtab.broker.replication.config import PROTOCOLS
from trimtab.broker.replication.membership import vote_problem
from trimtab.network.admin.status import ask_status
from trimtab.network.clock import now_s
from trimtab.network.failover.membership import Membership
from trimtab.network.failover.process_identity import ProcessIdentity
from trimtab.network.failover.process_proof import proved
from trimtab.network.failover.provisioners import Provisioner
from trimtab.network.failover.replication_settings import (
    BROKER_NAME,
    ReplicaOrder,
    ReplicationSettings,
    well_formed_address,
)
from trimtab.network.links.address import Address, is_of_this_host
from trimtab.network.network_file import BrokerEntry, NetworkFileError, NetworkPlan, read_network_file
from trimtab.protocol.effects import Assist, Replace
from trimtab.protocol.frames import FailureStatus

ANSWER_WITHIN_S: Final = 1.0
"""A broker that runs answers a question for its status much sooner."""

LOOK_AGAIN_AFTER_S: Final = 0.02
FAILURES_KEPT_COUNT: Final = 20
CONGESTION: Final = "congestion"

log = logging.getLogger("trimtab.broker")


class Failure:
    """A neighbour's life that has ended, and what is done about it."""

    def __init__(self, request: Replace | Assist) -> None:
        self.broker = request.broker
        self.session = request.session
        self.why = CONGESTION if isinstance(request, Assist) else request.why
        self.protocol = request.protocol
        self.noticed_s = now_s()
        self.outcome = ""
        self.replaced_s: float | None = None

    def status(self) -> FailureStatus:
        """For people."""
        return FailureStatus(self.broker, self.why, self.protocol, self.noticed_s, self.outcome, self.replaced_s)


class Replacing:
    """Replacements that a broker's process takes care of."""

    def __init__(
        self,
        broker: Broker,
        plan: NetworkPlan,
        settings: ReplicationSettings,
        provisioner: Provisioner | None,
        file: str | Path | None = None,
        *,
        membership: Membership | None = None,
    ) -> None:
        """The network file is read again for brokers that have been added to it."""
        self._broker = broker
        self._plan = plan
        self._file = file
        self._settings = settings
        self._provisioner = provisioner
        self._membership = membership
        self._failures: deque[Failure] = deque(maxlen=FAILURES_KEPT_COUNT)
        self._tasks: dict[str, asyncio.Task[str]] = {}
        """By broker that is being replaced."""

    @property
    def tasks(self) -> list[asyncio.Task[str]]:
        """What is under way, to be ended with the process."""
        return list(self._tasks.values())

    def failures(self) -> tuple[FailureStatus, ...]:
        """What has failed lately."""
        return tuple(failure.status() for failure in self._failures if failure.why != CONGESTION)

    def assistances(self) -> tuple[FailureStatus, ...]:
        """What was congested lately; a broker that is helped has not failed."""
        return tuple(failure.status() for failure in self._failures if failure.why == CONGESTION)

    def look(self) -> None:
        """From time to time: see who has come, and which processes have ended."""
        if self._provisioner is not None:
            self._provisioner.look()
        for failure in self._failures:
            if failure.replaced_s is None and self._is_replaced(failure):
                failure.replaced_s = now_s()
                failure.outcome = "assisted" if failure.why == CONGESTION else "replaced"
                log.info("%s: %s is %s", self._broker.name, failure.broker, failure.outcome)

    def asked(self, request: Replace | Assist) -> None:
        """The broker asks for a replica or an assistant."""
        failure = self._failure_of(request)
        if self._settings.replaces == "by-hand":
            failure.outcome = f"waits for trimtab {'assist' if isinstance(request, Assist) else 'replace'}"
        elif request.broker not in self._tasks:
            self._begin(failure, request)

    def _begin(self, failure: Failure, request: Replace | Assist, *, is_by_hand: bool = False) -> asyncio.Task[str]:
        task = asyncio.get_running_loop().create_task(self._replace(failure, request, is_by_hand=is_by_hand))
        self._tasks[request.broker] = task
        task.add_done_callback(lambda _: self._tasks.pop(request.broker, None))
        return task

    def _failure_of(self, request: Replace | Assist) -> Failure:
        for failure in self._failures:
            is_same = (failure.broker, failure.session) == (request.broker, request.session)
            if is_same and (failure.why == CONGESTION) == isinstance(request, Assist):
                return failure
        failure = Failure(request)
        log.warning("%s: %s has failed: %s", self._broker.name, request.broker, failure.why)
        self._failures.append(failure)
        return failure

    async def by_hand(self, broker: str, protocol: str) -> str:
        """Somebody asks for a neighbour's replacement; returns why that cannot be."""
        here = self._broker.name
        watching = self._broker.replacement
        peer = self._broker.peers.get(broker)
        if watching is None or peer is None or peer.role != "broker":
            return f"{broker} is no neighbour of {here}"
        if protocol and protocol not in PROTOCOLS:
            return f"no protocol of replication is called {protocol}; there are {', '.join(PROTOCOLS)}"
        wanted = protocol or self._settings.protocol
        if self._broker.safe is not None and wanted != "synchronous":
            return f"what is safe stays so only with the protocol synchronous, not with {wanted}"
        if wanted == "incremental" and self._broker.config.order == "publisher":
            return (
                "incremental does not keep each publisher's order, which clients of this network rely on; take "
                'incremental-ordered, or set protocol = "incremental" in [replication]'
            )
        patience_s = now_s() + self._settings.hang_after_s + self._settings.look_every_s
        while (verdict := watching.verdicts().get(broker, "alive")) == "suspected" and now_s() < patience_s:
            await asyncio.sleep(LOOK_AGAIN_AFTER_S)
        if verdict not in ("crash", "hang"):
            return f"{broker} lives ({verdict}, as {here} sees it); only a broker that has failed is replaced"
        if broker in self._tasks and not await asyncio.shield(self._tasks[broker]):
            return ""  # it was being replaced already
        if broker in self._tasks:
            return f"{broker} is being replaced already"
        found = tuple(sorted(watching.neighbours_of(broker).items()))
        request = Replace(broker, peer.session, verdict, wanted, found, peer.incarnation)
        failure = self._failure_of(request)
        failure.protocol = wanted
        return await self._begin(failure, request, is_by_hand=True)

    async def assist_by_hand(self, broker: str, protocol: str, *, reorders: bool) -> str:
        """Somebody asks for an assistant of a neighbour; returns why that cannot be."""
        here = self._broker.name
        watching = self._broker.replacement
        peer = self._broker.peers.get(broker)
        if watching is None or peer is None or peer.role != "broker":
            return f"{broker} is no neighbour of {here}"
        if self._broker.safe is not None and not (reorders and protocol in ("", "synchronous")):
            return "what is safe must stay in order: ask for re-ordering, with the protocol synchronous"
        verdict = watching.verdicts().get(broker, "alive")
        if verdict not in ("alive", CONGESTION):
            return f"{broker} may have failed ({verdict}, as {here} sees it); only a broker that lives is assisted"
        if watching.assistance.has_assistant(broker):
            return f"{broker} has an assistant already"
        if broker in self._tasks:
            return f"{broker} is being assisted already"
        if not reorders and self._broker.config.order == "publisher":
            return (
                "an assistant alone does not keep each publisher's order, which clients of this network rely on; ask "
                'for re-ordering (--reorder), or set assisting = "scheduling" in [replication]'
            )
        found = tuple(sorted(watching.neighbours_of(broker).items()))
        request = Assist(broker, peer.session, protocol or self._settings.protocol, reorders, found, peer.incarnation)
        return await self._begin(self._failure_of(request), request, is_by_hand=True)

    async def _replace(self, failure: Failure, request: Replace | Assist, *, is_by_hand: bool) -> str:
        done = "assisted" if isinstance(request, Assist) else "replaced"
        failure.outcome, failure.replaced_s = f"is being {done}", None
        problem = await self._try_to_replace(failure, request, is_by_hand=is_by_hand)
        if problem:
            failure.outcome = problem
            log.warning("%s: %s is not %s: %s", self._broker.name, request.broker, done, problem)
        return problem

    async def _try_to_replace(self, failure: Failure, request: Replace | Assist, *, is_by_hand: bool) -> str:
        provisioner = self._provisioner
        if provisioner is None:
            return "no provisioner is configured"
        entry = self._entry_of(request.broker)
        if entry is None:
            return f"no broker of the network file is named {request.broker[:100]!r}"
        name, protocol = request.broker, request.protocol
        address = well_formed_address(self._broker.topology.address_of(name)) or str(entry.address)
        listen = str(entry.listen) if address == str(entry.address) else address
        neighbours = self._well_formed(request.neighbours if request.session else self._neighbours_by_file(name))
        session = request.session if ProcessIdentity.of_session(request.session) is not None else ""
        if isinstance(request, Assist):
            linked = ((name, address), *neighbours)
            order = ReplicaOrder(
                name,
                protocol,
                linked,
                listen,
                session,
                CONGESTION,
                assists=True,
                reorders=request.reorders,
                epoch=request.epoch,
            )
        else:
            problem = await self._make_sure_it_is_over(entry, session, Address.parse(listen), is_by_hand=is_by_hand)
            if problem:
                return problem
            order = ReplicaOrder(name, protocol, neighbours, listen, session, request.why, epoch=request.epoch + 1)
        problem = await provisioner.start(order)
        if problem:
            return problem
        ends_s = now_s() + self._settings.start_within_s
        while not self._is_replaced(failure):
            if now_s() > ends_s:
                return provisioner.problem() or f"nobody has greeted within {self._settings.start_within_s:g} s"
            await asyncio.sleep(LOOK_AGAIN_AFTER_S)
        self.look()
        return ""

    def _is_replaced(self, failure: Failure) -> bool:
        """Whether another life of a broker has greeted and been told everything, or its assistant has."""
        if failure.why == CONGESTION:
            return self._broker.replacement is not None and self._broker.replacement.assistance.is_told(failure.broker)
        peer = self._broker.peers.get(failure.broker)
        is_another = peer is not None and peer.session != failure.session and peer.link.connected
        return is_another and not self._is_being_told(failure.broker)

    def _is_being_told(self, name: str) -> bool:
        return self._broker.takeover.is_being_told(name)

    # ---- what is known of a broker besides what peers say ----

    def _entry_of(self, name: str) -> BrokerEntry | None:
        """A broker of the network file, also of one that was added while this process runs; None if it is of none."""
        found = _entry(self._plan, name)
        if found is None and self._file is not None and BROKER_NAME.fullmatch(name):
            try:
                found = _entry(read_network_file(self._file), name)
            except NetworkFileError as error:
                log.warning("%s: the network file has changed and cannot be used: %s", self._broker.name, error)
        return found

    def _neighbours_by_file(self, name: str) -> tuple[tuple[str, str], ...]:
        """The neighbours of a broker that was never seen, and where they are as far as is known."""
        return tuple((each, self._broker.topology.address_of(each)) for each in self._plan.neighbours_of(name))

    def _well_formed(self, neighbours: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        """Neighbours as a peer has told them, without those that have no name or no address."""
        found: list[tuple[str, str]] = []
        for name, told in neighbours:
            entry = self._entry_of(name)
            address = well_formed_address(told) or ("" if entry is None else str(entry.address))
            if BROKER_NAME.fullmatch(name) and address:
                found.append((name, address))
            else:
                log.warning("%s: no replica is linked to %r at %r", self._broker.name, name[:100], told[:100])
        return tuple(found)

    async def _make_sure_it_is_over(
        self, entry: BrokerEntry, session: str, listen: Address, *, is_by_hand: bool
    ) -> str:
        """Why the incarnation before may not be over, empty if it is."""
        name, life = entry.name, ProcessIdentity.of_session(session)
        is_here = life is not None and life.is_here and is_of_this_host(listen.host)
        answers = await self._answers(name, listen)
        if answers and is_here:
            return f"{name} runs and answers; only the link to it is broken"
        if answers:
            return f"{name} runs on another host; only the link to it is broken, or it hangs: end it there"
        doubt = f"{listen} cannot be reached"
        if is_here and life is not None:
            if not life.is_running():
                return ""
            found = proved(name, str(entry.listen), session)
            if found is not None:
                return await self._kill(name, found)
            doubt = f"process {life.pid} does not prove to be {name}, and is not killed"
        if is_by_hand or (answers is False and is_of_this_host(listen.host)):
            return ""
        if self._settings.unreachable == "wait":
            return f"nobody can say whether {name} runs: {doubt}" if answers is None else ""
        objection = await self._vote(name)
        return f"nobody can say whether {name} runs: {doubt}; {objection}" if objection else ""

    async def _vote(self, name: str) -> str:
        """Why no majority finds a broker gone, empty if one does."""
        if self._membership is not None:
            return await self._membership.vote(name)
        voters = [*(entry.name for entry in self._plan.brokers), *map(str, self._plan.standbys)]
        return vote_problem(name, voters, ())

    async def _kill(self, name: str, life: ProcessIdentity) -> str:
        log.warning("%s: %s hangs and is killed (process %d)", self._broker.name, name, life.pid)
        is_over = await asyncio.get_running_loop().run_in_executor(None, life.end)
        return "" if is_over else f"the process {life.pid} of {name} cannot be killed"

    async def _answers(self, name: str, listen: Address) -> bool | None:
        """Whether a broker can be reached and says something, None if its host cannot be reached, or it is silent."""
        try:
            status = await ask_status(listen, ANSWER_WITHIN_S)
        except ConnectionRefusedError:
            return False
        except (OSError, TimeoutError):
            return None
        return status.name == name


def _entry(plan: NetworkPlan, name: str) -> BrokerEntry | None:
    return next((entry for entry in plan.brokers if entry.name == name), None)
