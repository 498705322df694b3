"""Crash, hang and congestion told apart by what a link shows."""

import pytest

from trimtab.broker.replication.config import ReplicationConfig
from trimtab.broker.replication.detection import Inspection, Signs, Watched
from trimtab.broker.replication.watch import NeighbourWatch
from trimtab.protocol.effects import Replace
from trimtab.protocol.messages import Neighbours

CONFIG = ReplicationConfig()


def looks(*signs: Signs) -> list[str]:
    watched = Watched(CONFIG, 0.0)
    return [watched.look(each, (number + 1) * CONFIG.look_every_s).verdict for number, each in enumerate(signs)]


def test_a_broken_connection_that_does_not_come_back_is_a_crash() -> None:
    away = Signs(False, 7, 0)
    assert looks(Signs(True, 7, 0), away, away, away) == ["alive", "suspected", "suspected", "crash"]


def test_a_broken_connection_that_comes_back_ends_the_suspicion() -> None:
    assert looks(Signs(False, 7, 0), Signs(False, 7, 0), Signs(True, 7, 0)) == ["suspected", "suspected", "alive"]


def test_a_neighbour_that_is_asked_and_silent_hangs() -> None:
    silent = Signs(True, 7, 0)
    assert looks(*[silent] * 7) == ["alive", "alive", "suspected", "suspected", "suspected", "suspected", "hang"]


def test_a_neighbour_that_answers_while_its_queue_stays_long_is_congested() -> None:
    assert looks(*[Signs(True, number, 2_000) for number in range(6)]) == ["alive"] * 4 + ["congestion"] * 2


def test_a_burst_is_no_congestion() -> None:
    queued = [2_000, 2_000, 2_000, 0, 2_000, 2_000, 2_000]
    assert looks(*[Signs(True, number, count) for number, count in enumerate(queued)]) == ["alive"] * 7


def test_a_busy_neighbour_is_not_asked_and_a_silent_one_is() -> None:
    watched = Watched(CONFIG, 0.0)
    assert watched.look(Signs(True, 1, 0), 0.5) == Inspection("alive")
    assert watched.look(Signs(True, 2, 0), 1.0) == Inspection("alive")
    assert watched.look(Signs(True, 2, 0), 1.5) == Inspection("alive", asks=True)


def test_the_neighbours_of_a_failed_broker_ask_in_the_order_of_their_names() -> None:
    asked: dict[str, list[float]] = {}
    for name in ("B1", "B3", "B4"):
        watch = NeighbourWatch(name, f"at {name}", CONFIG)
        watch.came("B2", "1", 0.0)
        others = [other for other in ("B1", "B3", "B4") if other != name]
        watch.told("B2", Neighbours(names=tuple(others), addresses=tuple(f"at {other}" for other in others)))
        for number in range(1, 60):
            found = watch.look(lambda _: Signs(False, 1, 0), lambda _: None, number * 0.5)
            assert found in (
                [],
                [
                    Replace(
                        "B2", "1", "crash", "synchronous", tuple((each, f"at {each}") for each in ("B1", "B3", "B4"))
                    )
                ],
            )
            if found:
                asked.setdefault(name, []).append(number * 0.5)
    assert asked == {"B1": [1.5, 16.5], "B3": [6.5, 21.5], "B4": [11.5, 26.5]}


def test_nobody_has_a_broker_replaced_whose_neighbours_it_was_not_told() -> None:
    watch = NeighbourWatch("B1", "", CONFIG)
    watch.came("B2", "1", 0.0)
    assert not any(watch.look(lambda _: Signs(False, 1, 0), lambda _: None, 0.5 * number) for number in range(1, 60))
    assert watch.verdicts() == {"B2": "crash"}
    watch.told("B2", Neighbours(names=()))
    assert watch.look(lambda _: Signs(False, 1, 0), lambda _: None, 30.0)


def test_a_retired_watch_wants_no_more_time() -> None:
    watch = NeighbourWatch("B1", "", CONFIG)
    watch.came("B2", "1", 0.0)
    assert watch.wake_at_s() == 0.5
    watch.retire()
    assert watch.wake_at_s() is None


@pytest.mark.parametrize(
    "changes", [{"look_every_s": 0.0}, {"hang_after_s": 0.6}, {"congested_count": 0}, {"protocol": "wishful"}]
)
def test_settings_are_checked(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"."):
        ReplicationConfig(**changes)  # type: ignore[arg-type]
