"""What each request of the service does: written down for users in docs/active-data.md."""

from __future__ import annotations

import math
import time
from typing import Any, Final

import msgspec

from trimtab.activedata.active import ActiveData
from trimtab.activedata.definitions.fields import Scalar, ValueMistake
from trimtab.activedata.errors import NotFoundError
from trimtab.activedata.service.status import status
from trimtab.activedata.storage.results import Result

NEWS_RESULTS_MAX_COUNT: Final = 500
NEWS_MAX_BYTES: Final = 256 * 1024
"""News bring so many results along, if they are not larger than this."""

PUSHED_TIMES: Final = 16
"""News of push channels bring so many times more."""


class WantedSubscription(msgspec.Struct, frozen=True):
    """A back-end subscription that a broker declares."""

    channel: str
    arguments: dict[str, Scalar] = {}


class BrokerDeclaration(msgspec.Struct, frozen=True):
    """All back-end subscriptions that a broker wants; those that it declared before and does not name end."""

    subscriptions: list[WantedSubscription] = []
    address: str = ""


class WantedResults(msgspec.Struct, frozen=True):
    """Results of a subscription that a broker fetches: those after a position, at most so many."""

    id: int
    after: int = 0
    limit: int = 1_000


class ManyWantedResults(msgspec.Struct, frozen=True):
    """Results of several subscriptions, fetched at once."""

    fetches: list[WantedResults]


class Request(msgspec.Struct, frozen=True):
    """A request: the names and options in its path, and its body."""

    names: dict[str, str]
    options: dict[str, str]
    body: bytes = b""

    def number(self, name: str, default: float) -> float:
        """An option that is a number."""
        text = self.options.get(name)
        try:
            number = default if text is None else float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise ValueMistake(f"{name} must be a number, and is {text!r}")
        return number


