"""The best choice: spans of NUMA nodes in order, in them the fewest L3 domains, the lowest score; and why."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Final, NamedTuple

from corelane.machine.model import LOCAL_DISTANCE
from corelane.placement.optimal import infeasible
from corelane.placement.optimal.demand import UNOCCUPIED, Demand, Occupancy, Shape, preferences
from corelane.placement.optimal.division import Alone, Combined, rough
from corelane.placement.optimal.domain_tables import MASK
from corelane.placement.optimal.filling import Budget, BudgetSpentError, Caps, aim, fewest, most, steering
from corelane.placement.optimal.infeasible import (
    TERMS,
    Alternative,
    Infeasible,
    Placement,
    Values,
    names,
    sort_key,
)
from corelane.placement.optimal.problem import PlacementProblem, assemble, build, lower, most_of, pick
from corelane.placement.optimal.spans import Rank, Span, choices
from corelane.reasons import Code, Reason
from corelane.workload.placement_spec import BindPolicy, ExclusivePolicy, NUMAStrategy, TopologyLevel

BUDGET: Final = 40_000
"""Steps of the search, about 20 ms of work."""


class Choice(NamedTuple):
    """The CPUs chosen, with the values of terms 2 to 4 and the score of terms 5 to 9.

    `fewest` is a number of L3 domains below which there is no choice of this rank.
    """

    rank: Rank
    score: int
    cpus: int
    fewest: int
    proven: bool = True


def place(
    shape: Shape, demand: Demand, free: int, occupancy: Occupancy = UNOCCUPIED, *, budget: int = BUDGET
) -> Placement | Infeasible:
    """Return the best `demand.cpus` of the CPUs in the mask `free`, by the objective of docs/placement.md.

    `free` are the CPUs that no pod holds; those that the demand may not have are ruled out here. `explain`
    does the same with the runner-up and reasons.
    """
    problem = build(shape, demand, free, occupancy)
    return answer(problem, budget) or infeasible.why_not(problem)


def answer(problem: PlacementProblem, budget: int) -> Placement | None:
    """The best placement within so many steps; None when nothing fits."""
    choice = in_one_domain(problem) or search(problem, Budget(budget))
    if choice is None:
        return None
    terms = _values(problem, choice)
    if choice.proven:
        return Placement(choice.cpus, terms)
    term, bound = _unproven(problem, choice, dict(terms))
    return Placement(choice.cpus, terms, False, term, bound)


def _values(problem: PlacementProblem, choice: Choice) -> Values:
    """The terms of what was found, from its rank and score."""
    *shared, strategy, shape = problem.rules.layout.unpack(choice.score)
    values = [*choice.rank, *shared]
    if problem.demand.strategy is not NUMAStrategy.DISTRIBUTE_EVENLY:
        del values[0]
    if problem.rules.layout.strategy:
        values.append(_left_over(problem, strategy))
    values.append(_room_before(problem) - shape)
    return tuple(zip(names(problem.demand.strategy), values, strict=True))


def _left_over(problem: PlacementProblem, score: int) -> int:
    """Term 8: the squares of what is left free, from their part of the score."""
    lost = score
    if problem.demand.strategy is NUMAStrategy.LEAST_ALLOCATED:
        lost = 2 * problem.demand.cpus * max(problem.node_free) - score
    return _squares(problem) - lost


def _squares(problem: PlacementProblem) -> int:
    return sum([free * free for free in problem.node_free])


def _room_before(problem: PlacementProblem) -> int:
    """Term 9 if nothing were taken."""
    room = problem.rules.rooms.__getitem__
    return sum(map(room, problem.whole)) + sum(map(room, problem.node_whole))


def _unproven(problem: PlacementProblem, choice: Choice, terms: dict[str, int]) -> tuple[str, int | None]:
    """The first term that may not be the best possible, and what it cannot beat."""
    bounds = {"l3-domains": choice.fewest, "bind": _always_broken(problem), "room": _room_before(problem)}
    bounds |= {"allocated": _squares(problem), "balance": 0}
    for name, value in terms.items():
        if name in ("uneven", "numa-nodes", "elsewhere", "distance"):
            continue
        if value != bounds.get(name, 0):
            return name, bounds.get(name, 0)
    return "ids", None


def _always_broken(problem: PlacementProblem) -> int:
    """Cores that break the bind policy however the CPUs are chosen: one, where their number asks for it."""
    size = problem.shape.core_size
    return int(not problem.rules.spread and size > 1 and problem.demand.cpus % size > 0)


_RANK = Rank(0, 1, 0, LOCAL_DISTANCE)


def in_one_domain(problem: PlacementProblem) -> Choice | None:
    """The best choice when one L3 domain of a node that is as good as any holds the demand; else None."""
    n, demand = problem.demand.cpus, problem.demand
    if max(problem.caps) < n or demand.resources or demand.numa_exclusive:
        return None
    caps, counts, touch, tables = problem.caps, problem.counts, problem.touch, problem.tables
    rooms, steered = problem.rules.rooms, demand.steered
    slope, curve = steering(problem) if steered else (0, 0)
    best, tied = -1, list[tuple[int, int]]()
    for node, inside in enumerate(problem.shape.inside):
        whole = problem.node_whole[node]
        base = problem.node_touch[node] + rooms[whole]
        if steered:
            base += n * (slope + curve * (n - 2 * problem.node_free[node]))
        for domain in inside:
            if caps[domain] < n:
                continue
            table = tables.known.get(counts[domain]) or tables.of(counts[domain])
            for taken, cost in table.rows[n] or table.row(n):
                score = base + touch[domain] + cost - rooms[whole - (taken & MASK)]
                if score == best:
                    tied.append((domain, taken))
                elif score < best or best < 0:
                    best, tied = score, [(domain, taken)]
    return Choice(_RANK, best, _lowest(problem, tied), 1) if tied else None


def _lowest(problem: PlacementProblem, tied: list[tuple[int, int]]) -> int:
    """The lowest CPUs of equally good domains: a domain whose lowest CPU is too high is not looked into."""
    found = pick(problem, *tied[0])
    for domain, taken in tied[1:]:
        usable = problem.shape.domains[domain] & problem.usable
        if found & -found >= usable & -usable:
            found = lower(found, pick(problem, domain, taken))
    return found


def search(problem: PlacementProblem, budget: Budget) -> Choice | None:
    """The best choice, or None when the demand does not fit."""
    for rank, spans in choices(problem):
        found = _in_spans(problem, rank, spans, budget)
        if found is not None:
            return found
    return None


def _in_spans(problem: PlacementProblem, rank: Rank, spans: Sequence[Span], budget: Budget) -> Choice | None:
    """The best choice of a rank: numbers of L3 domains in turn, and in each growing numbers of broken cores.

    The fewest that there could be of either are mostly possible, and keep the search small.
    """
    bounds = [(_fewest_domains(problem, span), span) for span in spans]
    unbroken = _unbroken(problem)
    caps = Caps(problem.caps, unbroken)
    for domains in range(min(bound for bound, _ in bounds), len(problem.caps) + 1):
        within = [span for bound, span in bounds if bound <= domains]
        least = min(_least_broken(problem, span, domains, unbroken) for span in within)
        for broken in (least, least + 1, least + 2, least + 4, None):
            filled: list[Alone | Combined] = []
            goal = aim(problem, domains, broken)
            try:
                for span in within:
                    look = Alone if span.count == 1 else Combined
                    filled.append(look(problem, span, goal, caps, budget))
            except BudgetSpentError:
                return Choice(rank, *(_best(filled) or rough(problem, spans[0])), domains, proven=False)
            best = _best(filled)
            if best is not None:
                return Choice(rank, *best, domains)
    return None


def _unbroken(problem: PlacementProblem) -> list[int]:
    """The most CPUs that each domain can give without breaking the bind policy."""
    spread = problem.rules.spread
    sizes = [1 if spread else kind.size if kind.usable == kind.size else 0 for kind in problem.kinds]
    return most_of(sizes, problem.counts)


def _least_broken(problem: PlacementProblem, span: Span, domains: int, unbroken: Sequence[int]) -> int:
    """A number of cores of which no choice of the span can do without breaking the bind policy.

    A core that breaks it gives at most all its threads but one (more than it should).
    """
    n, threads, size = problem.demand.cpus, problem.shape.threads, problem.shape.core_size
    inside = problem.shape.inside
    if threads == 1:
        return 0
    groups = [(node,) for node in span.nodes] if span.count == 1 else [span.nodes]
    unbroken_most = max(
        most((unbroken[i] for node in group for i in inside[node]), domains) for group in groups
    )
    odd = int(not problem.rules.spread and size > 1 and n % size > 0)
    return max(odd, -(-(n - unbroken_most) // (threads - 1)))


def _best(filled: Iterable[Alone | Combined]) -> tuple[int, int] | None:
    """The lowest score, and the lowest CPUs that reach it."""
    some = [filling for filling in filled if filling.score is not None]
    if not some:
        return None
    score = min(filling.score for filling in some if filling.score is not None)
    cpus = 0
    for filling in some:
        if filling.score == score:
            mask = filling.lowest()
            cpus = lower(cpus, mask) if cpus else mask
    return score, cpus


def _fewest_domains(problem: PlacementProblem, span: Span) -> int:
    """A number of L3 domains that no choice in the span can do without."""
    if span.count == 1:
        n, none = problem.demand.cpus, len(problem.caps) + 1
        inside = ((problem.caps[i] for i in problem.shape.inside[node]) for node in span.nodes)
        return min(fewest(caps, n, none) for caps in inside)
    most: list[dict[int, int]] = [{0: 0}] + [{} for _ in range(span.count)]
    for node in span.nodes:
        must = span.musts >> node & 1
        ways = [(j, cap) for j, cap in enumerate(_prefixes(problem, span, node)) if j and cap >= span.low]
        for used in range(span.count, -1, -1):
            before = most[used - 1] if used else {}
            here = {} if must else most[used]
            for domains, cpus in before.items():
                for j, cap in ways:
                    here[domains + j] = max(here.get(domains + j, 0), cpus + cap)
            most[used] = here
    enough = (domains for domains, cpus in most[-1].items() if cpus >= problem.demand.cpus)
    return min(enough, default=len(problem.caps) + 1)


def _prefixes(problem: PlacementProblem, span: Span, node: int) -> list[int]:
    """The most CPUs of 0, 1, 2 … of a node's domains that the span allows it to give."""
    caps = sorted((problem.caps[i] for i in problem.shape.inside[node]), reverse=True)
    return [min(total, span.high) for total in accumulate(caps, initial=0)]


