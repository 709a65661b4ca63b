"""What `corelane allocate` answers: the CPUs that a pod would get on a machine in some state, and why."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from corelane import node
from corelane.app import allocate_steps, machines, state_file, state_rules, state_settings
from corelane.app.state_errors import StateFileError
from corelane.app.state_settings import Settings
from corelane.cpuset import CPUSet, format_list
from corelane.node import Entry, LedgerError, NodeState, Origin, Phase, codec, static
from corelane.node.checkpoint import Checkpoint
from corelane.node.entries import Key, Sharing
from corelane.node.ledger import with_entries
from corelane.node.static import Refusal
from corelane.placement import hints
from corelane.placement.accumulator import NotEnoughCPUs
from corelane.placement.topologymanager import Affinity
from corelane.view import allocate as view
from corelane.view import tables
from corelane.view.allocate import Allocation, Candidate, ContainerLine, Step
from corelane.view.owners import Owner
from corelane.workload import Ask, ContainerAsk, ContainerKind, QOSClass

__all__ = ["AskError", "allocation", "ask_for", "ask_from", "main", "situation"]

MOST_NODES: Final = 8
"""Up to so many NUMA nodes all sets of them are listed: there are 2 ** nodes."""
SHOWN: Final = 6
"""How many sets of NUMA nodes are shown."""
_UID: Final = "corelane-allocate"
_POD_LEVEL: Final = (
    "the pod has resources as a whole: a kubelet without PodLevelResourceManagers lets it share the pool"
)
_KINDS_WITH_TEMPLATE = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job")


class AskError(ValueError):
    """A request that cannot be read; names the option, or the file and field, and what to do."""


def main(
    ask: Ask,
    source: str | None,
    path: Path | None,
    settings: Settings,
    form: str,
    say: Callable[[str], None],
    notes: tuple[str, ...] = (),
) -> int:
    """Print the answer as table, json or svg; 0 when the pod is admitted, 1 when refused.

    Raises AskError, SettingsError, StateFileError, NodeConfigError and MachineError for bad input.
    """
    state, more = situation(source, path, settings)
    found = allocation(state, ask, (*notes, *more))
    if form == "json":
        say(json.dumps(view.plain(found), indent=2))
    elif form == "svg":
        say(view.draw(found).rstrip("\n"))
    else:
        view.show(found, tables.console())
    return 0 if found.admitted else 1


def ask_for(cpus: str) -> Ask:
    """A Guaranteed pod of one container with that much CPU. Raises AskError."""
    milli = _milli(cpus)
    only = ContainerAsk("app", cpu_request=milli, cpu_limit=milli, memory_request=1, memory_limit=1)
    return Ask(_UID, "default", "request", QOSClass.GUARANTEED, (only,))


def _milli(cpus: str) -> int:
    from corelane.kube import quantity

    try:
        milli = quantity.milli(cpus)
    except quantity.QuantityError as error:
        raise AskError(f"--cpus: {cpus!r} is no amount of CPU such as 4 or 1500m: {error}") from None
    if milli < 0:
        raise AskError(f"--cpus: {cpus} is negative: ask for 0 or more CPUs")
    return milli


def ask_from(path: Path) -> tuple[Ask, tuple[str, ...]]:
    """What the pod in a manifest asks for, or the pods that a Deployment and its like make; and notes.

    Raises AskError naming file and field.
    """
    import msgspec

    from corelane.kube import decode
    from corelane.kube.decode import Malformed
    from corelane.kube.pod import Pod
    from corelane.kube.translate import TranslationError, pods

    try:
        pod = decode.one(Pod, msgspec.json.encode(_pod_tree(path)))
        if isinstance(pod, Malformed):
            raise AskError(f"{path}: {pod.error}")
        if not pod.spec.containers:
            raise AskError(f"{path}: spec.containers: is empty: a pod needs a container")
        ask = pods.ask(pod)
    except (TranslationError, TypeError) as error:
        raise AskError(f"{path}: {error}") from None
    ask = replace(ask, uid=ask.uid or _UID, namespace=ask.namespace or "default", name=ask.name or path.stem)
    return ask, (_POD_LEVEL,) if pod.spec.resources else ()


def _pod_tree(path: Path) -> dict[str, Any]:
    import yaml

    try:
        trees = [tree for tree in yaml.safe_load_all(state_file.read(path)) if tree is not None]
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise AskError(f"{path}: is no YAML or JSON: {' '.join(str(error).split())}") from None
    if len(trees) != 1 or not isinstance(trees[0], dict):
        raise AskError(f"{path}: holds {len(trees)} objects: give a file with one pod")
    tree = trees[0]
    kind = tree.get("kind")
    if kind in _KINDS_WITH_TEMPLATE:
        template = _member(path, _member(path, tree, "spec"), "template")
        return {"metadata": {**(tree.get("metadata") or {}), "uid": ""}, "spec": template.get("spec")}
    if kind != "Pod":
        raise AskError(
            f"{path}: kind: {kind!r} is no pod: give a Pod, or a {', '.join(_KINDS_WITH_TEMPLATE)}"
        )
    return tree


def _member(path: Path, tree: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = tree.get(name)
    if not isinstance(found, dict):
        raise AskError(f"{path}: {name}: is missing or no object")
    return found


def situation(source: str | None, path: Path | None, settings: Settings) -> tuple[NodeState, tuple[str, ...]]:
    """The node's state before the request, and what has to be said about it.

    A kubelet, whose release or state is given, sees all online CPUs; corelane those it may use.
    """
    content = state_file.read(path) if path else b""
    ledger = b'"corelane-ledger"' in content
    exact = bool(settings.version)
    if not settings.topology_policy and not (exact or settings.source):
        settings = replace(settings, topology_policy="best-effort")
    kubelets = exact or (bool(content) and not ledger)
    machine = state_settings.hardware(source) if kubelets else machines.load(source)
    state = state_settings.start(machine, settings, exact=exact)
    if path is None:
        return state, ()
    return _from_ledger(path, content, state) if ledger else (_from_checkpoint(path, state), ())


def _from_ledger(path: Path, content: bytes, state: NodeState) -> tuple[NodeState, tuple[str, ...]]:
    try:
        read = codec.decode(content, state.machine, state.config)
    except LedgerError as error:
        raise StateFileError(f"{path}: {error}") from None
    fitted, problems = node.rebase(read, state.machine, state.config)
    return fitted, tuple(problem.text for problem in problems)


def _from_checkpoint(path: Path, state: NodeState) -> NodeState:
    """The ledger that a kubelet's state comes to. Raises StateFileError if none would start with it."""
    loaded = state_file.load(path)
    if loaded.fault:
        raise StateFileError(f"{path}: {loaded.fault}")
    failing = state_rules.broken(state_rules.check(loaded.checkpoint, state))
    if failing:
        raise StateFileError(
            f"{path}: {failing[0].name}: {failing[0].text}: with --reserved-cpus, --policy and --option "
            "as the kubelet has them; `corelane state verify` says more"
        )
    entries: dict[Key, Entry] = {entry.key: entry for entry in _entries(loaded.checkpoint)}
    pods: dict[str, int] = {}
    for entry in entries.values():
        pods[entry.uid] = pods.get(entry.uid, 0) | entry.cpus.mask
    return with_entries(state, entries, {uid: 1000 * mask.bit_count() for uid, mask in pods.items()})


