"""What the benchmark of quality works with: machines, allocators as functions, and how a choice is judged."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

from corelane.machine.spec import parse_spec
from corelane.placement import topology
from corelane.placement.koordinator import allocator
from corelane.placement.kubelet import picker
from corelane.placement.optimal import demand as demands
from corelane.placement.optimal import infeasible, search
from corelane.placement.optimal.demand import Demand, Occupancy, Shape
from corelane.placement.topology import Topology
from corelane.workload import BindPolicy, ExclusivePolicy, NUMAStrategy

FULL, SPREAD = BindPolicy.FULL_PCPUS, BindPolicy.SPREAD_BY_PCPUS
MOST, LEAST = NUMAStrategy.MOST_ALLOCATED, NUMAStrategy.LEAST_ALLOCATED
PCPU = ExclusivePolicy.PCPU_LEVEL


@dataclass(frozen=True, slots=True)
class Lab:
    """A machine in the ways in which the allocators see it."""

    topology: Topology
    shape: Shape
    cores: tuple[int, ...]

    def spanned(self, cpus: int) -> int:
        """On how many NUMA nodes these CPUs are."""
        return sum(1 for node in self.shape.nodes if node & cpus)

    def needed(self, free: int, n: int) -> int:
        """The fewest NUMA nodes that have so many free CPUs."""
        counts = sorted(((node & free).bit_count() for node in self.shape.nodes), reverse=True)
        return next(count for count in range(1, len(counts) + 1) if sum(counts[:count]) >= n)

    def broken(self, cpus: int, bind: BindPolicy) -> int:
        """The cores that break the bind policy."""
        touched = [core for core in self.cores if core & cpus]
        if bind is SPREAD:
            return sum(core & cpus == core for core in touched)
        return sum(core & cpus != core for core in touched)

    def dropped(self, cpus: int, free: int, same: int, bind: BindPolicy) -> bool:
        """Whether cores are shared against the preference, though as many NUMA nodes have enough free ones.

        Only what is no farther apart and breaks the bind policy no more counts; every NUMA node must be one
        L3 domain, and every core have two threads.
        """
        if not any(core & cpus and core & same for core in self.cores):
            return False
        nodes = [i for i, node in enumerate(self.shape.nodes) if node & cpus]
        farthest, most = self.shape.farthest(nodes), self.broken(cpus, bind)
        return any(
            self._alone(free, same, cpus.bit_count(), bind, others) <= most
            for others in combinations(range(len(self.shape.nodes)), len(nodes))
            if self.shape.farthest(others) <= farthest
        )

    def _alone(self, free: int, same: int, n: int, bind: BindPolicy, nodes: tuple[int, ...]) -> float:
        """The fewest cores that break the policy when n CPUs of these nodes share none; or infinite."""
        here = sum(self.shape.nodes[i] for i in nodes)
        cores = [core & free for core in self.cores if core & free & here and not core & same]
        whole = sum(core.bit_count() == 2 for core in cores)
        if len(cores) + whole < n:
            return float("inf")
        return max(n - len(cores), 0) if bind is SPREAD else max(n - 2 * whole, n % 2)


def lab(spec: str) -> Lab:
    machine = parse_spec(spec)
    shape = demands.from_machine(machine)
    return Lab(topology.from_machine(machine), shape, tuple(shape.cores()))


Picker = Callable[[Lab, int, int, BindPolicy, int], int]
"""From the free CPUs, a number, a bind policy and the CPUs of pods that are PCPULevel too, to CPUs."""


def _by_kubelet(lab: Lab, free: int, n: int, bind: BindPolicy, _: int) -> int:
    return picker.take_valid(lab.topology, free, n, picker.Strategy(spread=bind is SPREAD))


def _by_koordinator(strategy: NUMAStrategy) -> Picker:
    def pick(lab: Lab, free: int, n: int, bind: BindPolicy, same: int) -> int:
        request = allocator.Request(bind, PCPU if same else ExclusivePolicy.NONE, strategy)
        return allocator.take_valid(lab.topology, free, n, request, allocator.Held(same))

    return pick


def _by_optimal(strategy: NUMAStrategy | None) -> Picker:
    def pick(lab: Lab, free: int, n: int, bind: BindPolicy, same: int) -> int:
        policy = PCPU if same else ExclusivePolicy.NONE
        demand = Demand(n, bind, exclusive_policy=policy, strategy=strategy)
        answer = search.place(lab.shape, demand, free, Occupancy(same_core=same))
        assert isinstance(answer, infeasible.Placement)
        return answer.cpus

    return pick


PICKERS: dict[str, Picker] = {
    "kubelet": _by_kubelet,
    "koordinator, LeastAllocated": _by_koordinator(LEAST),
    "koordinator, MostAllocated": _by_koordinator(MOST),
    "optimal": _by_optimal(None),
    "optimal, MostAllocated": _by_optimal(MOST),
}
