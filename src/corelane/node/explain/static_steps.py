"""An admission under the kubelet's rules, step by step: NUMA hints, their merge, and the picker's choices."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from corelane.cpuset import CPUSet, bits, format_list, named
from corelane.machine.model import Machine
from corelane.node import memory_manager
from corelane.node.admission import why_shared
from corelane.node.config import NodeConfig
from corelane.node.explain.pod_explanation import (
    CandidateNodes,
    ContainerExplanation,
    HintMerge,
    HintSet,
    ProviderHints,
    Step,
    locality,
)
from corelane.node.kubelet import cpu_manager
from corelane.node.kubelet.static import StaticAdmission
from corelane.node.ledger import Decision, NodeState
from corelane.node.managers import Managers, aligned, needed
from corelane.placement import families, hints
from corelane.placement.families import Family
from corelane.placement.kubelet import picker
from corelane.placement.kubelet.accumulator import PickerStep, PickerSteps, Why
from corelane.placement.topology import Topology
from corelane.placement.topologymanager import Hints, NUMAAffinity
from corelane.reasons import Code, Refusal, label, sentence
from corelane.reasons.codes import count
from corelane.workload.request import ContainerRequest, PodRequest

SHOWN: Final = 6
"""Sets of NUMA nodes reported of each provider."""


@dataclass(frozen=True, slots=True)
class ResourceHints:
    """The hints of one provider for an amount of one resource."""

    resource: str
    amount: int
    hints: Hints


def of_container(managers: Managers, container: ContainerRequest, cpus: ResourceHints) -> list[ResourceHints]:
    """Return the hints for one container in the kubelet's order: devices, CPUs, memory."""
    devices = managers.devices.wanted(container) if managers.devices else {}
    amounts = managers.memory_wanted(container) if managers.memory else {}
    hints = managers.memory.hints(amounts) if managers.memory else []
    return [*_devices(managers, devices), cpus, *_memory(amounts, hints)]


def of_pod(
    managers: Managers, request: PodRequest, cpus: ResourceHints, *, as_one: bool = False
) -> list[ResourceHints]:
    """Return the hints for all containers together, in pod scope, or for a pod placed as one piece."""
    devices = managers.devices.of_pod(request) if managers.devices else {}
    amounts: dict[str, int] = {}
    hints: list[Hints] = []
    if managers.memory and as_one and request.level:
        amounts, hints = (
            memory_manager.wanted(request.level),
            cpu_manager.memory_hints(managers.memory, request),
        )
    elif managers.memory and not as_one:
        amounts = memory_manager.of_pod(request)
        hints = managers.memory.hints(amounts)
    return [*_devices(managers, devices), cpus, *_memory(amounts, hints)]


def _devices(managers: Managers, counts: dict[str, int]) -> Iterator[ResourceHints]:
    for name, n in counts.items():
        if managers.devices:
            yield ResourceHints(name, n, managers.devices.hint(name, n))


def _memory(amounts: dict[str, int], hints: list[Hints]) -> Iterator[ResourceHints]:
    for i, (name, size) in enumerate(amounts.items()):
        yield ResourceHints(name, size, hints[min(i, len(hints) - 1)])


def merge_hints(state: NodeState, hints: Iterable[ResourceHints]) -> HintMerge:
    """Return all hints, the best first, and the result of the topology manager."""
    hints = list(hints)
    try:
        affinity = aligned(state, [hint.hints for hint in hints])
    except Refusal:
        affinity = NUMAAffinity(None, False, False)
    return HintMerge(
        tuple(_reported(state, hint) for hint in hints),
        format_list(affinity.nodes or 0),
        affinity.preferred,
        affinity.admit,
    )


def _reported(state: NodeState, of: ResourceHints) -> ProviderHints:
    if of.hints is None:
        return ProviderHints(of.resource, of.amount, word="no preference")
    sets = list(_sets(state, of.hints)) if isinstance(of.hints, Family) else []
    if not sets:
        return ProviderHints(of.resource, of.amount, word="impossible")
    return ProviderHints(of.resource, of.amount, tuple(sets[:SHOWN]), len(sets))


