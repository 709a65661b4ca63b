"""Every code has a sentence, and each sentence is made from the reason's values."""

import re

import pytest

from corelane.reasons import Code, Reason, label, sentence

RULE = Reason(Code.RULE_EXCLUSIVE, ("l3",))
TOO_FEW = Reason(Code.TOO_FEW_CPUS_ON_NUMA_NODES, ("SingleNUMANode", 6, 1, ((0, 4), (1, 4))))
CAUSE = Reason(Code.NO_PLACEMENT, ("numa", TOO_FEW))
TOO_FEW_FREE = Reason(Code.KOORDINATOR_NOT_ENOUGH)
CLASS = Reason(Code.CLASS_POOL, ("Burstable", "LS", "shared"))
URL = "https://10.0.0.1:10250"
ROOMS = ((0, 500), (1, 3500))
TERMS = (("numa-nodes", 2), ("distance", 20), ("l3-domains", 2), ("bind", 0), ("room", 6))

VALUES: dict[Code, tuple[object, ...]] = {
    Code.TOLERATE_TAINTS: ("dedicated=gpu:NoSchedule",),
    Code.UNCORDON_NODE: ("n1",),
    Code.NODE_RECOVERS: ("n1", "node.kubernetes.io/not-ready"),
    Code.LABEL_NODE: ("n1", "disk=ssd", "zone=a"),
    Code.DROP_POD_RULE: ("node selector disk=ssd",),
    Code.DROP_REQUEST: ("example.com/gpu",),
    Code.PREFER_INSTEAD: ("scheduling.koordinator.sh/resource-spec", "requiredCPUBindPolicy"),
    Code.REQUEST_LESS: ("memory", "4Gi", "8Gi"),
    Code.EVICT_PODS: ("n1", "default/a", "default/b"),
    Code.ALL_OF: (Reason(Code.UNCORDON_NODE, ("n1",)), Reason(Code.UNCORDON_NODE, ("n2",))),
    Code.NODE_UNSCHEDULABLE: (),
    Code.UNTOLERATED_TAINT: ("dedicated", "gpu"),
    Code.NODE_AFFINITY_MISMATCH: (),
    Code.TOO_MANY_PODS: (),
    Code.NO_PREEMPTION_VICTIMS: (),
    Code.INSUFFICIENT_RESOURCE: ("memory",),
    Code.AMOUNT_LEFT: ("cpu", 1500, 3000, 4000, (("default/a", 2000), ("other-instances:/d", 1000))),
    Code.EXCLUSIVE_CPUS_HELD: ((("default/a", 0b10),),),
    Code.POOL_WITHOUT_CPU: (),
    Code.BEST_EFFORT_WITHOUT_CPU: (),
    Code.TOO_FEW_EXCLUSIVE: (4,),
    Code.INVALID_CPU_TOPOLOGY: (),
    Code.AGENT_ABSENT: (),
    Code.AGENT_LEASE_EXPIRED: ("corelane-system/n1", "2026-11-28T10:00:00.000000Z", 60),
    Code.AGENT_LEASE_RELEASED: ("corelane-system/n1", "2026-11-28T10:00:00.000000Z"),
    Code.AGENT_LEASE_MISSING: ("corelane-system/n1",),
    Code.CPUS_UNKNOWN: ("default/web", "annotation scheduling.koordinator.sh/resource-status: invalid JSON"),
    Code.NO_CPU_TOPOLOGY: ("zones[0]: not a zone",),
    Code.POD_INVALID: ("spec.containers[0].resources.requests.cpu: 'x' is not a quantity",),
    Code.NODE_NAME_MISMATCH: (),
    Code.NODE_NOT_NAMED: (),
    Code.AFFINITY_TERMS_CONFLICT: (),
    Code.ENFORCED_AFFINITY_MISMATCH: (),
    Code.PORTS_TAKEN: (),
    Code.POD_AFFINITY_MISMATCH: (),
    Code.POD_ANTI_AFFINITY_MISMATCH: (),
    Code.EXISTING_ANTI_AFFINITY: (),
    Code.SPREAD_LABEL_MISSING: (),
    Code.SPREAD_SKEW: (),
    Code.PLUGIN_FAILED: ("KeyError", "'rack'"),
    Code.DISK_CONFLICT: (),
    Code.CLAIM_IN_USE: (),
    Code.VOLUME_ZONE_MISMATCH: (),
    Code.VOLUME_NODE_MISMATCH: (),
    Code.VOLUME_NOT_AVAILABLE: (),
    Code.STORAGE_INSUFFICIENT: (),
    Code.VOLUME_MISSING: (),
    Code.VOLUME_COUNT_EXCEEDED: (),
    Code.VOLUMES_OF_DRIVER: ("ebs.csi.aws.com", 24, 2, 25),
    Code.VOLUME_NOT_COUNTED: (
        "volume data: azureDisk kind Shared is not served by a CSI driver; use Managed",
    ),
    Code.CLAIM_LOOKED_UP: ("default/data", "data"),
    Code.CLAIM_NOT_FOUND: ("data",),
    Code.CLAIM_LOST: ("data", "pv0"),
    Code.CLAIM_DELETED: ("data",),
    Code.CLAIM_AWAITED: ("web-scratch",),
    Code.CLAIM_OF_OTHER_POD: ("default/web-scratch", "default/web"),
    Code.CLAIM_WITHOUT_NAME: (),
    Code.CLAIM_WITHOUT_CLASS: (),
    Code.CLAIM_NOT_BOUND: (),
    Code.CLAIMS_UNBOUND: (),
    Code.VOLUME_NOT_FOUND: ("pv0",),
    Code.CLASS_NOT_FOUND: ("fast",),
    Code.NAMESPACES_NOT_WATCHED: ("403 Forbidden",),
    Code.VOLUMES_NOT_WATCHED: ("persistentvolumes", "403 Forbidden"),
    Code.RESOURCE_CLAIMS_UNSUPPORTED: ("gpu, nic",),
    Code.SCHEDULING_GATES: ("example.com/quota",),
    Code.ALREADY_ADMITTED: (),
    Code.PROPOSAL_USED: (0b110,),
    Code.PROPOSAL_WRONG_COUNT: (0b110, 3),
    Code.PROPOSAL_UNAVAILABLE: (0b110, 0b100),
    Code.PROPOSAL_VIOLATES_OPTIONS: (0b110,),
    Code.PROPOSAL_VIOLATES_RULES: (0b110,),
    Code.PROPOSALS_DIFFER: (),
    Code.NUMA_NODES: (0b10, 7, ((0, 3), (1, 8))),
    Code.PICKED_BY_KUBELET: (0b110, True),
    Code.PICKED_BY_KOORDINATOR: (0b110, 0b1110, "FullPCPUs", "LeastAllocated", False, False, 2, True),
    Code.PICKED_BY_OPTIMAL: (0b110, 0b110, TERMS, False, "", True, "room", 8),
    Code.COMPLETED_PROPOSAL: (0b110,),
    Code.POD_CPUS: (0b110,),
    Code.PART_OF_POD_CPUS: (0b110,),
    Code.DEVICES: ("nvidia.com/gpu", ("gpu0", "gpu1")),
    Code.MEMORY: ("memory", 3 << 30, 0b10),
    Code.PCPU_LEVEL_WITHOUT_SMT: ("PCPULevel",),
    Code.SPREAD_WITHOUT_SMT: ("SpreadByPCPUs",),
    Code.POLICY_NONE: (),
    Code.NOT_GUARANTEED: ("Burstable",),
    Code.CPU_REQUEST_NOT_INTEGER: (50,),
    Code.NO_CPU_REQUEST: (),
    Code.CPU_LIMIT_NOT_REQUEST: (2000, 3000),
    Code.NOT_A_REGULAR_CONTAINER: (),
    Code.POD_LEVEL_RESOURCES: (),
    Code.RESIZED_IN_POOL: (),
    Code.ADMITTED_UNDER_OTHER_SETTINGS: (),
    Code.CLASS_POOL: ("BestEffort", "BE", "BE"),
    Code.CLASS_EXCLUSIVE: ("Guaranteed", "LSR", True),
    Code.CLASS_IMMOVABLE: ("label", "LSR"),
    Code.CLASS_CONFINED: ("label", "LS"),
    Code.CLASS_CPU_POLICY_IN_POOL: ("label", "LSR", "numa"),
    Code.CLASS_PRIORITY_NOT_BOUND: ("label", "LSR", "koord-batch"),
    Code.CLASS_NO_BIND_POLICY: ("label", "LSR"),
    Code.CLASS_NO_CPU_REQUEST: ("label", "LSE"),
    Code.CLASS_NO_INTEGER_REQUEST: (),
    Code.CLASS_NO_INTEGER_LIMIT: ("exclusive",),
    Code.ZONE_PROPOSAL_USED: (0b10, 1500),
    Code.ZONE_ASSIGNED: (0b10, 1500, ROOMS, 0b100),
    Code.ZONE_WHOLE_POOL: (4500, ROOMS),
    Code.OUT_OF_CPU: (4000, 3000, 6000),
    Code.OUT_OF_AMPLIFIED_CPU: (4000, 3000, 6000, 1.5),
    Code.NOT_ENOUGH_CPUS: (4, 3, 0b11111),
    Code.ALLOCATION_FAILED: ("accounting error",),
    Code.SHARED_POOL_NEEDS_A_CPU: (0b110,),
    Code.SHARED_POOL_EXHAUSTED: (0b110,),
    Code.BEST_EFFORT_EXHAUSTED: (0b110, 3),
    Code.INSUFFICIENT_CPUS: (
        Reason(Code.KOORDINATOR_NOT_ENOUGH),
        6,
        10,
        16,
        2,
        ((RULE, 4),),
        ("default/a", "default/b"),
    ),
    Code.INSUFFICIENT_NUMA: (1, "limit", 4500, ROOMS),
    Code.NOT_ALIGNED: (),
    Code.POD_LEVEL_NOT_ALIGNED: ("pod",),
    Code.ZONES_NOT_ALIGNED: ("container", "main", "cpu", 4000, ((0, 2000), (1, 1500))),
    Code.ZONES_CANNOT_ALIGN: ("container",),
    Code.CRANE_INSUFFICIENT: (4, ((0, 2000), (1, 1500))),
    Code.CRANE_INSUFFICIENT_NUMA: (),
    Code.KUBELET_EXCLUSIVE_CPUS: ("LSR",),
    Code.SMT_NOT_MULTIPLE: (3, 2),
    Code.SMT_NOT_ENOUGH_CORES: (4, 6, 2),
    Code.POD_NOT_MULTIPLE_OF_CORE: (3, 2),
    Code.CONTAINER_NOT_MULTIPLE_OF_CORE: ("main", 3, 2),
    Code.NO_MEMORY_AFFINITY: (),
    Code.NO_PREFERRED_MEMORY_HINT: (),
    Code.NO_EXTENDED_MEMORY_AFFINITY: (),
    Code.NO_PREFERRED_EXTENDED_MEMORY_HINT: (),
    Code.MEMORY_GROUP_VIOLATED: (),
    Code.DEVICES_UNHEALTHY: ("nvidia.com/gpu",),
    Code.DEVICES_UNAVAILABLE: ("nvidia.com/gpu", 4, 3),
    Code.POD_LEVEL_INIT_WITHOUT_RESOURCE: ("memory",),
    Code.POD_LEVEL_SHARED_WITHOUT_CPUS: (),
    Code.POD_LEVEL_SHARED_WITHOUT_MEMORY: ("hugepages-2Mi",),
    Code.BIND_POLICY_CONFLICT: (True, "SpreadByPCPUs", "FullPCPUs"),
    Code.BIND_POLICY_NEEDS_SMT: ("SpreadByPCPUs",),
    Code.NUMA_POLICY_CONFLICT: ("Restricted", "SingleNUMANode"),
    Code.CONSTRAINED_BURST_EXCLUSIVE: (),
    Code.CONSTRAINED_BURST_NO_LIMIT: ("main",),
    Code.REQUIREMENT_NEEDS_CPUS: ("exclusivity", CLASS),
    Code.POD_CPU_REQUEST_NOT_INTEGER: (1500,),
    Code.CPU_LIMIT_DIFFERS: ("main", 2000, 3000),
    Code.CORE_KIND_MISSING: ("P", ["E", "LPE"]),
    Code.KOORDINATOR_NOT_ENOUGH: (),
    Code.KOORDINATOR_BIND_POLICY: ("FullPCPUs",),
    Code.KOORDINATOR_NUMA: (),
    Code.NO_PLACEMENT: CAUSE.values,
    Code.RULE_CPUS: ("core kind P",),
    Code.RULE_OTHERS_EXCLUSIVE: ("numa",),
    Code.RULE_EXCLUSIVE: RULE.values,
    Code.RULE_AFFINITY: (True, "app=db", "l3"),
    Code.RULE_BIND_POLICY: ("FullPCPUs",),
    Code.RULE_NUMA_POLICY: ("SingleNUMANode",),
    Code.RULE_NUMA_EXCLUSIVE: (),
    Code.TOO_FEW_CPUS: (6, 4),
    Code.TOO_FEW_CPUS_LEFT: (RULE, 6, 4, 0b110),
    Code.TOO_FEW_CORES: ("SpreadByPCPUs", 6, 4),
    Code.TOO_FEW_WHOLE_CORES: ("FullPCPUs", 6, 4, 5),
    Code.NOT_WHOLE_CORES: ("FullPCPUs", 3),
    Code.TOO_FEW_CPUS_ON_NUMA_NODES: TOO_FEW.values,
    Code.NUMA_EXCLUSIVE_UNMET: (),
    Code.RESOURCES_NOT_LOCAL: ("SingleNUMANode", ("memory", "nic")),
    Code.TERM: ("room", 9, "slots", 6, 4),
    Code.ONLY_ANSWER: (0b110,),
    Code.TERM_DECIDES: (0b110, 0b11000, "L3 domains", 1, 2),
    Code.LOWER_IDS_WIN: (0b110, 0b11000),
    Code.NOT_PROVEN: ("room", 8),
    Code.CORES_PARTLY_USED: (0b110, 0b11000),
    Code.EXCLUSIVE_POLICY_UNMET: ("PCPULevel", 2),
    Code.EXCLUSIVE_POLICY_FALLBACK: ("NUMANodeLevel", 2),
    Code.AFFINITY_SELECTS_NOTHING: ("app=db",),
    Code.REQUEST_FEWER_CPUS: (8,),
    Code.MOVE_PODS: ((("default/a", 0b110), ("default/b", 0b1000)),),
    Code.DROP_REQUIREMENT: ("SingleNUMANode", Reason(Code.REQUEST_FEWER_CPUS, (8,))),
    Code.ENTRY_UNCHANGED: (),
    Code.ENTRY_RUNNING: ("2-3",),
    Code.ENTRY_NOT_RUNNING: (),
    Code.ENTRY_LOST_CPUS: (0b1, 0b10, 0b100),
    Code.ENTRY_REPLACED_CPUS: (0b110,),
    Code.ENTRY_WITHOUT_NAME: (),
    Code.ENTRY_DROPPED: (0b1, 0b10, 0b100, True),
    Code.ENTRY_NOT_EXCLUSIVE: (),
    Code.ENTRY_POLICY_NONE: (),
    Code.REMEDY_REPAIR: (),
    Code.REMEDY_REPAIR_TOTAL: (0b1, 0b10),
    Code.REMEDY_RESERVE_OTHERS: ("0-3",),
    Code.REMEDY_REMOVE_STRICT: (),
    Code.REMEDY_FREE_CPUS: (),
    Code.REMEDY_CONVERT: (),
    Code.REMEDY_CONVERT_WITHOUT_GATE: (),
    Code.REMEDY_DRAIN_POD_LEVEL: (),
    Code.REMEDY_REMOVE: (),
    Code.REMEDY_REMOVE_WITHOUT_GATE: (),
    Code.REMEDY_MEMORY_POLICY: ("Static",),
    Code.REMEDY_RESERVED_MEMORY: (),
    Code.REMEDY_REMOVE_UNUSED: (),
    Code.REMEDY_RESERVE_MEMORY: (),
    Code.REMEDY_MEMORY_GROUP: (),
    Code.REMEDY_UNKNOWN_FIELD: ("reservedSystemCPUs?",),
    Code.REMEDY_GIVE_RESERVATION: (),
    Code.KUBELET_UNREACHABLE: (URL, "/pods", "Connection refused"),
    Code.KUBELET_SLOW: (URL, "/pods", 5.0),
    Code.KUBELET_CERTIFICATE_UNTRUSTED: (URL, "self-signed certificate", "/etc/ca.crt"),
    Code.KUBELET_CERTIFICATE_NAME: (URL, "IP address mismatch"),
    Code.KUBELET_CERTIFICATE_INVALID: (URL, "certificate has expired"),
    Code.KUBELET_CREDENTIALS_UNREADABLE: ("/token", "Permission denied"),
    Code.KUBELET_UNAUTHORIZED: (URL, "/pods"),
    Code.KUBELET_FORBIDDEN: (URL, "/pods", "nodes/pods"),
    Code.KUBELET_ENDPOINT_OFF: (URL, "/configz", 404),
    Code.KUBELET_FAILED: (URL, "/pods", 500, "internal error"),
    Code.KUBELET_MALFORMED: (URL, "/pods", "not JSON"),
    Code.MODE_NO_KUBELET: (),
    Code.MODE_KUBELET_NONE: ("/configz",),
    Code.MODE_KUBELET_CPUS_HELD: (2, 0b110),
    Code.MODE_KUBELET_STATIC: ("cpu_manager_state",),
    Code.MODE_EXCLUSIVE_PODS_LEFT: (1, 0b110),
    Code.MODE_READ_ONLY: (),
    Code.MODE_IGNORE: (),
    Code.MODE_NODE_POLICY_NONE: (),
    Code.MODE_POLICY_UNKNOWN: ("forbidden", ""),
    Code.MODE_POLICIES_DIFFER: ("none", "static"),
    Code.MODE_POLICY_UNRECOGNIZED: ("dynamic", "/configz"),
    Code.MODE_LAST_ANSWER: ("no answer",),
    Code.MODE_MEMORY_STATIC: (),
    Code.MODE_MEMORY_UNKNOWN: (),
}
WORDS_OF_REFUSALS = {
    "OutOfcpu", "UnexpectedAdmissionError", "SharedPoolExhausted", "BestEffortExhausted", "InsufficientCPUs",
    "InsufficientNUMA", "TopologyAffinityError", "SMTAlignmentError", "EmptyPodSharedPoolError",
    "CPUPolicyConflict", "NUMAPolicyConflict", "InvalidCPURequest", "CoreKindMissing",
    "ExclusiveCPUsUnavailable",
}  # fmt: skip


