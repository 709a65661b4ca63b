"""Score of PodTopologySpread: domains with few matching pods first (ScheduleAnyway), as upstream's."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from corelane.scheduler.cache.columns import Mask, Rows, Scores
from corelane.scheduler.cache.label_rules import in_namespace
from corelane.scheduler.cache.pod_facts import SpreadConstraint
from corelane.scheduler.cache.pod_index import OWNER, controller_of
from corelane.scheduler.cache.topology import Topology
from corelane.scheduler.framework.plugin import BEST, Cycle
from corelane.scheduler.plugins.spread_nodes import counted_nodes, with_keys
from corelane.workload.selectors import LabelRequirement, Operator

_HOSTNAME: Final = "kubernetes.io/hostname"
_ZONE: Final = "topology.kubernetes.io/zone"
_IGNORED: Final = -1.0
"""Score of a node without the labels: worst after normalization."""
SYSTEM_CONSTRAINTS: Final = (
    SpreadConstraint(3, _HOSTNAME, hard=False, rules=None),
    SpreadConstraint(5, _ZONE, hard=False, rules=None),
)
"""kube-scheduler's own defaults."""


@dataclass(slots=True)
class Prepared:
    """What the score of a node is made of: matching pods by row of each constraint, and their weights."""

    topology: Topology
    parts: tuple[tuple[SpreadConstraint, Scores, float], ...]
    """Of each constraint: pods that count for a node, by row; and weight."""
    ignored: Mask

    def scores(self, rows: Rows) -> Scores:
        """Return what `normalized` takes: more is worse."""
        sums = np.zeros(len(rows))
        for constraint, pods, weight in self.parts:
            having = self.topology.ids(constraint.topology_key)[rows] >= 0
            sums += np.where(having, pods[rows] * weight + (constraint.max_skew - 1), 0.0)
        return np.where(self.ignored[rows], _IGNORED, np.floor(sums + 0.5))


def prepare(
    cycle: Cycle, constraints: tuple[SpreadConstraint, ...], rows: Rows, *, all_keys: bool
) -> Prepared:
    """Return what scores are made of, for the nodes that passed all filters.

    `all_keys`: nodes that lack the label of a constraint are ignored.
    """
    topology = cycle.cluster.topology
    having = with_keys(cycle.cluster, constraints) if all_keys else topology.live
    counted = rows[having[rows]]
    parts = tuple(_part(cycle, one, counted, having) for one in constraints)
    return Prepared(topology, parts, ~having)


def _part(
    cycle: Cycle, constraint: SpreadConstraint, rows: Rows, having: Mask
) -> tuple[SpreadConstraint, Scores, float]:
    cluster, key = cycle.cluster, constraint.topology_key
    pods = np.zeros(cluster.topology.capacity)
    if constraint.rules:
        namespace = cycle.pod.pod.metadata.namespace
        counts = cluster.index.matching_set(in_namespace(namespace, constraint.rules))
        if counts.by_row:
            pods = counts.dense(cluster.topology.capacity).astype(np.float64)
    ids = cluster.topology.ids(key)
    if key == _HOSTNAME:
        return constraint, pods, _weight(len(rows))
    domains = int(np.count_nonzero(np.bincount(ids[rows] + 1)))
    if not pods.any():
        return constraint, pods, _weight(domains)
    nodes = having & counted_nodes(cluster, cycle.pod.pod, constraint) & (ids >= 0)
    size = cluster.topology.size(key) + 1
    totals = np.bincount(ids[nodes], pods[nodes], size).astype(np.float64)
    return constraint, totals[ids], _weight(domains)


def _weight(domains: int) -> float:
    """Larger topologies count more, for a domain has fewer pods there."""
    return float(np.log(domains + 2))


def normalized(scores: Scores) -> Scores:
    """Return 0 to 100 where more is better, and 0 for ignored nodes."""
    ignored = scores == _IGNORED
    counted = scores[~ignored]
    highest = counted.max(initial=0.0)
    if highest == 0:
        return np.where(ignored, 0.0, BEST)
    lowest = counted.min()
    return np.where(ignored, 0.0, np.floor(BEST * (highest + lowest - scores) / highest))


def has_defaults(cycle: Cycle) -> bool:
    """Return whether `with_defaults` may yield a constraint for the pod."""
    return bool(cycle.pod.pod.metadata.owner_references) or cycle.cluster.objects.may_select(cycle.pod.pod)


def with_defaults(defaults: tuple[SpreadConstraint, ...], cycle: Cycle) -> Iterator[SpreadConstraint]:
    """Yield the default constraints over the pods of the same services and controller; none without these."""
    rules: dict[str, LabelRequirement] = {}
    for service in cycle.cluster.objects.services_of(cycle.pod.pod):
        for key, value in service.spec.selector.items():
            rules[key] = LabelRequirement(key, Operator.IN, (value,))
    if uid := controller_of(cycle.pod):
        rules[OWNER] = LabelRequirement(OWNER, Operator.IN, (uid,))
    if rules:
        ordered = tuple(rules[key] for key in sorted(rules))
        for one in defaults:
            yield SpreadConstraint(
                one.max_skew,
                one.topology_key,
                one.hard,
                ordered,
                one.min_domains,
                one.honor_affinity,
                one.honor_taints,
            )
