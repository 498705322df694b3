"""What papers and we ourselves claim, and how a report finds out whether it holds, as TOML.

paper = "The title"

[[claim]]
where = "Figure 5a"
says = "the message rate falls, in percent"
scenario = "relocation-clustered"
metric = "message_rate_mean_per_s"
of = {policy = "grape-load100", spread = "1"}           settings of the runs that are meant, "" if not made;
                                                        in a study {value = "60"}
cut_against = {policy = "none", spread = "1"}           percent less than these on the same seed; or relation_to
theirs = 85.0
holds = ">= 85"                                         said of the mean over the seeds

[[figure]]
title = "Message rate"
scenario = "relocation-clustered"
x = "spread"                                            a setting; there is a line for each policy
metric = "message_rate_mean_per_s"
"""

from __future__ import annotations

import re
import tomllib
from typing import Any, Final, Literal

import msgspec

from trimtab.simulation.scenarios.documents import ScenarioError, bundled_texts

VALUE: Final = "value"
"""Among settings: the value of a study's parameter."""

_BOUND: Final = re.compile(r"(<=|>=|<|>)\s*(-?[0-9.]+(?:e-?[0-9]+)?)")


class Claim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[claim]]`."""

    where: str
    """The place in the paper."""
    says: str
    """What is claimed."""
    scenario: str
    """The scenario whose runs are looked at."""
    metric: str
    """A number of their summaries, by its path (`details.balance.converged_at_s`), or a study's metric."""
    of: dict[str, str]
    """Settings of the runs that are meant."""
    cut_against: dict[str, str] | None = None
    """Percent less than the runs with these settings, on the same seed."""
    relation_to: dict[str, str] | None = None
    """In relation to the runs with these settings."""
    over: Literal["avg", "min", "max"] = "avg"
    """What is taken where several runs of a seed are meant, as all points of a study."""
    theirs: float | None = None
    """What the paper has."""
    holds: str
    """What must be true of ours, as "<= 0.5"."""
    near: str = ""
    """A metric that says, where the claim's own has no value because something was never reached, how near it came."""

    def __post_init__(self) -> None:
        if _BOUND.fullmatch(self.holds.strip()) is None:
            raise ValueError(f"holds: expected something like '<= 0.5', not {self.holds!r}")
        if self.cut_against is not None and self.relation_to is not None:
            raise ValueError("either cut_against or relation_to, not both")

    def is_kept_by(self, value: float) -> bool:
        """Whether a value is within the bound.

        >>> claim = Claim(where="", says="", scenario="s", metric="m", of={}, holds=">= 85")
        >>> claim.is_kept_by(85.0), claim.is_kept_by(84.9)
        (True, False)
        """
        found = _BOUND.fullmatch(self.holds.strip())
        assert found is not None
        limit = float(found[2])
        return {"<=": value <= limit, ">=": value >= limit, "<": value < limit, ">": value > limit}[found[1]]


class FigureWanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[[figure]]`: a metric over a setting, a line for each policy, or for each value of another setting."""

    title: str
    """Over the figure."""
    scenario: str
    """The scenario whose runs are drawn."""
    x: str
    """The setting along the axis."""
    metric: str
    """What is drawn."""
    by: str | None = None
    """The setting that has a line for each value, in place of the policy."""
    of: dict[str, str] = {}
    """Settings of the runs that are meant."""


class Claims(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of claims."""

    paper: str
    """Whose claims they are."""
    studies: list[str] = []
    """Studies of the simulator whose figures belong to the paper."""
    claim: list[Claim] = []
    """The claims."""
    figure: list[FigureWanted] = []
    """Figures that go with them."""


def bundled_claims() -> list[Claims]:
    """Those of the papers.

    >>> all(claims.claim for claims in bundled_claims())
    True
    """
    return [parse_claims(text, name) for name, text in bundled_texts("trimtab.lab", "claims").items()]


def parse_claims(text: str, source: str) -> Claims:
    """Read a file of claims."""
    try:
        data: Any = tomllib.loads(text)
        return msgspec.convert(data, Claims)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ScenarioError(f"{source}: {str(error).replace('`$.', '`')}") from None
