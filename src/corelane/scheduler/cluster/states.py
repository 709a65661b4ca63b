"""Canonical states: what of a node's CPUs decides about the next pod, shared by all nodes that are alike.

Theory of operation. Which pods a node admits follows from its machine, its settings, and which CPUs, memory
and devices are taken, by masks: not from names and UIDs, and from the CPU that pods request in total only
through the check of the node's capacity, which is made apart, on numbers (`Fact.CAPACITY`). So a thousand
nodes are in a few canonical states, each with one representative `NodeState` from which all that does not
decide was taken, and the answer for (state, pod shape) is computed once, by the one `admit`. The answer names
the canonical state that follows, which is the claim.

Who shares a unit with whom matters to few: pods with rules about other pods, nodes with such pods, and
allocators that look at them. Those states are interned in detail: with every pod's CPUs, labels and rules.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import count
from types import MappingProxyType
from typing import Any, Final
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from corelane.machine.model import Machine
from corelane.node.admission import capacity_refusal
from corelane.node.config import NodeConfig
from corelane.node.entries import Entry
from corelane.node.ledger import Decision, NodeState, latest_pod_spans
from corelane.node.managers import held
from corelane.node.zones.zone_state import ZonesState
from corelane.placement.topology import Topology
from corelane.reasons import Reason
from corelane.scheduler.cluster import node_kinds
from corelane.scheduler.cluster.node_kinds import (
    UNLIMITED,
    CPUState,
    ResourceIndex,
    ZoneAmounts,
    is_amplified,
    table_of,
    zone_amounts,
)
from corelane.scheduler.cluster.pods import PodInfo, Shape
from corelane.workload import ExclusivePolicy
from corelane.workload.request import ContainerKind

MOST_MACHINES: Final = 1000
"""Kept by what was published; then reading begins again."""
MOST_ANSWERS: Final = 16_384
"""Answers kept, twice at most; one takes 2 to 6 KB with the state that follows."""
_ASSUMED: Final = "#"


class Fact(IntEnum):
    """Numbers that follow from a canonical state, as columns have them."""

    FREE = 0
    """CPUs that may become exclusive."""
    FREE_ZONE = 1
    """The most of them on one NUMA node."""
    CORES = 2
    """Cores of which every CPU is free."""
    CORES_ZONE = 3
    CAPACITY = 4
    """MilliCPU that pods may request in all; `UNLIMITED` where no capacity is checked by the ledger."""
    EXCLUSIVE = 5
    """CPUs allocated exclusively."""
    SHARED = 6
    """CPUs in the shared pool."""
    BEST_EFFORT = 7
    """CPUs in the BE pool."""
    SYSTEM = 8
    """CPUs of SYSTEM pods."""
    COUNTED = 9
    """1 where CPUs are known, else 0."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class CanonicalState:
    """See above; `id` is never used again for another state."""

    id: int
    state: CPUState
    config: int
    """Id of the machine with its settings."""
    detailed: bool
    """Whether pods with rules about others may be judged on it."""
    amounts: tuple[ZoneAmounts, ...]
    facts: NDArray[np.int64]
    table: NDArray[np.int64]
    """Amounts of the node and by NUMA node; see `table_of`."""
    resources: ResourceIndex
    """Of the columns of `table`, and of those of all states of this table of states."""
    capacity: int = UNLIMITED
    amplified: bool = False
    zones: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    """Numbers of each NUMA node, by the names of the columns that have them."""


@dataclass(slots=True, eq=False)
class Answer:
    """What became of a pod of some shape on a canonical state."""

    decision: Decision
    state: CanonicalState
    """With the pod."""
    before: CanonicalState
    spans: tuple[int, ...] = ()
    """Number of NUMA nodes of each container; see `latest_pod_spans`."""
    derived: dict[str, Any] = field(default_factory=dict)
    """What plugins made of it, by their names."""


