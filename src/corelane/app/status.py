"""Data of `corelane status`: nodes, pods and published ledgers, read once and joined."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from corelane.app import kubelet_cpus, local_instance
from corelane.cpuset import CPUSet
from corelane.kube import keys, translate
from corelane.kube.agent_leases import CHECK_SECONDS, DURATION, Agents
from corelane.kube.apierrors import APIError, NoCluster, Unreachable
from corelane.kube.client import KubeClient
from corelane.kube.meta import Object, condition
from corelane.kube.objects import Lease, Node, NodeResourceTopology
from corelane.kube.pod import Pod
from corelane.kube.topologies import list_topologies
from corelane.kube.translate import TranslationError
from corelane.node import Entry, NodeState, Refusal, Sharing, admit, why_shared
from corelane.node.pools.classes import pod_class
from corelane.node.recovery.takeover import Stage, Takeover, takeover
from corelane.reasons import Code, Reason, sentence
from corelane.reasons.placements import OTHER_INSTANCES
from corelane.view import status as view
from corelane.view import tables
from corelane.view.owners import Owner
from corelane.view.status import ContainerLine, NodeLine, PendingLine, Status, plain
from corelane.view.svg import svg
from corelane.workload import ContainerRequest, PodRequest

__all__ = ["Status", "plain"]

ENDED = frozenset({"Succeeded", "Failed"})
_BOUND: Final = {
    Sharing.ALONE: "exclusive CPUs",
    Sharing.LENT: "exclusive CPUs, shared with BE",
    Sharing.POOL: "bound CPUs, shared",
}
_POOLS: Final = {Sharing.POOL: "shared pool", Sharing.BEST_EFFORT: "BE pool", Sharing.SYSTEM: "system CPUs"}


class NoSuchNode(LookupError):  # noqa: N818 - a state
    """The given node is not in the cluster, or a required --node is missing."""


class NoAnswer(Exception):  # noqa: N818 - a state
    """No cluster is configured, or it is unreachable; the message has its address and the remedy."""


def main(kubeconfig: Path | None, node: str | None, form: Literal["table", "json", "svg"]) -> None:
    """Print the state of a cluster, or of one node of it.

    Raises NoAnswer if it is unreachable, APIError if it rejects a request, NoSuchNode.
    """
    status = asyncio.run(_read(kubeconfig or local_instance.kubeconfig()))
    if node is not None:
        status = only(status, node)
    if form == "table":
        view.show(status, tables.console())
    elif form == "json":
        json.dump(plain(status), sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        sys.stdout.write(_drawing(status))


def only(status: Status, name: str) -> Status:
    """Return the part of a status for one node. Raises NoSuchNode."""
    nodes = tuple(node for node in status.nodes if node.name == name)
    if not nodes:
        names = ", ".join(node.name for node in status.nodes) or "none"
        raise NoSuchNode(f"--node {name}: node not found; nodes are {names}")
    return Status(nodes, tuple(line for line in status.containers if line.node == name), ())


def _drawing(status: Status) -> str:
    if len(status.nodes) != 1:
        names = ", ".join(node.name for node in status.nodes)
        raise NoSuchNode(f"-o svg draws one node: name it with --node ({names})")
    (node,) = status.nodes
    if node.machine is None:
        raise NoSuchNode(f"node {node.name} publishes no NodeResourceTopology: nothing to draw")
    return svg(node.machine, view.painted(node))


async def _read(kubeconfig: Path | None) -> Status:
    try:
        return await _read_from(KubeClient.connect(kubeconfig))
    except (NoCluster, Unreachable) as error:
        raise NoAnswer(
            f"{error}; is `corelane up` running? Start it, or name a cluster with --kubeconfig"
        ) from error


async def _read_from(client: KubeClient) -> Status:
    try:
        return await gather(client)
    finally:
        await client.close()


async def gather(client: KubeClient) -> Status:
    """Read nodes, topologies and pods, and derive the owners of CPUs."""
    nodes, topologies, pods, leases = await asyncio.gather(
        client.list(Node), list_topologies(client), client.list(Pod), agent_leases(client)
    )
    topologies = tuple(topologies)
    faults = agent_faults(topologies, leases, datetime.now(UTC))
    alive = [pod for pod in pods.items if pod.status.phase not in ENDED]
    states = ledgers(nodes.items, topologies, alive)
    lines = [
        _node(node, states.get(name := node.metadata.name), faults.get(name, "")) for node in nodes.items
    ]
    simulated = {line.name for line in lines if line.simulated}
    bound = [pod for pod in alive if pod.spec.node_name]
    containers = [line for pod in bound for line in container_lines(pod, states, simulated, faults)]
    pending = [_pending(pod) for pod in alive if not pod.spec.node_name]
    return Status(_sorted(lines), tuple(containers), tuple(pending))


async def agent_leases(client: KubeClient) -> tuple[Lease, ...]:
    """Return the Leases of the nodes' agents; none where they may not be read."""
    try:
        listing = await client.list(Lease, namespace=keys.AGENT_NAMESPACE, label_selector=keys.AGENT_SELECTOR)
    except Unreachable:
        raise
    except APIError:
        return ()
    return listing.items


