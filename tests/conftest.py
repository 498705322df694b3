"""Settings for all tests."""

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

# A failing example is printed with the line that replays it; slow machines do not make tests fail.
settings.register_profile("trimtab", print_blob=True, deadline=None)
settings.load_profile("trimtab")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Tests that need Spark run in one worker, so that one Spark is started; all others run where there is room."""
    return _SparkInOneWorker(config, log)


class _SparkInOneWorker(LoadScopeScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> str:
        return "spark" if nodeid.startswith("tests/activedata/") else nodeid
