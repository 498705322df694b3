"""Aggregate functions and windows in a channel's own SELECT, which must mean: per subscription and per execution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from trimtab.activedata.definitions.bodies import closed_part
from trimtab.activedata.definitions.tokens import Token

AGGREGATES: Final = frozenset(
    [
        "any",
        "any_value",
        "approx_count_distinct",
        "approx_percentile",
        "approx_top_k",
        "approx_top_k_accumulate",
        "approx_top_k_combine",
        "array_agg",
        "avg",
        "bit_and",
        "bit_or",
        "bit_xor",
        "bitmap_and_agg",
        "bitmap_construct_agg",
        "bitmap_or_agg",
        "bool_and",
        "bool_or",
        "collect_list",
        "collect_set",
        "collect_union",
        "corr",
        "count",
        "count_if",
        "count_min_sketch",
        "covar_pop",
        "covar_samp",
        "every",
        "first",
        "first_value",
        "grouping",
        "grouping_id",
        "histogram_numeric",
        "hll_sketch_agg",
        "hll_union_agg",
        "kll_merge_agg_bigint",
        "kll_merge_agg_double",
        "kll_merge_agg_float",
        "kll_sketch_agg_bigint",
        "kll_sketch_agg_double",
        "kll_sketch_agg_float",
        "kurtosis",
        "last",
        "last_value",
        "listagg",
        "max",
        "max_by",
        "mean",
        "measure",
        "median",
        "min",
        "min_by",
        "mode",
        "percentile",
        "percentile_approx",
        "percentile_cont",
        "percentile_disc",
        "regr_avgx",
        "regr_avgy",
        "regr_count",
        "regr_intercept",
        "regr_r2",
        "regr_slope",
        "regr_sxx",
        "regr_sxy",
        "regr_syy",
        "skewness",
        "some",
        "std",
        "stddev",
        "stddev_pop",
        "stddev_samp",
        "string_agg",
        "sum",
        "theta_intersection_agg",
        "theta_sketch_agg",
        "theta_union_agg",
        "try_avg",
        "try_sum",
        "tuple_intersection_agg_double",
        "tuple_intersection_agg_integer",
        "tuple_sketch_agg_double",
        "tuple_sketch_agg_integer",
        "tuple_union_agg_double",
        "tuple_union_agg_integer",
        "var_pop",
        "var_samp",
        "variance",
    ]
)
"""Spark's aggregate functions; a test compares them with those that Spark knows."""


def has_aggregate(tokens: Sequence[Token]) -> bool:
    """Whether an expression aggregates rows; what stands in a query in brackets, or over a window, does not.

    >>> from trimtab.activedata.definitions.tokens import split_tokens
    >>> texts = ("max(x) + 1", "sum(x) OVER (ORDER BY y)", "(SELECT max(x) FROM t)")
    >>> [has_aggregate(split_tokens(each)) for each in texts]
    [True, False, False]
    """
    index = 0
    while index < len(tokens):
        token = tokens[index]
        following = tokens[index + 1].text if index + 1 < len(tokens) else ""
        if token.text == "(" and index + 1 < len(tokens) and tokens[index + 1].upper in ("SELECT", "WITH"):
            index += len(closed_part(list(tokens), index)) + 2
            continue
        if token.kind == "word" and following == "(" and token.text.lower() in AGGREGATES:
            end = index + len(closed_part(list(tokens), index + 1)) + 3
            rest = [each.upper for each in tokens[end : end + 1]]
            if rest == ["FILTER"]:
                end += len(closed_part(list(tokens), end + 1)) + 3
                rest = [each.upper for each in tokens[end : end + 1]]
            if rest not in (["OVER"], ["IGNORE"], ["RESPECT"]):
                return True
        index += 1
    return False


def window_starts(tokens: Sequence[Token]) -> list[int]:
    """The indexes of the brackets that open windows (`OVER (`), outside queries in brackets.

    >>> from trimtab.activedata.definitions.tokens import split_tokens
    >>> window_starts(split_tokens("rank() OVER (ORDER BY y)"))
    [4]
    """
    found: list[int] = []
    index = 0
    while index < len(tokens):
        if tokens[index].text == "(" and index + 1 < len(tokens) and tokens[index + 1].upper in ("SELECT", "WITH"):
            index += len(closed_part(list(tokens), index)) + 2
            continue
        if tokens[index].upper == "OVER" and index + 1 < len(tokens) and tokens[index + 1].text == "(":
            found.append(index + 1)
        index += 1
    return found
