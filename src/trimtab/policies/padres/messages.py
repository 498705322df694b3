"""What brokers say to each other in order to balance, as frozen values that travel as ordinary publications.

Source: A. Cheung, dynamic load balancing in distributed content-based publish/subscribe (thesis, 2006), section 3.4:
class LB_CONTROL, addressed by the attribute brokerID.

The whole message is one attribute, `body`, in JSON; its kind, session and sender stand beside it as attributes of
their own, so that people and filters can see them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from trimtab.language import Filter, LanguageError, Value
from trimtab.load.estimation import BrokerResources
from trimtab.policies.padres.decisions import LoadIndex, Status
from trimtab.protocol.codec import decode_filter, encode_filter

LB_CONTROL: Final = "LB_CONTROL"

OFFER_FILTERS_MAX_CHARS: Final = 512 * 1024
"""The filters of an offer in JSON: half of the longest string that a publication may carry."""


def life_of(began_s: float) -> str:
    """Tells the lives of a broker apart, so that one that was started again gives its sessions new names: what is said
    of a session that nobody remembers must not be taken for another one.

    >>> life_of(1.5)
    '1500'
    """
    return str(round(began_s * 1_000))


class Offer(msgspec.Struct, frozen=True):
    """What the offloading broker must know of the accepting one (the list in section 3.4.1)."""

    resources: BrokerResources
    filters: tuple[Filter, ...]
    """The covering set of its routing table: what these filters match, it receives anyway."""


class ControlMessage(msgspec.Struct, frozen=True, tag_field="kind", kw_only=True, omit_defaults=True):
    """Anything that is said about a session; the broker that asked for the session has named it."""

    session: str
    sender: str


class OffloadRequest(ControlMessage, frozen=True, tag="request"):
    """Would you take load from me?"""

    action: LoadIndex


class OffloadReply(ControlMessage, frozen=True, tag="reply"):
    """Yes, with what you must know of me (status OK), or no, with the status that forbids it."""

    status: Status
    offer: Offer | None = None


class OffloadStart(ControlMessage, frozen=True, tag="start"):
    """These clients are told to move to you; said again with fewer when some of them will not come."""

    clients: tuple[str, ...]


class OffloadDone(ControlMessage, frozen=True, tag="done"):
    """These clients have arrived, and I await no more."""

    arrived: tuple[str, ...]


class OffloadCancel(ControlMessage, frozen=True, tag="cancel"):
    """The session is over for me."""

    reason: str
    fruitless: bool = False
    """A plan was made, and nothing was found to move."""


class CallForHelp(ControlMessage, frozen=True, tag="help"):
    """An overloaded broker tells its cluster-head that nobody in the cluster can take its load."""


class GlobalRequest(ControlMessage, frozen=True, tag="global-request"):
    """Would your cluster balance with mine?"""

    cluster: str
    edge_brokers: tuple[str, ...]


class GlobalReply(ControlMessage, frozen=True, tag="global-reply"):
    """Yes (status OK), or no, with the status that forbids it."""

    cluster: str
    status: Status
    edge_brokers: tuple[str, ...] = ()


class GlobalDone(ControlMessage, frozen=True, tag="global-done"):
    """The session between our clusters is over."""

    reason: str
    saturated: bool = False
    """Your cluster could not take what an overloaded broker of mine has to give."""


class ExchangeStart(ControlMessage, frozen=True, tag="exchange-start"):
    """A cluster-head tells its edge-brokers to listen to the other cluster's load information."""

    cluster: str


class ExchangeEnd(ControlMessage, frozen=True, tag="exchange-end"):
    """A cluster-head tells its edge-brokers to stop listening, and to forget the other cluster's brokers."""

    cluster: str


class ClientTold(msgspec.Struct, frozen=True, array_like=True):
    """A client and what it subscribes to."""

    client: str
    filters: tuple[Filter, ...]


class ProfileRequest(ControlMessage, frozen=True, tag="profile-request"):
    """A cluster-head that plans for many brokers asks one of them for its load and its clients."""

    heard: int = 0
    """The number of the last answer that came; 0 if there was none."""


class ProfileReply(ControlMessage, frozen=True, tag="profile"):
    """The load, and the clients that came or left since the last answer; or no, with the status that forbids it."""

    status: Status
    resources: BrokerResources | None = None
    number: int = 0
    since: int = 0
    """The answer that this one adds to; 0 if it tells of all clients."""
    came: tuple[ClientTold, ...] = ()
    left: tuple[str, ...] = ()


class MoveOrder(ControlMessage, frozen=True, tag="move-order"):
    """Send these of your clients to these brokers."""

    moves: tuple[tuple[str, str], ...]


class MoveReport(ControlMessage, frozen=True, tag="move-report"):
    """All that were to move have moved, but for those that stay."""

    stayed: tuple[str, ...] = ()


AnyControl: TypeAlias = (
    OffloadRequest
    | OffloadReply
    | OffloadStart
    | OffloadDone
    | OffloadCancel
    | CallForHelp
    | GlobalRequest
    | GlobalReply
    | GlobalDone
    | ExchangeStart
    | ExchangeEnd
    | ProfileRequest
    | ProfileReply
    | MoveOrder
    | MoveReport
)
"""Every control message, for decoding."""


_encoder: Final = msgspec.json.Encoder(enc_hook=encode_filter)
_decoder: Final[msgspec.json.Decoder[AnyControl]] = msgspec.json.Decoder(AnyControl, dec_hook=decode_filter)


def control_filter(broker: str) -> Filter:
    """What a broker subscribes to in order to hear what is said to it.

    >>> control_filter("B1") == Filter.parse("[class,eq,'LB_CONTROL'],[brokerID,eq,'B1']")
    True
    """
    return Filter.where({"class": LB_CONTROL, "brokerID": broker})


def control_to_values(message: AnyControl, to: str) -> dict[str, Value]:
    """A message to a broker as the attributes of a publication.

    >>> values = control_to_values(OffloadRequest(session="B1/1", sender="B1", action=LoadIndex.INPUT), to="B2")
    >>> values["brokerID"], values["kind"], values["session"]
    ('B2', 'request', 'B1/1')
    >>> control_from_values(values)
    OffloadRequest(action=<LoadIndex.INPUT: 'input'>, session='B1/1', sender='B1')
    """
    return {
        "class": LB_CONTROL,
        "brokerID": to,
        "sender": message.sender,
        "session": message.session,
        "kind": str(message.__struct_config__.tag),
        "body": _encoder.encode(message).decode(),
    }


def control_from_values(values: Mapping[str, Value]) -> AnyControl:
    """Read a message; raises a ValueError that says what is wrong with the attributes."""
    if values.get("class") != LB_CONTROL:
        raise ValueError(f"not a control message: the class is {values.get('class')!r}, not {LB_CONTROL!r}")
    body = values.get("body")
    if not isinstance(body, str):
        raise ValueError("not a control message: no body")
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, LanguageError) as error:
        raise ValueError(f"not a control message: {error}") from None
