"""An admission told container by container: each step of the choice, what else could be, the runner-up."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Final

from corelane.cpuset import CPUSet, format_list
from corelane.node import managers
from corelane.node.admission import why_shared
from corelane.node.decision import Decision
from corelane.node.explain import hint_merge, picker_steps
from corelane.node.explain.explanation import (
    CandidateNodes,
    ContainerExplanation,
    HintMerge,
    Step,
    locality,
)
from corelane.node.explain.hint_merge import ResourceHints
from corelane.node.kubelet import podlevel, static
from corelane.node.kubelet.static import Refusal
from corelane.node.ledger import NodeState
from corelane.node.managers import Managers
from corelane.placement import hints
from corelane.placement.kubelet.picker import NotEnoughCPUs
from corelane.placement.topologymanager import NUMAAffinity
from corelane.workload import ContainerKind, ContainerRequest, PodRequest

__all__ = ["Explained"]

MOST_NODES: Final = 8
"""Up to so many NUMA nodes all sets of them are listed: there are 2 ** nodes."""
SHOWN: Final = 6
"""How many sets of NUMA nodes are shown."""
_TOLD: Final = ("existing", "proposal", "part")
"""Reasons of a decision that say all."""


class Explained:
    """The containers of an admission one after the other, as `node.admission` took them."""

    def __init__(self, state: NodeState, request: PodRequest, decision: Decision) -> None:
        self.state, self.request, self.decision = state, request, decision
        self.available, self.reusable = state.free_exclusive.mask, 0
        self.managers = managers.needed(state, request)

    def lines(self) -> Iterator[ContainerExplanation]:
        for container in self.request.containers:
            line = self.line(container)
            yield line
            if not self.decision.admitted and line.requested and not line.cpus:
                return
            self.go_on(container, line.cpus.mask)

    def go_on(self, container: ContainerRequest, cpus: int) -> None:
        self.available &= ~cpus
        lends = container.kind is ContainerKind.INIT
        self.reusable = self.reusable | cpus if lends else self.reusable & ~cpus

    @cached_property
    def as_one(self) -> bool:
        """Whether the pod is placed as one piece."""
        return podlevel.applies(self.state, self.request)

    @cached_property
    def of_pod(self) -> HintMerge | None:
        """What the providers say of the whole pod, where it is asked for as such and not for CPUs alone."""
        if self.state.config.numa.policy == "none" or self.state.config.numa.scope != "pod":
            return None
        if self.as_one:
            cpus = podlevel.cpu_hints(self.state, self.request, self.state.free_exclusive.mask)
            wanted = podlevel.whole_cpus(self.state, self.request)
            of = self.managers or Managers(self.state, self.request, None, None)
            said = hint_merge.of_pod(of, self.request, ResourceHints("cpu", wanted, cpus), as_one=True)
        elif self.managers is not None:
            said = hint_merge.of_pod(self.managers, self.request, self.cpu_hints(self.pod_cpus, 0))
        else:
            return None
        return hint_merge.merge(self.state, said)

    @cached_property
    def pod(self) -> NUMAAffinity:
        """The affinity of all containers, in pod scope."""
        if self.managers is not None:
            return self.managers.pod_affinity(self.cpu_hints(self.pod_cpus, 0).hints)
        return static.affinity(self.state, self.available, 0, self.pod_cpus)

    @cached_property
    def pod_cpus(self) -> int:
        return 0 if self.state.config.policy == "none" else static.pod_cpus(self.request)

    def cpu_hints(self, n: int, reusable: int) -> ResourceHints:
        return ResourceHints("cpu", n, static.cpu_hints(self.state, self.available, reusable, n))

    def line(self, container: ContainerRequest) -> ContainerExplanation:
        config = self.state.config
        n = (
            self.request.exclusive_cpus(container, pod_level=config.pod_level)
            if config.policy != "none"
            else 0
        )
        told = any(step.step in _TOLD for step in self.said(container))
        if self.as_one or not (n or self.managers):
            return self.told_line(container, n)
        provided, candidates = self.provided(container, n), tuple(self.candidates(n)) if n else ()
        merge = hint_merge.merge(self.state, provided) if provided else None
        try:
            affinity = self.affinity(container, n)
            if self.managers:
                self.managers.allocate_devices(container, affinity)
            if told or not n:
                line = self.told_line(container, n)
            else:
                line = self.cpu_line(container, n, affinity, provided)
            if self.managers:
                self.managers.allocate_memory(container, affinity)
        except (Refusal, ValueError) as error:
            kind, step = container.kind.value, self.refused(n, error)
            return ContainerExplanation(container.name, kind, n, CPUSet(), (step,), candidates, merge=merge)
        chosen = tuple(_marked(candidates, affinity)) if not told else ()
        return replace(line, candidates=chosen, merge=merge)

    def said(self, container: ContainerRequest) -> tuple[Step, ...]:
        """The reasons of the decision."""
        cpus = str(self.decision.assignments.get(container.name, CPUSet()))
        return tuple(
            Step(reason.step, reason.text, cpus if reason.step == "part" else "")
            for reason in self.decision.reasons
            if reason.container in ("", container.name)
        )

    def told_line(self, container: ContainerRequest, n: int) -> ContainerExplanation:
        """Of a container of whom the decision says all; a refused one says nothing of its containers."""
        cpus = self.decision.assignments.get(container.name, CPUSet())
        steps = self.said(container) or (Step("shared", self.why_shared(container)),)
        return ContainerExplanation(container.name, container.kind.value, n, cpus, steps)

    def why_shared(self, container: ContainerRequest) -> str:
        if not self.decision.admitted and self.as_one:
            return "shares out what the pod gets as a whole"
        return why_shared(self.state, self.request, container)

    def provided(self, container: ContainerRequest, n: int) -> list[ResourceHints]:
        """The hints of all providers for one container, where not only CPUs are asked for."""
        numa = self.state.config.numa
        if self.managers is None or numa.policy == "none" or numa.scope == "pod":
            return []
        return hint_merge.of_container(self.managers, container, self.cpu_hints(n, self.reusable))

    def affinity_over(
        self, available: int, reusable: int, n: int, provided: list[ResourceHints]
    ) -> NUMAAffinity:
        """The topology manager's word if these CPUs were free, and all else as it is."""
        if not provided:
            return static.affinity(self.state, available, reusable, n)
        cpus = static.cpu_hints(self.state, available, reusable, n)
        said = [cpus if one.resource == "cpu" else one.hints for one in provided]
        return static.aligned(self.state, said)

    def affinity(self, container: ContainerRequest, n: int) -> NUMAAffinity:
        """The topology manager's word: one for the pod in pod scope, else one for each container."""
        if self.state.config.numa.scope == "pod":
            return self.pod
        if self.managers is not None:
            return self.managers.affinity(container, self.cpu_hints(n, self.reusable).hints)
        return static.affinity(self.state, self.available, self.reusable, n)

    def cpu_line(
        self, container: ContainerRequest, n: int, affinity: NUMAAffinity, provided: list[ResourceHints]
    ) -> ContainerExplanation:
        steps = [*self.why_nodes(n, affinity), *self.smt(n)]
        cpus, picked = self.picked(n, affinity)
        said = self.said(container)
        if self.decision.admitted and cpus != self.decision.assignments[container.name].mask:
            cpus, picked = self.decision.assignments[container.name].mask, [*said]
        given = CPUSet.from_mask(cpus)
        runner_up = CPUSet.from_mask(self.runner_up(n, cpus, provided))
        machine = self.state.machine
        more = [step for step in said if step.step in ("devices", "memory") and step not in picked]
        return ContainerExplanation(
            container.name,
            container.kind.value,
            n,
            given,
            (*steps, *picked, *more),
            locality=locality(machine, given),
            runner_up=runner_up,
            runner_up_locality=locality(machine, runner_up) if runner_up else None,
        )

    def refused(self, n: int, error: Exception) -> Step:
        """Upstream's text, and for the topology manager's what that comes from."""
        text = str(error) if self.decision.admitted else self.decision.message
        if self.managers is not None:
            return Step("refused", text)
        if isinstance(error, Refusal) and error.reason == "TopologyAffinityError":
            policy = self.state.config.numa.policy
            narrow = (
                "one NUMA node" if policy == "single-numa-node" else "as few NUMA nodes as an idle machine"
            )
            counts = ", ".join(f"{node}: {count}" for node, count in self.free_by_node())
            text = f"{error}: {policy} wants {n} CPUs from {narrow} (free CPUs by node: {counts})"
        return Step("refused", text)

    def smt(self, n: int) -> list[Step]:
        static.check_smt(self.state, self.available, n)
        if not self.state.config.options.full_pcpus_only:
            return []
        threads = self.state.topology.cpus_per_core
        return [Step("smt", f"full-pcpus-only: {n} is a multiple of the {threads} threads of a core")]

    def why_nodes(self, n: int, affinity: NUMAAffinity) -> list[Step]:
        policy = self.state.config.numa.policy
        if policy == "none":
            return [Step("numa", "topology manager policy none: every NUMA node is open")]
        if affinity.nodes is None:
            return [Step("numa", f"{policy}: the machine's NUMA nodes are all one: nothing to choose")]
        counts = ", ".join(f"{node}: {count}" for node, count in self.free_by_node())
        size = affinity.nodes.bit_count()
        nodes = f"NUMA node{'s' * (size > 1)} {format_list(affinity.nodes)}"
        why = "the fewest nodes that hold it" if size > 1 else "the first that holds it"
        if self.state.config.numa.prefer_closest_numa_nodes and size > 1:
            why += ", and of these the closest"
        wide = "" if affinity.preferred else ", though an idle machine would need fewer: not preferred"
        if self.managers is not None:
            why = "what all providers agree on"
            wide = "" if affinity.preferred else ": not what each prefers"
        in_pod = self.state.config.numa.scope == "pod"
        scope = f" for the {self.pod_cpus} of the whole pod" if in_pod else ""
        return [Step("numa", f"{policy}: {nodes}{scope}: {why}{wide} (free CPUs by node: {counts})")]

    def free_by_node(self) -> list[tuple[int, int]]:
        topology, pool = self.state.topology, self.available | self.reusable
        return [
            (number, (node & pool).bit_count())
            for number, node in zip(topology.numa_ids, topology.numa, strict=True)
        ]

    def candidates(self, n: int) -> Iterator[CandidateNodes]:
        """The sets of NUMA nodes that hold n, in the topology manager's order."""
        topology, config = self.state.topology, self.state.config
        if config.numa.policy == "none" or not 1 < len(topology.numa) <= MOST_NODES:
            return
        by_socket = config.options.align_by_socket
        n = self.pod_cpus if config.numa.scope == "pod" else n
        found = hints.cpu_hints(topology, self.available, self.reusable, n, by_socket=by_socket)
        free = dict(self.free_by_node())
        for hint in sorted(found, key=self.rank)[:SHOWN]:
            nodes = hint.nodes or 0
            count = sum(free[number] for number in free if nodes >> number & 1)
            yield CandidateNodes(format_list(nodes), count, hint.preferred, chosen=False)

    def rank(self, hint: hints.Hint) -> tuple[float, ...]:
        nodes = hint.nodes or 0
        away = 0.0
        if self.state.config.numa.prefer_closest_numa_nodes:
            away = hints.distance(nodes, {one.id: dict(one.distances) for one in self.state.machine.nodes})
        return not hint.preferred, nodes.bit_count(), away, nodes

    def picked(self, n: int, affinity: NUMAAffinity) -> tuple[int, list[Step]]:
        """As `static.allocate`: what lies near first, then the rest from anywhere."""
        pool, taken, steps = self.available | self.reusable, 0, list[Step]()
        if n > pool.bit_count() and not self.state.config.exact:
            raise NotEnoughCPUs(n, pool.bit_count())
        if affinity.nodes is not None:
            near = pool & static.near(self.state, affinity.nodes)
            hinted = affinity.nodes.bit_count()
            taken, steps = self.explained(near, min(n, near.bit_count()), hinted)
        if n > taken.bit_count():
            if affinity.nodes is not None:
                missing = n - taken.bit_count()
                steps.append(Step("beyond", f"{missing} more from other NUMA nodes: there are no more near"))
            more, further = self.explained(pool & ~taken, n - taken.bit_count())
            taken, steps = taken | more, [*steps, *further]
        return taken, steps

    def explained(self, cpus: int, n: int, hinted: int = 0) -> tuple[int, list[Step]]:
        state = self.state
        strategy = state.config.options.strategy(state.topology)
        return picker_steps.explain(
            state.machine, state.topology, cpus, n, strategy, exact=state.config.exact, hinted=hinted
        )

    def runner_up(self, n: int, cpus: int, provided: list[ResourceHints]) -> int:
        """What the container would get if somebody else had its CPUs; 0 when it would be refused."""
        available, reusable = self.available & ~cpus, self.reusable & ~cpus
        pool = available | reusable
        if n > pool.bit_count():
            return 0
        try:
            affinity = self.affinity_over(available, reusable, n, provided)
            static.check_smt(self.state, available, n)
            return static.allocate(self.state, pool, n, affinity.nodes)
        except Refusal:
            return 0


def _marked(candidates: tuple[CandidateNodes, ...], affinity: NUMAAffinity) -> Iterator[CandidateNodes]:
    nodes = format_list(affinity.nodes or 0)
    for candidate in candidates:
        yield replace(candidate, chosen=candidate.nodes == nodes)
