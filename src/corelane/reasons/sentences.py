"""The sentence of each code: its object, what happened, the observed value, the limit, the remedy.

CPUs and NUMA nodes in values are masks; memory is in bytes, CPU requests in milliCPU. This file has the
sentences about a pod's class and pools and about rejected pods; texts of the kubelet and of Koordinator stand
as upstream writes them (v1.36; koord-scheduler 1.6).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from corelane import quantity
from corelane.cpuset import format_list
from corelane.reasons import kubelets, placements, scheduling
from corelane.reasons.codes import Code, Reason, count, holder_title
from corelane.reasons.placements import Phrase, numa_nodes, render


def _unexpected(text: str) -> str:
    """Make the kubelet's sentence of an error without a reason of its own."""
    return f"Allocate failed due to {text}, which is unexpected"


def _limit_not_request(request: int, limit: int) -> str:
    return (
        f"shared pool: CPU request {request}m differs from CPU limit {f'{limit}m' if limit else '(not set)'}"
    )


_SOURCES: Final = {
    "label": "label qosClass {}",
    "BestEffort": "BestEffort pod: class {}",
    "Burstable": "Burstable pod: class {}",
    "Guaranteed": "Guaranteed pod: class {} on this node",
}


def _class(rest: str) -> Callable[..., str]:
    """A sentence that starts with where the class is from: the label, or the QoS class of Kubernetes."""

    def phrase(source: str, qos: str, *values: Any) -> str:
        return f"{_SOURCES[source].format(qos)}; {rest.format(*values)}"

    return phrase


def _class_pool(source: str, qos: str, pool: str) -> str:
    return f"{_SOURCES[source].format(qos)}; runs in the {pool} pool"


def _class_exclusive(source: str, qos: str, shared: bool) -> str:
    whence = f"cpu-policy {qos}" if source == "cpu-policy" else _SOURCES[source].format(qos)
    return f"{whence}; exclusive CPUs{', shared with BE only' if shared else ''}"


def _class_immovable(source: str, qos: str) -> str:
    whence = "" if source == "cpu-policy" else f"{_SOURCES[source].format(qos)}; "
    return f"{whence}cpu-policy immovable: bound to CPUs that stay in the shared pool"


def _remaining(rooms: Iterable[tuple[int, int]]) -> str:
    return "remaining CPU by NUMA node: " + (
        ", ".join(f"{node}: {milli}m" for node, milli in rooms) or "none"
    )


def _zone_assigned(nodes: int, milli: int, rooms: Iterable[tuple[int, int]], proposed: int) -> str:
    why = f"runs in the shared pool of {numa_nodes(nodes)}, which has {milli}m left ({_remaining(rooms)})"
    return f"{why}; proposed {numa_nodes(proposed)} unavailable" if proposed else why


def _zone_whole_pool(milli: int, rooms: Iterable[tuple[int, int]]) -> str:
    return f"runs in the whole shared pool: no NUMA node has {milli}m left ({_remaining(rooms)})"


def _insufficient_numa(most: int, what: str, milli: int, rooms: Iterable[tuple[int, int]]) -> str:
    where = "no NUMA node has" if most == 1 else f"no {most} NUMA nodes have"
    text = f"{where} {milli}m left in the shared pool for the pod's CPU {what} ({_remaining(rooms)})"
    return f"node(s) Insufficient NUMA Node resources: {text}"


def _amplified(requested: int, used: int, capacity: int, factor: float) -> str:
    counts = f", which counts {factor:g} times as it binds CPUs" if factor else ""
    return f"Insufficient amplified cpu: requested: {requested}{counts}, used: {used}, capacity: {capacity}"


def _not_enough(requested: int, available: int, usable: int) -> str:
    text = f"not enough cpus available to satisfy request: requested={requested}, available={available}"
    if usable:
        text += f" (the shared pool needs all CPUs of this node, {format_list(usable)})"
    return _unexpected(text)


def _best_effort_exhausted(left: int, least: int) -> str:
    return (
        f"BE pool: {count(left.bit_count(), 'CPU')} would be left ({format_list(left)}), "
        f"at least {least} must remain on this node (beMinimum)"
    )


def _pod_level_not_aligned(scope: str) -> str:
    where = (
        "under pod-scope topology manager" if scope == "pod" else "with a container-level topology manager"
    )
    return f"Pod Scope pod with pod-level resources failed admission {where}"


