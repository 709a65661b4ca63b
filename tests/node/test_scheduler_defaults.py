"""Defaults of a scheduler's profile hold for pods that do not say, where the node does not say either."""

import pytest

from corelane.node.pools.classes import NodePolicies, Policies, resolve
from corelane.workload import (
    BindPolicy,
    ExclusivePolicy,
    NUMAPolicy,
    NUMAStrategy,
    PlacementSpec,
    SchedulerDefaults,
)

FULL, SPREAD = BindPolicy.FULL_PCPUS, BindPolicy.SPREAD_BY_PCPUS
MOST, LEAST = NUMAStrategy.MOST_ALLOCATED, NUMAStrategy.LEAST_ALLOCATED
SINGLE, RESTRICTED = NUMAPolicy.SINGLE_NUMA_NODE, NUMAPolicy.RESTRICTED
PCPU, NOT = ExclusivePolicy.PCPU_LEVEL, ExclusivePolicy.NONE
ALL = {"bind": FULL, "strategy": LEAST, "numa": RESTRICTED}
DEFAULTS = SchedulerDefaults(SPREAD, PCPU, MOST, SINGLE)


def resolved(spec: PlacementSpec, node: NodePolicies, default: BindPolicy | None = None) -> Policies:
    found = resolve(spec, node, default, cpus=4, threads=2, most_threads=2)
    assert isinstance(found, Policies)
    return found


@pytest.mark.parametrize(
    ("pod", "node", "expected"),
    [
        ({}, NodePolicies(), (SPREAD, False, PCPU, MOST, SINGLE)),
        (ALL, NodePolicies(), (FULL, False, PCPU, LEAST, RESTRICTED)),
        ({}, NodePolicies(FULL, LEAST, RESTRICTED), (FULL, True, PCPU, LEAST, RESTRICTED)),
        ({"exclusive_policy": NOT}, NodePolicies(), (SPREAD, False, NOT, MOST, SINGLE)),
        ({"topology_aware": False}, NodePolicies(), (SPREAD, False, PCPU, MOST, NUMAPolicy.NONE)),
        ({"numa": NUMAPolicy.NONE}, NodePolicies(), (SPREAD, False, PCPU, MOST, NUMAPolicy.NONE)),
        ({"numa": NUMAPolicy.NONE}, NodePolicies(numa=RESTRICTED), (SPREAD, False, PCPU, MOST, RESTRICTED)),
        ({}, NodePolicies(numa=NUMAPolicy.NONE), (SPREAD, False, PCPU, MOST, NUMAPolicy.NONE)),
        ({"numa": RESTRICTED}, NodePolicies(numa=NUMAPolicy.NONE), (SPREAD, False, PCPU, MOST, RESTRICTED)),
    ],
)  # fmt: skip
def test_pod_comes_before_node_and_node_before_profile(pod, node, expected) -> None:
    found = resolved(PlacementSpec(defaults=DEFAULTS, **pod), node)
    assert (found.bind, found.bind_required, found.exclusive, found.strategy, found.numa) == expected


def test_a_default_never_contradicts_the_node_and_requires_no_zone_alone() -> None:
    found = resolved(PlacementSpec(defaults=DEFAULTS), NodePolicies(FULL, None, RESTRICTED))
    assert (found.bind, found.numa_exclusive) == (FULL, False)
    assert resolved(PlacementSpec(defaults=SchedulerDefaults()), NodePolicies(), SPREAD).bind is SPREAD
