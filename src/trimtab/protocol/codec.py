"""Bytes and frames: each frame is a length (four bytes, big endian) followed by its MessagePack form."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache
from math import isfinite
from typing import Any, Final

import msgspec

from trimtab.language import Filter, LanguageError, Value, limits
from trimtab.language.values import check_name, check_value
from trimtab.protocol.frames import Frame, Payload
from trimtab.protocol.messages import Publish

FRAME_MAX_BYTES: Final = 2 * 1024 * 1024
"""A frame holds one message; the largest publication of the language fits in."""

_LENGTH: Final = struct.Struct(">I")


class ProtocolError(ValueError):
    """Bytes that are not a frame of this protocol; the message says what is wrong with them."""


def _encode_other(value: Any) -> Any:
    if isinstance(value, Filter):
        return value.to_data()
    raise NotImplementedError(f"{type(value).__name__} does not travel")


def _decode_other(wanted: type, value: Any) -> Any:
    if wanted is Filter:
        return Filter.from_data(value)
    raise NotImplementedError(f"{wanted.__name__} does not travel")


_encoder: Final = msgspec.msgpack.Encoder(enc_hook=_encode_other)
_decoder: Final[msgspec.msgpack.Decoder[Frame]] = msgspec.msgpack.Decoder(Frame, dec_hook=_decode_other)


def encode_frame(frame: Frame) -> bytes:
    """A frame with its length in front.

    >>> from trimtab.protocol.frames import Ack
    >>> decode_frame(encode_frame(Ack(7))[4:])
    Ack(ack=7, gap=False)
    """
    body = _encoder.encode(frame)
    if len(body) > FRAME_MAX_BYTES:
        raise ProtocolError(f"a frame of {len(body):,} bytes; at most {FRAME_MAX_BYTES:,} are allowed")
    return _LENGTH.pack(len(body)) + body


def decode_frame(body: bytes | memoryview) -> Frame:
    """Read a frame without its length; raises `ProtocolError` if it is none, or if what it says breaks the language."""
    try:
        frame = _decoder.decode(body)
        if isinstance(frame, Payload) and isinstance(frame.message, Publish):
            _check_values(frame.message.values)
    except (msgspec.DecodeError, LanguageError, RecursionError, UnicodeError) as error:
        raise ProtocolError(f"not a frame: {error}") from None
    return frame


_known_name: Final = lru_cache(maxsize=4096)(check_name)
"""Publications of one kind use the same names; each is looked at once."""


def _check_values(values: dict[str, Value]) -> None:
    """Refuse what MessagePack can say but the language cannot."""
    if len(values) > limits.ATTRIBUTES_MAX_COUNT:
        raise LanguageError(f"a publication with {len(values):,} attributes; at most {limits.ATTRIBUTES_MAX_COUNT:,}")
    for name, value in values.items():
        _known_name(name)
        if isinstance(value, str):
            if len(value) > limits.STRING_MAX_CHARS:
                check_value(value)
        elif value > limits.INTEGER_MAX or not isfinite(value):
            check_value(value)


class _SplicedPayload(msgspec.Struct, frozen=True, tag_field="frame", tag="m"):
    """A payload whose message has its bytes already."""

    number: int
    ack: int
    message: msgspec.Raw


class FrameWriter:
    """Encodes frames for many connections; a publication that goes to several of them is encoded once.

    >>> from trimtab.protocol.messages import Publish
    >>> writer = FrameWriter()
    >>> message = Publish(publisher="p", sequence=1, values={"a": 1}, origin_s=0.0)
    >>> [writer.encode(Payload(number, 0, message)) == encode_frame(Payload(number, 0, message)) for number in (1, 2)]
    [True, True]
    """

    def __init__(self, kept_max_count: int = 4096) -> None:
        self._kept_max_count = kept_max_count
        self._encoded: dict[int, tuple[Publish, msgspec.Raw]] = {}
        """By identity; the message is kept with its bytes, so that no other can take its place in memory."""

    def encode(self, frame: Frame) -> bytes:
        """A frame with its length in front."""
        if not isinstance(frame, Payload) or not isinstance(frame.message, Publish):
            return encode_frame(frame)
        known = self._encoded.get(id(frame.message))
        if known is None:
            if len(self._encoded) >= self._kept_max_count:
                self._encoded.clear()
            known = (frame.message, msgspec.Raw(_encoder.encode(frame.message)))
            self._encoded[id(frame.message)] = known
        body = _encoder.encode(_SplicedPayload(frame.number, frame.ack, known[1]))
        if len(body) > FRAME_MAX_BYTES:
            raise ProtocolError(f"a frame of {len(body):,} bytes; at most {FRAME_MAX_BYTES:,} are allowed")
        return _LENGTH.pack(len(body)) + body


class FrameReader:
    """Cuts a stream of bytes into frames.

    >>> from trimtab.protocol.frames import Ack
    >>> reader = FrameReader()
    >>> data = encode_frame(Ack(1)) + encode_frame(Ack(2))
    >>> list(reader.feed(data[:5])), [frame.ack for frame in reader.feed(data[5:])]
    ([], [1, 2])
    """

    def __init__(self, frame_max_bytes: int = FRAME_MAX_BYTES) -> None:
        self._buffer = bytearray()
        self._frame_max_bytes = frame_max_bytes

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[Frame]:
        """Take in bytes and give out every frame that is complete."""
        self._buffer += data
        position = 0
        try:
            while len(self._buffer) - position >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(self._buffer, position)
                if length > self._frame_max_bytes:
                    raise ProtocolError(f"a frame of {length:,} bytes; at most {self._frame_max_bytes:,} are allowed")
                end = position + _LENGTH.size + length
                if len(self._buffer) < end:
                    return
                body = bytes(self._buffer[position + _LENGTH.size : end])
                position = end
                yield decode_frame(body)
        finally:
            del self._buffer[:position]