def _insufficient_cpus(
    cause: Reason,
    n: int,
    free: int,
    usable: int,
    kept: int,
    rules: Iterable[tuple[Reason, int]],
    owners: list[str],
) -> str:
    parts = [render(placements.SENTENCES, cause)]
    if (cause.values[1] if cause.code is Code.NO_PLACEMENT else cause).code in _WITHOUT_REQUEST:
        parts[0] += f": {count(n, 'CPU')} requested"
    parts.append(f"{free} of {count(usable, 'CPU')} free for exclusive use")
    if kept:
        parts.append(f"{kept} reserved in the shared pool for pods assigned to their NUMA node")
    parts += [f"{render(placements.SENTENCES, rule)} rules out {lost}" for rule, lost in rules]
    if owners:
        more = f" and {len(owners) - 5} more" if len(owners) > 5 else ""
        parts.append(f"exclusive CPUs held by: {', '.join(map(holder_title, owners[:5]))}{more}")
    return "; ".join(parts)


def _limit_differs(container: str, request: int, limit: int) -> str:
    return (
        f"{_NOT_WHOLE}, and equal to the limit on this node: container {container}: request {request}m, "
        f"limit {f'{limit}m' if limit else 'not set'}"
    )


def _bind_conflict(required: bool, own: str, here: str) -> str:
    verb_ = "requires" if required else "requests"
    return f"{_BIND_CONFLICT}: pod {verb_} {own}, node requires {here}; remove one of them"


def _zones_not_aligned(
    kind: str, container: str, name: str, requested: int, free: Iterable[tuple[int, int]]
) -> str:
    what = f"{kind} {container}" if container else kind
    zones = ", ".join(f"{node}: {_amount(name, amount)}" for node, amount in free) or "none"
    text = f"{what} requests {_amount(name, requested)} {name}"
    return f"{text}, available by NUMA node: {zones} (policy single-numa-node)"


def _amount(name: str, amount: int) -> str:
    """CPUs are in milliCPU, memory and huge pages in bytes, devices are counted."""
    if name == "cpu":
        return f"{amount}m"
    is_size = name == "memory" or name.startswith("hugepages-")
    return str(quantity.of_value(amount, quantity.BINARY_SI)) if is_size else str(amount)


def _requirement(what: str, why: Reason) -> str:
    return (
        f"required {what} applies to pods that are bound to CPUs; this pod is not: {render(_SENTENCES, why)}"
    )


_NOT_WHOLE: Final = "the requested CPUs must be integer"


_BIND_CONFLICT: Final = "node(s) cpu bind policy conflicts with pod's required cpu bind policy"


_NOT_MULTIPLE: Final = "node(s) requested cpus not multiple cpus per core"


_UNEXPECTED: Final = "UnexpectedAdmissionError"