class States:
    """The table of canonical states, and of answers. States live as long as a node or an answer has them."""

    def __init__(self) -> None:
        self._states: WeakValueDictionary[Hashable, CanonicalState] = WeakValueDictionary()
        self._ids = count()
        self._uids = count()
        self._configs: dict[Hashable, int] = {}
        self._last: dict[int, tuple[NodeConfig, int]] = {}
        """The settings that were seen last, by the number of the machine: writing them out takes 35 µs."""
        self._machines: dict[Machine, tuple[Machine, Topology, int]] = {}
        self._shared: dict[int, tuple[Machine, Topology, int]] = {}
        """The same by the id() of the shared machine: hashing one takes 100 µs."""
        self._published: dict[Hashable, Machine] = {}
        """Shared machines by what was published of them: reading one takes 1 ms."""
        self._young: dict[tuple[int, int], Answer] = {}
        self._old: dict[tuple[int, int], Answer] = {}
        self._words: dict[Hashable, Hashable] = {}
        self._resources = ResourceIndex()
        self.misses = 0
        """Admissions that were computed."""
        self.worded = 0
        """Refusals of these that were put into words."""

    def machine(self, hardware: Hashable) -> Machine | None:
        """Return the shared machine of a node that published this before."""
        return self._published.get(hardware)

    def learn(self, hardware: Hashable, state: NodeState) -> None:
        """Keep the machine of a shared state for nodes that publish the same."""
        if len(self._published) >= MOST_MACHINES:
            self._published.clear()
        self._published[hardware] = state.machine

    def shared(self, state: NodeState) -> NodeState:
        """Return the state with the machine and topology that all nodes with equal hardware share."""
        machine, topology, _ = self._machine(state)
        return state if state.machine is machine else replace(state, machine=machine, topology=topology)

    def intern(self, state: CPUState, *, detailed: bool = False, config: int | None = None) -> CanonicalState:
        """Return the canonical state of a node's; `config` where it is known to be the same as another's."""
        if isinstance(state, NodeState):
            return self._intern_ledger(state, config, detailed=detailed or not _is_plain(state))
        if isinstance(state, ZonesState):
            config = self._config(("zones", state.policy, state.scope, state.max_numa_nodes, state.crane))
            key = config, repr(state.zones), tuple(sorted(state.reserved.items()))
            assumed = MappingProxyType({_ASSUMED: state.reserved} if state.reserved else {})
            return self._get(key, config, replace(state, assumed=assumed), detailed=True)
        config = self._config(("uncounted", bool(state.problem)))
        return self._get((config, state.problem), config, state, detailed=True)

    def admit(self, canonical: CanonicalState, shape: Shape) -> Answer:
        """Return what becomes of a pod of this shape; the node's capacity is not checked."""
        key = canonical.id, shape.id
        answer = self._young.get(key)
        if answer is None:
            answer = self._old.pop(key, None) or self._admit(canonical, shape)
            if len(self._young) >= MOST_ANSWERS:
                self._old, self._young = self._young, {}
            self._young[key] = answer
        return answer

    def recent(self, canonical: CanonicalState, shape: Shape) -> Answer | None:
        """Return what `admit` answered, if that was lately."""
        return self._young.get((canonical.id, shape.id))

    def shared_words(self, rejection: Hashable) -> Any:
        """Return an equal value that was given before: most nodes reject a pod for the same reasons."""
        if len(self._words) >= MOST_ANSWERS:
            self._words.clear()
        return self._words.setdefault(rejection, rejection)

    def known(self, canonical: CanonicalState, shape: Shape) -> bool:
        """Return whether `admit` has the answer already."""
        key = canonical.id, shape.id
        return key in self._young or key in self._old

    def _admit(self, canonical: CanonicalState, shape: Shape) -> Answer:
        assert shape.request is not None
        self.misses += 1
        request = replace(shape.request, uid=f"#{next(self._uids)}")
        after, decision = node_kinds.admit(canonical.state, request)
        if after is canonical.state:
            return Answer(decision, canonical, canonical)
        state = self.following(canonical, after)
        spans = latest_pod_spans(after) if isinstance(after, NodeState) else ()
        return Answer(decision, state, canonical, spans)

    def following(self, before: CanonicalState, state: CPUState) -> CanonicalState:
        """Return the canonical state of a node after a change of its pods."""
        config = before.config if isinstance(state, NodeState) else None
        return self.intern(state, detailed=before.detailed, config=config)

    def _get(self, key: Hashable, config: int, state: CPUState, *, detailed: bool) -> CanonicalState:
        canonical = self._states.get(key)
        if canonical is None:
            amounts = zone_amounts(state)
            facts = np.array(_facts(state, amounts), dtype=np.int64)
            capacity = int(facts[Fact.CAPACITY])
            table = table_of(state, amounts, self._resources)
            canonical = CanonicalState(
                next(self._ids),
                state,
                config,
                detailed,
                amounts,
                facts,
                table,
                self._resources,
                capacity,
                isinstance(state, NodeState) and is_amplified(state.config),
            )
            self._states[key] = canonical
        return canonical

    def _intern_ledger(self, state: NodeState, config: int | None, *, detailed: bool) -> CanonicalState:
        machine, topology, number = self._machine(state)
        if config is None:
            config = self._settings(number, state.config)
        masks = state.reserved.mask, state.exclusive.mask, state.shared_with_be.mask, state.bound.mask
        others = tuple(_others(state)) if detailed else None
        key = config, masks, _memory(state), _devices(state), tuple(_zoned(state)), others
        canonical = self._states.get(key)
        return canonical or self._get(key, config, _stripped(state, machine, topology), detailed=detailed)

    def _machine(self, state: NodeState) -> tuple[Machine, Topology, int]:
        shared = self._shared.get(id(state.machine))
        if shared is None:
            machine = replace(state.machine, name="")
            shared = self._machines.setdefault(machine, (machine, state.topology, len(self._machines)))
            self._shared[id(shared[0])] = shared
        return shared

    def _settings(self, machine: int, config: NodeConfig) -> int:
        """The id of a machine with its settings; most nodes have those of the node before."""
        last, number = self._last.get(machine, (None, 0))
        if config is last:
            return number
        if config != last:
            number = self._config((machine, repr(config)))
        self._last[machine] = config, number
        return number

    def _config(self, key: Hashable) -> int:
        return self._configs.setdefault(key, len(self._configs))


