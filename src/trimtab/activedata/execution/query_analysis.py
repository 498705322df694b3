"""Says whether a user's query may run, by the plan that Spark's own parser makes of it, before anything runs.

A list of what is allowed, not of what is not: relations (the datasets that are known, and what the query itself names
in WITH), nodes of the plan, and functions. What a later Spark can do besides is refused until it stands here. So a
query reads no files by their paths, writes nothing, and calls no methods of Java.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from trimtab.activedata.errors import StatementError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CATALYST: Final = "org.apache.spark.sql.catalyst."
_LOGICAL: Final = f"{_CATALYST}plans.logical."
_ANALYSIS: Final = f"{_CATALYST}analysis."
_EXPRESSIONS: Final = f"{_CATALYST}expressions."
_EXPLAIN: Final = "org.apache.spark.sql.execution.command.ExplainCommand"

_PLAIN: Final = (
    "scala.",
    "java.",
    "org.apache.spark.sql.types.",
    "org.apache.spark.unsafe.",
    "org.apache.spark.sql.util.CaseInsensitiveStringMap",
    f"{_CATALYST}plans.JoinType",
    f"{_CATALYST}AliasIdentifier",
    f"{_CATALYST}FunctionIdentifier",
    f"{_EXPRESSIONS}GenericInternalRow",
)
"""Parts of nodes that do nothing by themselves."""

_JOIN_TYPES: Final = frozenset(
    f"{_CATALYST}plans.{name}"
    for name in (
        "Inner$", "Cross$", "LeftOuter$", "RightOuter$", "FullOuter$", "LeftSemi$", "LeftAnti$", "NaturalJoin",
        "UsingJoin",
    )
)  # fmt: skip

_PLANS: Final = frozenset(
    f"{_LOGICAL}{name}"
    for name in (
        "Aggregate", "Deduplicate", "Distinct", "Except", "Filter", "Generate", "GlobalLimit", "Intersect", "Join",
        "JoinHint", "LateralJoin", "LocalLimit", "LocalRelation", "Offset", "OneRowRelation", "OneRowRelation$",
        "Pivot", "Project", "RepartitionByExpression", "Sample", "SampleMethod$Bernoulli$", "SampleMethod$System$",
        "Sort", "SubqueryAlias", "Tail", "Union", "UnresolvedHint", "UnresolvedWith", "Unpivot", "Window",
        "WithWindowDefinition",
    )
)  # fmt: skip

_ANALYSED: Final = frozenset(
    f"{_ANALYSIS}{name}"
    for name in (
        "MultiAlias", "NamedParameter", "PosParameter", "UnresolvedAlias", "UnresolvedAttribute",
        "UnresolvedExtractValue", "UnresolvedFunction", "UnresolvedGenerator", "UnresolvedHaving",
        "UnresolvedInlineTable", "UnresolvedOrdinal", "UnresolvedRegex", "UnresolvedRelation", "UnresolvedStar",
        "UnresolvedStarExceptOrReplace", "UnresolvedSubqueryColumnAliases", "UnresolvedTVFAliases",
        "UnresolvedTableValuedFunction",
    )
)  # fmt: skip

_REFUSED_EXPRESSIONS: Final = (f"{_EXPRESSIONS}objects.", f"{_EXPRESSIONS}CallMethodViaReflection")

_FUNCTION_GROUPS: Final = frozenset(
    {
        "agg_funcs", "array_funcs", "bitwise_funcs", "collection_funcs", "conditional_funcs", "conversion_funcs",
        "csv_funcs", "datetime_funcs", "generator_funcs", "hash_funcs", "json_funcs", "lambda_funcs", "map_funcs",
        "math_funcs", "predicate_funcs", "sketch_funcs", "st_funcs", "string_funcs", "struct_funcs", "url_funcs",
        "variant_funcs", "vector_funcs", "window_funcs",
    }
)  # fmt: skip
"""Groups of Spark's functions that compute and do nothing else."""

_MORE_FUNCTIONS: Final = frozenset(
    {
        "aes_decrypt", "aes_encrypt", "assert_true", "bitmap_bit_position", "bitmap_bucket_number", "bitmap_count",
        "hmac", "monotonically_increasing_id", "raise_error", "try_aes_decrypt", "typeof", "uuid",
    }
)  # fmt: skip
"""Functions of the remaining groups that may be used; `reflect` and those that tell of files may not."""

_TABLE_FUNCTIONS: Final = frozenset(
    {
        "explode", "explode_outer", "inline", "inline_outer", "json_tuple", "posexplode", "posexplode_outer", "range",
        "stack", "variant_explode", "variant_explode_outer",
    }
)  # fmt: skip

_HINTS: Final = frozenset(
    {"BROADCAST", "BROADCASTJOIN", "MAPJOIN", "MERGE", "MERGEJOIN", "SHUFFLE_HASH", "SHUFFLE_MERGE", "SHUFFLEMERGE"}
)

RANGE_ARGUMENTS_MAX_COUNT: Final = 3
"""The fourth argument of `range` would say how many tasks there are."""

DEPTH_MAX: Final = 250


def check_query(
    session: SparkSession,
    query: str,
    relations: Set[str],
    functions: Set[str] = frozenset({"distance"}),
) -> None:
    """Refuse a query that does more than read these relations; names are in lower case.

    The mistake is told by its position in the query. What Spark cannot parse raises Spark's own error.
    """
    plan = session._jsparkSession.sessionState().sqlParser().parsePlan(query)
    _Analysis(session, query, functions).check(plan, frozenset(relations))