def _entries(found: Checkpoint) -> Iterator[Entry]:
    """An entry for each container; one whose CPUs a sibling has too counts as an init container."""
    for uid, containers in found.entries.items():
        before = 0
        for name, cpus in containers.items():
            kind = ContainerKind.INIT if before & cpus.mask else ContainerKind.APP
            before |= cpus.mask
            if cpus:
                yield _entry(uid, name, cpus, kind)
        if rest := found.pods.get(uid, CPUSet()).mask & ~before:
            yield _entry(uid, "(whole pod)", CPUSet.from_mask(rest), ContainerKind.APP)


def _entry(uid: str, name: str, cpus: CPUSet, kind: ContainerKind) -> Entry:
    return Entry(
        uid=uid,
        container=name,
        pod=uid,
        cpus=cpus,
        sharing=Sharing.ALONE,
        cls=QOSClass.GUARANTEED.value,
        kind=kind,
        origin=Origin.KUBELET,
        allocator="kubelet",
        phase=Phase.CONFIRMED,
        cpu_request=1000 * len(cpus),
    )


def allocation(state: NodeState, ask: Ask, notes: tuple[str, ...] = ()) -> Allocation:
    """What `node.admit` decides on this ask, with each step of the choice."""
    _, decision = node.admit(state, ask)
    lines = _Explained(state, ask, decision).lines()
    return Allocation(
        machine=state.machine,
        pod=ask.key,
        qos=ask.qos.value,
        policy=state.config.policy,
        admitted=decision.admitted,
        reason=decision.reason,
        message=decision.message,
        containers=tuple(lines if decision.admitted else map(_without_cpus, lines)),
        usable=state.usable,
        reserved=state.reserved,
        free=state.free_exclusive,
        shared=decision.shared,
        owners={
            cpu: Owner(f"{entry.pod}/{entry.container}", entry.cls) for cpu, entry in state.owners().items()
        },
        notes=notes,
    )


