"""Feeds, datasets, channels and their results on Spark."""

from trimtab.activedata.active import ActiveData, Answer
from trimtab.activedata.errors import ActiveDataError, NotFoundError, StatementError, StorageError
from trimtab.activedata.feeds import FeedAnswer
from trimtab.activedata.results import Result
from trimtab.activedata.spark import SparkSettings

__all__ = [
    "ActiveData",
    "ActiveDataError",
    "Answer",
    "FeedAnswer",
    "NotFoundError",
    "Result",
    "SparkSettings",
    "StatementError",
    "StorageError",
]
