"""Who has the last word, as people write it: pod, Node's label, kubelet's option, profile, row by row."""

import json

import pytest

from corelane.kube import keys
from corelane.kube.meta import ObjectMeta
from corelane.kube.objects import NodeResourceTopology
from corelane.kube.translate import node_labels, placement_annotations
from corelane.node.config import PoolOptions
from corelane.node.pools.classes import NodePolicies, resolve
from corelane.placement import topology
from corelane.reasons import Code, Reason
from corelane.workload import BindPolicy, NUMAPolicy, NUMAStrategy
from support.pods import container, pod

BIND_CONFLICT, NUMA_CONFLICT = Code.BIND_POLICY_CONFLICT, Code.NUMA_POLICY_CONFLICT

FULL, SPREAD = BindPolicy.FULL_PCPUS, BindPolicy.SPREAD_BY_PCPUS
MOST, LEAST, EVENLY = (
    NUMAStrategy.MOST_ALLOCATED,
    NUMAStrategy.LEAST_ALLOCATED,
    NUMAStrategy.DISTRIBUTE_EVENLY,
)
NONE, BEST, RESTRICTED, SINGLE = NUMAPolicy
MACHINE = topology.build([(cpu, cpu // 2, cpu // 8, cpu // 8, cpu // 8) for cpu in range(16)])
NOBODY = PoolOptions(bind=None)


def resolved(asked, labels, kubelet, profile, cpus=4):
    """What comes of a pod's annotations, a Node's labels, what its kubelet publishes, and a profile."""
    annotations, policies = kubelet
    text = {keys.CPU_MANAGER_POLICY: json.dumps(annotations)} if annotations else {}
    published = NodeResourceTopology(ObjectMeta(annotations=text), topology_policies=policies)
    said = node_labels.node_labels(labels, {})
    assert said.faults == ()
    options = node_labels.pool_options(said, node_labels.published_kubelet(published), profile, MACHINE)
    here = NodePolicies(options.node_bind, options.strategy, options.numa)
    wanted = placement_annotations.placement_spec(pod("a", container("x", "cpu=4"), annotations=asked))
    return resolve(wanted, here, options.bind, cpus=cpus, threads=2)


def spec(**members):
    return {keys.RESOURCE_SPEC: json.dumps(members)}


def numa(**members):
    return {keys.NUMA_TOPOLOGY_SPEC: json.dumps(members)}


def static(policy=(), **options):
    named = {name.replace("_", "-"): text for name, text in options.items()}
    return {"policy": "static", "options": named}, policy


def bind(text):
    return {keys.NODE_BIND_POLICY: text}


SILENT = (None, ())
ONLY_FULL = static(full_pcpus_only="true")
NOT_STATIC = ({"policy": "none", "options": {"full-pcpus-only": "true"}}, ())


@pytest.mark.parametrize(
    ("asked", "labels", "kubelet", "profile", "expected"),
    [
        # Nobody names a policy: none holds; the profile's is for pods that name none.
        ({}, {}, SILENT, NOBODY, (None, False)),
        ({}, {}, SILENT, PoolOptions(), (FULL, False)),
        ({}, {}, SILENT, PoolOptions(bind=SPREAD), (SPREAD, False)),
        (spec(preferredCPUBindPolicy="Default"), {}, SILENT, PoolOptions(bind=SPREAD), (SPREAD, False)),
        (spec(requiredCPUBindPolicy="Default"), {}, SILENT, PoolOptions(bind=SPREAD), (SPREAD, True)),
        # The pod's before the profile's.
        (spec(preferredCPUBindPolicy="SpreadByPCPUs"), {}, SILENT, PoolOptions(), (SPREAD, False)),
        (spec(requiredCPUBindPolicy="SpreadByPCPUs"), {}, SILENT, PoolOptions(), (SPREAD, True)),
        # The kubelet's option, under its static policy, is required of all; the pod must not contradict.
        ({}, {}, ONLY_FULL, PoolOptions(bind=SPREAD), (FULL, True)),
        ({}, {}, static(full_pcpus_only="false"), PoolOptions(bind=SPREAD), (SPREAD, False)),
        ({}, {}, NOT_STATIC, PoolOptions(bind=SPREAD), (SPREAD, False)),
        (spec(preferredCPUBindPolicy="FullPCPUs"), {}, ONLY_FULL, NOBODY, (FULL, True)),
        (spec(preferredCPUBindPolicy="SpreadByPCPUs"), {}, ONLY_FULL, NOBODY, BIND_CONFLICT),
        (spec(requiredCPUBindPolicy="SpreadByPCPUs"), {}, ONLY_FULL, NOBODY, BIND_CONFLICT),
        # The Node's label before the kubelet's option; None and empty do not say.
        ({}, bind("SpreadByPCPUs"), ONLY_FULL, NOBODY, (SPREAD, True)),
        ({}, bind("None"), ONLY_FULL, NOBODY, (FULL, True)),
        ({}, bind(""), SILENT, PoolOptions(bind=SPREAD), (SPREAD, False)),
        ({}, bind("FullPCPUsOnly"), SILENT, PoolOptions(bind=SPREAD), (FULL, True)),
        (spec(preferredCPUBindPolicy="FullPCPUs"), bind("SpreadByPCPUs"), SILENT, NOBODY, (SPREAD, True)),
        (
            spec(requiredCPUBindPolicy="FullPCPUs"),
            bind("SpreadByPCPUs"),
            SILENT,
            NOBODY,
            BIND_CONFLICT,
        ),
        (
            spec(preferredCPUBindPolicy="SpreadByPCPUs"),
            bind("FullPCPUsOnly"),
            SILENT,
            NOBODY,
            BIND_CONFLICT,
        ),
        # The label before the profile's own requirement.
        ({}, bind("SpreadByPCPUs"), SILENT, PoolOptions(node_bind=FULL), (SPREAD, True)),
        ({}, {}, ONLY_FULL, PoolOptions(node_bind=SPREAD), (FULL, True)),
        ({}, {}, SILENT, PoolOptions(node_bind=SPREAD), (SPREAD, True)),
    ],
)
def test_bind_policy(asked, labels, kubelet, profile, expected):
    found = resolved(asked, labels, kubelet, profile)
    told = found.code if isinstance(found, Reason) else (found.bind, found.bind_required)
    assert told == expected


@pytest.mark.parametrize(
    ("asked", "labels", "kubelet"),
    [
        ({}, bind("FullPCPUsOnly"), SILENT),
        ({}, {}, ONLY_FULL),
        (spec(requiredCPUBindPolicy="FullPCPUs"), {}, SILENT),
    ],
)
def test_full_cores_that_somebody_requires_come_in_multiples_of_their_threads(asked, labels, kubelet):
    found = resolved(asked, labels, kubelet, NOBODY, cpus=3)
    assert isinstance(found, Reason)
    assert found.code == Code.POD_NOT_MULTIPLE_OF_CORE


def strategy(text):
    return {keys.NODE_NUMA_STRATEGY: text}


ACROSS = static(distribute_cpus_across_numa="true")


@pytest.mark.parametrize(
    ("asked", "labels", "kubelet", "profile", "expected"),
    [
        ({}, {}, SILENT, PoolOptions(), None),
        ({}, {}, SILENT, PoolOptions(strategy=MOST), MOST),
        ({}, {}, ACROSS, PoolOptions(strategy=MOST), EVENLY),
        ({}, {}, static(distribute_cpus_across_numa="false"), PoolOptions(strategy=MOST), MOST),
        ({}, strategy("LeastAllocated"), ACROSS, PoolOptions(strategy=MOST), LEAST),
        ({}, strategy("DistributeEvenly"), SILENT, PoolOptions(strategy=MOST), EVENLY),
        ({}, strategy(""), ACROSS, PoolOptions(strategy=MOST), EVENLY),
        (numa(numaAllocateStrategy="MostAllocated"), strategy("LeastAllocated"), ACROSS, PoolOptions(), MOST),
        (numa(numaAllocateStrategy=""), strategy("LeastAllocated"), ACROSS, PoolOptions(), LEAST),
    ],
)
def test_numa_strategy(asked, labels, kubelet, profile, expected):
    found = resolved(asked, labels, kubelet, profile)
    assert not isinstance(found, Reason)
    assert found.strategy is expected


def aligned(text, key=keys.NODE_NUMA_POLICY):
    return {key: text}


RESTRICTING = (None, ("RestrictedPodLevel",))
STRICT = PoolOptions(numa=SINGLE)


@pytest.mark.parametrize(
    ("asked", "labels", "kubelet", "profile", "expected"),
    [
        ({}, {}, SILENT, PoolOptions(), NONE),
        # TopologyPolicies None, and no label: as the scheduler is configured.
        ({}, {}, (None, ("None",)), STRICT, SINGLE),
        ({}, {}, RESTRICTING, STRICT, RESTRICTED),
        ({}, {}, (None, ("SingleNUMANodePodLevel",)), PoolOptions(), SINGLE),
        ({}, {}, (None, ("SingleNUMANodeContainerLevel",)), PoolOptions(), SINGLE),
        # The label first, in both spellings; None says that nothing is aligned, empty says nothing.
        ({}, aligned("BestEffort"), RESTRICTING, STRICT, BEST),
        ({}, aligned("BestEffort", keys.NODE_NUMA_ALIGNMENT), RESTRICTING, STRICT, BEST),
        ({}, aligned("None"), RESTRICTING, STRICT, NONE),
        ({}, aligned("None", keys.NODE_NUMA_ALIGNMENT), RESTRICTING, STRICT, NONE),
        ({}, aligned(""), RESTRICTING, STRICT, RESTRICTED),
        ({}, aligned("true", keys.CRANE_AWARENESS), RESTRICTING, PoolOptions(), SINGLE),
        ({}, aligned("false", keys.CRANE_AWARENESS), RESTRICTING, STRICT, NONE),
        # Where only the pod says so, it holds; where both do, they must say the same.
        (numa(numaTopologyPolicy="Restricted"), {}, SILENT, PoolOptions(), RESTRICTED),
        (numa(numaTopologyPolicy="Restricted"), aligned("None"), SILENT, STRICT, RESTRICTED),
        (numa(numaTopologyPolicy="Restricted"), {}, RESTRICTING, STRICT, RESTRICTED),
        (numa(numaTopologyPolicy="Restricted"), aligned("BestEffort"), RESTRICTING, STRICT, NUMA_CONFLICT),
        (numa(numaTopologyPolicy="SingleNUMANode"), {}, RESTRICTING, STRICT, NUMA_CONFLICT),
        (numa(numaTopologyPolicy=""), aligned("BestEffort"), SILENT, STRICT, BEST),
        # gocrane's awareness stands in for a pod that names no policy.
        ({keys.CRANE_AWARENESS: "true"}, aligned("BestEffort"), SILENT, PoolOptions(), SINGLE),
        ({keys.CRANE_AWARENESS: "false"}, aligned("BestEffort"), SILENT, STRICT, NONE),
        (numa(numaTopologyPolicy="Restricted") | {keys.CRANE_AWARENESS: "false"}, {}, SILENT, PoolOptions(),
         RESTRICTED),
    ],
)  # fmt: skip
def test_topology_policy(asked, labels, kubelet, profile, expected):
    found = resolved(asked, labels, kubelet, profile)
    assert (found.code if isinstance(found, Reason) else found.numa) == expected
