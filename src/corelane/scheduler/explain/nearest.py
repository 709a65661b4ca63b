"""The node that lacks least for a pending pod, and the smallest changes by which the pod would fit there.

Each change is carried out on a trial cluster and asked of the same filters; one that does not make the pod
fit is not named. What keeps the pod off the node for a reason of its own (a taint, a label, a cordon) is
changed first; if amounts or CPUs are still missing, each of several ways is tried: requesting less, a
requirement as a preference, a rule of the pod dropped, and other pods moved off the node.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from math import inf
from typing import Final, Protocol

from msgspec import structs

from corelane.kube import keys, translate
from corelane.kube.node_terms import tolerated
from corelane.kube.objects import Node
from corelane.kube.pod import Pod, Toleration
from corelane.node.explain.pod_decision import NearestNode
from corelane.node.explain.pod_explanation import Remedy
from corelane.reasons import Code, Reason, label, sentence
from corelane.scheduler.cluster.node_info import NodeInfo, taints_of
from corelane.scheduler.cluster.nodes import NodeCache
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.cluster.states import Fact
from corelane.scheduler.cycle import finalists
from corelane.scheduler.cycle.attempts import Attempt
from corelane.scheduler.explain import pod_changes
from corelane.scheduler.framework import trials
from corelane.scheduler.framework.plugin import Rejection
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.plugins.node_resources import CPU_PLACEMENT

_OWN: Final = "node.kubernetes.io/"
"""Taints that follow from a node's condition: the node recovers; pods do not tolerate them."""
_STEPS: Final = 6
_SINGLES: Final = 60
"""Pods tried to be moved alone, before several together."""
_COMBINED: Final = 16
"""Smaller requests that are tried together with other pods moved."""
_COSTS: Final = {
    Code.TOLERATE_TAINTS: 1.0,
    Code.LABEL_NODE: 1.0,
    Code.UNCORDON_NODE: 1.0,
    Code.PREFER_INSTEAD: 2.0,
    Code.DROP_POD_RULE: 2.0,
    Code.REQUEST_LESS: 3.0,
    Code.EVICT_PODS: 4.0,
    Code.DROP_REQUEST: 6.0,
    Code.NODE_RECOVERS: 8.0,
}
"""Weight of a change; each further pod moved counts as much again."""


@dataclass(frozen=True, slots=True)
class _Case:
    """A pod and a node, changed so far."""

    pod: Pod
    node: Node
    done: tuple[Reason, ...] = ()

    def with_pod(self, pod: Pod, reason: Reason) -> "_Case":
        return replace(self, pod=pod, done=(*self.done, reason))

    def with_node(self, node: Node, reason: Reason) -> "_Case":
        return replace(self, node=node, done=(*self.done, reason))


class Trying(Protocol):
    """A cluster on which changes can be tried; see `trial` and `live`."""

    @property
    def profile(self) -> Profile:
        """The profile whose filters decide."""

    @property
    def cluster(self) -> NodeCache:
        """The nodes, unchanged."""

    def rejection(self, pod: Pod, node: str) -> Rejection | None:
        """Return the first rejection of a pod on a node; None where it fits."""

    def node_as(self, node: Node) -> AbstractContextManager[None]:
        """Let a node be another within the context."""

    def without(self, pods: Iterable[Pod]) -> AbstractContextManager[None]:
        """Remove pods from their node within the context."""


@dataclass(frozen=True, slots=True)
class Effort:
    """Bounds of the search."""

    nodes: int = 24
    each: int = 4
    """Nodes of those that one plugin rejected."""
    names: int = 100_000
    """Nodes compared of those with one rejection."""
    groups: int = 100_000
    """Groups of nodes with one rejection, the largest first, of which nodes are compared."""
    fewer: int = 1024
    """Smaller numbers of CPUs."""
    moves: bool = True
    """Whether to look for pods to be moved."""


THOROUGH: Final = Effort()


