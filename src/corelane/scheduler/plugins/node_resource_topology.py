"""NodeResourceTopologyMatch: scores nodes of which only amounts by NUMA node are known, as scheduler-plugins.

Its Filter is part of CPUPlacement, which judges nodes of every kind. A node whose CPUs have ids gets the best
score: what is decided there holds.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final, cast, get_args

import numpy as np

from corelane.node.ledger import NodeState
from corelane.node.zones import scoring
from corelane.node.zones.zone_state import ZonesState
from corelane.scheduler.cluster.columns import Columns, Rows, Scores
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.states import Fact
from corelane.scheduler.framework.configuration_file import shown
from corelane.scheduler.framework.plugin import BEST, Cycle, Depends, Scope
from corelane.scheduler.plugins.node_numa_resource import strategy_type, weights

NAME: Final = "NodeResourceTopologyMatch"


_CACHE: Final[Mapping[str, tuple[str, ...]]] = {
    "foreignPodsDetect": ("All",),
    "resyncMethod": ("Autodetect",),
    "informerMode": ("Dedicated",),
    "resyncScope": ("All",),
}
"""What holds of upstream's cache: pods of all schedulers count, by the fingerprint that an object names."""


class NodeResourceTopologyMatch:
    """Scores by upstream's `scoringStrategy`: its type, and weights of resources (1 by default)."""

    name = NAME
    scope = Scope.ROW
    depends = Depends.CPUS

    def __init__(
        self, strategy: scoring.Strategy = "LeastAllocated", weights: Mapping[str, int] | None = None
    ) -> None:
        self.strategy, self.weights = strategy, dict(weights or {})

    @classmethod
    def of(
        cls,
        scoringStrategy: Mapping[str, Any] | None = None,  # noqa: N803 - upstream's names
        cacheResyncPeriodSeconds: int | None = None,  # noqa: N803
        discardReservedNodes: bool = False,  # noqa: N803
        cache: Mapping[str, Any] | None = None,
    ) -> "NodeResourceTopologyMatch":
        """Read upstream's arguments; of those of its cache, what holds here. Raises ValueError."""
        if cacheResyncPeriodSeconds is not None and cacheResyncPeriodSeconds <= 0:
            raise ValueError(
                f"cacheResyncPeriodSeconds {cacheResyncPeriodSeconds}: pods that were placed are always "
                "counted until an object counts them: use 1 or more, or remove it"
            )
        if discardReservedNodes:
            raise ValueError("discardReservedNodes true is not supported: use false, or remove it")
        _check_cache(cache or {})
        kind = strategy_type(scoringStrategy, get_args(scoring.Strategy))
        return cls(cast(scoring.Strategy, kind), weights(scoringStrategy))

    def scores(self, cycle: Cycle, columns: Columns, rows: Rows) -> Scores:
        """Nodes in the same canonical state have the same score."""
        scores = np.where(columns.facts[rows, Fact.SHARED] > 0, BEST, 0.0)
        for i in np.flatnonzero(columns.zoned[rows]):
            state = columns.state_of(int(rows[i]))
            if state is not None and isinstance(state.state, ZonesState) and cycle.shape.request is not None:
                scores[i] = scoring.score(state.state, cycle.shape.request, self.strategy, self.weights)
        return scores

    def score(self, cycle: Cycle, node: NodeInfo) -> float:
        """Return 0 to 100; 0 too where nothing is published, as upstream."""
        request, state = cycle.shape.request, node.canonical.state
        if request is None or not isinstance(state, ZonesState):
            return BEST if isinstance(state, NodeState) else 0.0
        return float(scoring.score(state, request, self.strategy, self.weights))


def _check_cache(given: Mapping[str, Any]) -> None:
    """Raise ValueError for a setting of the cache that does not hold here."""
    for name, value in given.items():
        if name not in _CACHE:
            close = get_close_matches(str(name), _CACHE, 1) or (f"one of {', '.join(_CACHE)}",)
            raise ValueError(
                f"cache.{name} {shown(value)}: there is no such field: use {close[0]}, or remove it"
            )
        if value not in _CACHE[name]:
            allowed = " or ".join(_CACHE[name])
            raise ValueError(f"cache.{name} {shown(value)} is not supported: use {allowed}, or remove it")
