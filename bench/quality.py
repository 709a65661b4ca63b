"""How good the choices of CPUs are: NUMA nodes spanned, exclusivity kept, and what is left after long use.

The machine has 2 sockets of 4 NUMA nodes with 8 cores of 2 threads. States and requests are random and the
same for every allocator. `make bench-quality` prints two tables and writes build/bench/quality.json.
"""

# ruff: noqa: T201, S311
import random
import sys
from collections.abc import Callable, Iterator
from itertools import combinations

import report
from report import Row

from corelane.machine.spec import parse_spec
from corelane.placement import koordinator, kubelet, optimal, topology
from corelane.placement.optimal import Demand, Occupancy
from corelane.workload import BindPolicy, ExclusivePolicy, Strategy

STATES = 3_000
ARRIVALS = 10_000
SEEDS = (1, 2, 3)
LAST = 1_000
"""Of the end of a life so many steps are looked at, so that one lucky state does not tell."""
LOAD = 0.8
SIZES = (2, 4, 6, 8, 12, 16)
FULL, SPREAD = BindPolicy.FULL_PCPUS, BindPolicy.SPREAD_BY_PCPUS
MOST, LEAST = Strategy.MOST_ALLOCATED, Strategy.LEAST_ALLOCATED
PCPU = ExclusivePolicy.PCPU_LEVEL

MACHINE = parse_spec("socket:2 numa:4 core:8 smt:2")
TOPOLOGY = topology.from_machine(MACHINE)
SHAPE = optimal.from_machine(MACHINE)

Picker = Callable[[int, int, BindPolicy, int], int]
"""From the free CPUs, a number, a bind policy and the CPUs of pods that are PCPULevel too, to CPUs."""


def by_kubelet(free: int, n: int, bind: BindPolicy, _: int) -> int:
    return kubelet.take_valid(TOPOLOGY, free, n, kubelet.Strategy(spread=bind is SPREAD))


def by_koordinator(strategy: Strategy) -> Picker:
    def pick(free: int, n: int, bind: BindPolicy, same: int) -> int:
        request = koordinator.Request(bind, PCPU if same else ExclusivePolicy.NONE, strategy)
        return koordinator.take_valid(TOPOLOGY, free, n, request, koordinator.Held(same))

    return pick


def by_optimal(strategy: Strategy | None) -> Picker:
    def pick(free: int, n: int, bind: BindPolicy, same: int) -> int:
        policy = PCPU if same else ExclusivePolicy.NONE
        demand = Demand(n, bind, exclusive_policy=policy, strategy=strategy)
        answer = optimal.place(SHAPE, demand, free, Occupancy(same_core=same))
        assert isinstance(answer, optimal.Placement)
        return answer.cpus

    return pick


PICKERS: dict[str, Picker] = {
    "kubelet": by_kubelet,
    "koordinator, LeastAllocated": by_koordinator(LEAST),
    "koordinator, MostAllocated": by_koordinator(MOST),
    "optimal": by_optimal(None),
    "optimal, MostAllocated": by_optimal(MOST),
}


def state(chance: random.Random) -> tuple[int, int]:
    """The free CPUs of a random state, and those of pods that are PCPULevel: 1 to 12 CPUs each, anywhere."""
    free, same, load = SHAPE.all, 0, chance.random() * 0.9
    while free.bit_count() > SHAPE.all.bit_count() * (1 - load):
        taken = 0
        for _ in range(chance.randint(1, 12)):
            core = chance.choice([core for core in CORES if core & free])
            taken |= core & free if chance.random() < 0.5 else core & free & -(core & free)
            free &= ~taken
        same |= taken if chance.random() < 0.3 else 0
    return free, same


CORES = tuple(SHAPE.cores())


def spanned(cpus: int) -> int:
    return sum(1 for node in SHAPE.nodes if node & cpus)


def needed(free: int, n: int) -> int:
    """The fewest NUMA nodes that have so many free CPUs."""
    counts = sorted(((node & free).bit_count() for node in SHAPE.nodes), reverse=True)
    return next(count for count in range(1, len(counts) + 1) if sum(counts[:count]) >= n)


def broken(cpus: int, bind: BindPolicy) -> int:
    """The cores that break the bind policy."""
    touched = [core for core in CORES if core & cpus]
    if bind is SPREAD:
        return sum(core & cpus == core for core in touched)
    return sum(core & cpus != core for core in touched)


def dropped(cpus: int, free: int, same: int, bind: BindPolicy) -> bool:
    """Whether cores are shared against the wish, though as many NUMA nodes have enough in cores that are not.

    Only what is no farther apart and breaks the bind policy no more counts; here every NUMA node is one L3
    domain.
    """
    if not any(core & cpus and core & same for core in CORES):
        return False
    n, most = cpus.bit_count(), broken(cpus, bind)
    cores = [core & free for core in CORES if core & free and not core & same]
    farthest = SHAPE.farthest([i for i, node in enumerate(SHAPE.nodes) if node & cpus])
    for nodes in combinations(range(len(SHAPE.nodes)), spanned(cpus)):
        if SHAPE.farthest(nodes) > farthest:
            continue
        inside = [core for core in cores if core & sum(SHAPE.nodes[i] for i in nodes)]
        whole = sum(core.bit_count() == 2 for core in inside)
        total = len(inside) + whole
        least = max(n - len(inside), 0) if bind is SPREAD else max(n - 2 * whole, n % 2)
        if total >= n and least <= most:
            return True
    return False


