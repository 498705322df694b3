"""Versions of the wire protocol: which one two ends speak, and what a peer that speaks a lower one is not sent.

Each greeting names the range of versions that its sender speaks, and both ends use the highest that both do. What a
later version adds is of two kinds. New keys of greetings and of messages that travel as maps have defaults, and whoever
does not know them reads over them. New kinds of messages would end the connection to a peer that does not know them:
they stand in `FIRST_VERSIONS`, and a broker puts none into the queue of a peer whose version is lower (`Broker.send`).
Whoever adds one says here what such a peer does without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from trimtab.protocol.frames import Hello, Sendable
from trimtab.protocol.messages import VERSION_MIN, Gap, GapQuestion, Leaving, OneWay, Relieved, TwoWays

FIRST_VERSIONS: Final[Mapping[type, int]] = {
    Leaving: 3,  # one of version 2 takes the goodbye of a broker that leaves for it, and waits for ever if that is lost
    Gap: 3,  # one of version 2 is told nothing of what may be lost, and tells nobody behind it
    GapQuestion: 3,  # nobody asks behind one of version 2: open intervals are told of publishers there
    Relieved: 3,  # next to one of version 2 no broker is assisted
    TwoWays: 3,
    OneWay: 3,
}
"""Messages that came after `VERSION_MIN`, each with the first version that knows it."""


def common_version(hello: Hello, version_max: int) -> int:
    """The version that is spoken with whoever greets so, by one who speaks up to a version.

    >>> common_version(Hello(2, "client", "ann", "1", 1), 3), common_version(Hello(9, "client", "ann", "1", 1), 3)
    (2, 3)
    """
    return min(hello.version, version_max)


def is_known(message: Sendable, version: int) -> bool:
    """Whether a version of the protocol has such a message.

    >>> is_known(Leaving(), 2), is_known(Leaving(), 3), is_known(b"a publication", 2)
    (False, True, True)
    """
    return FIRST_VERSIONS.get(type(message), VERSION_MIN) <= version


def known(messages: Iterable[Sendable], version: int) -> list[Sendable]:
    """Those of some messages that a version of the protocol has."""
    return [message for message in messages if is_known(message, version)]
