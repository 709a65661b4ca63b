"""The sentences of the scheduler, word for word upstream's where it has one, and remedies for pods."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from corelane.cpuset import named
from corelane.reasons.codes import Code, Reason, count, ends_instances, holder_title

DEFINE_TOPOLOGIES: Final = "kubectl apply -f deploy/noderesourcetopologies.yaml"
"""Defines NodeResourceTopology in a cluster."""
_UNITS: Final = ((30, "Gi"), (20, "Mi"), (10, "Ki"))
_MOST_HOLDERS: Final = 5
_START_AGENT: Final = (
    "start the node's agent (`kubectl -n corelane-system get pods -o wide` shows where one is missing)"
)


def _no_topology(problem: str) -> str:
    if problem:
        return f"invalid NodeResourceTopology ({problem}), so that no CPUs can be bound"
    return (
        "no NodeResourceTopology, so that no CPUs can be bound; run corelane's agent on the node, which "
        f"writes it (where the kind is not defined: {DEFINE_TOPOLOGIES})"
    )


def _crane(cpus: int, free: Iterable[tuple[int, int]]) -> str:
    zones = ", ".join(f"{numa}: {milli}m" for numa, milli in free) or "none"
    return f"{count(cpus, 'CPU')} requested, free by NUMA node: {zones}"


def _amount_left(
    name: str, requested: int, used: int, allocatable: int, holders: Iterable[tuple[str, int]]
) -> str:
    text = (
        f"{_amount(name, requested)} requested, {_amount(name, max(0, allocatable - used))} free of "
        f"{_amount(name, allocatable)} allocatable"
    )
    held = _listed(f"{holder_title(pod)} {_amount(name, amount)}" for pod, amount in holders)
    return f"{text}; used by {held}{ends_instances(pod for pod, _ in holders)}" if held else text


def _amount(name: str, amount: int) -> str:
    """Return milliCPU as CPUs, and bytes in the largest unit that loses little of them."""
    if name == "cpu":
        return f"{amount}m CPU" if amount % 1000 else count(amount // 1000, "CPU")
    if name in ("memory", "ephemeral-storage") or name.startswith("hugepages-"):
        size = next((f"{amount // 2**n}{unit}" for n, unit in _UNITS if amount >= 16 * 2**n), str(amount))
        return f"{size} {name}"
    return f"{amount} {name}"


def _exclusive_cpus_held(holders: Iterable[tuple[str, int]]) -> str:
    held = _listed(f"{holder_title(pod)} ({named(cpus)})" for pod, cpus in holders)
    return f"exclusive CPUs held by {held}{ends_instances(pod for pod, _ in holders)}"


def _listed(texts: Iterable[str]) -> str:
    every = list(texts)
    more = f" and {len(every) - _MOST_HOLDERS} more" if len(every) > _MOST_HOLDERS else ""
    return f"{', '.join(every[:_MOST_HOLDERS])}{more}"


_PHRASES: Final[Mapping[Code, str | Callable[..., str]]] = {
    Code.NODE_UNSCHEDULABLE: "node(s) were unschedulable",
    Code.UNTOLERATED_TAINT: "node(s) had untolerated taint(s)",
    Code.NODE_AFFINITY_MISMATCH: "node(s) didn't match Pod's node affinity/selector",
    Code.TOO_MANY_PODS: "Too many pods",
    Code.NO_PREEMPTION_VICTIMS: "No preemption victims found for incoming pod",
    Code.INSUFFICIENT_RESOURCE: "Insufficient {0}",
    Code.AMOUNT_LEFT: _amount_left,
    Code.EXCLUSIVE_CPUS_HELD: _exclusive_cpus_held,
    Code.POOL_WITHOUT_CPU: "node(s) had no CPU left for the shared pool",
    Code.BEST_EFFORT_WITHOUT_CPU: "node(s) had too few CPUs left for best effort",
    Code.TOO_FEW_EXCLUSIVE: "node(s) had too few CPUs free for exclusive use ({0} requested)",
    Code.INVALID_CPU_TOPOLOGY: "node(s) invalid CPU Topology",
    Code.AGENT_ABSENT: "node(s) had no running corelane agent to apply exclusive CPUs",
    Code.AGENT_LEASE_EXPIRED: ("Lease {0} was last renewed at {1}, longer than {2} s ago; " + _START_AGENT),
    Code.AGENT_LEASE_RELEASED: "Lease {0} was given up at {1}; " + _START_AGENT,
    Code.AGENT_LEASE_MISSING: "Lease {0} does not exist; " + _START_AGENT,
    Code.CPUS_UNKNOWN: "node(s) had pod {0} with unreadable CPUs ({1})",
    Code.NO_CPU_TOPOLOGY: _no_topology,
    Code.ZONES_CANNOT_ALIGN: "cannot align {0}",
    Code.CRANE_INSUFFICIENT: _crane,
    Code.CRANE_INSUFFICIENT_NUMA: "node(s) had insufficient resource of NUMA node",
    Code.NODE_NAME_MISMATCH: "node(s) didn't match the requested node name",
    Code.NODE_NOT_NAMED: "node(s) didn't satisfy plugin(s) [NodeAffinity]",
    Code.AFFINITY_TERMS_CONFLICT: "pod affinity terms conflict",
    Code.ENFORCED_AFFINITY_MISMATCH: "node(s) didn't match scheduler-enforced node affinity",
    Code.PORTS_TAKEN: "node(s) didn't have free ports for the requested pod ports",
    Code.POD_AFFINITY_MISMATCH: "node(s) didn't match pod affinity rules",
    Code.POD_ANTI_AFFINITY_MISMATCH: "node(s) didn't match pod anti-affinity rules",
    Code.EXISTING_ANTI_AFFINITY: "node(s) didn't satisfy existing pods anti-affinity rules",
    Code.SPREAD_LABEL_MISSING: (
        "node(s) didn't match pod topology spread constraints (missing required label)"
    ),
    Code.SPREAD_SKEW: "node(s) didn't match pod topology spread constraints",
    Code.PLUGIN_FAILED: "the plugin failed: {0}: {1}",
    Code.DISK_CONFLICT: "node(s) had no available disk",
    Code.CLAIM_IN_USE: (
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
        "already in-use by another pod"
    ),
    Code.VOLUME_ZONE_MISMATCH: "node(s) had no available volume zone",
    Code.VOLUME_NODE_MISMATCH: "node(s) didn't match PersistentVolume's node affinity",
    Code.VOLUME_NOT_AVAILABLE: "node(s) didn't find available persistent volumes to bind",
    Code.STORAGE_INSUFFICIENT: "node(s) did not have enough free storage",
    Code.VOLUME_COUNT_EXCEEDED: "node(s) exceed max volume count",
    Code.VOLUMES_OF_DRIVER: "CSI driver {0}: {1} of {3} volumes in use, {2} more requested",
    Code.VOLUME_NOT_COUNTED: "{0}",
    Code.CLAIM_LOOKED_UP: 'looking up PVC {0}: persistentvolumeclaim "{1}" not found',
    Code.VOLUME_MISSING: "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
    Code.CLAIM_NOT_FOUND: 'persistentvolumeclaim "{0}" not found',
    Code.CLAIM_LOST: 'persistentvolumeclaim "{0}" bound to non-existent persistentvolume "{1}"',
    Code.CLAIM_DELETED: 'persistentvolumeclaim "{0}" is being deleted',
    Code.CLAIM_AWAITED: 'waiting for ephemeral volume controller to create the persistentvolumeclaim "{0}"',
    Code.CLAIM_OF_OTHER_POD: "PVC {0} was not created for pod {1} (pod is not owner)",
    Code.CLAIM_WITHOUT_NAME: "PersistentVolumeClaim had no name",
    Code.CLAIM_WITHOUT_CLASS: "PersistentVolumeClaim had no pv name and storageClass name",
    Code.CLAIM_NOT_BOUND: "PersistentVolume had no name",
    Code.CLAIMS_UNBOUND: "pod has unbound immediate PersistentVolumeClaims",
    Code.VOLUME_NOT_FOUND: 'persistentvolume "{0}" not found',
    Code.CLASS_NOT_FOUND: 'storageclass.storage.k8s.io "{0}" not found',
    Code.NAMESPACES_NOT_WATCHED: (
        "pod has affinity terms with a namespaceSelector, and namespaces cannot be watched: {0}; allow the "
        "scheduler's service account to list and watch them"
    ),
    Code.VOLUMES_NOT_WATCHED: (
        "pod has volumes, and {0} cannot be watched: {1}; allow the scheduler's service account to list and "
        "watch them"
    ),
    Code.RESOURCE_CLAIMS_UNSUPPORTED: (
        "spec.resourceClaims ({0}): dynamic resource allocation is not supported; "
        "use kube-scheduler for this pod, or request devices as extended resources"
    ),
    Code.POD_INVALID: "{0}",
    Code.SCHEDULING_GATES: lambda *gates: f"waiting for scheduling gates: {', '.join(gates)}",
}
SENTENCES: Final[Mapping[Code, tuple[str, str | Callable[..., str]]]] = {
    code: ("filter", phrase) for code, phrase in _PHRASES.items()
}


def _tolerate(*taints: str) -> str:
    return f"tolerate {_plural('taint', taints)} {', '.join(taints)}"


def _label(node: str, *labels: str) -> str:
    return f"label node {node} with {', '.join(labels)}"


def _recovers(node: str, *taints: str) -> str:
    return f"wait until node {node} has no {_plural('taint', taints)} {', '.join(taints)}"


def _evict(node: str, *pods: str) -> str:
    return f"move {_plural('pod', pods)} {', '.join(pods)} off node {node}"


def _plural(noun: str, things: Iterable[object]) -> str:
    return noun if len(tuple(things)) == 1 else f"{noun}s"


def _all_of(*reasons: Reason) -> str:
    return ", and ".join(_render(reason) for reason in reasons)


def _render(reason: Reason) -> str:
    phrase = REMEDY_SENTENCES[reason.code][1]
    return phrase.format(*reason.values) if isinstance(phrase, str) else phrase(*reason.values)


REMEDY_SENTENCES: Final[Mapping[Code, tuple[str, str | Callable[..., str]]]] = {
    Code.TOLERATE_TAINTS: ("tolerate", _tolerate),
    Code.UNCORDON_NODE: ("uncordon", "uncordon node {0}"),
    Code.NODE_RECOVERS: ("recover", _recovers),
    Code.LABEL_NODE: ("label", _label),
    Code.DROP_POD_RULE: ("drop", "drop the pod's {0}"),
    Code.DROP_REQUEST: ("drop", "drop the pod's request for {0}"),
    Code.PREFER_INSTEAD: ("soften", "prefer instead of require: {1} in annotation {0}"),
    Code.REQUEST_LESS: ("fewer", "request {1} {0} instead of {2}"),
    Code.EVICT_PODS: ("release", _evict),
    Code.ALL_OF: ("several", _all_of),
}
