"""Damage and crashes in the log of a durable broker: what is found again, what is reported and what is kept."""

from __future__ import annotations

import asyncio
import os
import shutil
import struct
import zlib
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from trimtab import Filter
from trimtab.broker.log.log_contents import (
    LogContents,
    as_write,
    change_record,
    checkpoint_records,
    end_record,
    epoch_record,
    publication_record,
)
from trimtab.broker.log.log_format import BLOCK_BYTES, framed, header, scan
from trimtab.network.loops import run as run_loop
from trimtab.network.server.publication_log import PublicationLog, PublicationLogError, log_files
from trimtab.protocol.codec import encode_filter
from trimtab.protocol.effects import Append
from trimtab.protocol.messages import ClientRecord, Guard, KnownSubscription, Publish

MARK = b"mark"
HEADER_BYTES = len(header(MARK))


def publication(sequence: int, publisher: str = "p") -> Publish:
    return Publish(publisher=publisher, sequence=sequence, values={"n": sequence}, origin_s=1.5, session="s1")


def client(name: str) -> ClientRecord:
    return ClientRecord(name, "s1", stay=1, subscriptions=(KnownSubscription(f"{name}/1", Filter.parse("n > 1")),))


def records() -> list[bytes]:
    """What a small log says: two clients, a third that comes, and four publications of which one has ended."""
    return [
        epoch_record(3),
        *checkpoint_records([client("ann"), client("bob")]),
        publication_record(publication(1)),
        change_record(Guard(version=1, record=client("cid"))),
        publication_record(publication(2)),
        publication_record(publication(3)),
        end_record("p", "s1", 1),
        publication_record(publication(1, "q")),
    ]


def framed_1(contents: Iterable[bytes]) -> bytes:
    """Records as version 1 has written them."""
    return b"".join(struct.pack(">II", len(each), zlib.crc32(each)) + each for each in contents)


def records_1() -> list[bytes]:
    """The same in version 1."""
    checkpoint = msgspec.msgpack.encode((client("ann"), client("bob")), enc_hook=encode_filter)
    return [epoch_record(3), b"C" + checkpoint, *records()[5:]]


def header_2(mark: bytes) -> bytes:
    """The beginning of a file as version 2 has written it."""
    begin = struct.pack(">11sB4s", b"trimtab-log", 2, mark)
    return begin + struct.pack(">I", zlib.crc32(begin))


def file_of(version: int) -> bytes:
    return made_of(version, contents_of(version))


def contents_of(version: int) -> list[bytes]:
    match version:
        case 1:
            return records_1()
        case 2:
            return records()
        case _:
            return [content for _, content in scan(header(MARK) + as_write(records(), MARK)).records]


def made_of(version: int, contents: list[bytes]) -> bytes:
    if version == 1:
        return framed_1(contents)
    return (header_2(MARK) if version == 2 else header(MARK)) + framed(contents, MARK)


