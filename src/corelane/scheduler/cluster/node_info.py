"""One node: its objects, its pods, and the state of its CPUs with all claims."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from msgspec import structs

from corelane import quantity
from corelane.kube import keys, translate
from corelane.kube.meta import condition
from corelane.kube.objects import Node, NodeResourceTopology, Taint
from corelane.kube.pod import Pod
from corelane.kube.translate import exported_zones
from corelane.kube.translate.crane import CraneTopology
from corelane.node.entries import Origin
from corelane.node.ledger import Decision, NodeState
from corelane.node.zones.alignment import is_device, requested
from corelane.node.zones.zone_state import ZonesState, fingerprint
from corelane.placement.memory_blocks import MEMORY
from corelane.quantity import QuantityError
from corelane.reasons import Code, Reason
from corelane.scheduler.cluster import node_kinds
from corelane.scheduler.cluster.node_kinds import HUGEPAGES, NOTHING, CPUState, NodeKind
from corelane.scheduler.cluster.pods import PodInfo, Shape
from corelane.scheduler.cluster.states import (
    Answer,
    CanonicalState,
    States,
    too_much,
    with_pod,
)
from corelane.workload.request import ContainerKind, PodRequest, QOSClass


class NodeInfo:
    """One node. `node` is None while only pods or a topology name it; no pod is placed there."""

    __slots__ = (
        "_admitted",
        "_canonical",
        "_detailed",
        "_state",
        "_states",
        "_unapplied",
        "agent_fault",
        "allocatable",
        "counted",
        "cpus",
        "crane",
        "name",
        "newer",
        "node",
        "pods",
        "requested",
        "row",
        "taints",
        "topology",
        "unreadable",
    )

    def __init__(self, name: str, row: int, states: States) -> None:
        self.name = name
        self.row = row
        """Its row of the columns."""
        self.node: Node | None = None
        self.cpus = NOTHING
        """What is published of its CPUs, and by whom."""
        self.topology: NodeResourceTopology | None = None
        """As published."""
        self.crane: CraneTopology | None = None
        """gocrane's object, which counts where no other is published."""
        self.newer: NodeResourceTopology | None = None
        """Zones that count other pods than are known; `topology` holds until they are the same."""
        self.counted: frozenset[str] = frozenset()
        """UIDs of pods that published zones count already."""
        self.pods: dict[str, PodInfo] = {}
        self.unreadable: dict[str, PodInfo] = {}
        """Pods that do not say which CPUs they have; see `unknown_pod`."""
        self.requested: dict[str, int] = {}
        self.allocatable: dict[str, int] = {}
        self.agent_fault: Reason | None = None
        """Why the node's agent counts as ended; None where it runs, or is not judged."""
        self.taints: tuple[Taint, ...] = ()
        """The Node's taints, and those that follow from its conditions."""
        self._states = states
        self._canonical: CanonicalState | None = None
        self._admitted = 0
        self._detailed: CanonicalState | None = None
        self._state: CPUState | None = None
        self._unapplied: list[PodInfo] = []
        """Claims that are not in `_state` yet."""

    # What is known.

    @property
    def ledger(self) -> NodeState | None:
        """The state as published, where CPUs are known by id."""
        return self.cpus.state if isinstance(self.cpus.state, NodeState) else None

    @property
    def problem(self) -> str:
        """Why the published topology cannot be used."""
        return self.cpus.problem

    @property
    def labels(self) -> Mapping[str, str]:
        return self.node.metadata.labels if self.node else {}

    @property
    def settings(self) -> tuple[object, ...]:
        """What of the Node is part of the reading of koordlet's object."""
        annotations = self.node.metadata.annotations if self.node else {}
        ratios = annotations.get(keys.AMPLIFICATION)
        return self.labels, ratios, self._kubelets_own(), self._amplified_milli()

    @property
    def amplified(self) -> bool:
        """Whether more CPUs are allocatable than the node has."""
        return self.ledger is not None and node_kinds.is_amplified(self.ledger.config)

    @property
    def empty(self) -> bool:
        return self.node is None and not self.pods and self.topology is None and self.crane is None

    @property
    def canonical(self) -> CanonicalState:
        """The canonical state with all claims."""
        if self._canonical is None:
            self._canonical, self._admitted = self._rebuilt()
        return self._canonical

    @property
    def admitted(self) -> int:
        """MilliCPU that the ledger and the claims request."""
        return self._admitted if self._canonical is not None else (self.canonical, self._admitted)[1]

    @property
    def state(self) -> CPUState:
        """The published state with all claims, under their UIDs and names."""
        if self._state is None:
            self._state = self.cpus.state
            self._unapplied = sorted(self.pods.values(), key=self._rank)
        for info in self._unapplied:
            if (request := info.request) is not None and info.uid not in self.counted:
                self._state = node_kinds.running(self._state, request, recorded=self._is_fact(info))
        self._unapplied = []
        return self._state

    @property
    def cpu_state(self) -> NodeState | None:
        """`state`, where CPUs have ids."""
        state = self.state
        return state if isinstance(state, NodeState) else None

    @property
    def unknown_pod(self) -> PodInfo | None:
        """A pod here that may have any CPUs: its record cannot be read, and the ledger does not have it."""
        if not self.unreadable or (ledger := self.ledger) is None:
            return None
        return next((info for uid, info in self.unreadable.items() if uid not in ledger.pods), None)

    @property
    def unknown(self) -> bool:
        """Whether no pod may get exclusive CPUs now: some may be another pod's, or none are applied."""
        return self.agent_fault is not None or self.unknown_pod is not None

    # Decisions.

    def canonical_for(self, shape: Shape) -> CanonicalState:
        """Return the canonical state on which pods of this shape are judged."""
        if not shape.looks_at_others:
            return self.canonical
        if self._detailed is None:
            self._detailed = self._states.intern(self.state, detailed=True)
        return self._detailed

    def answer(self, shape: Shape) -> Answer:
        """Return what becomes of a pod of this shape here."""
        canonical, refusal = self.canonical_for(shape), self.agent_fault if shape.binds else None
        if refusal is None and shape.binds and self.unreadable and (other := self.unknown_pod):
            refusal = Reason(Code.CPUS_UNKNOWN, (other.pod.title, other.unreadable))
        if refusal := refusal or too_much(canonical, self.admitted, shape):
            return Answer(Decision(False, refusal), canonical, canonical)
        return self._states.admit(canonical, shape)

    def known(self, shape: Shape) -> bool:
        """Return whether `answer` costs no admission."""
        return not shape.looks_at_others and self._states.known(self.canonical, shape)

    # Changes.

    def put(self, info: PodInfo) -> bool:
        """Add a pod, or replace it; return whether that changes the state of the CPUs."""
        old = self.pods.get(info.uid)
        if old is not None and self.cpus.kind is NodeKind.KUBELET_REPLAY and not info.proposal:
            # Foreseen when it was placed; no annotation says so.
            info = structs.replace(info, proposal=old.proposal)
        self.pods[info.uid] = info
        if info.unreadable:
            self.unreadable[info.uid] = info
        else:
            self.unreadable.pop(info.uid, None)
        if old is None and self.topology and self._is_zones and started(info):
            self.counted |= {info.uid}
        if old is not None:
            same = old.shape is info.shape or (
                old.shape.request == info.shape.request and old.requests == info.requests
            )
            if same and _decided(old) == _decided(info):
                return self._resynced()
            self._count(old, -1)
            self._forget()
        elif self._state is not None:
            self._unapplied.append(info)
        self._count(info, 1)
        if self._resynced():
            return True
        if self._canonical is not None and self._is_fact(info):
            self._forget()  # Facts come before claims.
        elif self._canonical is not None:
            self._apply(info)
        return True

    def claim(self, info: PodInfo, answer: Answer) -> None:
        """Add a pod with what `answer` said."""
        assert info.shape.request is not None
        self.pods[info.uid] = info
        self._count(info, 1)
        if self._state is not None:
            self._unapplied.append(info)
        self._canonical, self._detailed = answer.state, None
        self._admitted += info.shape.milli

    def drop(self, uid: str) -> None:
        """Remove a pod."""
        self._count(self.pods.pop(uid), -1)
        self.unreadable.pop(uid, None)
        self.counted -= {uid}
        if not self._resynced():
            self._forget()

    def refresh(self, pod: Pod) -> bool:
        """Replace a pod of which only the status changed; return whether that changes the CPUs' state."""
        info = self.pods[pod.metadata.uid] = structs.replace(self.pods[pod.metadata.uid], pod=pod)
        state, topology = self.cpus.state, self.topology
        if not isinstance(state, ZonesState) or topology is None:
            return False
        if self._resynced():
            return True
        if started(info) and counts_from_start(state, topology, info):
            self.counted |= {info.uid}
            self._forget()
            return True
        return False

    def _resynced(self) -> bool:
        """Whether the newer zones count the pods as they are now; they are in force then."""
        if self.newer is None or counted_by(self.newer, self.pods.values()) is None:
            return False
        self.publish(self.newer)
        return True

    def publish(self, topology: NodeResourceTopology | None) -> None:
        """Replace what is published; hardware that some node published before is not read again."""
        hardware = translate.hardware_key(topology) if topology else None
        machine = self._states.machine(hardware)
        annotations = self.node.metadata.annotations if self.node else {}
        kubelets, allocatable = self._kubelets_own(), self._amplified_milli()
        cpus = node_kinds.read(topology, self.labels, machine, kubelets, annotations, allocatable)
        if isinstance(cpus.state, NodeState):
            state = self._states.shared(cpus.state)
            self._states.learn(hardware, state)
            cpus = replace(cpus, state=state)
        elif topology is None and self.crane is not None:
            cpus = node_kinds.read_crane(self.crane)
        self.newer, counted = None, frozenset[str]()
        if topology and isinstance(cpus.state, ZonesState):
            of_object = counted_by(topology, self.pods.values())
            if of_object is None and isinstance(self.cpus.state, ZonesState):
                self.newer, topology = topology, self.topology
                of_object, cpus = self.counted, node_kinds.with_settings(self.cpus, cpus)
            counted = started_uids(self.pods.values()) if of_object is None else of_object
        self.topology, self.cpus, self.counted = topology, cpus, counted
        self._forget()

    @property
    def _is_zones(self) -> bool:
        return isinstance(self.cpus.state, ZonesState)

    def _amplified_milli(self) -> int:
        """MilliCPU allocatable on a Node that says that its CPUs are amplified, else 0."""
        if self.node is None or keys.AMPLIFICATION not in self.node.metadata.annotations:
            return 0
        return _milli(self.node.status.allocatable)

    def _kubelets_own(self) -> int:
        """CPUs that the kubelet keeps from pods: capacity less allocatable."""
        if self.node is None:
            return 0
        status = self.node.status
        return max(0, -(-(_milli(status.capacity) - _milli(status.allocatable)) // 1000))

    def _rank(self, info: PodInfo) -> tuple[bool, str]:
        """The order in which pods are counted: recorded CPUs first, then as the kubelet started them.

        It gave CPUs in that order; after a restart, pods are listed by name.
        """
        replayed = self.cpus.kind is NodeKind.KUBELET_REPLAY
        return not self._is_fact(info), (info.pod.status.start_time or "~") if replayed else ""

    def _is_fact(self, info: PodInfo) -> bool:
        """Whether a pod's annotations, or its claim, tell its CPUs, and no agent's ledger does.

        As Koordinator's scheduler, which counts by annotations only, all of koordlet's pods are.
        """
        if self.cpus.kind is NodeKind.LEDGER or info.request is None:
            return False
        if self.cpus.kind is NodeKind.KUBELET_REPLAY and self._is_displaced(info):
            return False
        return bool(info.proposal) or self.cpus.kind is NodeKind.KOORDLET

    def _is_displaced(self, info: PodInfo) -> bool:
        """Whether the kubelet gave CPUs foreseen for the pod to another, as pods came in another order.

        The kubelet chooses again for this pod, after those that it has.
        """
        ledger = self.ledger
        if ledger is None or info.uid in ledger.pods:
            return False
        return not all(ledger.exclusive.isdisjoint(cpus) for cpus in info.proposal.values())

    def variant(self, pods: Mapping[str, PodInfo], state: CPUState) -> "NodeInfo":
        """Return the node with other pods and another state of its CPUs, which has all of them."""
        other = NodeInfo(self.name, self.row, self._states)
        other.node, other.cpus, other.topology = self.node, self.cpus, self.topology
        other.allocatable, other.taints, other.counted = self.allocatable, self.taints, self.counted
        other.pods, other._state = dict(pods), state
        other.unreadable = {uid: info for uid, info in self.unreadable.items() if uid in pods}
        for info in pods.values():
            other._count(info, 1)
        other.agent_fault = self.agent_fault
        other._canonical = other._states.intern(state)
        other._admitted = state.requested if isinstance(state, NodeState) else 0
        return other

    def _forget(self) -> None:
        self._canonical = self._detailed = self._state = None
        self._unapplied = []

    def _rebuilt(self) -> tuple[CanonicalState, int]:
        """The canonical state of what was published with the claims: recorded CPUs first, then by arrival."""
        published = self.cpus.state
        counted: Collection[str] = self.counted
        if isinstance(published, NodeState):
            counted = published.pods
            if any(entry.origin is Origin.KUBELET for entry in published.entries.values()):
                return self._of_state()  # Their pods are completed by what their objects say.
        claims = [info for uid, info in self.pods.items() if uid not in counted]
        if any(info.shape.looks_at_others for info in claims):
            return self._of_state()
        self._canonical = self._states.intern(published)
        self._admitted = published.requested if isinstance(published, NodeState) else 0
        for info in sorted(claims, key=self._rank):
            self._apply(info)
        return self._canonical, self._admitted

    def _of_state(self) -> tuple[CanonicalState, int]:
        state = self.state
        return self._states.intern(state), state.requested if isinstance(state, NodeState) else 0

    def _apply(self, info: PodInfo) -> None:
        """Admit a pod into the canonical state; one that is refused changes nothing."""
        assert self._canonical is not None
        self._detailed = None
        if info.shape.looks_at_others:
            self._canonical, self._admitted = self._of_state()
            return
        if info.request is None or info.uid in self.counted:
            return
        if not self._is_fact(info) and too_much(self._canonical, self._admitted, info.shape):
            return
        self._canonical, admitted = with_pod(self._states, self._canonical, info, fact=self._is_fact(info))
        self._admitted += info.shape.milli if admitted else 0

    def _count(self, info: PodInfo, sign: int) -> None:
        for name, amount in info.requests.items():
            self.requested[name] = self.requested.get(name, 0) + sign * amount


@dataclass(slots=True)
class Admissions:
    """What nodes answered in one attempt to place a pod, by name."""

    admitted: dict[str, Answer] = field(default_factory=dict)
    """For nodes with a ledger, or zones."""
    lacking: dict[str, NodeInfo] = field(default_factory=dict)
    """Nodes that only lack CPUs."""


def _decided(info: PodInfo) -> tuple[object, ...]:
    return info.proposal, info.zone, info.zone_cpus, info.numa_amounts, info.invalid


def _milli(amounts: Mapping[str, object]) -> int:
    try:
        return quantity.milli(str(amounts.get("cpu", "0")))
    except QuantityError:
        return 0


def taints_of(node: Node) -> Iterator[Taint]:
    """Yield the node's taints, and those that upstream's node controller derives from its conditions.

    On the embedded server they may be missing, and placement must not depend on them.
    """
    yield from node.spec.taints
    derived, conditions = [], node.status.conditions
    if (ready := condition(conditions, "Ready")) is not None and ready.status != "True":
        derived.append("not-ready" if ready.status == "False" else "unreachable")
    if (disk := condition(conditions, "DiskPressure")) is not None and disk.status == "True":
        derived.append("disk-pressure")
    for key in (f"node.kubernetes.io/{name}" for name in derived):
        if all(taint.key != key for taint in node.spec.taints):
            yield Taint(key, effect="NoSchedule")


# Which pods an exporter's zones count already, so that they are not taken off again.
#
# The rule is that of scheduler-plugins' OverReserve cache: an object counts the pods of its fingerprint.
# Where that is of other pods than are known here, the object waits, and the former zones stay in force with
# all pods that they do not count. An object without a fingerprint counts the pods that were seen started
# before it came; pods without exclusive resources, which change no zone, count from their start.


def counted_by(published: NodeResourceTopology, pods: Iterable[PodInfo]) -> frozenset[str] | None:
    """Return the UIDs of the node's pods that the object counts; None where its fingerprint is of others."""
    bound = [info for info in pods if info.pod.spec.node_name]
    running = [info for info in bound if started(info)]
    expected = exported_zones.pods_fingerprint(published)
    if not expected.text:
        return started_uids(running)
    names = {resource.name for zone in published.zones for resource in zone.resources}
    for candidates in (running, bound):
        signed = [info for info in candidates if not expected.exclusive_only or _is_exclusive(info, names)]
        pairs = ((info.pod.metadata.namespace, info.pod.metadata.name) for info in signed)
        if fingerprint(pairs) == expected.text:
            return frozenset(info.uid for info in candidates)
    return None


def counts_from_start(state: ZonesState, published: NodeResourceTopology, info: PodInfo) -> bool:
    """Return whether a started pod changes no zone, and no fingerprint will tell that it is counted."""
    names = {name for zone in state.zones for name in zone.available}
    return not exported_zones.pods_fingerprint(published).text and not _is_exclusive(info, names)


def started(info: PodInfo) -> bool:
    """Return whether the kubelet has admitted the pod."""
    return bool(info.pod.spec.node_name) and info.pod.status.phase not in ("", "Pending")


def started_uids(pods: Iterable[PodInfo]) -> frozenset[str]:
    """Return the UIDs of the pods that the kubelet has admitted."""
    return frozenset(info.uid for info in pods if started(info))


def _is_exclusive(info: PodInfo, names: set[str]) -> bool:
    return info.request is not None and has_exclusive_resources(info.request, names)


def has_exclusive_resources(request: PodRequest, names: set[str]) -> bool:
    """Upstream's `AreExclusiveForPod`: devices in some zone, integer CPUs or memory of a Guaranteed pod."""
    guaranteed = request.qos is QOSClass.GUARANTEED
    lasting = (one for one in request.containers if one.kind is not ContainerKind.INIT)
    amounts = [pair for container in lasting for pair in requested(container).items()]
    return any(
        name in names
        if is_device(name)
        else guaranteed
        and amount > 0
        and (amount % 1000 == 0 if name == "cpu" else name == MEMORY or name.startswith(HUGEPAGES))
        for name, amount in amounts
    )
