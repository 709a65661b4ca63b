"""Pods with exclusive CPUs: placed as a whole beside other pods, so that a pod lies together, then divided.

What the scheduler proposed, or where a running pod was found, is kept if the node's rules allow it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from corelane.node.config import AllocatorName
from corelane.node.entries import PlacedPod, Sharing
from corelane.node.ledger import NodeState
from corelane.node.pools import zones
from corelane.node.pools.classes import PodClass, Policies
from corelane.node.pools.koordinator_allocator import Placed, Unplaceable, by_koordinator
from corelane.node.pools.zones import STRICT
from corelane.placement.optimal import demand as shapes
from corelane.placement.optimal import search
from corelane.placement.optimal.demand import (
    UNOCCUPIED,
    AntiAffinity,
    Demand,
    Limit,
    Occupancy,
    PodAffinityTerm,
    Resource,
    requirements,
)
from corelane.placement.optimal.infeasible import Infeasible
from corelane.reasons import Code, Reason, Refusal
from corelane.workload import BindPolicy, ExclusivePolicy, NUMAPolicy, PodCPUAffinity
from corelane.workload.request import ContainerKind, PodRequest


def holdings(state: NodeState) -> dict[str, int]:
    """Pod UID to the CPUs that it is bound to, as a mask; pods in the pools are left out."""
    masks: dict[str, int] = {}
    for entry in state.entries.values():
        if entry.cpus:
            masks[entry.uid] = masks.get(entry.uid, 0) | entry.cpus.mask
    return masks


def names_of(state: NodeState, cpus: int) -> list[str]:
    """The pods (`namespace/name`) that are bound to any of these CPUs, each once."""
    return list(dict.fromkeys(entry.pod for entry in state.entries.values() if entry.cpus.mask & cpus))


def occupancy(state: NodeState, request: PodRequest, held: Mapping[str, int]) -> Occupancy:
    """Return the CPUs of placed pods by exclusive policy, and the anti-affinities that exclude this pod."""
    same = {ExclusivePolicy.PCPU_LEVEL: 0, ExclusivePolicy.NUMA_NODE_LEVEL: 0}
    anti_affinity: list[AntiAffinity] = []
    for uid, placed_pod in state.placed_pods.items():
        cpus = held.get(uid, 0)
        if not cpus or uid == request.uid:
            continue
        if placed_pod.exclusive_policy in same:
            same[placed_pod.exclusive_policy] |= cpus
        if placed_pod.exclusive and placed_pod.exclusive.required:
            anti_affinity.append(AntiAffinity(placed_pod.exclusive.level, cpus))
        anti_affinity += [
            AntiAffinity(each.level, cpus) for each in _against(placed_pod, request) if each.required
        ]
    return Occupancy(
        holders=tuple(held.values()),
        same_core=same[ExclusivePolicy.PCPU_LEVEL],
        same_numa=same[ExclusivePolicy.NUMA_NODE_LEVEL],
        anti_affinity=tuple(anti_affinity),
    )


def neighbours(state: NodeState, request: PodRequest, held: Mapping[str, int]) -> tuple[PodAffinityTerm, ...]:
    """Return the affinity terms of the pod, and those of placed pods that concern it.

    The first pod of a group that requires its own kind nearby is admitted anywhere, as in Kubernetes.
    """
    return (*_wished(state, request, held), *_disliked(state, request, held))


def _wished(state: NodeState, request: PodRequest, held: Mapping[str, int]) -> Iterator[PodAffinityTerm]:
    for affinity in request.placement_spec.affinities:
        cpus = 0
        for uid, placed_pod in state.placed_pods.items():
            if (
                uid != request.uid
                and placed_pod.namespace == request.namespace
                and affinity.others.matches(placed_pod.labels)
            ):
                cpus |= held.get(uid, 0)
        first = not cpus and not affinity.avoid and affinity.others.matches(request.labels)
        if cpus or (affinity.required and not affinity.avoid and not first):
            words = str(affinity.others) or "any pod"
            yield PodAffinityTerm(affinity.avoid, affinity.level, cpus, affinity.required, words)


def _disliked(state: NodeState, request: PodRequest, held: Mapping[str, int]) -> Iterator[PodAffinityTerm]:
    for uid, placed_pod in state.placed_pods.items():
        cpus = held.get(uid, 0)
        if not cpus or uid == request.uid:
            continue
        if placed_pod.exclusive and not placed_pod.exclusive.required:
            yield PodAffinityTerm(
                True, placed_pod.exclusive.level, cpus, name="pods that prefer exclusive units"
            )
        for affinity in _against(placed_pod, request):
            if not affinity.required:
                yield PodAffinityTerm(True, affinity.level, cpus, name="pods that prefer to avoid this pod")


def _against(placed_pod: PlacedPod, request: PodRequest) -> Iterator[PodCPUAffinity]:
    """Return the placed pod's anti-affinities that select this pod."""
    if placed_pod.namespace == request.namespace:
        yield from (avoid for avoid in placed_pod.avoids if avoid.others.matches(request.labels))


