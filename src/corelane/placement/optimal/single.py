"""The common case: one L3 domain holds it all, so that terms 2 to 5 are at their best."""

from corelane.machine.model import LOCAL_DISTANCE
from corelane.placement.optimal.filling import steering
from corelane.placement.optimal.lowest import lower, pick
from corelane.placement.optimal.problem import Problem
from corelane.placement.optimal.search import Found
from corelane.placement.optimal.spans import Rank
from corelane.placement.optimal.tables import MASK

__all__ = ["in_one_domain"]

_RANK = Rank(0, 1, 0, LOCAL_DISTANCE)


def in_one_domain(problem: Problem) -> Found | None:
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
    return Found(_RANK, best, _lowest(problem, tied), 1) if tied else None


def _lowest(problem: Problem, tied: list[tuple[int, int]]) -> int:
    """The lowest CPUs of equally good domains: a domain whose lowest CPU is too high is not looked into."""
    found = pick(problem, *tied[0])
    for domain, taken in tied[1:]:
        usable = problem.shape.domains[domain] & problem.usable
        if found & -found >= usable & -usable:
            found = lower(found, pick(problem, domain, taken))
    return found
