"""`admit(state, ask) -> (state, decision)`: the one function that gives a pod its CPUs, or refuses it.

Agent, scheduler, simulator and what-if all call it, so what the scheduler proposes is what the agent would
pick. The static policy is the kubelet's (KEP-3570): whole CPUs of Guaranteed pods are exclusive, all else
shares the pool; NUMA nodes are chosen as a best-effort topology manager does; a plain init container lends
its CPUs to those that run after it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from corelane.cpuset import CPUSet, format_list
from corelane.node.entries import Entry, Key, Origin
from corelane.node.ledger import NodeState
from corelane.placement import accumulator, numa
from corelane.placement.reasons import Reason
from corelane.workload import Ask, ContainerAsk, ContainerKind

__all__ = ["Decision", "admit"]

ALLOCATOR = "kubelet"


@dataclass(frozen=True, slots=True)
class Decision:
    """What became of an ask. `reason` is CamelCase as in a pod's status, "" when admitted."""

    admitted: bool
    reason: str = ""
    message: str = ""
    assignments: Mapping[str, CPUSet] = field(default_factory=lambda: MappingProxyType({}))
    """Container name to its exclusive CPUs; containers not named share the pool."""
    shared: CPUSet = field(default_factory=CPUSet)
    """The shared pool after the decision."""
    repicked: bool = False
    """CPUs were proposed, but not all of them could be had, and others were picked."""
    reasons: tuple[Reason, ...] = ()


