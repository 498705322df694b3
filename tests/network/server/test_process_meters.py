"""The meters of a process: a publication costs all that the process does for it, and saturation reads 1."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimtab.broker.config import BrokerConfig
from trimtab.broker.core import Broker
from trimtab.network.server import process_meters
from trimtab.network.server.process_meters import ProcessMeters

ABOUT = 0.1
"""The oldest bucket of a meter's window counts as a whole."""


class Machine:
    """A process whose clock and processor time the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        self.wanted_s: float | None = 0.0
        monkeypatch.setattr(process_meters, "now_s", lambda: self.now_s)
        monkeypatch.setattr(process_meters, "processor_wanted_s", lambda share: self.wanted_s)
        self.broker = Broker(BrokerConfig("B1"), now_s=0.0)
        self.meters = ProcessMeters(self.broker, None)

    def second(self, publications_count: int, step_s: float, wanted_s: float | None) -> None:
        """A second with so many publications, steps of this length, and a processor wanted for so long."""
        for number in range(10):
            self.now_s += 0.1
            self.broker.counters.publications_in_count += publications_count // 10
            started_s = self.now_s - step_s * (publications_count // 10)
            self.meters.worked(started_s)
            if number == 9:
                if self.wanted_s is not None and wanted_s is not None:
                    self.wanted_s += wanted_s
                self.meters.look(self.now_s)

    def load(self) -> tuple[float, float]:
        load = self.broker.read_load(self.now_s)
        return load.input_utilization_ratio, load.matching_delay_s


def test_input_utilisation_reads_one_at_saturation_whatever_the_steps_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are 64 % of the work; the process wants the processor all the time."""
    machine = Machine(monkeypatch)
    for _ in range(20):
        machine.second(1_000, 0.00064, 1.0)
    ratio, delay_s = machine.load()
    assert ratio == pytest.approx(1.0, abs=ABOUT)
    assert delay_s == pytest.approx(0.001, rel=ABOUT)


def test_a_fifth_of_a_processor_is_full_with_a_fifth_of_the_publications(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a quota of 20 % steps look five times as long now and then, and the process waits for the rest."""
    machine = Machine(monkeypatch)
    for _ in range(20):
        machine.second(200, 0.00064, 1.0)
    assert machine.load()[0] == pytest.approx(1.0, abs=ABOUT)


def test_what_an_idle_process_does_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    for _ in range(60):
        machine.second(0, 0.0, 0.05)
    for _ in range(20):
        machine.second(10, 0.0001, 0.05 + 10 * 0.0002)
    assert machine.load()[1] == pytest.approx(0.0002, rel=0.3)


def test_where_the_system_tells_nothing_steps_count(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    machine.wanted_s = None
    for _ in range(20):
        machine.second(1_000, 0.0005, None)
    assert machine.load()[0] == pytest.approx(0.5, abs=ABOUT)


def test_a_control_groups_quota_is_the_share_of_a_processor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The strictest quota on the way to the root counts, in both versions of control groups."""
    (tmp_path / "cgroup").write_text("4:cpu,cpuacct:/brokers/B1\n3:memory:/\n0::/brokers/B1\n")
    monkeypatch.setattr(process_meters, "_GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(process_meters, "_GROUP_ROOT", tmp_path / "fs")
    assert process_meters.processor_share() == 1.0
    old, new = tmp_path / "fs" / "cpu" / "brokers", tmp_path / "fs" / "brokers" / "B1"
    for group in (old / "B1", new):
        group.mkdir(parents=True)
    (old / "B1" / "cpu.cfs_quota_us").write_text("-1\n")
    (old / "B1" / "cpu.cfs_period_us").write_text("100000\n")
    (new / "cpu.max").write_text("max 100000\n")
    assert process_meters.processor_share() == 1.0
    (new / "cpu.max").write_text("50000 100000\n")
    assert process_meters.processor_share() == 0.5
    (old / "cpu.cfs_quota_us").write_text("20000\n")
    (old / "cpu.cfs_period_us").write_text("100000\n")
    assert process_meters.processor_share() == 0.2


def test_what_a_process_ran_counts_by_its_share(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(process_meters, "_SCHEDULING", tmp_path / "schedstat")
    (tmp_path / "schedstat").write_text("2000000000 1000000000 7\n")
    assert process_meters.processor_wanted_s() == 3.0
    assert process_meters.processor_wanted_s(0.1) == 20.0
