"""Versions of the wire protocol: which one two ends speak, and what a peer that speaks a lower one is not sent.

Each greeting names the range of versions that its sender speaks, and both ends use the highest that both do. What a
later version adds is of two kinds. New keys of greetings and of messages that travel as maps have defaults, and whoever
does not know them reads over them. New kinds of messages would end the connection to a peer that does not know them:
they stand in `FIRST_VERSIONS`, and a broker puts none into the queue of a peer whose version is lower (`Broker.send`).
Whoever adds one says here what such a peer does without it. Open advertisements came with version 4: a peer of a lower
version is told the attributes that they name and no others, so that subscriptions behind it that ask for more find no
publisher there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, overload

from msgspec.structs import replace

from trimtab.protocol.frames import Hello, Sendable
from trimtab.protocol.messages import (
    VERSION_MIN,
    Advertise,
    AnyMessage,
    ClientRecord,
    ClientRecords,
    Gap,
    GapQuestion,
    Guard,
    KnownAdvertisement,
    Leaving,
    MoveIn,
    OneWay,
    Relieved,
    TwoWays,
)

FIRST_VERSIONS: Final[Mapping[type, int]] = {
    Leaving: 3,  # one of version 2 takes the goodbye of a broker that leaves for it, and waits for ever if that is lost
    Gap: 3,  # one of version 2 is told nothing of what may be lost, and tells nobody behind it
    GapQuestion: 3,  # nobody asks behind one of version 2: open intervals are told of publishers there
    Relieved: 3,  # next to one of version 2 no broker is assisted
    TwoWays: 3,
    OneWay: 3,
}
"""Messages that came after `VERSION_MIN`, each with the first version that knows it."""


OPEN_ADVERTISEMENTS: Final = 4
"""The first version that knows of open advertisements."""


def common_version(hello: Hello, version_max: int) -> int:
    """The version that is spoken with whoever greets so, by one who speaks up to a version.

    >>> common_version(Hello(2, "client", "ann", "1", 1), 3), common_version(Hello(9, "client", "ann", "1", 1), 3)
    (2, 3)
    """
    return min(hello.version, version_max)


@overload
def spoken(message: AnyMessage, version: int) -> AnyMessage | None: ...


@overload
def spoken(message: Sendable, version: int) -> Sendable | None: ...


def spoken(message: Sendable, version: int) -> Sendable | None:
    """A message as a version of the protocol says it; None if that has no such message.

    >>> from trimtab.language import Filter
    >>> announced = Advertise(id="a1", filter=Filter.parse("class = 'STOCK'").opened())
    >>> [message.filter.is_open for version in (3, 4) if (message := spoken(announced, version))]
    [False, True]
    >>> spoken(Leaving(), 2)
    """
    kind = type(message)
    if FIRST_VERSIONS.get(kind, VERSION_MIN) > version:
        return None
    if version < OPEN_ADVERTISEMENTS and kind in _WITH_ADVERTISEMENTS:
        return _closed(message)
    return message


def is_known(message: Sendable, version: int) -> bool:
    """Whether a version of the protocol has such a message, and everything that this one says.

    >>> is_known(Leaving(), 2), is_known(Leaving(), 3), is_known(b"a publication", 2)
    (False, True, True)
    """
    return spoken(message, version) is message


def known(messages: Iterable[Sendable], version: int) -> list[Sendable]:
    """Those of some messages that a version of the protocol has, as it says them."""
    return [said for message in messages if (said := spoken(message, version)) is not None]


_WITH_ADVERTISEMENTS: Final = frozenset({Advertise, MoveIn, Guard, ClientRecords, Gap})


def _closed(message: Sendable) -> Sendable:
    """A message without what is open in it; the same object if nothing is."""
    match message:
        case Advertise(filter=filter) if filter.is_open:
            return replace(message, filter=filter.closed())
        case Gap(filters=filters) if any(filter.is_open for filter in filters):
            return replace(message, filters=tuple(filter.closed() for filter in filters))
        case MoveIn(advertisements=advertisements) if _any_open(advertisements):
            return replace(message, advertisements=_all_closed(advertisements))
        case Guard(record=record) if _any_open(record.advertisements):
            return replace(message, record=_closed_record(record))
        case ClientRecords(records=records) if any(_any_open(record.advertisements) for record in records):
            return replace(message, records=tuple(_closed_record(record) for record in records))
        case _:
            return message


def _any_open(advertisements: Iterable[KnownAdvertisement]) -> bool:
    return any(each.filter.is_open for each in advertisements)


def _all_closed(advertisements: Iterable[KnownAdvertisement]) -> tuple[KnownAdvertisement, ...]:
    return tuple(replace(each, filter=each.filter.closed()) for each in advertisements)


def _closed_record(record: ClientRecord) -> ClientRecord:
    return replace(record, advertisements=_all_closed(record.advertisements))
