"""PodTopologySpread: pods of a kind are spread over zones, hosts or other domains (KEP-895).

Numbers of pods come from `cache.pod_index`; only nodes that the pod could use (by node affinity and taints,
as each constraint's policies say) make up the domains. Score is in `topology_spread_score`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec
import numpy as np

from corelane.kube.node_terms import is_valid, untolerated
from corelane.kube.objects import Node, Service
from corelane.kube.pod import NodeSelectorRequirement, Pod
from corelane.kube.selectors import TopologySpreadConstraint
from corelane.reasons import Code, Reason
from corelane.scheduler.cluster.columns import Columns, Mask, Rows, Scores
from corelane.scheduler.cluster.labels import Topology, Totals, holds, in_namespace
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.nodes import NodeCache
from corelane.scheduler.cluster.pod_index import OWNER, controller_of, labels_of
from corelane.scheduler.cluster.pods import PodInfo, SpreadConstraint, spread_constraint
from corelane.scheduler.framework.changes import ChangeKind, ClusterChange, Hint, always
from corelane.scheduler.framework.configuration_file import first_fault
from corelane.scheduler.framework.plugin import BEST, SKIP, Cycle, Rejection, Scope, Skip
from corelane.scheduler.plugins.rows import RowFilter, required_mask
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


@dataclass(slots=True)
class Spread:
    """State of one attempt."""

    domains: tuple[Domains, ...]

    def copy(self) -> "Spread":
        return Spread(tuple(one.copy() for one in self.domains))


class PodTopologySpread(RowFilter):
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
        if fault := first_fault(given, tuple[TopologySpreadConstraint, ...]):
            raise ValueError(f"defaultConstraints{fault.path}: {fault.problem}: {fault.remedy}")
        listed = msgspec.convert(given, tuple[TopologySpreadConstraint, ...])
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
        cycle.state[NAME] = Spread(tuple(_domains(cycle, one, nodes) for one in constraints))
        return None

    def constraints(self, cycle: Cycle, *, hard: bool) -> tuple[SpreadConstraint, ...]:
        """Return the pod's constraints, or the default ones with its controller and services."""
        spread = cycle.pod.facts.spread
        if not spread:
            if hard not in self._default_kinds or not has_defaults(cycle):
                return ()
            spread = tuple(with_defaults(self.defaults, cycle))
        return tuple(one for one in spread if one.hard is hard)

    def rejected(self, cycle: Cycle, rows: Rows) -> Iterator[tuple[Rejection, Mask]]:
        """For each constraint, the nodes without its label, and those with too many pods."""
        spread: Spread = cycle.state[NAME]
        for one in spread.domains:
            ids = cycle.cluster.topology.ids(one.constraint.topology_key)[rows]
            yield _MISSING, ids < 0
            yield _SKEW, one.totals[ids] > one.most

    # Pods that are looked at as if they came or went.

    def add_pod(self, cycle: Cycle, pod: PodInfo, node: NodeInfo) -> None:
        self._change(cycle, pod, node, 1)

    def remove_pod(self, cycle: Cycle, pod: PodInfo, node: NodeInfo) -> None:
        self._change(cycle, pod, node, -1)

    @staticmethod
    def _change(cycle: Cycle, pod: PodInfo, node: NodeInfo, number: int) -> None:
        spread: Spread | None = cycle.state.get(NAME)
        if spread is None or pod.pod.metadata.namespace != cycle.pod.pod.metadata.namespace:
            return
        for one in spread.domains:
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
        return float(self._prepared(cycle).scores(np.array([node.row], np.intp))[0])

    def scores(self, cycle: Cycle, columns: Columns, rows: Rows) -> Scores:
        return self._prepare(cycle, rows).scores(rows)

    def normalize(self, cycle: Cycle, scores: Scores) -> Scores:
        return normalized(scores)

    def _prepare(self, cycle: Cycle, rows: Rows) -> "Prepared":
        constraints = self.constraints(cycle, hard=False)
        all_keys = bool(cycle.pod.facts.spread) or not self.system
        prepared = prepare(cycle, constraints, rows, all_keys=all_keys)
        cycle.state[_SCORES] = prepared
        return prepared

    def _prepared(self, cycle: Cycle) -> "Prepared":
        prepared: Prepared | None = cycle.state.get(_SCORES)
        if prepared is not None:
            return prepared
        nodes: Sequence[NodeInfo] | None = cycle.state.get(_NODES)
        if nodes is None:
            return self._prepare(cycle, np.flatnonzero(cycle.cluster.topology.live))
        return self._prepare(cycle, np.fromiter((node.row for node in nodes), np.intp, len(nodes)))

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
    if constraint.rules:
        namespace = cycle.pod.pod.metadata.namespace
        counts = cluster.index.matching_set(in_namespace(namespace, constraint.rules))
        if counts.by_row:
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
