"""The network that the tests of this folder share."""

import os
from collections.abc import Iterator

import pytest

from tests.network.security.secure_network import SecureNetwork
from trimtab.network.admin.local_network import Network


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> SecureNetwork:
    return SecureNetwork(tmp_path_factory.mktemp("secure"))


@pytest.fixture(scope="module")
def network(secure: SecureNetwork) -> Iterator[Network]:
    with secure.running() as network:
        yield network


@pytest.fixture(scope="module", autouse=True)
def own_environment() -> Iterator[None]:
    before = os.environ.pop("TRIMTAB_AS", None)
    yield
    os.environ.pop("TRIMTAB_AS", None)
    if before is not None:
        os.environ["TRIMTAB_AS"] = before
