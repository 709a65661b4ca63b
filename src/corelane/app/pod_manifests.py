"""Pod requests from amounts on the command line, or from manifests of pods and workloads."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from corelane.app.state import files
from corelane.settings import EncodingError, SettingsError, cpu_amount, size, utf8_text
from corelane.workload.request import ContainerRequest, PodRequest, QOSClass, launcher_cpus

GROUP: Final = "kubevirt.io"
_PARITY: Final = "alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity"
_OVERHEAD: Final = "256Mi"
"""About what KubeVirt adds to a machine's memory; beside huge pages it is all of the pod's other memory."""
_CPU_ALLOCATION_RATIO: Final = 10
"""KubeVirt's default: the vCPUs for which it requests one CPU."""


def launcher_spec(template: Mapping[str, Any], annotations: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec of the pod for a VirtualMachineInstance's spec. Raises ValueError."""
    domain = template.get("domain")
    if not isinstance(domain, dict):
        raise ValueError("domain: is missing or not an object")

    def field(*path: str) -> str:
        value: Any = domain
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        return str(value).lower() if isinstance(value, bool) else str(value or "")

    vcpus, beside = launcher_cpus(field, to_even=_PARITY in annotations)
    resources = domain.get("resources")
    parts: list[Any] = [
        resources.get(name) if isinstance(resources, dict) else {} for name in ("requests", "limits")
    ]
    requests, limits = (dict(part) if isinstance(part, dict) else {} for part in parts)
    if memory := requests.get("memory") or limits.get("memory") or field("memory", "guest"):
        requests["memory"] = memory
    if page := field("memory", "hugepages", "pageSize"):
        limits[f"hugepages-{page}"] = field("memory", "guest") or requests.get("memory") or page
        requests["memory"] = _OVERHEAD
        limits.pop("memory", None)
    if field("cpu", "dedicatedCpuPlacement") == "true":
        cpus = vcpus + beside if vcpus else limits.get("cpu") or requests.get("cpu")
        if not cpus or (beside and not vcpus):
            raise ValueError("domain.cpu: dedicatedCpuPlacement without cores, sockets or threads")
        requests["cpu"] = limits["cpu"] = cpus
        limits |= {"memory": requests["memory"]} if "memory" in requests else {}
    elif "cpu" not in requests | limits:
        requests["cpu"] = f"{1000 * ((vcpus or 1) + beside) // _CPU_ALLOCATION_RATIO}m"
    return {"containers": [{"name": "compute", "resources": {"requests": requests, "limits": limits}}]}


_UID: Final = "corelane-allocate"
_TEMPLATES: Final[Mapping[str, tuple[str, ...]]] = {
    "Pod": (),
    "Deployment": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "ReplicationController": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}
"""Kubernetes' own kinds with pods, and the path of the pod's template."""
_MACHINES: Final[Mapping[str, tuple[str, ...]]] = {
    "VirtualMachine": ("spec", "template"),
    "VirtualMachineInstance": (),
    "VirtualMachineInstanceReplicaSet": ("spec", "template"),
}
"""KubeVirt's kinds, and the path of the machine's template."""
_GROUPS: Final = ("", "apps", "batch", "extensions")
_MOST_PODS: Final = 1000


def pod_request(
    cpus: str, memory: str = "", hugepages: Sequence[str] = (), devices: Sequence[str] = ()
) -> PodRequest:
    """Return a Guaranteed pod of one container with these requests.

    Huge pages are given as `2Mi=512Mi`, devices as `nvidia.com/gpu=2`. Raises SettingsError.
    """
    milli, memory_size = cpu_amount("--cpus", cpus), size("--memory", memory) if memory else 0
    counts: dict[str, int] = {}
    for text in devices:
        match = re.fullmatch(r"([^=]+)=([0-9]{1,6})", text, re.ASCII)
        if not match:
            raise SettingsError(f"--device: {text!r} is not NAME=COUNT, such as nvidia.com/gpu=1")
        if match[1] in counts:
            raise SettingsError(f"--device: {match[1]} is given twice")
        counts[match[1]] = int(match[2])
    only = ContainerRequest(
        "app",
        cpu_request=milli,
        cpu_limit=milli,
        memory_request=memory_size,
        memory_limit=memory_size,
        hugepages=dict(map(_pages, hugepages)),
        devices=counts,
    )
    return PodRequest(_UID, "default", "request", QOSClass.GUARANTEED, (only,))


def _pages(text: str) -> tuple[int, int]:
    """Return the page size in KiB, and the bytes."""
    page_text, equals, amount = text.partition("=")
    if not equals:
        raise SettingsError(f"--hugepages: {text!r} is not SIZE=AMOUNT, such as 2Mi=512Mi")
    page, total = size("--hugepages", page_text), size("--hugepages", amount)
    if not page or page % 1024 or total % page:
        raise SettingsError(f"--hugepages: {text}: {amount} is not a multiple of the page size {page_text}")
    return page // 1024, total


@dataclass(frozen=True, slots=True)
class ManifestPods:
    """The requests of files' pods, in their order, and objects of kinds that make none, by kind."""

    requests: tuple[PodRequest, ...]
    skipped: Mapping[str, int]


def pods(*paths: Path) -> ManifestPods:
    """Return the pods in manifests; of a workload as many as it has replicas, made by its pod template.

    Objects of other kinds, as Helm prints them, are skipped. Raises SettingsError naming file and field.
    """
    requests: list[PodRequest] = []
    skipped: Counter[str] = Counter()
    for number, path in enumerate(paths, 1):
        uids, trees = _UID if len(paths) == 1 else f"{_UID}-file-{number}", objects(path)
        others = [tree for tree in trees if not _makes_pods(tree)]
        kinds = Counter(_kind(tree) for tree in others)
        if len(others) == len(trees):
            present = f"only {', '.join(kinds)}" if kinds else "no object"
            raise SettingsError(
                f"{path}: has {present}, and no pods; give a {', '.join((*_TEMPLATES, *_MACHINES))}"
            )
        skipped += kinds
        _add_pods(path, uids, trees, requests)
    return ManifestPods(tuple(requests), skipped)


def _add_pods(path: Path, uids: str, trees: list[dict[str, Any]], requests: list[PodRequest]) -> None:
    """Add the requests of the pods among a file's objects; their UIDs begin with `uids`."""
    for number, tree in enumerate(trees, 1):
        if not _makes_pods(tree):
            continue
        where = str(path) if len(trees) == 1 else f"{path}: object {number}"
        count = _replicas(where, tree)
        if len(requests) + count > _MOST_PODS:
            raise SettingsError(f"{where}: {count} pods, more than {_MOST_PODS} in all; give fewer replicas")
        uid = uids if len(trees) == 1 else f"{uids}-{number}"
        if count:
            pod = _pod_request(where, path, tree, uid)
            numbers = [""] if count == 1 else [f"-{index}" for index in range(count)]
            requests += (replace(pod, uid=pod.uid + each, name=pod.name + each) for each in numbers)


def _kind(tree: Mapping[str, Any]) -> str:
    """A kind, with its group where one of the kinds with pods has the same name: `Job.batch.volcano.sh`."""
    kind = str(tree.get("kind"))
    return f"{kind}.{_group(tree)}" if kind in _TEMPLATES else kind


def _group(tree: Mapping[str, Any]) -> str:
    return str(tree.get("apiVersion") or "").rpartition("/")[0]


def _is_machine(tree: Mapping[str, Any]) -> bool:
    return tree.get("kind") in _MACHINES and _group(tree) == GROUP


def _makes_pods(tree: Mapping[str, Any]) -> bool:
    return (tree.get("kind") in _TEMPLATES and _group(tree) in _GROUPS) or _is_machine(tree)


def _replicas(where: str, tree: Mapping[str, Any]) -> int:
    """Return the number of pods of a workload; of a DaemonSet one, as it has one on each node."""
    kind, spec = tree.get("kind"), tree.get("spec")
    if not isinstance(spec, dict) or kind in ("Pod", "DaemonSet", "CronJob"):
        return 1
    if kind == "Job":
        most = _count(where, spec, "parallelism")
        return min(most, _count(where, spec, "completions")) if "completions" in spec else most
    return _count(where, spec, "replicas")


def _count(where: str, spec: Mapping[str, Any], name: str) -> int:
    count = spec.get(name)
    if count is None:
        return 1
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise SettingsError(f"{where}: spec.{name}: {count!r} is not an integer of 0 or more")
    return count


def _pod_request(where: str, path: Path, tree: Mapping[str, Any], uid: str) -> PodRequest:
    import msgspec

    from corelane.kube import decode
    from corelane.kube.decode import Malformed
    from corelane.kube.pod import Pod
    from corelane.kube.translate import TranslationError, pod_requests

    try:
        pod = decode.decode_object(Pod, msgspec.json.encode(_pod_tree(where, tree)))
        if isinstance(pod, Malformed):
            raise SettingsError(f"{where}: {pod.error}")
        if not pod.spec.containers:
            raise SettingsError(f"{where}: spec.containers: is empty; a pod needs a container")
        request = pod_requests.request(pod)
    except (TranslationError, TypeError) as error:
        raise SettingsError(f"{where}: {error}") from None
    name, space = request.name or path.stem, request.namespace or "default"
    return replace(request, uid=request.uid or uid, namespace=space, name=name)


def objects(path: Path) -> list[dict[str, Any]]:
    """Return the objects in a file of YAML or JSON, the items of lists one by one. Raises SettingsError."""
    import yaml

    from corelane.yaml_keys import load_bounded

    try:
        trees = [tree for tree in load_bounded(utf8_text(files.read(path))) if tree is not None]
    except EncodingError as error:
        raise SettingsError(f"{path}:{error.line}:{error.column}: {error}") from None
    except yaml.YAMLError as error:
        raise SettingsError(f"{path}: is not YAML or JSON: {' '.join(str(error).split())}") from None
    listed: list[dict[str, Any]] = []
    for tree in trees:
        if not isinstance(tree, dict):
            raise SettingsError(f"{path}: is {type(tree).__name__}, not an object")
        is_list = str(tree.get("kind", "")).endswith("List")
        items = tree.get("items") if is_list else [tree]
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise SettingsError(f"{path}: items: is not a list of objects")
        listed += items
    return listed


def _pod_tree(where: str, tree: Mapping[str, Any]) -> dict[str, Any]:
    machine = _is_machine(tree)
    path = (_MACHINES if machine else _TEMPLATES)[str(tree.get("kind"))]
    if not path and not machine:
        return dict(tree)
    template = dict(tree)
    for name in path:
        template = _member(where, template, name)
    own = tree.get("metadata") or {}
    if not isinstance(own, dict):
        raise SettingsError(f"{where}: metadata: is not an object")
    # Name and namespace of a Deployment stand for those of its pods.
    named = {name: own[name] for name in ("name", "namespace") if name in own}
    meta = {**(template.get("metadata") or {}), **named}
    spec = _launcher(where, tree, template) if machine else template.get("spec")
    return {"metadata": {**meta, "uid": ""}, "spec": spec}


def _launcher(where: str, tree: Mapping[str, Any], template: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec of a virtual machine's pod; an instance type's amounts are in an object elsewhere."""
    if "instancetype" in _member(where, tree, "spec"):
        raise SettingsError(f"{where}: spec.instancetype: its CPUs are not read; give them in domain.cpu")
    annotations = (template.get("metadata") or {}).get("annotations") or {}
    try:
        return launcher_spec(_member(where, template, "spec"), annotations)
    except ValueError as error:
        raise SettingsError(f"{where}: {error}") from None


def _member(where: str, tree: Mapping[str, Any], name: str) -> dict[str, Any]:
    member = tree.get(name)
    if not isinstance(member, dict):
        raise SettingsError(f"{where}: {name}: is missing or not an object")
    return member
