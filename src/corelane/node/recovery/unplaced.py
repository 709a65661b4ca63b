"""Pods that are on the node although no admission placed them: in a pool, or left where they run.

A kubelet starts pods that the ledger cannot admit, and a pod that runs is never moved without need. Their
entries have the origin `adopted`: with CPUs, these are held for what runs there; without, the container runs
in its pool, and its request counts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from corelane.cpuset import CPUSet
from corelane.node.entries import Entry, Key, Origin, Sharing
from corelane.node.ledger import NodeState, frozen, with_entries
from corelane.node.placed_pods import PlacedPod
from corelane.node.pools.classes import pod_class
from corelane.reasons import Refusal
from corelane.workload import PodQOS, PodRequest


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
