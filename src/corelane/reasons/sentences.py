"""The sentence of each code: its object, what happened, the observed value, the limit, the remedy.

Texts of the kubelet and of Koordinator stand as upstream writes them (v1.36; koord-scheduler 1.6). CPUs and
NUMA nodes in values are masks; memory is in bytes, CPU requests in milliCPU.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from corelane import quantity
from corelane.cpuset import format_list, named, verb
from corelane.reasons.codes import Code, Reason
from corelane.reasons.recovery import SENTENCES

Phrase: TypeAlias = str | Callable[..., str]
"""A format string of the values by position, or a function of them."""


class Refusal(Exception):  # noqa: N818 - an outcome, not an error
    """A pod is rejected: the code says why, the values what was observed."""

    def __init__(self, code: Code, *values: Any) -> None:
        super().__init__(code, *values)
        self.reason = Reason(code, values)

    def __str__(self) -> str:
        return sentence(self.reason)


def label(reason: Reason) -> str:
    """The short key of a reason: the step that it explains, or of a refusal the word in the pod's status."""
    if reason.code is Code.TERM:
        return str(reason.values[0])
    return _TABLE[reason.code][0]


def sentence(reason: Reason) -> str:
    """Return the sentence for people."""
    phrase = _TABLE[reason.code][1]
    return phrase.format(*reason.values) if isinstance(phrase, str) else phrase(*reason.values)


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"


def _nodes(mask: int) -> str:
    return f"NUMA node{'s' if mask & mask - 1 else ''} {format_list(mask)}"


def _unexpected(text: str) -> str:
    """What the kubelet makes of an error without a reason of its own."""
    return f"Allocate failed due to {text}, which is unexpected"


# -- CPUs and pools


def _wrong_count(cpus: int, n: int) -> str:
    return f"proposed {named(cpus)}: {_count(cpus.bit_count(), 'CPU')}, {n} required; reallocated"


def _unavailable(cpus: int, taken: int) -> str:
    return f"proposed {named(cpus)}: {format_list(taken)} {verb(taken)} unavailable; reallocated"


def _numa_nodes(nodes: int, n: int, free: Iterable[tuple[int, int]]) -> str:
    counts = ", ".join(f"{node}: {count}" for node, count in free)
    which = "the first with" if nodes.bit_count() == 1 else "the fewest with"
    return f"{_nodes(nodes)}: {which} {_count(n, 'free CPU')} (free CPUs by node: {counts})"


def _picked_by_kubelet(cpus: int, whole: bool) -> str:
    return f"{named(cpus)}: {'whole cores' if whole else 'fullest cores first'}"


def _picked_by_koordinator(
    cpus: int, of_pod: int, bind: str, strategy: str, as_least: bool, whole: bool, cores: int, met: bool
) -> str:
    least = ", which Koordinator's scheduler treats as LeastAllocated (see distributeAsProposed)"
    how = f"{bind} by {strategy}{least if as_least else ''}: "
    how += "whole cores" if whole else _count(cores, "core")
    return f"{_of_pod(cpus, of_pod)}{how}{', all preferences about other pods met' if met else ''}"


def _of_pod(cpus: int, of_pod: int) -> str:
    return f"{named(cpus)}; " if cpus == of_pod else f"{named(cpus)} of the pod's {named(of_pod)}; "


def _picked_by_optimal(
    cpus: int,
    of_pod: int,
    terms: Iterable[tuple[str, int]],
    exclusive: bool,
    affinity: bool,
    unproven: str,
    bound: int | None,
) -> str:
    """The terms that are not zero, and those of preferences that the pod has."""
    preferred = {"exclusive": exclusive, "affinity": affinity}
    values = {name: value for name, value in terms if value or preferred.get(name)}
    first = named(cpus) if cpus == of_pod else f"{named(cpus)} of the pod's {named(of_pod)}"
    where = []
    if nodes := values.pop("numa-nodes", 0):
        distance = values.pop("distance", 0)
        far = f" (distance {distance})" if nodes > 1 and distance else ""
        where.append(f"on {_count(nodes, 'NUMA node')}{far}")
    if domains := values.pop("l3-domains", 0):
        where.append(_count(domains, "L3 domain"))
    values.pop("distance", None)
    parts = [" ".join(filter(None, (first, ", ".join(where))))]
    for name, value in values.items():
        text = _TERMS[name].format(value, "" if value == 1 else "s")
        parts.append(text if value else _MET[name])
    if unproven:
        limit = "" if bound is None else f", at best {bound}"
        parts.append(f"not proven optimal in {unproven}{limit}: the search ran out of steps")
    return "; ".join(parts)


