"""What is left by NUMA node bounds what any kind of node admits."""

from corelane.node.zones.zone_state import Zone, ZonesState, assume
from corelane.scheduler.cluster.node_kinds import UncountedState, zone_amounts
from support import objects


def test_ledger_counts_free_cpus_and_whole_cores() -> None:
    state = objects.state("socket:2 numa:1 l3:2 core:2 smt:2", "n", reserved_count=1)
    first, second = zone_amounts(state)
    assert (first.numa, first.cpus, first.cores) == (0, 7, 3)
    assert (second.numa, second.cpus, second.cores) == (1, 8, 4)
    assert second.memory is None


def test_exported_zones_count_what_is_available_without_assumed_pods() -> None:
    available = {"cpu": 7500, "memory": 100, "hugepages-2Mi": 64, "vendor/nic": 2}
    state = assume(ZonesState((Zone(1, available),)), "u", {"cpu": 3000, "vendor/nic": 3})
    (left,) = zone_amounts(state)
    assert (left.numa, left.cpu, left.cpus, left.cores) == (1, 4500, 4, None)
    assert (left.memory, left.hugepages, left.devices) == (100, {"hugepages-2Mi": 64}, {"vendor/nic": 0})


def test_nothing_is_known_without_a_topology() -> None:
    assert zone_amounts(UncountedState()) == ()
