"""Ended advertisements are remembered as long as a link retains their ends, and not longer."""

from trimtab.language import Filter
from trimtab.protocol.frames import Sendable
from trimtab.protocol.messages import Complete, KnownFilter, Unadvertise
from trimtab.replication.withdrawals import Withdrawals

ANY = Filter.parse("a > 0")


def test_the_end_of_a_publishers_move_ends_all_that_it_names() -> None:
    marker = Complete(move="p/m1", client="p", new_broker="B1", advertisements=("p/a1", "p/a2"))
    withdrawals = Withdrawals(lambda: [marker])
    for id in ("p/a0", "p/a1", "p/a2"):
        withdrawals.add(id, ANY)
    assert withdrawals.unprocessed() == [KnownFilter("p/a1", ANY), KnownFilter("p/a2", ANY)]


def test_of_an_id_that_has_ended_twice_the_later_filter_is_needed_longer() -> None:
    later = Filter.parse("b > 0")
    retained: list[Sendable] = [Unadvertise(id="p/a1"), Unadvertise(id="p/a1")]
    withdrawals = Withdrawals(lambda: retained)
    withdrawals.add("p/a1", ANY)
    withdrawals.add("p/a1", later)
    assert withdrawals.unprocessed() == [KnownFilter("p/a1", ANY), KnownFilter("p/a1", later)]
    del retained[0]
    assert withdrawals.unprocessed() == [KnownFilter("p/a1", later)]


def test_what_is_remembered_is_bounded_by_what_the_link_retains() -> None:
    retained: list[Sendable] = []
    withdrawals = Withdrawals(lambda: retained[-100:])
    for number in range(10_000):
        retained.append(Unadvertise(id=f"p/a{number}"))
        withdrawals.add(f"p/a{number}", ANY)
        assert len(withdrawals) <= 200
    assert len(withdrawals.unprocessed()) == 100