def nearest_node(trial: Trying, pod: Pod, tried: Attempt, effort: Effort = THOROUGH) -> NearestNode | None:
    """Return the node that lacks least and the changes found to help there; None without nodes."""
    best: tuple[float, NodeInfo, list[tuple[Reason, ...]]] | None = None
    for node in islice(_candidates(trial, tried, effort), effort.nodes):
        changes = sorted(_changes(trial, pod, node, effort), key=_cost)
        cost = _cost(changes[0]) if changes else inf
        if best is None or cost < best[0]:
            best = cost, node, changes
    if best is None:
        return None
    _, node, changes = best
    rejection, remedies = tried.rejections[node.name], []
    for done in changes:
        reason = done[0] if len(done) == 1 else Reason(Code.ALL_OF, done)
        pods = tuple(pod for one in done if one.code is Code.EVICT_PODS for pod in one.values[1:])
        remedies.append(Remedy(label(reason), sentence(reason), pods))
    amounts = tuple(map(sentence, _amounts(tried.cycle.pod, node, rejection)))
    return NearestNode(node.name, tuple(map(str, rejection.reasons)), amounts, tuple(remedies))


def _amounts(pod: PodInfo, node: NodeInfo, rejection: Rejection) -> Iterator[Reason]:
    """Yield, of amounts and CPUs that are missing, what is requested, what is free, and what holds them."""
    for one in rejection.reasons:
        if one.reason.code is Code.INSUFFICIENT_RESOURCE:
            name = one.reason.values[0].removeprefix("amplified ")
            if not (name == "cpu" and node.amplified):
                yield _amount_left(name, pod, node)
        elif rejection.plugin == CPU_PLACEMENT:
            masks: dict[str, int] = {}
            for entry in node.cpu_state.entries.values() if node.cpu_state else ():
                if entry.exclusive:
                    masks[entry.pod] = masks.get(entry.pod, 0) | entry.cpus.mask
            if masks:
                yield Reason(Code.EXCLUSIVE_CPUS_HELD, (tuple(masks.items()),))


def _amount_left(name: str, pod: PodInfo, node: NodeInfo) -> Reason:
    amounts = {one.pod.title: one.requests.get(name, 0) for one in node.pods.values()}
    if name == "cpu" and node.cpu_state:  # The ledger holds CPUs for others than pods of the cluster, too.
        titles = {entry.uid: entry.pod for entry in node.cpu_state.entries.values()}
        for uid, milli in node.cpu_state.pods.items():
            if uid not in node.pods:
                amounts[titles.get(uid, uid)] = milli
    holders = sorted(
        ((title, amount) for title, amount in amounts.items() if amount), key=lambda one: -one[1]
    )
    used, allocatable = sum(amounts.values()), node.allocatable.get(name, 0)
    return Reason(Code.AMOUNT_LEFT, (name, pod.requests.get(name, 0), used, allocatable, tuple(holders)))


def _cost(done: tuple[Reason, ...]) -> float:
    pods = sum(len(one.values) - 2 for one in done if one.code is Code.EVICT_PODS)
    return sum(_COSTS[one.code] for one in done) + pods * _COSTS[Code.EVICT_PODS]


def _candidates(trial: Trying, tried: Attempt, effort: Effort) -> Iterator[NodeInfo]:
    """Yield nodes that failed at the last filters first, and of these the ones with most left."""
    order = {plugin.name: i for i, plugin in enumerate(trial.profile.filters)}
    groups: dict[str, list[NodeInfo]] = {}
    for rejection, _, names in islice(tried.groups(effort.names), effort.groups):
        nodes = (trial.cluster.get(name) for name in names)
        groups.setdefault(rejection.plugin, []).extend(info for info in nodes if info and info.node)
    for plugin in sorted(groups, key=lambda one: -order.get(one, -1)):
        yield from sorted(groups[plugin], key=_left)[: effort.each]


def _left(info: NodeInfo) -> tuple[int, int, str]:
    free = info.allocatable.get("cpu", 0) - info.requested.get("cpu", 0)
    return -int(info.canonical.facts[Fact.FREE]), -free, info.name


def _changes(trial: Trying, pod: Pod, info: NodeInfo, effort: Effort) -> Iterator[tuple[Reason, ...]]:
    """Yield sets of changes, each of which lets the pod fit on the node."""
    assert info.node is not None
    case = _Case(pod, info.node)
    for _ in range(_STEPS):
        rejection = _rejection(trial, case)
        if rejection is None:
            if case.done:
                yield case.done
            return
        fix = _FIXES.get(rejection.plugin)
        fixed = fix(case, info) if fix else None
        if fixed is None:
            yield from _alternatives(trial, case, info, rejection, effort)
            return
        case = fixed


def _rejection(trial: Trying, case: _Case, moved: Iterable[Pod] = ()) -> Rejection | None:
    """Carry a case out and return what is still missing."""
    with ExitStack() as stack:
        stack.enter_context(trial.node_as(case.node))
        stack.enter_context(trial.without(moved))
        return trial.rejection(case.pod, case.node.metadata.name)


