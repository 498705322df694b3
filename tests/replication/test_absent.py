"""What clients want that have yet to come back has not been handed on."""

from trimtab.protocol.link import LinkConfig
from trimtab.protocol.messages import Publish
from trimtab.replication.absent import AbsentClients
from trimtab.replication.handed_on import HandedOn
from trimtab.replication.safe_link import SafeLink


class Replica:
    """What a replica has handed on, with the numbers that absent clients want."""

    def __init__(self, *wanted: int) -> None:
        self.wanted = set(wanted)
        self.handed_on = HandedOn()
        self.absent = AbsentClients(self.handed_on.note, lambda message: message.sequence in self.wanted)

    def pass_on(self, *sequences: int) -> None:
        for sequence in sequences:
            self.handed_on.begin()
            self.absent.hand_on(publication(sequence))
            self.handed_on.end("B1", sequence, sequence)

    def give(self, link: SafeLink, *sequences: int) -> None:
        messages = [publication(sequence) for sequence in sequences]
        self.absent.give(link, messages)
        link.data.extend(messages)
        self.wanted.difference_update(sequences)
        self.absent.look_again()

    def first_waiting(self) -> int | None:
        first = self.handed_on.first_waiting("B1")
        return None if first is None else first.sequence


def publication(sequence: int) -> Publish:
    return Publish(publisher="p", sequence=sequence, values={}, origin_s=0.0)


def link() -> SafeLink:
    made = SafeLink(LinkConfig(), lambda receiver: None, lambda: None)
    made.connect(1, 0.0)
    return made


def transmit(here: SafeLink, count: int) -> None:
    """Let so many messages arrive at the other end, and what is said of them here."""
    there = link()
    for _ in range(count):
        frame = here.take(0.0, 1)
        assert frame is not None
        there.receive(frame, 0.0)
    acknowledgement = there.take(0.0)
    assert acknowledgement is not None
    here.receive(acknowledgement, 0.0)


def test_what_nobody_absent_wants_waits_for_nobody() -> None:
    replica = Replica(2)
    replica.pass_on(1)
    assert replica.first_waiting() is None


def test_what_an_absent_client_wants_waits_until_it_has_come_back_and_has_it() -> None:
    replica, client = Replica(1, 2), link()
    replica.pass_on(1, 2)
    assert replica.first_waiting() == 1
    replica.give(client, 1, 2)
    assert replica.first_waiting() == 1
    transmit(client, 1)
    assert replica.first_waiting() == 2
    client.is_gone = True
    assert replica.first_waiting() is None


def test_what_another_absent_client_wants_as_well_waits_for_it() -> None:
    replica, client = Replica(1), link()
    replica.pass_on(1)
    replica.give(client, 1)
    replica.wanted.add(1)
    transmit(client, 1)
    assert replica.first_waiting() == 1
    replica.wanted.clear()
    replica.absent.look_again()
    assert replica.first_waiting() is None


def test_what_was_given_to_a_neighbour_that_dies_waits_for_its_replica() -> None:
    replica, old, new = Replica(1), link(), link()
    replica.pass_on(1)
    replica.give(old, 1)
    new.data.extend(old.undelivered_data())
    replica.absent.relink(old, new)
    assert replica.first_waiting() == 1
    transmit(new, 1)
    assert replica.first_waiting() is None