@dataclass(frozen=True, slots=True)
class Bound:
    """Container to its CPUs (masks), and why these."""

    cpus: Mapping[str, int]
    reasons: tuple[Reason, ...] = ()
    repicked: bool = False

    @property
    def all(self) -> int:
        return _union(self.cpus.values())


def bind(
    state: NodeState,
    request: PodRequest,
    decided: PodClass,
    policies: Policies,
    wanted: tuple[Resource, ...] = (),
) -> Bound:
    """The CPUs of a pod that binds, near the devices and memory that are `wanted`.

    Raises Refusal, with what is in the way.
    """
    if policies.bind_required and policies.bind is BindPolicy.FULL_PCPUS:
        # Whole cores can only be had in multiples of their threads; text as upstream's.
        threads = state.topology.cpus_per_core
        for name, n in decided.own.items():
            if n % threads:
                raise Refusal(Code.CONTAINER_NOT_MULTIPLE_OF_CORE, name, n, threads)
    binding = Binding(state, request, decided, policies, wanted)
    return binding.in_common() if decided.common else binding.each()


def _limits(state: NodeState, request: PodRequest, decided: PodClass) -> Iterator[Limit]:
    yield from core_kind_limits(state, request)
    if decided.sharing is Sharing.POOL and state.config.pools.isolated_cpus != "ignore":
        isolated = state.machine.isolated.mask
        yield Limit("CPUs in the shared pool, which isolated ones are not", ~isolated)


def core_kind_limits(state: NodeState, request: PodRequest) -> Iterator[Limit]:
    """Yield the CPUs of the core kind that the pod names. Raises Refusal where the machine has none."""
    machine, kind = state.machine, request.placement_spec.core_kind
    if kind is not None:
        mask = sum(1 << cpu.id for cpu in machine.cpus if cpu.kind == kind) & state.topology.all
        if not mask:
            raise Refusal(Code.CORE_KIND_MISSING, kind, sorted({cpu.kind for cpu in machine.cpus} - {""}))
        yield Limit(f"core kind {kind}", mask)