def _without_cpus(line: ContainerLine) -> ContainerLine:
    """A refused pod gets nothing, whatever was found for its first containers."""
    return replace(line, cpus=CPUSet(), quality=None, runner_up=CPUSet(), runner_up_quality=None)


class _Explained:
    """The containers of an admission one after the other, as `node.admission` took them."""

    def __init__(self, state: NodeState, ask: Ask, decision: node.Decision) -> None:
        self.state, self.ask, self.decision = state, ask, decision
        self.available, self.reusable = state.free_exclusive.mask, 0
        self.pod: Affinity | None = None

    def lines(self) -> Iterator[ContainerLine]:
        for container in self.ask.containers:
            line = self.line(container)
            yield line
            if not self.decision.admitted and line.wanted and not line.cpus:
                return
            self.go_on(container, line.cpus.mask)

    def go_on(self, container: ContainerAsk, cpus: int) -> None:
        self.available &= ~cpus
        lends = container.kind is ContainerKind.INIT
        self.reusable = self.reusable | cpus if lends else self.reusable & ~cpus

    def line(self, container: ContainerAsk) -> ContainerLine:
        wanted = 0 if self.state.config.policy == "none" else self.ask.exclusive_cpus(container)
        said = tuple(
            Step(reason.step, reason.text)
            for reason in self.decision.reasons
            if reason.container in ("", container.name)
        )
        if not wanted or any(step.step in ("existing", "proposal") for step in said):
            cpus = self.decision.assignments.get(container.name, CPUSet())
            steps = said or (Step("shared", "shares the pool"),)
            return ContainerLine(container.name, container.kind.value, wanted, cpus, steps)
        return self.exclusive_line(container, wanted, said)

    def exclusive_line(self, container: ContainerAsk, n: int, said: tuple[Step, ...]) -> ContainerLine:
        name, kind = container.name, container.kind.value
        candidates = tuple(self.candidates(n))
        try:
            affinity = self.affinity(n)
            chosen = tuple(_marked(candidates, affinity))
            steps = [*self.why_nodes(n, affinity), *self.smt(n)]
            cpus, picked = self.picked(n, affinity)
            if self.decision.admitted and cpus != self.decision.assignments[name].mask:
                cpus, picked = self.decision.assignments[name].mask, [*said]
        except (Refusal, ValueError) as error:
            return ContainerLine(name, kind, n, CPUSet(), (self.refused(n, error),), candidates)
        given = CPUSet.from_mask(cpus)
        runner_up = CPUSet.from_mask(self.runner_up(n, cpus))
        machine = self.state.machine
        return ContainerLine(
            name,
            kind,
            n,
            given,
            (*steps, *picked),
            chosen,
            view.quality(machine, given),
            runner_up,
            view.quality(machine, runner_up) if runner_up else None,
        )

    def refused(self, n: int, error: Exception) -> Step:
        """Upstream's text, and for the topology manager's what that comes from."""
        text = str(error)
        if isinstance(error, Refusal) and error.reason == "TopologyAffinityError":
            policy = self.state.config.numa.policy
            narrow = (
                "one NUMA node" if policy == "single-numa-node" else "as few NUMA nodes as an idle machine"
            )
            counts = ", ".join(f"{node}: {count}" for node, count in self.free_by_node())
            text += f": {policy} wants {n} CPUs from {narrow} (free CPUs by node: {counts})"
        return Step("refused", text)

    def affinity(self, n: int) -> Affinity:
        """The topology manager's word: one for the pod in pod scope, else one for each container."""
        if self.state.config.numa.scope != "pod":
            return static.affinity(self.state, self.available, self.reusable, n)
        if self.pod is None:
            self.pod = static.affinity(self.state, self.available, 0, static.pod_cpus(self.ask))
        return self.pod

    def smt(self, n: int) -> list[Step]:
        static.check_smt(self.state, self.available, n)
        if not self.state.config.options.full_pcpus_only:
            return []
        threads = self.state.topology.cpus_per_core
        return [Step("smt", f"full-pcpus-only: {n} is a multiple of the {threads} threads of a core")]

    def why_nodes(self, n: int, affinity: Affinity) -> list[Step]:
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
        scope = f" for the {static.pod_cpus(self.ask)} of the whole pod" if self.pod else ""
        return [Step("numa", f"{policy}: {nodes}{scope}: {why}{wide} (free CPUs by node: {counts})")]

    def free_by_node(self) -> list[tuple[int, int]]:
        topology, pool = self.state.topology, self.available | self.reusable
        return [
            (number, (node & pool).bit_count())
            for number, node in zip(topology.numa_ids, topology.numa, strict=True)
        ]

    def candidates(self, n: int) -> Iterator[Candidate]:
        """The sets of NUMA nodes that hold n, in the topology manager's order."""
        topology, config = self.state.topology, self.state.config
        if config.numa.policy == "none" or not 1 < len(topology.numa) <= MOST_NODES:
            return
        by_socket = config.options.align_by_socket
        n = static.pod_cpus(self.ask) if config.numa.scope == "pod" else n
        found = hints.cpu_hints(topology, self.available, self.reusable, n, by_socket=by_socket)
        free = dict(self.free_by_node())
        for hint in sorted(found, key=self.rank)[:SHOWN]:
            nodes = hint.nodes or 0
            count = sum(free[number] for number in free if nodes >> number & 1)
            yield Candidate(format_list(nodes), count, hint.preferred, chosen=False)

    def rank(self, hint: hints.Hint) -> tuple[float, ...]:
        nodes = hint.nodes or 0
        away = 0.0
        if self.state.config.numa.prefer_closest_numa_nodes:
            away = hints.distance(nodes, {one.id: dict(one.distances) for one in self.state.machine.nodes})
        return not hint.preferred, nodes.bit_count(), away, nodes

    def picked(self, n: int, affinity: Affinity) -> tuple[int, list[Step]]:
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
        return allocate_steps.explain(
            state.machine, state.topology, cpus, n, strategy, exact=state.config.exact, hinted=hinted
        )

    def runner_up(self, n: int, cpus: int) -> int:
        """What the container would get if somebody else had its CPUs; 0 when it would be refused."""
        available, reusable = self.available & ~cpus, self.reusable & ~cpus
        pool = available | reusable
        if n > pool.bit_count():
            return 0
        try:
            affinity = static.affinity(self.state, available, reusable, n)
            static.check_smt(self.state, available, n)
            return static.allocate(self.state, pool, n, affinity.nodes)
        except Refusal:
            return 0


def _marked(candidates: tuple[Candidate, ...], affinity: Affinity) -> Iterator[Candidate]:
    nodes = format_list(affinity.nodes or 0)
    for candidate in candidates:
        yield replace(candidate, chosen=candidate.nodes == nodes)
