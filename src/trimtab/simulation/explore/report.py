"""What led to a violation, one line an event: who did what, and which messages arrived where."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from trimtab.protocol.effects import Deliver, Moved, NotMoved
from trimtab.protocol.frames import Ack, Hello, Payload
from trimtab.protocol.messages import MoveIn, Publish
from trimtab.simulation.explore.nodes import Item, Left
from trimtab.simulation.explore.state import UP, Choice, State, World

_NAMES = ("id", "client", "stay", "version", "names", "sequence", "old_broker", "about", "reason")
"""The fields of messages that are told."""


def transcript(world: World, actions: Sequence[Choice]) -> list[str]:
    """The lines of a way through the states, from the beginning."""
    state = world.begin()
    lines: list[str] = []
    for number, action in enumerate(actions, start=1):
        after = world.step(state, action)
        who, what = _tell(world, state, action)
        told = [*_consequences(world), *(f"{each.kind}: {each.text}" for each in world.violations)]
        lines.append(f"{number:>4}  {who:<10} {what}" + (f"  => {'; '.join(told)}" if told else ""))
        state = after
    return lines


def _tell(world: World, state: State, action: Choice) -> tuple[str, str]:
    what, number, other = action
    match what:
        case "deliver":
            ends = world.pairs[number // 2]
            sender, receiver = ends if number % 2 == 0 else ends[::-1]
            items = "; ".join(_item(world.nodes.items[each]) for each in state.queues[number])
            return f"{sender} > {receiver}", items
        case "store":
            stored = ", ".join(_message(each) for _, each in state.disks[number].pending)
            return world.names[number], f"has {stored} on its disk"
        case "step":
            is_busy = world.names[number] in world.case.busy_brokers
            return world.names[number], f"processes {'what has arrived' if is_busy else 'a message'}"
        case "reconnect":
            client, broker = world.pairs[number]
            return client, f"connects to {broker}"
        case "start":
            config = world.config(world.names[number], state.deaths[number])
            found = ", ".join(_publication(each) for each in state.disks[number].stored)
            how = "a replica" if config.replica else "itself"
            return config.name, f"starts again as {how}" + (f" and finds {found} on its disk" if found else "")
        case "act":
            act = world.case.scripts[number][state.scripts[number]]
            return act.client, act.told()
        case "send":
            return world.names[number], f"sends what waits for {world.names[other]}"
        case "pass":
            return "", f"time passes until {world.next_time_s(state):g} s"
        case "kill":
            return world.names[number], "DIES" + _written(state, number, other) + _lost(world, state, number)


def _written(state: State, place: int, kept_count: int) -> str:
    """What a disk has of what it was writing."""
    pending = state.disks[place].pending
    return f", {kept_count} of {len(pending)} entries on its disk" if pending else ""


def _lost(world: World, state: State, place: int) -> str:
    name = world.names[place]
    under_way = [
        f"{' > '.join(ends if back == 0 else ends[::-1])} {'; '.join(_item(world.nodes.items[each]) for each in items)}"
        for number, ends in enumerate(world.pairs)
        if name in ends and state.connections[number] == UP
        for back in (0, 1)
        if (items := state.queues[2 * number + back])
    ]
    broker = world.nodes.copy(state.nodes[place])
    held = {
        peer.name: ", ".join(_message(each) for each in peer.queue) for peer in broker.peers.values() if len(peer.queue)
    }
    waiting = [f"for {peer} {messages}" for peer, messages in held.items()]
    parts = [("under way", under_way), ("in its queues", waiting)]
    return "".join(f", {label}: {' | '.join(each)}" for label, each in parts if each)


def _consequences(world: World) -> list[str]:
    """What applications see of a step."""
    told: list[str] = []
    for name, arguments in world.told:
        match name:
            case "delivered":
                client, deliver, _ = arguments
                assert isinstance(deliver, Deliver)
                told.append(f"{client} gets {deliver.publisher}:{deliver.sequence}")
            case "taken":
                told.append(f"{arguments[0]} is told that its publications up to {arguments[1]} are accepted")
            case "in_force":
                told.append(f"{arguments[0]} is in force")
            case "accepted":
                told.append(f"{arguments[0]}:{arguments[1]} is taken over")
            case "lapsed" if arguments[0]:
                told.append(f"the lease of {', '.join(arguments[0])} ends")
            case _:
                pass
    for effect in world.seen:
        match effect:
            case Moved(broker=broker):
                told.append(f"has moved to {broker}")
            case NotMoved(broker=broker, reason=reason):
                told.append(f"does not move to {broker}: {reason}")
            case _:
                pass
    return told


def _item(item: Item) -> str:
    match item:
        case Hello():
            replica = f", replica ({item.replica})" if item.replica else ""
            resumes = f", resumes {item.resumes}" if item.resumes else ""
            return f"hello {item.name} incarnation {item.session}{resumes}{replica}"
        case Left():
            return "leaves for good"
        case Ack():
            return f"ack {item.ack} done {item.done}" + (" asks" if item.asks else "")
        case Payload():
            messages = ", ".join(_message(message) for message in item.messages)
            return f"[{item.number}: {messages}] ack {item.ack} done {item.done}"


def _message(message: object) -> str:
    """A message for people.

    >>> from trimtab.protocol.messages import Confirmed
    >>> _message(Publish(publisher="p", sequence=1, values={"a": 1}, origin_s=0.0)), _message(Confirmed(id="p/a1"))
    ('p:1', 'Confirmed p/a1')
    """
    if isinstance(message, Publish):
        return _publication(message)
    if not isinstance(message, msgspec.Struct):
        return repr(message)
    if isinstance(message, MoveIn):
        moved = [each.id for each in message.subscriptions] + [each.id for each in message.advertisements]
        return f"MoveIn {message.stay} from {message.old_broker} {' '.join(moved)}".rstrip()
    parts = [_field(getattr(message, name)) for name in _NAMES if hasattr(message, name)]
    for name in ("advertisements", "subscriptions"):
        parts += [each if isinstance(each, str) else each.id for each in getattr(message, name, ())]
    if getattr(message, "is_lost", False):
        parts.append("(lost)")
    return " ".join([type(message).__name__, *(part for part in parts if part)])


def _field(value: object) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)


def _publication(message: Publish) -> str:
    return f"{message.publisher}:{message.sequence}"
