"""Disks that lose, tear and flip what is written, that are full or slow, and what that may cost."""

from random import Random

import pytest

from trimtab.broker.config import Acknowledges, BrokerConfig
from trimtab.broker.log import log_contents
from trimtab.broker.replication.config import ReplicationConfig
from trimtab.language import Filter
from trimtab.protocol.effects import Append
from trimtab.protocol.messages import Publish
from trimtab.simulation.checkers.rest import check_rest
from trimtab.simulation.world.clock import Clock
from trimtab.simulation.world.disk import Disk, Found
from trimtab.simulation.world.world import World

LINKS = [("B1", "B2")]


def publication(sequence: int, text: str = "") -> Publish:
    return Publish(publisher="p", sequence=sequence, values={"n": sequence, "t": text}, origin_s=1.5, session="s1")


class Machine:
    """A disk, and what it has told."""

    def __init__(self, seed: int = 1) -> None:
        self.clock = Clock()
        self.disk = Disk(self.clock, Random(seed))
        self.stored_number = 0
        self.rooms: list[bool] = []
        self.mount()

    def mount(self) -> Found:
        return self.disk.mount(self._told, self.rooms.append)

    def _told(self, number: int) -> None:
        self.stored_number = number

    def store(self, *numbers: int, text: str = "") -> None:
        for number in numbers:
            self.disk.append(Append(number, publication(number, text)))

    def run(self, for_s: float) -> None:
        self.clock.run(self.clock.now_s + for_s)


def test_after_a_power_loss_there_is_all_that_was_synced_and_no_gap_in_what_was_not() -> None:
    counts = set()
    for seed in range(200):
        machine = Machine(seed)
        machine.store(1, 2, 3)
        machine.run(0.01)
        machine.store(*range(4, 40), text="x" * Random(seed).randrange(100))
        machine.run(0.001)  # the first of them is being written
        machine.run(0.002)  # now the others
        machine.disk.lose_power()
        found = machine.mount()
        numbers = [each.sequence for each in found.publications]
        assert numbers == list(range(1, len(numbers) + 1)), seed
        assert (len(numbers) >= machine.stored_number, found.may_be_missing) == (True, ()), seed
        assert machine.disk.damage_count == 0, seed
        counts.add(len(numbers))
    assert len(counts) > 10  # torn at many places


def test_without_looking_for_missing_blocks_something_behind_a_gap_would_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_contents, "is_block_missing", lambda *_: False)
    with pytest.raises(AssertionError):
        test_after_a_power_loss_there_is_all_that_was_synced_and_no_gap_in_what_was_not()


def test_a_flipped_bit_costs_its_record_alone_and_is_found() -> None:
    lost_count = 0
    for seed in range(200):
        machine = Machine(seed)
        machine.store(*range(1, 21))
        machine.run(0.01)
        machine.disk.flip_bit()
        found = machine.mount()
        missing = {sequence for _, _, sequence in found.may_be_missing}
        assert {each.sequence for each in found.publications} == set(range(1, 21)) - missing, seed
        assert (len(missing) <= 1, machine.disk.damage_count) == (True, 1), seed
        lost_count += len(missing)
    assert lost_count > 100


def test_a_full_disk_says_so_and_writes_when_there_is_room() -> None:
    machine = Machine()
    machine.store(1)
    machine.run(0.01)
    machine.disk.fill(5.0)
    machine.store(2, 3)
    machine.run(1.0)
    assert (machine.stored_number, machine.rooms) == (1, [False])
    machine.run(5.0)
    assert (machine.stored_number, machine.rooms) == (3, [False, True])
    assert [each.sequence for each in machine.mount().publications] == [1, 2, 3]


def test_a_disk_that_is_full_when_a_broker_starts_keeps_what_is_there() -> None:
    machine = Machine()
    machine.store(1, 2)
    machine.run(0.01)
    machine.disk.fill(5.0)
    assert [each.sequence for each in machine.mount().publications] == [1, 2]
    machine.store(3)
    machine.run(1.0)
    assert (machine.stored_number, machine.rooms) == (2, [False])
    machine.run(6.0)
    assert machine.stored_number == 3


def test_a_slow_disk_takes_its_time() -> None:
    machine = Machine()
    machine.disk.slow_down(0.5, 10.0)
    machine.store(1)
    machine.run(0.4)
    assert machine.stored_number == 0
    machine.run(0.2)
    assert machine.stored_number == 1


# ---- in a network ----