def _sets(state: NodeState, family: Family) -> Iterator[HintSet]:
    """Yield the sets of NUMA nodes, preferred ones first, then by size."""
    ids = list(bits(state.numa_nodes))
    sets = [member for member in families.members(family.sets) if member and member < 1 << family.count]
    for mask in sorted(sets, key=lambda mask: (not family.preferred[mask], mask.bit_count(), mask)):
        nodes = sum(1 << ids[i] for i in bits(mask))
        yield HintSet(format_list(nodes), bool(family.preferred[mask]))


_LEVELS: Final = {"numa node": "NUMA node", "l3": "L3 domain", "socket": "socket"}
_SENTENCES: Final = {
    Why.WHOLE_UNIT: "all of {unit}: idle, and {need} needed",
    Why.NO_WHOLE_UNIT: "no whole {level}: none is idle and has {need} or fewer",
    Why.FITS_CACHE: "{unit} has {free}, {missing} needed",
    Why.NO_CACHE_FITS: "no L3 domain has cores with exactly {need} free",
    Why.WHOLE_CORES: "whole cores from {origin}{next_core}",
    Why.NO_IDLE_CORE: "no core is idle",
    Why.SINGLE_CPUS: "{single} from {first}{next_cpus}",
    Why.SPREAD_BY_ID: "CPUs in order of their ids from {origin}",
    Why.SPREAD_IN_TURN: "one CPU of each core in turn, cores in partial use first, from {origin}",
    Why.DISTRIBUTED: "{shares}, which leaves the most even free CPUs (before: {before})",
    Why.MIXED_UP_NODES: "{missing} NUMA nodes: kubelets before 1.38 replace some of them (kubernetes#141238)",
    Why.NOT_DISTRIBUTED: "no number of NUMA nodes can give equal shares: packed instead",
    Why.LOWEST_IDS: "the lowest ids: the release's own algorithm finds no valid set",
}
_TOO_LARGE: Final = "no whole {level}: the smallest has {smallest}, {missing} needed"


def picker_steps(
    machine: Machine, topology: Topology, config: NodeConfig, cpus: int, n: int, hinted: int = 0
) -> list[Step]:
    """Return the steps by which the picker takes n of these CPUs. Raises NotEnoughCPUs, AccountingError."""
    steps = PickerSteps()
    take = picker.take if config.exact else picker.take_valid
    take(topology, cpus, n, config.options.strategy(topology), hinted=hinted, reporter=steps)
    units = {"l3": machine.l3_masks, "numa node": machine.numa_masks, "socket": machine.socket_masks}
    names = {
        (level, mask & topology.all): f"{_LEVELS[level]} {number}"
        for level, masks in units.items()
        for number, mask in masks
    }
    return [Step(step.level, _sentence(step, names), format_list(step.cpus)) for step in steps.steps]


_Names: TypeAlias = Mapping[tuple[str, int], str]
"""Level and mask of a unit to its name."""


def _name(names: _Names, level: str, unit: int) -> str:
    return names.get((level, unit)) or f"{_LEVELS[level]} of {named(unit)}"


def _sentence(step: PickerStep, names: _Names) -> str:
    too_large = step.why is Why.NO_WHOLE_UNIT and step.smallest > step.need
    following = format_list(step.following)
    giving = [node for node in step.nodes if node.taken]
    shares = _counts({node.node: node.taken for node in giving}, names)
    return (_TOO_LARGE if too_large else _SENTENCES[step.why]).format(
        level=_LEVELS.get(step.level, ""),
        unit=_name(names, step.level, step.unit) if step.unit else "",
        need=_count(step.need, "CPU"),
        missing=step.need,
        smallest=_count(step.smallest, "CPU"),
        free=_count(step.free, "free CPU"),
        single=_count(step.need, "single CPU"),
        first="cores in partial use first" if step.in_part else "the first idle core",
        next_core=f"; next would be core {following}" if following else "",
        next_cpus=f"; next would be CPUs {following}" if following else "",
        origin=_origin(step, names),
        shares=f"{'evenly ' if len(giving) > 1 else ''}from {_count(len(giving), 'NUMA node')} ({shares})",
        before=_counts({node.node: node.free for node in step.nodes}, names),
    )


