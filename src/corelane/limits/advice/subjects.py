"""The subject of advice: a workload's container and its node's pods, mapped from Kubernetes objects.

Objects come as `kubectl get pods,nodes,hpa,replicasets,jobs -A -o json` prints them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from corelane import quantity
from corelane.limits.lint import pod_context, thread_settings
from corelane.limits.lint.located import items, text
from corelane.limits.lint.manifests import (
    ManifestContainer,
    ManifestObject,
    scaled_workload,
    utilisation_targets,
)
from corelane.limits.lint.pod_context import PodContext
from corelane.limits.lint.policy import STATIC, Policy
from corelane.limits.lint.thread_settings import ThreadSetting, counts_node_cpus
from corelane.workload.request import Amounts, ContainerKind, QOSClass, peak, qos_class

_ENDED: Final = frozenset({"Succeeded", "Failed"})
_RUNTIMES: Final = (
    ("pytorch", "OMP_NUM_THREADS"),
    ("torchserve", "OMP_NUM_THREADS"),
    ("vllm", "OMP_NUM_THREADS"),
    ("tensorflow", "OMP_NUM_THREADS"),
    ("onnxruntime", "OMP_NUM_THREADS"),
    ("nginx", "worker_processes"),
    ("envoy", "--concurrency"),
    ("haproxy", "nbthread"),
)
_MILLI: Final = 10**6
_UNIT: Final = 10**9
Owner = tuple[str, str, str]
"""Kind, namespace and name."""


class ObjectError(ValueError):
    """An amount in an object cannot be parsed; the message names the object and the amount."""


@dataclass(frozen=True, slots=True)
class Scaler:
    """A HorizontalPodAutoscaler's CPU utilisation target, in percent of requests.

    It counts one container, or ("") the whole pod, which requests `request_milli`.
    """

    name: str
    percent: int
    container: str = ""
    request_milli: int = 0


@dataclass(frozen=True, slots=True)
class Subject:
    """A container of a workload. CPU in milliCPU, memory in bytes, 0 for none.

    `listed` is false where no list of pods has the container, so that only its name is known.
    """

    kind: str
    namespace: str
    name: str
    container: str
    listed: bool = True
    init: bool = False
    """Whether it is among the init containers, as sidecars are."""
    batch: bool = False
    qos: QOSClass = QOSClass.BURSTABLE
    request: int = 0
    limit: int = 0
    memory_request: int = 0
    memory_limit: int = 0
    exclusive: int = 0
    """Its exclusive CPUs."""
    exclusive_siblings: tuple[str, ...] = ()
    """Containers that have exclusive CPUs only while this one's limit is its request."""
    siblings: Mapping[str, tuple[Amounts, Amounts]] = field(default_factory=dict)
    """The pod's other containers: requests and limits, in nano-units."""
    pod_level: bool = False
    """Whether the pod has pod-level resources."""
    settings: tuple[ThreadSetting, ...] = ()
    threads: int | None = None
    """Number that runs at once by these settings."""
    runtime: str = ""
    """The variable or flag by which its kind of software is told how many threads to run."""
    follows_limit: tuple[str, ...] = ()
    """Variables that take their value from limits.cpu."""
    scalers: tuple[Scaler, ...] = ()

    @property
    def incomplete_siblings(self) -> tuple[str, ...]:
        """Other containers that keep the pod from being Guaranteed."""
        return tuple(
            name for name, own in self.siblings.items() if qos_class([own]) is not QOSClass.GUARANTEED
        )


@dataclass(frozen=True, slots=True)
class NodePod:
    """A pod on a node: what it requests in milliCPU, and how many exclusive CPUs it has."""

    title: str
    qos: QOSClass
    request: int
    exclusive: int = 0
    own: bool = False
    """Whether it belongs to the workload that advice is for."""


@dataclass(frozen=True, slots=True)
class NodeOccupancy:
    """A node's CPUs for pods, in milliCPU (0: unknown), and the pods on it."""

    name: str
    milli: int
    pods: tuple[NodePod, ...]


