"""Addresses: a host and a port, written HOST:PORT."""

from __future__ import annotations

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

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
