"""Thesis, section 4.2.3, Tables 4.2 to 4.5: balancing the output must not undo the balance of the input.

B1 gave B2 a heavy subscription, so that both have an input ratio of 0.5, but B2 has an output ratio of 0.7 against 0.3.
"""

from __future__ import annotations

from trimtab import Filter
from trimtab.load.estimation import BrokerResources
from trimtab.load.profiles import ClientProfile, Sample
from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.padres.decisions import NoAction, Reason
from trimtab.policies.padres.offload import OffloadPlan
from trimtab.policies.padres.offload_output import plan_output_offload

HEAVY = Filter.parse("[class,eq,'STOCK']")
CONFIG = PadresConfig()


def broker(output_ratio: float) -> BrokerResources:
    """Ten publications a second and 50 ms to match each, however many subscriptions there are."""
    return BrokerResources(
        input_rate_per_s=10.0,
        input_rate_bytes_per_s=1_000.0,
        matching_delay_s=0.05,
        matching_delay_slope_s=0.0,
        subscription_count=100,
        output_rate_bytes_per_s=output_ratio * 3_000,
        bandwidth_bytes_per_s=3_000.0,
    )


def sample(accepted_bits: int) -> Sample:
    """The heavy subscriber is sent six of ten publications, 600 bytes a second: a fifth of the bandwidth."""
    return Sample(
        publications=tuple(("p", number) for number in range(10)),
        sizes_bytes=(100,) * 10,
        duration_s=1.0,
        input_rate_per_s=10.0,
        clients=(
            ClientProfile("heavy", (HEAVY,), 0b0000111111),
            ClientProfile("light", (Filter.parse("[class,eq,'SPORTS']"),), 0b1111000000),
        ),
        accepted_bits=accepted_bits,
    )


def test_table_4_5_the_unfavourable_case_is_refused() -> None:
    """Giving the heavy one back would make the input ratios 0.8 and 0.2 again."""
    only_heavy = Sample(
        **{**{name: getattr(sample(0), name) for name in Sample.__struct_fields__}, "clients": sample(0).clients[:1]}
    )
    found = plan_output_offload(broker(0.7), broker(0.3), only_heavy, [], CONFIG)
    assert isinstance(found, NoAction)
    assert found.reason == Reason.NOTHING_HELPS


def test_table_4_4_the_favourable_case_is_taken() -> None:
    """What B1 receives anyway does not raise its input."""
    found = plan_output_offload(broker(0.7), broker(0.3), sample(0b0000111111), [HEAVY], CONFIG)
    assert isinstance(found, OffloadPlan)
    assert [move.client for move in found.moves] == ["heavy"]
    assert abs(found.difference_after) < 0.005
    assert found.theirs_after.input_utilization_ratio == 0.5


def test_an_output_overloaded_broker_may_disturb_the_input() -> None:
    found = plan_output_offload(broker(1.0), broker(0.3), sample(0), [], CONFIG)
    assert isinstance(found, OffloadPlan)
    assert found.ours_after.output_utilization_ratio < CONFIG.lower_overload_ratio
