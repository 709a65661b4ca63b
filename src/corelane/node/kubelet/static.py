"""Admission under the static policy, as the kubelet's (KEP-3570): container by container, all or none.

CPUs of Guaranteed pods with an integer request are exclusive, other containers run in the shared pool; a
plain init container's CPUs are reused by the containers that run after it. Policy `none` allocates no CPUs.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from corelane.cpuset import CPUSet
from corelane.node import managers, memory_manager
from corelane.node.entries import Bubble, Entry, Key, Origin, Sharing
from corelane.node.kubelet import cpu_manager
from corelane.node.ledger import Decision, NodeState, frozen
from corelane.placement.memory_blocks import MemoryBlock
from corelane.placement.topology import Topology
from corelane.placement.topologymanager import NUMAAffinity
from corelane.reasons import Code, Reason, Refusal
from corelane.workload.request import ContainerKind, ContainerRequest, PodRequest, QOSClass

ALLOCATOR = "kubelet"


def why_shared(state: NodeState, request: PodRequest, container: ContainerRequest) -> Reason:
    """Return why a container has no exclusive CPUs under policy `static` or `none`."""
    if state.config.policy == "none":
        return Reason(Code.POLICY_NONE, (), container.name)
    if container.name in request.shared:
        return Reason(Code.RESIZED_IN_POOL, (), container.name)
    if container.whole_cpus and request.qos is not QOSClass.GUARANTEED:
        return Reason(Code.NOT_GUARANTEED, (request.qos,), container.name)
    if container.whole_cpus:
        return Reason(Code.POD_LEVEL_RESOURCES, (), container.name)
    if container.cpu_request:
        return Reason(Code.CPU_REQUEST_NOT_INTEGER, (container.cpu_request,), container.name)
    return Reason(Code.NO_CPU_REQUEST, (), container.name)


def admit(state: NodeState, request: PodRequest) -> tuple[NodeState, Decision]:
    """Admit a pod that is not in the ledger, or reject it."""
    admission = StaticAdmission(state, request)
    try:
        admission.run()
    except Refusal as refusal:
        rejected = Decision(False, admission.reason(refusal), shared=state.shared_pool)
        return admission.state_refused(), rejected
    after = admission.state_after()
    return after, admission.decision(after)


class StaticAdmission:
    """One admission: what is still available, what init containers leave to others, what was allocated."""

    __slots__ = (
        "assigned",
        "available",
        "bubble",
        "explanations",
        "kept",
        "managers",
        "pod",
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
        self.explanations: list[Reason | Callable[[], Iterable[Reason]]] = []
        """Reasons, and functions that make some when they are read."""
        self.repicked = False
        self.kept = dict(self.valid_proposals()) if request.proposal else {}
        """Proposals that can be had as they stand."""
        self.bubble: Bubble | None = None
        """CPUs allocated to the pod as a whole."""
        self.managers = managers.needed(state, request) if state.memory or state.config.devices else None
        """Those of memory and devices; None where neither has a say."""
        self.pod: NUMAAffinity | None = None
        """The affinity of all containers, under a topology manager of pod scope."""

    @property
    def reasons(self) -> list[Reason]:
        """Reasons of the containers' CPUs, in the order of the decisions."""
        reasons: list[Reason] = []
        for explanation in self.explanations:
            reasons += (explanation,) if isinstance(explanation, Reason) else explanation()
        return reasons

    def run(self) -> None:
        if self.request.level is not None and cpu_manager.applies(self.state, self.request):
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
        hints = cpu_manager.memory_hints(more.memory, self.request) if more.memory else []
        cpus_hints = cpu_manager.pod_cpu_hints(self.state, self.request, self.available)
        affinity = more.aligned_pod(cpus_hints, hints)
        cpus, self.assigned = cpu_manager.allocate_cpus(self.state, self.request, self.available, affinity)
        blocks = cpu_manager.allocate_memory(more.memory, self.request, affinity) if more.memory else ()
        if cpus or blocks:
            self.bubble = Bubble(CPUSet.from_mask(cpus), blocks)
            self.explanations.append(Reason(Code.POD_CPUS, (cpus,)))
        for container in self.request.containers:
            more.allocate_devices(container, affinity)
            if self.assigned:
                self.because(container, Code.PART_OF_POD_CPUS, self.assigned[container.name])
            else:
                self.explain_sharing(container)
            self.explain_more(container)

    def pod_affinity(self) -> NUMAAffinity | None:
        n = 0 if self.state.config.policy == "none" else cpu_manager.pod_cpus(self.request)
        if self.managers is not None:
            return self.managers.pod_affinity(cpu_manager.cpu_hints(self.state, self.available, 0, n))
        return cpu_manager.affinity(self.state, self.available, 0, n)

    def affinity(self, container: ContainerRequest, n: int) -> NUMAAffinity:
        """The NUMA nodes for a container, as all managers that have a say agree on them."""
        if self.pod is not None:
            return self.pod
        if self.managers is not None:
            cpus = cpu_manager.cpu_hints(self.state, self.available, self.reusable, n)
            return self.managers.affinity(container, cpus)
        return cpu_manager.affinity(self.state, self.available, self.reusable, n)

    def exclusive_cpus(self, container: ContainerRequest) -> int:
        if self.state.config.policy == "none":
            return 0
        return self.request.exclusive_cpus(container, gate=self.state.config.pod_level)

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
        """Return the proposed CPUs if they fit, else what the policy picks."""
        cpu_manager.check_smt(self.state, self.available, n)
        proposed = self.kept.pop(container.name, 0)
        if proposed and self.fits(proposed, affinity):
            self.because(container, Code.PROPOSAL_USED, proposed)
            return proposed
        if container.name in self.request.proposal:
            self.explain_conflict(container, n)
        pool = (self.available | self.reusable) & ~self.promised(container)
        if n > pool.bit_count() and not self.state.config.exact:
            raise self.too_few(n, pool)
        cpus = cpu_manager.allocate(self.state, pool, n, affinity.nodes)
        self.explain_pick(container, n, affinity, pool, cpus)
        return cpus

    def fits(self, proposed: int, affinity: NUMAAffinity) -> bool:
        """Whether a proposal lies on nodes that a strict topology manager would take."""
        strict = self.state.config.numa.policy in ("restricted", "single-numa-node")
        return (
            not strict
            or affinity.nodes is None
            or not proposed & ~cpu_manager.near(self.state, affinity.nodes)
        )

    def promised(self, container: ContainerRequest) -> int:
        """CPUs of proposals that later containers will take; an init container may use them until then."""
        promised = 0
        if container.kind is not ContainerKind.INIT:
            for cpus in self.kept.values():
                promised |= cpus
        return promised

    def keep_a_shared_cpu(self) -> None:
        """As our own policy, unlike the kubelet's, the last CPU of the shared pool is never given away."""
        if self.assigned and not self.state.shared_pool.mask & ~self.all_assigned():
            raise Refusal(Code.SHARED_POOL_NEEDS_A_CPU, self.state.shared_pool.mask)

    def all_assigned(self) -> int:
        assigned = self.bubble.cpus.mask if self.bubble else 0
        for cpus in self.assigned.values():
            assigned |= cpus
        return assigned

    def too_few(self, n: int, pool: int) -> Refusal:
        usable = self.state.usable.mask
        none_exclusive = 0 if usable & ~self.state.reserved.mask else usable
        return Refusal(Code.NOT_ENOUGH_CPUS, n, pool.bit_count(), none_exclusive)

    def because(self, container: ContainerRequest, code: Code, *values: Any) -> None:
        self.explanations.append(Reason(code, values, container.name))

    def explain_sharing(self, container: ContainerRequest) -> None:
        self.explanations.append(why_shared(self.state, self.request, container))

    def explain_more(self, container: ContainerRequest) -> None:
        """Which devices and memory a container has."""
        for resource, ids in self.devices_of(container).items():
            self.because(container, Code.DEVICES, resource, ids)
        for block in self.blocks_of(container):
            self.because(container, Code.MEMORY, block.resource, block.size, block.nodes.mask)

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
            self.because(container, Code.PROPOSAL_WRONG_COUNT, cpus.mask, n)
        elif taken:
            self.because(container, Code.PROPOSAL_UNAVAILABLE, cpus.mask, taken)
        else:
            self.because(container, Code.PROPOSAL_VIOLATES_OPTIONS, cpus.mask)

    def explain_pick(
        self, container: ContainerRequest, n: int, affinity: NUMAAffinity, pool: int, cpus: int
    ) -> None:
        topology, name = self.state.topology, container.name
        self.explanations.append(partial(_pick_reasons, topology, name, n, affinity.nodes, pool, cpus))

    def state_after(self) -> NodeState:
        state, request = self.state, self.request
        milli = request.cpu_request
        if self.managers and self.managers.memory:
            state = replace(state, memory=frozen(self.managers.memory.nodes))
        assigned = self.all_assigned()
        entries: dict[Key, Entry] = dict(state.entries)
        for container in request.containers:
            entries[request.uid, container.name] = self.entry(container)
        return replace(
            state,
            entries=MappingProxyType(entries),
            pods=MappingProxyType({**state.pods, request.uid: milli}),
            exclusive=CPUSet.from_mask(state.exclusive.mask | assigned),
            bound=CPUSet.from_mask(state.bound.mask | assigned),
            requested=state.requested + milli,
            generation=state.generation + 1,
        )

    def reason(self, refusal: Refusal) -> Reason:
        """Return why; the topology manager has a text of its own for pods with pod-level resources."""
        config = self.state.config
        if refusal.reason.code is Code.NOT_ALIGNED and self.request.level and config.pod_level:
            return Reason(Code.POD_LEVEL_NOT_ALIGNED, (config.numa.scope,))
        return refusal.reason

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
        """Return the members of an entry beside its CPUs."""
        blocks = self.blocks_of(container)
        devices = self.devices_of(container)
        return {
            "mems": memory_manager.mems(blocks),
            "memory": blocks,
            "devices": devices,
            "bubble": self.bubble,
        }

    def decision(self, after: NodeState) -> Decision:
        return Decision(
            True,
            assignments=MappingProxyType(
                {name: CPUSet.from_mask(cpus) for name, cpus in self.assigned.items()}
            ),
            shared=after.shared_pool,
            repicked=self.repicked,
            explanation=lambda: self.reasons,
        )


def _pick_reasons(
    topology: Topology, container: str, n: int, nodes: int | None, pool: int, cpus: int
) -> Iterator[Reason]:
    """Yield the NUMA nodes (a mask of ids) of n picked CPUs with what was free there, and the pick."""
    if nodes is not None:
        numa = zip(topology.numa_ids, topology.numa, strict=True)
        free = tuple((node, (mask & pool).bit_count()) for node, mask in numa)
        yield Reason(Code.NUMA_NODES, (nodes, n, free), container)
    yield Reason(Code.PICKED_BY_KUBELET, (cpus, topology.whole_cores(cpus) == cpus), container)
