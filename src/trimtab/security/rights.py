"""What one identity may do: permissions with its variables filled in, as a value that a broker decides by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import msgspec

from trimtab.language import Filter, Value
from trimtab.security.administration import covers_request
from trimtab.security.coverage import coverage, permitted_part

Mode: TypeAlias = Literal["refuse", "narrow"]
"""What becomes of a subscription or an advertisement that is permitted in part: it is refused, or narrowed to that."""

EVERYTHING: Final = Filter([])
"""Permits everything."""

MISSING_MAX_CHARS: Final = 400
"""What is missing is told at no greater length."""


class ChannelRule(msgspec.Struct, frozen=True):
    """A channel that may be subscribed to, with arguments that the filters match, if there are any."""

    name: str
    arguments: tuple[Filter, ...] | None = None


class Decision(msgspec.Struct, frozen=True):
    """The filter that is accepted, perhaps narrower than the one that was asked for; or the reason why none is."""

    accepted: Filter | None
    reason: str = ""
    is_narrowed: bool = False


class Rights(msgspec.Struct, frozen=True):
    """All that an identity may do.

    >>> mine = Filter.parse("class = 'REPORT' AND owner = 'ann'")
    >>> rights = Rights("ann", publish=(mine,), subscribe=(mine,))
    >>> rights.may_publish({"class": "REPORT", "owner": "ann"}), rights.may_publish({"class": "REPORT"})
    (True, False)
    >>> rights.subscription(Filter.parse("class = 'REPORT'")).reason
    "ann may not subscribe to this; what is missing: class = 'REPORT' AND owner <> 'ann'"
    """

    identity: str
    roles: tuple[str, ...] = ()
    publish: tuple[Filter, ...] = ()
    subscribe: tuple[Filter, ...] = ()
    channels: tuple[ChannelRule, ...] = ()
    feeds: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    admin: tuple[str, ...] = ()
    mode: Mode = "refuse"

    @property
    def publishes_everything(self) -> bool:
        """Whether publications need not be looked at."""
        return any(not each.constraints for each in self.publish)

    def may_publish(self, values: Mapping[str, Value]) -> bool:
        """Whether a publication is permitted."""
        return any(each.matches(values) for each in self.publish)

    def publication_objection(self, values: Mapping[str, Value]) -> str:
        """Why a publication is refused, empty if it is permitted."""
        return "" if self.may_publish(values) else f"{self.identity} may not publish this: no permission matches it"

    def advertisement(self, wanted: Filter) -> Decision:
        """Whether an advertisement is accepted, and with which filter."""
        return self._decide("publish", wanted, self.publish)

    def subscription(self, wanted: Filter) -> Decision:
        """Whether a subscription is accepted, and with which filter."""
        return self._decide("subscribe to", wanted, self.subscribe)

    def _decide(self, verb: str, wanted: Filter, permitted: tuple[Filter, ...]) -> Decision:
        found = coverage(wanted, permitted)
        if found.is_covered:
            return Decision(wanted)
        reason = f"{self.identity} may not {verb} this; what is missing: {found.missing[:MISSING_MAX_CHARS]}"
        if self.mode == "refuse":
            return Decision(None, reason)
        parts = permitted_part(wanted, permitted)
        if len(parts) == 1:
            return Decision(parts[0], reason, is_narrowed=True)
        if parts:
            told = "; ".join(part.to_sql() for part in parts)[:MISSING_MAX_CHARS]
            reason = f"{reason}; the permitted part is several filters, ask for each: {told}"
        return Decision(None, reason)

    def channel_objection(self, channel: str, arguments: Mapping[str, Value]) -> str:
        """Why a channel may not be subscribed to with these arguments, empty if it may."""
        rules = [rule for rule in self.channels if fits_name(rule.name, channel)]
        if any(rule.arguments is None or any(each.matches(arguments) for each in rule.arguments) for rule in rules):
            return ""
        what = "with these arguments" if rules else ""
        return f"{self.identity} may not subscribe to the channel {channel[:100]} {what}".rstrip()

    def may_use(self, kind: Literal["feeds", "datasets"], name: str) -> bool:
        """Whether a feed or a dataset of active data may be used.

        >>> Rights("ann", feeds=("Reports",)).may_use("feeds", "Shelters")
        False
        """
        return any(fits_name(pattern, name) for pattern in (self.feeds if kind == "feeds" else self.datasets))

    def may_request(self, request: str) -> bool:
        """Whether an administration request is permitted, by the name that it has on the wire, without the mark.

        >>> Rights("ops", admin=("read",)).may_request("status"), Rights("ops", admin=("read",)).may_request("move")
        (True, False)
        """
        return covers_request(self.admin, request)


def fits_name(pattern: str, name: str) -> bool:
    """Whether a name is the one of a permission, or begins as one that ends in *.

    >>> fits_name("Report*", "ReportsNear"), fits_name("Report", "Reports")
    (True, False)
    """
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


ALL: Final = Rights(
    "",
    publish=(EVERYTHING,),
    subscribe=(EVERYTHING,),
    channels=(ChannelRule("*"),),
    feeds=("*",),
    datasets=("*",),
    admin=("read", "change"),
)
"""What everybody may do where nothing is configured."""