def _is_plain(state: NodeState) -> bool:
    """Whether no pod without rules of its own has to know which CPUs each pod has."""
    if state.config.policy != "pools":
        return True
    options = state.config.pools
    if options.allocator != "optimal" or options.numa:
        return False
    return not any(
        placed.avoids or placed.exclusive or placed.exclusive_policy is not ExclusivePolicy.NONE
        for placed in state.placed_pods.values()
    )


def _holds(entry: Entry) -> bool:
    """Whether a container has something that others cannot have."""
    return bool(entry.cpus or entry.zone is not None or entry.devices or entry.memory or entry.bubble)


def _stripped(state: NodeState, machine: Machine, topology: Topology) -> NodeState:
    """The representative: without pods that hold nothing, and without amounts that are counted apart."""
    entries = {key: entry for key, entry in state.entries.items() if _holds(entry)}
    uids = {uid for uid, _ in entries}
    placed = {uid: placed for uid, placed in state.placed_pods.items() if uid in uids}
    return replace(
        state,
        machine=machine,
        topology=topology,
        entries=MappingProxyType(entries),
        pods=MappingProxyType(dict.fromkeys(uids, 0)),
        placed_pods=MappingProxyType(placed),
        requested=0,
        generation=0,
    )


def _others(state: NodeState) -> Iterator[Hashable]:
    """Each pod that is bound or held to a zone: CPUs, labels and rules, in the order of the ledger."""
    masks: dict[str, int] = {}
    for entry in state.entries.values():
        if entry.placed:
            masks[entry.uid] = masks.get(entry.uid, 0) | entry.cpus.mask
    for uid, mask in masks.items():
        placed = state.placed_pods.get(uid)
        yield (
            mask,
            placed
            and (
                placed.namespace,
                tuple(sorted(placed.labels.items())),
                placed.exclusive_policy,
                placed.exclusive,
                repr(placed.avoids),
                repr(dict(placed.amounts)) if placed.amounts else "",
            ),
        )