class _Refusal(Exception):  # noqa: N818 - an outcome, not an error
    """Why a pod cannot come in: ends an admission half-way, before anything has changed."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def admit(state: NodeState, ask: Ask) -> tuple[NodeState, Decision]:
    """Give a pod its CPUs, or say why not; all of its containers or none.

    A pod that is already in keeps what it has. A valid `ask.proposal` (right number, free CPUs) is taken as
    it stands; where it conflicts, the CPUs are picked again here.
    """
    if ask.uid in state.pods:
        return state, _again(state, ask.uid)
    try:
        _check_capacity(state, ask)
        admission = _Admission(state, ask)
        admission.run()
    except _Refusal as refusal:
        return state, Decision(False, refusal.reason, str(refusal), shared=state.shared_pool)
    return admission.state_after(), admission.decision()


def _again(state: NodeState, uid: str) -> Decision:
    assigned = {entry.container: entry.cpus for entry in state.of_pod(uid) if entry.exclusive}
    reason = Reason("existing", "the pod is already in the ledger: it keeps what it has")
    return Decision(True, assignments=MappingProxyType(assigned), shared=state.shared_pool, reasons=(reason,))


def _check_capacity(state: NodeState, ask: Ask) -> None:
    """The kubelet's general check of requests against what the node offers; text as upstream's."""
    if state.requested + ask.cpu_request > state.allocatable:
        raise _Refusal(
            "OutOfcpu",
            f"Node didn't have enough resource: cpu, requested: {ask.cpu_request}, "
            f"used: {state.requested}, capacity: {state.allocatable}",
        )


@dataclass(slots=True)
class _Admission:
    """One admission on its way: what is still available, what init containers lend, what was decided."""

    state: NodeState
    ask: Ask
    available: int = 0
    reusable: int = 0
    kept: dict[str, int] = field(default_factory=dict)
    """Proposals that can be had as they stand."""
    assigned: dict[str, int] = field(default_factory=dict)
    reasons: list[Reason] = field(default_factory=list)
    repicked: bool = False

    def run(self) -> None:
        self.available = self.state.free_exclusive.mask
        self.kept = dict(self.valid_proposals())
        for container in self.ask.containers:
            self.place(container)

    def exclusive_cpus(self, container: ContainerAsk) -> int:
        return 0 if self.state.config.policy == "none" else self.ask.exclusive_cpus(container)

    def valid_proposals(self) -> Iterator[tuple[str, int]]:
        """Proposals of the right size over free CPUs; only init containers may share theirs with others."""
        free = self.available
        for container in self.ask.containers:
            cpus = self.ask.proposal.get(container.name)
            n = self.exclusive_cpus(container)
            if cpus is None or not n or len(cpus) != n or cpus.mask & ~free:
                continue
            if container.kind is not ContainerKind.INIT:
                free &= ~cpus.mask
            yield container.name, cpus.mask

    def place(self, container: ContainerAsk) -> None:
        n = self.exclusive_cpus(container)
        if not n:
            self.explain_sharing(container)
            return
        cpus = self.kept.pop(container.name, 0)
        if cpus:
            self.because(container, "proposal", f"CPUs {format_list(cpus)} are free: taken as proposed")
        else:
            cpus = self.pick(container, n)
        self.assigned[container.name] = cpus
        self.available &= ~cpus
        if container.kind is ContainerKind.INIT:
            self.reusable |= cpus
        else:
            self.reusable &= ~cpus

    def pick(self, container: ContainerAsk, n: int) -> int:
        if container.name in self.ask.proposal:
            self.explain_conflict(container, n)
        pool = (self.available | self.reusable) & ~self.promised(container)
        if n > pool.bit_count():
            raise self.too_few(n, pool)
        return self.pick_near(container, n, pool)

    def promised(self, container: ContainerAsk) -> int:
        """CPUs of proposals that later containers will take; an init container may use them until then."""
        if container.kind is ContainerKind.INIT:
            return 0
        promised = 0
        for cpus in self.kept.values():
            promised |= cpus
        return promised

    def pick_near(self, container: ContainerAsk, n: int, pool: int) -> int:
        """From the fewest NUMA nodes that hold them."""
        topology = self.state.topology
        free = [(node & pool).bit_count() for node in topology.numa]
        required = topology.nodes_of(self.reusable & pool) if self.reusable else 0
        nodes = numa.fewest_nodes(free, n, required) or 0
        near = sum(node for i, node in enumerate(topology.numa) if nodes >> i & 1)
        cpus = accumulator.take(topology, pool & near, n, real_cores=True)
        self.explain_pick(container, n, nodes, free, cpus)
        return cpus

    def too_few(self, n: int, pool: int) -> _Refusal:
        text = str(accumulator.NotEnoughCPUs(n, pool.bit_count()))
        state = self.state
        if not state.topology.all & ~state.reserved.mask:
            text += f" (the shared pool needs all CPUs of this node, {state.usable}: none can be exclusive)"
        return _Refusal("UnexpectedAdmissionError", f"Allocate failed due to {text}, which is unexpected")

    def because(self, container: ContainerAsk, step: str, text: str) -> None:
        self.reasons.append(Reason(step, text, container.name))

    def explain_sharing(self, container: ContainerAsk) -> None:
        if self.state.config.policy == "none":
            why = "policy none: no CPU is exclusive"
        elif container.whole_cpus:
            why = f"the pod is {self.ask.qos}, not Guaranteed: shares the pool"
        elif container.cpu_request:
            why = f"{container.cpu_request}m is no whole number of CPUs: shares the pool"
        else:
            why = "requests no CPU: shares the pool"
        self.because(container, "shared", why)

    def explain_conflict(self, container: ContainerAsk, n: int) -> None:
        self.repicked = True
        cpus = self.ask.proposal[container.name]
        if len(cpus) != n:
            why = f"proposed CPUs {cpus} are {len(cpus)}, not {n}"
        else:
            taken = cpus.mask & ~(self.available | self.reusable) or cpus.mask & self.promised(container)
            why = f"of the proposed CPUs {cpus}, {format_list(taken)} cannot be had"
        self.because(container, "conflict", f"{why}: picked again")

    def explain_pick(self, container: ContainerAsk, n: int, nodes: int, free: list[int], cpus: int) -> None:
        ids = self.state.topology.numa_ids
        chosen = [i for i in range(len(free)) if nodes >> i & 1]
        counts = ", ".join(f"{ids[i]}: {free[i]}" for i in range(len(free)))
        if len(chosen) == 1:
            why = f"NUMA node {ids[chosen[0]]} is the first that holds {n} (free CPUs by node: {counts})"
        else:
            names = ",".join(str(ids[i]) for i in chosen)
            why = f"NUMA nodes {names} are the fewest that hold {n} (free CPUs by node: {counts})"
        self.because(container, "numa", why)
        whole = self.state.topology.whole_cores(cpus).bit_count() == n
        self.because(
            container,
            "pick",
            f"CPUs {format_list(cpus)}: {'whole cores' if whole else 'fullest cores first'}",
        )

    def state_after(self) -> NodeState:
        state, ask = self.state, self.ask
        entries: dict[Key, Entry] = dict(state.entries)
        for container in ask.containers:
            entries[ask.uid, container.name] = self.entry(container)
        exclusive = state.exclusive.mask
        for cpus in self.assigned.values():
            exclusive |= cpus
        return replace(
            state,
            entries=MappingProxyType(entries),
            pods=MappingProxyType({**state.pods, ask.uid: ask.cpu_request}),
            exclusive=CPUSet.from_mask(exclusive),
            requested=state.requested + ask.cpu_request,
            generation=state.generation + 1,
        )

    def entry(self, container: ContainerAsk) -> Entry:
        cpus = self.assigned.get(container.name, 0)
        proposed = self.ask.proposal.get(container.name)
        return Entry(
            uid=self.ask.uid,
            container=container.name,
            pod=self.ask.key,
            cpus=CPUSet.from_mask(cpus),
            exclusive=bool(cpus),
            cls=self.ask.qos.value,
            kind=container.kind,
            origin=Origin.SCHEDULER if proposed and proposed.mask == cpus else Origin.CORELANE,
            allocator=ALLOCATOR if cpus else "",
            cpu_request=container.cpu_request,
        )

    def decision(self) -> Decision:
        exclusive = self.state.exclusive.mask
        for cpus in self.assigned.values():
            exclusive |= cpus
        return Decision(
            True,
            assignments=MappingProxyType(
                {name: CPUSet.from_mask(cpus) for name, cpus in self.assigned.items()}
            ),
            shared=CPUSet.from_mask(self.state.topology.all & ~exclusive),
            repicked=self.repicked,
            reasons=tuple(self.reasons),
        )
