"""Subscribers leave a broker with a long backlog at once, with all that they are owed."""

from __future__ import annotations

from random import Random

import pytest

from trimtab.broker.ahead import AheadOfTurn
from trimtab.broker.config import BrokerConfig
from trimtab.language import Filter
from trimtab.protocol.effects import Effect
from trimtab.protocol.messages import Publish
from trimtab.simulation.capacity import Capacity
from trimtab.simulation.rest import check_rest
from trimtab.simulation.world import World

LINKS = [("slow", "middle"), ("middle", "fast"), ("slow", "behind")]


def world_with_a_slow_broker(
    seed: int = 1, *, cpu_mhz: float = 0.5, ahead_min_count: int = 2, acknowledge_after_s: float = 0.0
) -> World:
    """The slow broker has neighbours on two sides."""
    world = World(seed, bundle_s=0.025 if acknowledge_after_s else 0.0, acknowledge_after_s=acknowledge_after_s)
    for name in ("slow", "middle", "fast", "behind"):
        neighbours = tuple(end for link in LINKS if name in link for end in link if end != name)
        capacity = Capacity(cpu_mhz=cpu_mhz) if name == "slow" else Capacity()
        world.add_broker(BrokerConfig(name, neighbours=neighbours, ahead_min_count=ahead_min_count), capacity)
    for first, second in LINKS:
        world.add_link(first, second)
    world.run()
    return world


def time_to_move_s(ahead_min_count: int) -> tuple[float, int]:
    """How long a client needs to leave a broker with a backlog of some minutes, and how much it was delivered."""
    world = world_with_a_slow_broker(ahead_min_count=ahead_min_count)
    world.add_client("p", "fast")
    world.advertise("p", Filter.parse("a > 0"))
    for number in range(20):
        world.add_client(f"c{number}", "slow")
        world.subscribe(f"c{number}", Filter.parse(f"a > {number}"))
    world.run()
    begun_s = world.now_s
    for number in range(200):
        world.publish("p", {"a": number + 1})
    world.at(begun_s + 1.0, world.move, "c3", "fast")
    while world.moves_count == 0:
        world.run(world.now_s + 0.1)
    moved_s = world.now_s - begun_s
    world.run()
    check_rest(world, LINKS)
    assert world.checker.violations == []
    return moved_s, world.checker.deliveries_count


def test_a_client_need_not_wait_for_the_backlog_of_the_broker_that_it_leaves() -> None:
    in_turn_s, in_turn_count = time_to_move_s(0)
    ahead_s, ahead_count = time_to_move_s(2)
    assert in_turn_s > 100.0
    assert ahead_s < 10.0  # one filter is asked for each of 200 publications, as fast as this broker can
    assert ahead_count == in_turn_count


def subscribe(world: World, client: str) -> None:
    world.subscribe(client, Filter.parse("a > 4"))


def churn(seed: int) -> World:
    """Bursts from all sides, and clients that leave the slow broker and come back."""
    rng = Random(f"ahead {seed}")
    world = world_with_a_slow_broker(
        seed,
        cpu_mhz=rng.choice((0.2, 1.0)),
        ahead_min_count=rng.choice((1, 5)),
        acknowledge_after_s=rng.choice((0.0, 0.4)),
    )
    for broker in ("fast", "middle", "behind", "slow"):
        world.add_client(f"p-{broker}", broker, rng.choice((0.001, 0.05)))
        world.advertise(f"p-{broker}", Filter.parse("a > 0"))
    for number in range(6):
        world.add_client(f"c{number}", "slow", rng.choice((0.001, 0.02)))
        for _ in range(rng.randrange(1, 4)):
            world.subscribe(f"c{number}", Filter.parse(f"a > {rng.randrange(8)}"))
    world.run()
    begun_s = world.now_s
    for _ in range(150):
        publisher = f"p-{rng.choice(('fast', 'fast', 'middle', 'behind', 'slow'))}"
        world.at(begun_s + rng.uniform(0.0, 3.0), world.publish, publisher, {"a": rng.randrange(1, 10)})
    for _ in range(20):
        world.at(
            begun_s + rng.uniform(0.5, 8.0),
            world.move,
            f"c{rng.randrange(6)}",
            rng.choice(("slow", "middle", "fast", "behind")),
        )
    for _ in range(4):
        world.at(begun_s + rng.uniform(0.5, 6.0), subscribe, world, f"c{rng.randrange(6)}")
    world.run()
    check_rest(world, LINKS)
    return world


def test_nothing_is_lost_doubled_or_reordered_however_clients_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[int] = []
    serve, wanted = AheadOfTurn.serve, AheadOfTurn._wanted

    def counting(self: AheadOfTurn, now_s: float) -> list[Effect] | None:
        effects = serve(self, now_s)
        served.append(effects is not None)
        return effects

    monkeypatch.setattr(AheadOfTurn, "serve", counting)
    for seed in range(60):
        assert churn(seed).checker.violations == [], seed
    assert sum(served) > 60

    def forgetting(self: AheadOfTurn, filters: list[Filter], place: int) -> list[Publish]:
        return wanted(self, filters, place)[1:]

    monkeypatch.setattr(AheadOfTurn, "_wanted", forgetting)
    assert any(churn(seed).checker.violations for seed in range(20))