def _origin(step: PickerStep, names: _Names) -> str:
    """Name the nodes that give CPUs, and the free CPUs of all if there was a choice."""
    ordered = sorted(step.nodes, key=lambda node: not node.taken)
    nodes = ", ".join(_name(names, "numa node", node.node) for node in ordered if node.taken)
    if all(node.taken for node in ordered):
        return nodes
    return f"{nodes} (fewest free CPUs first: {_counts({node.node: node.free for node in ordered}, names)})"


def _counts(nodes: Mapping[int, int], names: _Names) -> str:
    return ", ".join(f"{_name(names, 'numa node', node)}: {count}" for node, count in nodes.items())


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


MOST_NODES: Final = 8
"""NUMA nodes up to which all sets of them are candidates: there are 2 ** nodes."""


def explain(
    state: NodeState, request: PodRequest, decision: Decision
) -> tuple[list[ContainerExplanation], HintMerge | None]:
    """Return how each container of a pod, up to a rejected one, came to its CPUs; and the pod's hints."""
    if cpu_manager.applies(state, request):
        # The pod is placed as one piece.
        cpus = cpu_manager.pod_cpu_hints(state, request, state.free_exclusive.mask)
        managers = needed(state, request) or Managers(state, request, None, None)
        of = ResourceHints("cpu", cpu_manager.whole_cpus(state, request), cpus)
        merge = merge_hints(state, of_pod(managers, request, of, as_one=True))
        return [_by_decision(state, request, decision, container) for container in request.containers], merge
    if any(not reason.container and reason.code is Code.ALREADY_ADMITTED for reason in decision.reasons):
        return [_by_decision(state, request, decision, container) for container in request.containers], None
    admission = _Explaining(state, request, decision)
    with suppress(Refusal):
        admission.run()
    return admission.containers, admission.merge


def _by_decision(
    state: NodeState, request: PodRequest, decision: Decision, container: ContainerRequest
) -> ContainerExplanation:
    """Explain a container by the reasons of the decision alone."""
    cpus = decision.assignments.get(container.name, CPUSet())
    own = [reason for reason in decision.reasons if reason.container in ("", container.name)]
    steps = [
        Step(label(each), sentence(each), str(cpus) if each.code is Code.PART_OF_POD_CPUS else "")
        for each in own
    ]
    if not steps and decision.admitted:
        steps = [Step("shared", sentence(why_shared(state, request, container)))]
    elif not steps:
        steps = [Step("shared", "runs on a part of the pod's CPUs")]
    n = request.exclusive_cpus(container, gate=state.config.pod_level)
    return ContainerExplanation(container.name, container.kind.value, n, cpus, tuple(steps))