def explain(
    shape: Shape, demand: Demand, free: int, occupancy: Occupancy = UNOCCUPIED, *, budget: int = BUDGET
) -> Placement | Infeasible:
    """As `place`, with the runner-up and reasons, or with what would make the demand fit.

    It takes some ten times as long.
    """
    problem = build(shape, demand, free, occupancy)
    placement = answer(problem, budget)
    if placement is None:
        return replace(infeasible.why_not(problem), changes=infeasible.changes(problem))
    second = _runner_up(problem, placement, budget)
    reasons = (
        *_terms(placement, second),
        *_verdict(placement, second),
        *_unmet_preferences(problem, placement),
    )
    return placement._replace(runner_up=second, reasons=reasons)


def _runner_up(problem: PlacementProblem, placement: Placement, budget: int) -> Alternative | None:
    """The best answer without one of the L3 domains chosen; failing that, without one of the cores."""
    cores = (core for core in problem.shape.cores() if core & placement.cpus)
    domains = (domain for domain in problem.shape.domains if domain & placement.cpus)
    return _best_without(problem, domains, budget) or _best_without(problem, cores, budget)


def _best_without(problem: PlacementProblem, units: Iterable[int], budget: int) -> Alternative | None:
    best: Alternative | None = None
    for unit in units:
        rest = assemble(
            problem.shape, problem.demand, problem.free, problem.usable & ~unit, problem.occupancy
        )
        answered = answer(rest, budget)
        if answered is not None and (best is None or _better(answered, best)):
            best = Alternative(answered.cpus, answered.terms)
    return best


