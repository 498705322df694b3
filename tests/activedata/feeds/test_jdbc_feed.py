"""A feed from a table of a real PostgreSQL, by a growing column and as a whole, over restarts and errors."""

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.activedata.conftest import POSTGRES_JAR
from trimtab.activedata import ActiveData, StatementError
from trimtab.activedata.service.status import status
from trimtab.activedata.spark.views import SparkViews
from trimtab.network.admin.local_network import free_ports

BINARIES = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)), Path("/nowhere"))


def has_user() -> bool:
    try:
        return os.geteuid() != 0 or bool(pwd.getpwnam("postgres"))
    except KeyError:
        return False


pytestmark = pytest.mark.skipif(
    not ((BINARIES / "postgres").exists() and POSTGRES_JAR.exists() and has_user()),
    reason="PostgreSQL is not installed here: apt-get install postgresql libpostgresql-jdbc-java",
)


class Postgres:
    """A server with a database of its own, which anybody on this machine may use."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="trimtab-postgres-", dir="/var/tmp"))
        (self.port,) = free_ports(1)
        self._before: list[str] = []
        if os.geteuid() == 0:
            shutil.chown(self._folder, "postgres")
            self._before = ["runuser", "-u", "postgres", "--"]
        data = str(self._folder / "data")
        self._run("initdb", "-D", data, "-U", "shop", "--auth=trust", "-N")
        options = ["-p", str(self.port), "-k", str(self._folder), "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"]
        self._process = subprocess.Popen(
            [*self._before, str(BINARIES / "postgres"), "-D", data, *options],
            cwd=self._folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline_s = time.monotonic() + 60
        while subprocess.run(["pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)], check=False).returncode:
            assert time.monotonic() < deadline_s
            time.sleep(0.1)

    @property
    def url(self) -> str:
        return f"jdbc:postgresql://127.0.0.1:{self.port}/postgres"

    def sql(self, statements: str) -> None:
        where = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "shop", "-d", "postgres"]
        subprocess.run(["psql", "-q", "-v", "ON_ERROR_STOP=1", *where, "-c", statements], check=True)

    def _run(self, name: str, *arguments: str) -> None:
        command = [*self._before, str(BINARIES / name), *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=self._folder)

    def close(self) -> None:
        self._run("pg_ctl", "stop", "-D", str(self._folder / "data"), "-m", "immediate")
        self._process.wait()
        shutil.rmtree(self._folder)


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    postgres = Postgres()
    yield postgres
    postgres.close()


def wait_until(holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 90
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def test_new_rows_of_a_table_drive_channels_once_over_a_restart(
    spark: SparkViews, postgres: Postgres, tmp_path: Path
) -> None:
    postgres.sql(
        "CREATE TABLE orders (id bigint, item text, price numeric(8,2), at timestamptz DEFAULT now(), other int);"
        "INSERT INTO orders SELECT n, 'tea', n, now(), 0 FROM generate_series(1, 50) n"
    )
    with ActiveData(tmp_path, spark) as active:
        active.run(
            "CREATE ACTIVE DATASET Orders (id BIGINT, Item STRING, at TIMESTAMP) KEY id; CREATE BROKER B1 AT 'x'"
        )
        active.run("CREATE CONTINUOUS CHANNEL Of(item STRING) AS SELECT o.id FROM Orders o WHERE o.Item = :item")
        subscription = active.subscribe("Of", "B1", item="tea")
        feed = f"CREATE FEED orders INTO Orders FROM JDBC '{postgres.url}' TABLE 'orders' BY id EVERY 0.2 SECONDS"
        active.run(f"{feed} USER 'shop'; START FEED orders")
        wait_until(lambda: active.datasets["orders"].last_sequence == 50)
        postgres.sql("INSERT INTO orders VALUES (51, 'rice', 1), (52, 'tea', 1)")
        wait_until(lambda: active.datasets["orders"].last_sequence == 52)
        active.settle()
        assert [each.fields["id"] for each in active.results(subscription)] == [*range(1, 51), 52]
        (told,) = status(active).feeds
        assert (told.accepted_count, told.repeated_count, told.rejected_count, told.error) == (52, 0, 0, None)
        assert told.source == f"JDBC '{postgres.url}' TABLE 'orders' BY id"
    postgres.sql("INSERT INTO orders VALUES (53, 'tea', 1)")
    with ActiveData(tmp_path, spark) as active:
        wait_until(lambda: active.datasets["orders"].last_sequence == 53)
        assert status(active).feeds[0].repeated_count <= 1  # the last row before the restart is read again


def test_a_small_table_is_followed_as_a_whole_and_enriches_records(active: ActiveData, postgres: Postgres) -> None:
    postgres.sql("CREATE TABLE stock (item text, shelf text); INSERT INTO stock VALUES ('tea', 'A1'), ('rice', 'B2')")
    active.run("CREATE DATASET Stock (item STRING, shelf STRING) KEY item")
    active.run(f"CREATE FEED stock INTO Stock FROM JDBC '{postgres.url}' TABLE 'stock' EVERY 0.2 SECONDS USER 'shop'")
    active.run("START FEED stock")

    def shelves() -> list[tuple[str, str]]:
        rows = active.run("SELECT item, shelf FROM Stock ORDER BY item")[0].rows
        return [(row["item"], row["shelf"]) for row in rows]

    wait_until(lambda: shelves() == [("rice", "B2"), ("tea", "A1")])
    postgres.sql("UPDATE stock SET shelf = 'C3' WHERE item = 'tea'")
    wait_until(lambda: shelves() == [("rice", "B2"), ("tea", "C3")])
    assert active.catalog.feed("stock").accepted_count == 3


def test_what_is_wrong_is_said_and_tried_again(active: ActiveData, postgres: Postgres) -> None:
    active.run("CREATE DATASET Later (a STRING) KEY a")
    for source, said in (
        ("JDBC 'jdbc:h2:mem:x' TABLE 't'", "expected jdbc:postgresql://HOST"),
        (f"JDBC '{postgres.url}?socketFactory=x' TABLE 't'", "the parameter 'socketFactory' is not allowed"),
        (f"JDBC '{postgres.url}' TABLE 't; DROP TABLE t'", "is no name of a table or column"),
        (f"JDBC '{postgres.url}' TABLE 't' EVERY 0.001 SECONDS", "at most every 0.1 seconds"),
    ):
        with pytest.raises(StatementError) as caught:
            active.run(f"CREATE FEED f INTO Later FROM {source}")
        assert said in caught.value.reason
    active.run(f"CREATE FEED f INTO Later FROM JDBC '{postgres.url}' TABLE 'later' EVERY 0.2 SECONDS USER 'shop'")
    active.run("START FEED f")
    wait_until(lambda: "later" in (status(active).feeds[0].error or ""))
    assert "\n" not in (status(active).feeds[0].error or "")
    postgres.sql("CREATE TABLE later (a text); INSERT INTO later VALUES ('x')")
    wait_until(lambda: active.run("SELECT a FROM Later")[0].rows == [{"a": "x"}])
    wait_until(lambda: status(active).feeds[0].error is None)