def flips(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The file with one bit of a byte flipped, each byte in turn, and each with all its bits flipped."""
    for place in range(len(data)):
        for bits in (1 << place % 8, 0xFF):
            yield place, data[:place] + bytes([data[place] ^ bits]) + data[place + 1 :]


def read(*files: bytes) -> LogContents:
    found = LogContents()
    for number, data in enumerate(files, 1):
        found.take(Path(f"{number:012}.log"), data, is_last=number == len(files))
    return found


def told(found: LogContents) -> tuple[list[tuple[str, int]], list[str]]:
    """The publications that have not ended, and the clients."""
    return (
        [(each.publisher, each.sequence) for each in found.publications()],
        [each.client for each in found.records.all()],
    )


def open_log(folder: Path) -> tuple[PublicationLog, list[tuple[str, int]], list[str]]:
    """Let a broker's log begin and end: the log, and what it has found."""

    async def work() -> tuple[PublicationLog, list[tuple[str, int]], list[str]]:
        log = PublicationLog(folder, lambda number: None, pytest.fail)
        publications, clients = log.open()
        log.close()
        return log, [(each.publisher, each.sequence) for each in publications], [each.client for each in clients]

    return run_loop(work())


def write_file(folder: Path, number: int, data: bytes) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{number:012}.log"
    path.write_bytes(data)
    return path


ALL = ([("p", 2), ("p", 3), ("q", 1)], ["ann", "bob", "cid"])


@pytest.mark.parametrize("version", [1, 2, 3])
def test_what_is_whole_is_read_without_a_report(version: int) -> None:
    found = read(file_of(version))
    assert told(found) == ALL
    [file] = found.files
    assert (file.version, file.torn, file.damage, found.epoch) == (version, None, [], 3)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_flipped_byte_anywhere_loses_the_record_that_it_is_in_and_no_other(version: int) -> None:
    data = file_of(version)
    whole = scan(data).records
    for place, damaged in flips(data):
        hit = [offset for offset, _ in whole if offset <= place][-1:]
        found = scan(damaged)
        assert found.records == [(offset, each) for offset, each in whole if offset not in hit], place
        assert [offset for offset, _ in found.bad] == (hit or [0]), place
        [file] = read(damaged).files
        is_tail = version < 3 and hit == [whole[-1][0]]
        assert (file.torn is not None, len(file.damage)) == (is_tail, not is_tail), place


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_flipped_byte_in_a_file_that_is_not_the_last_is_damage_everywhere(version: int) -> None:
    following = header(b"next") + framed(checkpoint_records([client("ann")]), b"next")
    for place, damaged in flips(file_of(version)):
        found = read(damaged, following)
        assert (len(found.files[0].damage), found.files[0].torn, found.files[1].damage) == (1, None, []), place


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_file_that_ends_anywhere_has_a_torn_tail_and_all_whole_records(version: int) -> None:
    data = file_of(version)
    whole = scan(data).records
    ends = [0 if version == 1 else HEADER_BYTES, *(offset for offset, _ in whole[1:]), len(data)]
    for size in range(len(data)):
        [file] = read(data[:size]).files
        assert sum(file.counts.values()) == sum(end <= size for end in ends[1:]), size
        assert not file.damage
        assert (file.torn is None) == (size in (0, *ends)), size


def test_zeros_behind_the_last_record_are_a_torn_tail() -> None:
    [file] = read(file_of(2) + bytes(4096)).files
    assert file.torn is not None
    assert (file.torn.offset_bytes, file.torn.size_bytes, file.damage) == (len(file_of(2)), 4096, [])


def test_a_write_of_which_a_block_is_missing_counts_up_to_there_and_no_further() -> None:
    """What is whole behind the block was never acknowledged, nor what was in it: neither may be taken for stored."""
    earlier = header(MARK) + as_write([publication_record(publication(1))], MARK)
    write = as_write([publication_record(publication(number)) for number in range(2, 60)], MARK)
    data = earlier + write
    for block in range(len(earlier) // BLOCK_BYTES, len(data) // BLOCK_BYTES):
        begin, end = max(block * BLOCK_BYTES, len(earlier)), (block + 1) * BLOCK_BYTES
        found = read(data[:begin] + bytes(end - begin) + data[end:])
        [file] = found.files
        numbers = [each.sequence for each in found.publications()]
        assert (numbers, file.damage) == (list(range(1, len(numbers) + 1)), []), block
        assert file.torn is not None
        assert file.torn.offset_bytes <= begin, block


def test_a_block_that_is_lost_behind_the_last_write_is_damage() -> None:
    first = [publication_record(publication(number)) for number in range(1, 60)]
    data = header(MARK) + as_write(first, MARK) + as_write([publication_record(publication(60))], MARK)
    found = read(data[:BLOCK_BYTES] + bytes(BLOCK_BYTES) + data[2 * BLOCK_BYTES :])
    [file] = found.files
    assert (file.torn, len(file.damage), found.publications()[-1].sequence) == (None, 1, 60)


def test_bytes_that_were_cut_out_or_put_in_lose_only_the_records_that_they_are_in() -> None:
    data = file_of(2)
    whole = scan(data).records
    for (begin, _), (end, _) in pairwise(whole):
        others = [each for offset, each in whole if offset != begin]
        assert [each for _, each in scan(data[: begin + 5] + data[begin + 9 :]).records] == others
        assert [each for _, each in scan(data[: end - 1] + b"put in" + data[end - 1 :]).records] == others


def test_what_a_client_publishes_is_not_taken_for_a_record() -> None:
    forged = framed([publication_record(publication(7, "forged"))], b"none").decode("latin-1")
    outer = Publish(publisher="p", sequence=1, values={"text": forged + "x" * 50}, origin_s=1.5, session="s1")
    data = bytearray(header(MARK) + framed([epoch_record(1), publication_record(outer), epoch_record(2)], MARK))
    data[-40] ^= 1
    assert [each[:1] for _, each in scan(bytes(data)).records] == [b"I", b"I"]


def test_a_damaged_checkpoint_counts_besides_what_earlier_files_say() -> None:
    earlier = header(b"last") + framed(checkpoint_records([client("ann"), client("bob"), client("old")]), b"last")
    for place, damaged in flips(header(MARK) + framed(checkpoint_records([client("ann"), client("bob")]), MARK)):
        found = told(read(earlier, damaged))[1]
        is_in_header = place < HEADER_BYTES
        assert set(found) == ({"ann", "bob"} if is_in_header else {"ann", "bob", "old"}), place


def test_a_record_that_makes_no_sense_is_damage() -> None:
    found = read(header(MARK) + framed([b"Z?", b"P\xff", publication_record(publication(1)), b"I"], MARK))
    [file] = found.files
    assert [each.reason.partition(" (")[0] for each in file.damage] == ["a record that cannot be understood"] * 3
    assert told(found) == ([("p", 1)], [])


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_start_goes_on_behind_damage_and_keeps_the_damaged_file(tmp_path: Path, version: int) -> None:
    data = file_of(version)
    whole = scan(data).records
    everything = contents_of(version)
    for place, damaged in list(flips(data))[::13]:
        folder = tmp_path / f"{place}"
        path = write_file(folder, 1, damaged)
        number = max((each for each, (offset, _) in enumerate(whole) if offset <= place), default=-1)
        expected = told(read(file_without(version, number, everything)))
        log, publications, clients = open_log(folder)
        assert (sorted(publications), sorted(clients)) == (sorted(expected[0]), sorted(expected[1])), place
        kept = folder / f"{path.name}.damaged"
        if version < 3 and number == len(whole) - 1:
            assert (len(log.torn), log.damage, kept.exists()) == (1, (), False)
        else:
            offset = whole[number][0] if number >= 0 else 0
            assert [text.startswith(f"{path}: damage at byte {offset}, ") for text in log.damage] == [True]
            assert (log.torn, kept.read_bytes(), path.exists()) == ((), damaged, False)
        again, publications_again, clients_again = open_log(folder)
        assert (publications_again, clients_again) == (publications, clients)
        assert (again.damage, again.torn) == ((), ())
        shutil.rmtree(folder)


def file_without(version: int, number: int, everything: list[bytes]) -> bytes:
    left = [each for place, each in enumerate(everything) if place != number]
    return made_of(version, left)


def test_a_torn_tail_is_cut_off_and_is_no_damage_when_later_files_follow(tmp_path: Path) -> None:
    path = write_file(tmp_path, 1, file_of(2) + b"\xc1Rec torn")
    log, publications, _ = open_log(tmp_path)
    assert (len(log.torn), log.damage, publications) == (1, (), ALL[0])
    assert path.read_bytes() == file_of(2)
    log, publications, _ = open_log(tmp_path)
    assert (log.torn, log.damage, publications) == ((), (), ALL[0])


def test_a_crash_anywhere_in_writing_anew_keeps_everything_in_its_order(tmp_path: Path) -> None:
    first = bytearray(header(b"1111") + framed([publication_record(publication(n)) for n in (1, 2, 3)], b"1111"))
    first[HEADER_BYTES + 20] ^= 1
    second = header(b"2222") + framed([publication_record(publication(n)) for n in (4, 5)], b"2222")
    write_file(tmp_path / "whole", 1, bytes(first))
    write_file(tmp_path / "whole", 2, second)
    assert open_log(tmp_path / "whole")[1] == [("p", number) for number in (2, 3, 4, 5)]
    new = (tmp_path / "whole" / "000000000003.log").read_bytes()
    for size in range(len(new) + 1):
        folder = tmp_path / "crashed"
        for number, data in enumerate((bytes(first), second, new[:size]), 1):
            write_file(folder, number, data)
        assert open_log(folder)[1] == [("p", number) for number in (2, 3, 4, 5)], size
        shutil.rmtree(folder)
    write_file(folder, 2, second)  # the first has its other name already, the second is not deleted yet
    write_file(folder, 3, new)
    assert open_log(folder)[1] == [("p", number) for number in (2, 3, 4, 5)]


def test_a_damaged_file_does_not_take_the_name_of_one_that_is_kept(tmp_path: Path) -> None:
    damaged = bytearray(file_of(2))
    damaged[HEADER_BYTES + 20] ^= 1
    (tmp_path / "000000000001.log.damaged").write_bytes(b"kept")
    write_file(tmp_path, 1, bytes(damaged))
    open_log(tmp_path)
    assert (tmp_path / "000000000001.log.damaged").read_bytes() == b"kept"
    assert (tmp_path / "000000000001.log.damaged.damaged").read_bytes() == bytes(damaged)


def test_a_file_in_which_nothing_is_recognised_is_kept(tmp_path: Path) -> None:
    write_file(tmp_path, 1, b"\x7fELF" + bytes(range(256)))
    log, publications, _ = open_log(tmp_path)
    assert (len(log.damage), publications) == (1, [])
    assert (tmp_path / "000000000001.log.damaged").read_bytes()[:4] == b"\x7fELF"


def test_files_that_are_not_of_the_log_are_left_alone(tmp_path: Path) -> None:
    for name in ("notes.log", "1.log", "readme.txt"):
        (tmp_path / name).write_text("not of the log", encoding="utf-8")
    write_file(tmp_path, 1, file_of(2))
    assert open_log(tmp_path)[1:] == ALL
    assert all((tmp_path / name).exists() for name in ("notes.log", "1.log", "readme.txt"))


def test_a_log_of_a_later_format_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    begin = header(MARK)[:11] + b"\x09" + MARK
    path = write_file(tmp_path, 1, begin + struct.pack(">I", zlib.crc32(begin)) + b"whatever")
    with pytest.raises(PublicationLogError, match=r"has the format 9.*start the version that has written it"):
        open_log(tmp_path)
    assert path.read_bytes().endswith(b"whatever")


def test_starts_without_anything_new_do_not_pile_up_files(tmp_path: Path) -> None:
    write_file(tmp_path, 1, file_of(2))
    for _ in range(5):
        assert open_log(tmp_path)[1:] == ALL
    assert len(log_files(tmp_path)) == 2


def test_nothing_is_told_to_be_stored_before_the_disk_has_the_file_and_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        fsync(descriptor)
        events.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)

    monkeypatch.setattr(os, "fsync", watched)
    folder = tmp_path / "disk" / "B1"

    async def work() -> None:
        log = PublicationLog(folder, lambda number: events.append(f"told {number}"), pytest.fail)
        log.open()
        log.append(Append(1, publication(1)))
        log.append(Append(2, publication(2)))
        log.append(Append(3, publication(3)))
        while "told 3" not in events:
            await asyncio.sleep(0.001)
        log.close()

    run_loop(work())
    name = "000000000001.log"
    assert events[:4] == ["disk", tmp_path.name, "B1", name]
    assert events[4:6] == [name, "told 3"]
