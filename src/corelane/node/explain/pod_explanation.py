"""A decision on a pod explained, as plain values: steps, objective, runner-up, helpful changes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from corelane.cpuset import CPUSet
from corelane.machine.model import Machine
from corelane.node.ledger import Decision, NodeState
from corelane.node.pools import binding, pool_admission
from corelane.node.pools.binding import ALLOCATORS, Binding
from corelane.node.pools.koordinator_allocator import Unplaceable
from corelane.placement.memory_blocks import MemoryBlock
from corelane.placement.optimal import demand as demands
from corelane.placement.optimal import infeasible, search
from corelane.placement.optimal.infeasible import Change, Infeasible, Placement
from corelane.reasons import Code, Reason, Refusal, label, sentence
from corelane.workload.request import PodRequest


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a choice: a short stable key, a sentence, and the CPUs that it took (a list string)."""

    step: str
    text: str
    cpus: str = ""


@dataclass(frozen=True, slots=True)
class CandidateNodes:
    """A set of NUMA nodes (a list string) that can hold a request, and the number of its free CPUs.

    Preferred if the request would not fit fewer nodes of the idle machine.
    """

    nodes: str
    free: int
    preferred: bool
    chosen: bool


@dataclass(frozen=True, slots=True)
class HintSet:
    """A set of NUMA nodes (a list string) of one hint provider; preferred if none is smaller."""

    nodes: str
    preferred: bool


@dataclass(frozen=True, slots=True)
class ProviderHints:
    """Hints of one provider for an amount of a resource (CPUs, bytes or devices).

    `sets` are the best of `total`; without any, `word` says why.
    """

    resource: str
    amount: int
    sets: tuple[HintSet, ...] = ()
    total: int = 0
    word: str = ""


@dataclass(frozen=True, slots=True)
class HintMerge:
    """The hints of all providers, and the topology manager's result; `nodes` "" means any NUMA node."""

    providers: tuple[ProviderHints, ...]
    nodes: str
    preferred: bool
    admitted: bool


@dataclass(frozen=True, slots=True)
class Locality:
    """The number of units that a set of CPUs touches; of `split_cores` it has only some threads."""

    numa_nodes: int
    l3_domains: int
    cores: int
    split_cores: int


def locality(machine: Machine, cpus: CPUSet) -> Locality:
    """Count the units that a set of CPUs touches, by the usable CPUs of the machine."""
    mask, usable = cpus.mask, machine.usable.mask
    cores = [core & usable for _, core in machine.core_masks if core & mask]
    return Locality(
        sum(1 for _, node in machine.numa_masks if node & mask),
        sum(1 for _, cache in machine.l3_masks if cache & mask),
        len(cores),
        sum(1 for core in cores if core & ~mask),
    )


@dataclass(frozen=True, slots=True)
class TermValue:
    """A term of the objective by its number, and its values; the runner-up's is None if there is none."""

    number: str
    name: str
    text: str
    value: int
    runner_up: int | None = None
    larger: bool = False
    """Whether larger values are better."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change that would make a request fit: `kind` is fewer, release or soften; `pods` block it."""

    kind: str
    text: str
    pods: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Objective:
    """The choice for all exclusive CPUs of a pod; without `cpus` nothing fits, for the reason `why`."""

    allocator: str
    cpus: CPUSet
    runner_up: CPUSet = field(default_factory=CPUSet)
    terms: tuple[TermValue, ...] = ()
    proven: bool = True
    unproven_term: str = ""
    bound: int | None = None
    """The best value that the unproven term could still reach."""
    why: str = ""
    notes: tuple[str, ...] = ()
    """Sentences: the term that decided, and preferences that were not met."""
    remedies: tuple[Remedy, ...] = ()


