"""How the plugins of a profile are asked over rows: by their vectorised forms, or row by row."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from corelane.scheduler.cache.columns import Columns, Mask, Rows, Scores
from corelane.scheduler.framework.plugin import Cycle, Depends, FilterPlugin, ScorePlugin

NumberedForm: TypeAlias = tuple[int, Callable[[Cycle, Columns, Rows], Mask]]
"""A filter's number in the profile, and its form over rows."""
WeightedForm: TypeAlias = tuple[str, float, Callable[[Cycle, Columns, Rows], Scores]]
"""A score's name and weight, and its form over rows."""


def feasible(plugin: FilterPlugin, cycle: Cycle, rows: Rows) -> Mask:
    """Return which of the rows a Filter may pass, by its vectorised form or row by row."""
    return filter_of(plugin)(cycle, cycle.cluster.columns, rows)


def scores(plugin: ScorePlugin, cycle: Cycle, rows: Rows) -> Scores:
    """Return the scores of a Score for rows, not normalised, by its vectorised form or row by row."""
    return score_of(plugin)(cycle, cycle.cluster.columns, rows)


def filter_of(plugin: FilterPlugin) -> Callable[[Cycle, Columns, Rows], Mask]:
    """The vectorised form of a Filter, or one that asks it row by row."""

    def by_row(cycle: Cycle, _columns: Columns, rows: Rows) -> Mask:
        nodes = cycle.cluster.by_row
        passed = (plugin.filter(cycle, node) is None for row in rows if (node := nodes[row]))
        return np.fromiter(passed, dtype=np.bool_, count=len(rows))

    found: Callable[[Cycle, Columns, Rows], Mask] = getattr(plugin, "feasible", by_row)
    return found


def score_of(plugin: ScorePlugin) -> Callable[[Cycle, Columns, Rows], Scores]:
    """The vectorised form of a Score, or one that asks it row by row."""

    def by_row(cycle: Cycle, _columns: Columns, rows: Rows) -> Scores:
        nodes = cycle.cluster.by_row
        values = (plugin.score(cycle, node) for row in rows if (node := nodes[row]))
        return np.fromiter(values, dtype=np.float64, count=len(rows))

    found: Callable[[Cycle, Columns, Rows], Scores] = getattr(plugin, "scores", by_row)
    return found


def is_exact(plugin: FilterPlugin) -> bool:
    """Return whether what a Filter says over columns needs no second question."""
    return not hasattr(plugin, "feasible") or bool(getattr(plugin, "exact", False))


def is_estimate(plugin: ScorePlugin) -> bool:
    """Return whether a Score over columns is an upper bound only."""
    return hasattr(plugin, "scores") and not getattr(plugin, "exact", True)


def normalizes(plugin: ScorePlugin) -> bool:
    """Return whether scores must be normalised over all nodes that fit."""
    return hasattr(plugin, "normalize")


def parts(plugin: ScorePlugin) -> Sequence[ScorePlugin]:
    """The summands of a score that depend on different things; most have one, the score itself."""
    summands: Sequence[ScorePlugin] = getattr(plugin, "parts", (plugin,))
    return summands


def part(plugin: Any) -> Depends:
    """What counts most for a plugin: pods, unless it depends on Node objects or canonical states alone."""
    found: Depends = getattr(plugin, "depends", Depends.PODS)
    return found if found in (Depends.NODE, Depends.CPUS) else Depends.PODS
