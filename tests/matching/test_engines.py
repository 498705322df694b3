"""Which engine is used, and how that is decided."""

import pytest

from tests.matching.engines_built import ENGINES
from trimtab.matching import Matcher
from trimtab.matching import engines as engines_module
from trimtab.matching.engines import ENGINE_VARIABLE, EngineError, choose_engine


def test_the_kernel_is_taken_where_it_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENGINE_VARIABLE, raising=False)
    assert Matcher().engine == ("kernel" if "kernel" in ENGINES else "python")


def test_the_environment_may_ask_for_the_engine_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENGINE_VARIABLE, "python")
    assert Matcher().engine == "python"


def test_an_engine_that_is_named_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENGINE_VARIABLE, "kernel")
    assert Matcher("python").engine == "python"


def test_without_the_kernel_the_engine_in_python_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENGINE_VARIABLE, raising=False)
    monkeypatch.setattr(engines_module, "kernel_is_built", lambda: False)
    assert choose_engine() == "python"


def test_a_kernel_that_is_asked_for_and_missing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines_module, "kernel_is_built", lambda: False)
    with pytest.raises(EngineError, match="kernel is not built"):
        choose_engine("kernel")


def test_an_unknown_engine_in_the_environment_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENGINE_VARIABLE, "steam")
    with pytest.raises(EngineError, match="'steam'"):
        choose_engine()
