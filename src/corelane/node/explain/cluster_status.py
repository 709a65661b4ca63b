"""CPUs of nodes and containers as plain values that any view can draw, and how a container's are shared."""

from dataclasses import dataclass
from typing import Final

from corelane.cpuset import CPUSet
from corelane.node.admission import why_shared
from corelane.node.entries import Entry, Sharing
from corelane.node.ledger import NodeState
from corelane.node.pools.classes import pod_class
from corelane.reasons import Code, Reason, Refusal, sentence
from corelane.workload.request import ContainerRequest, PodRequest

_BOUND: Final = {
    Sharing.ALONE: "exclusive CPUs",
    Sharing.SHARED_WITH_BE: "exclusive CPUs, shared with BE",
    Sharing.POOL: "bound CPUs, shared",
}
_POOLS: Final = {Sharing.POOL: "shared pool", Sharing.BEST_EFFORT: "BE pool", Sharing.SYSTEM: "system CPUs"}


@dataclass(frozen=True, slots=True)
class NodeLine:
    """One node and its ledger."""

    name: str
    simulated: bool
    ready: bool
    state: NodeState | None = None
    """None where the node publishes no ledger."""
    agent_fault: str = ""
    """Reason why the node's agent does not run, "" where it does or is not judged."""


@dataclass(frozen=True, slots=True)
class ContainerLine:
    """One container, the CPUs on which it may run, and how far the kernel confirms them."""

    namespace: str
    pod: str
    container: str
    node: str
    simulated: bool
    qos: str
    cls: str
    """Koordinator's class under policy pools, else ""."""
    lane: str
    """Sharing of its CPUs, or the pool in which it runs."""
    exclusive: bool
    cpus: CPUSet
    state: str
    """Phase of the pin: reserved, applied, confirmed; "simulated" where no kernel confirms it, "no agent"."""
    why: str
    unconfirmed: str = ""
    """The agent's reason why the kernel does not confirm the pod's CPUs, "" without one."""


@dataclass(frozen=True, slots=True)
class PendingLine:
    """A pod without a node, and the scheduler's last reason."""

    namespace: str
    pod: str
    why: str


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """Everything that `corelane status` shows."""

    nodes: tuple[NodeLine, ...]
    containers: tuple[ContainerLine, ...]
    pending: tuple[PendingLine, ...]


def is_shared_with_be(state: NodeState, entry: Entry) -> bool:
    """Return whether BE runs on the entry's CPUs; isolated CPUs can be in no pool."""
    return entry.sharing is Sharing.SHARED_WITH_BE and bool(entry.cpus & state.best_effort_pool)


def runs_on(state: NodeState, entry: Entry) -> str:
    """Return how the entry's CPUs are shared, or the pool in which its container runs."""
    if entry.cpus:
        unshared = entry.sharing is Sharing.SHARED_WITH_BE and not is_shared_with_be(state, entry)
        return _BOUND[Sharing.ALONE if unshared else entry.sharing]
    where = "" if entry.zone is None else f" of NUMA {entry.zone}"
    return f"{_POOLS[entry.sharing] if state.config.policy == 'pools' else 'shared pool'}{where}"


def why_in_pool(state: NodeState, request: PodRequest, container: ContainerRequest) -> str:
    """Return why a container that runs in a pool has no exclusive CPUs."""
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
