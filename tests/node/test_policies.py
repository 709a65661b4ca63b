"""Whose policy holds: pod, label, kubelet, profile, in the proposal's order; and what cannot go together."""

import pytest

from corelane.node.pools import classes
from corelane.node.pools.classes import NodePolicies
from corelane.node.recovery import takeover
from corelane.reasons import Code, Reason, sentence
from corelane.workload import BindPolicy, ExclusivePolicy, NUMAPolicy, NUMAStrategy, PlacementSpec, PodQOS
from corelane.workload.request import QOSClass

FULL, SPREAD = BindPolicy.FULL_PCPUS, BindPolicy.SPREAD_BY_PCPUS
MOST, LEAST, EVENLY = (
    NUMAStrategy.MOST_ALLOCATED,
    NUMAStrategy.LEAST_ALLOCATED,
    NUMAStrategy.DISTRIBUTE_EVENLY,
)
NONE, BEST = NUMAPolicy.NONE, NUMAPolicy.BEST_EFFORT
RESTRICTED, SINGLE = NUMAPolicy.RESTRICTED, NUMAPolicy.SINGLE_NUMA_NODE
UNSAID = NodePolicies()


def resolved(placement_spec, *sources, default=None, cpus=4, threads=2):
    return classes.resolve(placement_spec, classes.merged(*sources), default, cpus=cpus, threads=threads)


def says(conflict, code, *words):
    assert isinstance(conflict, Reason)
    assert conflict.code is code
    assert all(word in sentence(conflict) for word in words)


@pytest.mark.parametrize("pod", [None, FULL, SPREAD])
@pytest.mark.parametrize("must", [False, True])
@pytest.mark.parametrize("label", [None, FULL, SPREAD])
@pytest.mark.parametrize("kubelet", [None, FULL])
@pytest.mark.parametrize("profile", [None, FULL, SPREAD])
def test_bind_policies(pod, must, label, kubelet, profile):
    found = resolved(
        PlacementSpec(bind=pod, bind_required=must),
        NodePolicies(bind=label),
        NodePolicies(bind=kubelet),
        default=profile,
    )
    node = label or kubelet
    if pod and node and pod is not node and (must or pod is SPREAD):
        says(found, Code.BIND_POLICY_CONFLICT, pod, node)
        return
    assert found.bind is (node or pod or profile)
    assert found.bind_required == bool(node or (must and (pod or profile)))


def test_nobody_is_bound_where_nobody_names_a_policy():
    found = resolved(PlacementSpec())
    assert (found.bind, found.bind_required, found.strategy, found.numa) == (None, False, None, NONE)


@pytest.mark.parametrize("pod", [None, MOST])
@pytest.mark.parametrize("label", [None, LEAST])
@pytest.mark.parametrize("kubelet", [None, EVENLY])
@pytest.mark.parametrize("profile", [None, MOST])
def test_numa_strategies(pod, label, kubelet, profile):
    sources = (NodePolicies(strategy=one) for one in (label, kubelet, profile))
    assert resolved(PlacementSpec(strategy=pod), *sources).strategy is (pod or label or kubelet or profile)


@pytest.mark.parametrize("pod", [None, BEST, SINGLE])
@pytest.mark.parametrize("label", [None, NONE, SINGLE])
@pytest.mark.parametrize("kubelet", [None, RESTRICTED])
@pytest.mark.parametrize("profile", [None, BEST])
def test_topology_policies(pod, label, kubelet, profile):
    found = resolved(PlacementSpec(numa=pod), *(NodePolicies(numa=one) for one in (label, kubelet, profile)))
    node = label if label is not None else (kubelet or profile or NONE)
    if pod and node and pod is not node:
        says(found, Code.NUMA_POLICY_CONFLICT, pod, node)
        return
    assert found.numa is (pod or node)


