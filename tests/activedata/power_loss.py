"""What is on a disk after a loss of power: rebuilt from what a process had synced (`power_loss.c`) when it was killed.

Two disks are rebuilt. One has only what was synced. The other has all names as they were at last, and of content that
was not synced a part.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from random import Random


def compiler() -> str | None:
    """The C compiler, if there is one."""
    return shutil.which("cc") or shutil.which("gcc")


def make_recorder(folder: Path) -> Path:
    """Compile the library that records."""
    library = folder / "power_loss.so"
    source = Path(__file__).with_name("power_loss.c")
    subprocess.run([compiler() or "cc", "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


def recording(library: Path, root: Path, image: Path) -> dict[str, str]:
    """The environment of a process whose syncs below a folder are recorded."""
    image.mkdir()
    return {"LD_PRELOAD": str(library), "POWER_LOSS_ROOT": str(root), "POWER_LOSS_IMAGE": str(image)}


def rebuild_synced(image: Path, root: Path, target: Path) -> None:
    """Make a folder as the disk has it that lost everything that was not synced."""
    folders: dict[str, list[str]] = {}
    root_key = ""
    for path in image.glob("folder-*[0-9]"):
        first, *lines = path.read_text().splitlines()
        folders[path.name.removeprefix("folder-")] = lines
        if first == f"p {root}":
            root_key = path.name.removeprefix("folder-")

    def rebuild(key: str, folder: Path) -> None:
        folder.mkdir()
        for line in folders.get(key, []):
            kind, entry, name = line.split(" ", 2)
            if kind == "d":
                rebuild(entry, folder / name)
            else:
                content = image / f"file-{entry}"
                (folder / name).write_bytes(content.read_bytes() if content.exists() else b"")

    rebuild(root_key, target)


def rebuild_torn(image: Path, root: Path, target: Path, draw: Random) -> None:
    """Make a folder as the disk has it that wrote names soon and content late."""
    shutil.copytree(root, target)
    for path in sorted(target.rglob("*")):
        if path.is_file():
            now = path.read_bytes()
            synced = _synced_content(image, root / path.relative_to(target))
            if not now.startswith(synced):  # written in place
                path.write_bytes(synced)
            elif len(now) > len(synced):
                kept = draw.choice([len(synced), draw.randrange(len(synced), len(now))])
                path.write_bytes(now[:kept] + bytes(draw.choice([0, len(now) - kept])))


def _synced_content(image: Path, file: Path) -> bytes:
    newest = max(
        image.glob(f"file-{file.stat().st_ino}-*[0-9]"), key=lambda path: path.stat().st_mtime_ns, default=None
    )
    return b"" if newest is None else newest.read_bytes()
