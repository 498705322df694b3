"""Logs that earlier versions have written are read: real files of each format, with what they hold.

`logs/format-N.log`: a client c with one subscription and a client d without, publications 1 to 4 of p, of which the
first two have ended. The files were written by the versions of Trimtab of that time and are never changed.
"""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.network.server.test_publication_log import nothing, shown, with_log
from trimtab.broker.log.log_format import VERSION, scan
from trimtab.cli.main import app

LOGS = Path(__file__).with_name("logs")
FORMATS = [1, 2, 3]


@pytest.fixture(params=FORMATS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A broker's folder with a log of one format."""
    content = (LOGS / f"format-{request.param}.log").read_bytes()
    assert scan(content).version == request.param
    (tmp_path / "000000000001.log").write_bytes(content)
    return tmp_path


def test_there_is_a_file_of_each_format_up_to_the_one_that_is_written() -> None:
    assert [f"format-{number}.log" for number in range(1, VERSION + 1)] == sorted(each.name for each in LOGS.iterdir())


def test_a_log_of_each_format_is_read_and_gone_on_with(folder: Path) -> None:
    for _ in range(2):
        found = with_log(folder, nothing)
        assert [(each.publisher, each.session, each.sequence) for each in found.publications] == [
            ("p", "s1", 3),
            ("p", "s1", 4),
        ]
        assert [dict(each.values) for each in found.publications] == [
            {"class": "STOCK", "n": number, "price": 5.5} for number in (3, 4)
        ]
        assert shown(found.records) == {"c": ["c/1"], "d": []}
        (subscription,) = found.records[0].subscriptions
        assert str(subscription.filter) == "[class,eq,'STOCK'],[price,>,5]"
    assert found.epoch == 3


def test_verify_tells_the_format_and_finds_no_damage(folder: Path) -> None:
    before = (folder / "000000000001.log").read_bytes()
    result = CliRunner().invoke(app, ["log", "verify", str(folder)])
    assert result.exit_code == 0, result.output
    assert f"format {scan(before).version}" in result.stdout
    assert (folder / "000000000001.log").read_bytes() == before
