"""A broker whose neighbours and clients say what a text tells, in the words of `tests.transcripts`."""

from __future__ import annotations

from typing import get_args

from tests.transcripts import OtherEnd, read, tell
from trimtab.broker.config import Acknowledges, BrokerConfig
from trimtab.broker.core import Broker
from trimtab.broker.replication.config import ReplicationConfig
from trimtab.protocol.events import Connected, Disconnected, Event, LinkRemoved, Received, Step, Stored, Wake
from trimtab.protocol.frames import Ack, Hello, Payload
from trimtab.protocol.messages import VERSION, AnyMessage, Guard, GuardAll


class ToldBroker:
    """A broker and the other ends of its links.

    >>> told = ToldBroker()
    >>> told.happens("a received broker B1 with neighbours B2")
    []
    >>> told.happens("s greets with stay 1")
    []
    >>> told.happens("from s: Subscribe s/s1, number 1")
    ['to s: Confirmed s/s1, number 1']
    """

    def __init__(self) -> None:
        self.broker = Broker(BrokerConfig("B"))
        self.peers: dict[str, OtherEnd] = {}
        self.guarded_version = 0
        self.reported_done: dict[str, int] = {}
        """How much of what each peer has said is done, as far as it was told."""
        self.now_s = 0.0
        self.lines: list[str] = []
        """What has come of what happens."""

    def happens(self, text: str) -> list[str]:
        """Something happens; what comes of it."""
        match text.split():
            case ["a", level, "broker", name, "with", "neighbours", *neighbours]:
                self.begin(name, level, "1", ())
                for neighbour in neighbours:
                    self.happens(f"{neighbour} tells all")
                    self.happens(f"{neighbours[0]} guards everything")
                self.lines.clear()
            case ["a", "new", level, "broker", name, "with", "neighbours", *neighbours]:
                self.begin(name, level, "2", tuple(neighbours))
            case ["a", "subscriber" | "publisher" as kind, client]:
                self.happens(f"{client} greets with stay 1")
                filter = f"Subscribe {client}/s1" if kind == "subscriber" else f"Advertise {client}/a1"
                self.happens(f"from {client}: {filter}, number 1")
                for neighbour in self.broker.tables.neighbours:
                    self.happens(f"{neighbour} guards everything")
            case ["from", peer, *_]:
                self.says(peer.removesuffix(":"), text.partition(": ")[2])
                self.steps()
            case [neighbour, "tells", "all"]:
                self.happens(f"{neighbour} greets")
                for said in (f"Members {neighbour}", "ClientRecords", "Synced", "SubscriptionsTold"):
                    self.happens(f"from {neighbour}: {said}")
                return self.happens(f"from {neighbour}: Swept {neighbour}")
            case [guardian, "guards", "everything"]:
                return self.happens(f"from {guardian}: Guarded version {self.guarded_version}")
            case ["the", "disk", "has", "everything", "up", "to", number]:
                self.handle(Stored(int(number)))
            case [client, "greets", "with", "stay", stay, *burned]:
                self.greet(client, stay=int(stay.strip(",")), burned=int(burned[1]) if burned else 0)
            case [broker, "greets"]:
                self.greet(broker)
            case [peer, "greets,", "started", "again", *stay]:
                self.peers[peer] = OtherEnd(self.peers[peer].incarnation + 1)
                self.greet(peer, int(stay[2]) if stay else 0)
            case ["the", "connection", "to", peer, "breaks"]:
                self.handle(Disconnected(peer))
            case ["the", "link", "to", peer, "is", "removed"]:
                del self.peers[peer]
                self.handle(LinkRemoved(peer))
            case [seconds, "s", "pass"]:
                self.now_s += float(seconds)
                self.handle(Wake())
            case _:
                raise ValueError(f"nobody knows what this means: {text}")
        return self.said()

    def begin(self, name: str, level: str, session: str, neighbours: tuple[str, ...]) -> None:
        """A broker that knows nothing, by what it promises: received, replicated, safe or durable."""
        assert level in (*get_args(Acknowledges), "replicated")
        self.broker = Broker(
            BrokerConfig(
                name,
                session,
                epoch=int(session),
                neighbours=neighbours,
                acknowledges="received" if level == "replicated" else level,  # type: ignore[arg-type]
                replication=ReplicationConfig("synchronous") if level == "replicated" else None,
            )
        )

    def greet(self, name: str, stay: int = 0, burned: int = 0) -> None:
        """A peer comes, or comes back."""
        end = self.peers.setdefault(name, OtherEnd())
        resumes = self.broker.config.session if end.seen_count or end.sent_count else ""
        session, role = str(end.incarnation), "client" if stay else "broker"
        hello = Hello(VERSION, role, name, session, end.seen_count + 1, resumes)  # type: ignore[arg-type]
        self.connect(name, hello, epoch=end.incarnation, stay=stay or 1, burned=burned)

    def connect(self, name: str, hello: Hello, **fields: int) -> None:
        """A greeting comes, with these fields changed."""
        told = {each: getattr(hello, each) for each in hello.__struct_fields__}
        self.handle(Connected(name, Hello(**{**told, **fields})))

    def says(self, peer: str, text: str) -> None:
        """A peer says something that waits for its turn."""
        self.handle(Received(peer, self.peers[peer].says(read(text))))

    def handle_message(self, peer: str, message: AnyMessage) -> None:
        """A peer says something, and its turn comes."""
        self.handle(Received(peer, self.peers[peer].says(message)))
        self.steps()

    def handle(self, event: Event) -> None:
        """The broker is told of an event."""
        self.lines += [f"effect: {tell(effect)}" for effect in self.broker.handle(event, self.now_s)]

    def steps(self) -> None:
        """The turn of all that waits comes."""
        while self.broker.input_count:
            self.handle(Step())

    def said(self) -> list[str]:
        """What the broker wants and says."""
        lines, self.lines = self.lines, []
        for peer, end in self.peers.items():
            for frame in self.broker.output.take_frames(peer, self.now_s):
                self.reported_done[peer] = frame.done
                if isinstance(frame, Payload):
                    lines += [f"to {peer}: {each}" for each in end.hears(frame.messages)]
                    versions = [each.version for each in frame.messages if isinstance(each, Guard | GuardAll)]
                    self.guarded_version = max([self.guarded_version, *versions])
                    acknowledged = Ack(end.seen_count, done=end.done_count, credit=end.done_count)
                    self.broker.handle(Received(peer, acknowledged), self.now_s)
        return lines
