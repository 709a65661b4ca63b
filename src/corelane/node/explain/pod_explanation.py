"""How a decision on a pod came about, as plain values that any view can draw."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from corelane.cpuset import CPUSet
from corelane.machine.model import Machine
from corelane.node.ledger import Decision, NodeState
from corelane.placement.memory_blocks import MemoryBlock
from corelane.workload import PodRequest


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
