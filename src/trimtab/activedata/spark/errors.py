"""What Spark's errors mean here: a mistake in a text, a value that a query fails on, or a Spark that is gone."""

from __future__ import annotations

import re
from typing import Final

from trimtab.activedata.errors import StatementError
from trimtab.activedata.execution.result_tasks import TOO_MANY_RESULTS

_AT: Final = re.compile(r"\(line (\d+), pos (\d+)\)")
_DATA_EXCEPTION: Final = "22"
"""SQL states of this class (division by zero, a text that is no number) come from values, not from the query."""

_TOO_LARGE: Final = (
    TOO_MANY_RESULTS,
    "OutOfMemoryError",
    "Java heap space",
    "GC overhead limit",
    "maxResultSize",
    "OUT_OF_MEMORY",
    "was cancelled",
    "CANCELLED",
    "cancelled part of",
)


def is_data_mistake(error: BaseException) -> bool:
    """Whether a query failed because of a value in a record."""
    from pyspark.errors import PySparkException, PythonException

    if not isinstance(error, PySparkException):
        return False
    if isinstance(error, PythonException) or "PythonException" in str(error):
        return True  # a function of the user's that failed on a value
    state = error.getSqlState()
    if state is None:
        found = re.search(r"SQLSTATE: (\w{5})", str(error))
        state = found[1] if found else ""
    return state.startswith(_DATA_EXCEPTION)


def is_spark_gone(error: BaseException) -> bool:
    """Whether the Java process, or its connection, is gone."""
    from py4j.protocol import Py4JJavaError, Py4JNetworkError

    if isinstance(error, (Py4JNetworkError, ConnectionError, EOFError)):
        return True
    if isinstance(error, Py4JJavaError) or not isinstance(error, Exception):
        return False
    text = str(error)
    return (
        "stopped SparkContext" in text
        or "SparkContext was shut down" in text
        or "Answer from Java side is empty" in text
    )


def spark_reason(error: BaseException) -> str:
    """The first line of what Spark says, without its stack."""
    from pyspark.errors import PySparkException

    text = str(error)
    if isinstance(error, PySparkException):
        text = error.getMessage() or text
    found = re.search(r"\[[A-Z_.0-9]+\][^\n]*", text)
    return (found[0] if found else text.strip().split("\n")[0])[:500]


def placed_error(error: BaseException, text: str, shift: int, length: int) -> StatementError:
    """A mistake that Spark found in a part of a statement, told by its position in the statement."""
    from pyspark.errors import PySparkException
    from pyspark.errors.exceptions.base import QueryContextType

    position = 0
    if isinstance(error, PySparkException):
        contexts = [each for each in error.getQueryContext() if each.contextType() == QueryContextType.SQL]
        if contexts:
            position = max(0, int(contexts[0].startIndex()))
        else:
            found = _AT.search(str(error))
            if found:
                lines = text[shift : shift + length].split("\n")
                position = sum(len(line) + 1 for line in lines[: int(found[1]) - 1]) + int(found[2])
    reason = re.sub(r" ?SQLSTATE: \w{5}", "", spark_reason(error)).strip()
    return StatementError(text, shift + min(position, length), reason)


def is_too_large(error: BaseException) -> bool:
    """Whether a query found more than fits into a task or a process."""
    text = str(error)
    return any(each in text for each in _TOO_LARGE)


def is_statement_mistake(error: BaseException) -> bool:
    """Whether Spark cannot plan a query, whatever its records are."""
    from pyspark.errors import AnalysisException, ParseException

    return isinstance(error, (AnalysisException, ParseException))