def agent_faults(
    topologies: Iterable[NodeResourceTopology], leases: Iterable[Lease], at: datetime
) -> dict[str, str]:
    """Return why the agents of nodes do not run, by node, where they renew Leases; `at` is now.

    A reader of one moment can only compare the time of the last renewal with its own clock.
    """
    by_node = {lease.metadata.name: lease for lease in leases}
    agents = Agents()
    for name in [one.metadata.name for one in topologies if translate.is_leased(one)]:
        lease = by_node.get(name)
        agents.judge(name, 0.0, leased=True)
        agents.put(name, lease, -(renewed_before(lease, at) if lease else DURATION))
    for _ in agents.expire(CHECK_SECONDS):
        pass
    return {name: sentence(fault) for name, fault in agents.faults().items()}


def renewed_before(lease: Lease, at: datetime) -> float:
    """Return how long ago a Lease was renewed, in s by this machine's clock; 0 without a valid time."""
    try:
        return max(0.0, (at - datetime.fromisoformat(lease.spec.renew_time)).total_seconds())
    except (ValueError, TypeError):
        return 0.0


def ledgers(
    nodes: Iterable[Node], topologies: Iterable[NodeResourceTopology], pods: Iterable[Pod]
) -> dict[str, NodeState]:
    """Return node name to its ledger, with CPUs that were assigned but not published yet."""
    labels = {node.metadata.name: node.metadata.labels for node in nodes}
    return _with_claims(dict(_states(topologies, labels)), pods)


def _sorted(lines: Iterable[NodeLine]) -> tuple[NodeLine, ...]:
    """Sort real machines first, then by name."""
    return tuple(sorted(lines, key=lambda line: (line.simulated, len(line.name), line.name)))


def _states(
    topologies: Iterable[NodeResourceTopology], labels: Mapping[str, Mapping[str, str]]
) -> Iterable[tuple[str, NodeState]]:
    """Read ledgers as the scheduler does: labels of the Node apply where koordlet publishes.

    Where the kubelet allocates, its settings and pods count. Objects with zones only are valid, and no
    ledger.
    """
    for topology in filter(translate.names_cpus, topologies):
        name = topology.metadata.name
        try:
            own = kubelet_cpus.state(topology)
            yield name, own or translate.state_from_topology(topology, labels=labels.get(name, {}))
        except TranslationError as error:
            sys.stderr.write(f"noderesourcetopology {name}: {error}\n")


def _with_claims(states: Mapping[str, NodeState], pods: Iterable[Pod]) -> dict[str, NodeState]:
    """Add CPUs assigned by the scheduler that no agent has published yet."""
    found = dict(states)
    for pod in pods:
        state = found.get(pod.spec.node_name)
        if state is None or pod.metadata.uid in state.pods or kubelet_cpus.allocates(state):
            continue
        found[pod.spec.node_name] = _with_claim(state, pod)
    return found


def _with_claim(state: NodeState, pod: Pod) -> NodeState:
    try:
        request = translate.request(pod)
    except TranslationError:
        return state
    return admit(state, request)[0] if request.proposal or request.zone is not None else state


def _node(node: Node, state: NodeState | None, agent_fault: str = "") -> NodeLine:
    name, simulated = node.metadata.name, is_simulated(node)
    ready = condition(node.status.conditions, "Ready")
    is_ready = ready is not None and ready.status == "True"
    if state is None:
        return NodeLine(name, simulated, is_ready, "?", None)
    policy = state.config.policy
    return NodeLine(
        name,
        simulated,
        is_ready,
        policy,
        state.machine,
        state.reserved,
        state.shared_pool,
        state.best_effort_pool,
        state.lent & state.best_effort_pool,
        {cpu: _owner(state, entry) for cpu, entry in state.owners().items()},
        state.config.pools.allocator if policy == "pools" else "",
        Takeover(Stage.KUBELET) if kubelet_cpus.allocates(state) else takeover(state),
        agent_fault,
    )


