"""What happens to a broker that mediates, and what it asks its agent to do."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from trimtab.policies.padres.decisions import LoadIndex, NoAction, Status
from trimtab.policies.padres.detection import Trigger
from trimtab.policies.padres.messages import AnyControl, Offer
from trimtab.policies.padres.offload import OffloadPlan

# Events


class Triggered(msgspec.Struct, frozen=True):
    """Detection wants a session."""

    trigger: Trigger


class Detected(msgspec.Struct, frozen=True):
    """Detection found this status: OK, N/A or STABILIZING, or BUSY because a session is under way."""

    status: Status


class ControlReceived(msgspec.Struct, frozen=True):
    """A control message has come."""

    message: AnyControl


class Planned(msgspec.Struct, frozen=True):
    """The sample is taken and the plan made, or there is none."""

    session: str
    plan: OffloadPlan | NoAction


class ClientMoved(msgspec.Struct, frozen=True):
    """A client's move is complete; both brokers are told, each by its own network."""

    client: str
    session: str


class ClientStayed(msgspec.Struct, frozen=True):
    """A client that was to move will not: it has left, or its move was undone."""

    client: str
    session: str


class Wake(msgspec.Struct, frozen=True):
    """The time of `wake_at_s` has come."""


MediationEvent: TypeAlias = Triggered | Detected | ControlReceived | Planned | ClientMoved | ClientStayed | Wake

# Actions


class Send(msgspec.Struct, frozen=True):
    """Say this to a broker."""

    to: str
    message: AnyControl


class SendOffer(msgspec.Struct, frozen=True):
    """Say OK to a broker (`OffloadReply`), with our resources and covering set as they are now."""

    to: str
    session: str


class StartSampling(msgspec.Struct, frozen=True):
    """Take a sample against the other broker's filters and make a plan; then tell `Planned`."""

    session: str
    partner: str
    action: LoadIndex
    offer: Offer


class StopSampling(msgspec.Struct, frozen=True):
    """The sample is not wanted any more."""

    session: str


class MoveClient(msgspec.Struct, frozen=True):
    """Tell a client to move; then tell `ClientMoved` or `ClientStayed`."""

    client: str
    to_broker: str
    session: str


class StatusChanged(msgspec.Struct, frozen=True):
    """The broker's status from now on, to be told to the others."""

    status: Status


class Refused(msgspec.Struct, frozen=True):
    """A broker that was asked will not take clients: for the story."""

    broker: str
    reason: str


class NobodyAgreed(msgspec.Struct, frozen=True):
    """There is nobody left to ask: for the story."""


class CallHead(msgspec.Struct, frozen=True):
    """Overloaded, and nobody in the cluster can help: tell the cluster-head."""


class SessionEnded(msgspec.Struct, frozen=True, kw_only=True):
    """A session is over: for the story, and for stabilising if clients moved."""

    session: str
    partner: str
    gave: bool
    action: LoadIndex
    moved: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    reason: str
    fruitless: bool = False
    """A plan was made, and nothing was found to move."""


MediationAction: TypeAlias = (
    Send
    | SendOffer
    | StartSampling
    | StopSampling
    | MoveClient
    | StatusChanged
    | Refused
    | NobodyAgreed
    | CallHead
    | SessionEnded
)
