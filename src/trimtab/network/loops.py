"""The event loop of the network world: uvloop where it is installed."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run to the end in a new event loop."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(work)


def run_aside(work: Coroutine[Any, Any, Result]) -> Result:
    """Run to the end in a thread of its own: for who is called where a loop runs already, as in a notebook."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(asyncio.run, work).result()


def new_loop() -> asyncio.AbstractEventLoop:
    """A new event loop."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
