"""The Kubernetes objects that advice is about: pods to workloads, nodes and neighbours, and autoscalers.

They come as `kubectl get pods,nodes,hpa,replicasets,jobs -A -o json` prints them, or from an API server.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from corelane import quantity
from corelane.app.state import files
from corelane.limits.advice import Neighbour, Node, Scaler, Setting, Subject
from corelane.limits.lint import Policy, manifest, nodes, reading, scene, threads
from corelane.limits.lint.manifest import Container, Object
from corelane.limits.lint.nodes import NOWHERE, Dict, List, Member, Scalar, items, text
from corelane.limits.lint.reading import Text
from corelane.limits.lint.scene import PodContext
from corelane.workload import ContainerKind, peak

__all__ = ["AdviseError", "ClusterSnapshot", "Owner", "fetch", "read"]

_ENDED: Final = frozenset({"Succeeded", "Failed"})
_SERVED: Final = (
    "/api/v1/pods",
    "/api/v1/nodes",
    "/apis/apps/v1/replicasets",
    "/apis/batch/v1/jobs",
    "/apis/autoscaling/v2/horizontalpodautoscalers",
)
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


class AdviseError(ValueError):
    """Input that no advice can be made from; says which, and what to do."""


@dataclass(slots=True)
class ClusterSnapshot:
    """What is known of the cluster; empty where nobody says."""

    pods: dict[tuple[str, str], Object] = field(default_factory=dict)
    others: dict[Owner, Object] = field(default_factory=dict)
    policy: Policy = field(default_factory=Policy)
    local_milli: int = 0
    """CPUs of this machine, for nodes whose own object is not there."""

    def add(self, found: Iterable[Object]) -> None:
        for one in found:
            if one.kind == "Pod":
                self.pods[one.namespace or "default", one.name] = one
            else:
                self.others[one.kind, one.namespace, one.name] = one

    def names(self) -> Iterator[tuple[str, tuple[str, str, str]]]:
        """Ids of containers, and UIDs of pods (with no container), to namespace, pod and container."""
        for (namespace, name), pod in self.pods.items():
            hashed = text(pod.node, "metadata", "annotations", "kubernetes.io/config.hash")
            yield hashed or text(pod.node, "metadata", "uid"), (namespace, name, "")
            for kind in ("containerStatuses", "initContainerStatuses"):
                for one in items(pod.node, "status", kind):
                    ident = text(one, "containerID").rpartition("//")[2]
                    if ident:
                        yield ident, (namespace, name, text(one, "name"))

    def owner(self, namespace: str, pod: str) -> Owner:
        """The workload that a pod belongs to; the pod itself where nothing owns it, or nobody knows."""
        found = self.pods.get((namespace, pod))
        return _owner(found, self.others) if found else ("", namespace, pod)

    def subject(self, namespace: str, pod: str, container: str) -> Subject:
        """Whom advice is for: one container of a pod's workload."""
        found = self.pods.get((namespace, pod))
        named = next((one for one in _containers(found) if one.name == container), None)
        kind, _, name = self.owner(namespace, pod)
        if found is None or (named is None and container):
            return Subject(kind, namespace, name, container, known=False)
        if named is None:
            return Subject(kind, namespace, name, "", known=False)
        return _subject(PodContext(found, self.policy), named, (kind, namespace, name), self._scalers(found))

    def nodes(self, pods: Iterable[tuple[str, str]]) -> list[Node]:
        """Every node on which these pods run, with all pods there; the workload's own are marked."""
        wanted = {self.owner(*pod) for pod in pods}
        names = sorted({_node_name(one) for pod in pods if (one := self.pods.get(pod))})
        return [Node(name, self._milli(name), tuple(self._on(name, wanted))) for name in names]

    def cpus(self, pod: tuple[str, str]) -> int:
        """All CPUs of a pod's node, as far as its own object says; those not allocatable count, too."""
        name = _node_name(found) if (found := self.pods.get(pod)) else ""
        written = ("Node", "", name) in self.others and self._milli(name, ("capacity", "allocatable"))
        return -(-int(written) // 1000)

    def _milli(self, name: str, parts: tuple[str, ...] = ("allocatable", "capacity")) -> int:
        node = self.others.get(("Node", "", name))
        for part in parts:
            if node and (written := text(node.node, "status", part, "cpu")):
                return _amount(written, f"node {name}") // _MILLI
        return 1000 * self.policy.node_cpus or self.local_milli

    def _on(self, name: str, wanted: set[Owner]) -> Iterator[Neighbour]:
        for one in self.pods.values():
            if _node_name(one) == name and text(one.node, "status", "phase") not in _ENDED:
                yield _neighbour(PodContext(one, self.policy), own=_owner(one, self.others) in wanted)

    def _scalers(self, pod: Object) -> tuple[Scaler, ...]:
        kind, namespace, name = _owner(pod, self.others)
        found = [
            one
            for one in self.others.values()
            if one.kind == "HorizontalPodAutoscaler" and one.namespace == namespace
        ]
        wanted = [one for one in found if _target(one) == (kind, name)]
        return tuple(scaler for one in wanted for scaler in _scaler(one, PodContext(pod, self.policy)))


def _target(scaler: Object) -> tuple[str, str]:
    spec = ("spec", "scaleTargetRef")
    return text(scaler.node, *spec, "kind"), text(scaler.node, *spec, "name")


def _scaler(one: Object, pod: PodContext) -> Iterator[Scaler]:
    name = f"HorizontalPodAutoscaler {one.name}"
    whole = sum(_milli(pod, own) for own in _lasting(pod))
    written = text(one.node, "spec", "targetCPUUtilizationPercentage")
    if written.isdecimal():
        yield Scaler(name, int(written), "", whole)
    for metric in items(one.node, "spec", "metrics"):
        for part in ("resource", "containerResource"):
            percent = text(metric, part, "target", "averageUtilization")
            if text(metric, part, "name") == "cpu" and percent.isdecimal():
                yield Scaler(name, int(percent), text(metric, part, "container"), whole)


def _lasting(pod: PodContext) -> list[Container]:
    return list(scene.main_containers(pod))


def _milli(pod: PodContext, own: Container) -> int:
    return scene.effective(pod, own.resources, "cpu").request_milli


def _owner(pod: Object, others: Mapping[Owner, Object]) -> Owner:
    """Up the owner references as far as objects are there; a Deployment shows in its pods' names."""
    one, kind, name = pod, pod.kind, pod.name
    for _ in range(5):
        above = _controller(one)
        if above is None or above[0] == "Node":
            return kind, pod.namespace, name
        (kind, name), below = above, one
        found = others.get((kind, pod.namespace, name))
        if found is None:
            return _deployment(below, kind, pod.namespace, name)
        one = found
    return kind, pod.namespace, name


def _controller(one: Object) -> tuple[str, str] | None:
    owners = items(one.node, "metadata", "ownerReferences")
    found = next((owner for owner in owners if text(owner, "controller") == "true"), None)
    return (text(found, "kind"), text(found, "name")) if found else None


def _deployment(below: Object, kind: str, namespace: str, name: str) -> Owner:
    stamp = text(below.node, "metadata", "labels", "pod-template-hash")
    if kind == "ReplicaSet" and stamp and name.endswith(f"-{stamp}"):
        return "Deployment", namespace, name.removesuffix(f"-{stamp}")
    return kind, namespace, name


def _node_name(pod: Object) -> str:
    return text(pod.node, "spec", "nodeName")


def _neighbour(pod: PodContext, *, own: bool) -> Neighbour:
    level = pod.object.pod.resources if pod.object.pod else None
    asked = [(one.kind, _milli(pod, one)) for one in scene.containers(pod)]
    request = -(-level.request("cpu") // _MILLI) if level else peak(asked)
    alone = sum(scene.exclusive_cpus(pod, one) for one in _lasting(pod))
    title = f"{pod.object.namespace or 'default'}/{pod.object.name}"
    return Neighbour(title, scene.qos(pod), request, alone, own)


def _containers(pod: Object | None) -> tuple[Container, ...]:
    return pod.pod.containers if pod and pod.pod else ()


def _subject(pod: PodContext, own: Container, owner: Owner, scalers: tuple[Scaler, ...]) -> Subject:
    cpu, memory = (scene.effective(pod, own.resources, name) for name in ("cpu", "memory"))
    alone = scene.exclusive_cpus(pod, own)
    found = tuple(_setting(own, one) for one in own.settings if one.valid)
    return Subject(
        *owner,
        own.name,
        init=own.kind is not ContainerKind.APP,
        batch=pod.object.batch or owner[0] in ("Job", "CronJob"),
        qos=scene.qos(pod),
        request=cpu.request_milli,
        limit=cpu.limit_milli,
        memory_request=memory.request // _UNIT,
        memory_limit=memory.limit // _UNIT,
        exclusive=alone,
        held=() if alone else scene.held_by_class(pod),
        incomplete=tuple(_incomplete(pod, own)),
        whole_pod=bool(pod.object.pod and pod.object.pod.resources),
        settings=found,
        threads=threads.at_once(own.settings),
        runtime=_runtime(own),
        follows_limit=tuple(one.name for one in own.settings if one.from_field == "limits.cpu"),
        scalers=tuple(one for one in scalers if one.container in ("", own.name)),
    )


def _setting(own: Container, one: threads.Setting) -> Setting:
    env = any(text(entry, "name") == one.name for entry in items(own.node, "env"))
    return Setting(one.name, one.count, one.processes, env)


def _runtime(own: Container) -> str:
    """How software of this kind is told how many threads to run; a JVM's options may hold others already."""
    taken = {text(entry, "name") for entry in items(own.node, "env")}
    if threads.is_jvm(own.node, own.image):
        return "-XX:ActiveProcessorCount" if "JAVA_TOOL_OPTIONS" in taken else "JAVA_TOOL_OPTIONS"
    if threads.counts_node_cpus(own.image) is None:
        return ""
    return next((name for word, name in _RUNTIMES if word in own.image), "OMP_NUM_THREADS")


def _incomplete(pod: PodContext, own: Container) -> Iterator[str]:
    for one in scene.containers(pod):
        pairs = [scene.effective(pod, one.resources, name) for name in ("cpu", "memory")]
        if one is not own and not all(pair.limit and pair.request == pair.limit for pair in pairs):
            yield one.name


def read(path: Path, world: ClusterSnapshot) -> None:
    """Add what is in a file. Raises AdviseError if it holds no pods, StateFileError if it cannot be read."""
    content = files.read_stream(path)
    found = [one for root in _roots(path, content) for one in manifest.objects(root, str(path), "", _nanos)]
    if not any(one.kind == "Pod" for one in found):
        raise AdviseError(
            f"{path}: has no pods: give the output of kubectl get pods,nodes,hpa,replicasets -A -o json"
        )
    for one in found:
        _check(path, one)
    world.add(found)


def _check(path: Path, one: Object) -> None:
    """An amount that cannot be read must not pass for none."""
    for own in _containers(one) if one.kind == "Pod" else ():
        for where, amounts in (("requests", own.resources.requests), ("limits", own.resources.limits)):
            for name, amount in amounts.items():
                if amount.error:
                    title = f"pod {one.namespace or 'default'}/{one.name}: container {own.name}"
                    raise AdviseError(f"{path}: {title}: {where}.{name}: {amount.text!r}: {amount.error}")


def _roots(path: Path, content: bytes) -> Iterator[nodes.Node]:
    try:
        yield _located(json.loads(content))
        return
    except (ValueError, RecursionError):
        pass
    try:
        documents = reading.read(content.decode())
    except UnicodeDecodeError:
        raise AdviseError(f"{path}: neither JSON nor YAML: not UTF-8 text") from None
    for one in documents:
        if not isinstance(one, Text):
            raise AdviseError(f"{path}:{one.line}:{one.column}: {one.message}")
        yield one.root


def _located(value: Any) -> nodes.Node:
    """JSON as the values that lint reads; where they stand does not matter here."""
    if isinstance(value, dict):
        return Dict({str(key): Member(NOWHERE, _located(one)) for key, one in value.items()}, NOWHERE)
    if isinstance(value, list):
        return List(tuple(map(_located, value)), NOWHERE)
    if value is None or isinstance(value, bool):
        return Scalar({None: "", True: "true", False: "false"}[value], plain=True, place=NOWHERE)
    return Scalar(str(value), plain=not isinstance(value, str), place=NOWHERE)


def _nanos(written: str) -> int:
    return quantity.parse(written).nano


def _amount(written: str, what: str) -> int:
    try:
        return max(_nanos(written), 0)
    except ValueError as error:
        raise AdviseError(f"{what}: cpu {written!r}: {error}") from None


def fetch(kubeconfig: Path | None, world: ClusterSnapshot) -> list[str]:
    """Add what an API server has; notes say what it does not serve. Raises the client's errors for pods."""
    found, notes = asyncio.run(_asked(kubeconfig))
    for kind, body in found:
        world.add(manifest.objects(_located(body), kind, "", _nanos))
    return notes


async def _asked(kubeconfig: Path | None) -> tuple[list[tuple[str, Any]], list[str]]:
    from corelane.kube.apierrors import APIError
    from corelane.kube.client import KubeClient

    client, found, notes = KubeClient.connect(kubeconfig), [], []
    try:
        for path in _SERVED:
            try:
                body = await client.raw("GET", path)
            except APIError as error:
                if path == _SERVED[0]:
                    raise
                notes.append(f"{path.rpartition('/')[2]} are not served: {error}")
                continue
            found.append((path, json.loads(body)))
    finally:
        await client.close()
    return found, notes
