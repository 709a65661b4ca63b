"""The annotations and labels that corelane reads and writes. Koordinator's where it has one."""

from typing import Final

RESOURCE_STATUS: Final = "scheduling.koordinator.sh/resource-status"
"""On a pod: JSON whose `cpuset` holds for every container."""
CONTAINER_CPUSETS: Final = "corelane.io/container-cpusets"
"""On a pod: JSON, container to CPU list, where containers differ; wins over RESOURCE_STATUS."""

PLACEMENT_REASONS: Final = "corelane.io/placement-reasons"
"""On a pod: JSON, container to the reasons for its CPUs, in words."""

CPU_TOPOLOGY: Final = "node.koordinator.sh/cpu-topology"
"""On a NodeResourceTopology: JSON, `detail` is a list of id, core, socket and node of every CPU."""
CPU_SHARED_POOLS: Final = "node.koordinator.sh/cpu-shared-pools"
"""On a NodeResourceTopology: JSON list of socket, node and cpuset."""
MACHINE: Final = "corelane.io/machine"
"""On a NodeResourceTopology: JSON, every unit of the machine to its CPU list; see `translate.machine`."""
CPU_ALLOCATIONS: Final = "corelane.io/cpu-allocations"
"""On a NodeResourceTopology: JSON, the node's ledger; see `translate.ledger`."""

MANAGED_BY: Final = "app.kubernetes.io/managed-by"
