"""What a directory of active data holds: the catalog, and the tables of datasets, results and dead letters."""

from __future__ import annotations

import fcntl
import shutil
from pathlib import Path
from urllib.parse import unquote, urlsplit

from trimtab.activedata.errors import ActiveDataError, StorageError
from trimtab.activedata.storage.catalog import DROPPED_KIND, Catalog
from trimtab.activedata.storage.catalog_entries import DatasetEntry
from trimtab.activedata.storage.datasets import StoredDataset
from trimtab.activedata.storage.dead_letters import DeadLetters
from trimtab.activedata.storage.durable_files import make_folder
from trimtab.activedata.storage.results import Results


def storage_folder(where: str | Path) -> Path:
    """The folder that a path or a `file:` address names; all workers must see it under the same path.

    >>> storage_folder("file:///shared/city")
    PosixPath('/shared/city')
    >>> storage_folder("s3://bucket/city")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    trimtab.activedata.errors.ActiveDataError: s3://bucket/city: data is kept in a folder that this process and all ...
    """
    parts = urlsplit(str(where))
    if not parts.scheme or len(parts.scheme) == 1:
        return Path(where)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise ActiveDataError(
            f"{where}: data is kept in a folder that this process and all workers share, a path or file:/PATH"
        )
    return Path(unquote(parts.path))


class StoredData:
    """A directory that this process alone has open.

    What the disk has lost or damaged is refused by a StorageError that names it; nothing is changed then.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        make_folder(directory)
        self._lock_file = (directory / "lock").open("w")
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock_file.close()
            raise ActiveDataError(f"{directory} is in use by another process") from None
        try:
            self._open()
        except ActiveDataError:
            self._lock_file.close()
            raise

    def _open(self) -> None:
        self.catalog = Catalog(self._found_catalog())
        try:
            self.results = Results(self._directory / "results", self.catalog)
            self.dead_letters = DeadLetters(self._directory / "dead_letters", self.catalog)
            self.datasets: dict[str, StoredDataset] = {}
            for entry in self.catalog.datasets():
                self.open_dataset(entry)
            self.remove_dropped()
        except ActiveDataError:
            self.catalog.close()
            raise

    def _found_catalog(self) -> Path:
        """Where the catalog is; it must not begin anew beside tables that it belongs to."""
        path = self._directory / "catalog.sqlite"
        tables = [*self._directory.glob("*/_delta_log"), *self._directory.glob("datasets/*/_delta_log")]
        if tables and not (path.exists() and path.stat().st_size):
            raise StorageError(
                f"{path} is missing or empty, and there are tables that it belongs to, {tables[0].parent} for one: "
                f"restore the whole directory {self._directory} from a backup, or begin with an empty one"
            )
        return path

    def open_dataset(self, entry: DatasetEntry) -> StoredDataset:
        """Open a dataset that the catalog knows; its table is made if it is new."""
        dataset = StoredDataset(entry, self._directory / "datasets" / f"{entry.name}-{entry.id}", self.catalog)
        self.datasets[entry.name.lower()] = dataset
        return dataset

    def remove_dropped(self) -> None:
        """Remove the files of datasets that were dropped; what a crash left of them goes at the next start."""
        for number, name in self.catalog.dropped_folders().items():
            for folder in (self._directory / "datasets" / name, self._directory / "keys" / name):
                shutil.rmtree(folder, ignore_errors=True)
            self.catalog.set_note(DROPPED_KIND, number, None)

    def close(self) -> None:
        """Let another process open the directory."""
        self.catalog.close()
        self._lock_file.close()