def pair(seed: int, acknowledges: Acknowledges) -> World:
    """A publisher at B1 and a subscriber at B2."""
    world = World(seed)
    for name, other in (("B1", "B2"), ("B2", "B1")):
        replication = ReplicationConfig()
        world.add_broker(BrokerConfig(name, neighbours=(other,), acknowledges=acknowledges, replication=replication))
    world.add_link("B1", "B2")
    world.add_client("p", "B1")
    world.add_client("s", "B2")
    world.run(0.1)
    world.advertise("p", Filter.parse("[a,>,0],[t,isPresent,'']"))
    world.subscribe("s", Filter.parse("[a,>,0]"))
    return world


def publish(world: World, count: int) -> None:
    rng = Random(1)
    for number in range(count):
        world.at(1.0 + number * 0.001, world.publish, "p", {"a": number + 1, "t": "x" * rng.randrange(300)})


def finish(world: World) -> list[str]:
    world.run(60.0)
    for host in world.brokers.values():
        host.broker.retire_agents()
    world.run(600.0)
    check_rest(world, LINKS)
    return [f"{violation.kind}: {violation.text}" for violation in world.checker.violations]


@pytest.mark.parametrize("seed", range(12))
def test_what_was_not_synced_is_published_again_and_never_acknowledged_unseen(seed: int) -> None:
    """The link is cut, so that nobody else has it; the write that dies has many publications."""
    world = pair(seed, "durable")
    publish(world, 60)
    world.at(0.9, world.disks["B1"].slow_down, 0.01, 5.0)
    world.at(0.99, world.transport.cut, frozenset(("B1", "B2")), 0.2, (0.0, 0.0))
    world.at(1.0 + seed * 0.004, world.failures.kill, "B1")
    world.at(1.5, world.failures.restart, "B1")
    assert finish(world) == []


def test_only_the_publication_whose_record_is_damaged_may_be_missing() -> None:
    lost_count = 0
    for seed in range(12):
        world = pair(seed, "durable")
        publish(world, 40)
        world.at(0.99, world.transport.cut, frozenset(("B1", "B2")), 0.8, (0.0, 0.0))
        world.at(1.2, world.disks["B1"].flip_bit)
        world.at(1.3, world.failures.kill, "B1")
        world.at(1.5, world.failures.restart, "B1")
        assert finish(world) == []
        missing = 40 - world.checker.deliveries_count
        named = [(each.first, each.last) for each in world.checker.gaps.notices_of("s") if each.publisher]
        assert missing == len(named) <= 1
        assert all(first == last for first, last in named)
        lost_count += missing
    assert lost_count


def test_of_a_publisher_whose_only_record_is_damaged_is_told_what_it_had_accepted() -> None:
    lost_count = 0
    for seed in range(12):
        world = pair(seed, "durable")
        publish(world, 1)
        world.at(0.99, world.transport.cut, frozenset(("B1", "B2")), 0.8, (0.0, 0.0))
        world.at(1.2, world.disks["B1"].flip_bit)
        world.at(1.3, world.failures.kill, "B1")
        world.at(1.5, world.failures.restart, "B1")
        assert finish(world) == []
        missing = 1 - world.checker.deliveries_count
        named = [(each.first, each.last) for each in world.checker.gaps.notices_of("s") if each.publisher]
        assert named == [(1, 1)] * missing
        lost_count += missing
    assert lost_count


@pytest.mark.parametrize("acknowledges", ["received", "safe", "durable"])
@pytest.mark.parametrize("broker", ["B1", "B2"])
def test_a_broker_that_is_asked_to_end_and_returns_loses_nothing(acknowledges: Acknowledges, broker: str) -> None:
    for seed in range(5):
        world = pair(seed, acknowledges)
        publish(world, 60)
        world.at(0.99, world.transport.cut, frozenset(("B1", "B2")), 0.3, (0.0, 0.0))
        world.at(1.0 + 0.011 * seed, world.failures.ask, broker)
        world.at(1.2, world.failures.restart, broker)
        assert finish(world) == []
        assert world.checker.deliveries_count == 60


@pytest.mark.parametrize("acknowledges", ["received", "safe", "durable"])
def test_brokers_that_are_asked_to_end_one_after_the_other_lose_nothing(acknowledges: Acknowledges) -> None:
    """The subscriber is away: the first to end has handed everything on, the second has it alone."""
    world = pair(1, acknowledges)
    publish(world, 60)
    world.at(0.95, world.transport.cut, frozenset(("s", "B2")), 1.5, (0.0, 0.0))
    for broker, at_s in (("B1", 1.1), ("B2", 1.3)):
        world.at(at_s, world.failures.ask, broker)
        world.at(at_s + 0.05, world.failures.restart, broker)
    assert finish(world) == []
    assert world.checker.deliveries_count == 60
