"""What fields files have, as Spark finds them by looking at their records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trimtab.activedata.definitions.fields import ValueMistake
from trimtab.activedata.execution.bulk import known_path
from trimtab.activedata.spark.errors import spark_reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

_NAMES: Final = {
    "string": "STRING",
    "tinyint": "INT",
    "smallint": "INT",
    "int": "INT",
    "bigint": "BIGINT",
    "float": "DOUBLE",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "timestamp": "TIMESTAMP",
    "timestamp_ntz": "TIMESTAMP",
    "date": "DATE",
    "void": "STRING",
}


def inferred_fields(session: SparkSession, path: str, file_format: str) -> dict[str, str]:
    """The names and types of the fields in files, types as statements write them."""
    from pyspark.errors import PySparkException

    reader = session.read
    where = known_path(path)
    try:
        if file_format == "PARQUET":
            frame = reader.parquet(where)
        elif file_format == "CSV":
            frame = reader.option("header", True).option("inferSchema", True).option("escape", '"').csv(where)
        else:
            frame = reader.json(where)
    except PySparkException as error:
        raise ValueMistake(f"{path}: {spark_reason(error)}") from None
    fields = [field for field in frame.schema.fields if field.name != "_corrupt_record"]
    if not fields:
        raise ValueMistake(f"no fields are found in {path}")
    return {field.name: _type_text(field.name, field.dataType) for field in fields}


def _type_text(name: str, kind: DataType) -> str:
    from pyspark.sql.types import ArrayType, DecimalType, StructType

    match kind:
        case ArrayType():
            return f"ARRAY<{_type_text(name, kind.elementType)}>"
        case StructType():
            members = ", ".join(f"{each.name}: {_type_text(name, each.dataType)}" for each in kind.fields)
            return f"STRUCT<{members}>"
        case DecimalType():
            return f"DECIMAL({kind.precision}, {kind.scale})"
    text = _NAMES.get(kind.simpleString())
    if text is None:
        raise ValueMistake(f"the field {name!r} is of the type {kind.simpleString()}, which datasets do not have")
    return text