_MET: Final = {"exclusive": "exclusivity preference met", "affinity": "CPU affinity preference met"}
_TERMS: Final = {
    "uneven": "NUMA nodes differ by {} CPU{}",
    "elsewhere": "{} resource{} not local",
    "bind": "{} core{} against the bind policy",
    "exclusive": "{} unit{} shared against the exclusivity preference",
    "fallback": "{} core{} shared although NUMANodeLevel is unavailable",
    "affinity": "{} unit{} against the CPU affinity preference",
    "allocated": "squared free CPUs left by NUMA node: {}",
    "balance": "squared free CPUs left by NUMA node: {}",
    "room": "{} whole-core slot{} left on the node",
}


def _limit_not_request(request: int, limit: int) -> str:
    return (
        f"shared pool: CPU request {request}m differs from CPU limit {f'{limit}m' if limit else '(not set)'}"
    )


def _pod_cpus(cpus: int) -> str:
    return f"pod-level resources: {named(cpus) if cpus else 'shared pool'}"


def _memory(resource: str, size: int, nodes: int) -> str:
    return f"{quantity.of_value(size, quantity.BINARY_SI)} of {resource} on {_nodes(nodes)}"


# -- classes of policy `pools`

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


# -- NUMA nodes of the shared pool


def _remaining(rooms: Iterable[tuple[int, int]]) -> str:
    return "remaining CPU by NUMA node: " + (
        ", ".join(f"{node}: {milli}m" for node, milli in rooms) or "none"
    )


def _zone_assigned(nodes: int, milli: int, rooms: Iterable[tuple[int, int]], proposed: int) -> str:
    why = f"runs in the shared pool of {_nodes(nodes)}, which has {milli}m left ({_remaining(rooms)})"
    return f"{why}; proposed {_nodes(proposed)} unavailable" if proposed else why


def _zone_whole_pool(milli: int, rooms: Iterable[tuple[int, int]]) -> str:
    return f"runs in the whole shared pool: no NUMA node has {milli}m left ({_remaining(rooms)})"


def _insufficient_numa(most: int, what: str, milli: int, rooms: Iterable[tuple[int, int]]) -> str:
    where = "no NUMA node has" if most == 1 else f"no {most} NUMA nodes have"
    text = f"{where} {milli}m left in the shared pool for the pod's CPU {what} ({_remaining(rooms)})"
    return f"node(s) Insufficient NUMA Node resources: {text}"


# -- refusals


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
        f"best-effort pool: {_count(left.bit_count(), 'CPU')} would be left ({format_list(left)}), "
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
    parts = [f"{_count(n, 'CPU')} requested, {free} of {usable} free for exclusive use"]
    if kept:
        parts.append(f"{kept} kept in the shared pool for pods assigned to their NUMA node")
    parts += [f"{sentence(rule)} rules out {lost}" for rule, lost in rules]
    if owners:
        more = f" and {len(owners) - 5} more" if len(owners) > 5 else ""
        parts.append(f"bound now: {', '.join(owners[:5])}{more}")
    return f"{sentence(cause)} ({'; '.join(parts)})"


def _limit_differs(container: str, request: int, limit: int) -> str:
    return (
        f"{_NOT_WHOLE}, and equal to the limit on this node: container {container}: request {request}m, "
        f"limit {f'{limit}m' if limit else 'not set'}"
    )


def _bind_conflict(required: bool, own: str, here: str) -> str:
    verb_ = "requires" if required else "requests"
    return f"{_BIND_CONFLICT}: pod {verb_} {own}, node requires {here}; remove one of them"


def _requirement(what: str, why: Reason) -> str:
    return f"required {what} applies to pods that are bound to CPUs; this pod is not: {sentence(why)}"


_NOT_WHOLE: Final = "the requested CPUs must be integer"
_BIND_CONFLICT: Final = "node(s) cpu bind policy conflicts with pod's required cpu bind policy"
_NOT_MULTIPLE: Final = "node(s) requested cpus not multiple cpus per core"


# -- the optimal allocator


def _term(name: str, number: int, text: str, value: int, runner_up: int | None) -> str:
    other = "" if runner_up is None else f" (runner-up {runner_up})"
    return f"{number}. {text}: {value}{other}"


def _not_proven(term: str, bound: int | None) -> str:
    best = "" if bound is None else f", at best {bound}"
    return f"the search ran out of steps: not proven optimal in {term}{best}"