class _Explaining(StaticAdmission):
    """An admission that notes what each container could choose from, and what it got."""

    def __init__(self, state: NodeState, request: PodRequest, decision: Decision) -> None:
        super().__init__(state, request)
        self.outcome = decision
        self.containers: list[ContainerExplanation] = []
        self.merge: HintMerge | None = None
        self.steps: list[Step] = []
        """Steps of the picks for the container at hand; none if its CPUs were proposed."""
        self.chosen = 0
        """The NUMA nodes for the container at hand, as a mask of ids."""

    def place_each(self) -> None:
        numa = self.state.config.numa
        if self.managers is not None and numa.scope == "pod" and numa.policy != "none":
            resources = of_pod(self.managers, self.request, self.cpu_hints(self.pod_cpus(), 0))
            self.merge = merge_hints(self.state, resources)
        super().place_each()

    def place(self, container: ContainerRequest) -> None:
        n, before = self.exclusive_cpus(container), len(self.reasons)
        available, reusable = self.available, self.reusable
        resources, candidates = self.resource_hints(container, n), tuple(self.candidates(n))
        self.steps, self.chosen = [], 0
        explained = ContainerExplanation(
            container.name,
            container.kind.value,
            n,
            CPUSet(),
            (),
            candidates,
            merge=merge_hints(self.state, resources) if resources else None,
        )
        try:
            super().place(container)
        except Refusal as refusal:
            self.containers.append(replace(explained, steps=(self.refused(n, refusal),)))
            raise
        cpus = self.assigned.get(container.name, 0)
        explained = replace(explained, cpus=CPUSet.from_mask(cpus))
        steps = [Step(label(reason), sentence(reason)) for reason in self.reasons[before:]]
        if not self.steps:
            self.containers.append(replace(explained, steps=tuple(steps), candidates=()))
            return
        runner_up = CPUSet.from_mask(self.runner_up(n, available & ~cpus, reusable & ~cpus, resources))
        machine, chosen = self.state.machine, format_list(self.chosen)
        others = [step for step in steps if step.step not in ("numa", "pick")]
        self.containers.append(
            replace(
                explained,
                steps=(*self.steps, *others),
                candidates=tuple(replace(each, chosen=each.nodes == chosen) for each in candidates),
                locality=locality(machine, explained.cpus),
                runner_up=runner_up,
                runner_up_locality=locality(machine, runner_up) if runner_up else None,
            )
        )

    def cpus_for(self, container: ContainerRequest, n: int, affinity: NUMAAffinity) -> int:
        before = len(self.reasons)
        cpus = super().cpus_for(container, n, affinity)
        if not any(reason.code is Code.PROPOSAL_USED for reason in self.reasons[before:]):
            self.chosen = affinity.nodes or 0
            pool = (self.available | self.reusable) & ~self.promised(container)
            self.steps = [self.why_nodes(affinity), *self.smt(n), *self.picked(pool, n, affinity)]
        return cpus

    def pod_cpus(self) -> int:
        return 0 if self.state.config.policy == "none" else cpu_manager.pod_cpus(self.request)

    def cpu_hints(self, n: int, reusable: int) -> ResourceHints:
        return ResourceHints("cpu", n, cpu_manager.cpu_hints(self.state, self.available, reusable, n))

    def resource_hints(self, container: ContainerRequest, n: int) -> list[ResourceHints]:
        """Return the hints of all providers for one container that requests more than CPUs."""
        numa = self.state.config.numa
        if self.managers is None or numa.policy == "none" or numa.scope == "pod":
            return []
        return of_container(self.managers, container, self.cpu_hints(n, self.reusable))

    def refused(self, n: int, refusal: Refusal) -> Step:
        """Return upstream's text, and for the topology manager's the free CPUs of each NUMA node."""
        text = str(refusal) if self.outcome.admitted else self.outcome.message
        if self.managers is None and refusal.reason.code is Code.NOT_ALIGNED:
            policy = self.state.config.numa.policy
            fewest = "one NUMA node" if policy == "single-numa-node" else "as few NUMA nodes as if idle"
            what = f"{count(n, 'CPU')} requested from {fewest}"
            text = f"{refusal}: {what} (policy {policy}; {self.free_by_node()})"
        return Step("refused", text)

    def smt(self, n: int) -> list[Step]:
        if not self.state.config.options.full_pcpus_only:
            return []
        threads = self.state.topology.cpus_per_core
        return [Step("smt", f"full-pcpus-only: {n} is a multiple of {threads} CPUs per core")]

    def why_nodes(self, affinity: NUMAAffinity) -> Step:
        numa = self.state.config.numa
        if numa.policy == "none":
            return Step("numa", "topology manager policy none: any NUMA node")
        if affinity.nodes is None:
            return Step("numa", f"topology manager policy {numa.policy}: any NUMA node")
        several = affinity.nodes.bit_count() > 1
        nodes = f"NUMA node{'s' if several else ''} {format_list(affinity.nodes)}"
        if self.managers is not None:
            why = "common to the hints of all resources"
            worse = "" if affinity.preferred else ", but not preferred by all"
        else:
            why = "the fewest with enough free CPUs" if several else "the first with enough free CPUs"
            why += ", and the closest to each other" if several and numa.prefer_closest_numa_nodes else ""
            worse = "" if affinity.preferred else "; not preferred, as an idle machine would need fewer"
        scope = f" for all {self.pod_cpus()} CPUs of the pod" if numa.scope == "pod" else ""
        return Step("numa", f"{nodes}{scope}: {why}{worse} (policy {numa.policy}; {self.free_by_node()})")

    def free_by_node(self) -> str:
        counts = ", ".join(f"{number}: {count}" for number, count in self.free_cpus())
        return f"free CPUs by NUMA node: {counts}"

    def free_cpus(self) -> list[tuple[int, int]]:
        topology, pool = self.state.topology, self.available | self.reusable
        numa = zip(topology.numa_ids, topology.numa, strict=True)
        return [(number, (node & pool).bit_count()) for number, node in numa]

    def candidates(self, n: int) -> Iterator[CandidateNodes]:
        """Yield the sets of NUMA nodes with n free CPUs, in the topology manager's order."""
        topology, config = self.state.topology, self.state.config
        if not n or config.numa.policy == "none" or not 1 < len(topology.numa) <= MOST_NODES:
            return
        n = self.pod_cpus() if config.numa.scope == "pod" else n
        by_socket = config.options.align_by_socket
        sets = hints.cpu_hints(topology, self.available, self.reusable, n, by_socket=by_socket)
        free = self.free_cpus()
        for hint in sorted(sets, key=self.rank)[:SHOWN]:
            nodes = hint.nodes or 0
            count = sum(cpus for number, cpus in free if nodes >> number & 1)
            yield CandidateNodes(format_list(nodes), count, hint.preferred, chosen=False)

    def rank(self, hint: hints.Hint) -> tuple[float, ...]:
        nodes = hint.nodes or 0
        away = 0.0
        if self.state.config.numa.prefer_closest_numa_nodes:
            away = hints.distance(nodes, {node.id: dict(node.distances) for node in self.state.machine.nodes})
        return not hint.preferred, nodes.bit_count(), away, nodes

    def picked(self, pool: int, n: int, affinity: NUMAAffinity) -> list[Step]:
        """Return the picker's steps as in `static.allocate`: on the chosen nodes, then on others."""
        machine, topology, config = self.state.machine, self.state.topology, self.state.config
        near, steps = 0, list[Step]()
        if affinity.nodes is not None:
            near = pool & cpu_manager.near(self.state, affinity.nodes)
            hinted = affinity.nodes.bit_count()
            first = min(n, near.bit_count())
            steps = picker_steps(machine, topology, config, near, first, hinted)
            n -= first
        if not n:
            return steps
        if affinity.nodes is not None:
            steps.append(Step("beyond", f"{n} more from other NUMA nodes: no more free CPUs on these"))
        return steps + picker_steps(machine, topology, config, pool & ~near, n)

    def runner_up(self, n: int, available: int, reusable: int, others: Sequence[ResourceHints]) -> int:
        """Return the CPUs if these were available; 0 if the container would be rejected."""
        pool = available | reusable
        if n > pool.bit_count():
            return 0
        try:
            if others:
                cpus = cpu_manager.cpu_hints(self.state, available, reusable, n)
                merged = [cpus if other.resource == "cpu" else other.hints for other in others]
                affinity = aligned(self.state, merged)
            else:
                affinity = cpu_manager.affinity(self.state, available, reusable, n)
            cpu_manager.check_smt(self.state, available, n)
            return cpu_manager.allocate(self.state, pool, n, affinity.nodes)
        except Refusal:
            return 0
