"""Samples as text, so that they can travel as one attribute of a publication.

Bit sets become hexadecimal numbers, since they may be longer than the integers of the wire; filters become their JSON
form.
"""

from __future__ import annotations

from typing import Any

import msgspec

from trimtab.language import Filter
from trimtab.load.profiles import ClientProfile, Sample


class _ClientForm(msgspec.Struct, array_like=True):
    client: str
    filters: list[Any]
    bits: str


class _SampleForm(msgspec.Struct, array_like=True):
    publications: list[tuple[str, int]]
    sizes_bytes: list[int]
    duration_s: float
    input_rate_per_s: float
    clients: list[_ClientForm]
    accepted_bits: str
    fixed_bits: str


def sample_to_text(sample: Sample) -> str:
    """A sample as JSON text.

    >>> stock = Filter.parse("[class,eq,'STOCK']")
    >>> sample = Sample((("p", 1),), (300,), 1.0, 1.0, (ClientProfile("alice", (stock,), 1),), accepted_bits=1)
    >>> sample_from_text(sample_to_text(sample)) == sample
    True
    """
    form = _SampleForm(
        list(sample.publications),
        list(sample.sizes_bytes),
        sample.duration_s,
        sample.input_rate_per_s,
        [_ClientForm(each.client, [f.to_data() for f in each.filters], f"{each.bits:x}") for each in sample.clients],
        f"{sample.accepted_bits:x}",
        f"{sample.fixed_bits:x}",
    )
    return msgspec.json.encode(form).decode()


def sample_from_text(text: str) -> Sample:
    """Read a sample; raises a ValueError that says what is wrong with the text."""
    try:
        form = msgspec.json.decode(text, type=_SampleForm)
    except msgspec.DecodeError as error:
        raise ValueError(f"not a sample: {error}") from None
    count = len(form.publications)
    if len(form.sizes_bytes) != count:
        raise ValueError(f"not a sample: {count} publications, but {len(form.sizes_bytes)} sizes")
    return Sample(
        publications=tuple(form.publications),
        sizes_bytes=tuple(form.sizes_bytes),
        duration_s=form.duration_s,
        input_rate_per_s=form.input_rate_per_s,
        clients=tuple(
            ClientProfile(each.client, tuple(map(Filter.from_data, each.filters)), _bits(each.bits, count))
            for each in form.clients
        ),
        accepted_bits=_bits(form.accepted_bits, count),
        fixed_bits=_bits(form.fixed_bits, count),
    )


def _bits(text: str, count: int) -> int:
    bits = int(text, 16)
    if bits < 0 or bits.bit_length() > count:
        raise ValueError(f"not a sample: bits beyond its {count} publications")
    return bits
