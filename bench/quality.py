"""How good the choices of CPUs are: NUMA nodes spanned, exclusivity kept, and what is left after long use.

States and requests are random, and the same for every allocator. `make bench-quality` prints three tables and
writes build/bench/quality.json.
"""

# ruff: noqa: T201, S311
import random
import sys
from collections.abc import Iterator

import report
from quality_lab import FULL, PICKERS, SPREAD, Lab, Picker, lab
from report import Row

from corelane.workload import BindPolicy

STATES = 5_000
USUAL = (2, 4, 6, 8, 10, 12, 16, 20, 24)
"""Requests for whole cores in the first table, in CPUs."""
ARRIVALS = 10_000
SEEDS = (1, 2, 3)
LAST = 1_000
"""Of the end of a life so many steps are looked at, so that one lucky state does not tell."""
LOAD = 0.8
SIZES = (2, 4, 6, 8, 12, 16)

MACHINES = {
    "2x1 NUMA": lab("socket:2 numa:1 core:8 smt:2"),
    "2x2 NUMA": lab("socket:2 numa:2 core:8 smt:2"),
    "2x4 NUMA": lab("socket:2 numa:4 core:8 smt:2"),
}
"""Sockets x NUMA nodes in each; a node has 8 cores of 2 threads."""
LARGEST = MACHINES["2x4 NUMA"]

REFERENCE = "Koordinator's accumulator (a7a1b76b), written again from its description, over such states"
UPSTREAM = {
    ("2x1 NUMA", FULL): (0.0, 0.0),
    ("2x1 NUMA", SPREAD): (0.0, 0.0),
    ("2x2 NUMA", FULL): (3.8, 3.8),
    ("2x2 NUMA", SPREAD): (9.0, 10.0),
    ("2x4 NUMA", FULL): (13.0, 19.0),
    ("2x4 NUMA", SPREAD): (34.0, 35.0),
}
"""How many of its results were known to span more NUMA nodes than needed: from … to, in %."""
WORST = "7 for 4"


def spans() -> Iterator[Row]:
    """More NUMA nodes than needed, over states in which cores are free or taken as a whole."""
    print(f"{STATES:,} random states of whole cores, usual requests: more NUMA nodes than needed, %")
    print(" " * 30 + "".join(f"{name:>18}" for name in MACHINES))
    print(" " * 30 + f"{'full':>9}{'spread':>9}" * len(MACHINES) + f"{'worst':>11}")
    for name, picker in PICKERS.items():
        rates, worst = [], (0, "")
        for machine, of in MACHINES.items():
            for bind in (FULL, SPREAD):
                rate, most = _over(of, picker, bind, usual(of))
                rates.append(rate)
                worst = max(worst, most)
                yield _spans_row(name, machine, bind, rate)
        print(f"{name:<30}" + "".join(f"{rate:>9.1f}" for rate in rates) + f"{worst[1]:>11}")
    known = (f"{low:g} to {high:g}" if low < high else f"{low:g}" for low, high in UPSTREAM.values())
    print(f"{'known of koordinator':<30}" + "".join(f"{one:>9}" for one in known) + f"{WORST:>11}")


def _spans_row(name: str, machine: str, bind: BindPolicy, rate: float) -> Row:
    """A row with its target, or the nearer end of what was known."""
    text = f"{name}, {machine}, {bind}: more NUMA nodes than needed"
    if not name.startswith("koordinator"):
        return Row(text, rate, "%", 0 if name.startswith("optimal") else None)
    known = min(UPSTREAM[machine, bind], key=lambda end: abs(end - rate))
    return Row(text, rate, "%", None, "lower", REFERENCE, known)


Case = tuple[int, int, int]
"""Free CPUs, CPUs of PCPULevel pods, and a number of CPUs that is free."""