def _cores_partly_used(free: int, others: int) -> str:
    parts = [
        f"{named(free)} free" if free else "",
        f"{named(others)} allocated to other pods" if others else "",
    ]
    return f"cores partly used: {' and '.join(part for part in parts if part)}"


def _requested(n: int) -> str:
    return f"{_count(n, 'CPU')} requested"


def _too_few_left(rule: Reason, n: int, left: int, barred: int) -> str:
    return f"{sentence(rule)}: {_requested(n)}, {left} left ({named(barred)} ruled out)"


def _too_few_on_nodes(policy: str, n: int, usable: Iterable[tuple[int, int]]) -> str:
    counts = ", ".join(f"{node}: {count}" for node, count in usable)
    return f"{policy}: {_requested(n)}, usable by NUMA node: {counts}"


def _rule_affinity(avoid: bool, name: str, level: str) -> str:
    return f"{'avoid' if avoid else 'prefer'} {name or 'other pods'} at {level} level"


def _request_fewer(cpus: int) -> str:
    return f"request {_count(cpus, 'CPU')}{' or fewer' if cpus > 1 else ''}"


def _move_pods(pods: Iterable[tuple[str, int]]) -> str:
    return "move " + " and ".join(f"{pod} off {named(cpus)}" for pod, cpus in pods)


def _drop_requirement(requirement: str, also: Reason | None) -> str:
    return f"drop the requirement {requirement}{f' and {sentence(also)}' if also else ''}"


