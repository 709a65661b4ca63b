"""What was decided for a pod, as annotations: the scheduler's proposal, then the agent's fact.

Koordinator's `resource-status` gives one set to all containers and takes it out of its shared pool, so it is
written when that is the truth. It also says how much comes from which NUMA node (`numaNodeResources`), and in
which sockets' and NUMA nodes' pools a pod without CPUs floats (`cpuSharedPools`). Where containers differ,
`corelane.io/container-cpusets` names each container's own CPUs and wins; those that it leaves out share the
pool.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from corelane import quantity
from corelane.cpuset import CPUSet
from corelane.kube import keys
from corelane.kube.keys import CONTAINER_CPUSETS, RESOURCE_STATUS
from corelane.kube.pod import Pod
from corelane.kube.translate import koordinator, pods, statuses
from corelane.kube.translate.statuses import ResourceStatus
from corelane.machine.model import Machine
from corelane.workload import CPUPolicy

__all__ = ["annotations"]

_ABSENT: Final = {RESOURCE_STATUS: "{}", CONTAINER_CPUSETS: ""}
"""Koordinator's reader takes "" for broken; of ours, an empty object says that nobody has CPUs."""


def annotations(
    assignments: Mapping[str, CPUSet], pod: Pod, machine: Machine | None = None, zone: CPUSet | None = None
) -> dict[str, str]:
    """The annotations that record `assignments` (container to the CPUs that it is bound to) on a pod.

    The other containers are held to the shared pool of the machine's NUMA nodes `zone`; None is all of it.
    One left over on the pod from elsewhere, a copied manifest say, is overwritten with what counts as
    absent: a Binding can add annotations but not take them away.
    """
    named = {name: cpus for name, cpus in assignments.items() if cpus}
    record = _record(named, pod, machine, zone)
    stale = {key: text for key, text in _ABSENT.items() if key in pod.metadata.annotations}
    return stale | record


def _record(
    assignments: Mapping[str, CPUSet], pod: Pod, machine: Machine | None, zone: CPUSet | None
) -> dict[str, str]:
    places = koordinator.places(machine, zone) if machine and zone else ()
    if not assignments:
        amounts = _amount_of(pod, zone) if zone and places else {}
        return _status(ResourceStatus(amounts=amounts, pools=places))
    every = {container.name for container in (*pod.spec.init_containers, *pod.spec.containers)}
    sets = set(assignments.values())
    if len(sets) == 1 and every <= assignments.keys() and not _is_immovable(pod):
        common = sets.pop()
        return _status(ResourceStatus(common, _amounts(machine, common)))
    own = {name: str(cpus) for name, cpus in sorted(assignments.items())}
    return {CONTAINER_CPUSETS: msgspec.json.encode(own).decode(), **_status(ResourceStatus(pools=places))}


def _status(status: ResourceStatus) -> dict[str, str]:
    return {RESOURCE_STATUS: statuses.dump(status)} if status != ResourceStatus() else {}


def _is_immovable(pod: Pod) -> bool:
    """Whether its CPUs stay in the shared pool, which Koordinator has no word for."""
    return pod.metadata.annotations.get(keys.CRANE_CPU_POLICY, "").strip() == CPUPolicy.IMMOVABLE


def _amounts(machine: Machine | None, cpus: CPUSet) -> dict[int, dict[str, str]]:
    """How many of these CPUs each NUMA node has; where there is but one node, nothing has to be said."""
    nodes = machine.numa_masks if machine else ()
    if len(nodes) < 2:
        return {}
    return {node: {"cpu": str(n)} for node, mask in nodes if (n := (mask & cpus.mask).bit_count())}


def _amount_of(pod: Pod, zone: CPUSet) -> dict[int, dict[str, str]]:
    """Upstream's agent goes by amounts to hold a pod; over several nodes, the split would be a guess."""
    milli = pods.requests(pod).get("cpu", 0)
    return {node: {"cpu": str(quantity.of_milli(milli))} for node in zone if milli and len(zone) == 1}
