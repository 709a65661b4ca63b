"""Names and CPU requests of a node's containers: from a list of pods, and the links in /var/log/containers.

The list is the output of `kubectl get pods -A -o json` or of the kubelet's /pods endpoint.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from corelane.app.state import files
from corelane.app.state.files import StateFileError
from corelane.kernel.files import Directory
from corelane.kube import decode
from corelane.kube.decode import Malformed
from corelane.kube.pod import Pod
from corelane.kube.translate import TranslationError, pod_requests, running_uid
from corelane.node.recovery.cpu_owners import ContainerName, CPUNeed, ListedPod
from corelane.workload.request import ContainerKind, PodRequest

_LOG = re.compile(r"(?P<pod>[^_]+)_(?P<namespace>[^_]+)_(?P<container>.+)-(?P<id>[0-9a-f]{64})\.log")
_HELP = "give the output of `kubectl get pods -A -o json`"


@dataclass(frozen=True, slots=True)
class PodList:
    """The pods by UID, and notes on those that cannot be read."""

    pods: Mapping[str, ListedPod]
    notes: tuple[str, ...] = ()


def read(path: Path) -> PodList:
    """Return the pods in a file. Raises StateFileError for another kind of file; a bad pod is only noted."""
    items, notes = _items(path, files.read_stream(path))
    listed: dict[str, ListedPod] = {}
    for pod in items:
        uid = running_uid(pod)
        try:
            listed[uid] = _listed(pod, pod_requests.request(pod))
        except TranslationError as error:
            notes.append(f"{path}: pod {pod.title} is left out: {error}")
    return PodList(listed, tuple(notes))


def _items(path: Path, content: bytes) -> tuple[list[Pod], list[str]]:
    tree = decode.plain_json(content)
    if not isinstance(tree, dict):
        raise StateFileError(f"{path}: is not a JSON object; {_HELP}")
    kind = str(tree.get("kind") or "")
    if kind == "Pod":
        only = decode.decode_object(Pod, content)
        if isinstance(only, Malformed):
            raise StateFileError(f"{path}: {only}")
        return [only], []
    if kind not in ("List", "PodList") or not isinstance(tree.get("items"), list):
        raise StateFileError(f"{path}: kind: {kind!r} is not a list of pods; {_HELP}")
    try:
        page = decode.decode_page(Pod, content)
    except msgspec.MsgspecError as error:
        raise StateFileError(f"{path}: is not a list of pods: {error}") from None
    return page.items, [f"{path}: {malformed}" for malformed in page.malformed]


def _listed(pod: Pod, request: PodRequest) -> ListedPod:
    containers = {
        container.name: CPUNeed(
            request.exclusive_cpus(container),
            container.kind is ContainerKind.INIT,
        )
        for container in request.containers
    }
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    ids = {status.container_id.rpartition("//")[2]: status.name for status in statuses if status.container_id}
    running = frozenset(
        status.container_id.rpartition("//")[2]
        for status in statuses
        if status.state and status.state.running
    )
    return ListedPod(pod.title, pod.ended, containers, ids, running)


def logged(logs: str) -> dict[str, ContainerName]:
    """Return names by container id, from the kubelet's links in a directory like /var/log/containers."""
    links = map(_LOG.fullmatch, Directory(logs).names("."))
    return {
        link["id"]: ContainerName(link["namespace"], link["pod"], link["container"]) for link in links if link
    }
