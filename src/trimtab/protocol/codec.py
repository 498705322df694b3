"""Bytes and frames: each frame is a length (four bytes, big endian) followed by its MessagePack form.

Messages travel many to a frame: `[number, ack, done, credit, [message, ...]]`. The bytes of a publication are the same
for everybody it goes to, so they are made once, or kept as they came, and a frame is put together by joining them.
Other frames are maps, and so are other messages.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from math import isfinite
from typing import Annotated, Any, Final

import msgspec

from trimtab.language import Filter, LanguageError, Value, limits
from trimtab.language.string_sets import shared_budget
from trimtab.language.values import check_name, check_value
from trimtab.protocol.frames import BATCH_MAX_COUNT, Frame, MapFrame, Payload, Sendable
from trimtab.protocol.messages import AnyMessage, ControlPublish, MapMessage, Publish, SubscribeChannel

FRAME_MAX_BYTES: Final = 2 * 1024 * 1024
"""The largest publication of the language fits in, alone."""

CLIENT_FRAME_MAX_BYTES: Final = FRAME_MAX_BYTES - 4096
"""What clients may send: brokers pass it on with a few bytes more, which must still fit."""

BATCH_BYTES: Final = 256 * 1024
"""A frame with several messages has no more than this, so that nobody waits long for the first of them."""

NAMES_KNOWN_MAX_COUNT: Final = 4_096
"""Names of attributes that need not be looked at again; publications of one kind use the same."""

_LENGTH: Final = struct.Struct(">I")
_HEAD: Final = struct.Struct(">IBBQBQBQBQBI")
"""Length, an array of five, four integers of eight bytes, an array of messages."""

_SURE_TO_FIT_BYTES: Final = min(limits.STRING_MAX_CHARS, 2 * limits.ATTRIBUTES_MAX_COUNT)
"""A publication that is no longer has no text that is too long and not too many attributes."""

_PAYLOAD_BYTE: Final = 0x95
_PUBLICATION_BYTE: Final = 0x98
"""The first bytes of a payload (an array of five) and of a publication (an array of eight)."""


class ProtocolError(ValueError):
    """Bytes that are not a frame of this protocol; the message says what is wrong with them."""


def encode_filter(value: Any) -> Any:
    """What msgspec is to write for a filter, the only value of ours that it does not know."""
    if isinstance(value, Filter):
        return value.to_data()
    raise NotImplementedError(f"{type(value).__name__} does not travel")


def decode_filter(wanted: type, value: Any) -> Any:
    """The filter that msgspec has read the data of."""
    if wanted is Filter:
        return Filter.from_data(value)
    raise NotImplementedError(f"{wanted.__name__} does not travel")


_Batch = tuple[int, int, int, int, Annotated[list[msgspec.Raw], msgspec.Meta(max_length=BATCH_MAX_COUNT)]]
_Unchecked = tuple[str, str, int, dict[str, str | int | float | bool], float, str, int, int]

_encode: Final = msgspec.msgpack.Encoder(enc_hook=encode_filter).encode
_map_frames: Final[msgspec.msgpack.Decoder[MapFrame]] = msgspec.msgpack.Decoder(MapFrame, dec_hook=decode_filter)
_map_messages: Final[msgspec.msgpack.Decoder[MapMessage]] = msgspec.msgpack.Decoder(MapMessage, dec_hook=decode_filter)
_decode_batch: Final = msgspec.msgpack.Decoder(_Batch).decode
_decode_publication: Final = msgspec.msgpack.Decoder(Publish).decode

decode_publication: Final = _decode_publication
"""A publication from the bytes that it is passed on as."""
_decode_unchecked: Final = msgspec.msgpack.Decoder(_Unchecked).decode
_set: Final = msgspec.structs.force_setattr


# ---- encoding ----


def encode_frame(frame: Frame) -> bytes:
    """A frame with its length in front; a payload that is too long for one frame becomes several.

    >>> from trimtab.protocol.frames import Ack
    >>> decode_frame(encode_frame(Ack(7))[4:]).ack
    7
    """
    if type(frame) is Payload:
        return _encode_payload(frame)
    return _with_length(_encode(frame))


def encode_message(message: Sendable) -> bytes:
    """One message, as it stands in a frame."""
    if type(message) is bytes:
        return message
    if type(message) is Publish:
        return message.wire or _encode(message.fields())
    return _encode(message)


def _encode_payload(frame: Payload) -> bytes:
    messages = frame.messages
    try:
        body = b"".join(messages)  # type: ignore[arg-type]
    except TypeError:
        encoded = [encode_message(message) for message in messages]
        body = b"".join(encoded)
    else:
        encoded = messages  # type: ignore[assignment]
    if len(body) <= BATCH_BYTES:
        return _head(frame, frame.number, len(encoded), len(body)) + body
    parts: list[bytes] = []
    start, size = 0, 0
    for place, each in enumerate(encoded):
        if size and size + len(each) > BATCH_BYTES:
            parts += (_head(frame, frame.number + start, place - start, size), *encoded[start:place])
            start, size = place, 0
        size += len(each)
    parts += (_head(frame, frame.number + start, len(encoded) - start, size), *encoded[start:])
    return b"".join(parts)


def _head(frame: Payload, number: int, count: int, size_bytes: int) -> bytes:
    length = _HEAD.size - _LENGTH.size + size_bytes
    if length > FRAME_MAX_BYTES:
        raise ProtocolError(f"a frame of {length:,} bytes; at most {FRAME_MAX_BYTES:,} are allowed")
    return _HEAD.pack(
        length, _PAYLOAD_BYTE, 0xCF, number, 0xCF, frame.ack, 0xCF, frame.done, 0xCF, frame.credit, 0xDD, count
    )


def _with_length(body: bytes) -> bytes:
    if len(body) > FRAME_MAX_BYTES:
        raise ProtocolError(f"a frame of {len(body):,} bytes; at most {FRAME_MAX_BYTES:,} are allowed")
    return _LENGTH.pack(len(body)) + body


# ---- decoding ----


def decode_frame(body: bytes | memoryview) -> Frame:
    """Read a frame without its length; raises `ProtocolError` if it is none, or if what it says breaks the language."""
    try:
        if body and body[0] == _PAYLOAD_BYTE:
            number, ack, done, credit, messages = _decode_batch(body)
            with shared_budget(limits.MESSAGE_MAX_STEPS):
                return Payload(number, ack, [decode_message(bytes(each)) for each in messages], done, credit)
        with shared_budget(limits.MESSAGE_MAX_STEPS):
            return _map_frames.decode(body)
    except (msgspec.DecodeError, LanguageError, RecursionError, UnicodeError) as error:
        raise ProtocolError(f"not a frame: {error}") from None


def decode_message(body: bytes) -> AnyMessage:
    """One message, as it stands in a frame."""
    if body[0] != _PUBLICATION_BYTE:
        other = _map_messages.decode(body)
        if type(other) is ControlPublish:
            _check_values(other.values)
        elif type(other) is SubscribeChannel:
            _check_values(other.arguments)
        return other
    try:
        message = _decode_publication(body)
    except msgspec.ValidationError:
        _check_values(_decode_unchecked(body)[3])  # the language's own words, if it is the values
        raise
    values = message.values
    if not values.keys() <= _known_names or len(body) > _SURE_TO_FIT_BYTES:
        _check_values(values)
        _know_names(values)
    _set(message, "wire", body)
    return message


_known_names: Final[set[str]] = set()


def _know_names(values: dict[str, Any]) -> None:
    if len(_known_names) + len(values) <= NAMES_KNOWN_MAX_COUNT:
        _known_names.update(values)


def _check_values(values: dict[str, Value]) -> None:
    """Refuse what MessagePack can say but the language cannot."""
    if len(values) > limits.ATTRIBUTES_MAX_COUNT:
        raise LanguageError(f"a publication with {len(values):,} attributes; at most {limits.ATTRIBUTES_MAX_COUNT:,}")
    for name, value in values.items():
        check_name(name)
        if isinstance(value, str):
            if len(value) > limits.STRING_MAX_CHARS:
                check_value(value)
        elif value > limits.INTEGER_MAX or not isfinite(value):
            check_value(value)


class FrameReader:
    """Cuts a stream of bytes into frames.

    >>> from trimtab.protocol.frames import Ack
    >>> reader = FrameReader()
    >>> data = encode_frame(Ack(1)) + encode_frame(Ack(2))
    >>> list(reader.feed(data[:5])), [frame.ack for frame in reader.feed(data[5:])]
    ([], [1, 2])
    """

    __slots__ = ("_rest", "_wanted_bytes", "frame_max_bytes")

    def __init__(self, frame_max_bytes: int = FRAME_MAX_BYTES) -> None:
        self._rest: bytearray | None = None
        self._wanted_bytes = 0
        """What the rest must be to go on with it."""
        self.frame_max_bytes = frame_max_bytes

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Take in bytes and give out every frame that is complete."""
        if self._rest is not None:
            self._rest += data
            if len(self._rest) < self._wanted_bytes:
                return
            data, self._rest = bytes(self._rest), None
        position, size = 0, len(data)
        self._wanted_bytes = _LENGTH.size
        try:
            while size - position >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(data, position)
                if length > self.frame_max_bytes:
                    raise ProtocolError(f"a frame of {length:,} bytes; at most {self.frame_max_bytes:,} are allowed")
                end = position + _LENGTH.size + length
                if size < end:
                    self._wanted_bytes = end - position
                    return
                body = data[position + _LENGTH.size : end]
                position = end
                yield decode_frame(body)
        finally:
            if position < size:
                self._rest = bytearray(data[position:])
