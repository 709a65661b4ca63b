"""PodTopologySpread: pods of a kind are spread over zones, hosts or other domains (KEP-895).

Numbers of pods come from `cache.pod_index`; only nodes that the pod could use (by node affinity and taints,
as each constraint's policies say) make up the domains. Score is in `topology_spread_score`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np

from corelane import settings
from corelane.kube.node_terms import is_valid, untolerated
from corelane.kube.objects import Node, Service
from corelane.kube.pod import NodeSelectorRequirement, Pod
from corelane.kube.selectors import TopologySpreadConstraint
from corelane.reasons import Code, Reason
from corelane.scheduler.cluster.columns import Columns, Mask, Rows, Scores
from corelane.scheduler.cluster.labels import Counts, Topology, Totals, holds, in_namespace
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.nodes import NodeCache
from corelane.scheduler.cluster.pod_index import OWNER, controller_of, labels_of
from corelane.scheduler.cluster.pods import PodInfo, SpreadConstraint, spread_constraint
from corelane.scheduler.framework.changes import ChangeKind, ClusterChange, Hint, always
from corelane.scheduler.framework.plugin import BEST, SKIP, Cycle, Rejection, Scope, Skip
from corelane.scheduler.plugins.rows import CountsPods, RowFilter, required_mask
from corelane.workload.selectors import LabelRequirement, Operator


def with_keys(cluster: NodeCache, constraints: Iterable[SpreadConstraint]) -> Mask:
    """Return the nodes that have the labels of all constraints."""
    mask = cluster.topology.live.copy()
    for one in constraints:
        mask &= cluster.topology.ids(one.topology_key) >= 0
    return mask


def counted_nodes(cluster: NodeCache, pod: Pod, constraint: SpreadConstraint) -> Mask:
    """Return the nodes that count by the constraint's policies: nodeAffinityPolicy and nodeTaintsPolicy."""
    columns, rows = cluster.columns, cluster.columns.live_rows()
    if constraint.honor_affinity:
        rows = rows[required_mask(pod, columns, rows)]
    if constraint.honor_taints:
        tolerated = [untolerated(pod, taints) is None for taints in columns.taint_sets]
        rows = rows[np.array(tolerated, np.bool_)[columns.taints[rows]]]
    mask = np.zeros(cluster.topology.capacity, np.bool_)
    mask[rows] = True
    return mask


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
    """Parts of the score of a node: matching pods by row of each constraint, and their weights."""

    topology: Topology
    parts: tuple[tuple[SpreadConstraint, Scores, float], ...]
    """Each constraint with the pods that count for a node, by row, and its weight."""
    ignored: Mask

    def scores(self, rows: Rows) -> Scores:
        """Return what `normalize` takes: more is worse."""
        sums = np.zeros(len(rows))
        for constraint, pods, weight in self.parts:
            having = self.topology.ids(constraint.topology_key)[rows] >= 0
            sums += np.where(having, pods[rows] * weight + (constraint.max_skew - 1), 0.0)
        return np.where(self.ignored[rows], _IGNORED, np.floor(sums + 0.5))


def _counts_and_weight(
    cycle: Cycle, constraint: SpreadConstraint, rows: Rows, having: Mask
) -> tuple[Scores, float]:
    """Return the pods that count for a node, by row; larger topologies weigh more: fewer pods a domain."""
    cluster, key = cycle.cluster, constraint.topology_key
    capacity, ids = cluster.topology.capacity, cluster.topology.ids(key)
    counts = _matching(cycle, constraint)
    pods = counts.dense(capacity).astype(np.float64) if counts else np.zeros(capacity)
    if key == _HOSTNAME:
        return pods, float(np.log(len(rows) + 2))
    weight = float(np.log(int(np.count_nonzero(np.bincount(ids[rows] + 1))) + 2))
    if not pods.any():
        return pods, weight
    nodes = having & counted_nodes(cluster, cycle.pod.pod, constraint) & (ids >= 0)
    totals = np.bincount(ids[nodes], pods[nodes], cluster.topology.size(key) + 1).astype(np.float64)
    return totals[ids], weight


