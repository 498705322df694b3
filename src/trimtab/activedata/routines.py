"""Functions and procedures that users define: kept in the catalog, made again in each session of Spark."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from trimtab.activedata.definitions.checks import checked_arguments
from trimtab.activedata.definitions.fields import ValueMistake, example_value
from trimtab.activedata.definitions.routines import CreateFunction, CreateProcedure, Execute, with_arguments
from trimtab.activedata.errors import ActiveDataError, NotFoundError, StatementError
from trimtab.activedata.execution.query_analysis import check_query
from trimtab.activedata.spark.errors import placed_error
from trimtab.activedata.spark.views import SparkViews
from trimtab.activedata.storage.catalog import Catalog

logger = logging.getLogger(__name__)

FUNCTION: Final = "FUNCTION"
PROCEDURE: Final = "PROCEDURE"


class Routines:
    """The functions and procedures of a directory; procedures with a period run in a thread of their own."""

    def __init__(self, catalog: Catalog, views: SparkViews, run: Callable[[str], Any]) -> None:
        self._catalog = catalog
        self._views = views
        self._run = run
        self._stopped = threading.Event()
        self._changed = threading.Event()
        self._thread = threading.Thread(target=self._work, name="procedures", daemon=True)
        self.errors: dict[str, str] = {}
        """Why procedures failed that run by themselves."""
        for each in self.functions():
            views.add_function(each.name, each.sql)

    def start(self) -> None:
        """Run procedures from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the procedure that is running."""
        self._stopped.set()
        self._changed.set()
        self._thread.join()

    def functions(self) -> list[CreateFunction]:
        """The functions that were defined by statements."""
        return [msgspec.json.decode(text, type=CreateFunction) for text in self._catalog.routines(FUNCTION)]

    def procedures(self) -> list[CreateProcedure]:
        """The procedures."""
        return [msgspec.json.decode(text, type=CreateProcedure) for text in self._catalog.routines(PROCEDURE)]

    def create_function(self, each: CreateFunction, text: str) -> str:
        """Define a function, which queries and channels may call from then on."""
        from pyspark.errors import PySparkException

        if each.name.lower() in self._views.function_names:
            raise StatementError(text, each.position, f"there is a function {each.name!r} already")
        known = self._views.session.sql(f"SHOW SYSTEM FUNCTIONS '{each.name.lower()}'").count()
        if known:
            raise StatementError(text, each.position, f"Spark has a function {each.name!r} already")
        shift, length = each.expression_start, len(each.expression)
        try:
            check_query(
                self._views.session, f"SELECT {each.expression}", frozenset(), functions=self._views.function_names
            )
            self._views.add_function(each.name, each.sql)
        except StatementError as error:
            raise StatementError(text, shift + max(0, error.position - len("SELECT ")), error.reason) from None
        except PySparkException as error:
            raise StatementError(text, shift, placed_error(error, text, shift, length).reason) from None
        self._catalog.add_routine(FUNCTION, each.name, msgspec.json.encode(each).decode())
        return f"function {each.name} created"

    def create_procedure(self, each: CreateProcedure, text: str) -> str:
        """Define a procedure; its statement is read with values of its parameters' types."""
        from trimtab.activedata.definitions.statements import parse_statements

        if any(each.name.lower() == known.name.lower() for known in self.procedures()):
            raise StatementError(text, each.position, f"there is a procedure {each.name!r} already")
        values = {field.name: _plain(example_value(field.type)) for field in each.parameters}
        try:
            parse_statements(with_arguments(each.body, values))
        except StatementError as error:
            raise StatementError(text, each.body_start, error.reason) from None
        self._catalog.add_routine(PROCEDURE, each.name, msgspec.json.encode(each).decode())
        self._changed.set()
        every = "" if each.period_s is None else f", which runs every {each.period_s:g} s,"
        return f"procedure {each.name}{every} created"

    def execute(self, each: Execute) -> Any:
        """Run a procedure with arguments; answers what its statement answers."""
        procedure = self._procedure(each.procedure)
        names = [field.name for field in procedure.parameters]
        if each.positional and len(each.positional) != len(names):
            said = f"{procedure.name} takes {len(names)} arguments ({', '.join(names)})"
            raise ValueMistake(f"{said}, {len(each.positional)} are given")
        given = dict(zip(names, each.positional, strict=True)) if each.positional else each.named
        arguments = checked_arguments(procedure.name, procedure.parameters, given)
        (answer,) = self._run(with_arguments(procedure.body, arguments))
        return answer

    def drop(self, kind: str, name: str) -> str:
        """Forget a function or a procedure; what depends on it must be gone."""
        known = self.functions() if kind == FUNCTION else self.procedures()
        found = next((each for each in known if each.name.lower() == name.lower()), None)
        if found is None:
            there = ", ".join(each.name for each in known) or "none"
            raise NotFoundError(f"there is no {kind.lower()} {name!r}; there are: {there}")
        if kind == FUNCTION:
            users = [each.name for each in self._catalog.channels() if f"{name.lower()}(" in _dense(each.body)]
            users += [each.name for each in self.functions() if f"{name.lower()}(" in _dense(each.expression)]
            if users:
                raise ValueMistake(f"{found.name} cannot be dropped: {', '.join(users)} depend on it")
            self._views.remove_function(found.name)
        self._catalog.remove_routine(kind, found.name)
        self._changed.set()
        return f"{kind.lower()} {found.name} dropped"

    def _procedure(self, name: str) -> CreateProcedure:
        for each in self.procedures():
            if each.name.lower() == name.lower():
                return each
        known = ", ".join(each.name for each in self.procedures()) or "none"
        raise NotFoundError(f"there is no procedure {name!r}; there are: {known}")

    def _work(self) -> None:
        due_s: dict[str, float] = {}
        while not self._stopped.is_set():
            self._changed.clear()
            periods = {each.name: each.period_s for each in self.procedures() if each.period_s is not None}
            now_s = time.monotonic()
            due_s = {name: due_s.get(name, now_s + period_s) for name, period_s in periods.items()}
            for name, at_s in due_s.items():
                if at_s <= now_s and not self._stopped.is_set():
                    self._run_by_itself(name)
                    due_s[name] = max(at_s + periods[name], time.monotonic())
            next_s = min(due_s.values(), default=None)
            self._changed.wait(None if next_s is None else max(0.0, next_s - time.monotonic()))

    def _run_by_itself(self, name: str) -> None:
        try:
            self.execute(Execute(name, (), {}))
            self.errors.pop(name, None)
        except (ActiveDataError, ValueMistake) as error:
            self.errors[name] = str(error)
            logger.warning("procedure %s: %s", name, error)
        except Exception as error:  # Spark's own, which the next period may not meet again
            self.errors[name] = str(error)
            logger.exception("procedure %s", name)


def _dense(text: str) -> str:
    return "".join(text.lower().split())


def _plain(value: object) -> Any:
    return value if isinstance(value, (str, int, float)) or value is None else str(value)


PythonFunctions = Mapping[str, tuple[Callable[..., Any], str]]
"""By name: functions of Python, and the types in Spark's words that they return."""
