"""CPUs of containers on nodes where the kubelet allocates them: what it published, never a proposal."""

import json
from typing import Final, NamedTuple

from corelane.cpuset import CPUSet, CPUSetError
from corelane.kube import keys, translate
from corelane.kube.objects import NodeResourceTopology
from corelane.kube.pod import Pod
from corelane.kube.translate import TranslationError, koordlet_state, node_labels
from corelane.node import NodeState

WHOLE_POD: Final = "*"
"""Container name of a ledger entry that stands for a whole pod."""


class KubeletCPUs(NamedTuple):
    """The CPUs on which a container runs; `exclusive` ones are empty until they are published."""

    cpus: CPUSet
    exclusive: bool
    why: str = ""


def state(published: NodeResourceTopology) -> NodeState | None:
    """Return the state of a node whose kubelet allocates, None for other nodes. Raises TranslationError.

    That is a kubelet with static CPU manager beside koordlet, or beside corelane's agent of policy none.
    """
    if node_labels.published_kubelet(published).policy != "static":
        return None
    machine = translate.machine_from_topology(published)
    if translate.is_koordlets(published) or (
        translate.state_from_topology(published, machine).config.policy == "none"
    ):
        return koordlet_state.static_state(published, machine)
    return None


def allocates(known: NodeState) -> bool:
    """Return whether a state is one of `state`."""
    return known.config.exact and known.config.policy == "static"


def of_container(known: NodeState, pod: Pod, name: str) -> KubeletCPUs:
    """Return what a container runs on."""
    try:
        request = translate.request(pod)
    except TranslationError as error:
        return KubeletCPUs(known.shared_pool, exclusive=False, why=str(error))
    own = {one.name for one in request.containers if request.exclusive_cpus(one)}
    if name not in own:
        return KubeletCPUs(known.shared_pool, exclusive=False)
    if cpus := _annotated(pod, name):
        return KubeletCPUs(cpus, exclusive=True, why="allocated by the kubelet")
    entry = known.entries.get((pod.metadata.uid, WHOLE_POD))
    if entry is None:
        why = "allocated by the kubelet, which has not published them yet"
        return KubeletCPUs(CPUSet(), exclusive=True, why=why)
    several = "; published are those of all containers of the pod together" if len(own) > 1 else ""
    return KubeletCPUs(entry.cpus, exclusive=True, why=f"allocated by the kubelet{several}")


def _annotated(pod: Pod, name: str) -> CPUSet:
    """The CPUs that corelane's agent read from the kubelet's state."""
    try:
        named = json.loads(pod.metadata.annotations.get(keys.KUBELET_CPUSETS, "{}"))
        return CPUSet.parse(named.get(name, ""))
    except (ValueError, RecursionError, AttributeError, TypeError, CPUSetError):
        return CPUSet()