def _matching(cycle: Cycle, constraint: SpreadConstraint) -> Counts | None:
    """Return the pods that the constraint counts, by row; None without any."""
    if not constraint.rules:
        return None
    rules = in_namespace(cycle.pod.pod.metadata.namespace, constraint.rules)
    counts = cycle.cluster.index.matching_set(rules)
    return counts if counts.by_row else None


NAME: Final = "PodTopologySpread"
_SCORES: Final = f"{NAME}/scores"
_NODES: Final = f"{NAME}/nodes"
_MISSING: Final = Rejection.of(NAME, Reason(Code.SPREAD_LABEL_MISSING), resolvable=False)
_SKEW: Final = Rejection.of(NAME, Reason(Code.SPREAD_SKEW))


@dataclass(slots=True)
class Domains:
    """The domains of one constraint, and the pods that match in each."""

    constraint: SpreadConstraint
    nodes: Mask
    """Nodes that make up the domains, by row."""
    present: Mask
    """Whether a domain has such a node, by domain id."""
    totals: Totals
    own: int
    """1 if the pod itself matches."""

    def copy(self) -> "Domains":
        """Return a copy whose totals can be changed."""
        return Domains(self.constraint, self.nodes, self.present, self.totals.copy(), self.own)

    @property
    def most(self) -> float:
        """The highest number of pods in a domain that can take the pod; infinite without any domain."""
        fewest = self.totals[self.present].min(initial=np.inf)
        if self.present.sum() < self.constraint.min_domains:
            fewest = 0.0
        return float(fewest + self.constraint.max_skew - self.own)


class Spread(tuple[Domains, ...]):
    """State of one attempt."""

    __slots__ = ()

    def copy(self) -> "Spread":
        return Spread(one.copy() for one in self)


