"""Tags of traced publications: what a publication that is traced carries, and what others do not.

A publication's `cause` is empty unless somebody wants to know where it goes. The publisher's first broker fills it in
for the few that are traced: `trace/pop/BROKER`, or with GRAPE the trace session `trace/grape/BROKER/PUBLISHER/FIRST`,
FIRST being the sequence number of the session's first publication.
"""

from __future__ import annotations

from typing import Final

TRACE_MARK: Final = "trace/"
"""What the cause of a traced publication begins with; only brokers give such causes."""


def pop_tag(broker: str) -> str:
    """The tag that POP gives at the publisher's first broker.

    >>> pop_tag("B1")
    'trace/pop/B1'
    """
    return f"{TRACE_MARK}pop/{broker}"


def session_tag(broker: str, publisher: str, first_sequence: int) -> str:
    """The name of a trace session of GRAPE (section 4.1: its suffix is where the bit vector begins).

    >>> session_tag("B1", "P", 212)
    'trace/grape/B1/P/212'
    """
    return f"{TRACE_MARK}grape/{broker}/{publisher}/{first_sequence}"


def first_sequence_of(session: str) -> int | None:
    """Where the bit vector of a session begins; None if this is no session's name.

    >>> first_sequence_of("trace/grape/B1/P/212"), first_sequence_of("trace/pop/B1")
    (212, None)
    """
    suffix = session.rpartition("/")[2]
    is_session = session.startswith(f"{TRACE_MARK}grape/") and suffix.isascii() and suffix.isdigit()
    return int(suffix) if is_session else None
