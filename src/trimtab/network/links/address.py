"""Addresses: a host and a port, written HOST:PORT."""

from __future__ import annotations

import socket

import msgspec


class Address(msgspec.Struct, frozen=True, order=True):
    """Where a broker listens.

    >>> Address.parse("127.0.0.1:7001")
    Address(host='127.0.0.1', port=7001)
    >>> str(Address.parse("[::1]:7001"))
    '[::1]:7001'
    """

    host: str
    port: int

    @staticmethod
    def parse(text: str) -> Address:
        """Read HOST:PORT; raises ValueError with what was expected.

        >>> Address.parse("localhost")
        Traceback (most recent call last):
        ...
        ValueError: 'localhost' is not an address; expected HOST:PORT, for example 127.0.0.1:7001
        """
        host, colon, port = text.strip().rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        is_number = port.isascii() and port.isdigit() and len(port) <= 5
        if not colon or not host or not is_number or any(char.isspace() for char in host):
            raise ValueError(f"{text[:80]!r} is not an address; expected HOST:PORT, for example 127.0.0.1:7001")
        if not 1 <= int(port) <= 65_535:
            raise ValueError(f"{text!r} is not an address: ports go from 1 to 65535")
        return Address(host, int(port))

    @staticmethod
    def of(given: str | Address) -> Address:
        """An address that is given as such or as text.

        >>> Address.of("127.0.0.1:7001") == Address.of(Address("127.0.0.1", 7001))
        True
        """
        if isinstance(given, Address):
            return given
        if not isinstance(given, str):
            raise TypeError(f"an address is a text HOST:PORT, not {type(given).__name__}")
        return Address.parse(given)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def is_of_this_host(host: str) -> bool:
    """Whether a process of this host can listen there.

    >>> is_of_this_host("127.0.0.1"), is_of_this_host("192.0.2.1")
    (True, False)
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return True


def found_here(wanted: Address, or_at: str) -> Address:
    """An address for a broker that was at one: the same if it is of this host, otherwise a free port at a name of it.

    >>> found_here(Address("127.0.0.1", 7001), "127.0.0.1").port
    7001
    >>> found_here(Address("192.0.2.1", 7001), "127.0.0.1").host
    '127.0.0.1'
    """
    if is_of_this_host(wanted.host):
        return wanted
    return free_address(or_at)


def free_address(host: str) -> Address:
    """A port of this host that nobody listens at now."""
    with socket.create_server((host, 0)) as server:
        return Address(host, int(server.getsockname()[1]))
