"""A cluster's ledgers, and from them its nodes, containers with their CPUs, and pending pods."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from corelane.cpuset import CPUSet, CPUSetError
from corelane.fleet.cluster import ClusterObjects
from corelane.kube import keys, translate
from corelane.kube.meta import Object, condition
from corelane.kube.objects import Node, NodeResourceTopology
from corelane.kube.pod import Pod
from corelane.kube.translate import TranslationError, koordlet, node_labels
from corelane.node import Refusal, admit
from corelane.node.entries import WHOLE_POD, Entry, Sharing
from corelane.node.explain.cluster_status import (
    ClusterStatus,
    ContainerLine,
    NodeLine,
    PendingLine,
    runs_on,
    why_in_pool,
)
from corelane.node.ledger import NodeState
from corelane.node.pools.classes import pod_class
from corelane.node.recovery.takeover import kubelet_allocates
from corelane.reasons import sentence

# Ledgers, with CPUs that the scheduler assigned and no agent has published yet. Where the kubelet allocates
# CPUs, its published allocations count, never a proposal.


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
        return koordlet.static_state(published, machine)
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


def status(cluster: ClusterObjects, published: Ledgers) -> ClusterStatus:
    """Return the status of a cluster's nodes, of its containers, and of its pending pods."""
    states, faults = published.states, agent_faults(cluster)
    lines = [
        _node(node, states.get(name := node.metadata.name), faults.get(name, "")) for node in cluster.nodes
    ]
    simulated = {line.name for line in lines if line.simulated}
    bound = [pod for pod in cluster.alive if pod.spec.node_name]
    containers = [line for pod in bound for line in container_lines(pod, states, simulated, faults)]
    pending = [_pending(pod) for pod in cluster.alive if not pod.spec.node_name]
    # Real machines first, then by name.
    lines.sort(key=lambda line: (line.simulated, len(line.name), line.name))
    return ClusterStatus(tuple(lines), tuple(containers), tuple(pending))


def agent_faults(cluster: ClusterObjects) -> dict[str, str]:
    """Return why the agents of nodes do not run, by node, where they renew Leases."""
    return {name: sentence(fault) for name, fault in cluster.agents.faults().items()}


def without_agent(cluster: ClusterObjects, pod: Pod) -> Iterator[str]:
    """Yield notes that nothing applies the CPUs of a bound pod, nor writes its condition."""
    node = pod.spec.node_name
    if fault := agent_faults(cluster).get(node):
        yield f"no agent runs on node {node}: exclusive CPUs are not applied to what starts there; {fault}"
        if pinned := condition(pod.status.conditions, keys.PINNED):
            yield f"condition {keys.PINNED}={pinned.status} is as old as the agent's last sign of life"


def is_simulated(node: Object) -> bool:
    """Return whether the node is simulated: it runs no process."""
    return node.metadata.labels.get("corelane.io/simulated") == "true"


def _node(node: Node, state: NodeState | None, agent_fault: str = "") -> NodeLine:
    ready = condition(node.status.conditions, "Ready")
    is_ready = ready is not None and ready.status == "True"
    return NodeLine(node.metadata.name, is_simulated(node), is_ready, state, agent_fault)


def container_lines(
    pod: Pod,
    states: Mapping[str, NodeState],
    simulated: Collection[str] = (),
    without_agent: Collection[str] = (),
) -> Iterator[ContainerLine]:
    """Yield the containers of a bound pod with their CPUs, by its node's ledger."""
    node, meta = pod.spec.node_name, pod.metadata
    line = partial(
        ContainerLine,
        namespace=meta.namespace,
        pod=meta.name,
        node=node,
        simulated=node in simulated,
        qos=pod.status.qos_class,
    )
    state, reasons = states.get(node), translate.placement_reasons(meta.annotations)
    pools = state is not None and state.config.policy == "pools"
    for name in (one.name for one in (*pod.spec.init_containers, *pod.spec.containers)):
        if state and kubelet_allocates(state):
            cpus, exclusive, why = kubelet_cpus(state, pod, name)
            yield line(
                container=name,
                cls="",
                lane="exclusive CPUs" if exclusive else "shared pool",
                exclusive=exclusive,
                cpus=cpus,
                state="applied" if cpus else "reserved",
                why=why or _why_shared(pod, state, name),
            )
            continue
        entry = _entry(pod, state, name) if state else None
        yield line(
            container=name,
            exclusive=entry is not None and entry.exclusive,
            cpus=state.runs_on(entry) if state and entry else CPUSet(),
            state="simulated" if node in simulated else _phase(pod, entry, no_agent=node in without_agent),
            why=reasons.get(name) or _why_shared(pod, state, name),
            unconfirmed=_unconfirmed(pod),
            cls=entry.cls if entry and pools else "",
            lane=runs_on(state, entry) if state and entry else "?",
        )


def _entry(pod: Pod, state: NodeState, name: str) -> Entry:
    """Return a container's ledger entry; entries without CPUs or zone are unpublished: derive them."""
    meta = pod.metadata
    entry = state.entries.get((meta.uid, name))
    if entry is not None:
        return entry
    sharing, cls = Sharing.POOL, ""
    if state.config.policy == "pools":
        try:
            decided = pod_class(translate.request(pod), state.config.pools)
        except (TranslationError, Refusal):
            pass
        else:
            sharing, cls = Sharing.POOL if decided.bound else decided.sharing, decided.qos.value
    return Entry(meta.uid, name, f"{meta.namespace}/{meta.name}", sharing=sharing, cls=cls)


def _why_shared(pod: Pod, state: NodeState | None, name: str) -> str:
    """Derive the reason from the request: only pods with exclusive CPUs carry reasons as annotation."""
    if state is None:
        return ""
    try:
        request = translate.request(pod)
    except TranslationError as error:
        return str(error)
    return next((why_in_pool(state, request, one) for one in request.containers if one.name == name), "")


def _phase(pod: Pod, entry: Entry | None, *, no_agent: bool) -> str:
    """Return how far a container's CPUs are applied; the condition is newer than the published phase."""
    if no_agent:
        return "no agent"
    pinned = condition(pod.status.conditions, keys.PINNED)
    if pinned is not None and pinned.status == "True":
        return "confirmed"
    return entry.phase.value if entry is not None and entry.cpus else "applied"


def _unconfirmed(pod: Pod) -> str:
    """Return the agent's reason why the kernel does not confirm a pod's CPUs, "" without one."""
    pinned = condition(pod.status.conditions, keys.PINNED)
    if pinned is None or pinned.status == "True":
        return ""
    return f"{pinned.reason}: {pinned.message}" if pinned.message else pinned.reason


def _pending(pod: Pod) -> PendingLine:
    scheduled = condition(pod.status.conditions, "PodScheduled")
    why = scheduled.message if scheduled is not None else "not yet processed by a scheduler"
    return PendingLine(pod.metadata.namespace, pod.metadata.name, why)
