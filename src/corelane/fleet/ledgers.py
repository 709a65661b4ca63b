"""The nodes' ledgers, with CPUs that the scheduler assigned and no agent has published yet.

Where the kubelet allocates CPUs, what it published counts, never a proposal.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from corelane.cpuset import CPUSet, CPUSetError
from corelane.fleet.cluster import ClusterObjects
from corelane.kube import keys, translate
from corelane.kube.objects import NodeResourceTopology
from corelane.kube.pod import Pod
from corelane.kube.translate import TranslationError, koordlet_state, node_labels
from corelane.node import NodeState, admit
from corelane.node.entries import WHOLE_POD
from corelane.node.recovery.takeover import kubelet_allocates


@dataclass(frozen=True, slots=True)
class Ledgers:
    """Node name to its ledger, and to why a published one cannot be read."""

    states: Mapping[str, NodeState] = field(default_factory=dict)
    faults: Mapping[str, str] = field(default_factory=dict)


def ledgers(cluster: ClusterObjects) -> Ledgers:
    """Return the ledgers of nodes, as the scheduler reads them.

    Labels of the Node apply where koordlet publishes. Objects with zones only are valid, and no ledger.
    """
    labels = {node.metadata.name: node.metadata.labels for node in cluster.nodes}
    states: dict[str, NodeState] = {}
    faults: dict[str, str] = {}
    for topology in filter(translate.names_cpus, cluster.topologies):
        name = topology.metadata.name
        try:
            of_kubelet = kubelet_state(topology)
            own = labels.get(name, {})
            states[name] = of_kubelet or translate.state_from_topology(topology, labels=own)
        except TranslationError as error:
            faults[name] = str(error)
    return Ledgers(with_claims(states, cluster.alive), faults)


def with_claims(published: Mapping[str, NodeState], pods: Iterable[Pod]) -> dict[str, NodeState]:
    """Add CPUs assigned by the scheduler that no agent has published yet."""
    states = dict(published)
    for pod in pods:
        state = states.get(pod.spec.node_name)
        if state and pod.metadata.uid not in state.pods and not kubelet_allocates(state):
            states[pod.spec.node_name] = _with_claim(state, pod)
    return states


def _with_claim(state: NodeState, pod: Pod) -> NodeState:
    try:
        request = translate.request(pod)
    except TranslationError:
        return state
    return admit(state, request)[0] if request.proposal or request.zone is not None else state


# Nodes where the kubelet allocates.


class KubeletCPUs(NamedTuple):
    """The CPUs on which a container runs; `exclusive` ones are empty until they are published."""

    cpus: CPUSet
    exclusive: bool
    why: str = ""


def kubelet_state(published: NodeResourceTopology) -> NodeState | None:
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


def kubelet_cpus(state: NodeState, pod: Pod, name: str) -> KubeletCPUs:
    """Return what a container runs on."""
    try:
        request = translate.request(pod)
    except TranslationError as error:
        return KubeletCPUs(state.shared_pool, exclusive=False, why=str(error))
    own = {one.name for one in request.containers if request.exclusive_cpus(one)}
    if name not in own:
        return KubeletCPUs(state.shared_pool, exclusive=False)
    if cpus := _annotated(pod, name):
        return KubeletCPUs(cpus, exclusive=True, why="allocated by the kubelet")
    entry = state.entries.get((pod.metadata.uid, WHOLE_POD))
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
