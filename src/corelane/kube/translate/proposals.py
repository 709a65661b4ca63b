"""The CPUs of a pod's containers as annotations, both ways: the scheduler's proposal, then the agent's fact.

Koordinator's `resource-status` gives one set to all containers, so it is written when that is the truth; it
also says in which sockets' and NUMA nodes' pools a pod without CPUs floats (`cpuSharedPools`). Where
containers differ, `corelane.io/container-cpusets` names each container's own CPUs and wins; those that it
leaves out share the pool.
"""

from collections.abc import Collection, Mapping

import msgspec

from corelane.cpuset import CPUSet
from corelane.kube.keys import CONTAINER_CPUSETS, RESOURCE_STATUS
from corelane.kube.pod import Pod
from corelane.kube.translate import statuses
from corelane.kube.translate.annotations import annotation, cpus, tree
from corelane.kube.translate.errors import TranslationError
from corelane.kube.translate.statuses import ResourceStatus

__all__ = ["annotations", "read", "zone"]


def annotations(
    assignments: Mapping[str, CPUSet], pod: Pod, pools: tuple[tuple[int, int], ...] = ()
) -> dict[str, str]:
    """The annotations that record `assignments` (container to the CPUs that it is bound to) on a pod.

    `pools` are the sockets and NUMA nodes to whose part of the shared pool the other containers are held.
    One left over on the pod from elsewhere, a copied manifest say, is overwritten with "", which counts
    as absent: a Binding can add annotations but not take them away.
    """
    named = {name: cpus for name, cpus in assignments.items() if cpus}
    record = _record(named, pod, pools)
    stale = {RESOURCE_STATUS, CONTAINER_CPUSETS} & pod.metadata.annotations.keys() - record.keys()
    return record | dict.fromkeys(sorted(stale), "")


def _record(
    assignments: Mapping[str, CPUSet], pod: Pod, pools: tuple[tuple[int, int], ...]
) -> dict[str, str]:
    floating = {RESOURCE_STATUS: statuses.dump(ResourceStatus(pools=pools))} if pools else {}
    if not assignments:
        return floating
    every = {container.name for container in (*pod.spec.init_containers, *pod.spec.containers)}
    sets = set(assignments.values())
    if len(sets) == 1 and every <= assignments.keys():
        return {RESOURCE_STATUS: statuses.dump(ResourceStatus(sets.pop()))}
    own = {name: str(cpus) for name, cpus in sorted(assignments.items())}
    return {CONTAINER_CPUSETS: msgspec.json.encode(own).decode(), **floating}


def read(annotations: Mapping[str, str], containers: Collection[str]) -> dict[str, CPUSet]:
    """Container to its CPUs, as recorded; empty if nothing is.

    Raises TranslationError for an annotation that is broken or names a container that is not there.
    """
    if annotations.get(CONTAINER_CPUSETS):
        return _own_sets(annotations[CONTAINER_CPUSETS], containers)
    if annotations.get(RESOURCE_STATUS):
        common = statuses.read(annotations).cpus
        return dict.fromkeys(containers, common) if common else {}
    return {}


def zone(annotations: Mapping[str, str]) -> CPUSet | None:
    """The NUMA nodes whose pools the pod's floating containers are held to; None is anywhere.

    Raises TranslationError.
    """
    return statuses.read(annotations).zone if annotations.get(RESOURCE_STATUS) else None


def _own_sets(text: str, containers: Collection[str]) -> dict[str, CPUSet]:
    where = annotation(CONTAINER_CPUSETS)
    found = {name: cpus(f"{where}.{name}", value) for name, value in tree(where, text).items()}
    for name in found:
        if name not in containers:
            raise TranslationError(where, text, f"the pod has no container {name!r}")
    return {name: own for name, own in found.items() if own}
