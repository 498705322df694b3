"""Bytes and frames: each frame is a length (four bytes, big endian) followed by its MessagePack form."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import isfinite
from typing import Any, Final

import msgspec

from trimtab.language import Filter, LanguageError, Value, limits
from trimtab.language.values import check_name, check_value
from trimtab.protocol.frames import Frame, Payload
from trimtab.protocol.messages import AnyMessage, Publish

FRAME_MAX_BYTES: Final = 2 * 1024 * 1024
"""A frame holds one message; the largest publication of the language fits in."""

CLIENT_FRAME_MAX_BYTES: Final = FRAME_MAX_BYTES - 4096
"""What clients may send: brokers pass it on with a few bytes more, which must still fit."""

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


_PAYLOAD_BEFORE_NUMBER: Final = b"\x84\xa5frame\xa1m\xa6number\xcf"
_PAYLOAD_MIDDLE: Final = b"\xa3ack"
_PAYLOAD_END: Final = b"\xa7message"
_PAYLOAD_START: Final = struct.Struct(f">I{len(_PAYLOAD_BEFORE_NUMBER)}sQ")
"""A payload is put together from its MessagePack pieces: a map of four, its keys in order, an eight-byte number."""


class FrameWriter:
    """Encodes frames for many connections; a publication that goes to several of them is encoded once.

    >>> from trimtab.protocol.messages import AnyMessage, Publish
    >>> writer = FrameWriter()
    >>> message = Publish(publisher="p", sequence=1, values={"a": 1}, origin_s=0.0)
    >>> [decode_frame(writer.encode(Payload(number, 0, message))[4:]).number for number in (1, 2)]
    [1, 2]
    """

    def __init__(self, kept_max_count: int = 4096) -> None:
        self._kept_max_count = kept_max_count
        self._encoded: dict[int, tuple[AnyMessage, bytes]] = {}
        """By identity; the message is kept with its bytes, so that no other can take its place in memory."""

    def encode(self, frame: Frame) -> bytes:
        """A frame with its length in front."""
        if not isinstance(frame, Payload) or not isinstance(frame.message, Publish):
            return encode_frame(frame)
        return b"".join(self.encode_new(frame.number, frame.ack, [frame.message]))

    def encode_new(self, first: int, ack: int, messages: Sequence[AnyMessage]) -> list[bytes]:
        """Payloads with consecutive numbers and one acknowledgement, in pieces to be joined.

        >>> from trimtab.protocol.messages import Unsubscribe
        >>> data = b"".join(FrameWriter().encode_new(7, 3, [Unsubscribe(id="s1"), Unsubscribe(id="s2")]))
        >>> [(frame.number, frame.ack, frame.message.id) for frame in FrameReader().feed(data)]
        [(7, 3, 's1'), (8, 3, 's2')]
        """
        encoded, pack = self._encoded, _PAYLOAD_START.pack
        middle = _PAYLOAD_MIDDLE + _encoder.encode(ack) + _PAYLOAD_END
        around = len(_PAYLOAD_BEFORE_NUMBER) + 8 + len(middle)
        pieces: list[bytes] = []
        for number, message in enumerate(messages, first):
            known = encoded.get(id(message))
            if known is None:
                known = (message, _encoder.encode(message))
                if type(message) is Publish:
                    if len(encoded) >= self._kept_max_count:
                        encoded.clear()
                    encoded[id(message)] = known
            body = known[1]
            pieces += (pack(around + len(body), _PAYLOAD_BEFORE_NUMBER, number), middle, body)
        return pieces


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
        self.frame_max_bytes = frame_max_bytes

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[Frame]:
        """Take in bytes and give out every frame that is complete."""
        self._buffer += data
        position = 0
        try:
            while len(self._buffer) - position >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(self._buffer, position)
                if length > self.frame_max_bytes:
                    raise ProtocolError(f"a frame of {length:,} bytes; at most {self.frame_max_bytes:,} are allowed")
                end = position + _LENGTH.size + length
                if len(self._buffer) < end:
                    return
                body = bytes(self._buffer[position + _LENGTH.size : end])
                position = end
                yield decode_frame(body)
        finally:
            del self._buffer[:position]