_UNEXPECTED: Final = "UnexpectedAdmissionError"
_TABLE: Final[Mapping[Code, tuple[str, Phrase]]] = {
    Code.ALREADY_ADMITTED: ("existing", "pod already admitted: CPU allocation unchanged"),
    Code.PROPOSAL_USED: ("proposal", lambda cpus: f"{named(cpus)} used as proposed by the scheduler"),
    Code.PROPOSAL_WRONG_COUNT: ("conflict", _wrong_count),
    Code.PROPOSAL_UNAVAILABLE: ("conflict", _unavailable),
    Code.PROPOSAL_VIOLATES_OPTIONS: (
        "conflict",
        lambda cpus: f"proposed {named(cpus)}: violates the node's CPU manager options; reallocated",
    ),
    Code.PROPOSAL_VIOLATES_RULES: (
        "conflict",
        lambda cpus: f"proposed {named(cpus)}: violates a rule of the node or the pod; reallocated",
    ),
    Code.PROPOSALS_DIFFER: (
        "conflict",
        "proposed CPUs differ between containers, one set for the pod required; reallocated",
    ),
    Code.NUMA_NODES: ("numa", _numa_nodes),
    Code.PICKED_BY_KUBELET: ("pick", _picked_by_kubelet),
    Code.PICKED_BY_KOORDINATOR: ("pick", _picked_by_koordinator),
    Code.PICKED_BY_OPTIMAL: ("pick", _picked_by_optimal),
    Code.COMPLETED_PROPOSAL: ("pick", lambda cpus: f"{named(cpus)}: of the CPUs proposed for the pod"),
    Code.POD_CPUS: ("pod", _pod_cpus),
    Code.PART_OF_POD_CPUS: ("part", lambda cpus: f"{named(cpus)} of the pod's CPUs"),
    Code.DEVICES: ("devices", lambda resource, ids: f"{resource}: {', '.join(ids)}"),
    Code.MEMORY: ("memory", _memory),
    Code.PCPU_LEVEL_WITHOUT_SMT: ("note", "exclusive policy {0} has no effect: no core has SMT siblings"),
    Code.SPREAD_WITHOUT_SMT: ("note", "bind policy {0} has no effect: no core has SMT siblings"),
    # why a container runs in a pool
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
    Code.ADMITTED_UNDER_OTHER_SETTINGS: (
        "shared",
        "shared pool: admitted under other node settings; unchanged while it runs",
    ),
    # classes
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
    # zones
    Code.ZONE_PROPOSAL_USED: (
        "zone",
        lambda nodes, milli: f"shared pool of {_nodes(nodes)}, {milli}m: used as proposed by the scheduler",
    ),
    Code.ZONE_ASSIGNED: ("zone", _zone_assigned),
    Code.ZONE_WHOLE_POOL: ("zone", _zone_whole_pool),
    # refusals: capacity
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
    # refusals: alignment
    Code.NOT_ALIGNED: ("TopologyAffinityError", "Resources cannot be allocated with Topology locality"),
    Code.POD_LEVEL_NOT_ALIGNED: ("TopologyAffinityError", _pod_level_not_aligned),
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
    # refusals: memory and devices
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
    # refusals: pod-level resources
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
    # refusals: settings of pod and node
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
    # causes of INSUFFICIENT_CPUS
    Code.KOORDINATOR_NOT_ENOUGH: ("refused", "not enough cpus available to satisfy request"),
    Code.KOORDINATOR_BIND_POLICY: (
        "refused",
        "insufficient CPUs to satisfy required cpu bind policy {0}",
    ),
    Code.KOORDINATOR_NUMA: ("refused", "node(s) Insufficient NUMA Node resources"),
    Code.NO_PLACEMENT: ("refused", lambda requirement, why: sentence(why)),
    # rules, why nothing fits, and what would help
    Code.RULE_CPUS: ("limit", "{0}"),
    Code.RULE_OTHERS_EXCLUSIVE: ("guard", "{0} units exclusive to other pods"),
    Code.RULE_EXCLUSIVE: ("exclusive", "exclusive at {0} level"),
    Code.RULE_AFFINITY: ("affinity", _rule_affinity),
    Code.RULE_BIND_POLICY: ("bind", "bind policy {0}"),
    Code.RULE_NUMA_POLICY: ("numa", "{0}"),
    Code.RULE_NUMA_EXCLUSIVE: ("numa-exclusive", "exclusive NUMA node"),
    Code.TOO_FEW_CPUS: ("cpus", lambda n, free: f"{_requested(n)}, {free} free"),
    Code.TOO_FEW_CPUS_LEFT: ("cpus", _too_few_left),
    Code.TOO_FEW_CORES: (
        "bind",
        lambda policy, n, cores: (
            f"required {policy}: {_requested(n)}, {_count(cores, 'core')} with a free CPU"
        ),
    ),
    Code.TOO_FEW_WHOLE_CORES: (
        "bind",
        lambda policy, n, whole, usable: (
            f"required {policy}: {_requested(n)}, {whole} of {usable} usable CPUs are in whole cores"
        ),
    ),
    Code.NOT_WHOLE_CORES: (
        "bind",
        lambda policy, n: f"required {policy}: {_requested(n)}, not a multiple of the free cores' threads",
    ),
    Code.TOO_FEW_CPUS_ON_NUMA_NODES: ("numa", _too_few_on_nodes),
    Code.NUMA_EXCLUSIVE_UNMET: (
        "numa-exclusive",
        "required exclusive NUMA node: pods on one NUMA node and pods on several do not share nodes",
    ),
    Code.RESOURCES_NOT_LOCAL: (
        "resources",
        lambda policy, names: (
            f"{policy + ': ' if policy else ''}the NUMA nodes with the CPUs lack {', '.join(names)}"
        ),
    ),
    # the optimal allocator
    Code.TERM: ("", _term),
    Code.ONLY_ANSWER: ("decided", lambda cpus: f"{named(cpus)}: no other CPUs fit"),
    Code.TERM_DECIDES: (
        "decided",
        lambda cpus, other, term, value, theirs: (
            f"{format_list(cpus)} rather than {format_list(other)}: {term} decides, {value} against {theirs}"
        ),
    ),
    Code.LOWER_IDS_WIN: (
        "decided",
        lambda cpus, other: (
            f"{format_list(cpus)} rather than {format_list(other)}: equally good, and the lower ids win"
        ),
    ),
    Code.NOT_PROVEN: ("proof", _not_proven),
    Code.CORES_PARTLY_USED: ("bind", _cores_partly_used),
    Code.EXCLUSIVE_POLICY_UNMET: ("exclusive", "exclusive policy {0} is unavailable: {1} cores are shared"),
    Code.EXCLUSIVE_POLICY_FALLBACK: (
        "exclusive",
        "exclusive policy {0} is unavailable, so PCPULevel holds there: {1} cores are shared",
    ),
    Code.AFFINITY_SELECTS_NOTHING: ("affinity", "CPU affinity: {0} selects no pod with bound CPUs"),
    # what would make a refused pod fit
    Code.REQUEST_FEWER_CPUS: (
        "fewer",
        lambda cpus: f"request {_count(cpus, 'CPU')}{' or fewer' * (cpus > 1)}",
    ),
    Code.MOVE_PODS: ("release", _move_pods),
    Code.DROP_REQUIREMENT: ("soften", _drop_requirement),
    **SENTENCES,
}