@dataclass(slots=True)
class ClusterSnapshot:
    """The objects of a cluster, as far as there are any."""

    pods: dict[tuple[str, str], ManifestObject] = field(default_factory=dict)
    others: dict[Owner, ManifestObject] = field(default_factory=dict)
    policy: Policy = STATIC
    local_milli: int = 0
    """CPUs of this machine, for nodes whose own object is missing."""
    known: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    """Names by id from elsewhere than the objects."""

    def add(self, objects: Iterable[ManifestObject]) -> None:
        for each in objects:
            if each.kind == "Pod":
                self.pods[each.namespace or "default", each.name] = each
            else:
                self.others[each.kind, each.namespace, each.name] = each

    def names(self) -> Iterator[tuple[str, tuple[str, str, str]]]:
        """Ids of containers, and UIDs of pods (with no container), to namespace, pod and container."""
        yield from self.known.items()
        for (namespace, name), pod in self.pods.items():
            hashed = text(pod.node, "metadata", "annotations", "kubernetes.io/config.hash")
            yield hashed or text(pod.node, "metadata", "uid"), (namespace, name, "")
            for kind in ("containerStatuses", "initContainerStatuses"):
                for status in items(pod.node, "status", kind):
                    ident = text(status, "containerID").rpartition("//")[2]
                    if ident:
                        yield ident, (namespace, name, text(status, "name"))

    def owner(self, namespace: str, pod: str) -> Owner:
        """The workload that a pod belongs to; the pod itself where nothing owns it, or the pod is unknown."""
        listed = self.pods.get((namespace, pod))
        return _owner(listed, self.others) if listed else ("", namespace, pod)

    def subject(self, namespace: str, pod: str, container: str) -> Subject:
        """One container of a pod's workload."""
        listed = self.pods.get((namespace, pod))
        containers = listed.pod.containers if listed and listed.pod else ()
        own = next((each for each in containers if each.name == container), None)
        kind, _, name = self.owner(namespace, pod)
        if listed is None or own is None:
            return Subject(kind, namespace, name, container, listed=False)
        context = PodContext(listed, self.policy)
        return _subject(context, own, (kind, namespace, name), self._scalers(listed))

    def nodes(self, pods: Iterable[tuple[str, str]]) -> list[NodeOccupancy]:
        """Every node on which these pods run, with all pods there; the workload's own are marked."""
        owners = {self.owner(*pod) for pod in pods}
        names = sorted({_node_name(listed) for pod in pods if (listed := self.pods.get(pod))})
        return [NodeOccupancy(name, self._milli(name), tuple(self._on(name, owners))) for name in names]

    def cpus(self, pod: tuple[str, str]) -> int:
        """All CPUs of a pod's node by its own object, those not allocatable included; 0 where unknown."""
        name = _node_name(listed) if (listed := self.pods.get(pod)) else ""
        written = ("Node", "", name) in self.others and self._milli(name, ("capacity", "allocatable"))
        return -(-int(written) // 1000)

    def _milli(self, name: str, parts: tuple[str, ...] = ("allocatable", "capacity")) -> int:
        node = self.others.get(("Node", "", name))
        for part in parts:
            if node and (written := text(node.node, "status", part, "cpu")):
                try:
                    return max(quantity.parse(written).nano, 0) // _MILLI
                except ValueError as error:
                    raise ObjectError(f"node {name}: cpu {written!r}: {error}") from None
        return 1000 * self.policy.node_cpus or self.local_milli

    def _on(self, name: str, owners: set[Owner]) -> Iterator[NodePod]:
        for pod in self.pods.values():
            if _node_name(pod) == name and text(pod.node, "status", "phase") not in _ENDED:
                context = PodContext(pod, self.policy)
                level = pod.pod.resources if pod.pod else None
                requests = [(each.kind, _request(context, each)) for each in pod_context.containers(context)]
                yield NodePod(
                    f"{pod.namespace or 'default'}/{pod.name}",
                    pod_context.qos(context),
                    -(-level.request("cpu") // _MILLI) if level else peak(requests),
                    pod_context.pod_exclusive_cpus(context),
                    own=_owner(pod, self.others) in owners,
                )

    def _scalers(self, pod: ManifestObject) -> tuple[Scaler, ...]:
        kind, namespace, name = _owner(pod, self.others)
        context = PodContext(pod, self.policy)
        whole = sum(_request(context, own) for own in pod_context.main_containers(context))
        return tuple(
            Scaler(f"HorizontalPodAutoscaler {each.name}", target.percent, target.container, whole)
            for each in self.others.values()
            if each.kind == "HorizontalPodAutoscaler" and each.namespace == namespace
            if scaled_workload(each) == (kind, name)
            for target in utilisation_targets(each)
        )


def _request(pod: PodContext, own: ManifestContainer) -> int:
    return pod_context.effective(pod, own.resources, "cpu").request_milli


# Owners and nodes of pods.


def _owner(pod: ManifestObject, others: Mapping[Owner, ManifestObject]) -> Owner:
    """Up the owner references as far as objects are there; a Deployment shows in its pods' names."""
    below, kind, namespace, name = pod, pod.kind, pod.namespace, pod.name
    for _ in range(5):
        references = items(below.node, "metadata", "ownerReferences")
        above = next((each for each in references if text(each, "controller") == "true"), None)
        if above is None or text(above, "kind") == "Node":
            break
        kind, name = text(above, "kind"), text(above, "name")
        owner = others.get((kind, namespace, name))
        if owner is None:
            stamp = text(below.node, "metadata", "labels", "pod-template-hash")
            if kind == "ReplicaSet" and stamp and name.endswith(f"-{stamp}"):
                return "Deployment", namespace, name.removesuffix(f"-{stamp}")
            break
        below = owner
    return kind, namespace, name


def _node_name(pod: ManifestObject) -> str:
    return text(pod.node, "spec", "nodeName")


# Containers.


def _subject(pod: PodContext, own: ManifestContainer, owner: Owner, scalers: tuple[Scaler, ...]) -> Subject:
    cpu, memory = (pod_context.effective(pod, own.resources, name) for name in ("cpu", "memory"))
    exclusive = pod_context.exclusive_cpus(pod, own)
    usable = tuple(setting for setting in own.settings if setting.valid)
    if usable and all(setting.partial for setting in usable):
        # A JVM's settings of single pools leave the others to its CPUs.
        usable = (ThreadSetting("-XX:ActiveProcessorCount", None), *usable)
    return Subject(
        *owner,
        own.name,
        init=own.kind is not ContainerKind.APP,
        batch=pod.object.batch or owner[0] in ("Job", "CronJob"),
        qos=pod_context.qos(pod),
        request=cpu.request_milli,
        limit=cpu.limit_milli,
        memory_request=memory.request // _UNIT,
        memory_limit=memory.limit // _UNIT,
        exclusive=exclusive,
        exclusive_siblings=() if exclusive else pod_context.exclusive_by_class(pod),
        siblings={
            each.name: pod_context.requests_and_limits(pod, each)
            for each in pod_context.containers(pod)
            if each is not own
        },
        pod_level=bool(pod.object.pod and pod.object.pod.resources),
        settings=usable,
        threads=thread_settings.at_once(own.settings),
        runtime=_runtime(own),
        follows_limit=tuple(each.name for each in own.settings if each.from_field == "limits.cpu"),
        scalers=tuple(scaler for scaler in scalers if scaler.container in ("", own.name)),
    )


def _runtime(own: ManifestContainer) -> str:
    """Return what sets the number of threads; a JVM's options may hold others already."""
    env = {text(entry, "name") for entry in items(own.node, "env")}
    if thread_settings.is_jvm(own.node, own.image):
        return "-XX:ActiveProcessorCount" if "JAVA_TOOL_OPTIONS" in env else "JAVA_TOOL_OPTIONS"
    if counts_node_cpus(own.image, own.node) is None:
        return ""
    return next((name for word, name in _RUNTIMES if word in own.image), "OMP_NUM_THREADS")
