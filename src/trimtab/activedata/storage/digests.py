"""Fingerprints of records, of all rows of an Arrow table at once.

A fingerprint of 64 bits depends on the values alone, not on how an array is laid out, so that the driver and the tasks
of Spark find the same. The seed is drawn for each dataset and kept secret: nobody can make records that collide.
The mixing is that of XXH64 (rounds of eight bytes), done for column after column with numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

Words: TypeAlias = "np.ndarray[Any, np.dtype[np.uint64]]"

_P1: Final = 0x9E3779B185EBCA87
_P2: Final = 0xC2B2AE3D27D4EB4F
_P3: Final = 0x165667B19E3779F9


def fingerprints(table: pa.Table, columns: Sequence[str], seed: int) -> Words:
    """One number of 64 bits for each row, made of the values of some columns.

    >>> import pyarrow as pa
    >>> table = pa.table({"a": ["x", "y", "x"], "b": [1, 1, 1]})
    >>> first, second, third = fingerprints(table, ["a", "b"], 7)
    >>> first == third, first == second
    (np.True_, np.False_)
    """
    import numpy as np

    found = np.full(table.num_rows, seed, dtype=np.uint64)
    for name in columns:
        column = table[name]
        array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        found = _mixed_array(found, array)
    return _avalanche(found)


def _mixed(found: Words, words: Words | np.uint64) -> Words:
    import numpy as np

    found = found ^ (words * np.uint64(_P2))
    return ((found << np.uint64(31)) | (found >> np.uint64(33))) * np.uint64(_P1)


def _avalanche(found: Words) -> Words:
    import numpy as np

    found = (found ^ (found >> np.uint64(33))) * np.uint64(_P2)
    found = (found ^ (found >> np.uint64(29))) * np.uint64(_P3)
    return found ^ (found >> np.uint64(32))


def _mixed_array(found: Words, array: pa.Array) -> Words:
    import numpy as np
    import pyarrow as pa

    missing = array.is_null().to_numpy(zero_copy_only=False).astype(np.uint64) if array.null_count else np.uint64(0)
    found = _mixed(found, missing)
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _mixed_texts(found, array)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _mixed_lists(found, array)
    if pa.types.is_struct(kind):
        for child in array.flatten():
            found = _mixed_array(found, child)
        return found
    for words in _fixed_words(array):
        found = _mixed(found, words)
    return found


def _fixed_words(array: pa.Array) -> list[Words]:
    """Values of a fixed width as words; what has no value counts as 0."""
    import numpy as np
    import pyarrow as pa

    kind = array.type
    if pa.types.is_decimal(kind):
        data = np.frombuffer(array.buffers()[1], dtype=np.uint64).reshape(-1, 2)
        data = data[array.offset : array.offset + len(array)]
        if array.null_count:
            data = np.where(array.is_null().to_numpy(zero_copy_only=False)[:, None], np.uint64(0), data)
        return [data[:, 0], data[:, 1]]
    if pa.types.is_timestamp(kind):
        array = array.cast(pa.int64())
    elif pa.types.is_date32(kind):
        array = array.cast(pa.int32())
    elif pa.types.is_boolean(kind):
        array = array.cast(pa.int8())
    if array.null_count:
        array = array.fill_null(0)
    values = array.to_numpy(zero_copy_only=False)
    if values.dtype.kind == "f":
        return [(values.astype(np.float64) + 0.0).view(np.uint64)]
    return [values.astype(np.int64).view(np.uint64)]


def _mixed_texts(found: Words, array: pa.Array) -> Words:
    """Mix in the lengths of texts and then eight bytes of each at a time."""
    import numpy as np
    import pyarrow as pa

    offset_type = np.int64 if pa.types.is_large_string(array.type) else np.int32
    _, offsets_buffer, data_buffer = array.buffers()
    if not len(array):
        return found
    offsets = np.frombuffer(offsets_buffer, dtype=offset_type)[array.offset : array.offset + len(array) + 1]
    starts = offsets[:-1].astype(np.int64)
    lengths = offsets[1:].astype(np.int64) - starts
    if array.null_count:
        lengths = np.where(array.is_null().to_numpy(zero_copy_only=False), 0, lengths)
    found = _mixed(found, lengths.astype(np.uint64))
    longest = int(lengths.max())
    if not longest:
        return found
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.zeros(last - first + 8, dtype=np.uint8)
    data[: last - first] = np.frombuffer(data_buffer, dtype=np.uint8)[first:last]
    anywhere: Any = np.ndarray(shape=(last - first + 1,), dtype="<u8", buffer=data, strides=(1,))
    masks = np.array([(1 << (8 * count)) - 1 for count in range(9)], dtype=np.uint64)
    starts = starts - first
    rows = None  # all, as long as all have so many bytes
    for begin in range(0, longest, 8):
        left = lengths - begin if rows is None else lengths[rows] - begin
        if int(left.min()) <= 0:
            going_on = left > 0
            rows = np.flatnonzero(going_on) if rows is None else rows[going_on]
            left = left[going_on]
        words = anywhere[(starts if rows is None else starts[rows]) + begin]
        if int(left.min()) < 8:
            words = words & masks[np.minimum(left, 8)]
        if rows is None:
            found = _mixed(found, words)
        else:
            found[rows] = _mixed(found[rows], words)
    return found


def _mixed_lists(found: Words, array: pa.Array) -> Words:
    """Mix in the lengths of lists, and the sums of what their elements and their places make."""
    import numpy as np
    import pyarrow.compute as pc

    lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    found = _mixed(found, lengths.astype(np.uint64))
    elements = array.flatten()
    if not len(elements):
        return found
    ends = np.cumsum(lengths)
    places = np.arange(len(elements), dtype=np.int64) - np.repeat(ends - lengths, lengths)
    each = _mixed_array(_mixed(np.full(len(elements), _P3, dtype=np.uint64), places.astype(np.uint64)), elements)
    sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(_avalanche(each), dtype=np.uint64)])
    return _mixed(found, sums[ends] - sums[ends - lengths])
