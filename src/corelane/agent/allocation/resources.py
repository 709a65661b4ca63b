"""Memory nodes and CPU quota of a container, which follow from its allocation as its CPUs do.

Exclusive CPUs come without a quota (as with the kubelet's DisableCPUQuotaWithExclusiveCPUs); back in the
shared pool a container gets its quota and all memory nodes back. What was lifted is seen in the kernel, not
remembered, so it is put back after a restart of the agent, too. Quotas that somebody else set stay.
"""

from dataclasses import dataclass

from corelane.agent.allocation.cpu_moves import CPUAllocation
from corelane.agent.allocation.records import RunCPUs
from corelane.cpuset import CPUSet
from corelane.kernel import cfs
from corelane.machine.model import Machine
from corelane.runtime.base import KEEP, Keep, ObservedResources, ResourceUpdate
from corelane.workload import PodRequest


@dataclass(frozen=True, slots=True)
class ResourcePolicy:
    """What this agent sets besides CPUs; the rest is the kubelet's, or nobody's.

    `mems`: memory nodes (not beside a kubelet with memoryManagerPolicy Static). `quota`: CFS quotas (not
    beside a kubelet with cpuCFSQuota false, which sets none).
    """

    mems: bool = True
    quota: bool = True


def memory_nodes(machine: Machine) -> CPUSet:
    """Return the NUMA nodes that have memory; all nodes where no memory is known."""
    with_memory = CPUSet(node.id for node in machine.nodes if node.memory)
    return with_memory or CPUSet(node.id for node in machine.nodes)


def change_of(
    run: RunCPUs, target: CPUAllocation, request: PodRequest, machine: Machine, policy: ResourcePolicy
) -> ResourceUpdate | None:
    """Return the change that is due for a run of a pod with this request; None if there is none."""
    if run.resources is None:
        return ResourceUpdate(mems=target.mems) if policy.mems and target.mems else None
    limits = (one.cpu_limit for one in request.containers if one.name == run.container)
    nodes = memory_nodes(machine)
    return due_change(run.resources, target, limit=next(limits, 0), nodes=nodes, policy=policy)


def due_change(
    observed: ObservedResources | None,
    target: CPUAllocation,
    *,
    limit: int,
    nodes: CPUSet,
    policy: ResourcePolicy,
) -> ResourceUpdate | None:
    """Return the change of memory nodes and quota that is due; None if there is none.

    `limit` is the container's CPU limit in milliCPU, 0 without one; `nodes` are all memory nodes.
    """
    if observed is None:
        return None
    mems = _mems(observed, target.mems or nodes) if policy.mems else None
    quota = _quota(observed, limit, exclusive=target.sharing.exclusive) if policy.quota else KEEP
    if mems is None and quota is KEEP:
        return None
    return ResourceUpdate(mems=mems, quota_us=quota)


def _mems(observed: ObservedResources, target: CPUSet) -> CPUSet | None:
    """Memory nodes to set; they are unknown where affinity alone confines containers."""
    return target if observed.mems and observed.mems != target else None


def _quota(observed: ObservedResources, limit: int, *, exclusive: bool) -> int | Keep | None:
    if exclusive:
        return KEEP if observed.quota_us is None else None
    if not limit or not observed.cgroup or observed.quota_us is not None:
        return KEEP
    return cfs.quota_us(limit, observed.period_us)
