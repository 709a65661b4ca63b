"""Kubernetes' own rules of what a pod accepts in a node: selectors, node affinity, taints and tolerations."""

from collections.abc import Iterable, Iterator, Mapping

from corelane.kube.meta import condition
from corelane.kube.objects import Node, Taint
from corelane.kube.pod import NodeSelectorRequirement, NodeSelectorTerm, Pod, Toleration

__all__ = [
    "matches_required_affinity",
    "preferred_share",
    "taints_of",
    "term_matches",
    "tolerated",
    "tolerates",
    "untolerated",
]

_REPELLING = frozenset({"NoSchedule", "NoExecute"})
_NOT_READY = "node.kubernetes.io/not-ready"
_UNREACHABLE = "node.kubernetes.io/unreachable"
_DISK_PRESSURE = "node.kubernetes.io/disk-pressure"


def matches_required_affinity(pod: Pod, node: Node) -> bool:
    """Whether the node has what the pod's node selector and required node affinity demand."""
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in pod.spec.node_selector.items()):
        return False
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    if not affinity or affinity.required is None:
        return True
    return any(term_matches(term, node) for term in affinity.required.node_selector_terms)


def preferred_share(pod: Pod, node: Node) -> float:
    """What part of the weights of the pod's preferred terms the node meets; 0 where it has none."""
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    preferred = affinity.preferred if affinity else ()
    total = sum(term.weight for term in preferred)
    met = sum(term.weight for term in preferred if term_matches(term.preference, node))
    return met / total if total > 0 else 0.0


def term_matches(term: NodeSelectorTerm, node: Node) -> bool:
    """Whether all of the term's requirements hold; an empty term matches no node."""
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": node.metadata.name}
    return all(_holds(rule, node.metadata.labels) for rule in term.match_expressions) and all(
        _holds(rule, fields) for rule in term.match_fields
    )


def _holds(rule: NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(rule.key)
    match rule.operator:
        case "In":
            return value in rule.values if value is not None else False
        case "NotIn":
            return value not in rule.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(rule, value)
    return False


def _compares(rule: NodeSelectorRequirement, value: str | None) -> bool:
    if value is None or len(rule.values) != 1:
        return False
    try:
        found, bound = int(value), int(rule.values[0])
    except ValueError:
        return False
    return found > bound if rule.operator == "Gt" else found < bound


def taints_of(node: Node) -> Iterator[Taint]:
    """The node's taints, and those that upstream's node controller makes of conditions: not ready, disk full.

    On the embedded server nobody else might set them, and it must not depend on that.
    """
    yield from node.spec.taints
    for key in _of_conditions(node):
        if all(taint.key != key for taint in node.spec.taints):
            yield Taint(key, effect="NoSchedule")


def _of_conditions(node: Node) -> Iterator[str]:
    ready = condition(node.status.conditions, "Ready")
    if ready is not None and ready.status != "True":
        yield _NOT_READY if ready.status == "False" else _UNREACHABLE
    disk = condition(node.status.conditions, "DiskPressure")
    if disk is not None and disk.status == "True":
        yield _DISK_PRESSURE


def untolerated(pod: Pod, node: Node) -> Taint | None:
    """The first taint that keeps the pod off the node."""
    tolerations = pod.spec.tolerations
    repelling = (taint for taint in taints_of(node) if taint.effect in _REPELLING)
    return next((taint for taint in repelling if not tolerated(taint, tolerations)), None)


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    return any(tolerates(toleration, taint) for toleration in tolerations)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Upstream's `ToleratesTaint`: an empty effect or key (with Exists) stands for every one."""
    if toleration.effect not in {"", taint.effect} or toleration.key not in {"", taint.key}:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in {"", "Equal"} and toleration.value == taint.value
