"""The kubelet's pickers as upstream describes them, over sets of ids: slow, and the judge of the fast ones.

`Topo` is rows (cpu, core, socket, numa, uncore), cores named by their lowest CPU. Upstream's slices are
modelled with their storage, so that its aliasing shows; where it would loop for ever, `Hang` is raised.
"""

import math
from collections.abc import Callable, Iterable, Iterator

Rows = list[tuple[int, int, int, int, int]]


class Hang(Exception):  # noqa: N818
    pass


class Topo:
    def __init__(self, rows: Rows) -> None:
        lowest: dict[int, int] = {}
        for cpu, core, *_ in rows:
            lowest[core] = min(cpu, lowest.get(core, cpu))
        self.at = {cpu: (lowest[core], socket, numa, uncore) for cpu, core, socket, numa, uncore in rows}
        counts = [len({place[level] for place in self.at.values()}) for level in range(4)]
        self.per_core = len(rows) // counts[0]
        self.per_socket = len(rows) // counts[1]
        self.per_uncore = len(rows) // counts[3]
        self.numas = counts[2]
        self.numa_first = counts[1] >= counts[2]

    def members(self, level: int, unit: int, within: Iterable[int] | None = None) -> set[int]:
        return {cpu for cpu in (self.at if within is None else within) if self.at[cpu][level] == unit}


CORE, SOCKET, NUMA, UNCORE = range(4)