_WITHOUT_REQUEST: Final = {
    Code.KOORDINATOR_NOT_ENOUGH,
    Code.KOORDINATOR_BIND_POLICY,
    Code.KOORDINATOR_NUMA,
    Code.NUMA_EXCLUSIVE_UNMET,
    Code.RESOURCES_NOT_LOCAL,
}
"""Causes whose sentence does not have the number of CPUs requested."""
_SENTENCES: Final[Mapping[Code, tuple[str, Phrase]]] = {
    Code.POLICY_NONE: ("shared", "policy none: no exclusive CPUs on this node"),
    Code.NOT_GUARANTEED: ("shared", "shared pool: pod is {0}, not Guaranteed"),
    Code.CPU_REQUEST_NOT_INTEGER: ("shared", "shared pool: CPU request {0}m is not an integer"),
    Code.NO_CPU_REQUEST: ("shared", "shared pool: no CPU request"),
    Code.CPU_LIMIT_NOT_REQUEST: ("shared", _limit_not_request),
    Code.NOT_A_REGULAR_CONTAINER: ("shared", "shared pool: cpu-policy applies to regular containers only"),
    Code.POD_LEVEL_RESOURCES: (
        "shared",
        "shared pool: pod-level resources, without feature gate PodLevelResourceManagers",
    ),
    Code.RESIZED_IN_POOL: (
        "shared",
        "shared pool: CPU request is an integer only since a resize; create the pod again for exclusive CPUs",
    ),
    Code.ADMITTED_UNDER_OTHER_SETTINGS: (
        "shared",
        "shared pool: admitted under other node settings; unchanged while it runs",
    ),
    Code.CLASS_POOL: ("class", _class_pool),
    Code.CLASS_EXCLUSIVE: ("class", _class_exclusive),
    Code.CLASS_IMMOVABLE: ("class", _class_immovable),
    Code.CLASS_CONFINED: (
        "class",
        _class("bind policy ConstrainedBurst: runs in the shared pool of one NUMA node"),
    ),
    Code.CLASS_CPU_POLICY_IN_POOL: ("class", _class("cpu-policy {0}: runs in the shared pool")),
    Code.CLASS_PRIORITY_NOT_BOUND: (
        "class",
        _class("priority class {0}: runs in the shared pool, only koord-prod gets exclusive CPUs"),
    ),
    Code.CLASS_NO_BIND_POLICY: ("class", _class("no bind policy: runs in the shared pool")),
    Code.CLASS_NO_CPU_REQUEST: ("class", _class("no CPU request: runs in the shared pool")),
    Code.CLASS_NO_INTEGER_REQUEST: (
        "class",
        "Guaranteed pod without an integer CPU request in any container: runs in the shared pool",
    ),
    Code.CLASS_NO_INTEGER_LIMIT: (
        "class",
        "cpu-policy {0} without an integer CPU limit in any container: runs in the shared pool",
    ),
    Code.ZONE_PROPOSAL_USED: (
        "zone",
        lambda nodes, milli: (
            f"shared pool of {numa_nodes(nodes)}, {milli}m: used as proposed by the scheduler"
        ),
    ),
    Code.ZONE_ASSIGNED: ("zone", _zone_assigned),
    Code.ZONE_WHOLE_POOL: ("zone", _zone_whole_pool),
    Code.OUT_OF_CPU: (
        "OutOfcpu",
        "Node didn't have enough resource: cpu, requested: {0}, used: {1}, capacity: {2}",
    ),
    Code.OUT_OF_AMPLIFIED_CPU: ("OutOfcpu", _amplified),
    Code.NOT_ENOUGH_CPUS: (_UNEXPECTED, _not_enough),
    Code.ALLOCATION_FAILED: (_UNEXPECTED, _unexpected("{0}")),
    Code.SHARED_POOL_NEEDS_A_CPU: (
        _UNEXPECTED,
        lambda pool: _unexpected(
            f"the shared pool {format_list(pool)} being used up: "
            "one CPU must remain for containers without exclusive CPUs"
        ),
    ),
    Code.SHARED_POOL_EXHAUSTED: (
        "SharedPoolExhausted",
        lambda pool: (
            f"shared pool {format_list(pool)}: no CPU would be left, at least 1 must remain "
            "for containers without exclusive CPUs"
        ),
    ),
    Code.BEST_EFFORT_EXHAUSTED: ("BestEffortExhausted", _best_effort_exhausted),
    Code.INSUFFICIENT_CPUS: ("InsufficientCPUs", _insufficient_cpus),
    Code.INSUFFICIENT_NUMA: ("InsufficientNUMA", _insufficient_numa),
    Code.NOT_ALIGNED: ("TopologyAffinityError", "Resources cannot be allocated with Topology locality"),
    Code.POD_LEVEL_NOT_ALIGNED: ("TopologyAffinityError", _pod_level_not_aligned),
    Code.ZONES_NOT_ALIGNED: ("TopologyAffinityError", _zones_not_aligned),
    Code.KUBELET_EXCLUSIVE_CPUS: (
        "ExclusiveCPUsUnavailable",
        (
            "node(s) with a kubelet that allocates CPUs: {0} needs exclusive CPUs, which the kubelet gives "
            "to Guaranteed pods with integer CPUs only; make the pod Guaranteed, or let it run on other nodes"
        ),
    ),
    Code.SMT_NOT_MULTIPLE: (
        "SMTAlignmentError",
        "SMT Alignment Error: requested {0} cpus not multiple cpus per core = {1}",
    ),
    Code.SMT_NOT_ENOUGH_CORES: (
        "SMTAlignmentError",
        (
            "SMT Alignment Error: not enough free physical CPUs: "
            "available physical CPUs = {0}, requested CPUs = {1}, CPUs per core = {2}"
        ),
    ),
    Code.POD_NOT_MULTIPLE_OF_CORE: (
        "SMTAlignmentError",
        f"{_NOT_MULTIPLE}: pod requests {{0}} CPUs, a core has {{1}}; request a multiple of {{1}}",
    ),
    Code.CONTAINER_NOT_MULTIPLE_OF_CORE: (
        "SMTAlignmentError",
        f"{_NOT_MULTIPLE}: container {{0}} requests {{1}}, a core has {{2}}, and FullPCPUs is required",
    ),
    Code.NO_MEMORY_AFFINITY: (
        _UNEXPECTED,
        _unexpected(
            "[memorymanager] failed to get the default NUMA affinity, "
            "no NUMA nodes with enough memory is available"
        ),
    ),
    Code.NO_PREFERRED_MEMORY_HINT: (
        _UNEXPECTED,
        _unexpected("[memorymanager] failed to find the default preferred hint"),
    ),
    Code.NO_EXTENDED_MEMORY_AFFINITY: (
        _UNEXPECTED,
        _unexpected("[memorymanager] failed to find NUMA nodes to extend the current topology hint"),
    ),
    Code.NO_PREFERRED_EXTENDED_MEMORY_HINT: (
        _UNEXPECTED,
        _unexpected("[memorymanager] failed to find the extended preferred hint"),
    ),
    Code.MEMORY_GROUP_VIOLATED: (
        _UNEXPECTED,
        _unexpected("[memorymanager] preferred hint violates NUMA node allocation"),
    ),
    Code.DEVICES_UNHEALTHY: (
        _UNEXPECTED,
        _unexpected("no healthy devices present; cannot allocate unhealthy devices {0}"),
    ),
    Code.DEVICES_UNAVAILABLE: (
        _UNEXPECTED,
        _unexpected("requested number of devices unavailable for {0}. Requested: {1}, Available: {2}"),
    ),
    Code.POD_LEVEL_INIT_WITHOUT_RESOURCE: (
        "EmptyPodSharedPoolError",
        "pod rejected, pod has shared init containers but no {0} available for them",
    ),
    Code.POD_LEVEL_SHARED_WITHOUT_CPUS: (
        "EmptyPodSharedPoolError",
        (
            "pod rejected, sum of exclusive container cpu requests equals pod budget, "
            "leaving no cpus for shared containers"
        ),
    ),
    Code.POD_LEVEL_SHARED_WITHOUT_MEMORY: (
        "EmptyPodSharedPoolError",
        (
            "pod rejected, sum of exclusive container {0} requests equals pod budget, "
            "leaving no memory for shared containers"
        ),
    ),
    Code.BIND_POLICY_CONFLICT: ("CPUPolicyConflict", _bind_conflict),
    Code.BIND_POLICY_NEEDS_SMT: (
        "CPUPolicyConflict",
        f"{_BIND_CONFLICT}: {{0}} has no effect where no core has SMT siblings; require FullPCPUs",
    ),
    Code.NUMA_POLICY_CONFLICT: (
        "NUMAPolicyConflict",
        "node(s) NUMA Topology policy not match: pod has {0}, node has {1}; remove one of them",
    ),
    Code.CONSTRAINED_BURST_EXCLUSIVE: (
        "CPUPolicyConflict",
        (
            "bind policy ConstrainedBurst: for pods without exclusive CPUs, but the pod is labelled LSE; "
            "label it LS, or use FullPCPUs or SpreadByPCPUs"
        ),
    ),
    Code.CONSTRAINED_BURST_NO_LIMIT: (
        "InvalidCPURequest",
        "bind policy ConstrainedBurst: container {0} has no CPU limit; set one",
    ),
    Code.REQUIREMENT_NEEDS_CPUS: ("CPUPolicyConflict", _requirement),
    Code.POD_CPU_REQUEST_NOT_INTEGER: ("InvalidCPURequest", f"{_NOT_WHOLE}: pod requests {{0}}m"),
    Code.CPU_LIMIT_DIFFERS: ("InvalidCPURequest", _limit_differs),
    Code.CORE_KIND_MISSING: (
        "CoreKindMissing",
        lambda kind, kinds: f"core kind {kind}: this machine has {', '.join(kinds) or 'one kind only'}",
    ),
}


class Refusal(Exception):  # noqa: N818 - an outcome, not an error
    """A pod is rejected: the code says why, the values what was observed."""

    def __init__(self, code: Code, *values: Any) -> None:
        super().__init__(code, *values)
        self.reason = Reason(code, values)

    def __str__(self) -> str:
        return sentence(self.reason)


def label(reason: Reason) -> str:
    """Return the step that a reason explains, or of a refusal the word in the pod's status."""
    if reason.code is Code.TERM:
        return str(reason.values[0])
    return _TABLE[reason.code][0]


def sentence(reason: Reason) -> str:
    """Return the sentence for people."""
    return render(_TABLE, reason)


_TABLE: Final[Mapping[Code, tuple[str, Phrase]]] = {
    **placements.SENTENCES,
    **_SENTENCES,
    **kubelets.STATE_FILE_SENTENCES,
    **kubelets.SENTENCES,
    **scheduling.SENTENCES,
    **scheduling.REMEDY_SENTENCES,
}