def usual(of: Lab) -> Iterator[Case]:
    """States with an eighth of the cores free, or any number up to all, each as likely, and anywhere."""
    chance, made = random.Random("usual"), 0
    while made < STATES:
        count = len(of.cores)
        free = sum(chance.sample(of.cores, chance.randint(count // 8, count)))
        n = chance.choice(USUAL)
        if n <= free.bit_count():
            made += 1
            yield free, 0, n


def _over(of: Lab, picker: Picker, bind: BindPolicy, cases: Iterator[Case]) -> tuple[float, tuple[int, str]]:
    """How many results span more NUMA nodes than needed, in %, and the worst of them."""
    over, worst = 0, (0, "")
    for free, _, n in cases:
        used, least = of.spanned(picker(of, free, n, bind, 0)), of.needed(free, n)
        over += used > least
        worst = max(worst, (used - least, f"{used} for {least}" if used > least else ""))
    return 100 * over / STATES, worst


def torn() -> Iterator[Row]:
    """The same, and exclusivity given up, where pods have taken single threads as well."""
    print(f"\n{STATES:,} random states, single threads taken as well, requests of 2 to 24 CPUs, 2x4 NUMA; %")
    print(f"{'':<30}{'more NUMA nodes than needed':>30}{'exclusivity dropped':>22}")
    print(f"{'':<30}{'full':>12}{'spread':>9}{'worst':>9}{'full':>13}{'spread':>9}")
    for name, picker in PICKERS.items():
        over = [_over(LARGEST, picker, bind, ragged(LARGEST)) for bind in (FULL, SPREAD)]
        rates, worst = [rate for rate, _ in over], max(most for _, most in over)[1]
        lost = [_dropped(LARGEST, picker, bind) for bind in (FULL, SPREAD)]
        print(f"{name:<30}{rates[0]:>12.1f}{rates[1]:>9.1f}{worst:>9}{lost[0]:>13.1f}{lost[1]:>9.1f}")
        target = 0 if name.startswith("optimal") else None
        for bind, rate, drop in zip((FULL, SPREAD), rates, lost, strict=True):
            yield Row(f"{name}, torn cores, {bind}: more NUMA nodes than needed", rate, "%", target)
            yield Row(f"{name}, torn cores, {bind}: exclusivity dropped", drop, "%", target)


def ragged(of: Lab) -> Iterator[Case]:
    """States that pods of 1 to 12 CPUs anywhere have left, some PCPULevel; requests of 2 to 24 CPUs."""
    chance, made = random.Random("quality"), 0
    while made < STATES:
        free, same = _ragged(of, chance)
        n = chance.randint(2, 24)
        if n <= free.bit_count():
            made += 1
            yield free, same, n


def _ragged(of: Lab, chance: random.Random) -> tuple[int, int]:
    everything = of.shape.all
    free, same, load = everything, 0, chance.random() * 0.8
    while free.bit_count() > everything.bit_count() * (1 - load):
        taken = 0
        for _ in range(chance.randint(1, 12)):
            core = chance.choice([core for core in of.cores if core & free]) & free
            taken |= core if chance.random() < 0.5 else core & -core
            free &= ~taken
        same |= taken if chance.random() < 0.3 else 0
    return free, same


def _dropped(of: Lab, picker: Picker, bind: BindPolicy) -> float:
    """How many results share a core with a PCPULevel pod though they need not, in %."""
    asked = [(free, same, n) for free, same, n in ragged(of) if same]
    lost = sum(of.dropped(picker(of, free, n, bind, same), free, same, bind) for free, same, n in asked)
    return 100 * lost / len(asked)


def lives() -> Iterator[Row]:
    """What is left after arrivals and ends, as far as requests of usual sizes fit one NUMA node."""
    print(
        f"\n{ARRIVALS:,} arrivals and ends at {LOAD:.0%} load; the last {LAST:,} states of {len(SEEDS)} lives"
    )
    print(f"{'':<30}{'fit one NUMA node, %':>22}{'in whole cores, %':>20}{'pods split needlessly, %':>26}")
    for name, picker in PICKERS.items():
        lives = [_life(LARGEST, picker, seed) for seed in SEEDS]
        fits, whole, split = (sum(life[i] for life in lives) / len(lives) for i in range(3))
        print(f"{name:<30}{fits:>22.1f}{whole:>20.1f}{split:>26.1f}")
        yield Row(f"{name}: requests that fit one NUMA node", fits, "%", None, "higher")
        yield Row(f"{name}: requests that fit whole cores of one NUMA node", whole, "%", None, "higher")
        yield Row(f"{name}: pods on more NUMA nodes than needed", split, "%", None)


def _life(of: Lab, picker: Picker, seed: int) -> tuple[float, float, float]:
    """Means over the last states: % that fit, % that fit whole cores; and % of all pods split needlessly."""
    chance, free, pods = random.Random(seed), of.shape.all, list[int]()
    arrived = split = fit = whole = 0
    for step in range(ARRIVALS):
        size = chance.choice((1, 2, 2, 3, 4, 4, 5, 6, 8, 8, 12, 16))
        used = 1 - free.bit_count() / of.shape.all.bit_count()
        if size <= free.bit_count() and (not pods or chance.random() < 0.5 + 2 * (LOAD - used)):
            pods.append(picker(of, free, size, FULL, 0))
            arrived += 1
            split += of.spanned(pods[-1]) > of.needed(free, size)
            free &= ~pods[-1]
        elif pods:
            free |= pods.pop(chance.randrange(len(pods)))
        if step >= ARRIVALS - LAST:
            fit += _fitting(of, free)
            whole += _fitting(of, sum(core for core in of.cores if not core & ~free))
    asked = LAST * len(SIZES)
    return 100 * fit / asked, 100 * whole / asked, 100 * split / arrived


def _fitting(of: Lab, free: int) -> int:
    """How many of the sizes fit one NUMA node."""
    most = max((node & free).bit_count() for node in of.shape.nodes)
    return sum(size <= most for size in SIZES)


def main() -> int:
    rows = [*spans(), *torn(), *lives()]
    report.keep("quality", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
