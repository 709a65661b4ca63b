"""The codes of reasons, and a reason as a plain value."""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final


class Code(StrEnum):
    """Codes of events. The values that come with each code are the parameters of its sentence."""

    # -- how a container came to its CPUs
    ALREADY_ADMITTED = "already-admitted"
    PROPOSAL_USED = "proposal-used"
    PROPOSAL_WRONG_COUNT = "proposal-wrong-count"
    PROPOSAL_UNAVAILABLE = "proposal-unavailable"
    PROPOSAL_VIOLATES_OPTIONS = "proposal-violates-options"
    PROPOSAL_VIOLATES_RULES = "proposal-violates-rules"
    PROPOSALS_DIFFER = "proposals-differ"
    NUMA_NODES = "numa-nodes"
    PICKED_BY_KUBELET = "picked-by-kubelet"
    PICKED_BY_KOORDINATOR = "picked-by-koordinator"
    PICKED_BY_OPTIMAL = "picked-by-optimal"
    COMPLETED_PROPOSAL = "completed-proposal"
    POD_CPUS = "pod-cpus"
    PART_OF_POD_CPUS = "part-of-pod-cpus"
    DEVICES = "devices"
    MEMORY = "memory"
    PCPU_LEVEL_WITHOUT_SMT = "pcpu-level-without-smt"
    SPREAD_WITHOUT_SMT = "spread-without-smt"

    # -- why a container runs in a pool
    POLICY_NONE = "policy-none"
    NOT_GUARANTEED = "not-guaranteed"
    CPU_REQUEST_NOT_INTEGER = "cpu-request-not-integer"
    NO_CPU_REQUEST = "no-cpu-request"
    CPU_LIMIT_NOT_REQUEST = "cpu-limit-not-request"
    NOT_A_REGULAR_CONTAINER = "not-a-regular-container"
    POD_LEVEL_RESOURCES = "pod-level-resources"
    RESIZED_IN_POOL = "resized-in-pool"
    ADMITTED_UNDER_OTHER_SETTINGS = "admitted-under-other-settings"

    # -- a pod's class under policy `pools`
    CLASS_POOL = "class-pool"
    CLASS_EXCLUSIVE = "class-exclusive"
    CLASS_IMMOVABLE = "class-immovable"
    CLASS_CONFINED = "class-confined"
    CLASS_CPU_POLICY_IN_POOL = "class-cpu-policy-in-pool"
    CLASS_PRIORITY_NOT_BOUND = "class-priority-not-bound"
    CLASS_NO_BIND_POLICY = "class-no-bind-policy"
    CLASS_NO_CPU_REQUEST = "class-no-cpu-request"
    CLASS_NO_INTEGER_REQUEST = "class-no-integer-request"
    CLASS_NO_INTEGER_LIMIT = "class-no-integer-limit"

    # -- the NUMA nodes whose part of the shared pool a pod runs in
    ZONE_PROPOSAL_USED = "zone-proposal-used"
    ZONE_ASSIGNED = "zone-assigned"
    ZONE_WHOLE_POOL = "zone-whole-pool"

    # -- refusals: capacity
    OUT_OF_CPU = "out-of-cpu"
    OUT_OF_AMPLIFIED_CPU = "out-of-amplified-cpu"
    NOT_ENOUGH_CPUS = "not-enough-cpus"
    ALLOCATION_FAILED = "allocation-failed"
    SHARED_POOL_NEEDS_A_CPU = "shared-pool-needs-a-cpu"
    SHARED_POOL_EXHAUSTED = "shared-pool-exhausted"
    BEST_EFFORT_EXHAUSTED = "best-effort-exhausted"
    INSUFFICIENT_CPUS = "insufficient-cpus"
    INSUFFICIENT_NUMA = "insufficient-numa"

    # -- refusals: alignment
    NOT_ALIGNED = "not-aligned"
    POD_LEVEL_NOT_ALIGNED = "pod-level-not-aligned"
    ZONES_NOT_ALIGNED = "zones-not-aligned"
    KUBELET_EXCLUSIVE_CPUS = "kubelet-exclusive-cpus"
    SMT_NOT_MULTIPLE = "smt-not-multiple"
    SMT_NOT_ENOUGH_CORES = "smt-not-enough-cores"
    POD_NOT_MULTIPLE_OF_CORE = "pod-not-multiple-of-core"
    CONTAINER_NOT_MULTIPLE_OF_CORE = "container-not-multiple-of-core"

    # -- refusals: memory and devices
    NO_MEMORY_AFFINITY = "no-memory-affinity"
    NO_PREFERRED_MEMORY_HINT = "no-preferred-memory-hint"
    NO_EXTENDED_MEMORY_AFFINITY = "no-extended-memory-affinity"
    NO_PREFERRED_EXTENDED_MEMORY_HINT = "no-preferred-extended-memory-hint"
    MEMORY_GROUP_VIOLATED = "memory-group-violated"
    DEVICES_UNHEALTHY = "devices-unhealthy"
    DEVICES_UNAVAILABLE = "devices-unavailable"

    # -- refusals: pods with pod-level resources
    POD_LEVEL_INIT_WITHOUT_RESOURCE = "pod-level-init-without-resource"
    POD_LEVEL_SHARED_WITHOUT_CPUS = "pod-level-shared-without-cpus"
    POD_LEVEL_SHARED_WITHOUT_MEMORY = "pod-level-shared-without-memory"

    # -- refusals: settings of pod and node
    BIND_POLICY_CONFLICT = "bind-policy-conflict"
    BIND_POLICY_NEEDS_SMT = "bind-policy-needs-smt"
    NUMA_POLICY_CONFLICT = "numa-policy-conflict"
    CONSTRAINED_BURST_EXCLUSIVE = "constrained-burst-exclusive"
    CONSTRAINED_BURST_NO_LIMIT = "constrained-burst-no-limit"
    REQUIREMENT_NEEDS_CPUS = "requirement-needs-cpus"
    POD_CPU_REQUEST_NOT_INTEGER = "pod-cpu-request-not-integer"
    CPU_LIMIT_DIFFERS = "cpu-limit-differs"
    CORE_KIND_MISSING = "core-kind-missing"

    # -- causes of INSUFFICIENT_CPUS
    KOORDINATOR_NOT_ENOUGH = "koordinator-not-enough"
    KOORDINATOR_BIND_POLICY = "koordinator-bind-policy"
    KOORDINATOR_NUMA = "koordinator-numa"
    NO_PLACEMENT = "no-placement"

    # -- hard requirements, of a pod or of other pods, that rule CPUs out
    RULE_CPUS = "rule-cpus"
    RULE_OTHERS_EXCLUSIVE = "rule-others-exclusive"
    RULE_EXCLUSIVE = "rule-exclusive"
    RULE_AFFINITY = "rule-affinity"
    RULE_BIND_POLICY = "rule-bind-policy"
    RULE_NUMA_POLICY = "rule-numa-policy"
    RULE_NUMA_EXCLUSIVE = "rule-numa-exclusive"

    # -- the first hard requirement that leaves no placement
    TOO_FEW_CPUS = "too-few-cpus"
    TOO_FEW_CPUS_LEFT = "too-few-cpus-left"
    TOO_FEW_CORES = "too-few-cores"
    TOO_FEW_WHOLE_CORES = "too-few-whole-cores"
    NOT_WHOLE_CORES = "not-whole-cores"
    TOO_FEW_CPUS_ON_NUMA_NODES = "too-few-cpus-on-numa-nodes"
    NUMA_EXCLUSIVE_UNMET = "numa-exclusive-unmet"
    RESOURCES_NOT_LOCAL = "resources-not-local"

    # -- why the optimal allocator prefers its answer
    TERM = "term"
    ONLY_ANSWER = "only-answer"
    TERM_DECIDES = "term-decides"
    LOWER_IDS_WIN = "lower-ids-win"
    NOT_PROVEN = "not-proven"
    CORES_PARTLY_USED = "cores-partly-used"
    EXCLUSIVE_POLICY_UNMET = "exclusive-policy-unmet"
    EXCLUSIVE_POLICY_FALLBACK = "exclusive-policy-fallback"
    AFFINITY_SELECTS_NOTHING = "affinity-selects-nothing"

    # -- what would make a refused pod fit
    REQUEST_FEWER_CPUS = "request-fewer-cpus"
    MOVE_PODS = "move-pods"
    DROP_REQUIREMENT = "drop-requirement"
    TOLERATE_TAINTS = "tolerate-taints"
    UNCORDON_NODE = "uncordon-node"
    NODE_RECOVERS = "node-recovers"
    LABEL_NODE = "label-node"
    DROP_POD_RULE = "drop-pod-rule"
    DROP_REQUEST = "drop-request"
    PREFER_INSTEAD = "prefer-instead"
    REQUEST_LESS = "request-less"
    EVICT_PODS = "evict-pods"
    ALL_OF = "all-of"

    # -- why the scheduler keeps a pod off a node
    NODE_UNSCHEDULABLE = "node-unschedulable"
    UNTOLERATED_TAINT = "untolerated-taint"
    NODE_AFFINITY_MISMATCH = "node-affinity-mismatch"
    TOO_MANY_PODS = "too-many-pods"
    NO_PREEMPTION_VICTIMS = "no-preemption-victims"
    INSUFFICIENT_RESOURCE = "insufficient-resource"
    AMOUNT_LEFT = "amount-left"
    EXCLUSIVE_CPUS_HELD = "exclusive-cpus-held"
    POOL_WITHOUT_CPU = "pool-without-cpu"
    BEST_EFFORT_WITHOUT_CPU = "best-effort-without-cpu"
    TOO_FEW_EXCLUSIVE = "too-few-exclusive"
    INVALID_CPU_TOPOLOGY = "invalid-cpu-topology"
    CPUS_UNKNOWN = "cpus-unknown"
    AGENT_ABSENT = "agent-absent"
    AGENT_LEASE_EXPIRED = "agent-lease-expired"
    AGENT_LEASE_RELEASED = "agent-lease-released"
    AGENT_LEASE_MISSING = "agent-lease-missing"
    NO_CPU_TOPOLOGY = "no-cpu-topology"
    ZONES_CANNOT_ALIGN = "zones-cannot-align"
    CRANE_INSUFFICIENT = "crane-insufficient"
    CRANE_INSUFFICIENT_NUMA = "crane-insufficient-numa"
    NODE_NAME_MISMATCH = "node-name-mismatch"
    NODE_NOT_NAMED = "node-not-named"
    AFFINITY_TERMS_CONFLICT = "affinity-terms-conflict"
    ENFORCED_AFFINITY_MISMATCH = "enforced-affinity-mismatch"
    PORTS_TAKEN = "ports-taken"
    POD_AFFINITY_MISMATCH = "pod-affinity-mismatch"
    POD_ANTI_AFFINITY_MISMATCH = "pod-anti-affinity-mismatch"
    EXISTING_ANTI_AFFINITY = "existing-anti-affinity"
    SPREAD_LABEL_MISSING = "spread-label-missing"
    SPREAD_SKEW = "spread-skew"
    PLUGIN_FAILED = "plugin-failed"
    DISK_CONFLICT = "disk-conflict"
    CLAIM_IN_USE = "claim-in-use"
    VOLUME_ZONE_MISMATCH = "volume-zone-mismatch"
    VOLUME_NODE_MISMATCH = "volume-node-mismatch"
    VOLUME_NOT_AVAILABLE = "volume-not-available"
    STORAGE_INSUFFICIENT = "storage-insufficient"
    VOLUME_MISSING = "volume-missing"
    VOLUME_COUNT_EXCEEDED = "volume-count-exceeded"
    VOLUMES_OF_DRIVER = "volumes-of-driver"
    VOLUME_NOT_COUNTED = "volume-not-counted"
    CLAIM_LOOKED_UP = "claim-looked-up"
    CLAIM_NOT_FOUND = "claim-not-found"
    CLAIM_LOST = "claim-lost"
    CLAIM_DELETED = "claim-deleted"
    CLAIM_AWAITED = "claim-awaited"
    CLAIM_OF_OTHER_POD = "claim-of-other-pod"
    CLAIM_WITHOUT_NAME = "claim-without-name"
    CLAIM_WITHOUT_CLASS = "claim-without-class"
    CLAIM_NOT_BOUND = "claim-not-bound"
    CLAIMS_UNBOUND = "claims-unbound"
    VOLUME_NOT_FOUND = "volume-not-found"
    CLASS_NOT_FOUND = "class-not-found"
    NAMESPACES_NOT_WATCHED = "namespaces-not-watched"
    VOLUMES_NOT_WATCHED = "volumes-not-watched"
    RESOURCE_CLAIMS_UNSUPPORTED = "resource-claims-unsupported"
    POD_INVALID = "pod-invalid"
    SCHEDULING_GATES = "scheduling-gates"

    # -- why a repair of a state file changes an entry
    ENTRY_UNCHANGED = "entry-unchanged"
    ENTRY_RUNNING = "entry-running"
    ENTRY_NOT_RUNNING = "entry-not-running"
    ENTRY_LOST_CPUS = "entry-lost-cpus"
    ENTRY_REPLACED_CPUS = "entry-replaced-cpus"
    ENTRY_WITHOUT_NAME = "entry-without-name"
    ENTRY_DROPPED = "entry-dropped"
    ENTRY_NOT_EXCLUSIVE = "entry-not-exclusive"
    ENTRY_POLICY_NONE = "entry-policy-none"

    # -- what to do where the kubelet would not start with a state file
    REMEDY_REPAIR = "remedy-repair"
    REMEDY_REPAIR_TOTAL = "remedy-repair-total"
    REMEDY_RESERVE_OTHERS = "remedy-reserve-others"
    REMEDY_REMOVE_STRICT = "remedy-remove-strict"
    REMEDY_FREE_CPUS = "remedy-free-cpus"
    REMEDY_CONVERT = "remedy-convert"
    REMEDY_CONVERT_WITHOUT_GATE = "remedy-convert-without-gate"
    REMEDY_DRAIN_POD_LEVEL = "remedy-drain-pod-level"
    REMEDY_REMOVE = "remedy-remove"
    REMEDY_REMOVE_WITHOUT_GATE = "remedy-remove-without-gate"
    REMEDY_MEMORY_POLICY = "remedy-memory-policy"
    REMEDY_RESERVED_MEMORY = "remedy-reserved-memory"
    REMEDY_REMOVE_UNUSED = "remedy-remove-unused"
    REMEDY_RESERVE_MEMORY = "remedy-reserve-memory"
    REMEDY_MEMORY_GROUP = "remedy-memory-group"
    REMEDY_UNKNOWN_FIELD = "remedy-unknown-field"
    REMEDY_GIVE_RESERVATION = "remedy-give-reservation"

    # -- why the kubelet could not be asked
    KUBELET_UNREACHABLE = "kubelet-unreachable"
    KUBELET_SLOW = "kubelet-slow"
    KUBELET_CERTIFICATE_UNTRUSTED = "kubelet-certificate-untrusted"
    KUBELET_CERTIFICATE_NAME = "kubelet-certificate-name"
    KUBELET_CERTIFICATE_INVALID = "kubelet-certificate-invalid"
    KUBELET_CREDENTIALS_UNREADABLE = "kubelet-credentials-unreadable"
    KUBELET_UNAUTHORIZED = "kubelet-unauthorized"
    KUBELET_FORBIDDEN = "kubelet-forbidden"
    KUBELET_ENDPOINT_OFF = "kubelet-endpoint-off"
    KUBELET_FAILED = "kubelet-failed"
    KUBELET_MALFORMED = "kubelet-malformed"

    # -- what the agent may do beside a kubelet, and why
    MODE_NO_KUBELET = "mode-no-kubelet"
    MODE_KUBELET_NONE = "mode-kubelet-none"
    MODE_KUBELET_CPUS_HELD = "mode-kubelet-cpus-held"
    MODE_KUBELET_STATIC = "mode-kubelet-static"
    MODE_EXCLUSIVE_PODS_LEFT = "mode-exclusive-pods-left"
    MODE_READ_ONLY = "mode-read-only"
    MODE_IGNORE = "mode-ignore"
    MODE_NODE_POLICY_NONE = "mode-node-policy-none"
    MODE_POLICY_UNKNOWN = "mode-policy-unknown"
    MODE_POLICIES_DIFFER = "mode-policies-differ"
    MODE_POLICY_UNRECOGNIZED = "mode-policy-unrecognized"
    MODE_LAST_ANSWER = "mode-last-answer"
    MODE_MEMORY_STATIC = "mode-memory-static"
    MODE_MEMORY_UNKNOWN = "mode-memory-unknown"


