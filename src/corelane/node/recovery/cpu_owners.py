"""Which running containers have exclusive CPUs: from their cpusets, their names and their requests.

In doubt a container counts as an owner, so that CPUs it may have exclusively are not allocated again.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from corelane.cpuset import CPUSet
from corelane.node.kubelet.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class RunningContainer:
    """A container with processes. `cpus` is its own cpuset; empty where the pod's cpuset applies."""

    uid: str
    id: str
    """Container id, without the runtime's prefix and the unit's suffix."""
    cpus: CPUSet
    qos: str = ""
    """burstable or besteffort; "" is Guaranteed."""
    pod_cpus: CPUSet = field(default_factory=CPUSet)
    """Cpuset of the pod's cgroup."""
    path: str = ""
    """The container's cgroup, below the mount point."""


@dataclass(frozen=True, slots=True)
class ContainerName:
    """A container's name, with its pod's name and namespace."""

    namespace: str
    pod: str
    container: str


@dataclass(frozen=True, slots=True)
class CPUNeed:
    """Exclusive CPUs that a container is to have; `reusable` ones pass on to the containers after it."""

    cpus: int
    reusable: bool = False


@dataclass(frozen=True, slots=True)
class ListedPod:
    """A pod of a list of pods: `namespace/name`, its containers, and their names by container id."""

    title: str
    ended: bool
    containers: Mapping[str, CPUNeed]
    ids: Mapping[str, str] = field(default_factory=dict)
    running: frozenset[str] = frozenset()
    """Ids of containers that the list reports as running."""


@dataclass(frozen=True, slots=True)
class CPUOwner:
    """A container that has, or is to have, exclusive CPUs. `request` is None where it is unknown."""

    uid: str
    container: str
    cpus: CPUSet
    running: bool = True
    named: bool = True
    request: int | None = None
    reusable: bool = False
    """Of a plain init container, whose CPUs pass on to its pod's other containers."""
    pod: str = ""


@dataclass(frozen=True, slots=True)
class Observation:
    """All that was observed on a node: running containers, pods and names, and the recorded state."""

    containers: Sequence[RunningContainer]
    pods: Mapping[str, ListedPod] = field(default_factory=dict)
    names: Mapping[str, ContainerName] = field(default_factory=dict)
    requests: Mapping[str, int] = field(default_factory=dict)
    """Exclusive CPUs by container id as the runtime reports them, 0 for a container in the shared pool."""
    ready: Mapping[str, str] = field(default_factory=dict)
    """Pods with a ready sandbox as the runtime reports them: UID to `namespace/name`."""
    recorded: Checkpoint | None = None
    """The state file's content, None where it cannot be read."""
    intact: bool = True
    """Whether the state file's checksum is right. If not, its entries only serve to name containers."""
    reserved: CPUSet = field(default_factory=CPUSet)

    def recorded_cpus(self, uid: str, container: str) -> CPUSet | None:
        return self.recorded.entries.get(uid, {}).get(container) if self.recorded else None


@dataclass(frozen=True, slots=True)
class _Candidate:
    container: RunningContainer
    name: str
    pod: str
    listed: CPUNeed | None
    """By the list of pods."""
    reported: int | None
    """By the runtime, which counts less: it may not know what has changed since the container's start."""

    @property
    def request(self) -> int | None:
        """Exclusive CPUs that it is to have, 0 for the shared pool; None where that is unknown."""
        return self.listed.cpus if self.listed is not None else self.reported

    @property
    def constrained(self) -> bool:
        """Whether it has fewer CPUs than its pod may use."""
        own, pods = self.container.cpus, self.container.pod_cpus
        return bool(own) and not (pods and pods <= own)

    @property
    def pooled(self) -> bool:
        """Whether it runs in the shared pool, so that its cpuset shows the pool's."""
        return not self.request if self.request is not None else bool(self.container.qos)

    @property
    def certainly_pooled(self) -> bool:
        """Whether that holds even where the state file disagrees."""
        return not self.listed.cpus if self.listed is not None else bool(self.container.qos)


def cpu_owners(observed: Observation) -> list[CPUOwner]:
    """Every owner of exclusive CPUs: running ones (named ones first), then others in the state file."""
    observed = _by_pod(observed)
    candidates = _named(observed)
    pools = [each.container.cpus for each in candidates if each.pooled and each.container.cpus]
    if observed.intact and observed.recorded and observed.recorded.default:
        pools.append(observed.recorded.default)
    owners = [candidate for candidate in candidates if _owns(candidate, pools, candidates, observed)]
    running = sorted((_owner(owner, observed) for owner in owners), key=lambda owner: not owner.named)
    return [*_merged(running), *_not_running(observed, running, candidates)]


def placeholder(container: RunningContainer) -> str:
    """The name under which the CPUs of a container without a known name stay allocated."""
    return f"unknown-{container.id[:12]}"


def _by_pod(observed: Observation) -> Observation:
    """With the entries of a version 1 file, which has container ids only, under pods and names."""
    recorded = observed.recorded
    if not recorded or recorded.version != 1:
        return observed
    entries: dict[str, dict[str, CPUSet]] = {}
    for container in observed.containers:
        cpus = recorded.entries.get("", {}).get(container.id)
        if cpus is not None:
            name = _name_by_id(container, observed) or placeholder(container)
            entries.setdefault(container.uid, {})[name] = cpus
    return replace(observed, recorded=replace(recorded, entries=entries, version=2))


