"""The matching engines that are built here."""

from typing import Final, Literal

from trimtab.matching.engines import kernel_is_built

ENGINES: Final[tuple[Literal["kernel", "python"], ...]] = ("python", "kernel") if kernel_is_built() else ("python",)