@cache
def _is_harmless(session: SparkSession, name: str) -> bool:
    """Whether a function is Spark's own and does nothing but compute."""
    if name in _MORE_FUNCTIONS:
        return True
    registry = session._jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry  # type: ignore[union-attr]
    found = registry.expressions().get(name)
    return bool(found.isDefined()) and str(found.get()._1().getGroup()) in _FUNCTION_GROUPS


class _Analysis:
    def __init__(self, session: SparkSession, query: str, functions: Set[str]) -> None:
        self._session = session
        self._query = query
        self._functions = functions

    def check(self, plan: Any, relations: frozenset[str]) -> None:
        """Check a whole statement; EXPLAIN may stand before a query."""
        if _class_of(plan) == _EXPLAIN:
            plan = plan.productElement(0)
        self._node(plan, relations, 0, 0)

    def _node(self, node: Any, relations: frozenset[str], position: int, depth: int) -> None:
        if node is None or isinstance(node, (str, int, float, bool, bytes, bytearray)) or not hasattr(node, "getClass"):
            return
        if depth > DEPTH_MAX:
            raise self._refused(position, f"a query is nested at most {DEPTH_MAX} deep")
        name = _class_of(node)
        if name.startswith("scala."):
            for each in _parts(node, name):
                self._node(each, relations, position, depth + 1)
            return
        if name.startswith(_PLAIN) or name in _JOIN_TYPES:
            if name in _JOIN_TYPES:
                self._children(node, relations, position, depth)
            return
        position = _position(node, position)
        if not (
            name in _PLANS
            or name in _ANALYSED
            or (name.startswith(_EXPRESSIONS) and not name.startswith(_REFUSED_EXPRESSIONS))
        ):
            raise self._refused(position, f"{_said(name)} is not allowed in a query")
        match name.rpartition(".")[2]:
            case "UnresolvedRelation":
                self._check_relation(node, relations, position)
            case "UnresolvedFunction" | "UnresolvedTableValuedFunction":
                names = [str(each) for each in _elements(node.productElement(0))]
                is_table = name.endswith("TableValuedFunction")
                self._check_function(names, is_table, position)
                if is_table and node.productElement(1).size() > RANGE_ARGUMENTS_MAX_COUNT and names == ["range"]:
                    raise self._refused(position, "range has at most three arguments here")
            case "UnresolvedGenerator":
                self._check_function([str(node.productElement(0).productElement(0))], True, position)
            case "UnresolvedHint" if str(node.productElement(0)).upper() not in _HINTS:
                raise self._refused(position, f"the hint {node.productElement(0)} is not allowed")
            case "UnresolvedWith":
                self._with(node, relations, position, depth)
                return
        self._children(node, relations, position, depth)

    def _children(self, node: Any, relations: frozenset[str], position: int, depth: int) -> None:
        for index in range(node.productArity()):
            self._node(node.productElement(index), relations, position, depth + 1)

    def _with(self, node: Any, relations: frozenset[str], position: int, depth: int) -> None:
        """The queries of WITH see those before them, and what follows sees them all."""
        for each in _elements(node.productElement(1)):
            name = str(each._1()).lower()
            self._node(each._2(), relations | ({name} if node.productElement(2) else set()), position, depth + 1)
            relations |= {name}
        self._node(node.productElement(0), relations, position, depth + 1)

    def _check_relation(self, node: Any, relations: frozenset[str], position: int) -> None:
        names = [str(each) for each in _elements(node.productElement(0))]
        if not node.productElement(1).isEmpty():
            raise self._refused(position, "a dataset is read without options")
        if len(names) == 1 and names[0].lower() in relations:
            return
        shown = ".".join(names)
        if len(names) > 1:
            raise self._refused(position, f"only datasets can be read; {shown!r} is none")
        known = ", ".join(sorted(each for each in relations if not each.startswith("_"))) or "none"
        raise self._refused(position, f"there is no dataset {shown!r}; there are: {known}")

    def _check_function(self, names: list[str], is_table: bool, position: int) -> None:
        name = ".".join(names).lower()
        if is_table:
            is_allowed = name in _TABLE_FUNCTIONS
        else:
            is_allowed = name in self._functions or _is_harmless(self._session, name)
        if not is_allowed:
            raise self._refused(position, f"the function {name} does not exist here or is not allowed")

    def _refused(self, position: int, reason: str) -> StatementError:
        return StatementError(self._query, position, reason)


def _class_of(node: Any) -> str:
    return str(node.getClass().getName())


def _parts(node: Any, name: str) -> Iterator[Any]:
    """What a collection, an option or a tuple of Scala holds."""
    if name.startswith("scala.collection."):
        yield from _elements(node)
    elif name.startswith(("scala.Some", "scala.Tuple", "scala.util.")):
        for index in range(node.productArity()):
            yield node.productElement(index)


def _elements(collection: Any) -> Iterator[Any]:
    iterator = collection.iterator()
    while iterator.hasNext():
        yield iterator.next()


def _position(node: Any, otherwise: int) -> int:
    """Where a node stands in the query; parts of nodes do not know."""
    from py4j.protocol import Py4JError

    try:
        found = node.origin().startIndex()
    except Py4JError:
        return otherwise
    return int(found.get()) if found.isDefined() else otherwise


def _said(class_name: str) -> str:
    """A node by its short name."""
    return class_name.rpartition(".")[2].partition("$")[0]
