"""Every request of administration by everybody: nothing is allowed that the table does not say."""

import asyncio
import json
import stat
from collections.abc import Callable
from typing import Final, get_args

import pytest

from tests.network.security.secure_network import PASSWORD, SECRET, SecureNetwork
from trimtab.network.admin import status as asking
from trimtab.network.admin.local_network import Network
from trimtab.network.security.access_control import request_name
from trimtab.network.security.audit import read_audit
from trimtab.network.security.caller import Caller
from trimtab.protocol.frames import (
    AssistRequest,
    DrainRequest,
    LinkRequest,
    MoveRequest,
    PlaceRequest,
    PolicyRequest,
    ReachRequest,
    ReplaceRequest,
    ReplicaRequest,
    RestartRequest,
    StatusRequest,
    VoiceRequest,
    WhereRequest,
)
from trimtab.protocol.requests import Request
from trimtab.protocol.snapshots import SnapshotRequest
from trimtab.security.administration import REQUESTS

HARMLESS: Final[list[Request]] = [
    StatusRequest(),
    SnapshotRequest(0.05),
    LinkRequest("remove", "nobody"),
    MoveRequest("nobody", "B2"),
    ReplaceRequest("B9"),
    AssistRequest("B9"),
    PolicyRequest("no such policy"),
    DrainRequest(cancel=True),
    WhereRequest("B2"),
    PlaceRequest("client-1"),
    ReplicaRequest("B1", "basic", (), "127.0.0.1:1"),
    VoiceRequest(),
    ReachRequest("B2"),
]
"""One of each that does nothing even if it is allowed; a restart does something."""

CALLERS: Final[dict[str, Callable[[SecureNetwork], Caller]]] = {
    "nobody": lambda secure: secure.nobody(),
    "a certificate of another authority": lambda secure: secure.stranger("operator"),
    "a certificate without permissions": lambda secure: secure.certificate("eve"),
    "a citizen": lambda secure: secure.certificate("ann"),
    "a citizen's password": lambda secure: secure.password("ann", PASSWORD),
    "a wrong password": lambda secure: secure.password("ann", "wrong horse battery"),
    "a password of nobody": lambda secure: secure.password("operator", PASSWORD),
    "an expired token": lambda secure: secure.token("operator", -60),
    "a forged token": lambda secure: secure.token("operator", key=SECRET[::-1]),
    "a monitor": lambda secure: secure.certificate("monitor"),
    "the operator": lambda secure: secure.certificate("operator"),
    "the operator's token": lambda secure: secure.token("operator"),
    "a token with the role": lambda secure: secure.token("carl", roles=["operator"]),
    "a broker": lambda secure: secure.certificate("B2"),
    "a broker that stands in no file": lambda secure: secure.certificate("B3"),
}
NONE: Final[frozenset[str]] = frozenset()
CONNECT: Final = frozenset({"where", "place"})
READ: Final = frozenset({"status", "snapshot"})
CHANGE: Final = frozenset({"link", "move", "replace", "assist", "policy", "drain", "restart"})
BROKER: Final = frozenset({"replica", "voice", "reach"})
ALLOWED: Final = {
    "nobody": NONE,
    "a certificate of another authority": NONE,
    "a certificate without permissions": CONNECT,
    "a citizen": CONNECT,
    "a citizen's password": CONNECT,
    "a wrong password": NONE,
    "a password of nobody": NONE,
    "an expired token": NONE,
    "a forged token": NONE,
    "a monitor": CONNECT | READ,
    "the operator": CONNECT | READ | CHANGE,
    "the operator's token": CONNECT | READ | CHANGE,
    "a token with the role": CONNECT | READ | CHANGE,
    "a broker": CONNECT | READ | BROKER,
    "a broker that stands in no file": CONNECT,
}


def test_the_matrix_has_every_request() -> None:
    assert {type(request) for request in HARMLESS} | {RestartRequest} == set(get_args(Request))
    assert {request_name(request) for request in HARMLESS} | {"restart"} == set(REQUESTS)
    assert set(REQUESTS) == CONNECT | READ | CHANGE | BROKER


@pytest.mark.parametrize("who", CALLERS)
def test_a_request_is_answered_if_and_only_if_the_table_says_so(
    network: Network, secure: SecureNetwork, who: str
) -> None:
    caller = CALLERS[who](secure)
    address = network.plan.broker("B1").listen

    async def is_answered(request: Request) -> bool:
        try:
            await asking._ask(address, request, 10.0, caller=caller)
        except OSError:
            return False
        return True

    async def work() -> set[str]:
        refused: list[Request] = [RestartRequest()] if "restart" not in ALLOWED[who] else []
        requests = [*HARMLESS, *refused]
        found = await asyncio.gather(*(is_answered(request) for request in requests))
        return {request_name(request) for request, answered in zip(requests, found, strict=True) if answered}

    assert asyncio.run(work()) == ALLOWED[who] - {"restart"}


def test_every_change_stands_in_the_audit_record(network: Network, secure: SecureNetwork) -> None:
    address = network.plan.broker("B1").listen

    async def work() -> None:
        request = LinkRequest("remove", "somebody")
        reply = await asking._ask(address, request, 10.0, caller=secure.certificate("operator"))
        assert not reply.done  # type: ignore[union-attr]
        with pytest.raises(OSError, match="ann has no permission for link"):
            await asking._ask(address, request, 10.0, caller=secure.certificate("ann"))

    asyncio.run(work())
    folder = secure.folder / "audit"
    done, refused = [each for each in read_audit(folder) if '"somebody"' in each.details][-2:]
    assert (done.who, done.proof, done.request, done.is_allowed) == ("operator", "certificate", "link", True)
    assert done.result == "B1 has no link to somebody"
    assert done.address.startswith("127.0.0.1:")
    assert (refused.who, refused.is_allowed) == ("ann", False)
    assert json.loads(refused.details)["change"] == "remove"
    assert stat.S_IMODE((folder / "B1.jsonl").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
