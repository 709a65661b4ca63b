"""A cluster's nodes, containers with their CPUs, and pending pods, derived from its objects."""

from collections.abc import Collection, Iterator, Mapping
from functools import partial

from corelane.cpuset import CPUSet
from corelane.fleet.cluster import ClusterObjects
from corelane.fleet.ledgers import Ledgers, kubelet_cpus
from corelane.kube import keys, translate
from corelane.kube.meta import Object, condition
from corelane.kube.objects import Node
from corelane.kube.pod import Pod
from corelane.kube.translate import TranslationError
from corelane.node import Entry, NodeState, Refusal, Sharing
from corelane.node.explain.cluster_status import (
    ClusterStatus,
    ContainerLine,
    NodeLine,
    PendingLine,
    runs_on,
    why_in_pool,
)
from corelane.node.pools.classes import pod_class
from corelane.node.recovery.takeover import kubelet_allocates
from corelane.reasons import sentence


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
