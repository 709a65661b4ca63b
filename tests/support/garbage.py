"""Whatever people might write into labels and annotations: words that are known, JSON, and neither."""

import json

from hypothesis import strategies as st

from corelane.kube import keys

WORDS = st.sampled_from(
    [
        "",
        "None",
        "Default",
        "FullPCPUs",
        "SpreadByPCPUs",
        "PCPULevel",
        "Restricted",
        "core",
        "0-3",
        "4",
        "true",
        "In",
        "Exists",
        "1e999999999",
        "9" * 400,
        "\u202e\n",
    ]
)
NAMES = st.sampled_from(
    [
        "requiredCPUBindPolicy",
        "preferredCPUBindPolicy",
        "preferredCPUExclusivePolicy",
        "numaTopologyPolicy",
        "level",
        "required",
        "singleNUMANodeExclusive",
        "numaAllocateStrategy",
        "avoid",
        "prefer",
        "matchLabels",
        "matchExpressions",
        "key",
        "operator",
        "values",
        "cpuset",
        "cpuSharedPools",
        "numaNodeResources",
        "node",
        "socket",
        "resources",
        "cpu",
        "capacity",
        "name",
        "type",
        "reservedCPUs",
        "applyPolicy",
        "cpusetExclusive",
        "uid",
    ]
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 1 << 40)
    | st.floats(allow_nan=False)
    | WORDS
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)
TEXTS = (
    JSON.map(json.dumps)
    | st.text(max_size=12)
    | WORDS
    | st.sampled_from(
        ["[" * 5000, '{"a":' * 5000, "NaN", '{"cpu":1e999}', '{"cpuset":"0-99999999"}', "x" * 9000]
    )
)
ON_PODS = [
    keys.QOS_CLASS, keys.PRIORITY_CLASS, keys.RESOURCE_SPEC, keys.NUMA_TOPOLOGY_SPEC, keys.EXCLUSIVE,
    keys.CPU_AFFINITY, keys.CORE_KIND, keys.CRANE_CPU_POLICY, keys.CRANE_AWARENESS,
]  # fmt: skip
RECORDS = [keys.RESOURCE_STATUS, keys.CONTAINER_CPUSETS, keys.PLACEMENT_REASONS, keys.CRANE_RESULT]
ON_NODES = [
    keys.NODE_POLICY, keys.NODE_ALLOCATOR, keys.NODE_BIND_POLICY,
    keys.NODE_NUMA_STRATEGY, keys.NODE_NUMA_POLICY, keys.NODE_NUMA_ALIGNMENT,
    keys.CRANE_AWARENESS, keys.RESERVATION, keys.SYSTEM_QOS, keys.AMPLIFICATION,
]  # fmt: skip
PUBLISHED = [
    keys.MACHINE, keys.CPU_ALLOCATIONS, keys.CPU_TOPOLOGY, keys.CPU_BASIC_INFO, keys.CPU_MANAGER_POLICY,
    keys.CPU_SHARED_POOLS, keys.BE_CPU_SHARED_POOLS, keys.POD_CPU_ALLOCS, *keys.CPU_MANAGER_POLICY_PROPOSED,
    keys.RESERVATION, keys.SYSTEM_QOS, keys.AMPLIFICATION,
]  # fmt: skip


def written(known: list[str], most: int = 4) -> st.SearchStrategy[dict[str, str]]:
    """Some of these keys with something in them."""
    return st.dictionaries(st.sampled_from(known), TEXTS, max_size=most)
