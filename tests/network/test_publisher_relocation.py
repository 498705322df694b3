"""Seven broker processes in a tree, and a publisher process that is moved three times by hand while it publishes.

Four subscriber processes count: everything once, and in order.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trimtab import Network
from trimtab.network.admin.local_network import plan_text
from trimtab.records.files import read_records

PUBLICATIONS_COUNT = int(os.environ.get("TRIMTAB_RELOCATED_PUBLICATIONS", "20000"))
WITHIN_S = 60 + PUBLICATIONS_COUNT / 500
BROKERS = tuple(f"B{number}" for number in range(1, 8))
TREE = (("B1", "B2"), ("B1", "B3"), ("B2", "B4"), ("B2", "B5"), ("B3", "B6"), ("B3", "B7"))
STOPS = ("B7", "B2", "B6")


@pytest.fixture
def seven(tmp_path: Path) -> Iterator[tuple[Network, str]]:
    with Network.of(BROKERS, TREE) as network:
        file = tmp_path / "seven.toml"
        file.write_text(plan_text(network.plan), encoding="utf-8")
        yield network, str(file)


def trimtab(*arguments: str, stdin: int | None = None) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "trimtab", *arguments]
    return subprocess.Popen(command, text=True, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def feed(process: subprocess.Popen[str], moves_are_done: threading.Event) -> None:
    """Publications at a steady pace, slower towards the end as long as moves are to come."""
    assert process.stdin is not None
    for number in range(PUBLICATIONS_COUNT):
        process.stdin.write(f"[class,'QUOTE'],[n,{number}]\n")
        waits = number > PUBLICATIONS_COUNT // 2 and not moves_are_done.is_set()
        if number % (10 if waits else 100) == 0:
            process.stdin.flush()
            time.sleep(0.05)
    process.stdin.close()


def test_a_publisher_process_is_moved_three_times_and_heard_once_and_in_order(
    seven: tuple[Network, str], tmp_path: Path
) -> None:
    network, file = seven
    wanted = {"B4": "n >= 0", "B5": "class = 'QUOTE'", "B6": f"n >= {PUBLICATIONS_COUNT // 2}", "B7": "n >= 0"}
    begins = {name: PUBLICATIONS_COUNT // 2 if name == "B6" else 0 for name in wanted}
    expected = {name: list(range(begin, PUBLICATIONS_COUNT)) for name, begin in begins.items()}
    readers = {
        name: trimtab(
            "sub", "--broker", network.address(name), filter, "--count", str(len(expected[name])),
            "--for", str(WITHIN_S), "--json",
        )
        for name, filter in wanted.items()
    }  # fmt: skip
    for reader in readers.values():
        assert reader.stderr is not None
        assert reader.stderr.readline() == "subscribed\n"
    records = tmp_path / "records"
    publisher = trimtab(
        "pub", "--broker", network.address("B4"), "--name", "quotes", "--records", str(records), "-",
        stdin=subprocess.PIPE,
    )  # fmt: skip
    moves_are_done = threading.Event()
    feeding = threading.Thread(target=feed, args=(publisher, moves_are_done), daemon=True)
    feeding.start()
    moved_while_feeding = []
    deadline_s = time.monotonic() + WITHIN_S
    while not ((status := network.status()["B4"]) and any(peer.name == "quotes" for peer in status.peers)):
        assert time.monotonic() < deadline_s, "the publisher did not come to B4"
        time.sleep(0.05)
    for stop in STOPS:
        time.sleep(0.5)
        move = trimtab("move", "quotes", stop, file)
        said, problem = move.communicate(timeout=30)
        assert (problem, move.returncode) == ("", 0)
        assert said.startswith("quotes has moved from ")
        moved_while_feeding.append(feeding.is_alive())
    moves_are_done.set()
    outputs = {name: reader.communicate(timeout=WITHIN_S)[0] for name, reader in readers.items()}
    feeding.join()
    assert publisher.stdout is not None
    assert publisher.stderr is not None
    with publisher.stdout, publisher.stderr:
        accepted = "B6 has accepted 20,000 publications of quotes, which has moved 3 times\n"
        assert (publisher.stdout.read(), publisher.stderr.read()) == ("", accepted)
    assert [process.wait(20) for process in (publisher, *readers.values())] == [0] * 5
    for name, text in outputs.items():
        shown = [json.loads(line) for line in text.splitlines()]
        assert [each["publication"]["n"] for each in shown] == expected[name], name
        assert {each["publisher"] for each in shown} == {"quotes"}
    assert all(moved_while_feeding), "the moves happen among the publications"
    moves = sorted(read_records(records, "moves").to_pylist(), key=lambda row: row["begin_s"])
    assert [(row["from_broker"], row["to_broker"], row["outcome"]) for row in moves] == [
        ("B4", "B7", "moved"), ("B7", "B2", "moved"), ("B2", "B6", "moved"),
    ]  # fmt: skip
    assert [row["cause"] for row in moves] == ["B4/by-hand/1", "B7/by-hand/1", "B2/by-hand/1"]
    assert all(0 < row["publisher_wait_s"] < 10 for row in moves)


def test_a_move_that_cannot_be_is_refused_with_the_reason(seven: tuple[Network, str]) -> None:
    _, file = seven
    for arguments, text, code in (
        (("nobody", "B1"), "no broker of the network serves nobody", 1),
        (("nobody", "B9"), "no broker is named B9", 2),
    ):
        move = trimtab("move", *arguments, file)
        _, stderr = move.communicate(timeout=30)
        assert (move.returncode, text in stderr) == (code, True), stderr