@dataclass(frozen=True, slots=True)
class Reason:
    """One step of a decision, or why there is none; `values` are plain, in the order of the sentence."""

    code: Code
    values: tuple[Any, ...] = ()
    container: str = ""


# Phrases of several tables of sentences.

OTHER_INSTANCES: Final = "other-instances:"
"""Begins the `pod` of ledger entries that hold CPUs of other instances; their names follow, with colons.

No namespace is called so."""


def count(n: int, noun: str) -> str:
    """Return a number with its noun: 1 CPU, 2 CPUs."""
    return f"{n} {noun}{'' if n == 1 else 's'}"


def holder_title(pod: str) -> str:
    """Return the name of what holds CPUs of a ledger: a pod's, or other instances'."""
    return "other corelane instances" if pod.startswith(OTHER_INSTANCES) else pod


def ends_instances(pods: Iterable[str]) -> str:
    """Return, to follow a list of holders, the commands that end the other instances among them, or ""."""
    commands = [command for pod in pods if pod.startswith(OTHER_INSTANCES) for command in down_commands(pod)]
    return f"; to end the containers of other instances: {' and '.join(commands)}" if commands else ""


def down_commands(pod: str) -> list[str]:
    """Return the commands that end the other instances in the name of a holder."""
    owners = dict.fromkeys(filter(None, pod.removeprefix(OTHER_INSTANCES).split(":")))
    options = ((f"--{'data-dir' if '/' in owner else 'instance'}", owner) for owner in owners)
    return [f"`corelane down {option} {shlex.quote(owner)}`" for option, owner in options]