class Binding:
    """An allocator's question for a pod (demand, available CPUs, occupancy), and what was decided."""

    __slots__ = (
        "allowed",
        "available",
        "decided",
        "demand",
        "others",
        "reasons",
        "request",
        "rules",
        "state",
    )

    def __init__(
        self,
        state: NodeState,
        request: PodRequest,
        decided: PodClass,
        policies: Policies,
        wanted: tuple[Resource, ...] = (),
    ) -> None:
        self.state, self.request, self.decided = state, request, decided
        held = holdings(state)
        self.demand = Demand(
            cpus=decided.cpus(request),
            bind=policies.bind,
            bind_required=policies.bind_required,
            exclusive=request.placement_spec.exclusive,
            exclusive_policy=policies.exclusive,
            limits=tuple(_limits(state, request, decided)),
            numa=policies.numa,
            numa_exclusive=policies.numa in STRICT and policies.numa_exclusive,
            strategy=policies.strategy,
            sizes=state.config.pools.profile,
            resources=wanted,
            pod_affinity=neighbours(state, request, held),
        )
        self.others = occupancy(state, request, held)
        self.available = state.free_exclusive.mask
        self.allowed, self.rules = permitted(state, self.available, self.demand, self.others)
        if kept := self.kept():
            self.available &= ~kept
            self.allowed, self.rules = permitted(state, self.available, self.demand, self.others)
        self.reasons: list[Reason] = []

    def kept(self) -> int:
        """Return the CPUs that stay in the shared pool for pods bound to their NUMA node."""
        if not any(entry.zone for entry in self.state.entries.values()):
            return 0
        return zones.kept(
            self.state,
            self.available,
            barred=self.available & ~self.allowed,
            proposed=_union(cpus.mask for cpus in self.request.proposal.values()),
            spread=self.demand.bind is BindPolicy.SPREAD_BY_PCPUS,
        )

    # -- one set for all

    def in_common(self) -> Bound:
        """Koordinator's semantics: what is proposed for any container stands for the pod."""
        names = [container.name for container in self.request.containers]
        proposed = {cpus.mask for name, cpus in self.request.proposal.items() if name in names}
        cpus = proposed.pop() if len(proposed) == 1 else 0
        if cpus and self.holds(cpus):
            self.because(names, Code.PROPOSAL_USED, cpus)
            return self.bound(dict.fromkeys(names, cpus), repicked=False)
        try:
            placed = self.place(self.available, self.demand)
        except Unplaceable as why:
            raise self.refusal(why) from None
        if self.request.proposal:
            self.because(names, *self.conflict(cpus, self.demand.cpus))
        self.reasons += [_picked(placed, placed.cpus, name) for name in names]
        return self.bound(dict.fromkeys(names, placed.cpus), repicked=bool(self.request.proposal))

    # -- each its own

    def each(self) -> Bound:
        """Bind each container: CPUs of a plain init container are reusable by those that run after it."""
        wanted = [each.name for each in self.request.containers if each.name in self.decided.own]
        proposed = [name for name in wanted if name in self.request.proposal]
        kept = self.valid_proposals()
        try:
            cpus, placed = self.divided(kept) if kept else self.divided_anew()
        except Unplaceable:
            kept = {}
            cpus, placed = self.divided_anew()
        for name in wanted:
            self.explain(name, cpus[name], placed, kept)
        return self.bound(cpus, repicked=any(name not in kept for name in proposed))

    def valid_proposals(self) -> dict[str, int]:
        """Proposals of the right size over CPUs that the pod may have; init containers may share theirs."""
        free, kept = self.allowed, {}
        for container in self.request.containers:
            cpus = self.request.proposal.get(container.name)
            n = self.decided.own.get(container.name, 0)
            if cpus is None or not n or len(cpus) != n or cpus.mask & ~free:
                continue
            if not self.is_bound_as_required(cpus.mask):
                continue
            if container.kind is not ContainerKind.INIT:
                free &= ~cpus.mask
            kept[container.name] = cpus.mask
        return kept if kept and self.holds(_union(kept.values())) else {}

    def is_bound_as_required(self, cpus: int) -> bool:
        topology = self.state.topology
        if not self.demand.bind_required:
            return True
        if self.demand.bind is BindPolicy.FULL_PCPUS:
            return topology.whole_cores(cpus) == cpus
        return topology.cores_of(cpus).bit_count() == cpus.bit_count()

    def divided(self, kept: Mapping[str, int]) -> tuple[dict[str, int], Placed]:
        """CPUs for all containers out of what the pod needs at once, those in `kept` with what they have."""
        whole = _union(kept.values())
        missing = self.demand.cpus - whole.bit_count()
        placed = Placed(whole)
        if missing > 0:
            rest = self.near(whole, missing) if whole else self.available
            placed = self.place(rest & ~whole, replace(self.demand, cpus=missing))
            whole |= placed.cpus
        return dict(self.shares(whole, kept)), placed

    def divided_anew(self) -> tuple[dict[str, int], Placed]:
        """As `divided`, with no proposal kept, and a refusal that says what is in the way."""
        try:
            return self.divided({})
        except Unplaceable as why:
            raise self.refusal(why) from None

    def near(self, cpus: int, n: int) -> int:
        """The CPUs on the NUMA nodes of some others, as far as they hold as many as are missing."""
        numa = self.state.topology.numa
        close = _union(node for node in numa if node & cpus) & self.allowed & ~cpus
        strict = self.demand.numa is NUMAPolicy.SINGLE_NUMA_NODE
        return close if strict or close.bit_count() >= n else self.allowed

    def shares(self, whole: int, kept: Mapping[str, int]) -> Iterator[tuple[str, int]]:
        lasting, promised = 0, dict(kept)
        for container in self.request.containers:
            n = self.decided.own.get(container.name, 0)
            if not n:
                continue
            cpus = promised.pop(container.name, 0)
            if not cpus:
                init = container.kind is ContainerKind.INIT
                cpus = self.share(n, whole & ~lasting & ~(0 if init else _union(promised.values())))
            if container.kind is not ContainerKind.INIT:
                lasting |= cpus
            yield container.name, cpus

    def share(self, n: int, free: int) -> int:
        if n == free.bit_count():
            return free
        part = Demand(
            n, bind=self.demand.bind, bind_required=self.demand.bind_required, sizes=self.demand.sizes
        )
        return ALLOCATORS[self.state.config.pools.allocator](self.state, free, part, UNOCCUPIED).cpus

    # -- what both need

    def holds(self, cpus: int) -> bool:
        """Whether the pod could be placed on just these CPUs, by all rules of the node."""
        if cpus & ~self.allowed or (self.decided.common and cpus.bit_count() != self.decided.common):
            return False
        try:
            self.place(cpus, replace(self.demand, cpus=cpus.bit_count()))
        except Unplaceable:
            return False
        return True

    def place(self, available: int, demand: Demand) -> Placed:
        return ALLOCATORS[self.state.config.pools.allocator](self.state, available, demand, self.others)

    def refusal(self, why: Unplaceable) -> Refusal:
        """Return the obstacle: its cause, then CPUs free, kept, ruled out, and bound to other pods."""
        state, free = self.state, self.state.free_exclusive.mask
        return Refusal(
            Code.INSUFFICIENT_CPUS,
            why.reason,
            self.demand.cpus,
            free.bit_count(),
            len(state.usable),
            (free & ~self.available).bit_count(),
            tuple(self.rules),
            tuple(names_of(state, state.topology.all)),
        )

    def bound(self, cpus: Mapping[str, int], *, repicked: bool) -> Bound:
        return Bound(cpus, tuple(self.reasons), repicked)

    def because(self, names: Iterable[str], code: Code, *values: int) -> None:
        self.reasons += [Reason(code, values, name) for name in names]

    def explain(self, name: str, cpus: int, placed: Placed, kept: Mapping[str, int]) -> None:
        if name in kept:
            self.because((name,), Code.PROPOSAL_USED, cpus)
            return
        if name in self.request.proposal:
            proposed = self.request.proposal[name].mask
            self.because((name,), *self.conflict(proposed, self.decided.own[name]))
        self.reasons.append(_picked(placed, cpus, name))

    def conflict(self, proposed: int, n: int) -> tuple[Code, *tuple[int, ...]]:
        """Return why a proposal cannot be used: a code and its values."""
        if not proposed:
            return (Code.PROPOSALS_DIFFER,)
        if proposed.bit_count() != n:
            return Code.PROPOSAL_WRONG_COUNT, proposed, n
        if taken := proposed & ~self.allowed:
            return Code.PROPOSAL_UNAVAILABLE, proposed, taken
        return Code.PROPOSAL_VIOLATES_RULES, proposed


