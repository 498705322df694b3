"""What may be asked of a broker without a greeting, and what answers it."""

from __future__ import annotations

from typing import Final, TypeAlias

from trimtab.protocol.frames import (
    AssistReply,
    AssistRequest,
    DrainReply,
    DrainRequest,
    LinkReply,
    LinkRequest,
    MoveReply,
    MoveRequest,
    PlaceReply,
    PlaceRequest,
    PolicyReply,
    PolicyRequest,
    ReachReply,
    ReachRequest,
    ReplaceReply,
    ReplaceRequest,
    ReplicaReply,
    ReplicaRequest,
    RestartReply,
    RestartRequest,
    StatusReply,
    StatusRequest,
    VoiceReply,
    VoiceRequest,
    WhereReply,
    WhereRequest,
)
from trimtab.protocol.snapshots import Snapshot, SnapshotRequest

SingleRequest: TypeAlias = (
    LinkRequest
    | PlaceRequest
    | MoveRequest
    | ReplaceRequest
    | AssistRequest
    | ReplicaRequest
    | WhereRequest
    | PolicyRequest
    | RestartRequest
    | VoiceRequest
    | ReachRequest
    | DrainRequest
)
"""Those that are answered once, when it is known what came of them."""

Request: TypeAlias = SingleRequest | StatusRequest | SnapshotRequest
Reply: TypeAlias = (
    LinkReply
    | PlaceReply
    | MoveReply
    | ReplaceReply
    | AssistReply
    | ReplicaReply
    | WhereReply
    | PolicyReply
    | RestartReply
    | VoiceReply
    | ReachReply
    | DrainReply
    | StatusReply
    | Snapshot
)

REPLIES: Final[dict[type[Request], type[Reply]]] = {
    StatusRequest: StatusReply,
    LinkRequest: LinkReply,
    PlaceRequest: PlaceReply,
    MoveRequest: MoveReply,
    ReplaceRequest: ReplaceReply,
    AssistRequest: AssistReply,
    ReplicaRequest: ReplicaReply,
    WhereRequest: WhereReply,
    SnapshotRequest: Snapshot,
    PolicyRequest: PolicyReply,
    RestartRequest: RestartReply,
    VoiceRequest: VoiceReply,
    ReachRequest: ReachReply,
    DrainRequest: DrainReply,
}
"""What answers each; a snapshot comes in parts."""
