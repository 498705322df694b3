"""The small networks that are explored: three or four brokers, a publisher, a subscriber, and who dies.

The cases named after a rule's trace come from the design's rules on deaths, restarts and moves; each says which.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from trimtab.broker.config import Acknowledges
from trimtab.simulation.explore.incarnations import TakenBy


class Act(msgspec.Struct, frozen=True):
    """Something that the application of a client does; `away` and `back` are what its network does."""

    client: str
    what: Literal["advertise", "subscribe", "publish", "unadvertise", "unsubscribe", "move", "leave", "away", "back"]
    filter: str = ""
    values: tuple[int, ...] = ()
    id: str = ""
    broker: str = ""
    waits_for_acceptance: bool = False

    def told(self) -> str:
        """What is done, for people.

        >>> Act("p", "publish", values=(1, 2)).told()
        'publish 1, 2'
        """
        return f"{self.what} {self.filter or self.id or self.broker or ', '.join(map(str, self.values))}".rstrip()


class Case(msgspec.Struct, frozen=True):
    """A network, what its clients do, and which of its brokers die once each."""

    name: str
    text: str
    links: tuple[tuple[str, str], ...]
    clients: tuple[tuple[str, str], ...]
    """Each client and its broker."""
    setup: tuple[Act, ...]
    """What has been done, and has settled, before exploring begins."""
    scripts: tuple[tuple[Act, ...], ...]
    """What each client does, one script a client."""
    dies: tuple[str, ...] = ()
    taken_by: TakenBy = "replica"
    slow_uplinks: tuple[tuple[str, str], ...] = ()
    """Brokers and the peers to whom to send is an event of its own."""
    slow_brokers: tuple[str, ...] = ()
    """Brokers for which to process a publication is an event of its own."""
    busy_brokers: tuple[str, ...] = ()
    """Brokers for which to process all that has arrived is an event of its own."""
    data_window_count: int = 1024
    """Publications that may be under way on a link of a broker."""
    levels: tuple[Acknowledges, ...] = ("safe", "durable")

    @property
    def brokers(self) -> tuple[str, ...]:
        """All of them, in order."""
        return tuple(sorted({end for link in self.links for end in link}))


_LINE: Final = (("B1", "B2"), ("B2", "B3"))
_LONG_LINE: Final = (*_LINE, ("B3", "B4"))
_STAR: Final = (("B1", "B2"), ("B2", "B3"), ("B2", "B4"))
"""B2 in the middle."""

_SETUP: Final = (Act("p", "advertise", "a > 0"), Act("s", "subscribe", "a > 0"))
_ALL_LEVELS: Final[tuple[Acknowledges, ...]] = ("received", "safe", "durable")


def _publish(*values: int) -> Act:
    return Act("p", "publish", values=values)


def _move(client: str, broker: str) -> Act:
    return Act(client, "move", broker=broker)


def _clients(publisher_at: str, subscriber_at: str) -> tuple[tuple[str, str], ...]:
    return (("p", publisher_at), ("s", subscriber_at))


def _subscriber_moves(dies: str, role: str) -> Case:
    return Case(
        f"subscriber-move-death-{dies.lower()}",
        f"p at B2 publishes 3 while s moves from B1 to B3; {role} {dies} dies",
        _LINE,
        _clients("B2", "B1"),
        _SETUP,
        ((_publish(1), _publish(2), _publish(3)), (_move("s", "B3"),)),
        dies=(dies,),
        levels=_ALL_LEVELS,
    )


def _publisher_moves(dies: str, role: str, trace: str = "") -> Case:
    return Case(
        f"publisher-move-death-{dies.lower()}",
        f"p publishes 2, moves from B1 to B3, where s is, and publishes 1; {role} {dies} dies{trace}",
        _LINE,
        _clients("B1", "B3"),
        _SETUP,
        ((_publish(1, 2), _move("p", "B3"), _publish(3)),),
        dies=(dies,),
        slow_uplinks=(("B2", "B3"),),
        levels=_ALL_LEVELS,
    )


CASES: Final[tuple[Case, ...]] = (
    Case(
        "leave-death",
        "p publishes 3, is acknowledged and leaves; B2, slow towards B3, dies (rule 2)",
        _LINE,
        _clients("B1", "B3"),
        _SETUP,
        ((_publish(1, 2, 3), Act("p", "leave")),),
        dies=("B2",),
        slow_uplinks=(("B2", "B3"),),
        levels=_ALL_LEVELS,
    ),
    Case(
        "unadvertise-death",
        "p publishes 3, is acknowledged and ends its advertisement; B2, slow towards B3, dies (rule 2)",
        _LINE,
        _clients("B1", "B3"),
        _SETUP,
        ((_publish(1, 2, 3), Act("p", "unadvertise", id="p/a1", waits_for_acceptance=True)),),
        dies=("B2",),
        slow_uplinks=(("B2", "B3"),),
        levels=_ALL_LEVELS,
    ),
    _subscriber_moves("B1", "the old broker"),
    _subscriber_moves("B2", "the one between"),
    _subscriber_moves("B3", "the new broker"),
    _publisher_moves("B1", "the old broker", " with its Complete (rule 6)"),
    _publisher_moves("B2", "the one between"),
    _publisher_moves("B3", "the new broker"),
    Case(
        "restart-backlog",
        "p publishes 3; B2 with a backlog for B3 dies and is started again by hand",
        _LINE,
        _clients("B1", "B3"),
        _SETUP,
        ((_publish(1), _publish(2), _publish(3)),),
        dies=("B2",),
        taken_by="restart",
        slow_uplinks=(("B2", "B3"),),
        levels=_ALL_LEVELS,
    ),
    Case(
        "two-moves-death",
        "p publishes 2, moves from B1 to B3 and publishes 1 while s moves from B3 to B1; B2 dies",
        _LINE,
        _clients("B1", "B3"),
        _SETUP,
        ((_publish(1, 2), _move("p", "B3"), _publish(3)), (_move("s", "B1"),)),
        dies=("B2",),
        levels=_ALL_LEVELS,
    ),
    Case(
        "adjacent-deaths",
        "p at B1 publishes 3 for s at B4; B2 and B3 die",
        _LONG_LINE,
        _clients("B1", "B4"),
        _SETUP,
        ((_publish(1), _publish(2), _publish(3)),),
        dies=("B2", "B3"),
        levels=("durable",),
    ),
    Case(
        "unsynced-death",
        "p at B1, slow towards B2, publishes 3 for s at B3; B1 dies with some of them not yet synced",
        _LINE,
        _clients("B1", "B3"),
        _SETUP,
        ((_publish(1), _publish(2, 3)),),
        dies=("B1",),
        slow_uplinks=(("B1", "B2"),),
        levels=("durable",),
    ),
    Case(
        "adjacent-unsynced-deaths",
        "p at B1 publishes 2 for s at B3, and q at B2 1; B1 and B2 die with some of it not yet synced",
        _LINE,
        (*_clients("B1", "B3"), ("q", "B2")),
        (*_SETUP, Act("q", "advertise", "a > 0")),
        ((_publish(1, 2),), (Act("q", "publish", values=(3,)),)),
        dies=("B1", "B2"),
        levels=("durable",),
    ),
    Case(
        "earlier-incarnation",
        "p publishes 1 at B3 and moves to B2, which is slow; B3 dies before B2 has processed its Complete (rule 4)",
        _LINE,
        _clients("B3", "B1"),
        _SETUP,
        ((_publish(1), _move("p", "B2"), _publish(2)),),
        dies=("B3",),
        slow_brokers=("B2",),
    ),
    Case(
        "handover-before-publication",
        "p at B1 publishes 2 while s moves from B3 to B4; B2 takes the Handover first and dies (rule 2)",
        _STAR,
        _clients("B1", "B3"),
        _SETUP,
        ((_publish(1), _publish(2)), (_move("s", "B4"),)),
        dies=("B2",),
    ),
    Case(
        "absent-client-move",
        "p at B1 publishes 3 for s, which never comes back to B3 and moves to B1; links have room for 1 (rule 1)",
        _LINE,
        _clients("B1", "B3"),
        _SETUP,
        ((_publish(1), _publish(2), _publish(3)), (Act("s", "away"), _move("s", "B1"))),
        data_window_count=1,
        levels=_ALL_LEVELS,
    ),
    Case(
        "absent-filter",
        "B3 dies while its client s is away and p at B1, which has not advertised before, publishes 2 (rule 3)",
        _LINE,
        _clients("B1", "B3"),
        (Act("s", "subscribe", "a > 0"),),
        (
            (Act("p", "advertise", "a > 0"), _publish(1), _publish(2)),
            (Act("s", "away"), Act("s", "back")),
        ),
        dies=("B3",),
    ),
    Case(
        "unsubscribe-death",
        "s ends its subscription while p publishes 2; B2 takes that, does not pass it on and dies (rule 3)",
        _LINE,
        _clients("B1", "B3"),
        _SETUP,
        ((_publish(1), _publish(2)), (Act("s", "unsubscribe", id="s/s1"),)),
        dies=("B2",),
        slow_uplinks=(("B2", "B1"),),
    ),
    Case(
        "end-off-path",
        "s moves from B3 to B4 and ends its subscription, which B1 knows from before the move; B2 dies (rule 6)",
        _STAR,
        _clients("B1", "B3"),
        _SETUP,
        ((_publish(1),), (_move("s", "B4"), Act("s", "unsubscribe", id="s/s1"))),
        dies=("B2",),
    ),
    Case(
        "earlier-epoch",
        "s at B2 subscribes and unsubscribes; B2 dies while B1 is busy and has not processed what B2 said (rule 4)",
        _LINE,
        _clients("B1", "B2"),
        (Act("p", "advertise", "a > 0"),),
        ((_publish(1),), (Act("s", "subscribe", "a > 0"), Act("s", "unsubscribe", id="s/s1"))),
        dies=("B2",),
        busy_brokers=("B1",),
        levels=_ALL_LEVELS,
    ),
    Case(
        "two-stays",
        "p publishes 2 at B1, moves to B3 and publishes 1; B2, slow to s's B4, passes Complete on and dies (rule 6)",
        _STAR,
        _clients("B1", "B4"),
        _SETUP,
        ((_publish(1, 2), _move("p", "B3"), _publish(3)),),
        dies=("B2",),
        slow_uplinks=(("B2", "B4"),),
    ),
)

CASE_BY_NAME: Final[Mapping[str, Case]] = {case.name: case for case in CASES}
