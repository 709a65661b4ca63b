"""Whatever people write into labels and annotations: it is understood, or named as a fault."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.kube import keys
from corelane.kube.translate import TranslationError, koordinator, nodesettings, proposals, statuses, wishes
from support.pods import container, pod

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
TEXTS = JSON.map(json.dumps) | st.text(max_size=12) | WORDS
ON_PODS = [
    keys.QOS_CLASS, keys.PRIORITY_CLASS, keys.RESOURCE_SPEC, keys.NUMA_TOPOLOGY_SPEC, keys.EXCLUSIVE,
    keys.CPU_AFFINITY, keys.CORE_KIND, keys.CRANE_CPU_POLICY, keys.CRANE_AWARENESS,
]  # fmt: skip
ON_NODES = [
    keys.NODE_BIND_POLICY, keys.NODE_NUMA_STRATEGY, keys.NODE_NUMA_POLICY, keys.NODE_NUMA_ALIGNMENT,
    keys.CRANE_AWARENESS, keys.RESERVATION, keys.SYSTEM_QOS, keys.AMPLIFICATION,
]  # fmt: skip


@settings(max_examples=120, deadline=None)
@given(st.dictionaries(st.sampled_from(ON_PODS), TEXTS, max_size=4))
def test_pods(texts):
    found = pod("a", container("x", "cpu=1"), annotations=texts, labels=texts)
    faults = wishes.faults(found)
    try:
        wishes.read(found)
    except TranslationError as error:
        assert str(error) == str(faults[0])
    else:
        assert faults == ()


@settings(max_examples=120, deadline=None)
@given(st.dictionaries(st.sampled_from(ON_NODES), TEXTS, max_size=4))
def test_nodes(texts):
    nodesettings.read(texts, texts)


@settings(max_examples=120, deadline=None)
@given(TEXTS)
def test_records_and_published_annotations(text):
    for key, read in (
        (keys.RESOURCE_STATUS, statuses.read),
        (keys.RESOURCE_STATUS, proposals.zone),
        (keys.CONTAINER_CPUSETS, lambda texts: proposals.read(texts, ["cpu"])),
        (keys.CRANE_RESULT, statuses.crane_result),
        (keys.CPU_SHARED_POOLS, koordinator.pools),
        (keys.POD_CPU_ALLOCS, koordinator.pod_allocations),
        (keys.CPU_BASIC_INFO, koordinator.basic_info),
    ):
        try:
            read({key: text})
        except TranslationError as error:
            assert error.field.startswith(f"metadata.annotations[{key}]")