@dataclass(frozen=True, slots=True)
class ContainerExplanation:
    """The CPUs of one container and the steps of the choice; without `cpus` it runs in a pool."""

    name: str
    kind: str
    requested: int
    """Exclusive CPUs."""
    cpus: CPUSet
    steps: tuple[Step, ...]
    candidates: tuple[CandidateNodes, ...] = ()
    locality: Locality | None = None
    runner_up: CPUSet = field(default_factory=CPUSet)
    """The CPUs that it would get if `cpus` were allocated; empty if it would be refused."""
    runner_up_locality: Locality | None = None
    memory: tuple[MemoryBlock, ...] = ()
    devices: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Extended resource to device ids."""
    merge: HintMerge | None = None
    """The hints for this container, where it requests more than CPUs."""
    pool: str = ""
    """The pool that it runs in with the CPUs, under policy `pools`."""


@dataclass(frozen=True, slots=True)
class PodExplanation:
    """The decision of a node in `state` on a pod, and how it came about."""

    state: NodeState
    request: PodRequest
    decision: Decision
    containers: tuple[ContainerExplanation, ...]
    merge: HintMerge | None = None
    """The hints for the pod as a whole, in pod scope."""
    objective: Objective | None = None
    """Under policy `pools`, the objective for the exclusive CPUs of the pod."""
    notes: tuple[str, ...] = ()


# The objective's terms, the runner-up, and the smallest changes that would help. It takes some ten times as
# long as an admission: for reports, and for the refusals of pods.


def objective(state: NodeState, request: PodRequest, cpus: CPUSet) -> Objective | None:
    """Return the terms of a pod's exclusive CPUs, or why none were found; None if it binds to none.

    The runner-up of `optimal` is its own; that of `koordinator` is its next pick without these CPUs.
    """
    asked = _question(state, request)
    if asked is None:
        return None
    allocator = state.config.pools.allocator
    if not cpus:
        return _infeasible(state, asked)
    best = _answer(state, asked) if allocator == "optimal" else None
    if isinstance(best, Placement) and best.cpus == cpus.mask:
        other = best.runner_up.cpus if best.runner_up else 0
        notes = tuple(sentence(reason) for reason in best.reasons if reason.code is not Code.TERM)
        chosen = Objective(
            allocator,
            cpus,
            proven=best.proven,
            unproven_term=best.unproven_term,
            bound=best.bound,
            notes=notes,
        )
    else:
        other, chosen = _next_pick(state, asked, cpus.mask), Objective(allocator, cpus)
    values = _term_values(state, asked, cpus.mask, other)
    return replace(chosen, terms=tuple(values), runner_up=CPUSet.from_mask(other))


def term_values(state: NodeState, request: PodRequest, cpus: CPUSet) -> tuple[TermValue, ...]:
    """Return the objective's terms of any CPUs for a pod; none if it binds to none."""
    asked = _question(state, request)
    return tuple(_term_values(state, asked, cpus.mask, 0)) if asked and cpus else ()


def remedies(state: NodeState, request: PodRequest) -> str:
    """Return, as a sentence, the changes by which a refused pod would fit; "" if unknown."""
    asked = _question(state, request)
    answer = _answer(state, asked) if asked else None
    if not isinstance(answer, Infeasible):
        return ""
    return "; or ".join(sentence(_reason(state, change)) for change in answer.changes)


def _question(state: NodeState, request: PodRequest) -> Binding | None:
    """Return None also for a pod that is refused before any CPU is considered."""
    try:
        return pool_admission.binding_of(state, request)
    except Refusal:
        return None


def _answer(state: NodeState, asked: Binding) -> Placement | Infeasible:
    shape = demands.from_machine(state.machine)
    return search.explain(shape, asked.demand, asked.available, asked.others)


def _infeasible(state: NodeState, asked: Binding) -> Objective | None:
    """Return what would help, as `optimal` finds it for any allocator; None for refusals of other kinds."""
    answer = _answer(state, asked)
    if not isinstance(answer, Infeasible):
        return None
    remedies = tuple(_remedy(_reason(state, change)) for change in answer.changes)
    return Objective(state.config.pools.allocator, CPUSet(), why=answer.text, remedies=remedies)


def _remedy(reason: Reason) -> Remedy:
    also = reason.values[1] if reason.code is Code.DROP_REQUIREMENT else reason
    pods = also.values[0] if also and also.code is Code.MOVE_PODS else ()
    return Remedy(label(reason), sentence(reason), tuple(pod for pod, _ in pods))


def _reason(state: NodeState, change: Change) -> Reason:
    """Return a change with the names of the pods that it moves."""
    if change.holders:
        uids = list(binding.holdings(state))
        moved = {uids[position] for position in change.holders}
        pods: dict[str, int] = {}
        for entry in state.entries.values():
            if entry.uid in moved:
                pods[entry.pod] = pods.get(entry.pod, 0) | entry.cpus.mask
        return Reason(Code.MOVE_PODS, (tuple(pods.items()),))
    if change.requirement:
        also = _reason(state, change.also) if change.also else None
        return Reason(Code.DROP_REQUIREMENT, (change.requirement, also))
    return Reason(Code.REQUEST_FEWER_CPUS, (change.amount,))


def _next_pick(state: NodeState, asked: Binding, cpus: int) -> int:
    """Return the allocator's pick if these CPUs were allocated; 0 if it finds none."""
    pick = ALLOCATORS[state.config.pools.allocator]
    demand = replace(asked.demand, cpus=cpus.bit_count())
    try:
        return pick(state, asked.available & ~cpus, demand, asked.others).cpus
    except Unplaceable:
        return 0


def _term_values(state: NodeState, asked: Binding, cpus: int, other: int) -> Iterator[TermValue]:
    shape = demands.from_machine(state.machine)

    def values(mask: int) -> dict[str, int]:
        return dict(search.evaluate(shape, asked.demand, asked.available, mask, asked.others))

    chosen, second = values(cpus), values(other) if other else {}
    for term in infeasible.TERMS:
        if term.name in chosen:
            value, against = chosen[term.name], second.get(term.name)
            yield TermValue(term.number, term.name, term.text, value, against, term.larger)
