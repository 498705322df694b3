"""What an application does with a client: texts for filters, publishing without ceremony, open advertisements."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

import trimtab
from trimtab import BlockingClient, Client, Filter, LanguageError, Network, Publication
from trimtab.network.client.errors import RefusedError
from trimtab.network.client.subscription import Delivery, Subscription
from trimtab.network.loops import run
from trimtab.network.network_file import NetworkOptions

WITHIN_S = 20.0


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with Network.of(["B1", "B2", "B3"], [("B1", "B2"), ("B2", "B3")]) as running:
        yield running


def with_clients(network: Network, work: Callable[[Client, Client], Awaitable[None]]) -> None:
    """Run with a publisher at B1 and a subscriber at B3."""

    async def connected() -> None:
        async with (
            asyncio.timeout(WITHIN_S),
            await Client.connect(network.address("B1")) as publisher,
            await Client.connect(network.address("B3")) as subscriber,
        ):
            await work(publisher, subscriber)

    run(connected())


async def take(subscription: Subscription, count: int) -> list[dict[str, Any]]:
    found: list[Delivery] = []
    async for delivery in subscription:
        found.append(delivery)
        if len(found) == count:
            break
    return [dict(each.publication) for each in found]


# ---- texts and types ----


def test_filters_may_be_texts_that_mean_several(network: Network) -> None:
    async def work(publisher: Client, subscriber: Client) -> None:
        await publisher.advertise("class = 'STOCK' AND volume isPresent 0 OR class = 'BOND' AND symbol isPresent ''")
        subscription = await subscriber.subscribe("volume > 300000 OR symbol IN ('IBM')")
        for values in ({"volume": 5}, {"volume": 412_000}, {"class": "BOND", "symbol": "IBM"}):
            await publisher.publish(values)
        assert await take(subscription, 2) == [{"volume": 412_000}, {"class": "BOND", "symbol": "IBM"}]

    with_clients(network, work)


def test_an_advertisement_of_several_filters_ends_as_a_whole(network: Network) -> None:
    async def work(publisher: Client, _: Client) -> None:
        id = await publisher.advertise("a = 1 OR b = 1")
        await publisher.unadvertise(id)
        with pytest.raises(LanguageError, match="it has none"):
            await publisher.publish({"b": 1})

    with_clients(network, work)


def test_wrong_types_are_refused_at_once_and_the_client_lives(network: Network) -> None:
    async def work(client: Client, _: Client) -> None:
        wrong: Any = ["class = 'STOCK'"]
        for refused in (
            client.subscribe(wrong),
            client.advertise(wrong),
            client.subscribe("a = 1", callback=wrong),
            client.subscribe("a = 1", within_s=wrong),
            client.publish(wrong),
            client.publish({"a": 1}, wrong),
            client.move("B2", wrong),
        ):
            with pytest.raises(TypeError):
                await refused
        with pytest.raises(LanguageError, match="column 11: expected a value"):
            await client.subscribe("[class,eq,STOCK]")
        subscription = await client.subscribe("a = 1")
        await client.publish({"a": 1})
        assert await take(subscription, 1) == [{"a": 1}]

    with_clients(network, work)


# ---- publishing without ceremony ----


def test_what_is_published_is_announced_and_the_advertisement_is_widened(network: Network) -> None:
    async def work(publisher: Client, subscriber: Client) -> None:
        subscription = await subscriber.subscribe("class = 'ORDER'")
        by_city = await subscriber.subscribe("address.city = 'Ayr'")
        for values in (
            {"class": "ORDER", "count": 1},
            {"class": "ORDER", "address": {"city": "Ayr", "floor": None}, "tags": ["new"]},
            {"class": "ORDER", "count": "many"},
            {"class": "NOTE", "text": "x"},
        ):
            await publisher.publish(values)
        await publisher.drain()
        assert publisher.refused == []
        assert [sorted(each) for each in await take(subscription, 3)] == [
            ["class", "count"],
            ["address.city", "class", "tags.0"],
            ["class", "count"],
        ]
        assert (await take(by_city, 1))[0]["address.city"] == "Ayr"
        status = network.status()["B3"]
        assert status is not None and status.advertisements_count == 2  # one for each class

    with_clients(network, work)


def test_publications_of_several_tasks_need_one_advertisement(network: Network) -> None:
    async def work(publisher: Client, subscriber: Client) -> None:
        subscription = await subscriber.subscribe("class = 'N'")
        await asyncio.gather(*[publisher.publish({"class": "N", "n": number}) for number in range(50)])
        assert sorted(each["n"] for each in await take(subscription, 50)) == list(range(50))
        status = network.status()["B3"]
        assert status is not None and status.advertisements_count == 1

    with_clients(network, work)


def test_a_publication_with_more_attributes_than_a_filter_holds_is_announced_openly(network: Network) -> None:
    async def work(publisher: Client, subscriber: Client) -> None:
        subscription = await subscriber.subscribe("many.399 = 399")
        await publisher.publish({"class": "WIDE", "many": list(range(400))})
        assert len((await take(subscription, 1))[0]) == 401

    with_clients(network, work)


def test_who_announces_something_publishes_that_and_nothing_else(network: Network) -> None:
    async def work(publisher: Client, _: Client) -> None:
        await publisher.advertise("class = 'STOCK'")
        with pytest.raises(LanguageError, match="the attribute volume is not announced"):
            await publisher.publish({"class": "STOCK", "volume": 5})
        with pytest.raises(LanguageError, match=r"\[class,'BOND'\] is not announced"):
            await publisher.publish({"class": "BOND"})

    with_clients(network, work)


# ---- open advertisements ----


def test_an_open_advertisement_admits_any_further_attribute(network: Network) -> None:
    async def work(publisher: Client, subscriber: Client) -> None:
        subscription = await subscriber.subscribe("price > 5 AND note LIKE 'x%'")
        id = await publisher.advertise("class = 'STOCK'", open=True)
        await publisher.publish({"class": "STOCK", "price": 7, "note": "xyz"})
        assert await take(subscription, 1) == [{"class": "STOCK", "price": 7, "note": "xyz"}]
        with pytest.raises(LanguageError, match=r"\[class,'BOND'\] is not announced"):
            await publisher.publish({"class": "BOND", "price": 7})
        assert await publisher.move("B3", network.address("B3")) == "B3"
        await publisher.publish({"class": "STOCK", "price": 8, "note": "x"})
        assert (await take(subscription, 1))[0]["price"] == 8
        await publisher.unadvertise(id)

    with_clients(network, work)


def test_a_neighbour_of_an_earlier_version_is_told_what_is_named() -> None:
    """B2 speaks version 3: what asks for named attributes comes through it, and nothing breaks."""
    options = NetworkOptions()
    whole = Network.of(["B1", "B2", "B3"], [("B1", "B2"), ("B2", "B3")], options)
    brokers = [replace(entry, wire_version_max=3) if entry.name == "B2" else entry for entry in whole.plan.brokers]
    with Network(replace(whole.plan, brokers=tuple(brokers))) as network:

        async def work(publisher: Client, subscriber: Client) -> None:
            named = await subscriber.subscribe("class = 'STOCK'")
            await publisher.advertise("class = 'STOCK'", open=True)
            await publisher.publish({"class": "STOCK", "price": 7})
            assert await take(named, 1) == [{"class": "STOCK", "price": 7}]
            async with await Client.connect(network.address("B2")) as behind:
                with pytest.raises(RefusedError, match="earlier version, without open advertisements"):
                    await behind.advertise("class = 'STOCK'", open=True)
                await behind.publish({"class": "STOCK", "price": 8})
                assert await take(named, 1) == [{"class": "STOCK", "price": 8}]

        with_clients(network, work)


# ---- what is public ----


def test_the_blocking_client_can_all_that_the_client_can(network: Network) -> None:
    with BlockingClient(network.address("B1")) as blocking:
        client = blocking._client
        ours = {name for name in dir(client) if not name.startswith("_")}
        theirs = {name for name in dir(blocking) if not name.startswith("_")}
        assert theirs - ours == {"deliveries"}
        assert ours - theirs == set()


def test_the_client_hides_what_is_for_the_transport(network: Network) -> None:
    async def work(client: Client, _: Client) -> None:
        shown = {name for name in dir(client) if not name.startswith("_")}
        told = {"gaps", "gaps_count", "held_back_because", "late_count", "moves_count", "refused", "waiting_count"}
        asked = {"broker", "is_connected", "name", "on_gap", "on_held_back", "on_move"}
        done = {"advertise", "close", "connect", "connect_through", "drain", "move", "publish", "subscribe"}
        assert shown == told | asked | done | {"subscribe_channel", "unadvertise", "unsubscribe"}

    with_clients(network, work)


def test_a_program_without_an_event_loop_reads_in_a_for_loop(network: Network) -> None:
    with (
        BlockingClient.connect(network.address("B1"), "alice") as publisher,
        BlockingClient(network.address("B3"), "bob") as subscriber,
    ):
        subscription = subscriber.subscribe("volume > 5")
        publisher.publish({"class": "STOCK", "volume": 7})
        for delivery in subscription:
            assert delivery.publication == Publication({"class": "STOCK"}, volume=7)
            break
        assert repr(subscription) == "<BlockingSubscription bob/s1 of bob, 0 waiting>"
        subscription.close()
        assert repr(publisher) == f"<BlockingClient alice at B1 ({network.address('B1')}), connected>"
        assert publisher.move("B2", network.address("B2")) == "B2"
        assert (publisher.broker, publisher.moves_count, publisher.is_connected) == ("B2", 1, True)
        publisher.advertise(Filter.parse("a = 1"), open=True)
        publisher.publish({"a": 1, "b": 2})


def test_the_package_shows_what_it_offers() -> None:
    assert {"Client", "BlockingClient", "Network", "ActiveData", "GapNotice", "Filter"} <= set(dir(trimtab))