class Accumulator:
    def __init__(self, topo: Topo, available: set[int], need: int) -> None:
        self.topo, self.free, self.need = topo, available & set(topo.at), need
        self.taken: set[int] = set()

    def take(self, cpus: set[int]) -> None:
        self.taken |= cpus
        self.free -= cpus
        self.need -= len(cpus)

    def ordered(self, level: int, within: Iterable[int]) -> list[int]:
        units = {self.topo.at[cpu][level] for cpu in within}
        return sorted(units, key=lambda unit: (len(self.topo.members(level, unit, self.free)), unit))

    def nested(self, outer_level: int, outer: list[int], level: int) -> list[int]:
        return [
            unit
            for one in outer
            for unit in self.ordered(level, self.topo.members(outer_level, one, self.free))
        ]

    def nodes(self) -> list[int]:
        if self.topo.numa_first:
            return self.ordered(NUMA, self.free)
        return self.nested(SOCKET, self.ordered(SOCKET, self.free), NUMA)

    def sockets(self) -> list[int]:
        if self.topo.numa_first:
            return self.nested(NUMA, self.ordered(NUMA, self.free), SOCKET)
        return self.ordered(SOCKET, self.free)

    def cores(self) -> list[int]:
        if self.topo.numa_first:
            return self.nested(SOCKET, self.sockets(), CORE)
        return self.nested(NUMA, self.nodes(), CORE)

    def full(self, level: int, units: list[int]) -> None:
        averages = {CORE: self.topo.per_core, SOCKET: self.topo.per_socket}
        whole = {unit: self.topo.members(level, unit) for unit in units}
        free = [
            unit for unit in units if len(whole[unit] & self.free) == averages.get(level, len(whole[unit]))
        ]
        for unit in free:
            if self.need >= len(whole[unit]):
                self.take(whole[unit])

    def uncores(self) -> None:
        for unit in self.nested(NUMA, self.nodes(), UNCORE):
            if self.need >= self.topo.per_uncore:
                self.full(UNCORE, self.nested(NUMA, self.nodes(), UNCORE))
            if self.need < 1:
                return
            self.part(unit)
            if self.need < 1:
                return

    def part(self, unit: int) -> None:
        inside = self.topo.members(UNCORE, unit, self.free)
        cores = sorted({self.topo.at[cpu][CORE] for cpu in inside})[: -(-self.need // self.topo.per_core)]
        cpus = sorted(cpu for cpu in self.free if self.topo.at[cpu][CORE] in cores)
        if self.need % 2 and self.topo.per_core > 1 and len(cpus) > self.need:
            cpus.pop()
        if len(cpus) == self.need:
            self.take(set(cpus))


def packed(
    topo: Topo, available: set[int], n: int, spread: bool | str = False, uncore: bool = False
) -> set[int]:
    acc = Accumulator(topo, available, n)
    if n < 1:
        return set()
    if n > len(acc.free):
        raise ValueError(f"requested={n}, available={len(available)}")
    levels = [(NUMA, acc.nodes), (SOCKET, acc.sockets)]
    for level, units in levels if topo.numa_first else levels[::-1]:
        acc.full(level, units())
        if acc.need < 1:
            return acc.taken
    if uncore:
        acc.uncores()
        if acc.need < 1:
            return acc.taken
    if not spread:
        acc.full(CORE, acc.cores())
        if acc.need < 1:
            return acc.taken
    if spread == "rounds":
        for cpu in in_rounds(topo, acc):
            acc.take({cpu})
            if acc.need < 1:
                break
        return acc.taken
    level, units = (SOCKET, acc.sockets()) if spread else (CORE, acc.cores())
    for cpu in [cpu for unit in units for cpu in sorted(topo.members(level, unit, acc.free))]:
        acc.take({cpu})
        if acc.need < 1:
            break
    return acc.taken


def in_rounds(topo: Topo, acc: Accumulator) -> Iterator[int]:
    """From 1.38: the first free CPU of each core of a socket, then the second, and so on."""
    for socket in acc.sockets():
        cores = acc.ordered(CORE, topo.members(SOCKET, socket, acc.free))
        threads = [sorted(topo.members(CORE, core, acc.free)) for core in cores]
        for turn in range(max(map(len, threads))):
            yield from [cpus[turn] for cpus in threads if turn < len(cpus)]


class Slice:
    """A Go slice: appending writes into spare storage that others may share."""

    def __init__(self, storage: list[int], length: int) -> None:
        self.storage, self.length = storage, length

    def append(self, value: int) -> "Slice":
        storage = self.storage
        if self.length == len(storage):
            storage = storage + [0] * max(1, len(storage))
        storage[self.length] = value
        return Slice(storage, self.length + 1)

    def __iter__(self) -> Iterator[int]:
        return iter(self.storage[: self.length])


def combinations(values: list[int], k: int, visit: Callable[[Slice], bool]) -> None:
    def walk(start: int, left: int, so_far: Slice) -> bool:
        if not left:
            return visit(so_far)
        return all(
            walk(i + 1, left - 1, so_far.append(values[i])) for i in range(start, len(values) - left + 1)
        )

    if k >= 1:
        walk(0, k, Slice([], 0))


def deviation(values: Iterable[int]) -> float:
    values = list(values)
    mean = _rounded(sum(values) / len(values))
    return _rounded(math.sqrt(sum((value - mean) ** 2 for value in values) / len(values)))


def _rounded(value: float) -> float:
    return math.floor(value * 1000 + 0.5) / 1000


def balanced(
    free: dict[int, int], n: int, group: int, fewest: int, alias: bool = True
) -> tuple[list[int], int, list[int]] | None:
    """Nodes, share and bearers, as upstream's exhaustive search finds them; `free` is in picker's order."""
    nodes = list(free)
    for k in range(fewest, min(n // group, len(nodes)) + 1):
        best: dict = {"score": math.inf, "nodes": None, "bearers": None}

        def visit(combo: Slice, k: int = k, best: dict = best) -> bool:
            if best["score"] == 0:
                return False
            chosen = list(combo)
            share = n // k // group * group
            if sum(free[x] // group for x in chosen) * group < n or any(free[x] < share for x in chosen):
                return True
            after = {x: free[x] - (share if x in chosen else 0) for x in nodes}
            rest = n - share * k
            score, bearers = deviation(after.values()), Slice([], 0)
            if rest:
                score, bearers = remainder(
                    after, [x for x in chosen if after[x] >= group], rest, group, alias
                )
            if score < best["score"]:
                best |= {"score": score, "nodes": combo if alias else chosen, "bearers": bearers}
            return True

        combinations(nodes, k, visit)
        if best["nodes"] is not None:
            return list(best["nodes"]), n // k // group * group, list(best["bearers"])
    return None


def balanced_by_socket(
    free: dict[int, int], socket_of: dict[int, int], n: int, group: int, fewest: int
) -> tuple[list[int], int, list[int]] | None:
    """From 1.37 under align-by-socket, without the aliasing of remembered combinations."""
    nodes = list(free)
    for k in range(fewest, min(n // group, len(nodes)) + 1):
        best, best_together = None, False

        def visit(combo: Slice, k: int = k) -> bool:
            nonlocal best, best_together
            if best and best[0] == 0 and best_together:
                return False
            chosen = list(combo)
            if sum(free[x] // group for x in chosen) * group < n:
                return True
            share = min(n // k // group * group, *(free[x] // group * group for x in chosen))
            after = {x: free[x] - (share if x in chosen else 0) for x in nodes}
            rest, bearers = n - share * k, []
            score = deviation(after.values())
            if rest:
                able = [x for x in chosen if after[x] >= group]
                score, bearers = remainder(after, able, rest, group, False, whole=True)
            together = len({socket_of[x] for x in chosen}) == 1
            if (score < best[0] if best else True) if together == best_together else together:
                best, best_together = (score, chosen, share, list(bearers)), together
            return True

        combinations(nodes, k, visit)
        if best is not None:
            return best[1:]
    return None


def remainder(
    after: dict[int, int], able: list[int], rest: int, group: int, alias: bool, whole: bool = False
) -> tuple[float, Slice | list[int]]:
    best: dict = {"score": math.inf, "bearers": Slice([], 0)}
    for size in range(len(able), 0, -1):

        def visit(subset: Slice, best: dict = best) -> bool:
            if sum(after[x] // group * group if whole else after[x] for x in subset) < rest:
                return True
            left, now = rest, dict(after)
            while left > 0:
                before = left
                for x in subset:
                    if left and now[x] >= group:
                        now[x] -= group
                        left -= group
                if left == before:
                    raise Hang
            score = deviation(now.values())
            if score < best["score"]:
                best |= {"score": score, "bearers": subset if alias else list(subset)}
            return True

        combinations(able, size, visit)
    return best["score"], best["bearers"]


def distributed(
    topo: Topo, available: set[int], n: int, group: int, spread: bool = False, alias: bool = True
) -> set[int]:
    acc = Accumulator(topo, available, n)
    if n % group or n < 1 or n > len(acc.free):
        return packed(topo, available, n, spread)
    free = {node: len(topo.members(NUMA, node, acc.free)) for node in acc.nodes()}
    per_node = math.ceil(math.ceil(len(topo.at) / group) / topo.numas)
    found = balanced(free, n, group, math.ceil(math.ceil(n / group) / per_node), alias)
    if found is None:
        return packed(topo, available, n, spread)
    nodes, share, bearers = found
    for node in nodes:
        if free[node] >= share:
            acc.take(packed(topo, topo.members(NUMA, node, acc.free), share, spread))
    rest = n - share * len(nodes)
    while rest > 0:
        before = rest
        for node in bearers:
            inside = topo.members(NUMA, node, acc.free)
            if rest and len(inside) >= group:
                acc.take(packed(topo, inside, group, spread))
                rest -= group
        if rest == before:
            raise Hang
    if acc.need:
        raise ValueError(f"accounting error, not enough CPUs allocated, remaining: {acc.need}")
    return acc.taken
