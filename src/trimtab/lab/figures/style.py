"""How figures look, and where they are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from trimtab.protocol.records import RecordsError

COLOURS: Final = ("#0b6e99", "#d9730d", "#0f7b6c", "#ad1a72", "#6940a5", "#dfab01", "#64473a", "#9b9a97")
"""For brokers in their order; told apart in print and by most eyes."""


class MissingMatplotlibError(RecordsError):
    """matplotlib is not installed; the message says how to install it."""


def pyplot() -> Any:
    """matplotlib without a screen."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise MissingMatplotlibError("figures need matplotlib: pip install 'trimtab[lab]'") from None
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update(
        {
            "figure.figsize": (7.2, 3.8),
            "figure.dpi": 100,
            "font.size": 10,
            "axes.titlesize": 11,
            "axes.titleweight": "bold",
            "axes.titlelocation": "left",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.color": "#e6e6e6",
            "grid.linewidth": 0.8,
            "axes.axisbelow": True,
            "lines.linewidth": 1.4,
            "legend.frameon": False,
            "svg.hashsalt": "trimtab",
        }
    )
    return plt


def save(figure: Any, folder: Path, name: str) -> Path:
    """Write a figure as a small PNG."""
    path = folder / f"{name}.png"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=110, metadata={"Software": "trimtab"})
    except OSError as error:
        raise RecordsError(f"{path}: cannot be written: {error.strerror or error}") from None
    return path


def legend_beside(axes: Any) -> None:
    """A legend to the right of the picture, where it hides nothing."""
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=1.4)
