"""Entries that no admission made: pods that run unplaced, recorded pods, and CPUs of other instances.

A kubelet starts pods that the ledger cannot admit, and a pod that runs is never moved without need. Their
entries have the origin `adopted`: with CPUs, these are held for what runs there; without, the container runs
in its pool, and its request counts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from corelane.cpuset import CPUSet
from corelane.node.entries import Entry, Key, Origin, PlacedPod, Sharing
from corelane.node.ledger import NodeState, frozen, with_entries
from corelane.node.pools.classes import placed_pod, pod_class
from corelane.reasons import Refusal
from corelane.reasons.codes import OTHER_INSTANCES
from corelane.workload import PodQOS
from corelane.workload.request import ContainerRequest, PodRequest


def adopted(state: NodeState, uid: str) -> tuple[Entry, ...]:
    """Return the entries of a pod that no admission placed."""
    return tuple(entry for entry in state.of_pod(uid) if entry.origin is Origin.ADOPTED)


def is_unplaced(state: NodeState, uid: str) -> bool:
    """Whether a pod is in the ledger, and no admission placed it: all of its entries are adopted."""
    own = state.of_pod(uid)
    return bool(own) and all(entry.origin is Origin.ADOPTED for entry in own)


def left_in_place(state: NodeState, uid: str) -> bool:
    """Whether a pod that could not be placed has CPUs held for it where it runs."""
    return any(entry.cpus for entry in adopted(state, uid))


def has_own_cpus(state: NodeState, cpus: CPUSet) -> bool:
    """Whether CPUs on which a container runs may be its own: those of the shared pool have reserved ones."""
    return bool(cpus) and cpus.isdisjoint(state.reserved) and not cpus >= state.shared_pool


def keep_in_pool(state: NodeState, request: PodRequest, more: Iterable[str] = ()) -> NodeState:
    """Enter a pod's containers in the pool of its class, whatever the node has left.

    `more` are names of containers beside those of the request, such as ephemeral ones.
    """
    entries = _pool_entries(state, request, more)
    pods = {request.uid: request.cpu_request, **state.pods}
    if entries.keys() <= state.entries.keys() and pods == state.pods:
        return state
    return with_entries(state, entries | dict(state.entries), pods)


def keep_where_it_runs(state: NodeState, request: PodRequest, running: Mapping[str, CPUSet]) -> NodeState:
    """Hold the CPUs on which a pod's containers run, so that they are allocated to no other pod.

    CPUs of others, and reserved ones, are left out. A container of which none is left, or which has reserved
    CPUs or the whole shared pool, as those of the pool do, runs in its pool; so do all where the pool would
    lose its last CPU.
    """
    entries = _pool_entries(state, request, running)
    free = state.usable.mask & ~state.bound.mask & ~state.reserved.mask
    common = len(running) > 1 and len(set(running.values())) == 1
    for name, cpus in running.items():
        own = cpus.mask & free if has_own_cpus(state, cpus) else 0
        free &= -1 if common else ~own
        if own:
            entry = entries[request.uid, name]
            entries[entry.key] = replace(
                entry, cpus=CPUSet.from_mask(own), sharing=Sharing.ALONE, common=common
            )
    placed_pods = {request.uid: PlacedPod(request.namespace, request.labels), **state.placed_pods}
    pods = {**state.pods, request.uid: request.cpu_request}
    after = with_entries(replace(state, placed_pods=frozen(placed_pods)), {**state.entries, **entries}, pods)
    return after if after.shared_pool else keep_in_pool(state, request, running)


def _pool_entries(state: NodeState, request: PodRequest, more: Iterable[str]) -> dict[Key, Entry]:
    qos, sharing = _pool(state, request)
    blank = Entry(request.uid, "", request.key, sharing=sharing, cls=qos, origin=Origin.ADOPTED)
    entries: dict[Key, Entry] = {(request.uid, name): replace(blank, container=name) for name in more}
    for container in request.containers:
        entry = replace(
            blank, container=container.name, kind=container.kind, cpu_request=container.cpu_request
        )
        entries[entry.key] = entry
    return entries


def _pool(state: NodeState, request: PodRequest) -> tuple[str, Sharing]:
    """Return the class of a pod, and the pool in which it runs without CPUs of its own."""
    if state.config.policy != "pools":
        return request.qos.value, Sharing.POOL
    try:
        decided = pod_class(request, state.config.pools)
    except Refusal:
        return (request.placement_spec.qos or PodQOS.LS).value, Sharing.POOL
    return decided.qos.value, Sharing.POOL if decided.bound else decided.sharing


def record(state: NodeState, request: PodRequest) -> NodeState:
    """Return the state with a bound pod on the CPUs in its `proposal`, whatever its class or today's rules.

    A pod that is in the ledger already changes nothing. One without recorded CPUs of this machine, or amounts
    by NUMA node, counts by its request where Koordinator's scheduler decides, and else changes nothing.
    """
    recorded = {name: cpus & state.usable for name, cpus in request.proposal.items()}
    if request.uid in state.pods:
        return state
    pods = {**state.pods, request.uid: request.cpu_request}
    if not any(recorded.values()) and not request.numa_amounts:
        return with_entries(state, state.entries, pods) if state.config.koordinator else state
    common = len(recorded) > 1 and len(set(recorded.values())) == 1
    entries = dict(state.entries)
    for container in request.containers:
        cpus = recorded.get(container.name, CPUSet())
        entries[request.uid, container.name] = _entry(state, request, container, cpus, common=common)
    after = with_entries(state, entries, pods)
    if state.config.policy != "pools":
        return after
    placed = replace(placed_pod(request), amounts=request.numa_amounts)
    return replace(after, placed_pods=frozen({**state.placed_pods, request.uid: placed}))


def _entry(
    state: NodeState, request: PodRequest, container: ContainerRequest, cpus: CPUSet, *, common: bool
) -> Entry:
    return Entry(
        request.uid,
        container.name,
        request.key,
        cpus,
        _sharing(state, request) if cpus else Sharing.POOL,
        common=bool(cpus) and common,
        zone=CPUSet(request.numa_amounts) if request.numa_amounts and not cpus else None,
        cls=str(request.placement_spec.qos or request.qos),
        kind=container.kind,
        origin=Origin.SCHEDULER,
        cpu_request=container.cpu_request,
    )


def _sharing(state: NodeState, request: PodRequest) -> Sharing:
    """As the pod's class says, where it has one that is bound; else as Koordinator's LSR."""
    if state.config.policy != "pools":
        return Sharing.ALONE
    try:
        decided = pod_class(request, state.config.pools)
    except Refusal:
        return Sharing.SHARED_WITH_BE
    if decided.bound:
        return decided.sharing
    return Sharing.ALONE if request.placement_spec.qos is PodQOS.LSE else Sharing.SHARED_WITH_BE


# CPUs on which containers of other corelane instances of this machine run are never exclusive here while
# those run. CPUs of sets without a reserved CPU, as exclusive containers have, leave the shared pool, too;
# others stay in it, as a shared pool does.


OTHERS: Final = "other-instances"
"""UID under which the ledger holds these CPUs."""


Kind = Literal["container", "claim", "process", "unseen"]


@dataclass(frozen=True, slots=True)
class OtherContainer:
    """A running container of another instance: `owner` names that, `title` the container.

    Only a "container" takes its CPUs away from this instance. The other kinds are reported where they meet
    exclusive CPUs: a "claim" is a process that another user calls a container, a "process" one beside all
    containers that may not use all CPUs, and "unseen" stands for all that cannot be seen from here.
    """

    owner: str
    title: str
    cpus: CPUSet
    kind: Kind = "container"


def hold_others(state: NodeState, holders: Iterable[tuple[str, CPUSet]]) -> NodeState:
    """Return the ledger with the CPUs of other instances' containers held: by instance, allowed CPUs.

    CPUs that containers of this node are bound to, and reserved ones, are left out. Where the shared pool
    would lose its last CPU, it keeps them all.
    """
    entries = {key: entry for key, entry in state.entries.items() if entry.uid != OTHERS}
    pods = {uid: milli for uid, milli in state.pods.items() if uid != OTHERS}
    own = with_entries(state, entries, pods)
    free = own.usable.mask & ~own.bound.mask & ~own.reserved.mask if state.config.policy != "none" else 0
    alone = shared = 0
    holders = list(holders)
    for _, cpus in holders:
        if cpus.mask & own.reserved.mask:
            shared |= cpus.mask
        else:
            alone |= cpus.mask
    if not own.shared_pool.mask & ~(alone & free):
        alone, shared = 0, shared | alone
    for name, mask, sharing in (
        ("exclusive", alone & free, Sharing.ALONE),
        ("shared", shared & free & ~alone, Sharing.POOL),
    ):
        if mask:
            owners = ":".join(sorted({owner for owner, cpus in holders if cpus.mask & mask}))
            pod = f"{OTHER_INSTANCES}{owners}"
            entry = Entry(
                OTHERS, name, pod, CPUSet.from_mask(mask), sharing, origin=Origin.ADOPTED, allocator="other"
            )
            entries[entry.key] = entry
            pods[OTHERS] = 1000 * (alone & free).bit_count()
    unchanged = entries == dict(state.entries) and pods == dict(state.pods)
    return state if unchanged else with_entries(state, entries, pods)
