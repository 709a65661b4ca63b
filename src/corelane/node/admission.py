"""`admit(state, ask) -> (state, decision)`: the one function that gives a pod its CPUs, or refuses it.

Agent, scheduler, simulator and what-if all call it, so what the scheduler proposes is what the agent would
pick. Under the static policy (KEP-3570) whole CPUs of Guaranteed pods are exclusive, others share the pool,
and a plain init container lends its CPUs to those that run after it; see `pools` for that policy. A pod comes
in whole, or not at all.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from corelane.cpuset import CPUSet, format_list, named, verb
from corelane.node import managers, memory
from corelane.node.decision import Decision
from corelane.node.entries import Bubble, Entry, Key, Origin, Sharing
from corelane.node.kubelet import podlevel, static
from corelane.node.kubelet.static import Refusal
from corelane.node.ledger import NodeState, frozen
from corelane.node.pools import admission as pools
from corelane.node.pools import offer, takeover
from corelane.placement.kubelet import picker
from corelane.placement.memory import MemoryBlock, in_words
from corelane.placement.reasons import Reason
from corelane.placement.topologymanager import NUMAAffinity
from corelane.workload import ContainerKind, ContainerRequest, PodRequest

__all__ = ["Admission", "Decision", "admit", "why_shared"]

ALLOCATOR = "kubelet"


def why_shared(state: NodeState, request: PodRequest, container: ContainerRequest) -> str:
    """Why a container has no CPUs to itself, in words."""
    if state.config.policy == "pools":
        return pools.why_shared(state, request, container)
    if state.config.policy == "none":
        return "policy none: no CPU is exclusive"
    if container.whole_cpus:
        return f"the pod is {request.qos}, not Guaranteed: shares the pool"
    if container.cpu_request:
        return f"{container.cpu_request}m is no whole number of CPUs: shares the pool"
    return "requests no CPU: shares the pool"


def admit(state: NodeState, request: PodRequest) -> tuple[NodeState, Decision]:
    """Give a pod its CPUs, or say why not; all of its containers or none.

    A pod that is already in keeps what it has. A valid `request.proposal` (right number, free CPUs, in line
    with the node's options) is taken as it stands; where it conflicts, the CPUs are picked again here.
    """
    if request.uid in state.pods:
        state = takeover.complete(state, request)
        return state, _again(state, request.uid)
    try:
        milli = _checked_request(state, request)
        if state.config.policy == "pools":
            return pools.admit(state, request)
    except Refusal as refusal:
        return state, Decision(False, refusal.reason, str(refusal), shared=state.shared_pool)
    admission = Admission(state, request)
    try:
        admission.run()
    except Refusal as refusal:
        refused = Decision(False, refusal.reason, admission.words(refusal), shared=state.shared_pool)
        return admission.state_refused(), refused
    after = admission.state_after(milli)
    return after, admission.decision(after)


def _again(state: NodeState, uid: str) -> Decision:
    assigned = {entry.container: entry.cpus for entry in state.of_pod(uid) if entry.cpus}
    reason = Reason("existing", "the pod is already in the ledger: it keeps what it has")
    return Decision(True, assignments=MappingProxyType(assigned), shared=state.shared_pool, reasons=(reason,))


def _checked_request(state: NodeState, request: PodRequest) -> int:
    """The pod's milliCPU, after the kubelet's general check of what the node offers; text as upstream's.

    As there, a pod that requests none fits even where more is requested than the node has by now.
    """
    milli = request.cpu_request
    if not milli:
        return 0
    if state.config.policy == "pools" and state.config.pools.amplification > 1:
        offer.check(state, request)
        return milli
    if state.requested + milli > state.allocatable and not state.config.exact:
        raise Refusal(
            "OutOfcpu",
            f"Node didn't have enough resource: cpu, requested: {milli}, "
            f"used: {state.requested}, capacity: {state.allocatable}",
        )
    return milli


class Admission:
    """One admission on its way: what is still available, what init containers lend, what was decided."""

    __slots__ = (
        "assigned",
        "available",
        "bubble",
        "kept",
        "managers",
        "pod",
        "reasons",
        "repicked",
        "request",
        "reusable",
        "state",
    )

    def __init__(self, state: NodeState, request: PodRequest) -> None:
        self.state, self.request = state, request
        self.available = state.free_exclusive.mask
        self.reusable = 0
        self.assigned: dict[str, int] = {}
        self.reasons: list[Reason] = []
        self.repicked = False
        self.kept = dict(self.valid_proposals()) if request.proposal else {}
        """Proposals that can be had as they stand."""
        self.bubble: Bubble | None = None
        """What the pod got as one piece."""
        self.managers = managers.needed(state, request) if state.memory or state.config.devices else None
        """Those of memory and devices; None where neither has a say."""
        self.pod: NUMAAffinity | None = None
        """The affinity of all containers, under a topology manager of pod scope."""

    def run(self) -> None:
        if self.request.level is not None and podlevel.applies(self.state, self.request):
            self.place_as_one()
        else:
            self.place_each()
        if not self.state.config.exact:
            self.keep_a_shared_cpu()

    def place_each(self) -> None:
        if self.state.config.numa.scope == "pod":
            self.pod = self.pod_affinity()
        for container in self.request.containers:
            self.place(container)

    def place_as_one(self) -> None:
        """The pod as one piece, which its containers share out; devices are handed out as ever."""
        more = self.managers or managers.Managers(self.state, self.request, None, None)
        affinity = more.whole_affinity(podlevel.cpu_hints(self.state, self.request, self.available))
        cpus, self.assigned = podlevel.allocate_cpus(self.state, self.request, self.available, affinity)
        blocks = podlevel.allocate_memory(more.memory, self.request, affinity) if more.memory else ()
        if cpus or blocks:
            self.bubble = Bubble(CPUSet.from_mask(cpus), blocks)
            self.reasons.append(Reason("pod", f"the pod as a whole: {named(cpus) if cpus else 'shared'}"))
        for container in self.request.containers:
            more.allocate_devices(container, affinity)
            if self.assigned:
                text = f"{named(self.assigned[container.name])}, of the pod's"
                self.because(container, "part", text)
            else:
                self.explain_sharing(container)
            self.explain_more(container)

    def pod_affinity(self) -> NUMAAffinity | None:
        n = 0 if self.state.config.policy == "none" else static.pod_cpus(self.request)
        if self.managers is not None:
            return self.managers.pod_affinity(static.cpu_hints(self.state, self.available, 0, n))
        return static.affinity(self.state, self.available, 0, n)

    def affinity(self, container: ContainerRequest, n: int) -> NUMAAffinity:
        """The NUMA nodes for a container, as all managers that have a say agree on them."""
        if self.pod is not None:
            return self.pod
        if self.managers is not None:
            cpus = static.cpu_hints(self.state, self.available, self.reusable, n)
            return self.managers.affinity(container, cpus)
        return static.affinity(self.state, self.available, self.reusable, n)

    def exclusive_cpus(self, container: ContainerRequest) -> int:
        if self.state.config.policy == "none":
            return 0
        return self.request.exclusive_cpus(container, pod_level=self.state.config.pod_level)

    def valid_proposals(self) -> Iterator[tuple[str, int]]:
        """Proposals of the right size over free CPUs; only init containers may share theirs with others."""
        free, whole_cores = self.available, self.state.config.options.full_pcpus_only
        for container in self.request.containers:
            cpus = self.request.proposal.get(container.name)
            n = self.exclusive_cpus(container)
            if cpus is None or not n or len(cpus) != n or cpus.mask & ~free:
                continue
            if whole_cores and self.state.topology.whole_cores(cpus.mask) != cpus.mask:
                continue
            if container.kind is not ContainerKind.INIT:
                free &= ~cpus.mask
            yield container.name, cpus.mask

    def place(self, container: ContainerRequest) -> None:
        n = self.exclusive_cpus(container)
        if self.managers is None:
            if n:
                self.take(container, n, self.affinity(container, n))
            else:
                self.explain_sharing(container)
            return
        affinity = self.affinity(container, n)
        self.managers.allocate_devices(container, affinity)
        if n:
            self.take(container, n, affinity)
        else:
            self.explain_sharing(container)
        self.managers.allocate_memory(container, affinity)
        self.explain_more(container)

    def take(self, container: ContainerRequest, n: int, affinity: NUMAAffinity) -> None:
        """Give a container n CPUs."""
        cpus = self.cpus_for(container, n, affinity)
        self.assigned[container.name] = cpus
        self.available &= ~cpus
        if container.kind is ContainerKind.INIT:
            self.reusable |= cpus
        else:
            self.reusable &= ~cpus

    def cpus_for(self, container: ContainerRequest, n: int, affinity: NUMAAffinity) -> int:
        """What was proposed if it fits, else what the policy picks."""
        static.check_smt(self.state, self.available, n)
        proposed = self.kept.pop(container.name, 0)
        if proposed and self.fits(proposed, affinity):
            self.because(container, "proposal", f"{named(proposed)} {verb(proposed)} free: taken as proposed")
            return proposed
        if container.name in self.request.proposal:
            self.explain_conflict(container, n)
        pool = (self.available | self.reusable) & ~self.promised(container)
        if n > pool.bit_count() and not self.state.config.exact:
            raise self.too_few(n, pool)
        cpus = static.allocate(self.state, pool, n, affinity.nodes)
        self.explain_pick(container, n, affinity, pool, cpus)
        return cpus

    def fits(self, proposed: int, affinity: NUMAAffinity) -> bool:
        """Whether a proposal lies on nodes that a strict topology manager would take."""
        strict = self.state.config.numa.policy in ("restricted", "single-numa-node")
        return not strict or affinity.nodes is None or not proposed & ~static.near(self.state, affinity.nodes)

    def promised(self, container: ContainerRequest) -> int:
        """CPUs of proposals that later containers will take; an init container may use them until then."""
        promised = 0
        if container.kind is not ContainerKind.INIT:
            for cpus in self.kept.values():
                promised |= cpus
        return promised

    def keep_a_shared_cpu(self) -> None:
        """As our own policy, unlike the kubelet's, the last CPU of the shared pool is never given away."""
        if not self.state.shared_pool.mask & ~self.all_assigned() and self.assigned:
            raise Refusal(
                "UnexpectedAdmissionError",
                f"Allocate failed due to the shared pool {self.state.shared_pool} being used up: "
                "one CPU must remain for all other containers, which is unexpected",
            )

    def all_assigned(self) -> int:
        assigned = self.bubble.cpus.mask if self.bubble else 0
        for cpus in self.assigned.values():
            assigned |= cpus
        return assigned

    def too_few(self, n: int, pool: int) -> Refusal:
        text = str(picker.NotEnoughCPUs(n, pool.bit_count()))
        state = self.state
        if not state.usable.mask & ~state.reserved.mask:
            text += f" (the shared pool needs all CPUs of this node, {state.usable}: none can be exclusive)"
        return Refusal("UnexpectedAdmissionError", f"Allocate failed due to {text}, which is unexpected")

    def because(self, container: ContainerRequest, step: str, text: str) -> None:
        self.reasons.append(Reason(step, text, container.name))

    def explain_sharing(self, container: ContainerRequest) -> None:
        self.because(container, "shared", why_shared(self.state, self.request, container))

    def explain_more(self, container: ContainerRequest) -> None:
        """Which devices and memory a container has."""
        for resource, ids in self.devices_of(container).items():
            self.because(container, "devices", f"{resource}: {', '.join(ids)}")
        for block in self.blocks_of(container):
            nodes = f"NUMA node{'s' * (len(block.nodes) > 1)} {block.nodes}"
            text = f"{in_words(block.size)} of {block.resource} on {nodes}"
            self.because(container, "memory", text)

    def devices_of(self, container: ContainerRequest) -> Mapping[str, tuple[str, ...]]:
        given = self.managers.devices.given if self.managers and self.managers.devices else {}
        return MappingProxyType(given.get(container.name, {}))

    def blocks_of(self, container: ContainerRequest) -> tuple[MemoryBlock, ...]:
        blocks = self.managers.memory.blocks if self.managers and self.managers.memory else {}
        return blocks.get(container.name, ())

    def explain_conflict(self, container: ContainerRequest, n: int) -> None:
        self.repicked = True
        cpus = self.request.proposal[container.name]
        taken = cpus.mask & ~(self.available | self.reusable) or cpus.mask & self.promised(container)
        if len(cpus) != n:
            why = f"proposed {named(cpus.mask)} {verb(cpus.mask)} {len(cpus)}, not {n}"
        elif taken:
            why = f"of the proposed {named(cpus.mask)}, {format_list(taken)} cannot be had"
        else:
            why = f"proposed {named(cpus.mask)} {verb(cpus.mask, 'goes', 'go')} against the node's options"
        self.because(container, "conflict", f"{why}: picked again")

    def explain_pick(
        self, container: ContainerRequest, n: int, affinity: NUMAAffinity, pool: int, cpus: int
    ) -> None:
        topology = self.state.topology
        if affinity.nodes is not None:
            self.because(container, "numa", self.why_these_nodes(n, affinity.nodes, pool))
        whole = topology.whole_cores(cpus) == cpus
        how = "whole cores" if whole else "fullest cores first"
        self.because(container, "pick", f"{named(cpus)}: {how}")

    def why_these_nodes(self, n: int, nodes: int, pool: int) -> str:
        topology = self.state.topology
        free = dict(
            zip(topology.numa_ids, ((node & pool).bit_count() for node in topology.numa), strict=True)
        )
        counts = f"(free CPUs by node: {', '.join(f'{node}: {count}' for node, count in free.items())})"
        chosen = [node for node in free if nodes >> node & 1]
        if len(chosen) == 1:
            return f"NUMA node {chosen[0]} is the first that holds {n} {counts}"
        return f"NUMA nodes {','.join(map(str, chosen))} are the fewest that hold {n} {counts}"

    def state_after(self, milli: int) -> NodeState:
        state, request = self.state, self.request
        if self.managers and self.managers.memory:
            state = replace(state, memory=frozen(self.managers.memory.nodes))
        entries: dict[Key, Entry] = dict(state.entries)
        for container in request.containers:
            entries[request.uid, container.name] = self.entry(container)
        return replace(
            state,
            entries=MappingProxyType(entries),
            pods=MappingProxyType({**state.pods, request.uid: milli}),
            exclusive=CPUSet.from_mask(state.exclusive.mask | self.all_assigned()),
            bound=CPUSet.from_mask(state.bound.mask | self.all_assigned()),
            requested=state.requested + milli,
            generation=state.generation + 1,
        )

    def words(self, refusal: Refusal) -> str:
        """A refusal's message; the topology manager has one of its own for pods with resources as a whole."""
        config = self.state.config
        if refusal.reason == "TopologyAffinityError" and self.request.level and config.pod_level:
            return podlevel.misaligned(config.numa.scope)
        return str(refusal)

    def state_refused(self) -> NodeState:
        """The state as it was; but a kubelet whose first containers had memory for a moment shows that."""
        if self.managers is None or not self.state.config.exact:
            return self.state
        memory = self.managers.memory_refused()
        if memory is None or memory == self.state.memory:
            return self.state
        return replace(self.state, memory=frozen(memory), generation=self.state.generation + 1)

    def entry(self, container: ContainerRequest) -> Entry:
        cpus = self.assigned.get(container.name, 0)
        proposed = self.request.proposal.get(container.name)
        entry = Entry(
            uid=self.request.uid,
            container=container.name,
            pod=self.request.key,
            cpus=CPUSet.from_mask(cpus),
            sharing=Sharing.ALONE if cpus else Sharing.POOL,
            cls=self.request.qos.value,
            kind=container.kind,
            origin=Origin.SCHEDULER if proposed and proposed.mask == cpus else Origin.CORELANE,
            allocator=ALLOCATOR if cpus else "",
            cpu_request=container.cpu_request,
        )
        return replace(entry, **self.more(container)) if self.managers or self.bubble else entry

    def more(self, container: ContainerRequest) -> dict[str, Any]:
        """What an entry says beside CPUs."""
        blocks = self.blocks_of(container)
        devices = self.devices_of(container)
        return {"mems": memory.mems(blocks), "memory": blocks, "devices": devices, "bubble": self.bubble}

    def decision(self, after: NodeState) -> Decision:
        return Decision(
            True,
            assignments=MappingProxyType(
                {name: CPUSet.from_mask(cpus) for name, cpus in self.assigned.items()}
            ),
            shared=after.shared_pool,
            repicked=self.repicked,
            reasons=tuple(self.reasons),
        )