class PodTopologySpread(RowFilter, CountsPods):
    """Rejects nodes where a constraint's skew would exceed its limit; prefers domains with few pods.

    Pods without constraints get the default ones: hosts and zones, both ScheduleAnyway ("System"), or those
    of the configuration ("List"), counted over the pods of the same controller and services.
    """

    name = NAME
    scope = Scope.CLUSTER
    exact = True

    def __init__(
        self,
        defaultingType: Literal["System", "List"] = "System",  # noqa: N803 - upstream's name
        defaultConstraints: Sequence[Mapping[str, Any]] = (),  # noqa: N803
    ) -> None:
        if defaultConstraints and defaultingType == "System":
            raise ValueError("PodTopologySpread: defaultConstraints needs defaultingType: List")
        self.system = defaultingType == "System"
        given = list(defaultConstraints)
        try:
            listed = settings.convert(given, tuple[TopologySpreadConstraint, ...], strict=True)
        except settings.SettingsError as error:
            raise ValueError(f"defaultConstraints{error}") from None
        for number, one in enumerate(listed):
            if why := _constraint_fault(one, given[number].keys(), listed[:number]):
                raise ValueError(f"defaultConstraints[{number}].{why}")
        of_file = tuple(spread_constraint(one, {}) for one in listed)
        self.defaults = SYSTEM_CONSTRAINTS if self.system else of_file
        self._default_kinds = frozenset(one.hard for one in self.defaults)
        self._may_reject = True in self._default_kinds

    # Filter.

    def pre_filter(self, cycle: Cycle) -> Rejection | Skip | None:
        if not (constraints := self.constraints(cycle, hard=True)):
            return SKIP
        nodes = with_keys(cycle.cluster, constraints)
        cycle.state[NAME] = Spread(_domains(cycle, one, nodes) for one in constraints)
        return None

    def constraints(self, cycle: Cycle, *, hard: bool) -> tuple[SpreadConstraint, ...]:
        """Return the pod's constraints, or the default ones over the pods of its controller and services."""
        pod, objects, spread = cycle.pod.pod, cycle.cluster.objects, cycle.pod.facts.spread
        if not spread and hard in self._default_kinds:
            if not (pod.metadata.owner_references or (objects.services and pod.metadata.labels)):
                return ()
            labels = {
                key: value for one in objects.services_of(pod) for key, value in one.spec.selector.items()
            }
            if uid := controller_of(cycle.pod):
                labels[OWNER] = uid
            rules = tuple(LabelRequirement(key, Operator.IN, (labels[key],)) for key in sorted(labels))
            spread = tuple(replace(one, rules=rules) for one in self.defaults) if rules else ()
        return tuple(one for one in spread if one.hard is hard)

    def rejected(self, cycle: Cycle, rows: Rows) -> Iterator[tuple[Rejection, Mask]]:
        """For each constraint, the nodes without its label, and those with too many pods."""
        spread: Spread = cycle.state[NAME]
        for one in spread:
            ids = cycle.cluster.topology.ids(one.constraint.topology_key)[rows]
            yield _MISSING, ids < 0
            yield _SKEW, one.totals[ids] > one.most

    # Pods that are looked at as if they came or went.

    def change(self, cycle: Cycle, pod: PodInfo, node: NodeInfo, number: int) -> None:
        spread: Spread | None = cycle.state.get(NAME)
        if spread is None or pod.pod.metadata.namespace != cycle.pod.pod.metadata.namespace:
            return
        for one in spread:
            counted = one.constraint.rules != () and not pod.pod.metadata.deletion_timestamp
            if counted and one.nodes[node.row] and holds(one.constraint.rules, labels_of(pod)):
                one.totals[cycle.cluster.topology.id(one.constraint.topology_key, node.row)] += number

    # Score.

    def pre_score(self, cycle: Cycle, nodes: Sequence[NodeInfo]) -> Skip | None:
        """Take note of the nodes only: reading thousands of them costs more than `scores` over their rows."""
        if not self.constraints(cycle, hard=False):
            return SKIP
        cycle.state[_NODES] = nodes
        return None

    def score(self, cycle: Cycle, node: NodeInfo) -> float:
        prepared: Prepared | None = cycle.state.get(_SCORES)
        if prepared is None:
            nodes: Sequence[NodeInfo] | None = cycle.state.get(_NODES)
            rows = np.flatnonzero(cycle.cluster.topology.live)
            if nodes is not None:
                rows = np.fromiter((other.row for other in nodes), np.intp, len(nodes))
            prepared = self._prepare(cycle, rows)
        return float(prepared.scores(np.array([node.row], np.intp))[0])

    def scores(self, cycle: Cycle, columns: Columns, rows: Rows) -> Scores:
        return self._prepare(cycle, rows).scores(rows)

    def _prepare(self, cycle: Cycle, rows: Rows) -> Prepared:
        """Return what scores are made of, for the nodes that passed all filters.

        Of a pod with constraints of its own, and for those of a file, nodes that lack a label are ignored.
        """
        constraints, having = self.constraints(cycle, hard=False), cycle.cluster.topology.live
        if cycle.pod.facts.spread or not self.system:
            having = with_keys(cycle.cluster, constraints)
        counted = rows[having[rows]]
        parts = tuple((one, *_counts_and_weight(cycle, one, counted, having)) for one in constraints)
        prepared = cycle.state[_SCORES] = Prepared(cycle.cluster.topology, parts, ~having)
        return prepared

    def normalize(self, cycle: Cycle, scores: Scores) -> Scores:
        """Return 0 to 100 where more is better, and 0 for ignored nodes."""
        ignored = scores == _IGNORED
        counted = scores[~ignored]
        highest = counted.max(initial=0.0)
        if highest == 0:
            return np.where(ignored, 0.0, BEST)
        return np.where(ignored, 0.0, np.floor(BEST * (highest + counted.min() - scores) / highest))

    # Hints.

    def hints(self) -> dict[ChangeKind, Hint]:
        """Services decide where pods fit only by default constraints of a file: those of the system score."""
        of_services: dict[ChangeKind, Hint] = {ChangeKind.SERVICE: _selects} if self._may_reject else {}
        return of_services | {
            ChangeKind.POD_ADDED | ChangeKind.POD_REMOVED: _counts,
            ChangeKind.POD_CHANGED | ChangeKind.POD_ITSELF: always,
            ChangeKind.NODE_ADDED | ChangeKind.NODE_REMOVED: _domain_changed,
            ChangeKind.NODE_LABELS | ChangeKind.NODE_TAINTS: _domain_changed,
        }


