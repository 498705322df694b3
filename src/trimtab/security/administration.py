"""The table of requests that are made outside of a client's session, and the permission that each needs.

Reading and changing are apart. What is not in the table is allowed to nobody.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

Right: TypeAlias = Literal["read", "change", "connect", "broker"]
"""read, change: entries of `admin`; connect: whoever may connect; broker: brokers and processes that stand by."""

REQUESTS: Final[dict[str, Right]] = {
    "status": "read",
    "snapshot": "read",
    "link": "change",
    "move": "change",
    "replace": "change",
    "assist": "change",
    "policy": "change",
    "restart": "change",
    "drain": "change",
    "where": "connect",
    "place": "connect",
    "replica": "broker",
    "voice": "broker",
    "reach": "broker",
}
"""What each request needs, by its name on the wire without the question mark."""

ADMIN_ENTRIES: Final = ("read", "change", *(name for name, right in REQUESTS.items() if right in ("read", "change")))
"""What may stand in `admin`: whole classes, or single requests."""


def covers_request(entries: Iterable[str], request: str) -> bool:
    """Whether the entries of `admin` permit a request.

    >>> covers_request(["read", "move"], "snapshot"), covers_request(["read", "move"], "drain")
    (True, False)
    """
    right = REQUESTS.get(request)
    if right == "connect":
        return True
    return right in ("read", "change") and any(entry in (right, request) for entry in entries)