def _zoned(state: NodeState) -> list[tuple[int, int, int]]:
    """NUMA nodes, milliCPU and burst of each pod that is held to some."""
    if state.config.policy != "pools":
        return []
    pods: dict[str, tuple[int, int]] = {}
    for entry in state.entries.values():
        if entry.zone is not None:
            milli = 0 if entry.kind is ContainerKind.INIT else entry.cpu_request
            pods[entry.uid] = entry.zone.mask, pods.get(entry.uid, (0, 0))[1] + milli
    bursts = {uid: state.placed_pods[uid].burst if uid in state.placed_pods else 0 for uid in pods}
    return sorted((zone, milli, bursts[uid]) for uid, (zone, milli) in pods.items())


def _memory(state: NodeState) -> Hashable:
    return tuple(
        (numa, one.group, one.assignments, tuple(sorted(one.free.items())))
        for numa, one in sorted(state.memory.items())
    )


def _devices(state: NodeState) -> Hashable:
    if not state.config.devices:
        return ()
    used = held(state.entries.values())
    return tuple(sorted((resource, tuple(sorted(ids))) for resource, ids in used.items()))


def _facts(state: CPUState, amounts: tuple[ZoneAmounts, ...]) -> list[int]:
    cpus = [amount.cpus for amount in amounts] or [0]
    cores = [amount.cores or 0 for amount in amounts] or [0]
    facts = dict.fromkeys(Fact, 0)
    facts |= {Fact.FREE: sum(cpus), Fact.FREE_ZONE: max(cpus), Fact.CAPACITY: UNLIMITED}
    facts |= {Fact.CORES: sum(cores), Fact.CORES_ZONE: max(cores)}
    if isinstance(state, NodeState):
        facts[Fact.FREE] = min(len(state.free_exclusive), sum(cpus))
        facts[Fact.CAPACITY] = UNLIMITED if state.config.exact else state.allocatable
        facts[Fact.EXCLUSIVE] = len(state.exclusive)
        facts[Fact.SHARED], facts[Fact.BEST_EFFORT] = len(state.shared_pool), len(state.best_effort_pool)
        facts[Fact.SYSTEM] = len(state.system_pool)
    facts[Fact.COUNTED] = int(bool(amounts))
    return [facts[fact] for fact in Fact]


_uids: Final = count()


def with_pod(
    states: States, before: CanonicalState, info: PodInfo, *, fact: bool
) -> tuple[CanonicalState, bool]:
    """Return the state with a pod that may have CPUs proposed, and whether it is admitted.

    A `fact` is a pod whose annotations, or whose claim, tell its CPUs, and no agent's ledger does. Of
    koordlet's nodes, pods without a record count by their requests only, as for Koordinator's scheduler.
    """
    state = before.state
    if isinstance(state, NodeState) and state.config.koordinator and not (info.proposal or info.numa_amounts):
        return before, True
    if fact or isinstance(state, ZonesState):
        request = info.request
        assert request is not None
        running = node_kinds.running(state, replace(request, uid=f"@{next(_uids)}"), recorded=fact)
        return states.following(before, running), True
    if not info.proposal and info.zone is None:
        answer = states.admit(before, info.shape)
        return answer.state, answer.decision.admitted
    if states.known(before, info.shape):
        answer = states.admit(before, info.shape)
        if answer.decision.assignments == info.proposal and answer.decision.zone == info.zone:
            return answer.state, answer.decision.admitted
    request = info.request
    assert request is not None
    after, decision = node_kinds.admit(state, replace(request, uid=f"@{next(_uids)}"))
    return states.following(before, after), decision.admitted


def too_much(canonical: CanonicalState, admitted: int, shape: Shape) -> Reason | None:
    """Return why the node's capacity, in all, does not admit a pod of the shape."""
    state, request = canonical.state, shape.request
    assert request is not None
    if not isinstance(state, NodeState):
        return None
    if admitted + shape.milli <= canonical.capacity and not canonical.amplified:
        return None
    return capacity_refusal(replace(state, requested=admitted), request)
