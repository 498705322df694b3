"""The proxy breaks links in the ways that it says."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from trimtab.lab.bench.nemesis.proxy import LinkProxy

SILENT_FOR_S = 0.2
WITHIN_S = 20.0


class Ends:
    """Who called through a proxy, and who was called."""

    def __init__(self, proxy: LinkProxy, listener: socket.socket) -> None:
        self.proxy = proxy
        self._listener = listener
        self.caller, self.callee = self.connected()

    def connected(self) -> tuple[socket.socket, socket.socket]:
        """Both ends of a new connection."""
        caller = socket.create_connection(("127.0.0.1", self.proxy.port), WITHIN_S)
        callee, _ = self._listener.accept()
        callee.settimeout(WITHIN_S)
        return caller, callee


@pytest.fixture
def ends() -> Iterator[Ends]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(WITHIN_S)
        with closing(LinkProxy(listener.getsockname()[1])) as proxy:
            found = Ends(proxy, listener)
            yield found
            found.caller.close()
            found.callee.close()


def passes(source: socket.socket, target: socket.socket, text: bytes) -> bool:
    """Whether something arrives soon."""
    source.sendall(text)
    target.settimeout(SILENT_FOR_S)
    try:
        return target.recv(100) == text
    except TimeoutError:
        return False
    finally:
        target.settimeout(WITHIN_S)


def test_bytes_pass_in_both_directions(ends: Ends) -> None:
    ends.caller.sendall(b"there")
    assert ends.callee.recv(100) == b"there"
    ends.callee.sendall(b"back")
    assert ends.caller.recv(100) == b"back"


@pytest.mark.parametrize("forwards", [True, False])
def test_one_direction_can_be_silent(ends: Ends, forwards: bool) -> None:
    source, target = (ends.caller, ends.callee) if forwards else (ends.callee, ends.caller)
    ends.proxy.silence(forwards=forwards, backwards=not forwards)
    target.sendall(b"heard")
    assert source.recv(100) == b"heard"
    assert not passes(source, target, b"late")
    ends.proxy.heal()
    assert target.recv(100) == b"late"


def test_new_connections_pass_beside_a_silent_one(ends: Ends) -> None:
    ends.proxy.silence()
    caller, callee = ends.connected()
    with caller, callee:
        caller.sendall(b"new")
        assert callee.recv(100) == b"new"
        assert not passes(ends.caller, ends.callee, b"old")


@pytest.mark.parametrize("forwards", [True, False])
def test_half_of_a_connection_can_end(ends: Ends, forwards: bool) -> None:
    source, target = (ends.caller, ends.callee) if forwards else (ends.callee, ends.caller)
    ends.proxy.half_close(forwards=forwards)
    assert target.recv(100) == b""
    source.sendall(b"in vain")
    target.sendall(b"still")
    assert source.recv(100) == b"still"


def test_what_is_cut_is_refused_until_it_heals(ends: Ends) -> None:
    ends.proxy.cut()
    assert ends.caller.recv(100) == ends.callee.recv(100) == b""
    with socket.create_connection(("127.0.0.1", ends.proxy.port), WITHIN_S) as refused:
        assert refused.recv(100) == b""
    ends.proxy.heal()
    caller, callee = ends.connected()
    with caller, callee:
        caller.sendall(b"again")
        assert callee.recv(100) == b"again"
