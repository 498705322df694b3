"""The network files, scenarios and programs that are installed with the package, and a network file to begin with."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Final

from trimtab.network.links.address import Address
from trimtab.network.network_file import NetworkFileError, read_network_file
from trimtab.network.network_plan import BrokerEntry, NetworkPlan

FIRST_ADDRESS: Final = Address("127.0.0.1", 7001)
"""Where a broker listens that needs no network file."""

_INSTALLED: Final = Path(__file__).parents[2] / "examples"
_IN_THE_SOURCES: Final = Path(__file__).parents[4] / "examples"

NEW_NETWORK: Final = """\
# A network of brokers: `trimtab up network.toml` starts them all on this host.
# Everything that is commented out has the value that is shown, unless it says otherwise.

[network]
# acknowledges = "received"   # or "safe" (two brokers have it), or "durable" (it is on disk, too)
# disk = ""                   # the folder for "durable"
# client_lease_s = 60.0       # a client that is away for longer loses its subscriptions
# silent_after_s = 5.0        # whoever says nothing for so long is asked, and given up after answer_within_s
# answer_within_s = 5.0
# slow_policy = "block"       # what a subscriber that reads too slowly brings about; or "drop-oldest", "disconnect"

# One section for each broker. A name is unique in the network.
[[broker]]
name = "B1"
listen = "127.0.0.1:7001"
# cpu_mhz = 2000              # no limit if missing; kept to with enforce_capacities = true in [network]
# memory_mb = 512
# bandwidth_mbps = 100

[[broker]]
name = "B2"
listen = "127.0.0.1:7002"

[[broker]]
name = "B3"
listen = "127.0.0.1:7003"

# Links make a tree: one way between any two brokers. The first broker of a link calls the second.
[[link]]
between = ["B1", "B2"]

[[link]]
between = ["B1", "B3"]
"""
"""What `trimtab init` writes."""


def one_broker() -> NetworkPlan:
    """The network that needs no file.

    >>> [(entry.name, str(entry.listen)) for entry in one_broker().brokers]
    [('B1', '127.0.0.1:7001')]
    """
    return NetworkPlan((BrokerEntry("B1", FIRST_ADDRESS),))


def examples_folder() -> Path:
    """Where the examples are: installed beside the package, or in the sources."""
    return _INSTALLED if _INSTALLED.is_dir() else _IN_THE_SOURCES


def all_examples() -> dict[str, Path]:
    """All examples by name, in the order of their names.

    >>> {"seven", "hotspot", "failover"} <= all_examples().keys()
    True
    """
    return {path.stem: path for path in sorted(examples_folder().iterdir()) if path.is_file() and path.name[0] != "."}


def network_examples() -> dict[str, Path]:
    """Those that `trimtab up` can start."""
    found: dict[str, Path] = {}
    for name, path in all_examples().items():
        if path.suffix == ".toml":
            with contextlib.suppress(NetworkFileError):
                read_network_file(path)
                found[name] = path
    return found


def subject_of(path: Path) -> str:
    """What an example shows, as its first line says."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return lines[0].strip("#-\" '").strip() if lines else ""


def copy_examples(folder: Path) -> list[Path]:
    """Copy all examples to a folder, which is made if it is missing; files that are there stay as they are."""
    folder.mkdir(parents=True, exist_ok=True)
    copied = []
    for path in all_examples().values():
        target = folder / path.name
        if not target.exists():
            shutil.copyfile(path, target)
            copied.append(target)
    return copied
