"""Pod requests from amounts on the command line, or from manifests of pods and workloads."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from corelane.app.settings_file import SettingsError, cpu_amount, size
from corelane.app.state import files
from corelane.workload import ContainerRequest, PodRequest, QOSClass

_UID: Final = "corelane-allocate"
_KINDS_WITH_TEMPLATE = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job")


def pod_request(
    cpus: str, memory: str = "", hugepages: Sequence[str] = (), devices: Sequence[str] = ()
) -> PodRequest:
    """Return a Guaranteed pod of one container with these requests.

    Huge pages are given as `2Mi=512Mi`, devices as `nvidia.com/gpu=2`. Raises SettingsError.
    """
    milli, memory_size = cpu_amount("--cpus", cpus), size("--memory", memory) if memory else 0
    only = ContainerRequest(
        "app",
        cpu_request=milli,
        cpu_limit=milli,
        memory_request=memory_size,
        memory_limit=memory_size,
        hugepages=dict(map(_pages, hugepages)),
        devices=_devices(devices),
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


def _devices(texts: Sequence[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for text in texts:
        match = re.fullmatch(r"([^=]+)=([0-9]{1,6})", text, re.ASCII)
        if not match:
            raise SettingsError(f"--device: {text!r} is not NAME=COUNT, such as nvidia.com/gpu=1")
        if match[1] in counts:
            raise SettingsError(f"--device: {match[1]} is given twice")
        counts[match[1]] = int(match[2])
    return counts


def pod_requests(path: Path) -> tuple[PodRequest, ...]:
    """Return the requests of the pods in a manifest, in their order; of a Deployment, of its pod template.

    Raises SettingsError naming file and field.
    """
    trees = objects(path)
    if not trees:
        raise SettingsError(f"{path}: no object in this file; give a file with a pod")
    if len(trees) == 1:
        return (_pod_request(str(path), path, trees[0], _UID),)
    requests = [
        _pod_request(f"{path}: object {i}", path, tree, f"{_UID}-{i}") for i, tree in enumerate(trees, 1)
    ]
    return tuple(requests)


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

    try:
        trees = [tree for tree in yaml.safe_load_all(files.read(path)) if tree is not None]
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise SettingsError(f"{path}: is not YAML or JSON: {' '.join(str(error).split())}") from None
    for tree in trees:
        if not isinstance(tree, dict):
            raise SettingsError(f"{path}: is {type(tree).__name__}, not an object")
    return [item for tree in trees for item in _items(path, tree)]


def _items(path: Path, tree: dict[str, Any]) -> list[dict[str, Any]]:
    if not str(tree.get("kind", "")).endswith("List"):
        return [tree]
    items = tree.get("items")
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise SettingsError(f"{path}: items: is not a list of objects")
    return items


def _pod_tree(where: str, tree: Mapping[str, Any]) -> dict[str, Any]:
    kind = tree.get("kind")
    if kind in _KINDS_WITH_TEMPLATE:
        template = _member(where, _member(where, tree, "spec"), "template")
        meta = {**(template.get("metadata") or {}), **_named(where, tree)}
        return {"metadata": {**meta, "uid": ""}, "spec": template.get("spec")}
    if kind != "Pod":
        raise SettingsError(
            f"{where}: kind: {kind!r} has no pods; give a Pod, {', '.join(_KINDS_WITH_TEMPLATE)}"
        )
    return dict(tree)


def _named(where: str, tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return name and namespace of a Deployment, which stand for those of its pods."""
    meta = tree.get("metadata") or {}
    if not isinstance(meta, dict):
        raise SettingsError(f"{where}: metadata: is not an object")
    return {name: meta[name] for name in ("name", "namespace") if name in meta}


def _member(where: str, tree: Mapping[str, Any], name: str) -> dict[str, Any]:
    member = tree.get(name)
    if not isinstance(member, dict):
        raise SettingsError(f"{where}: {name}: is missing or not an object")
    return member
