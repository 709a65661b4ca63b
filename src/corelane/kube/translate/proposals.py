"""The CPUs that annotations record for a pod's containers; see `records` for how they are written.

Koordinator's `resource-status` gives one set to all containers. `corelane.io/container-cpusets` names each
container's own CPUs and wins; those that it leaves out share the pool.
"""

from collections.abc import Collection, Mapping

from corelane.cpuset import CPUSet
from corelane.kube.keys import CONTAINER_CPUSETS, RESOURCE_STATUS
from corelane.kube.translate import statuses
from corelane.kube.translate.annotations import annotation, cpus, tree
from corelane.kube.translate.errors import TranslationError

__all__ = ["read", "zone"]


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
