"""Which CPUs a request would get, and why: a table with a map, JSON, or a drawing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from corelane.cpuset import CPUSet
from corelane.machine.model import Machine
from corelane.placement.memory import in_words
from corelane.view import objective as objectives
from corelane.view import svg, tables
from corelane.view.cpumap import cpumap
from corelane.view.objective import Objective
from corelane.view.owners import Owner

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "Allocation",
    "Candidate",
    "ContainerLine",
    "HintSet",
    "Memory",
    "Merge",
    "ProviderHints",
    "Quality",
    "Step",
    "draw",
    "plain",
    "quality",
    "show",
]


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the choice: a short stable key, a text for people, and the CPUs that it took."""

    step: str
    text: str
    cpus: str = ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A set of NUMA nodes that could hold a request, best first; `nodes` is a list string."""

    nodes: str
    free: int
    preferred: bool
    chosen: bool


@dataclass(frozen=True, slots=True)
class HintSet:
    """A set of NUMA nodes, a list string, that a provider could use; preferred if none smaller ever could."""

    nodes: str
    preferred: bool


@dataclass(frozen=True, slots=True)
class ProviderHints:
    """What a hint provider says of a resource: the best of its `total` sets, or in a word why there are none.

    `wanted` is in CPUs, bytes, or devices.
    """

    resource: str
    wanted: int
    sets: tuple[HintSet, ...] = ()
    total: int = 0
    word: str = ""


@dataclass(frozen=True, slots=True)
class Merge:
    """The hints of all providers, and what the topology manager makes of them; `nodes` "" leaves all open."""

    providers: tuple[ProviderHints, ...]
    nodes: str
    preferred: bool
    admitted: bool


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one resource that a container gets on some NUMA nodes, a list string."""

    resource: str
    size: int
    nodes: str


@dataclass(frozen=True, slots=True)
class Quality:
    """How close CPUs lie together; `split_cores` are those of which only some threads are in the set."""

    numa_nodes: int
    l3_domains: int
    cores: int
    split_cores: int

    def __str__(self) -> str:
        parts = [(self.numa_nodes, "NUMA node"), (self.l3_domains, "L3 domain"), (self.cores, "core")]
        text = ", ".join(f"{count} {word}{'s' * (count != 1)}" for count, word in parts)
        return f"{text} ({self.split_cores} of them in part)" if self.split_cores else text


