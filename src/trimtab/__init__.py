"""Trimtab: a content-based publish/subscribe network that keeps itself level.

>>> from trimtab import Filter, Matcher, Publication
>>> matcher = Matcher()
>>> matcher.add("alice", Filter.parse("[class,eq,'STOCK'],[volume,>,300000]"))
>>> set(matcher.match(Publication.parse("[class,'STOCK'],[volume,300001]")))
{'alice'}
"""

from typing import TYPE_CHECKING, Any

from trimtab.language import (
    ContradictionError,
    Filter,
    LanguageError,
    LimitError,
    ParseError,
    Predicate,
    Publication,
    Relation,
    any_value,
    between,
    contains,
    eq,
    ge,
    gt,
    le,
    like,
    lt,
    neq,
    not_like,
    prefix,
    present,
    relate,
    suffix,
)
from trimtab.matching import CoveringSet, Matcher

if TYPE_CHECKING:
    from trimtab.activedata.active import ActiveData
    from trimtab.network.admin.local_network import Network
    from trimtab.network.client.blocking_client import BlockingClient
    from trimtab.network.client.client import Client
    from trimtab.protocol.effects import GapNotice

__version__ = "0.1.0"

__all__ = [
    "ActiveData",
    "BlockingClient",
    "Client",
    "ContradictionError",
    "CoveringSet",
    "Filter",
    "GapNotice",
    "LanguageError",
    "LimitError",
    "Matcher",
    "Network",
    "ParseError",
    "Predicate",
    "Publication",
    "Relation",
    "__version__",
    "any_value",
    "between",
    "contains",
    "eq",
    "ge",
    "gt",
    "le",
    "like",
    "lt",
    "neq",
    "not_like",
    "prefix",
    "present",
    "relate",
    "suffix",
]

_LATE_MODULES = {
    "ActiveData": "activedata.active",
    "BlockingClient": "network.client.blocking_client",
    "Client": "network.client.client",
    "GapNotice": "protocol.effects",
    "Network": "network.admin.local_network",
}


def __dir__() -> list[str]:
    """All public names, also those that are loaded later."""
    return __all__


def __getattr__(name: str) -> Any:
    """Load the network world and active data when first asked for: filters need neither event loop nor Spark."""
    module = _LATE_MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"trimtab.{module}"), name)
