"""The coordination server: who is where, where new clients go, and rounds of moves."""

from __future__ import annotations

from random import Random

from trimtab.policies.multistage.config import CoordinatorConfig, MultistageConfig
from trimtab.policies.multistage.coordinator import (
    AskForReports,
    BrokerTold,
    ClientAsks,
    ClientTold,
    Coordinator,
    Effect,
    MoveEnded,
    OrderMove,
    Placed,
    Woken,
    orders_by_broker,
)

RATES = {f"k{number}": 1000.0 for number in range(8)}


def told(broker: str, clients: dict[str, list[str]], *, whole: bool = True, gone: tuple[str, ...] = ()) -> BrokerTold:
    """A report."""
    site = (float(int(broker.removeprefix("B")) * 10), 0.0)
    return BrokerTold(
        broker=broker,
        is_whole=whole,
        clients=tuple(ClientTold(name, tuple(wanted)) for name, wanted in clients.items()),
        gone=gone,
        rates_bytes_per_s=RATES,
        site=site,
        address=f"host:{broker}",
    )


def crowd(count: int, first: int = 0) -> dict[str, list[str]]:
    """Clients with a subscription each, all different."""
    return {f"C{number}": [f"k{number}"] for number in range(first, first + count)}


def started(**settings: object) -> Coordinator:
    """A coordinator that has heard of two brokers, eight clients at the first and none at the second."""
    coordinator = Coordinator(CoordinatorConfig(**settings), Random(1))  # type: ignore[arg-type]
    assert coordinator.start(0.0) == [AskForReports()]
    assert coordinator.handle(told("B1", crowd(8)), 1.0) == []
    assert coordinator.handle(told("B2", {}), 1.0) == []
    return coordinator


def keep_telling(coordinator: Coordinator, now_s: float) -> None:
    """Both brokers say that nothing has changed."""
    for broker in ("B1", "B2"):
        coordinator.handle(told(broker, {}, whole=False), now_s)


def end_all(coordinator: Coordinator, effects: list[Effect], now_s: float) -> int:
    """Every move that is ordered is made at once; how many there were."""
    count = 0
    waiting = [each for each in effects if isinstance(each, OrderMove)]
    while waiting:
        order = waiting.pop(0)
        count += 1
        more = coordinator.handle(MoveEnded(order.client, order.cause, True), now_s)
        waiting += [each for each in more if isinstance(each, OrderMove)]
    return count


def test_a_round_orders_moves_of_the_clients_that_the_policy_moves() -> None:
    coordinator = started(policy="ldm")
    assert coordinator.wake_at_s() == 60.0
    keep_telling(coordinator, 59.0)
    orders = coordinator.handle(Woken(), 60.0)
    moves = [(each.client, each.from_broker, each.to_broker) for each in orders if isinstance(each, OrderMove)]
    assert sorted(moves) == [(f"C{number}", "B1", "B2") for number in range(4)]
    assert orders_by_broker(orders).keys() == {"B1"}
    assert end_all(coordinator, orders, 61.0) == 4
    assert coordinator.moves_count == 4
    assert coordinator.population.loads() == [8000.0, 8000.0]
    assert coordinator.last_round is not None and coordinator.last_round.moves_count == 4


def test_only_so_many_moves_are_under_way_at_once_and_no_round_begins_meanwhile() -> None:
    coordinator = started(policy="ldm", moves_at_once_count=2)
    keep_telling(coordinator, 59.0)
    first = coordinator.handle(Woken(), 60.0)
    assert len(first) == 2
    keep_telling(coordinator, 119.0)
    order = first[0]
    assert isinstance(order, OrderMove)
    assert len(coordinator.handle(MoveEnded(order.client, order.cause, False), 119.0)) == 1  # refused: the next goes
    coordinator.handle(Woken(), 119.9)
    assert coordinator.last_round is not None and coordinator.last_round.number == 1


def test_a_move_that_never_ends_is_given_up_and_rounds_go_on() -> None:
    coordinator = started(policy="ldm", moves_at_once_count=1, move_within_s=30.0)
    keep_telling(coordinator, 59.0)
    (order,) = coordinator.handle(Woken(), 60.0)
    assert isinstance(order, OrderMove)
    assert coordinator.wake_at_s() == 90.0
    (second,) = coordinator.handle(Woken(), 90.0)
    assert isinstance(second, OrderMove) and second.client != order.client
    assert coordinator.handle(MoveEnded(order.client, order.cause, True), 91.0) == []  # late
    assert coordinator.moves_count == 0


