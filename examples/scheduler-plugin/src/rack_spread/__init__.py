"""RackSpread: a plugin for corelane's scheduler. Racks are the values of a label of the nodes.

Pods go to nodes with a rack only; of these, to the racks with the fewest pods.
"""

from typing import Any

import numpy as np

from corelane.reasons import Code, Reason
from corelane.scheduler.cluster.columns import ABSENT, Columns, Mask, Rows, Scores
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.framework.plugin import BEST, Cycle, Depends, Rejection, Scope


class RackSpread:
    """Has a Filter and a Score. Both exist twice: for one node, and over all nodes (`feasible`, `scores`)."""

    name = "RackSpread"
    exact = True
    """`feasible` is not only a necessary condition: `filter` need not be asked again."""

    def __init__(self, label: str = "example.com/rack") -> None:
        """`label` is the plugin's argument in `pluginConfig`."""
        if not label:
            raise ValueError("label is empty: name the nodes' label that has the rack")
        self.label = label

    scope = Scope.CLUSTER
    """A rack's pods run on other nodes too."""
    depends = Depends.NODE | Depends.PODS

    def filter(self, cycle: Cycle, node: NodeInfo) -> Rejection | None:
        if self.label in node.labels:
            return None
        return Rejection.of(self.name, Reason(Code.NODE_AFFINITY_MISMATCH), resolvable=False)

    def feasible(self, cycle: Cycle, columns: Columns, rows: Rows) -> Mask:
        mask: Mask = columns.label(self.label)[rows] != ABSENT
        return mask

    def score(self, cycle: Cycle, node: NodeInfo) -> float:
        return float(self.scores(cycle, cycle.cluster.columns, np.array([node.row]))[0])

    def scores(self, cycle: Cycle, columns: Columns, rows: Rows) -> Scores:
        racks = columns.label(self.label)
        live = columns.live_rows()
        live = live[racks[live] != ABSENT]
        pods: Any = np.bincount(racks[live], weights=columns.pods[live], minlength=1)
        mine = np.where(racks[rows] == ABSENT, 0, pods[np.maximum(racks[rows], 0)])
        return BEST / (1.0 + mine)