def _selects(pod: PodInfo, change: ClusterChange) -> bool:
    """Whether a service selects the pod that did not before, or no longer does."""
    if pod.facts.spread:
        return False
    metadata = pod.pod.metadata
    for one in (change.old, change.new):
        if not isinstance(one, Service | None):
            return True
        if one is not None and one.metadata.namespace == metadata.namespace:
            selector = one.spec.selector
            if selector and selector.items() <= metadata.labels.items():
                return True
    return False


def _constraint_fault(
    one: TopologySpreadConstraint, given: Collection[str], earlier: Sequence[TopologySpreadConstraint] = ()
) -> str:
    """Field, value and remedy of an invalid default constraint; "" for a valid one.

    `given` are the fields in the file: upstream has no defaults for three of them.
    """
    if one.max_skew <= 0:
        return f"maxSkew {one.max_skew}: use more than 0"
    if "maxSkew" not in given:
        return "maxSkew missing: add how many pods more than another a domain may have, 1 or more"
    if not one.topology_key:
        return "topologyKey missing: add a node label's key, such as topology.kubernetes.io/zone"
    if not is_valid(NodeSelectorRequirement(one.topology_key, "Exists")):
        return (
            f"topologyKey {one.topology_key!r}: use a node label's key, such as topology.kubernetes.io/zone"
        )
    if "whenUnsatisfiable" not in given:
        return "whenUnsatisfiable missing: add DoNotSchedule or ScheduleAnyway"
    if one.min_domains is not None and one.min_domains <= 0:
        return f"minDomains {one.min_domains}: use more than 0, or remove it"
    policies = {"nodeAffinityPolicy": one.node_affinity_policy, "nodeTaintsPolicy": one.node_taints_policy}
    for name, policy in policies.items():
        if policy not in {"Honor", "Ignore"}:
            return f"{name} {policy!r}: use Honor or Ignore"
    if one.when_unsatisfiable not in {"DoNotSchedule", "ScheduleAnyway"}:
        return f"whenUnsatisfiable {one.when_unsatisfiable!r}: use DoNotSchedule or ScheduleAnyway"
    if one.label_selector is not None:
        return "labelSelector is set: remove it, the pod's own service or controller selects the pods"
    kind = one.topology_key, one.when_unsatisfiable
    if kind in [(other.topology_key, other.when_unsatisfiable) for other in earlier]:
        return f"topologyKey {one.topology_key}: given twice with {one.when_unsatisfiable}: keep one"
    return ""


def _domains(cycle: Cycle, constraint: SpreadConstraint, with_labels: Mask) -> Domains:
    cluster, key = cycle.cluster, constraint.topology_key
    nodes = with_labels & counted_nodes(cluster, cycle.pod.pod, constraint)
    ids, size = cluster.topology.ids(key)[nodes], cluster.topology.size(key)
    present = np.zeros(size + 1, np.bool_)
    present[ids] = True
    totals = np.zeros(size + 1)
    if counts := _matching(cycle, constraint):
        numbers = counts.dense(cluster.topology.capacity)[nodes]
        totals = np.bincount(ids, numbers, size + 1).astype(np.float64)
    own = int(holds(constraint.rules, labels_of(cycle.pod)))
    return Domains(constraint, nodes, present, totals, own)


def _counts(pod: PodInfo, change: ClusterChange) -> bool:
    """A pod that came or went helps if a constraint counts it."""
    other = change.new or change.old
    if not isinstance(other, PodInfo) or not pod.facts.spread:
        return True
    if other.pod.metadata.namespace != pod.pod.metadata.namespace:
        return False
    return any(holds(one.rules, other.pod.metadata.labels) for one in pod.facts.spread if one.hard)


def _domain_changed(pod: PodInfo, change: ClusterChange) -> bool:
    """A node helps if it has the labels of all constraints, or had them.

    Its other labels and its taints say whether it counts (nodeAffinityPolicy, nodeTaintsPolicy): one that
    counts no longer may have been the domain with the fewest pods.
    """
    nodes = [one for one in (change.old, change.new) if isinstance(one, Node)]
    keys = [one.topology_key for one in pod.facts.spread if one.hard]
    if not nodes or not keys or change.merged:
        return True  # Of several changes looked at as one, the state before is not known.
    return any(all(key in node.metadata.labels for key in keys) for node in nodes)