# Changes that a reason leaves no choice about.


def _uncordoned(case: _Case, _info: NodeInfo) -> _Case:
    node = structs.replace(case.node, spec=structs.replace(case.node.spec, unschedulable=False))
    uncordoned = _without_taints(node, lambda key: key == f"{_OWN}unschedulable")
    return case.with_node(uncordoned, Reason(Code.UNCORDON_NODE, (node.metadata.name,)))


def _without_taints(node: Node, drop: Callable[[str], bool]) -> Node:
    taints = tuple(taint for taint in node.spec.taints if not drop(taint.key))
    return structs.replace(node, spec=structs.replace(node.spec, taints=taints))


def _tolerating(case: _Case, info: NodeInfo) -> _Case | None:
    """Taints of the node's condition go away with it; the pod tolerates the others."""
    hard = [taint for taint in info.taints if taint.effect in ("NoSchedule", "NoExecute")]
    left = [taint for taint in hard if not tolerated(taint, case.pod.spec.tolerations)]
    keys = tuple(taint.key for taint in left if taint.key.startswith(_OWN))
    if keys:
        if any(one.code is Code.NODE_RECOVERS for one in case.done):
            return None
        node = _without_taints(case.node, lambda key: key.startswith(_OWN))
        healthy = structs.replace(node, status=structs.replace(node.status, conditions=()))
        return case.with_node(healthy, Reason(Code.NODE_RECOVERS, (node.metadata.name, *keys)))
    if not left:
        return None
    names = tuple(f"{one.key}{f'={one.value}' if one.value else ''}:{one.effect}" for one in left)
    more = (Toleration(one.key, "Equal", one.value, one.effect) for one in left)
    spec = structs.replace(case.pod.spec, tolerations=(*case.pod.spec.tolerations, *more))
    return case.with_pod(structs.replace(case.pod, spec=spec), Reason(Code.TOLERATE_TAINTS, names))


def _labelled(case: _Case, _info: NodeInfo) -> _Case | None:
    """Give the node the labels that are missing, or drop the pod's rule where no label helps."""
    labels = pod_changes.missing_labels(case.pod, case.node)
    if labels is None or any(one.code is Code.LABEL_NODE for one in case.done):
        free, rule = pod_changes.without_node_affinity(case.pod)
        return case.with_pod(free, Reason(Code.DROP_POD_RULE, (rule,))) if rule else None
    meta = structs.replace(case.node.metadata, labels=case.node.metadata.labels | labels)
    names = tuple(f"{key}={value}" for key, value in sorted(labels.items()))
    reason = Reason(Code.LABEL_NODE, (case.node.metadata.name, *names))
    return case.with_node(structs.replace(case.node, metadata=meta), reason)


_FIXES: Final[dict[str, Callable[[_Case, NodeInfo], _Case | None]]] = {
    "NodeUnschedulable": _uncordoned,
    "TaintToleration": _tolerating,
    "NodeAffinity": _labelled,
}


# Changes among which there is a choice.


def _alternatives(
    trial: Trying, case: _Case, info: NodeInfo, rejection: Rejection, effort: Effort
) -> Iterator[tuple[Reason, ...]]:
    """Request less, a requirement as a preference, a rule about other pods dropped, or other pods moved."""
    softened = translate.softened(case.pod)
    cases = [case.with_pod(pod, Reason(Code.PREFER_INSTEAD, (key, hard))) for key, hard, pod in softened]
    freed = pod_changes.without_pod_rules(case.pod)
    cases += [case.with_pod(pod, Reason(Code.DROP_POD_RULE, (rule,))) for rule, pod in freed]
    softer = [one for one in cases if _rejection(trial, one) is None]
    yield from (one.done for one in softer)
    if less := _less(trial, case, info, effort.fewer):
        yield less.done
    if not effort.moves:
        return
    if rejection.resolvable and (pods := _moved(trial, case, info)):
        yield _evicting(case, info, pods)
    elif not softer and not less:
        # The largest smaller request that fits once other pods are gone, with these pods.
        fewer = pod_changes.Requests(case.pod).fewer_cpus(info.allocatable.get("cpu", 0))
        for pod, reason in islice(fewer, _COMBINED):
            smaller = case.with_pod(pod, reason)
            if pods := _moved(trial, smaller, info):
                yield _evicting(smaller, info, pods)
                return


