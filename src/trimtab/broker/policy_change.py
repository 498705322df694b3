"""Agents that take over from others while their broker works: the policy of a running broker changes.

The former agents do nothing more, and what they announced and asked for ends. Clients that they asked to move answer as
before. The numbering of filters goes on, because the end of an old advertisement stands behind publications on its way
and must not meet a new one of the same id.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trimtab.broker.agents import Agents
from trimtab.broker.peers import Peer
from trimtab.policies.api import Agent

if TYPE_CHECKING:
    from trimtab.broker.core import Broker


def succeed(broker: Broker, former: Agents | None, agents: Sequence[Agent], now_s: float) -> Agents | None:
    """Let the former agents go and these come; None if there were none and none come."""
    if former is not None:
        former.retire()
        for name in former.inboxes:
            del broker.peers[name]
            broker.interests.end_all_from(name, now_s)
    elif not agents:
        return None
    coming = Agents(broker, agents, former)
    for name, inbox in coming.inboxes.items():
        broker.peers[name] = Peer(name, "agent", broker.config.session, inbox, sys.maxsize)
    return coming