class Requests:
    """Answers requests from one ActiveData object; each may be called in any thread."""

    def __init__(self, active: ActiveData) -> None:
        self.active = active

    def status(self, request: Request) -> object:
        """What the process does."""
        return status(self.active)

    def executions(self, request: Request) -> object:
        """The last executions of channels with their path and plan, newest first."""
        limit = max(1, int(request.number("limit", 20)))
        return {"executions": self.active.executions()[::-1][:limit]}

    def statements(self, request: Request) -> object:
        """Run statements."""
        text = _body(request, dict[str, str]).get("text")
        if text is None:
            raise ValueMistake('expected {"text": "statements"}')
        return {"answers": self.active.run(text)}

    def feed(self, request: Request) -> object:
        """Take records into a feed."""
        return self.active.feed(request.names["feed"], request.body)

    def declare(self, request: Request) -> object:
        """A broker declares its whole set: what is new begins, what it declared before and is missing ends.

        Subscriptions that were made for a broker of that name by a statement are not the broker's own, and stay.
        """
        declared = _body(request, BrokerDeclaration)
        broker = self.active.add_broker(request.names["broker"], declared.address)
        catalog = self.active.catalog
        catalog.broker_seen(broker.id, time.time())
        answers = [self._made_or_refused(each, broker.name) for each in declared.subscriptions]
        kept = {each["id"] for each in answers if "id" in each}
        for missing in catalog.declared_ids(broker.id) - kept:
            self.active.unsubscribe(missing, broker.name)
        return {"subscriptions": answers}

    def subscribe(self, request: Request) -> object:
        """A broker wants one subscription more."""
        return self._made(_body(request, WantedSubscription), self.active.catalog.broker(request.names["broker"]).name)

    def unsubscribe(self, request: Request) -> object:
        """A broker does not want a subscription any more."""
        broker = self.active.catalog.broker(request.names["broker"])
        number = _whole(request.names["id"])
        if number not in self.active.catalog.subscription_ids(broker.id):
            raise NotFoundError(f"{broker.name} has no subscription {number}")
        self.active.unsubscribe(number, broker.name)
        return {}

    def news(self, request: Request) -> tuple[bool, object]:
        """What is newer than a position for a broker's subscriptions, and whether there is anything."""
        broker = self.active.catalog.broker(request.names["broker"])
        self.active.catalog.broker_seen(broker.id, time.time())
        after = int(request.number("after", 0))
        results = self.active.results_store
        position = results.last_position  # before who is asked for: what begins after that is told the next time
        found = results.newest(self.active.catalog.subscription_ids(broker.id), after)
        suspended = self.active.suspended_of(broker.id)
        answer = {
            "position": max(position, after),
            "subscriptions": {str(key): value for key, value in found.items()},
            "results": self._if_few(found, after),
            "counts": self.active.counts_of(list(found)),
            "suspended": suspended,
        }
        return bool(found) or len(suspended) > request.number("suspended", len(suspended)), answer

    def _if_few(self, found: dict[int, int], after: int) -> dict[str, list[dict[str, object]]]:
        """The results themselves, by subscription, where they are so few that to ask for them would take longer."""
        store = self.active.results_store
        times = PUSHED_TIMES if found and self.active.are_pushed(list(found)) else 1
        max_count = NEWS_RESULTS_MAX_COUNT * times
        if not found or len(found) > max_count or not store.is_in_memory(after):
            return {}
        fetched = store.fetch_many(list(found), after, max_count + 1)
        told = [each for each in fetched if each.position <= found[each.subscription]]
        if len(fetched) > max_count or sum(len(bytes(each.payload)) for each in told) > NEWS_MAX_BYTES * times:
            return {}
        few: dict[str, list[dict[str, object]]] = {}
        for each in told:
            few.setdefault(str(each.subscription), []).append(told_result(each))
        return few

    def results(self, request: Request) -> object:
        """Results of one subscription."""
        after, limit = int(request.number("after", 0)), int(request.number("limit", 1_000))
        return self._fetched(WantedResults(_whole(request.names["id"]), after, limit))

    def results_of_many(self, request: Request) -> object:
        """The results of several subscriptions; one that has ended has an error in place of them."""
        answers: list[object] = []
        for wanted in _body(request, ManyWantedResults).fetches:
            try:
                answers.append(self._fetched(wanted))
            except NotFoundError as error:
                answers.append({"error": str(error)})
        return {"answers": answers}

    def events(self, request: Request, after: int) -> list[Result]:
        """The next results of a subscription for its stream of events."""
        return self.active.results(_whole(request.names["id"]), after, NEWS_RESULTS_MAX_COUNT)

    def _made(self, wanted: WantedSubscription, broker: str) -> dict[str, object]:
        """A subscription with its number and the position after which its results come."""
        made = self.active.subscribe_many(wanted.channel, [wanted.arguments], broker, declared=True)[0]
        reason = self.active.suspended_reason(made.id)
        if reason is not None:
            raise ValueMistake(f"subscription {made.id} is suspended: {reason}")
        position = self.active.results_store.last_position
        return {"id": made.id, "position": position, "counts": self.active.counts_of([made.id])[str(made.id)]}

    def _made_or_refused(self, wanted: WantedSubscription, broker: str) -> dict[str, object]:
        """The same, or why it cannot be: one wrong subscription does not keep the others from being made."""
        try:
            return self._made(wanted, broker)
        except (ValueMistake, NotFoundError) as error:
            return {"error": str(error)}

    def _fetched(self, wanted: WantedResults) -> dict[str, object]:
        return {"results": [told_result(each) for each in self.active.results(wanted.id, wanted.after, wanted.limit)]}


def told_result(result: Result) -> dict[str, object]:
    """A result as the service tells it."""
    return {
        "position": result.position,
        "id": result.id,
        "values": result.payload,
        "executed_s": result.executed_us / 1e6,
    }


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise NotFoundError(f"there is no subscription {text!r}")
    return int(text)


def _body(request: Request, kind: Any) -> Any:
    try:
        return msgspec.json.decode(request.body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueMistake(f"the request's body: {error}") from None
