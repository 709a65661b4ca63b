"""Taking a node over from a kubelet with static CPU manager: its pods keep their CPUs until they end.

The stages are those of Koordinator's proposal. First the kubelet manages CPUs alone (policy `none` here).
Then its policy is none, new pods get their CPUs from us, and CPUs that it pinned stay exclusive, not shared
with BE. With the end of the last such pod all CPUs are ours.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from corelane.cpuset import CPUSet
from corelane.node.entries import Bubble, Entry, Key, Origin, Phase, PlacedPod, Sharing, bound_mask
from corelane.node.invariants import Problem
from corelane.node.kubelet.checkpoint import Checkpoint
from corelane.node.ledger import NodeState, frozen, release, with_entries
from corelane.node.pools.classes import placed_pod
from corelane.node.recovery.rebasing import rebase
from corelane.workload import PodQOS
from corelane.workload.request import ContainerKind, PodRequest, QOSClass

ALLOCATOR = "kubelet"
_NO_NAMES: Final[Mapping[str, str]] = MappingProxyType({})


class Stage(StrEnum):
    """Component that manages the CPUs of a node."""

    KUBELET = "kubelet"
    BOTH = "both"
    """We do; but pods that the kubelet pinned still run."""
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Takeover:
    """Progress of a takeover: the pods (`namespace/name`) whose end it waits for, and their CPUs."""

    stage: Stage
    pods: tuple[str, ...] = ()
    cpus: CPUSet = field(default_factory=CPUSet)


def kubelet_allocates(state: NodeState) -> bool:
    """Return whether this is the state of a kubelet with static CPU manager, as published."""
    return state.config.exact and state.config.policy == "static"


def takeover(state: NodeState) -> Takeover:
    """The stage that a node is in."""
    if state.config.policy == "none" or kubelet_allocates(state):
        return Takeover(Stage.KUBELET)
    left = pinned(state)
    if not left:
        return Takeover(Stage.DONE)
    pods = tuple(dict.fromkeys(entry.pod for entry in left))
    return Takeover(Stage.BOTH, pods, CPUSet.from_mask(bound_mask(left)))


def pinned(state: NodeState) -> list[Entry]:
    """The containers that a kubelet has pinned."""
    return [entry for entry in state.entries.values() if entry.origin is Origin.KUBELET]


def follow(
    state: NodeState,
    checkpoint: Checkpoint,
    requests: Iterable[PodRequest] = (),
    running: Collection[str] | None = None,
    names: Mapping[str, str] = _NO_NAMES,
    *,
    holds: bool = False,
) -> tuple[NodeState, list[Problem]]:
    """The ledger brought up to what a kubelet's file says by now, and what of it could not be kept.

    CPUs that it pinned are held, those that it gave up are free. A file of policy none, as a kubelet writes
    after its CPU manager was turned off, does not name the pods pinned before: they are held as long as
    their UIDs are among those `running`; None is not known. Under policy none here, nothing changes. `names`
    are those (`namespace/name`) of pods, by UID, as far as they are known without their asks.
    With `holds`, CPUs are held under policy none, too: that of a node beside a kubelet with policy static.
    """
    if state.config.policy == "none" and not holds:
        return state, []
    if checkpoint.policy == "none":
        ended = {entry.uid for entry in pinned(state) if running is not None and entry.uid not in running}
        return _without(state, ended), []
    if checkpoint.version == 1:
        return take_over(state, checkpoint)
    before, known = state, pinned(state)
    for entry in known:
        if not _as_said(state, entry, checkpoint):
            state = release(state, entry.uid, entry.container)
    state = _without(state, {entry.uid for entry in known} - {entry.uid for entry in pinned(state)})
    state, problems = take_over(state, checkpoint, requests)
    state = _named(state, names)
    return (before, []) if state.entries == before.entries else (state, problems)


def _named(state: NodeState, names: Mapping[str, str]) -> NodeState:
    """The ledger with the names of pods of which only the UID was known."""
    told = {
        entry.key: replace(entry, pod=names[entry.uid])
        for entry in pinned(state)
        if entry.uid in names and entry.pod == _nameless(entry.uid)
    }
    return with_entries(state, {**state.entries, **told}, state.pods) if told else state


def _nameless(uid: str) -> str:
    return f"/pod with UID {uid}"


def _without(state: NodeState, uids: Iterable[str]) -> NodeState:
    for uid in sorted(uids):
        state = release(state, uid)
    return state


def _as_said(state: NodeState, entry: Entry, checkpoint: Checkpoint) -> bool:
    """Whether it has the CPUs that the file gives it, as far as no other container owns them."""
    said = checkpoint.entries.get(entry.uid, {}).get(entry.container)
    if said is None:
        return entry.uid in checkpoint.pods and not entry.cpus
    missing = (said - entry.cpus) & state.usable
    return entry.cpus <= said and not missing - state.bound


def take_over(
    state: NodeState, checkpoint: Checkpoint, requests: Iterable[PodRequest] = ()
) -> tuple[NodeState, list[Problem]]:
    """The ledger with what a kubelet's `cpu_manager_state` says, and what of it could not be kept.

    `requests` are the node's pods as far as they are known; `complete` makes up for others later.
    Containers that have CPUs in the ledger stay as they are, so a file may be taken over twice. CPUs that
    others have, or that are gone, are named and left out.
    """
    if checkpoint.version == 1:
        text = "version 1 of the kubelet's file names containers by id: start the kubelet, which rewrites it"
        return state, [Problem("version", text)]
    request_by_uid = {request.uid: request for request in requests}
    entries = dict(state.entries)
    pods, placed_pods = dict(state.pods), dict(state.placed_pods)
    for uid in sorted(checkpoint.entries.keys() | checkpoint.pods.keys()):
        pinned, whole = checkpoint.entries.get(uid, {}), checkpoint.pods.get(uid)
        adopted = [
            entry
            for entry in _entries(uid, pinned, request_by_uid.get(uid))
            if entry.key not in entries or (entry.cpus and not entries[entry.key].cpus)
        ]
        if whole:
            adopted = [replace(entry, bubble=Bubble(whole), origin=Origin.KUBELET) for entry in adopted]
        if not any(entry.cpus or entry.bubble for entry in adopted):
            continue
        for entry in adopted:  # at the end: CPUs that others have by now stay theirs
            entries.pop(entry.key, None)
            entries[entry.key] = entry
        pods.setdefault(uid, _request(uid, pinned, request_by_uid))
        placed_pods.setdefault(uid, _tenant(adopted[0].pod, request_by_uid.get(uid)))
    if entries == state.entries:
        return state, []
    return rebase(with_entries(replace(state, placed_pods=frozen(placed_pods)), entries, pods), state.machine)


def _entries(uid: str, pinned: Mapping[str, CPUSet], request: PodRequest | None) -> Iterator[Entry]:
    """A pod's containers: those that the kubelet pinned, and of a known pod the others, on the pool."""
    if request is None:
        yield from _unknown(uid, pinned)
        return
    qos = request.placement_spec.qos or of_kubelets_pod(request.qos, "static")
    for container in request.containers:
        if own := pinned.get(container.name):
            entry = _pinned(uid, request.key, container.name, own, qos.value)
            yield replace(entry, kind=container.kind, cpu_request=container.cpu_request)
        else:
            yield Entry(
                uid,
                container.name,
                request.key,
                cls=qos.value,
                kind=container.kind,
                cpu_request=container.cpu_request,
            )


