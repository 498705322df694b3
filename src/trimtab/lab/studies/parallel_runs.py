"""Simulations at the same time, each in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any, TypeVar

Result = TypeVar("Result")


def run_in_parallel(
    run: Callable[..., Result],
    jobs: Sequence[tuple[Any, ...]],
    processes_count: int | None = None,
    on_result: Callable[[Result, int, int], None] | None = None,
) -> list[Result]:
    """The results in the order of the jobs; `on_result` hears of each when it comes, how many are over and how many
    there are. All cores are used unless a number is given; a mistake ends the others too."""
    results: dict[int, Result] = {}
    with ProcessPoolExecutor(
        min(len(jobs), processes_count or os.cpu_count() or 1), mp_context=get_context("spawn")
    ) as pool:
        places = {pool.submit(run, *job): place for place, job in enumerate(jobs)}
        try:
            for future in as_completed(places):
                results[places[future]] = future.result()
                if on_result is not None:
                    on_result(future.result(), len(results), len(jobs))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [results[place] for place in range(len(jobs))]