@pytest.mark.parametrize(
    ("placement_spec", "expected"),
    [
        (PlacementSpec(), False),
        (PlacementSpec(numa=SINGLE), True),
        (PlacementSpec(numa=SINGLE, numa_exclusive=False), False),
        (PlacementSpec(numa_exclusive=True), True),
    ],
)
def test_numa_exclusivity_is_required_by_default_only_of_pods_that_name_a_policy(placement_spec, expected):
    assert resolved(placement_spec, NodePolicies(numa=SINGLE)).numa_exclusive is expected


@pytest.mark.parametrize(("aware", "expected"), [(True, SINGLE), (False, NONE), (None, BEST)])
def test_gocranes_awareness_stands_in_for_a_policy(aware, expected):
    assert resolved(PlacementSpec(topology_aware=aware), NodePolicies(numa=BEST)).numa is expected
    own = PlacementSpec(topology_aware=aware, numa=RESTRICTED)
    assert resolved(own).numa is RESTRICTED


def test_full_cores_that_are_required_must_come_out_even():
    required = NodePolicies(bind=FULL)
    says(
        resolved(PlacementSpec(), required, cpus=3),
        Code.POD_NOT_MULTIPLE_OF_CORE,
        "requests 3 CPUs",
        "multiple of 2",
    )
    assert resolved(PlacementSpec(), required, cpus=4).bind_required
    assert not resolved(PlacementSpec(bind=FULL), cpus=3).bind_required
    says(
        resolved(PlacementSpec(bind=FULL, bind_required=True), cpus=6, threads=4),
        Code.POD_NOT_MULTIPLE_OF_CORE,
        "of 4",
    )


def test_pods_without_cpus_of_their_own_do_not_contradict_a_bind_policy():
    found = resolved(PlacementSpec(bind=SPREAD, bind_required=True), NodePolicies(bind=FULL), cpus=0)
    assert not isinstance(found, Reason)


def test_a_core_with_one_thread_serves_neither_spreading_nor_core_exclusivity():
    found = resolved(PlacementSpec(bind=SPREAD, exclusive_policy=ExclusivePolicy.PCPU_LEVEL), threads=1)
    assert (found.bind, found.exclusive) == (FULL, ExclusivePolicy.NONE)
    assert [note.code for note in found.notes] == [Code.SPREAD_WITHOUT_SMT, Code.PCPU_LEVEL_WITHOUT_SMT]
    on_all = resolved(PlacementSpec(), NodePolicies(bind=SPREAD), threads=1)
    assert (on_all.bind, on_all.bind_required, len(on_all.notes)) == (FULL, False, 1)
    must = PlacementSpec(bind=SPREAD, bind_required=True)
    says(resolved(must, threads=1), Code.BIND_POLICY_NEEDS_SMT, "SMT siblings", "FullPCPUs")
    numa = resolved(PlacementSpec(exclusive_policy=ExclusivePolicy.NUMA_NODE_LEVEL), threads=1)
    assert (numa.exclusive, numa.notes) == (ExclusivePolicy.NUMA_NODE_LEVEL, ())


def test_spreading_means_something_where_only_some_cores_have_a_second_thread():
    placement_spec = PlacementSpec(
        bind=SPREAD, bind_required=True, exclusive_policy=ExclusivePolicy.PCPU_LEVEL
    )
    found = classes.resolve(placement_spec, UNSAID, None, cpus=3, threads=1, most_threads=2)
    assert not isinstance(found, Reason)
    assert (found.bind, found.bind_required, found.exclusive) == (SPREAD, True, ExclusivePolicy.PCPU_LEVEL)
    assert found.notes == ()


@pytest.mark.parametrize(
    ("found", "policy", "expected"),
    [
        (QOSClass.GUARANTEED, "static", PodQOS.LSR),
        (QOSClass.GUARANTEED, "none", PodQOS.LS),
        (QOSClass.BURSTABLE, "static", PodQOS.LS),
        (QOSClass.BURSTABLE, "none", PodQOS.LS),
        (QOSClass.BEST_EFFORT, "static", PodQOS.BE),
        (QOSClass.BEST_EFFORT, "none", PodQOS.BE),
    ],
)
def test_what_a_kubelets_pod_counts_as(found, policy, expected):
    assert takeover.of_kubelets_pod(found, policy) is expected
