"""Settings of the coordination server's balancing."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

import msgspec

Placement: TypeAlias = Literal["nearest", "random", "round-robin", "least-loaded"]
"""Where a new subscriber goes."""

Balancing: TypeAlias = Literal["none", "ldm", "sdm", "gsh", "multistage", "groups"]
"""How subscribers are moved later."""

COORDINATOR_NAME: Final = "coordinator"
"""The broker of a coordinated network that leads the others."""

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

    gsh_cov: float = 0.05
    """Beyond this imbalance the policy `gsh` shuffles: nothing but a shuffle corrects what comes after a shuffle."""

    groups_cov: float = 0.003
    """Beyond this imbalance `groups` acts, and goes on until half of it is left."""

    group_load_ratio: float = 0.02
    """How much load a group has at most, as a share of a broker's mean: small enough to fit, large enough to share."""

    gather_ratio: float = 0.01
    """A subscriber is worth moving if the total load falls by more than this share of what it is sent."""

    def __post_init__(self) -> None:
        if not 0 <= self.migrate_cov <= self.shuffle_cov:
            raise ValueError(f"migrate_cov {self.migrate_cov} is not between 0 and shuffle_cov {self.shuffle_cov}")
        if not self.idle_load_bytes_per_s >= 0:
            raise ValueError(f"idle_load_bytes_per_s {self.idle_load_bytes_per_s} is negative")
        for name in ("gsh_cov", "groups_cov"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} {getattr(self, name)} is not between 0 and 1")
        if not 0 < self.group_load_ratio <= 1:
            raise ValueError(f"group_load_ratio {self.group_load_ratio} is not between 0 and 1")
        if not self.gather_ratio >= 0:
            raise ValueError(f"gather_ratio {self.gather_ratio} is negative")


class CoordinatorConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the coordination server.

    >>> CoordinatorConfig(round_every_s=0.0)
    Traceback (most recent call last):
    ...
    ValueError: round_every_s must be positive, and is 0.0
    """

    placement: Placement = "nearest"
    """Where a new subscriber goes."""
    policy: Balancing = "multistage"
    """How subscribers are moved later."""
    balancing: MultistageConfig = MultistageConfig()
    """When the load counts as uneven; the keys of `[policy.multistage]`."""

    round_every_s: float = 60.0
    """How often the load is looked at; a round that finds moves of the last one under way waits for them."""

    report_every_s: float = 10.0
    """How often brokers tell what has changed."""

    broker_lifetime_s: float = 35.0
    """A broker that has told nothing for so long counts as gone: three reports and a half."""

    moves_at_once_count: int = 500
    """Moves under way at the same time; each makes brokers on its path subscribe and unsubscribe."""

    move_within_s: float = 60.0
    """A move that has not ended by then is given up for the plan's sake; where the client is will be told anyway."""

    def __post_init__(self) -> None:
        for name in ("round_every_s", "report_every_s", "broker_lifetime_s", "moves_at_once_count", "move_within_s"):
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise ValueError(f"{name} must be positive, and is {value}")
        if self.broker_lifetime_s <= self.report_every_s:
            raise ValueError(
                f"broker_lifetime_s {self.broker_lifetime_s} is not longer than report_every_s {self.report_every_s}"
            )
