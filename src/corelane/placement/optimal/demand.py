"""What is asked of the optimal allocator, with everything about pods already resolved to masks of CPUs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Final

from corelane.workload.placement_spec import (
    BindPolicy,
    ExclusivePolicy,
    Exclusivity,
    NUMAPolicy,
    NUMAStrategy,
    TopologyLevel,
)

__all__ = ["NOBODY", "PROFILE", "Demand", "Guard", "Limit", "Neighbour", "Occupancy", "Resource"]

PROFILE: Final = (2, 4, 8, 16)
"""Sizes in CPUs of the requests for which room should be left: term 9's demand profile."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A hard rule that only certain CPUs will do: those of a core kind, say. `name` is for people."""

    name: str
    cpus: int


@dataclass(frozen=True, slots=True)
class Neighbour:
    """The CPUs of the pods that a named affinity selects, to be avoided or sought at a level.

    Against the wish is every touched unit that has such a CPU (avoid), or has none (prefer). A `prefer` that
    is not required, and selects nobody, asks for nothing.
    """

    avoid: bool
    level: TopologyLevel
    cpus: int
    required: bool = False
    name: str = ""


@dataclass(frozen=True, slots=True)
class Resource:
    """Devices, memory or huge pages that should lie on the NUMA nodes of the CPUs: amounts by NUMA node id.

    `capacity` is what the empty machine has (the same as `free` where not given): a Restricted pod may have
    as many nodes as it would need there.
    """

    name: str
    wanted: int
    free: Mapping[int, int]
    capacity: Mapping[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Guard:
    """CPUs of a pod that bars others from all units that it touches at a level."""

    level: TopologyLevel
    cpus: int


@dataclass(frozen=True, slots=True)
class Occupancy:
    """What others hold. Masks of CPUs; a holder is whoever must be moved to make its CPUs free."""

    holders: tuple[int, ...] = ()
    """The bound CPUs of each holder."""
    same_core: int = 0
    """CPUs of the pods whose exclusive policy is PCPULevel."""
    same_numa: int = 0
    """CPUs of the pods whose exclusive policy is NUMANodeLevel."""
    guards: tuple[Guard, ...] = ()

    @property
    def bound(self) -> int:
        return union(self.holders)


NOBODY: Final = Occupancy()


@dataclass(frozen=True, slots=True)
class Demand:
    """A number of CPUs, and how they are wanted; the terms of the objective are those of docs/placement.md.

    Raises ValueError for a number below 1, sizes below 1, and ConstrainedBurst, which binds no CPU.
    """

    cpus: int
    bind: BindPolicy | None = None
    """None is FullPCPUs, preferred."""
    bind_required: bool = False
    exclusive: Exclusivity | None = None
    """Against the bound CPUs of every other holder."""
    exclusive_policy: ExclusivePolicy = ExclusivePolicy.NONE
    """Koordinator's, preferred, against pods of the same policy."""
    neighbours: tuple[Neighbour, ...] = ()
    limits: tuple[Limit, ...] = ()
    numa: NUMAPolicy = NUMAPolicy.NONE
    """SingleNUMANode and Restricted are hard, for CPUs and resources; Restricted allows as many nodes as the
    empty machine would need."""
    numa_exclusive: bool = False
    """Nodes of holders that span several are not for a pod that needs one, and the other way round."""
    strategy: NUMAStrategy | None = None
    resources: tuple[Resource, ...] = ()
    sizes: tuple[int, ...] = PROFILE
    plain: bool = field(init=False, repr=False, compare=False)
    """Whether nothing is asked that concerns others."""

    def __post_init__(self) -> None:
        if self.cpus < 1:
            raise ValueError(f"cpus: {self.cpus} is no number of CPUs to place; ask for 1 or more")
        if self.bind is BindPolicy.CONSTRAINED_BURST:
            raise ValueError("bind: ConstrainedBurst binds no CPUs; choose the shared pool of a NUMA node")
        if any(size < 1 for size in self.sizes):
            raise ValueError(f"sizes: {self.sizes} must all be 1 CPU or more")
        plain = (
            self.exclusive is None and self.exclusive_policy is ExclusivePolicy.NONE and not self.neighbours
        )
        object.__setattr__(self, "plain", plain)

    @property
    def spread(self) -> bool:
        return self.bind is BindPolicy.SPREAD_BY_PCPUS

    @property
    def steered(self) -> bool:
        """Whether how full NUMA nodes are matters: term 8."""
        return self.strategy is NUMAStrategy.MOST_ALLOCATED or self.strategy is NUMAStrategy.LEAST_ALLOCATED


def union(masks: Iterable[int]) -> int:
    return reduce(or_, masks, 0)
