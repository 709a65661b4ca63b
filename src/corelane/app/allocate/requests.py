"""What `corelane allocate` is asked for: amounts on the command line, or a manifest."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from corelane import quantity
from corelane.app.state import files
from corelane.workload import ContainerRequest, PodRequest, QOSClass

__all__ = ["AskError", "ask_for", "asks_from", "objects_from"]

_UID: Final = "corelane-allocate"
_KINDS_WITH_TEMPLATE = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job")


class AskError(ValueError):
    """A request that cannot be read; names the option, or the file and field, and what to do."""


def ask_for(
    cpus: str, memory: str = "", hugepages: Sequence[str] = (), devices: Sequence[str] = ()
) -> PodRequest:
    """A Guaranteed pod of one container with that much CPU, and memory.

    Huge pages are said as `2Mi=512Mi`, devices as `nvidia.com/gpu=2`. Raises AskError.
    """
    milli, size = _milli(cpus), _bytes("--memory", memory) if memory else 0
    only = ContainerRequest(
        "app",
        cpu_request=milli,
        cpu_limit=milli,
        memory_request=size,
        memory_limit=size,
        hugepages=dict(map(_pages, hugepages)),
        devices=_devices(devices),
    )
    return PodRequest(_UID, "default", "request", QOSClass.GUARANTEED, (only,))


def _pages(text: str) -> tuple[int, int]:
    """Page size in KiB, and bytes."""
    size, equals, amount = text.partition("=")
    if not equals:
        raise AskError(f"--hugepages: {text!r} is not SIZE=AMOUNT, such as 2Mi=512Mi")
    page, total = _bytes("--hugepages", size), _bytes("--hugepages", amount)
    if not page or page % 1024 or total % page:
        raise AskError(f"--hugepages: {text}: {amount} is no whole number of pages of {size}")
    return page // 1024, total


def _devices(texts: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for text in texts:
        match = re.fullmatch(r"([^=]+)=([0-9]{1,6})", text, re.ASCII)
        if not match:
            raise AskError(f"--device: {text!r} is not NAME=COUNT, such as nvidia.com/gpu=1")
        if match[1] in found:
            raise AskError(f"--device: {match[1]} is given twice")
        found[match[1]] = int(match[2])
    return found


def _bytes(option: str, text: str) -> int:
    try:
        size = quantity.value(text)
    except quantity.QuantityError as error:
        raise AskError(f"{option}: {text!r} is no size such as 1Gi: {error}") from None
    if size < 0:
        raise AskError(f"{option}: {text} is negative: ask for 0 or more")
    return size


def _milli(cpus: str) -> int:
    try:
        milli = quantity.milli(cpus)
    except quantity.QuantityError as error:
        raise AskError(f"--cpus: {cpus!r} is no amount of CPU such as 4 or 1500m: {error}") from None
    if milli < 0:
        raise AskError(f"--cpus: {cpus} is negative: ask for 0 or more CPUs")
    return milli


def asks_from(path: Path) -> tuple[PodRequest, ...]:
    """What the pods in a manifest ask for, in their order; of a Deployment and its like, what their pods do.

    Raises AskError naming file and field.
    """
    trees = objects_from(path)
    if not trees:
        raise AskError(f"{path}: holds no object: give a file with a pod")
    if len(trees) == 1:
        return (_ask(str(path), path, trees[0], _UID),)
    requests = [_ask(f"{path}: object {i}", path, tree, f"{_UID}-{i}") for i, tree in enumerate(trees, 1)]
    return tuple(requests)


def _ask(where: str, path: Path, tree: Mapping[str, Any], uid: str) -> PodRequest:
    import msgspec

    from corelane.kube import decode
    from corelane.kube.decode import Malformed
    from corelane.kube.pod import Pod
    from corelane.kube.translate import TranslationError, pods

    try:
        pod = decode.one(Pod, msgspec.json.encode(_pod_tree(where, tree)))
        if isinstance(pod, Malformed):
            raise AskError(f"{where}: {pod.error}")
        if not pod.spec.containers:
            raise AskError(f"{where}: spec.containers: is empty: a pod needs a container")
        request = pods.request(pod)
    except (TranslationError, TypeError) as error:
        raise AskError(f"{where}: {error}") from None
    name, space = request.name or path.stem, request.namespace or "default"
    return replace(request, uid=request.uid or uid, namespace=space, name=name)


def objects_from(path: Path) -> list[dict[str, Any]]:
    """The objects in a file of YAML or JSON, those of a list one by one. Raises AskError."""
    import yaml

    try:
        trees = [tree for tree in yaml.safe_load_all(files.read(path)) if tree is not None]
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise AskError(f"{path}: is no YAML or JSON: {' '.join(str(error).split())}") from None
    for tree in trees:
        if not isinstance(tree, dict):
            raise AskError(f"{path}: holds {type(tree).__name__} where an object should be")
    return [item for tree in trees for item in _items(path, tree)]


def _items(path: Path, tree: dict[str, Any]) -> list[dict[str, Any]]:
    if not str(tree.get("kind", "")).endswith("List"):
        return [tree]
    items = tree.get("items")
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise AskError(f"{path}: items: is no list of objects")
    return items


def _pod_tree(where: str, tree: Mapping[str, Any]) -> dict[str, Any]:
    kind = tree.get("kind")
    if kind in _KINDS_WITH_TEMPLATE:
        template = _member(where, _member(where, tree, "spec"), "template")
        meta = {**(template.get("metadata") or {}), **_named(where, tree)}
        return {"metadata": {**meta, "uid": ""}, "spec": template.get("spec")}
    if kind != "Pod":
        raise AskError(
            f"{where}: kind: {kind!r} is no pod: give a Pod, or a {', '.join(_KINDS_WITH_TEMPLATE)}"
        )
    return dict(tree)


def _named(where: str, tree: Mapping[str, Any]) -> dict[str, Any]:
    """Name and namespace of a Deployment, which its pods are told by here."""
    meta = tree.get("metadata") or {}
    if not isinstance(meta, dict):
        raise AskError(f"{where}: metadata: is no object")
    return {name: meta[name] for name in ("name", "namespace") if name in meta}


def _member(where: str, tree: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = tree.get(name)
    if not isinstance(found, dict):
        raise AskError(f"{where}: {name}: is missing or no object")
    return found
