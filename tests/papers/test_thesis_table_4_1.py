"""Thesis, section 4.1.1: Table 4.1 and equations 4.1 to 4.6, from the publications to the additional rates."""

from __future__ import annotations

import pytest

from trimtab import Filter, Matcher, Publication
from trimtab.load.profiles import Sample, Sampler, and_not, union

PUBLICATIONS = [
    "[class,'STOCK'],[volume,0]",
    "[class,'STOCK'],[volume,10]",
    "[class,'STOCK'],[volume,20]",
    "[class,'SPORTS'],[type,'racing']",
    "[class,'STOCK'],[volume,100]",
    "[class,'STOCK'],[volume,500]",
]
CANDIDATES = {
    "[class,eq,'STOCK']": "110111",
    "[class,eq,'STOCK'],[volume,>,15]": "110100",
    "[class,eq,'STOCK'],[volume,>,150]": "100000",
    "[class,eq,'SPORTS']": "001000",
}
ACCEPTING = {
    "[class,eq,'STOCK'],[volume,>,50]": "110000",
    "[class,eq,'STOCK'],[volume,<,5]": "000001",
    "[class,eq,'MOVIES']": "000000",
}


def sampled(texts: list[str], accepting: list[str]) -> Sample:
    """Two seconds in which the six publications arrive: three a second, as in equation 4.2."""
    ours, theirs = Matcher(), Matcher()
    for text in texts:
        ours.add(text, Filter.parse(text))
    for text in accepting:
        theirs.add(text, Filter.parse(text))
    sampler = Sampler(sample_count=6, timeout_s=30.0, now_s=10.0)
    for number, text in enumerate(PUBLICATIONS, 1):
        publication = Publication.parse(text)
        clients = [str(key) for key in ours.match(publication)]
        sampler.saw(("p", number), 300, clients, accepted=bool(theirs.match(publication)))
    assert sampler.is_over(12.0)
    return sampler.sample({text: (Filter.parse(text),) for text in texts}, now_s=12.0)


def bits(sample: Sample) -> dict[str, str]:
    return {client.client: f"{client.bits:06b}" for client in sample.clients}


def test_the_bit_vectors_of_the_candidates() -> None:
    assert bits(sampled(list(CANDIDATES), [])) == CANDIDATES


def test_the_bit_vectors_of_the_accepting_brokers_covering_set() -> None:
    assert bits(sampled(list(ACCEPTING), [])) == ACCEPTING


def test_the_covering_sets_vector_is_the_union() -> None:
    assert f"{sampled([], list(ACCEPTING)).accepted_bits:06b}" == "110001"
    assert union(int(text, 2) for text in ACCEPTING.values()) == 0b110001


def test_the_rate_of_a_subscription() -> None:
    sample = sampled(list(CANDIDATES), list(ACCEPTING))
    assert sample.input_rate_per_s == 3.0
    assert sample.rate_per_s(sample.clients[0].bits) == 2.5


def test_the_additional_rate_at_the_accepting_broker() -> None:
    sample = sampled(list(CANDIDATES), list(ACCEPTING))
    assert f"{and_not(sample.clients[0].bits, sample.accepted_bits):06b}" == "000110"
    assert [sample.additional_rate_per_s(client.bits) for client in sample.clients] == [1.0, 0.5, 0.0, 0.5]


def test_the_covering_set_grows_by_what_was_given() -> None:
    sample = sampled(list(CANDIDATES), list(ACCEPTING))
    assert f"{union([sample.clients[0].bits, sample.accepted_bits]):06b}" == "110111"


def test_ten_thousand_subscribers_need_a_megabyte_at_most_for_a_hundred_samples() -> None:
    """The thesis counts 100 bits each; a Python integer of 100 bits takes 40 bytes."""
    sampler = Sampler(sample_count=100, timeout_s=30.0, now_s=0.0)
    clients = [f"c{number}" for number in range(10_000)]
    for number in range(100):
        sampler.saw(("p", number), 300, clients)
    sample = sampler.sample(dict.fromkeys(clients, ()), now_s=1.0)
    assert sum(client.bits.__sizeof__() for client in sample.clients) == pytest.approx(400_000, rel=0.2)
