"""How long a notification takes, from its record's acknowledgement to whoever fetches it, and to a broker's client."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from trimtab.operations.emergency.city import EmergencyCity

if TYPE_CHECKING:
    from trimtab.activedata import ActiveData
    from trimtab.network.client.subscription import Delivery

Told = Callable[[str], None]
"""A notification of a report has come."""


def fetched_delays(active: ActiveData, city: EmergencyCity, seconds: float, rate_per_s: float) -> list[float]:
    """Seconds to the fetch of each notification, in this process, in ascending order."""
    subscriptions = [each.id for each in active.catalog.subscriptions()]

    @contextmanager
    def fetching(told: Told) -> Iterator[None]:
        stop = threading.Event()

        def work() -> None:
            after = active.results_store.last_position
            while not stop.is_set():
                news = active.wait(subscriptions, after, 0.5)
                for subscription in news:
                    for result in active.results(subscription, after):
                        told(str(result.fields["reportId"]))
                after = max([after, *news.values()])

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    return _delays(active, city, seconds, rate_per_s, fetching)


def broker_delays(
    active: ActiveData,
    city: EmergencyCity,
    wanted: Sequence[tuple[str, dict[str, str]]],
    seconds: float,
    rate_per_s: float,
) -> list[float]:
    """Seconds to a client of a broker process that is subscribed to everything, in ascending order."""
    from trimtab.activedata.service.http import Service
    from trimtab.network.admin.local_network import Network
    from trimtab.network.network_file import NetworkOptions

    service = Service(active)
    service.start()
    options = NetworkOptions(back_end=f"http://127.0.0.1:{service.port}")

    @contextmanager
    def listening(told: Told) -> Iterator[None]:
        ready, stop = threading.Event(), threading.Event()
        address = network.address("Edge")
        client = threading.Thread(target=lambda: asyncio.run(_listen(address, wanted, told, ready, stop)))
        client.start()
        try:
            ready.wait()
            yield
        finally:
            stop.set()
            client.join()

    try:
        with Network.of(["Edge"], options=options) as network:
            return _delays(active, city, seconds, rate_per_s, listening)
    finally:
        service.close()


async def _listen(
    address: str,
    wanted: Sequence[tuple[str, dict[str, str]]],
    told: Told,
    ready: threading.Event,
    stop: threading.Event,
) -> None:
    from trimtab.network.client.client import Client

    def take(delivery: Delivery) -> None:
        told(str(delivery.publication["reportId"]))

    async with await Client.connect(address) as client:
        await client.subscribe(channels=[(channel, arguments) for channel, arguments in wanted], callback=take)
        ready.set()
        while not stop.is_set():
            await asyncio.sleep(0.1)


def _delays(
    active: ActiveData,
    city: EmergencyCity,
    seconds: float,
    rate_per_s: float,
    listening: Callable[[Told], AbstractContextManager[None]],
) -> list[float]:
    """Feed reports one by one, first for half as long to get warm, and see when their notifications come."""
    acknowledged: dict[str, float] = {}
    came: list[tuple[str, float]] = []

    def publish(count: int) -> None:
        next_s = time.perf_counter()
        for _ in range(count):
            record = city.report()
            active.feed("reports", [record])
            acknowledged[str(record["reportId"])] = time.perf_counter()
            next_s += 1 / rate_per_s
            time.sleep(max(0.0, next_s - time.perf_counter()))
        active.settle()
        time.sleep(1.0)

    with listening(lambda report: came.append((report, time.perf_counter()))):
        publish(int(rate_per_s * seconds / 2))
        acknowledged.clear()
        publish(int(rate_per_s * seconds))
    return sorted(at_s - acknowledged[report] for report, at_s in came if report in acknowledged)
