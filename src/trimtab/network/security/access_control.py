"""The access control of a broker's process: who has connected, and what they may say before the broker hears of it.

    connection -> certificate -> identity -> rights
    greeting   -> credential, if there is one -> identity -> does the name belong to it? -> broker
    request    -> the table of `trimtab.security.administration` -> broker, and the audit record

Where the network file has no certificates nobody is asked who they are; limits against strangers count there too.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias, cast

import msgspec

from trimtab.broker.flow.rate_limits import Store
from trimtab.network.clock import now_s
from trimtab.network.failover.replication_settings import ASSISTANT_MARK
from trimtab.network.links.address import Address
from trimtab.network.links.connection import Connection
from trimtab.network.network_plan import NetworkPlan
from trimtab.network.security.audit import Audit
from trimtab.network.security.authentication import Authentication
from trimtab.network.security.certificate_files import WatchedFiles, broker_files, server_context
from trimtab.network.security.errors import SecurityFileError
from trimtab.policies.multistage.config import COORDINATOR_NAME
from trimtab.protocol.events import Event, LinkRemoved, RightsChanged
from trimtab.protocol.frames import Frame, Hello, LoginReply, LoginRequest, StatusRequest
from trimtab.protocol.requests import SingleRequest
from trimtab.protocol.snapshots import SnapshotRequest
from trimtab.security.administration import REQUESTS
from trimtab.security.identities import Identity, IdentityError
from trimtab.security.rights import Rights

LOOK_EVERY_S: Final = 1.0
"""How often files and expiry are looked at."""

STAND_BY: Final = "standby-"
"""How names of certificates of processes that stand by begin."""

Asked: TypeAlias = SingleRequest | SnapshotRequest | StatusRequest

log = logging.getLogger("trimtab.security")


class _Caller:
    """What is known of one connection."""

    __slots__ = ("checking", "identity", "is_read_later", "requests", "rights", "under_way_count")

    def __init__(self, requests: Store) -> None:
        self.identity: Identity | None = None
        self.rights: Rights | None = None
        self.checking: asyncio.Task[None] | None = None
        self.requests = requests
        self.under_way_count = 0
        self.is_read_later = False


class AccessControl:
    """Decides what of all that arrives a broker hears."""

    def __init__(
        self,
        plan: NetworkPlan,
        name: str,
        *,
        go_on: Callable[[Connection, Frame], None],
        refuse: Callable[[Connection, str], None],
        happened: Callable[[Event], None],
    ) -> None:
        """Read the files; raises `SecurityFileError` with what is wrong."""
        self._name = name
        self._limits = plan.limits
        self._go_on = go_on
        self._refuse = refuse
        self._happened = happened
        self._callers: dict[Connection, _Caller] = {}
        self._strange: dict[str, float] = {}
        """Brokers that stand in no file, where brokers prove nothing, and when they were last there."""
        settings = plan.security
        self.is_on = settings.is_on
        self._brokers = frozenset({entry.name for entry in plan.brokers} | {COORDINATOR_NAME, *settings.brokers})
        self._authentication: Authentication | None = None
        self._tls: WatchedFiles | None = None
        self._audit: Audit | None = None
        self._looked_s = 0.0
        if self.is_on:
            standbys = {f"{STAND_BY}{number}" for number in range(1, len(plan.standbys) + 1)}
            folder = Path(settings.certificates)
            try:
                self._authentication = Authentication(settings, plan.limits, self._brokers | standbys)
                self._tls = WatchedFiles(broker_files(folder, name), lambda: server_context(folder, name))
            except (OSError, ValueError) as error:
                raise SecurityFileError(str(error)) from None
        if settings.audit:
            self._audit = Audit(Path(settings.audit), name)

    def context(self) -> ssl.SSLContext | None:
        """How new connections are encrypted."""
        return None if self._tls is None else cast(ssl.SSLContext, self._tls.latest)

    # ---- connections ----

    def opened(self, connection: Connection) -> str:
        """A connection stands; returns why it is closed again, if so."""
        caller = _Caller(Store(self._limits.requests_burst_count, now_s()))
        self._callers[connection] = caller
        if self._authentication is None:
            return ""
        certificate = connection.certificate()
        if certificate:
            try:
                self._identify(caller, self._authentication.of_certificate(certificate))
            except IdentityError as error:
                return str(error)
        if connection.dialled:
            identity = caller.identity
            expected = connection.dialled.removesuffix(ASSISTANT_MARK)
            if identity is None or not identity.is_broker or identity.name != expected:
                shown = "nobody" if identity is None else identity.name
                return f"broker {connection.dialled} was expected here, and the certificate is that of {shown}"
        return ""

    def closed(self, connection: Connection) -> None:
        """A connection is gone."""
        caller = self._callers.pop(connection, None)
        if caller is not None and caller.checking is not None:
            caller.checking.cancel()

    def rights_of(self, connection: Connection) -> Rights | None:
        """What a client may do who has greeted; None if everything."""
        caller = self._callers.get(connection)
        return None if caller is None else caller.rights

    def is_bare(self, connection: Connection) -> bool:
        """Whether a connection has no meaning yet: it may make way for another."""
        caller = self._callers.get(connection)
        return not connection.peer and (caller is None or caller.under_way_count == 0)

    # ---- what is said ----

    def admits(self, connection: Connection, frame: Frame) -> bool:
        """Whether the broker hears a frame that is no payload; what must wait goes on by itself."""
        caller = self._callers.get(connection)
        if caller is None:
            return False
        if isinstance(frame, LoginRequest):
            self._check(connection, caller, frame)
            return False
        if isinstance(frame, Hello):
            return connection.peer != "" or self._admits_greeting(connection, caller, frame)
        if isinstance(frame, SingleRequest | SnapshotRequest | StatusRequest):
            return self._admits_request(connection, caller, frame)
        return True

    def _admits_greeting(self, connection: Connection, caller: _Caller, hello: Hello) -> bool:
        if self._authentication is None:
            return self._admits_strange(connection, hello)
        if hello.credential is not None:
            self._check(connection, caller, hello)
            return False
        problem = self._objection_to_name(connection, caller, hello)
        if problem:
            self._refuse(connection, problem)
        return not problem

    def _admits_strange(self, connection: Connection, hello: Hello) -> bool:
        """Where brokers prove nothing, there are not many that nobody has named."""
        if hello.role != "broker" or connection.dialled or hello.name in self._brokers or hello.assists:
            return True
        if hello.name in self._strange or len(self._strange) < self._limits.strange_brokers_max_count:
            self._strange[hello.name] = now_s()
            return True
        self._refuse(connection, f"{hello.name[:100]} stands in no network file here, as do too many others")
        return False

    def _objection_to_name(self, connection: Connection, caller: _Caller, hello: Hello) -> str:
        """Why somebody may not greet under a name."""
        identity = self._identity(caller)
        if identity is None:
            return "this network asks who you are: connect with a certificate, a token or a password"
        if hello.role == "broker":
            name = hello.assists or hello.name
            if hello.assists and hello.name != f"{name}{ASSISTANT_MARK}":
                return f"an assistant of {name} is called {name}{ASSISTANT_MARK}"
            return "" if identity.is_broker and identity.name == name else f"{identity.name} is not broker {name[:100]}"
        if identity.is_broker:
            return f"{identity.name} is a broker, and greets as one"
        if hello.name in self._brokers:
            return f"{hello.name} is the name of a broker"
        if identity.proof == "anonymous":
            return self._objection_to_anonymous(hello)
        if not identity.owns(hello.name):
            return f"the name {hello.name[:100]} does not belong to {identity.name}; use {identity.name}/NAME"
        others = [
            each.peer
            for each, known in self._callers.items()
            if known.identity is not None and known.identity.name == identity.name and each.peer not in ("", hello.name)
        ]
        if len(others) >= self._limits.clients_per_identity_max_count:
            return f"{identity.name} has {len(others):,} clients here already"
        return ""

    def _objection_to_anonymous(self, hello: Hello) -> str:
        if hello.name.startswith("client-") and "/" not in hello.name:
            return ""
        return "whoever is anonymous has a name that begins with client-"

    def _admits_request(self, connection: Connection, caller: _Caller, request: Asked) -> bool:
        limits, name = self._limits, request_name(request)
        if not connection.peer and not connection.dialled:
            if caller.under_way_count >= limits.requests_under_way_max_count:
                self._refuse(connection, f"more than {limits.requests_under_way_max_count} requests wait for answers")
                return False
            self._slow_down(connection, caller)
        if self._authentication is None:
            return True
        problem = self._objection_to_request(caller, name)
        if problem:
            self._note(connection, request, is_allowed=False, result=problem)
            self._refuse(connection, problem)
        return not problem

    def _objection_to_request(self, caller: _Caller, name: str) -> str:
        """Why a request is not carried out, by the table."""
        identity = self._identity(caller)
        if identity is None:
            return f"{name} needs an identity: connect with a certificate, a token or a password"
        right = REQUESTS.get(name)
        if identity.is_broker and right in ("broker", "connect", "read"):
            return ""
        if right == "broker":
            return f"{name} is for brokers, and {identity.name} is none"
        rights = caller.rights
        if rights is None or not rights.may_request(name):
            return f"{identity.name} has no permission for {name} (admin = [{right!r}] or [{name!r}])"
        return ""

    def _slow_down(self, connection: Connection, caller: _Caller) -> None:
        """Read nothing more for a while of somebody who asks too often."""
        caller.requests.spend(1)
        wait_s = caller.requests.wait_s(self._limits.requests_per_s, self._limits.requests_burst_count, now_s())
        if wait_s > 0 and not caller.is_read_later:
            caller.is_read_later = True
            connection.pause_reading()

            def read_on() -> None:
                caller.is_read_later = False
                connection.resume_reading()

            asyncio.get_running_loop().call_later(wait_s, read_on)

    # ---- requests and their record ----

    def began(self, connection: Connection) -> None:
        """A request is being carried out."""
        if connection in self._callers:
            self._callers[connection].under_way_count += 1

    def ended(self, connection: Connection, request: Asked, reply: Frame | None) -> bool:
        """A request was answered; whether nothing else is under way over its connection."""
        if REQUESTS.get(request_name(request)) in ("change", "broker") and reply is not None:
            done, reason = getattr(reply, "done", True), getattr(reply, "reason", "")
            self._note(connection, request, is_allowed=True, result=reason if not done else "done")
        caller = self._callers.get(connection)
        if caller is None:
            return False
        caller.under_way_count -= 1
        return caller.under_way_count == 0

    def _note(self, connection: Connection, request: Asked, *, is_allowed: bool, result: str) -> None:
        name = request_name(request)
        if self._audit is None or name in ("voice", "reach"):  # these come many times a minute and change nothing
            return
        caller = self._callers.get(connection)
        identity = None if caller is None else caller.identity
        self._audit.write(
            who="" if identity is None else identity.name,
            proof="none" if identity is None else identity.proof,
            address=connection.address,
            request=request,
            name=name,
            is_allowed=is_allowed,
            result=result,
        )

    # ---- identities ----

    def _identity(self, caller: _Caller) -> Identity | None:
        if caller.identity is None and self._authentication is not None:
            nobody = self._authentication.of_nobody()
            if nobody is not None:
                self._identify(caller, nobody)
        return caller.identity

    def _identify(self, caller: _Caller, identity: Identity) -> None:
        assert self._authentication is not None
        caller.identity = identity
        caller.rights = None if identity.is_broker else self._authentication.rights_of(identity)

    def _check(self, connection: Connection, caller: _Caller, frame: Hello | LoginRequest) -> None:
        """Find out whose credential it is; what comes behind it waits."""
        if self._authentication is None:
            if isinstance(frame, LoginRequest):
                connection.send(LoginReply(True))
            return
        if caller.checking is not None or frame.credential is None:
            self._refuse(connection, "a second credential")
            return
        connection.pause_reading()
        caller.checking = asyncio.get_running_loop().create_task(self._checked(connection, caller, frame))

    async def _checked(self, connection: Connection, caller: _Caller, frame: Hello | LoginRequest) -> None:
        assert self._authentication is not None and frame.credential is not None
        try:
            identity = await self._authentication.of_credential(frame.credential)
        except IdentityError as error:
            log.warning("%s: %s was not believed: %s", self._name, connection.address, error)
            if connection.is_open():
                self._refuse(connection, str(error))
            return
        if not connection.is_open():
            return
        self._identify(caller, identity)
        connection.resume_reading()
        if isinstance(frame, LoginRequest):
            caller.checking = None
            connection.send(LoginReply(True, identity.name))
        else:
            self._go_on(connection, msgspec.structs.replace(frame, credential=None))

    # ---- from time to time ----

    def look(self) -> None:
        """Read files again that have changed, and end what does not count any more."""
        if now_s() < self._looked_s + LOOK_EVERY_S:
            return
        self._looked_s = now_s()
        self._look_after_strange()
        if self._authentication is None:
            return
        if self._tls is not None:
            self._tls.look()
        has_changed = self._authentication.look()
        for connection, caller in list(self._callers.items()):
            identity = caller.identity
            if identity is None:
                continue
            if not self._authentication.is_known(identity):
                self._refuse(connection, f"the proof that this is {identity.name} has ended")
            elif has_changed and not identity.is_broker:
                rights = self._authentication.rights_of(identity)
                if rights != caller.rights:
                    caller.rights = rights
                    if connection.peer:
                        self._happened(RightsChanged(connection.peer, rights))

    def _look_after_strange(self) -> None:
        """A broker that nobody has named, and that has gone, is not waited for as one of the file is."""
        if not self._strange:
            return
        present = {each.peer for each in self._callers}
        for name, last_s in list(self._strange.items()):
            if name in present:
                self._strange[name] = now_s()
            elif now_s() > last_s + self._limits.strange_broker_lease_s:
                del self._strange[name]
                self._happened(LinkRemoved(name))


def stand_by_name(plan: NetworkPlan, address: Address) -> str:
    """What the certificate of a process is called that stands by at an address."""
    number = plan.standbys.index(address) + 1 if address in plan.standbys else 1
    return f"{STAND_BY}{number}"


def request_name(request: Asked) -> str:
    """What a request is called on the wire, without its mark.

    >>> request_name(StatusRequest())
    'status'
    """
    return str(type(request).__struct_config__.tag).rstrip("?")