@pytest.mark.parametrize("code", Code)
def test_every_code_has_a_sentence(code: Code) -> None:
    text = sentence(Reason(code, VALUES[code]))
    assert text
    brackets = "" if code is Code.UNTOLERATED_TAINT else r"\{|\}|"  # as kube-scheduler writes
    assert not re.search(rf"{brackets}None|  |\(\)", text), text


@pytest.mark.parametrize("code", [code for code in Code if VALUES[code]])
def test_each_sentence_is_made_from_its_values(code: Code) -> None:
    text, values = sentence(Reason(code, VALUES[code])), VALUES[code]
    for i, value in enumerate(values):
        if isinstance(value, int) and not isinstance(value, bool):
            changed = (*values[:i], value + (1 << 9), *values[i + 1 :])
            assert sentence(Reason(code, changed)) != text, f"{code}: value {i} is not in {text!r}"


@pytest.mark.parametrize("code", Code)
def test_a_label_is_a_step_or_the_word_of_a_pods_status(code: Code) -> None:
    word = label(Reason(code, VALUES[code]))
    assert word in WORDS_OF_REFUSALS or re.fullmatch("[a-z-]+", word), word


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        (Reason(Code.REQUEST_FEWER_CPUS, (1,)), "request 1 CPU"),
        (
            Reason(Code.MOVE_PODS, ((("default/a", 0b110), ("default/b", 0b1000)),)),
            "move default/a off CPUs 1-2 and default/b off CPU 3",
        ),
        (
            Reason(Code.DROP_REQUIREMENT, ("SingleNUMANode", Reason(Code.REQUEST_FEWER_CPUS, (8,)))),
            "drop the requirement SingleNUMANode and request 8 CPUs or fewer",
        ),
        (Reason(Code.CPU_REQUEST_NOT_INTEGER, (50,)), "shared pool: CPU request 50m is not an integer"),
        (
            Reason(Code.PICKED_BY_OPTIMAL, (0x3FE03FE0, 0x3FE03FE0, TERMS, False, "", False, "", None)),
            "CPUs 5-13,21-29 on 2 NUMA nodes (distance 20), 2 L3 domains",
        ),
        (
            Reason(Code.PICKED_BY_OPTIMAL, (0b11, 0b11, (("exclusive", 0),), True, "core", False, "", None)),
            "CPUs 0-1; exclusive at core level: met",
        ),
        (
            Reason(Code.INSUFFICIENT_CPUS, (CAUSE, 6, 0, 8, 0, (), ("default/a",))),
            (
                "SingleNUMANode: 6 CPUs requested, at most 4 usable on one NUMA node (node 0: 4, node 1: 4); "
                "0 of 8 CPUs free for exclusive use; exclusive CPUs held by: default/a"
            ),
        ),
        (
            Reason(Code.TOO_FEW_CPUS_ON_NUMA_NODES, ("Restricted", 12, 2, ((0, 4), (1, 5), (2, 1)))),
            (
                "Restricted: 12 CPUs requested, at most 9 usable on 2 NUMA nodes "
                "(node 0: 4, node 1: 5, node 2: 1)"
            ),
        ),
        (Reason(Code.RULE_EXCLUSIVE, ("numa",)), "exclusive NUMA node"),
        (
            Reason(Code.CLASS_EXCLUSIVE, ("Guaranteed", "LSR", True)),
            "Guaranteed pod: class LSR on this node; exclusive CPUs, shared with BE only",
        ),
    ],
)
def test_sentences_read_as_the_project_writes(reason: Reason, expected: str) -> None:
    assert sentence(reason) == expected
