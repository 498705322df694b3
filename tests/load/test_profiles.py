"""PRESS samples: windows, groups of clients, and what a set of clients would bring."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab import Filter
from trimtab.load.profiles import (
    ClientProfile,
    Sample,
    Sampler,
    on_common_window,
    only_once,
    total_size_bytes,
    union,
)
from trimtab.load.sample_text import sample_from_text, sample_to_text

STOCK = Filter.parse("[class,eq,'STOCK']")
SPORTS = Filter.parse("[class,eq,'SPORTS']")


def test_sampling_ends_with_enough_publications() -> None:
    sampler = Sampler(sample_count=2, timeout_s=30.0, now_s=0.0)
    sampler.saw(("p", 1), 300, [])
    assert not sampler.is_over(1.0)
    sampler.saw(("p", 2), 300, [])
    assert sampler.is_over(1.0)


def test_sampling_ends_when_its_time_is_over() -> None:
    sampler = Sampler(sample_count=2, timeout_s=30.0, now_s=5.0)
    assert not sampler.is_over(34.9)
    assert sampler.is_over(35.0)
    assert sampler.ends_at_s == 35.0


def test_publications_beyond_the_window_and_repeated_ones_are_left_out() -> None:
    sampler = Sampler(sample_count=2, timeout_s=30.0, now_s=0.0)
    for publication in (("p", 1), ("p", 1), ("q", 1), ("q", 2)):
        sampler.saw(publication, 300, ["alice"])
    sample = sampler.sample({"alice": (STOCK,)}, now_s=2.0)
    assert sample.publications == (("p", 1), ("q", 1))
    assert sample.clients[0].bits == 0b11
    assert sample.input_rate_per_s == 1.0


def test_clients_that_left_meanwhile_are_not_in_the_sample_and_new_ones_have_no_bits() -> None:
    sampler = Sampler(sample_count=2, timeout_s=30.0, now_s=0.0)
    sampler.saw(("p", 1), 300, ["gone", "here"])
    sample = sampler.sample({"here": (STOCK,), "new": (STOCK,)}, now_s=1.0)
    assert sample.clients == (ClientProfile("here", (STOCK,), 1), ClientProfile("new", (STOCK,), 0))


def test_a_sample_without_publications_has_no_rates() -> None:
    sample = Sampler(sample_count=2, timeout_s=30.0, now_s=0.0).sample({"alice": (STOCK,)}, now_s=30.0)
    assert (sample.input_rate_per_s, sample.rate_per_s(0), sample.bandwidth_bytes_per_s(0)) == (0.0, 0.0, 0.0)
    assert sample.mean_size_bytes == 0.0


def test_a_sample_of_a_moment_has_the_rate_that_the_broker_measured() -> None:
    sampler = Sampler(sample_count=1, timeout_s=30.0, now_s=0.0)
    sampler.saw(("p", 1), 300, ["alice"])
    assert sampler.sample({}, now_s=0.0).input_rate_per_s == 0.0
    assert sampler.sample({}, now_s=0.0, input_rate_per_s=12.0).input_rate_per_s == 12.0


def test_a_sampler_needs_a_publication_and_time() -> None:
    with pytest.raises(ValueError, match="at least one publication"):
        Sampler(sample_count=0, timeout_s=30.0, now_s=0.0)


def test_the_bandwidth_of_a_client_is_that_of_the_publications_it_is_sent() -> None:
    sample = Sample((("p", 1), ("p", 2)), (100, 300), 1.0, 2.0, ())
    assert [sample.bandwidth_bytes_per_s(bits) for bits in (0b00, 0b01, 0b10, 0b11)] == [0.0, 100.0, 300.0, 400.0]
    assert sample.mean_size_bytes == 200.0


def test_clients_with_the_same_filters_have_one_interest_whatever_their_order() -> None:
    sample = Sample(
        (("p", 1), ("p", 2)),
        (300, 300),
        1.0,
        2.0,
        (
            ClientProfile("a", (STOCK, SPORTS), 0b11),
            ClientProfile("b", (STOCK,), 0b01),
            ClientProfile("c", (SPORTS, STOCK), 0b11),
        ),
    )
    assert [(each.clients, each.bits) for each in sample.interests()] == [(("a", "c"), 0b11), (("b",), 0b01)]
    assert sample.interests()[0].subscriptions_per_client_count == 2
    assert str(sample.interests()[0]) == "[class,eq,'STOCK'] or [class,eq,'SPORTS']"


@given(st.lists(st.integers(0, 255), max_size=8))
def test_what_is_in_exactly_one_set(vectors: list[int]) -> None:
    expected = sum(1 << bit for bit in range(8) if sum(vector >> bit & 1 for vector in vectors) == 1)
    assert only_once(vectors) == expected


@given(st.lists(st.integers(1, 1000), max_size=70), st.integers(0))
def test_sizes_add_up(sizes: list[int], bits: int) -> None:
    bits &= (1 << len(sizes)) - 1
    assert total_size_bytes(bits, sizes) == sum(size for place, size in enumerate(sizes) if bits >> place & 1)


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    publications = draw(st.lists(st.tuples(st.sampled_from("pqr"), st.integers(1, 40)), max_size=70, unique=True))
    vectors = st.integers(0, (1 << len(publications)) - 1)
    return Sample(
        publications=tuple(publications),
        sizes_bytes=tuple(100 * sequence + len(publisher) for publisher, sequence in publications),
        duration_s=draw(st.floats(0.5, 30.0)),
        input_rate_per_s=draw(st.floats(0.0, 100.0)),
        clients=tuple(
            ClientProfile(f"c{number}", (draw(st.sampled_from([STOCK, SPORTS])),), draw(vectors))
            for number in range(draw(st.integers(0, 4)))
        ),
        accepted_bits=draw(vectors),
        fixed_bits=draw(vectors),
    )


@given(samples())
def test_samples_travel_as_text(sample: Sample) -> None:
    assert sample_from_text(sample_to_text(sample)) == sample


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "not a sample"),
        ('[[["p",1]],[],1.0,1.0,[],"0","0"]', "1 publications, but 0 sizes"),
        ('[[["p",1]],[300],1.0,1.0,[],"2","0"]', "bits beyond its 1 publications"),
        ('[[["p",1]],[300],1.0,1.0,[],"-1","0"]', "bits beyond its 1 publications"),
    ],
)
def test_a_text_that_is_no_sample_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        sample_from_text(text)


@given(st.lists(samples(), min_size=1, max_size=4))
def test_on_a_common_window_every_client_has_the_same_publications_as_before(several: list[Sample]) -> None:
    def seen(sample: Sample, bits: int) -> set[tuple[str, int]]:
        return {publication for place, publication in enumerate(sample.publications) if bits >> place & 1}

    common = on_common_window(several)
    assert {sample.publications for sample in common} == {common[0].publications}
    assert set(common[0].publications) == {each for sample in several for each in sample.publications}
    for before, after in zip(several, common, strict=True):
        assert seen(before, before.accepted_bits) == seen(after, after.accepted_bits)
        assert seen(before, before.fixed_bits) == seen(after, after.fixed_bits)
        for one, other in zip(before.clients, after.clients, strict=True):
            assert seen(before, one.bits) == seen(after, other.bits)


@given(samples())
def test_a_set_of_clients_adds_what_none_of_them_shares_with_the_accepting_broker(sample: Sample) -> None:
    together = union(client.bits for client in sample.clients)
    fresh = [
        place
        for place in range(sample.sample_count)
        if not sample.accepted_bits >> place & 1 and any(client.bits >> place & 1 for client in sample.clients)
    ]
    expected = sample.input_rate_per_s * len(fresh) / sample.sample_count if sample.sample_count else 0.0
    assert sample.additional_rate_per_s(together) == pytest.approx(expected)
