"""Settings of the coordination server's balancing."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import msgspec

Placement: TypeAlias = Literal["nearest", "random", "round-robin", "least-loaded"]
"""Where a new subscriber goes."""

Balancing: TypeAlias = Literal["none", "ldm", "sdm", "gsh", "multistage", "groups"]
"""How subscribers are moved later."""

PLACEMENTS: tuple[str, ...] = get_args(Placement)
BALANCINGS: tuple[str, ...] = get_args(Balancing)


class MultistageConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When the load counts as uneven, and what is done about it.

    >>> MultistageConfig(migrate_cov=0.6)
    Traceback (most recent call last):
    ...
    ValueError: migrate_cov 0.6 is not between 0 and shuffle_cov 0.5
    """

    migrate_cov: float = 0.15
    """Beyond this imbalance subscribers migrate (alpha); the paper's value."""

    shuffle_cov: float = 0.5
    """Beyond this imbalance all subscribers are distributed anew (gamma); the paper's value."""

    idle_load_bytes_per_s: float = 300.0
    """Up to this mean load of a broker nothing is done (beta); the value of the paper's simulation."""

    migration: Literal["ldm", "sdm"] = "ldm"
    """Which migration the middle stage of `multistage` uses."""

    groups_cov: float = 0.01
    """Beyond this imbalance `groups` acts; it goes on until a tenth is left, for bulk moves are worth finishing."""

    group_load_ratio: float = 0.02
    """How much load a group has at most, as a share of a broker's mean: small enough to fit, large enough to share."""

    gather_ratio: float = 0.02
    """A subscriber is worth moving if the total load falls by more than this share of what it is sent."""

    def __post_init__(self) -> None:
        if not 0 <= self.migrate_cov <= self.shuffle_cov:
            raise ValueError(f"migrate_cov {self.migrate_cov} is not between 0 and shuffle_cov {self.shuffle_cov}")
        if not self.idle_load_bytes_per_s >= 0:
            raise ValueError(f"idle_load_bytes_per_s {self.idle_load_bytes_per_s} is negative")
        if not 0 <= self.groups_cov < 1:
            raise ValueError(f"groups_cov {self.groups_cov} is not between 0 and 1")
        if not 0 < self.group_load_ratio <= 1:
            raise ValueError(f"group_load_ratio {self.group_load_ratio} is not between 0 and 1")
        if not self.gather_ratio >= 0:
            raise ValueError(f"gather_ratio {self.gather_ratio} is negative")