def _unknown(uid: str, pinned: Mapping[str, CPUSet]) -> Iterator[Entry]:
    """Of containers with common CPUs all but the first count as init containers, whose CPUs are reusable."""
    qos, before = of_kubelets_pod(QOSClass.GUARANTEED, "static"), CPUSet()
    for name, cpus in sorted(pinned.items()):
        entry = _pinned(uid, _nameless(uid), name, cpus, qos.value)
        yield replace(entry, kind=ContainerKind.INIT) if cpus & before else entry
        before |= cpus


def _pinned(uid: str, pod: str, name: str, cpus: CPUSet, qos: str) -> Entry:
    return Entry(
        uid=uid,
        container=name,
        pod=pod,
        cpus=cpus,
        sharing=Sharing.ALONE,
        cls=qos,
        kind=ContainerKind.APP,
        origin=Origin.KUBELET,
        allocator=ALLOCATOR,
        phase=Phase.APPLIED,
        cpu_request=1000 * len(cpus),
    )


def _request(uid: str, pinned: Mapping[str, CPUSet], known: Mapping[str, PodRequest]) -> int:
    return known[uid].cpu_request if uid in known else 1000 * sum(map(len, pinned.values()))


def _tenant(pod: str, request: PodRequest | None) -> PlacedPod:
    return PlacedPod(pod.partition("/")[0]) if request is None else placed_pod(request)


def complete(state: NodeState, request: PodRequest) -> NodeState:
    """The ledger with all that a pod which was taken over by its UID alone turns out to be.

    Containers that the kubelet did not pin come in, on the shared pool. Any other pod stays as it is.
    """
    entries: dict[Key, Entry] = dict(state.entries)
    own = state.of_pod(request.uid)
    if not any(entry.origin is Origin.KUBELET for entry in own):
        return state
    pinned = {entry.container: entry.cpus for entry in own if entry.cpus}
    for entry in _entries(request.uid, pinned, request):
        there = entries.get(entry.key)
        if there is None:
            entries[entry.key] = entry
        else:
            told = replace(there, pod=entry.pod, kind=entry.kind, cls=entry.cls)
            entries[entry.key] = replace(told, cpu_request=entry.cpu_request)
    if entries == state.entries:
        return state
    placed_pods = frozen({**state.placed_pods, request.uid: placed_pod(request)})
    pods = {**state.pods, request.uid: request.cpu_request}
    return with_entries(replace(state, placed_pods=placed_pods), entries, pods)


KubeletPolicy: TypeAlias = Literal["none", "static"]


def of_kubelets_pod(qos: QOSClass, policy: KubeletPolicy) -> PodQOS:
    """Return the class of a running pod without Koordinator's label, by the proposal's rules 6 and 7.

    Guaranteed is LSR under the kubelet's static policy, which gave it CPUs, and LS under none.
    """
    if qos is QOSClass.BEST_EFFORT:
        return PodQOS.BE
    return PodQOS.LSR if qos is QOSClass.GUARANTEED and policy == "static" else PodQOS.LS
