"""The steps of an admission under the kubelet's rules, container by container, noted while it runs."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from corelane.cpuset import CPUSet, format_list
from corelane.node.admission import why_shared
from corelane.node.explain import hint_merge, picker_steps
from corelane.node.explain.hint_merge import ResourceHints
from corelane.node.explain.pod_explanation import (
    CandidateNodes,
    ContainerExplanation,
    HintMerge,
    Step,
    locality,
)
from corelane.node.kubelet import cpu_manager, podlevel
from corelane.node.kubelet.static import StaticAdmission
from corelane.node.ledger import Decision, NodeState
from corelane.node.managers import Managers, aligned, needed
from corelane.placement import hints
from corelane.placement.topologymanager import NUMAAffinity
from corelane.reasons import Code, Refusal, label, sentence
from corelane.reasons.placements import count
from corelane.workload import ContainerRequest, PodRequest

MOST_NODES: Final = 8
"""NUMA nodes up to which all sets of them are candidates: there are 2 ** nodes."""
SHOWN: Final = 6
"""Candidates that are reported."""


def explain(
    state: NodeState, request: PodRequest, decision: Decision
) -> tuple[list[ContainerExplanation], HintMerge | None]:
    """Return how each container of a pod, up to a rejected one, came to its CPUs; and the pod's hints."""
    if podlevel.applies(state, request):
        merge = _merge_of_one_piece(state, request)
        return [_by_decision(state, request, decision, one) for one in request.containers], merge
    if any(not reason.container and reason.code is Code.ALREADY_ADMITTED for reason in decision.reasons):
        return [_by_decision(state, request, decision, one) for one in request.containers], None
    admission = _Explaining(state, request, decision)
    with suppress(Refusal):
        admission.run()
    return admission.containers, admission.merge


def _merge_of_one_piece(state: NodeState, request: PodRequest) -> HintMerge:
    """Return the hints for a pod that is placed as one piece."""
    cpus = podlevel.cpu_hints(state, request, state.free_exclusive.mask)
    managers = needed(state, request) or Managers(state, request, None, None)
    of = ResourceHints("cpu", podlevel.whole_cpus(state, request), cpus)
    return hint_merge.merge(state, hint_merge.of_pod(managers, request, of, as_one=True))


def _by_decision(
    state: NodeState, request: PodRequest, decision: Decision, container: ContainerRequest
) -> ContainerExplanation:
    """Explain a container by the reasons of the decision alone."""
    cpus = decision.assignments.get(container.name, CPUSet())
    own = [reason for reason in decision.reasons if reason.container in ("", container.name)]
    steps = [
        Step(label(one), sentence(one), str(cpus) if one.code is Code.PART_OF_POD_CPUS else "") for one in own
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
            resources = hint_merge.of_pod(self.managers, self.request, self.cpu_hints(self.pod_cpus(), 0))
            self.merge = hint_merge.merge(self.state, resources)
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
            merge=hint_merge.merge(self.state, resources) if resources else None,
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
                candidates=tuple(replace(one, chosen=one.nodes == chosen) for one in candidates),
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
        return hint_merge.of_container(self.managers, container, self.cpu_hints(n, self.reusable))

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
            away = hints.distance(nodes, {one.id: dict(one.distances) for one in self.state.machine.nodes})
        return not hint.preferred, nodes.bit_count(), away, nodes

    def picked(self, pool: int, n: int, affinity: NUMAAffinity) -> list[Step]:
        """Return the picker's steps as in `static.allocate`: on the chosen nodes, then on others."""
        machine, topology, config = self.state.machine, self.state.topology, self.state.config
        near, steps = 0, list[Step]()
        if affinity.nodes is not None:
            near = pool & cpu_manager.near(self.state, affinity.nodes)
            hinted = affinity.nodes.bit_count()
            first = min(n, near.bit_count())
            steps = picker_steps.explain(machine, topology, config, near, first, hinted)
            n -= first
        if not n:
            return steps
        if affinity.nodes is not None:
            steps.append(Step("beyond", f"{n} more from other NUMA nodes: no more free CPUs on these"))
        return steps + picker_steps.explain(machine, topology, config, pool & ~near, n)

    def runner_up(self, n: int, available: int, reusable: int, others: Sequence[ResourceHints]) -> int:
        """Return the CPUs if these were available; 0 if the container would be rejected."""
        pool = available | reusable
        if n > pool.bit_count():
            return 0
        try:
            if others:
                cpus = cpu_manager.cpu_hints(self.state, available, reusable, n)
                merged = [cpus if one.resource == "cpu" else one.hints for one in others]
                affinity = aligned(self.state, merged)
            else:
                affinity = cpu_manager.affinity(self.state, available, reusable, n)
            cpu_manager.check_smt(self.state, available, n)
            return cpu_manager.allocate(self.state, pool, n, affinity.nodes)
        except Refusal:
            return 0
