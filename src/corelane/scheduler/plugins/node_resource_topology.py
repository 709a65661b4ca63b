"""NodeResourceTopologyMatch: scores nodes of which only amounts by NUMA node are known, as scheduler-plugins.

Its Filter is part of CPUPlacement, which judges nodes of every kind. A node whose CPUs have ids gets the best
score: what is decided there holds.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args

import numpy as np

from corelane.node import NodeState
from corelane.node.zones import scoring
from corelane.node.zones.zone_state import ZonesState
from corelane.scheduler.cache.columns import Columns, Rows, Scores
from corelane.scheduler.cache.nodes import NodeInfo
from corelane.scheduler.cache.states import Fact
from corelane.scheduler.framework.plugin import BEST, Cycle, Depends, Scope

NAME: Final = "NodeResourceTopologyMatch"


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
    def of(cls, scoringStrategy: Mapping[str, Any] | None = None, **_: Any) -> "NodeResourceTopologyMatch":  # noqa: N803
        """Read upstream's arguments; those of its cache have no meaning here. Raises ValueError."""
        strategy = dict(scoringStrategy or {})
        kind = strategy.get("type", "LeastAllocated")
        if kind not in get_args(scoring.Strategy):
            words = ", ".join(get_args(scoring.Strategy))
            raise ValueError(f"{NAME}: scoringStrategy.type {kind!r} is unknown: use one of {words}")
        return cls(kind, _weights(strategy.get("resources") or ()))

    def scores(self, cycle: Cycle, columns: Columns, rows: Rows) -> Scores:
        """Nodes in the same canonical state have the same score."""
        found = np.where(columns.facts[rows, Fact.SHARED] > 0, BEST, 0.0)
        for i in np.flatnonzero(columns.zoned[rows]):
            state = columns.state_of(int(rows[i]))
            if state is not None and isinstance(state.state, ZonesState) and cycle.shape.request is not None:
                found[i] = scoring.score(state.state, cycle.shape.request, self.strategy, self.weights)
        return found

    def score(self, cycle: Cycle, node: NodeInfo) -> float:
        """Return 0 to 100; 0 too where nothing is published, as upstream."""
        request, state = cycle.shape.request, node.canonical.state
        if request is None or not isinstance(state, ZonesState):
            return BEST if isinstance(state, NodeState) else 0.0
        return float(scoring.score(state, request, self.strategy, self.weights))


def _weights(resources: Sequence[Any]) -> dict[str, int]:
    try:
        return {str(one["name"]): int(one.get("weight", 1)) for one in resources}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        why = f"scoringStrategy.resources {resources!r} must be a list of name and weight"
        raise ValueError(f"{NAME}: {why}") from error