def _picked(placed: Placed, cpus: int, container: str) -> Reason:
    """Return why a container has these of the CPUs that were allocated to its pod."""
    if placed.code is Code.COMPLETED_PROPOSAL:
        return Reason(placed.code, (cpus,), container)
    return Reason(placed.code, (cpus, placed.cpus, *placed.values), container)


def _union(masks: Iterable[int]) -> int:
    union = 0
    for mask in masks:
        union |= mask
    return union


Allocator: TypeAlias = Callable[[NodeState, int, Demand, Occupancy], Placed]
"""From a node, CPUs that may be bound (a mask), the demand and what others hold. Raises Unplaceable."""


def permitted(
    state: NodeState, available: int, demand: Demand, others: Occupancy
) -> tuple[int, list[tuple[Reason, int]]]:
    """The available CPUs that rules about other pods and core kinds leave, and how many each rule takes."""
    left, rules = available, []
    for rule in requirements(shapes.from_topology(state.topology), demand, others):
        if lost := left & rule.barred:
            rules.append((rule.rule, lost.bit_count()))
            left &= ~rule.barred
    return left, rules


def by_optimal(state: NodeState, available: int, demand: Demand, others: Occupancy) -> Placed:
    """The best by the objective of `placement.optimal`."""
    answer = search.place(shapes.from_topology(state.topology), demand, available, others)
    if isinstance(answer, Infeasible):
        raise Unplaceable(Code.NO_PLACEMENT, answer.requirement, answer.reason)
    exclusive = demand.exclusive
    exclusivity = (
        bool(exclusive or demand.exclusive_policy),
        str(exclusive.level) if exclusive is not None and exclusive.required else "",
    )
    unproven = "" if answer.proven else answer.unproven_term
    values = answer.terms, *exclusivity, bool(demand.pod_affinity), unproven, answer.bound
    return Placed(answer.cpus, Code.PICKED_BY_OPTIMAL, values)


ALLOCATORS: Final[Mapping[AllocatorName, Allocator]] = {"koordinator": by_koordinator, "optimal": by_optimal}
