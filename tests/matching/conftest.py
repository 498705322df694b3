"""Every test that asks for an engine runs with each engine that is built here."""

from typing import Literal

import pytest

from tests.matching.engines_built import ENGINES


@pytest.fixture(scope="session", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Literal["kernel", "python"]:
    """The name of a matching engine."""
    assert request.param in ("kernel", "python")
    return "kernel" if request.param == "kernel" else "python"