def _better(placement: Placement, other: Alternative) -> bool:
    first, second = sort_key(placement.terms), sort_key(other.terms)
    return first < second or (first == second and lower(placement.cpus, other.cpus) == placement.cpus)


def _terms(placement: Placement, second: Alternative | None) -> Iterator[Reason]:
    """Yield the values of every term, here and for the runner-up."""
    others = dict(second.terms) if second else {}
    values = placement.values
    for term in TERMS:
        if term.name in values:
            runner_up = others[term.name] if others else None
            yield Reason(Code.TERM, (term.name, term.number, term.text, values[term.name], runner_up))


def _verdict(placement: Placement, second: Alternative | None) -> Iterator[Reason]:
    """Yield what decided, and whether it is proven."""
    yield _decided(placement, second)
    if not placement.proven:
        yield Reason(Code.NOT_PROVEN, (placement.unproven_term, placement.bound))


def _decided(placement: Placement, second: Alternative | None) -> Reason:
    if second is None:
        return Reason(Code.ONLY_ANSWER, (placement.cpus,))
    both = placement.cpus, second.cpus
    for term in TERMS:
        for (name, value), (_, theirs) in zip(placement.terms, second.terms, strict=True):
            if name == term.name and value != theirs:
                return Reason(Code.TERM_DECIDES, (*both, term.text, value, theirs))
    return Reason(Code.LOWER_IDS_WIN, both)


