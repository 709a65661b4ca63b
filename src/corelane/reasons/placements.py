"""The sentences about CPUs picked, and about placements that the rules leave or forbid."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from corelane import quantity
from corelane.cpuset import format_list, named, verb
from corelane.reasons.codes import OTHER_INSTANCES, Code, Reason, count, down_commands

Phrase: TypeAlias = str | Callable[..., str]
"""A format string of the values by position, or a function of them."""


def render(table: Mapping[Code, tuple[str, Phrase]], reason: Reason) -> str:
    """Return the sentence of a reason whose code is in the table."""
    phrase = table[reason.code][1]
    return phrase.format(*reason.values) if isinstance(phrase, str) else phrase(*reason.values)


def numa_nodes(mask: int) -> str:
    return f"NUMA node{'s' if mask & mask - 1 else ''} {format_list(mask)}"


def _wrong_count(cpus: int, n: int) -> str:
    return f"proposed {named(cpus)}: {count(cpus.bit_count(), 'CPU')}, {n} required; reallocated"


def _unavailable(cpus: int, taken: int) -> str:
    return f"proposed {named(cpus)}: {format_list(taken)} {verb(taken)} unavailable; reallocated"


def _numa_nodes(nodes: int, n: int, free: Iterable[tuple[int, int]]) -> str:
    counts = ", ".join(f"{node}: {count}" for node, count in free)
    which = "the first with" if nodes.bit_count() == 1 else "the fewest with"
    return f"{numa_nodes(nodes)}: {which} {count(n, 'free CPU')} (free CPUs by node: {counts})"


def _picked_by_kubelet(cpus: int, whole: bool) -> str:
    return f"{named(cpus)}: {'whole cores' if whole else 'fullest cores first'}"


def _picked_by_koordinator(
    cpus: int, of_pod: int, bind: str, strategy: str, as_least: bool, whole: bool, cores: int, met: bool
) -> str:
    least = ", which Koordinator's scheduler treats as LeastAllocated (see distributeAsProposed)"
    how = f"{bind} by {strategy}{least if as_least else ''}: "
    how += "whole cores" if whole else count(cores, "core")
    return f"{_of_pod(cpus, of_pod)}{how}{', all preferences about other pods met' if met else ''}"


def _of_pod(cpus: int, of_pod: int) -> str:
    return f"{named(cpus)}; " if cpus == of_pod else f"{named(cpus)} of the pod's {named(of_pod)}; "


def _picked_by_optimal(
    cpus: int,
    of_pod: int,
    terms: Iterable[tuple[str, int]],
    exclusive: bool,
    required_level: str,
    affinity: bool,
    unproven: str,
    bound: int | None,
) -> str:
    """Terms that are not zero, and those of exclusivity and pod CPU affinity that the pod asks for.

    Terms in squared CPUs and the capacity score compare placements; they say nothing about a single one.
    """
    preferred = {"exclusive": exclusive, "affinity": affinity}
    values = {name: value for name, value in terms if value or preferred.get(name)}
    first = named(cpus) if cpus == of_pod else f"{named(cpus)} of the pod's {named(of_pod)}"
    where = []
    if nodes := values.pop("numa-nodes", 0):
        distance = values.pop("distance", 0)
        far = f" (distance {distance})" if nodes > 1 and distance else ""
        where.append(f"on {count(nodes, 'NUMA node')}{far}")
    if domains := values.pop("l3-domains", 0):
        where.append(count(domains, "L3 domain"))
    values.pop("distance", None)
    parts = [" ".join(filter(None, (first, ", ".join(where))))]
    for name, value in values.items():
        if value and name in _TERMS:
            parts.append(_TERMS[name].format(value, "" if value == 1 else "s"))
        elif name == "exclusive" and required_level:
            parts.append(f"{_rule_exclusive(required_level)}: met")
        elif name in _MET:
            parts.append(_MET[name])
    if unproven:
        limit = "" if bound is None else f", at best {bound}"
        parts.append(f"not proven optimal in {unproven}{limit}: the search ran out of steps")
    return "; ".join(parts)


_MET: Final = {"exclusive": "exclusivity preference met", "affinity": "CPU affinity preference met"}


_TERMS: Final = {
    "uneven": "NUMA nodes differ by {} CPU{}",
    "elsewhere": "{} resource{} not local",
    "bind": "{} core{} in violation of the bind policy",
    "exclusive": "{} unit{} shared against the exclusivity preference",
    "fallback": "{} core{} shared although NUMANodeLevel is unavailable",
    "affinity": "{} unit{} against the CPU affinity preference",
}


def _pod_cpus(cpus: int) -> str:
    return f"pod-level resources: {named(cpus) if cpus else 'shared pool'}"


def _memory(resource: str, size: int, nodes: int) -> str:
    return f"{quantity.of_value(size, quantity.BINARY_SI)} of {resource} on {numa_nodes(nodes)}"


def _term(name: str, number: str, text: str, value: int, runner_up: int | None) -> str:
    other = "" if runner_up is None else f" (runner-up {runner_up})"
    return f"{number}. {text}: {value}{other}"


def _not_proven(term: str, bound: int | None) -> str:
    best = "" if bound is None else f", at best {bound}"
    return f"the search ran out of steps: not proven optimal in {term}{best}"


def _cores_partly_used(free: int, others: int) -> str:
    parts = [
        f"{named(free)} free" if free else "",
        f"{named(others)} reserved or allocated to other pods" if others else "",
    ]
    return f"cores partly used: {' and '.join(part for part in parts if part)}"


def _requested(n: int) -> str:
    return f"{count(n, 'CPU')} requested"


def _too_few_left(rule: Reason, n: int, left: int, barred: int) -> str:
    return f"{render(SENTENCES, rule)}: {_requested(n)}, {left} left ({named(barred)} ruled out)"


def _too_few_on_nodes(policy: str, n: int, allowed: int, usable: Iterable[tuple[int, int]]) -> str:
    by_node = list(usable)
    most = sum(sorted((cpus for _, cpus in by_node), reverse=True)[:allowed])
    where = "one NUMA node" if allowed == 1 else f"{allowed} NUMA nodes"
    counts = ", ".join(f"node {node}: {cpus}" for node, cpus in by_node)
    return f"{policy}: {_requested(n)}, at most {most} usable on {where} ({counts})"


def _rule_exclusive(level: str) -> str:
    return "exclusive NUMA node" if level == "numa" else f"exclusive at {level} level"


def _rule_affinity(avoid: bool, name: str, level: str) -> str:
    return f"{'avoid' if avoid else 'prefer'} {name or 'other pods'} at {level} level"


def _move_pods(pods: Iterable[tuple[str, int]]) -> str:
    every = list(pods)
    moved = [f"{pod} off {named(cpus)}" for pod, cpus in every if not pod.startswith(OTHER_INSTANCES)]
    ended = [
        f"end the containers of other corelane instances on {named(cpus)}: {' and '.join(down_commands(pod))}"
        for pod, cpus in every
        if pod.startswith(OTHER_INSTANCES)
    ]
    return "; and ".join([*([f"move {' and '.join(moved)}"] if moved else []), *ended])


def _drop_requirement(requirement: str, also: Reason | None) -> str:
    return f"drop the requirement {requirement}{f' and {render(SENTENCES, also)}' if also else ''}"


SENTENCES: Final[Mapping[Code, tuple[str, Phrase]]] = {
    Code.ALREADY_ADMITTED: ("existing", "pod already admitted: CPU allocation unchanged"),
    Code.PROPOSAL_USED: ("proposal", lambda cpus: f"{named(cpus)} used as proposed by the scheduler"),
    Code.PROPOSAL_WRONG_COUNT: ("conflict", _wrong_count),
    Code.PROPOSAL_UNAVAILABLE: ("conflict", _unavailable),
    Code.PROPOSAL_VIOLATES_OPTIONS: (
        "conflict",
        lambda cpus: f"proposed {named(cpus)}: violates the node's CPU manager options; reallocated",
    ),
    Code.PROPOSAL_VIOLATES_RULES: (
        "conflict",
        lambda cpus: f"proposed {named(cpus)}: violates a rule of the node or the pod; reallocated",
    ),
    Code.PROPOSALS_DIFFER: (
        "conflict",
        "proposed CPUs differ between containers, one set for the pod required; reallocated",
    ),
    Code.NUMA_NODES: ("numa", _numa_nodes),
    Code.PICKED_BY_KUBELET: ("pick", _picked_by_kubelet),
    Code.PICKED_BY_KOORDINATOR: ("pick", _picked_by_koordinator),
    Code.PICKED_BY_OPTIMAL: ("pick", _picked_by_optimal),
    Code.COMPLETED_PROPOSAL: ("pick", lambda cpus: f"{named(cpus)}: of the CPUs proposed for the pod"),
    Code.POD_CPUS: ("pod", _pod_cpus),
    Code.PART_OF_POD_CPUS: ("part", lambda cpus: f"{named(cpus)} of the pod's CPUs"),
    Code.DEVICES: ("devices", lambda resource, ids: f"{resource}: {', '.join(ids)}"),
    Code.MEMORY: ("memory", _memory),
    Code.PCPU_LEVEL_WITHOUT_SMT: ("note", "exclusive policy {0} has no effect: no core has SMT siblings"),
    Code.SPREAD_WITHOUT_SMT: ("note", "bind policy {0} has no effect: no core has SMT siblings"),
    Code.KOORDINATOR_NOT_ENOUGH: ("refused", "not enough cpus available to satisfy request"),
    Code.KOORDINATOR_BIND_POLICY: (
        "refused",
        "insufficient CPUs to satisfy required cpu bind policy {0}",
    ),
    Code.KOORDINATOR_NUMA: ("refused", "node(s) Insufficient NUMA Node resources"),
    Code.NO_PLACEMENT: ("refused", lambda requirement, why: render(SENTENCES, why)),
    Code.RULE_CPUS: ("limit", "{0}"),
    Code.RULE_OTHERS_EXCLUSIVE: ("guard", "{0} units exclusive to other pods"),
    Code.RULE_EXCLUSIVE: ("exclusive", _rule_exclusive),
    Code.RULE_AFFINITY: ("affinity", _rule_affinity),
    Code.RULE_BIND_POLICY: ("bind", "bind policy {0}"),
    Code.RULE_NUMA_POLICY: ("numa", "{0}"),
    Code.RULE_NUMA_EXCLUSIVE: ("numa-exclusive", "exclusive NUMA node"),
    Code.TOO_FEW_CPUS: ("cpus", lambda n, free: f"{_requested(n)}, {free} free"),
    Code.TOO_FEW_CPUS_LEFT: ("cpus", _too_few_left),
    Code.TOO_FEW_CORES: (
        "bind",
        lambda policy, n, cores: (
            f"required {policy}: {_requested(n)}, {count(cores, 'core')} with a free CPU"
        ),
    ),
    Code.TOO_FEW_WHOLE_CORES: (
        "bind",
        lambda policy, n, whole, usable: (
            f"required {policy}: {_requested(n)}, {whole} of {usable} usable CPUs are in whole cores"
        ),
    ),
    Code.NOT_WHOLE_CORES: (
        "bind",
        lambda policy, n: f"required {policy}: {_requested(n)}, not a multiple of the free cores' threads",
    ),
    Code.TOO_FEW_CPUS_ON_NUMA_NODES: ("numa", _too_few_on_nodes),
    Code.NUMA_EXCLUSIVE_UNMET: (
        "numa-exclusive",
        "required exclusive NUMA node: pods on one NUMA node and pods on several do not share nodes",
    ),
    Code.RESOURCES_NOT_LOCAL: (
        "resources",
        lambda policy, names: (
            f"{policy + ': ' if policy else ''}the NUMA nodes with the CPUs lack {', '.join(names)}"
        ),
    ),
    Code.TERM: ("", _term),
    Code.ONLY_ANSWER: ("decided", lambda cpus: f"{named(cpus)}: no other CPUs fit"),
    Code.TERM_DECIDES: (
        "decided",
        lambda cpus, other, term, value, theirs: (
            f"{format_list(cpus)} rather than {format_list(other)}: {term} decides, {value} against {theirs}"
        ),
    ),
    Code.LOWER_IDS_WIN: (
        "decided",
        lambda cpus, other: (
            f"{format_list(cpus)} rather than {format_list(other)}: equally good, and the lower ids win"
        ),
    ),
    Code.NOT_PROVEN: ("proof", _not_proven),
    Code.CORES_PARTLY_USED: ("bind", _cores_partly_used),
    Code.EXCLUSIVE_POLICY_UNMET: ("exclusive", "exclusive policy {0} is unavailable: {1} cores are shared"),
    Code.EXCLUSIVE_POLICY_FALLBACK: (
        "exclusive",
        "exclusive policy {0} is unavailable, so PCPULevel holds there: {1} cores are shared",
    ),
    Code.AFFINITY_SELECTS_NOTHING: ("affinity", "CPU affinity: {0} selects no pod with bound CPUs"),
    Code.REQUEST_FEWER_CPUS: (
        "fewer",
        lambda cpus: f"request {count(cpus, 'CPU')}{' or fewer' * (cpus > 1)}",
    ),
    Code.MOVE_PODS: ("release", _move_pods),
    Code.DROP_REQUIREMENT: ("soften", _drop_requirement),
}