@dataclass(frozen=True, slots=True)
class ContainerLine:
    """What one container would get; without `cpus` it shares the pool."""

    name: str
    kind: str
    wanted: int
    cpus: CPUSet
    steps: tuple[Step, ...]
    candidates: tuple[Candidate, ...] = ()
    quality: Quality | None = None
    runner_up: CPUSet = field(default_factory=CPUSet)
    """What it would get if others had these CPUs; empty when nothing else holds the request."""
    runner_up_quality: Quality | None = None
    memory: tuple[Memory, ...] = ()
    devices: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Extended resource to the ids of devices."""
    merge: Merge | None = None
    """How the providers of its hints agree, where more than CPUs are asked for."""
    pool: str = ""
    """The pool that it runs in, with its CPUs, where that is not all of the shared pool."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """The answer for one pod. `shared` is the pool after it; `owners` maps CPUs to who has them already."""

    machine: Machine
    pod: str
    qos: str
    policy: str
    admitted: bool
    reason: str
    message: str
    containers: tuple[ContainerLine, ...]
    usable: CPUSet
    reserved: CPUSet
    free: CPUSet
    """What could become exclusive before."""
    shared: CPUSet
    owners: Mapping[int, Owner] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    merge: Merge | None = None
    """How the providers agree on the pod as a whole, in pod scope."""
    objective: Objective | None = None
    """Under policy `pools`, what was weighed for the exclusive CPUs of the pod."""


def quality(machine: Machine, cpus: CPUSet) -> Quality:
    """How many units a set of CPUs touches, by the CPUs of the machine that can be used."""
    mask, usable = cpus.mask, machine.usable.mask
    cores = [core & usable for _, core in machine.core_masks if core & mask]
    return Quality(
        sum(1 for _, node in machine.numa_masks if node & mask),
        sum(1 for _, cache in machine.l3_masks if cache & mask),
        len(cores),
        sum(1 for core in cores if core & ~mask),
    )


def plain(found: Allocation) -> dict[str, Any]:
    """JSON with stable keys; CPU sets are list strings."""
    return {
        "machine": found.machine.name,
        "pod": found.pod,
        "qosClass": found.qos,
        "policy": found.policy,
        "admitted": found.admitted,
        "reason": found.reason,
        "message": found.message,
        "containers": [_plain_container(line) for line in found.containers],
        "cpus": str(found.usable),
        "reserved": str(found.reserved),
        "free": str(found.free),
        "sharedPool": str(found.shared),
        "notes": list(found.notes),
        "merge": _plain_merge(found.merge),
        "objective": objectives.plain(found.objective),
    }


def _plain_container(line: ContainerLine) -> dict[str, Any]:
    return {
        "name": line.name,
        "kind": line.kind,
        "wanted": line.wanted,
        "exclusive": bool(line.cpus),
        "cpus": str(line.cpus),
        "quality": asdict(line.quality) if line.quality else None,
        "steps": [asdict(step) for step in line.steps],
        "candidates": [asdict(candidate) for candidate in line.candidates],
        "runnerUp": str(line.runner_up),
        "runnerUpQuality": asdict(line.runner_up_quality) if line.runner_up_quality else None,
        "memory": [asdict(block) for block in line.memory],
        "devices": {resource: list(ids) for resource, ids in line.devices.items()},
        "merge": _plain_merge(line.merge),
        "pool": line.pool,
    }


def _plain_merge(merge: Merge | None) -> dict[str, Any] | None:
    return asdict(merge) | {"providers": [asdict(one) for one in merge.providers]} if merge else None


def show(found: Allocation, to: Console, *, picture: bool = True) -> None:
    """The answer, each step of it, the map of the machine with it, and what else has to be said."""
    if not found.admitted:
        to.print(f"{found.pod} is refused: {found.reason}: {found.message}", markup=False)
    rows = [_row(line, found) for line in found.containers]
    if rows:
        headings = ("container", "kind", "wants", "CPUs", "lie on", "runner-up")
        tables.show(f"{found.pod}  {found.qos}", headings, rows, to)
    if found.merge:
        _show_merge("the whole pod", found.merge, to)
    for line in found.containers:
        _show_steps(line, to)
    if found.objective:
        objectives.show(found.objective, to)
    if picture:
        to.print(cpumap(found.machine, _owners(found), width=to.width).rstrip("\n"), markup=True)
    for note in found.notes:
        to.print(f"note: {note}", markup=False)


def _row(line: ContainerLine, found: Allocation) -> tuple[str, ...]:
    pool = (line.pool or f"shared pool {found.shared}") if found.admitted else "-"
    cpus = str(line.cpus) if line.cpus else pool
    runner_up = f"{line.runner_up}: {line.runner_up_quality}" if line.runner_up else "-"
    return line.name, line.kind, str(line.wanted), cpus, str(line.quality or "-"), runner_up


def _show_steps(line: ContainerLine, to: Console) -> None:
    if line.candidates:
        rows = [
            (
                "chosen" if one.chosen else "",
                one.nodes,
                str(one.free),
                "preferred" if one.preferred else "wider than an idle machine needs",
            )
            for one in line.candidates
        ]
        tables.show(f"{line.name}: NUMA nodes that hold it, best first", ("", "nodes", "free", ""), rows, to)
    if line.merge:
        _show_merge(line.name, line.merge, to)
    if line.memory or line.devices:
        tables.show(f"{line.name}: memory and devices", ("", "", "on"), _belongings(line), to)
    rows_of_steps = [(str(i), one.step, one.cpus, one.text) for i, one in enumerate(line.steps, 1)]
    tables.show(f"{line.name}: why", ("", "step", "CPUs", ""), rows_of_steps, to)


def _belongings(line: ContainerLine) -> list[tuple[str, str, str]]:
    rows = [(one.resource, amount(one.resource, one.size), f"NUMA node {one.nodes}") for one in line.memory]
    return rows + [(resource, ", ".join(ids), "") for resource, ids in line.devices.items()]


def _show_merge(name: str, merge: Merge, to: Console) -> None:
    rows = [
        (one.resource, amount(one.resource, one.wanted), _sets(one, True), _sets(one, False))
        for one in merge.providers
    ]
    winner = (merge.nodes, "") if merge.preferred else ("", merge.nodes)
    rows.append(("merged", "", *winner))
    headings = ("provider", "wants", "preferred NUMA nodes", "other sets")
    tables.show(f"{name}: what each provider of hints says", headings, rows, to)
    to.print(f"{name}: {verdict(merge)}\n", markup=False)


def _sets(one: ProviderHints, preferred: bool) -> str:
    if one.word:
        return one.word if preferred else ""
    text = "  ".join(found.nodes for found in one.sets if found.preferred == preferred)
    more = one.total - len(one.sets)
    return f"{text} and {more} more".strip() if more and not preferred else text


def verdict(merge: Merge) -> str:
    """What the topology manager says."""
    plural = "s" if merge.nodes.strip("0123456789") else ""
    nodes = f"NUMA node{plural} {merge.nodes}" if merge.nodes else "any NUMA node"
    if not merge.admitted:
        return "refused: no preferred set in common"
    return f"{nodes} chosen ({'preferred' if merge.preferred else 'not preferred'})"


def amount(resource: str, wanted: int) -> str:
    """A number of CPUs or devices, or bytes in the largest binary unit that divides them."""
    if resource != "memory" and not resource.startswith("hugepages-"):
        return str(wanted)
    return in_words(wanted)


def draw(found: Allocation) -> str:
    """The machine as an SVG, coloured by owner: the new containers, those before, pool, and reserved CPUs.

    Below it the hints of every provider, the winner, and what containers get beside CPUs, where there is any.
    """
    lines = list(_captions(found))
    return svg.svg(found.machine, _owners(found), captions=lines)


def _captions(found: Allocation) -> Iterator[str]:
    if found.merge:
        yield from _merge_captions("the whole pod", found.merge)
    for line in found.containers:
        if line.merge:
            yield from _merge_captions(line.name, line.merge)
        for resource, what, where in _belongings(line):
            yield f"{line.name}: {resource} {what} {where}".rstrip()
    if found.objective:
        yield from objectives.captions(found.objective)


def _merge_captions(name: str, merge: Merge) -> Iterator[str]:
    for one in merge.providers:
        preferred, others = _sets(one, True), _sets(one, False)
        said = f"{preferred}; not preferred: {others}" if others else preferred
        yield f"{name}: {one.resource} {amount(one.resource, one.wanted)}: {said}"
    yield f"{name}: {verdict(merge)}"


def _owners(found: Allocation) -> dict[int, Owner]:
    shared, reserved = Owner("shared pool", "shared"), Owner("reserved", "reserved")
    owners = (
        dict.fromkeys(found.shared, shared) | dict.fromkeys(found.reserved, reserved) | dict(found.owners)
    )
    for line in found.containers:
        owners |= dict.fromkeys(line.cpus, Owner(f"{found.pod}/{line.name}", found.qos))
    return dict(sorted(owners.items()))
