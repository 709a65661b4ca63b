"""Names and intent of a node's containers: from a list of pods, and from the links in /var/log/containers.

The list is what `kubectl get pods -A -o json` or the kubelet's /pods endpoint prints.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from corelane.app.state import files
from corelane.app.state.errors import StateFileError
from corelane.kernel.files import Directory
from corelane.kube import decode, keys
from corelane.kube.decode import Malformed
from corelane.kube.pod import Pod
from corelane.kube.translate import TranslationError, pods
from corelane.workload import ContainerKind, PodRequest

__all__ = ["Known", "Listed", "Name", "Wanted", "logged", "read"]

_LOG = re.compile(r"(?P<pod>[^_]+)_(?P<namespace>[^_]+)_(?P<container>.+)-(?P<id>[0-9a-f]{64})\.log")


@dataclass(frozen=True, slots=True)
class Name:
    """What a container is called."""

    namespace: str
    pod: str
    container: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """How many CPUs of its own a container is to have, and whether it lends them to those after it."""

    cpus: int
    lends: bool = False


@dataclass(frozen=True, slots=True)
class Known:
    """A pod in the list: `namespace/name`, its containers, and the names of the runtime's ids."""

    title: str
    ended: bool
    containers: Mapping[str, Wanted]
    ids: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Listed:
    """The pods by UID, and what could not be understood."""

    pods: Mapping[str, Known]
    notes: tuple[str, ...] = ()


def read(path: Path) -> Listed:
    """The pods in a file. Raises StateFileError for one that is no list of pods; a bad pod is only noted."""
    items, notes = _items(path, files.read_stream(path))
    known: dict[str, Known] = {}
    for pod in items:
        try:
            known[_uid(pod)] = _known(pod, pods.request(pod))
        except TranslationError as error:
            notes.append(f"{path}: pod {pod.title} is left out: {error}")
    return Listed(known, tuple(notes))


def _items(path: Path, content: bytes) -> tuple[list[Pod], list[str]]:
    kind = _kind(path, content)
    if kind == "Pod":
        only = decode.one(Pod, content)
        if isinstance(only, Malformed):
            raise StateFileError(f"{path}: {only}")
        return [only], []
    try:
        page = decode.page(Pod, content)
    except msgspec.MsgspecError as error:
        raise StateFileError(f"{path}: is no list of pods: {error}") from None
    return page.items, [f"{path}: {malformed}" for malformed in page.malformed]


def _kind(path: Path, content: bytes) -> str:
    tree = decode.tree(content)
    if not isinstance(tree, dict):
        raise StateFileError(f"{path}: is no JSON object: give the output of kubectl get pods -A -o json")
    kind = str(tree.get("kind") or "")
    if kind not in ("Pod", "List", "PodList") or (kind != "Pod" and not isinstance(tree.get("items"), list)):
        raise StateFileError(
            f"{path}: kind: {kind!r} is no list of pods: give the output of kubectl get pods -A -o json"
        )
    return kind


def _uid(pod: Pod) -> str:
    return pod.metadata.annotations.get(keys.CONFIG_HASH) or pod.metadata.uid


def _known(pod: Pod, request: PodRequest) -> Known:
    containers = {
        one.name: Wanted(
            0 if pod.spec.resources else request.exclusive_cpus(one), one.kind is ContainerKind.INIT
        )
        for one in request.containers
    }
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    ids = {status.container_id.rpartition("//")[2]: status.name for status in statuses if status.container_id}
    return Known(pod.title, pod.ended, containers, ids)


def logged(logs: str) -> dict[str, Name]:
    """Container id to name, from the links that the kubelet makes in a directory like /var/log/containers."""
    found = map(_LOG.fullmatch, Directory(logs).names("."))
    return {link["id"]: Name(link["namespace"], link["pod"], link["container"]) for link in found if link}
