"""The CPUs of a pod's containers as annotations, both ways: the scheduler's proposal, then the agent's fact.

Koordinator's `resource-status` gives one set to all containers, so it is written when that is the truth.
Where containers differ, `corelane.io/container-cpusets` names each container's own CPUs and wins; those that
it leaves out share the pool.
"""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from corelane.cpuset import CPUSet, CPUSetError
from corelane.kube.keys import CONTAINER_CPUSETS, RESOURCE_STATUS
from corelane.kube.pod import Pod
from corelane.kube.translate.errors import TranslationError

__all__ = ["annotations", "read"]


def annotations(assignments: Mapping[str, CPUSet], pod: Pod) -> dict[str, str]:
    """The annotations that record `assignments` (container to exclusive CPUs) on a pod.

    One left over on the pod from elsewhere, a copied manifest say, is overwritten with "", which counts
    as absent: a Binding can add annotations but not take them away.
    """
    named = {name: cpus for name, cpus in assignments.items() if cpus}
    record = _record(named, pod)
    stale = {RESOURCE_STATUS, CONTAINER_CPUSETS} & pod.metadata.annotations.keys() - record.keys()
    return record | dict.fromkeys(sorted(stale), "")


def _record(assignments: Mapping[str, CPUSet], pod: Pod) -> dict[str, str]:
    if not assignments:
        return {}
    every = {container.name for container in (*pod.spec.init_containers, *pod.spec.containers)}
    sets = set(assignments.values())
    if len(sets) == 1 and every <= assignments.keys():
        return {RESOURCE_STATUS: _json({"cpuset": str(sets.pop())})}
    return {CONTAINER_CPUSETS: _json({name: str(cpus) for name, cpus in sorted(assignments.items())})}


def read(annotations: Mapping[str, str], containers: Collection[str]) -> dict[str, CPUSet]:
    """Container to its CPUs, as recorded; empty if nothing is.

    Raises TranslationError for an annotation that is broken or names a container that is not there.
    """
    if annotations.get(CONTAINER_CPUSETS):
        return _own_sets(annotations[CONTAINER_CPUSETS], containers)
    if annotations.get(RESOURCE_STATUS):
        cpus = _common_set(annotations[RESOURCE_STATUS])
        return dict.fromkeys(containers, cpus) if cpus else {}
    return {}


def _own_sets(text: str, containers: Collection[str]) -> dict[str, CPUSet]:
    read = {
        name: _cpus(CONTAINER_CPUSETS, text, value) for name, value in _tree(CONTAINER_CPUSETS, text).items()
    }
    for name in read:
        if name not in containers:
            raise _broken(CONTAINER_CPUSETS, text, f"the pod has no container {name!r}")
    return {name: cpus for name, cpus in read.items() if cpus}


def _common_set(text: str) -> CPUSet:
    return _cpus(RESOURCE_STATUS, text, _tree(RESOURCE_STATUS, text).get("cpuset", ""))


def _tree(key: str, text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _broken(key, text, f"not a JSON object: {error}") from error


def _cpus(key: str, text: str, value: object) -> CPUSet:
    if not isinstance(value, str):
        raise _broken(key, text, f"{value!r} is not a CPU list such as '0-3,8'")
    try:
        return CPUSet.parse(value)
    except CPUSetError as error:
        raise _broken(key, text, f"{value!r} is not a CPU list such as '0-3,8': {error}") from error


def _broken(key: str, text: str, why: str) -> TranslationError:
    return TranslationError(f"metadata.annotations[{key}]", text, why)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