def _owner(state: NodeState, entry: Entry) -> Owner:
    shared = ", shared with BE" if _is_shared_with_be(state, entry) else ""
    part = "" if entry.container == kubelet_cpus.WHOLE_POD else f"/{entry.container}"
    return Owner(f"{_short(entry.pod)}{part}", f"{entry.cls}{shared}")


def _is_shared_with_be(state: NodeState, entry: Entry) -> bool:
    """Return whether BE runs on the entry's CPUs; isolated CPUs can be in no pool."""
    return entry.sharing is Sharing.LENT and bool(entry.cpus & state.best_effort_pool)


def is_simulated(node: Object) -> bool:
    """Return whether the node is simulated: it runs no process."""
    return node.metadata.labels.get("corelane.io/simulated") == "true"


def _short(pod: str) -> str:
    if pod.startswith(OTHER_INSTANCES):
        return f"other instances ({', '.join(pod.removeprefix(OTHER_INSTANCES).split(':'))})"
    return pod.removeprefix("default/").removeprefix("/")


def container_lines(
    pod: Pod, states: Mapping[str, NodeState], simulated: set[str], without_agent: Collection[str] = ()
) -> Iterable[ContainerLine]:
    """Yield the containers of a bound pod with their CPUs, by its node's ledger."""
    node, meta = pod.spec.node_name, pod.metadata
    state = states.get(node)
    reasons = translate.placement_reasons(pod.metadata.annotations)
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        if state and kubelet_cpus.allocates(state):
            yield _of_kubelet(pod, state, container.name)
            continue
        entry = _entry(pod, state, container.name) if state else None
        pools = state is not None and state.config.policy == "pools"
        yield ContainerLine(
            namespace=meta.namespace,
            pod=meta.name,
            container=container.name,
            node=node,
            simulated=node in simulated,
            qos=pod.status.qos_class,
            exclusive=entry is not None and entry.exclusive,
            cpus=state.runs_on(entry) if state and entry else CPUSet(),
            state="simulated" if node in simulated else _phase(pod, entry, no_agent=node in without_agent),
            why=reasons.get(container.name) or _why_shared(pod, state, container.name),
            unconfirmed=_unconfirmed(pod),
            cls=entry.cls if entry and pools else "",
            lane=_runs_on(state, entry) if state and entry else "?",
        )


def _of_kubelet(pod: Pod, state: NodeState, name: str) -> ContainerLine:
    found, meta = kubelet_cpus.of_container(state, pod, name), pod.metadata
    return ContainerLine(
        namespace=meta.namespace,
        pod=meta.name,
        container=name,
        node=pod.spec.node_name,
        simulated=False,
        qos=pod.status.qos_class,
        cls="",
        lane="exclusive CPUs" if found.exclusive else "shared pool",
        exclusive=found.exclusive,
        cpus=found.cpus,
        state="applied" if found.cpus else "reserved",
        why=found.why or _why_shared(pod, state, name),
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


def _runs_on(state: NodeState, entry: Entry) -> str:
    """Return how the entry's CPUs are shared, or the pool in which its container runs."""
    if entry.cpus:
        unshared = entry.sharing is Sharing.LENT and not _is_shared_with_be(state, entry)
        return _BOUND[Sharing.ALONE if unshared else entry.sharing]
    where = "" if entry.zone is None else f" of NUMA {entry.zone}"
    return f"{_POOLS[entry.sharing] if state.config.policy == 'pools' else 'shared pool'}{where}"


def _why_shared(pod: Pod, state: NodeState | None, name: str) -> str:
    """Derive the reason from the request: only pods with exclusive CPUs carry reasons as annotation."""
    if state is None:
        return ""
    try:
        request = translate.request(pod)
    except TranslationError as error:
        return str(error)
    return next((_why_in_pool(state, request, one) for one in request.containers if one.name == name), "")


def _why_in_pool(state: NodeState, request: PodRequest, container: ContainerRequest) -> str:
    if _would_bind(state, request, container):
        return sentence(Reason(Code.ADMITTED_UNDER_OTHER_SETTINGS))
    return sentence(why_shared(state, request, container))


def _would_bind(state: NodeState, request: PodRequest, container: ContainerRequest) -> bool:
    """Return whether the container would get exclusive CPUs if admitted now."""
    config = state.config
    if config.policy != "pools":
        return config.policy == "static" and request.exclusive_cpus(container, gate=config.pod_level) > 0
    try:
        decided = pod_class(request, config.pools)
    except Refusal:
        return False
    return bool(decided.common) or container.name in decided.own


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