def _merged(running: list[CPUOwner]) -> Iterator[CPUOwner]:
    """Two cgroups of one container, an old one and its successor's, make one owner of both cpusets."""
    owners: dict[tuple[str, str], CPUOwner] = {}
    for owner in running:
        first = owners.get((owner.uid, owner.container), owner)
        owners[owner.uid, owner.container] = replace(first, cpus=first.cpus | owner.cpus)
    yield from owners.values()


def _named(observed: Observation) -> list[_Candidate]:
    """Every container with its name: by id, by the recorded CPUs, or as the only one left that fits."""
    names = {container.id: _name_by_id(container, observed) for container in observed.containers}
    taken = {(container.uid, names[container.id]) for container in observed.containers if names[container.id]}
    for container in observed.containers:
        if names[container.id] or not _candidate(container, "", observed).constrained:
            continue
        uid = container.uid
        fitting = [name for name in _fitting(container, observed) if (uid, name) not in taken]
        alike = [
            other
            for other in observed.containers
            if other.uid == uid and not names[other.id] and len(other.cpus) == len(container.cpus)
        ]
        exact = [name for name in fitting if observed.recorded_cpus(uid, name) == container.cpus]
        if exact or (len(fitting) == 1 and len(alike) == 1):
            names[container.id] = (exact or fitting)[0]
            taken.add((uid, names[container.id]))
    return [_candidate(container, names[container.id], observed) for container in observed.containers]


def _name_by_id(container: RunningContainer, observed: Observation) -> str:
    pod, name = observed.pods.get(container.uid), observed.names.get(container.id)
    return (pod.ids.get(container.id, "") if pod else "") or (name.container if name else "")


def _fitting(container: RunningContainer, observed: Observation) -> list[str]:
    """Names of the pod's containers with as many exclusive CPUs, by the list of pods or the state file."""
    if pod := observed.pods.get(container.uid):
        fitting = [name for name, need in pod.containers.items() if need.cpus == len(container.cpus)]
        return sorted(fitting, key=lambda name: pod.containers[name].reusable)
    entries = observed.recorded.entries.get(container.uid, {}) if observed.recorded else {}
    return [name for name, cpus in entries.items() if cpus == container.cpus]


def _candidate(container: RunningContainer, name: str, observed: Observation) -> _Candidate:
    pod, logged = observed.pods.get(container.uid), observed.names.get(container.id)
    title = pod.title if pod else f"{logged.namespace}/{logged.pod}" if logged else ""
    listed = pod.containers.get(name, CPUNeed(0)) if pod and name else None
    return _Candidate(container, name, title, listed, observed.requests.get(container.id))


def _owns(
    candidate: _Candidate, pools: list[CPUSet], candidates: list[_Candidate], observed: Observation
) -> bool:
    container = candidate.container
    if _is_recorded(candidate, observed):
        return True
    if not candidate.constrained or candidate.pooled:
        return False
    if candidate.request == len(container.cpus):
        return True
    if any(pool <= container.cpus for pool in pools) or container.cpus <= observed.reserved:
        return False
    return candidate.request is not None or not any(
        other.container.uid != container.uid and other.container.cpus == container.cpus
        for other in candidates
    )


def _is_recorded(candidate: _Candidate, observed: Observation) -> bool:
    """Whether an intact state file gives it just the CPUs on which it runs, uncontradicted by its pod."""
    container, uid = candidate.container, candidate.container.uid
    pod = observed.pods.get(uid)
    part_of_pod = bool(observed.recorded and uid in observed.recorded.pods)  # pod-level resources
    if (
        not observed.intact
        or (pod and candidate.name not in pod.containers)
        or (candidate.certainly_pooled and not part_of_pod)
    ):
        return False
    return bool(container.cpus) and observed.recorded_cpus(uid, candidate.name) == container.cpus


def _owner(candidate: _Candidate, observed: Observation) -> CPUOwner:
    container = candidate.container
    recorded = len(container.cpus) if _is_recorded(candidate, observed) else None
    request = candidate.request if candidate.listed else candidate.request or recorded
    return CPUOwner(
        uid=container.uid,
        container=candidate.name or placeholder(container),
        cpus=container.cpus,
        named=bool(candidate.name),
        request=request or None,
        reusable=candidate.listed is not None and candidate.listed.reusable,
        pod=candidate.pod,
    )


def _not_running(
    observed: Observation, running: list[CPUOwner], candidates: list[_Candidate]
) -> Iterator[CPUOwner]:
    """Recorded containers that do not run now, but whose pod is still on the node.

    One with exactly the CPUs of a running container of its pod may be that one's predecessor: an init
    container, whose CPUs were passed on.
    """
    if not observed.recorded or not observed.intact:
        return
    present = dict.fromkeys((candidate.container.uid for candidate in candidates), "") | dict(observed.ready)
    present |= {candidate.container.uid: candidate.pod for candidate in candidates if candidate.pod}
    names = {(owner.uid, owner.container) for owner in running}
    sets = {(owner.uid, owner.cpus) for owner in running}
    for uid, entries in observed.recorded.entries.items():
        pod = observed.pods.get(uid)
        if pod.ended if pod else uid not in present:
            continue
        for name, cpus in entries.items():
            need = pod.containers.get(name) if pod else CPUNeed(len(cpus))
            if (uid, name) in names or need is None or not (need.cpus or uid in observed.recorded.pods):
                continue
            title = pod.title if pod else present.get(uid, "")
            twin = (uid, cpus) in sets
            yield CPUOwner(uid, name, cpus, twin, True, need.cpus or None, need.reusable or twin, title)