def _evicting(case: _Case, info: NodeInfo, pods: Iterable[Pod]) -> tuple[Reason, ...]:
    names = tuple(sorted(pod.title for pod in pods))
    return (*case.done, Reason(Code.EVICT_PODS, (info.name, *names)))


def _less(trial: Trying, case: _Case, info: NodeInfo, most: int) -> _Case | None:
    """Request as much as is left of what is missing; then fewer and fewer CPUs."""
    left = {name: info.allocatable.get(name, 0) - info.requested.get(name, 0) for name in info.allocatable}
    case = pod_changes.Requests(case.pod).fitted(left, case.with_pod) or case
    if case.done and _rejection(trial, case) is None:
        return case
    for pod, reason in islice(pod_changes.Requests(case.pod).fewer_cpus(left.get("cpu", 0)), most):
        fewer = case.with_pod(pod, reason)
        if _rejection(trial, fewer) is None:
            return fewer
    return None


def _moved(trial: Trying, case: _Case, info: NodeInfo) -> list[Pod]:
    """Return the fewest pods found whose move makes room: one, or several of which each is needed."""
    by_weight = sorted(
        info.pods.values(),
        key=lambda one: (one.pod.spec.priority, one.requests.get("cpu", 0), one.pod.title),
    )
    # Pods that mirror a manifest of the kubelet's cannot be moved.
    pods = [one.pod for one in by_weight if keys.CONFIG_MIRROR not in one.pod.metadata.annotations]
    for pod in pods[:_SINGLES]:
        if _rejection(trial, case, [pod]) is None:
            return [pod]
    if len(pods) < 2 or _rejection(trial, case, pods) is not None:
        return []
    moved = pods
    # Whatever can stay is kept on the node: important pods first, then the many small ones.
    for pod in sorted(pods, key=lambda one: -one.spec.priority):
        fewer = [one for one in moved if one is not pod]
        if _rejection(trial, case, fewer) is None:
            moved = fewer
    return moved


_QUICK: Final = Effort(nodes=3, each=1, names=512, groups=256, fewer=8, moves=False)
_VICTIMS: Final = 4
"""Pods that an event names."""


def help_for(profile: Profile, cluster: NodeCache, tried: Attempt) -> str:
    """Return the nearest node and what would help there as a sentence, "" if nothing is found quickly.

    Of a pod with a nominated node: that node, and the pods that are evicted there.
    """
    uid = tried.cycle.pod.uid
    if node := cluster.nominations.of(uid):
        infos = (cluster.pod(victim) for victim in cluster.nominations.victims(uid))
        titles = sorted(info.pod.title for info in infos if info)
        if not titles:
            return f"Node {node} is nominated."
        more = f" and {len(titles) - _VICTIMS} more pods" if len(titles) > _VICTIMS else ""
        return f"Node {node} is nominated: waiting for {', '.join(titles[:_VICTIMS])}{more} to terminate."
    trial, pod = _LiveTrial(profile, cluster), tried.cycle.pod.pod
    nearest = nearest_node(trial, pod, tried, _QUICK) if tried.rejected is None else None
    if nearest is None or not (nearest.amounts or nearest.changes):
        return ""
    # The amounts that the message has not named.
    lacks = f" ({'; '.join(nearest.amounts)})" if nearest.amounts else ""
    helps = f": {'; or '.join(one.text for one in nearest.changes)}" if nearest.changes else ""
    return f"Nearest is {nearest.name}{lacks}{helps}."


@dataclass(slots=True)
class _LiveTrial:
    """The scheduler's own nodes, which stay as they are; see `nearest.Trying`."""

    profile: Profile
    cluster: NodeCache
    changed: NodeInfo | None = None

    def rejection(self, pod: Pod, node: str) -> Rejection | None:
        info = self.changed or self.cluster.get(node)
        assert info is not None
        return finalists.rejection_on(self.profile, self.cluster, PodInfo.of(pod), info)

    @contextmanager
    def node_as(self, node: Node) -> Iterator[None]:
        info = self.cluster.get(node.metadata.name)
        if info is not None and info.node is not node:
            self.changed = info.variant(info.pods, info.state)
            self.changed.node, self.changed.taints = node, tuple(taints_of(node))
        try:
            yield
        finally:
            self.changed = None

    @contextmanager
    def without(self, pods: Iterable[Pod]) -> Iterator[None]:
        gone = list(pods)
        if gone and self.changed is not None:
            self.changed = trials.without(self.changed, map(PodInfo.of, gone))
        yield
