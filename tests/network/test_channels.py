"""Channels with real broker processes: fetched once, delivered in order, over moves and a back end that comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.network.stand_in_back_end import StandInBackEnd
from tests.network.test_delivery import run, take
from trimtab import Client, Filter, Network, Publication
from trimtab.network.admin.status import ask_status
from trimtab.network.client.client import RefusedError
from trimtab.network.client.subscription import Delivery
from trimtab.network.network_file import NetworkFileError, NetworkOptions, parse_network

HERE = {"place": 1}


@pytest.fixture(params=[0, 3, 500], ids="news bring {} results".format)
def back_end(request: pytest.FixtureRequest) -> Iterator[StandInBackEnd]:
    stand_in = StandInBackEnd(("near",), request.param)
    stand_in.start()
    yield stand_in
    if not stand_in.is_stopped:
        stand_in.stop()


@pytest.fixture
def network(back_end: StandInBackEnd) -> Iterator[Network]:
    options = NetworkOptions(back_end=f"http://127.0.0.1:{back_end.port}")
    with Network.of(["B1", "B2"], [("B1", "B2")], options) as network:
        yield network


def positions(deliveries: list[Delivery]) -> list[int]:
    return [delivery.sequence for delivery in deliveries]


def test_two_clients_share_what_is_fetched_once_beside_ordinary_subscriptions(
    back_end: StandInBackEnd, network: Network
) -> None:
    async def work() -> None:
        first = await Client.connect(network.address("B1"), "first")
        second = await Client.connect(network.address("B1"), "second")
        both = await first.subscribe(Filter.parse("a > 1"), channels=[("near", HERE)])
        channel = await second.subscribe_channel("near", HERE)
        publisher = await Client.connect(network.address("B2"))
        await publisher.advertise(Filter.parse("a > 0"))
        back_end.happen("near", HERE, {"type": "flood", "at": {"x": 1}})
        assert [each.publication.values_by_name for each in await take(both, 1)] == [
            {"type": "flood", "at": '{"x": 1}'.replace(" ", "")}
        ]
        await publisher.publish(Publication(a=5))
        assert [each.publication["a"] for each in await take(both, 1)] == [5]
        assert positions(await take(channel, 1)) == [1]
        assert back_end.fetches_count == (0 if back_end.brought_max_count else 1)
        status = (await ask_status(network.plan.broker("B1").listen)).channels
        assert status is not None and status.is_reached
        assert (status.streams_count, status.subscriptions_count) == (1, 2)
        assert (status.results_in_count, status.results_out_count) == (1, 2)
        for client in (first, second, publisher):
            await client.close()

    run(work())


def test_nothing_is_missed_while_a_client_moves_and_the_back_end_is_started_again(
    back_end: StandInBackEnd, network: Network
) -> None:
    async def work() -> None:
        client = await Client.connect(network.address("B1"), "mover")
        subscription = await client.subscribe_channel("near", HERE)
        for number in range(300):
            back_end.happen("near", HERE, {"number": number})
            if number == 100:
                await client.move("B2", network.address("B2"))
            if number == 200:
                await asyncio.to_thread(back_end.stop)
            if number == 250:
                await asyncio.to_thread(back_end.start)
        assert positions(await take(subscription, 300)) == list(range(1, 301))
        assert client.broker == "B2"
        await client.close()

    run(work())


def test_a_client_goes_on_another_day_after_the_position_that_it_kept(
    back_end: StandInBackEnd, network: Network
) -> None:
    async def work() -> None:
        for day in range(2):
            client = await Client.connect(network.address(f"B{day + 1}"), f"day-{day}")
            subscription = await client.subscribe_channel("near", HERE, after=0 if day == 0 else 2)
            if day == 0:
                for number in range(5):
                    back_end.happen("near", HERE, {"number": number})
            assert positions(await take(subscription, 5 - 2 * day)) == list(range(1 + 2 * day, 6))
            await client.close()

    run(work())


def test_an_unknown_channel_is_refused_with_the_reason(network: Network) -> None:
    async def work() -> None:
        client = await Client.connect(network.address("B1"))
        with pytest.raises(RefusedError, match="there is no channel far"):
            await client.subscribe_channel("far", HERE)
        subscription = await client.subscribe_channel("near", HERE)
        with pytest.raises(RefusedError, match="is subscribed to already"):
            await client.subscribe_channel("near", HERE)
        await subscription.close()
        await client.close()

    run(work())


def test_the_address_of_a_back_end_is_checked() -> None:
    text = '[[broker]]\nname = "B1"\nlisten = "127.0.0.1:7001"\n[network]\nback_end = "spark://x"\n'
    with pytest.raises(NetworkFileError, match=r"5: back_end: expected http://HOST:PORT, not 'spark://x'"):
        parse_network(text)