def test_a_client_that_left_or_went_elsewhere_is_not_ordered_about() -> None:
    coordinator = started(policy="ldm", moves_at_once_count=1)
    keep_telling(coordinator, 59.0)
    (order,) = coordinator.handle(Woken(), 60.0)
    assert isinstance(order, OrderMove)
    others = tuple(f"C{number}" for number in range(8) if f"C{number}" != order.client)
    coordinator.handle(told("B1", {}, whole=False, gone=others), 61.0)
    assert coordinator.handle(MoveEnded(order.client, order.cause, True), 62.0) == []


def test_who_was_reported_elsewhere_since_is_not_taken_out_by_the_old_broker() -> None:
    coordinator = started()
    coordinator.handle(told("B2", {"C0": ["k0"]}, whole=False), 2.0)
    coordinator.handle(told("B1", {}, whole=False, gone=("C0",)), 3.0)
    assert coordinator.population.broker_of("C0") == "B2"
    coordinator.handle(told("B1", crowd(2, 1)), 4.0)  # whole: all others are gone
    assert [coordinator.population.broker_of(f"C{number}") for number in range(4)] == ["B2", "B1", "B1", None]


def test_a_silent_broker_counts_as_gone_with_its_clients_and_nobody_is_sent_there() -> None:
    coordinator = started(policy="ldm", placement="round-robin")
    coordinator.handle(told("B1", {}, whole=False), 55.0)
    assert coordinator.handle(Woken(), 60.0) == []
    assert coordinator.population.brokers() == ["B1"]
    assert coordinator.handle(ClientAsks("X"), 61.0) == [Placed("X", "B1", "host:B1")]


def test_a_new_life_knows_nothing_asks_and_knows_the_same_again() -> None:
    before = started(policy="ldm")
    after = Coordinator(CoordinatorConfig(policy="ldm"), Random(1))
    assert after.start(500.0) == [AskForReports()]
    assert after.handle(ClientAsks("X", (0.0, 0.0)), 500.0) == [Placed("X", None, reason="no broker has reported yet")]
    after.handle(told("B1", crowd(8)), 501.0)
    after.handle(told("B2", {}), 501.0)
    assert after.population.loads() == before.population.loads()
    assert after.handle(MoveEnded("C1", "coordinator/60.000/1", True), 502.0) == []  # of the life before
    keep_telling(after, 555.0)
    assert len(after.handle(Woken(), 560.0)) == 4


def test_placement_by_each_policy() -> None:
    def places(placement: str, sites: list[tuple[float, float] | None]) -> list[str | None]:
        coordinator = started(placement=placement)
        effects = [coordinator.handle(ClientAsks(f"X{i}", site), 2.0)[0] for i, site in enumerate(sites)]
        return [each.broker for each in effects if isinstance(each, Placed)]

    assert places("nearest", [(12.0, 0.0), (19.0, 3.0)]) == ["B1", "B2"]
    assert places("round-robin", [None] * 3) == ["B1", "B2", "B1"]
    assert places("least-loaded", [None] * 10) == ["B2"] * 8 + ["B1", "B2"]  # eight are at B1 already
    assert set(places("random", [None] * 40)) == {"B1", "B2"}
    assert places("nearest", [None]) == ["B2"]


def test_nearest_without_a_place_says_what_was_done_instead() -> None:
    (placed,) = started(placement="nearest").handle(ClientAsks("X"), 2.0)
    assert isinstance(placed, Placed)
    assert placed.reason == "the client does not say where; the least loaded was taken"


def test_names_of_subscriptions_that_nobody_has_are_forgotten_in_the_end() -> None:
    coordinator = started(balancing=MultistageConfig())
    for number in range(30):
        wanted = [f"passing {number} {each}" for each in range(1000)]
        coordinator.handle(told("B2", {"P": wanted}), 2.0 + number)
    population = coordinator.population
    before = population.loads()
    population.plan("ldm", MultistageConfig())
    assert len(population._rates) == 1008
    population._loads = None
    assert population.loads() == before
