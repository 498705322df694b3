"""A client's move, row by row of the table in `client.move_transitions`: the files in transcripts/ tell it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.transcripts import ANY, OtherEnd, check, read, row_of, table_in, tell
from trimtab.client import move_transitions as moving
from trimtab.client.config import ClientConfig
from trimtab.client.session import ClientSession
from trimtab.protocol.events import Connected, Disconnected, Event, MoveTo, Received, Wake
from trimtab.protocol.frames import Ack, Hello, Payload
from trimtab.protocol.messages import VERSION

FILES = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


class Client:
    """A client session and the brokers that it knows, which say what a file tells."""

    def __init__(self) -> None:
        self.session = ClientSession(ClientConfig("c"))
        self.brokers: dict[str, OtherEnd] = {}
        self.now_s = 0.0
        self.lines: list[str] = []
        """What has come of what happens."""

    def happens(self, text: str) -> list[str]:
        """Something happens; what comes of it."""
        match text.split():
            case ["a", "subscriber" | "publisher" as kind, "s" | "p" as name, "at", broker]:
                self.session = ClientSession(ClientConfig(name))
                self.happens("it subscribes" if kind == "subscriber" else "it advertises")
                self.happens(f"{broker} greets")
                self.happens(f"from {broker}: Confirmed {name}/{'s' if kind == 'subscriber' else 'a'}1, number 1")
            case ["from", broker, *_]:
                message = read(text.partition(": ")[2])
                broker = broker.removesuffix(":")
                self.handle(Received(broker, self.brokers[broker].says(message)))
            case [broker, "greets"]:
                self.greet(broker)
            case [broker, "greets,", "started", "again"]:
                self.brokers[broker] = OtherEnd(self.brokers[broker].incarnation + 1)
                self.greet(broker)
            case ["the", "connection", "to", broker, "breaks"]:
                self.handle(Disconnected(broker))
            case [seconds, "s", "pass"]:
                self.now_s += float(seconds)
                self.handle(Wake())
            case ["it", "is", "asked", "to", "move", "to", broker]:
                self.handle(MoveTo(broker))
            case ["it", "subscribes"]:
                self.session.subscribe(ANY, self.now_s)
            case ["it", "unsubscribes", id]:
                self.session.unsubscribe(id, self.now_s)
            case ["it", "advertises"]:
                self.session.advertise(ANY, self.now_s)
            case ["it", "publishes"]:
                self.session.publish({"n": 1}, self.now_s)
            case _:
                raise ValueError(f"nobody knows what this means: {text}")
        return self.said()

    def greet(self, broker: str) -> None:
        """A broker greets, and says what it remembers of the client."""
        is_known = broker in self.brokers and self.brokers[broker].seen_count > 0
        end = self.brokers.setdefault(broker, OtherEnd())
        resumes = self.session.config.session if is_known else ""
        ours = self.session.greeting(broker)
        self.lines.append(f"to {broker}: Hello stay {ours.stay}" + (f", burned {ours.burned}" if ours.burned else ""))
        hello = Hello(VERSION, "broker", broker, f"{broker}.{end.incarnation}", end.seen_count + 1, resumes)
        self.handle(Connected(broker, hello))

    def handle(self, event: Event) -> None:
        """The session is told of an event."""
        self.lines += [f"effect: {tell(effect)}" for effect in self.session.handle(event, self.now_s)]
        self.session.consumed()

    def said(self) -> list[str]:
        """What the session wants and says."""
        lines, self.lines = self.lines, []
        for broker, end in self.brokers.items():
            while (frame := self.session.take_frame(self.now_s, broker)) is not None:
                if isinstance(frame, Payload):
                    lines += [f"to {broker}: {each}" for each in end.hears(frame.messages)]
                    acknowledged = Ack(end.seen_count, done=end.done_count, credit=end.done_count)
                    self.session.handle(Received(broker, acknowledged), self.now_s)
        return lines


def rows() -> list[str]:
    """The names of the table's rows: phase and what happens."""
    found: list[list[str]] = []
    for phase, event in table_in(moving.__doc__ or "", "(none)", (4, 15, 51)):
        if phase and not (found and found[-1][0].endswith(",")):
            found.append([phase, event])
        else:
            found[-1] = [f"{found[-1][0]} {phase}".strip(), f"{found[-1][1]} {event}".strip()]
    return [f"{phase}: {event}" for phase, event in found]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_happens_is_what_the_file_tells(file: Path) -> None:
    check(file, Client)


def test_every_row_of_the_table_has_a_file_and_every_file_a_row() -> None:
    assert sorted(map(row_of, FILES)) == sorted(rows())
