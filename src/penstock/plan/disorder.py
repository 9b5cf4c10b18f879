"""Which estimator judges the disorder of a query's stream: one rule, for EXPLAIN and the runtime.

`fixed` and `max` need no drop ratio, `normal` and `quantile` cannot do without one. What the stream
says goes before what the query says, unless the query lacks the ratio that it takes.
"""

from __future__ import annotations

ESTIMATORS = ("fixed", "max", "normal", "quantile")
BY_RATIO = ("normal", "quantile")


def chosen_estimator(
    stream_estimator: str | None, drop_ratio: float | None, told: bool = False
) -> str:
    """The estimator that runs for a query with this DRATIO on a stream with this setting.

    told: whoever makes the stream says up to where it is complete.

    >>> chosen_estimator(None, None), chosen_estimator(None, 0.01), chosen_estimator("fixed", 0.01)
    ('max', 'quantile', 'fixed')
    """
    if stream_estimator is None:
        undecided = "upstream" if told else "max"
        return undecided if drop_ratio is None else "quantile"
    return "max" if drop_ratio is None and stream_estimator in BY_RATIO else stream_estimator
