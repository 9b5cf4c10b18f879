"""What is known about functions without asking Spark.

`AGGREGATES` is read off Spark 4.3's function registry: the group `agg_funcs`, and the aggregate
functions that stand in other groups.
"""

from __future__ import annotations

_AGGREGATES = """
    any any_value approx_count_distinct approx_percentile approx_top_k
    approx_top_k_accumulate approx_top_k_combine array_agg avg bit_and bit_or bit_xor
    bitmap_and_agg bitmap_construct_agg bitmap_or_agg bool_and bool_or collect_list
    collect_set collect_union corr count count_if count_min_sketch covar_pop covar_samp
    every first first_value grouping grouping_id histogram_numeric hll_sketch_agg
    hll_union_agg kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float
    kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float kurtosis last
    last_value listagg max max_by mean measure median min min_by mode percentile
    percentile_approx percentile_cont percentile_disc regr_avgx regr_avgy regr_count
    regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy schema_of_variant_agg
    skewness some std stddev stddev_pop stddev_samp string_agg sum theta_intersection_agg
    theta_sketch_agg theta_union_agg try_avg try_sum tuple_intersection_agg_double
    tuple_intersection_agg_integer tuple_sketch_agg_double tuple_sketch_agg_integer
    tuple_union_agg_double tuple_union_agg_integer var_pop var_samp variance vector_avg
    vector_sum
"""

# Left out on purpose: abs, negative (overflow), casts and to_… (format), element_at (index),
# arithmetic, repeat (memory), and everything that takes a pattern or a format.
_NEVER_FAILS = """
    ascii bit_length char_length character_length coalesce concat contains cos day dayofmonth
    dayofweek dayofyear endswith exp greatest hour ifnull initcap isnan isnotnull isnull lcase
    least length ln log10 log2 lower ltrim minute month nanvl nullif nvl nvl2 octet_length
    quarter reverse rtrim second signum sin sqrt startswith trim ucase unix_date unix_micros
    unix_millis unix_seconds upper weekday weekofyear year
"""

# Spatial functions that penstock evaluates itself.
SPATIAL: frozenset[str] = frozenset(
    (
        "st_astext",
        "st_contains",
        "st_distance",
        "st_distancesphere",
        "st_dwithin",
        "st_geomfromgeojson",
        "st_geomfromtext",
        "st_intersects",
        "st_point",
        "st_within",
        "st_x",
        "st_y",
    )
)

AGGREGATES: frozenset[str] = frozenset(_AGGREGATES.split())

# Scalar functions that raise for no input of the right types, ANSI mode included.
NEVER_FAILS: frozenset[str] = frozenset(_NEVER_FAILS.split())