def spans() -> Iterator[Row]:
    """More NUMA nodes than needed, and exclusivity given up, over random states."""
    print(f"{STATES:,} random states, requests of 2 to 24 CPUs; %")
    print(f"{'':<30}{'more NUMA nodes than needed':>30}{'exclusivity dropped':>22}")
    print(f"{'':<30}{'full cores':>12}{'spread':>9}{'worst':>9}{'full cores':>13}{'spread':>9}")
    for name, picker in PICKERS.items():
        rates, worst = [], ""
        for bind in (FULL, SPREAD):
            rate, most = _over(picker, bind)
            rates.append(rate)
            worst = max(worst, most)
        lost = [_dropped(picker, bind) for bind in (FULL, SPREAD)]
        print(f"{name:<30}{rates[0]:>12.1f}{rates[1]:>9.1f}{worst:>9}{lost[0]:>13.1f}{lost[1]:>9.1f}")
        target = 0 if name.startswith("optimal") else None
        for bind, rate, drop in zip((FULL, SPREAD), rates, lost, strict=True):
            yield Row(f"{name}, {bind}: more NUMA nodes than needed", rate, "%", target)
            yield Row(f"{name}, {bind}: exclusivity dropped", drop, "%", target)


def _requests() -> Iterator[tuple[int, int, int]]:
    """Free CPUs, CPUs of PCPULevel pods, and a number that is free."""
    chance, made = random.Random("quality"), 0
    while made < STATES:
        free, same = state(chance)
        n = chance.randint(2, 24)
        if n <= free.bit_count():
            made += 1
            yield free, same, n


def _over(picker: Picker, bind: BindPolicy) -> tuple[float, str]:
    over, worst = 0, (0, "")
    for free, _, n in _requests():
        used, least = spanned(picker(free, n, bind, 0)), needed(free, n)
        over += used > least
        worst = max(worst, (used - least, f"{used} for {least}"))
    return 100 * over / STATES, worst[1]


def _dropped(picker: Picker, bind: BindPolicy) -> float:
    asked = [(free, same, n) for free, same, n in _requests() if same]
    lost = sum(dropped(picker(free, n, bind, same), free, same, bind) for free, same, n in asked)
    return 100 * lost / len(asked)


def lives() -> Iterator[Row]:
    """What is left after arrivals and ends, as far as requests of usual sizes fit one NUMA node."""
    print(
        f"\n{ARRIVALS:,} arrivals and ends at {LOAD:.0%} load; the last {LAST:,} states of {len(SEEDS)} lives"
    )
    print(f"{'':<30}{'fit one NUMA node, %':>22}{'in whole cores, %':>20}{'pods split needlessly, %':>26}")
    for name, picker in PICKERS.items():
        lives = [_life(picker, seed) for seed in SEEDS]
        fits, whole, split = (sum(life[i] for life in lives) / len(lives) for i in range(3))
        print(f"{name:<30}{fits:>22.1f}{whole:>20.1f}{split:>26.1f}")
        yield Row(f"{name}: requests that fit one NUMA node", fits, "%", None, "higher")
        yield Row(f"{name}: requests that fit whole cores of one NUMA node", whole, "%", None, "higher")
        yield Row(f"{name}: pods on more NUMA nodes than needed", split, "%", None)


def _life(picker: Picker, seed: int) -> tuple[float, float, float]:
    """Means over the last states: % that fit, % that fit whole cores; and % of all pods split needlessly."""
    chance, free, pods = random.Random(seed), SHAPE.all, list[int]()
    arrived = split = fit = whole = 0
    for step in range(ARRIVALS):
        size = chance.choice((1, 2, 2, 3, 4, 4, 5, 6, 8, 8, 12, 16))
        used = 1 - free.bit_count() / SHAPE.all.bit_count()
        if size <= free.bit_count() and (not pods or chance.random() < 0.5 + 2 * (LOAD - used)):
            pods.append(picker(free, size, FULL, 0))
            arrived += 1
            split += spanned(pods[-1]) > needed(free, size)
            free &= ~pods[-1]
        elif pods:
            free |= pods.pop(chance.randrange(len(pods)))
        if step >= ARRIVALS - LAST:
            fit += _fitting(free)
            whole += _fitting(sum(core for core in CORES if not core & ~free))
    asked = LAST * len(SIZES)
    return 100 * fit / asked, 100 * whole / asked, 100 * split / arrived


def _fitting(free: int) -> int:
    """How many of the sizes fit one NUMA node."""
    most = max((node & free).bit_count() for node in SHAPE.nodes)
    return sum(size <= most for size in SIZES)


def main() -> int:
    rows = [*spans(), *lives()]
    report.keep("quality", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
