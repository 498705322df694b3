"""Feeds, datasets, channels and their results on Spark."""

from trimtab.activedata.active import ActiveData, Answer
from trimtab.activedata.errors import ActiveDataError, NotFoundError, StatementError, StorageError
from trimtab.activedata.execution.queries import QueryLimits
from trimtab.activedata.feeds.feeds import FeedAnswer
from trimtab.activedata.spark.session import SparkSettings
from trimtab.activedata.storage.results import Result

__all__ = [
    "ActiveData",
    "ActiveDataError",
    "Answer",
    "FeedAnswer",
    "NotFoundError",
    "QueryLimits",
    "Result",
    "SparkSettings",
    "StatementError",
    "StorageError",
]