def _unmet_preferences(problem: PlacementProblem, placement: Placement) -> Iterator[Reason]:
    """Yield reasons for preferences that are not met."""
    demand, values = problem.demand, placement.values
    if demand.spread and problem.shape.threads == 1:
        yield Reason(Code.SPREAD_WITHOUT_SMT, (BindPolicy.SPREAD_BY_PCPUS,))
    if not demand.spread and values["bind"]:
        yield _broken(problem, placement.cpus)
    if demand.exclusive_policy and values["exclusive"]:
        yield _not_kept(problem, values)
    for affinity in demand.pod_affinity:
        if not affinity.avoid and not affinity.required and not affinity.cpus & problem.shape.all:
            yield Reason(Code.AFFINITY_SELECTS_NOTHING, (affinity.name or "the selector",))


def _broken(problem: PlacementProblem, cpus: int) -> Reason:
    """Which siblings of the CPUs are not with them."""
    siblings = problem.shape.touched(TopologyLevel.CORE, cpus) & ~cpus
    return Reason(Code.CORES_PARTLY_USED, (siblings & problem.free, siblings & ~problem.free))


def _not_kept(problem: PlacementProblem, values: dict[str, int]) -> Reason:
    policy = problem.demand.exclusive_policy
    if policy is ExclusivePolicy.NUMA_NODE_LEVEL:
        return Reason(Code.EXCLUSIVE_POLICY_FALLBACK, (policy, values["fallback"]))
    return Reason(Code.EXCLUSIVE_POLICY_UNMET, (policy, values["exclusive"]))


def evaluate(shape: Shape, demand: Demand, free: int, cpus: int, occupancy: Occupancy = UNOCCUPIED) -> Values:
    """Return terms 2 to 9 by their definition for any `cpus` of the `free` ones.

    Hard requirements are not looked at. The search does not use this: tests compare the two, and the choices
    of other allocators are rated by it.
    """
    problem = assemble(shape, demand, free & shape.all, cpus, occupancy)
    nodes = [i for i, node in enumerate(shape.nodes) if node & cpus]
    squares = sum((problem.free & node & ~cpus).bit_count() ** 2 for node in shape.nodes)
    return _in_play(
        demand,
        {
            "uneven": _uneven(problem, [(shape.nodes[i] & cpus).bit_count() for i in nodes]),
            "numa-nodes": len(nodes),
            "elsewhere": sum(
                sum(resource.free.get(shape.node_ids[i], 0) for i in nodes) < resource.wanted
                for resource in demand.resources
            ),
            "distance": shape.farthest(nodes),
            "l3-domains": sum(1 for domain in shape.domains if domain & cpus),
            "bind": _cores_broken(shape, demand, cpus),
            **_shared(problem, cpus),
            "allocated": squares,
            "balance": squares,
            "room": _room(shape, demand, problem.free & ~cpus),
        },
    )


def _in_play(demand: Demand, values: Mapping[str, int]) -> Values:
    """The terms that a demand has, in their order, with their values."""
    played = names(demand.strategy)
    return tuple(zip(played, map(values.__getitem__, played), strict=True))


def _room(shape: Shape, demand: Demand, free: int) -> int:
    """Term 9 of a set of free CPUs: over L3 domains, NUMA nodes and sizes, how often a size fits."""
    whole = sum(core for core in shape.cores() if not core & ~free)
    counts = [(whole & unit).bit_count() for unit in (*shape.domains, *shape.nodes)]
    return sum(count // size for count in counts for size in demand.sizes)


def _uneven(problem: PlacementProblem, counts: list[int]) -> int:
    granule = 1 if problem.rules.spread else problem.shape.threads
    return max(0, max(counts) - min(counts) - granule)


def _cores_broken(shape: Shape, demand: Demand, cpus: int) -> int:
    cores = [(core, core & cpus) for core in shape.cores() if core & cpus]
    if demand.spread:
        return sum(ours.bit_count() > 1 for _, ours in cores)
    return sum(core != ours for core, ours in cores)


def _shared(problem: PlacementProblem, cpus: int) -> dict[str, int]:
    """Term 7: per preference the touched units that are against it."""
    layout = problem.rules.layout
    values = {"exclusive": 0, "fallback": 0, "affinity": 0}
    for preference in preferences(problem.shape, problem.demand, problem.occupancy, layout):
        units = problem.shape.units(preference.level)
        against = sum(1 for unit in units if unit & cpus and unit & preference.against)
        name = next(name for name in values if getattr(layout, name) == preference.weight)
        values[name] += against
    return values
