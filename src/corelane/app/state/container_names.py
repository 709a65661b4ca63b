"""Names and CPU requests of a node's containers: from a list of pods, and the links in /var/log/containers.

The list is the output of `kubectl get pods -A -o json` or of the kubelet's /pods endpoint.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from corelane.app.state import files
from corelane.app.state.files import StateFileError
from corelane.cpuset import CPUSet, CPUSetError
from corelane.kernel.files import Directory
from corelane.kube import decode
from corelane.kube.decode import Malformed
from corelane.kube.pod import Pod
from corelane.kube.translate import TranslationError, pod_requests, running_uid
from corelane.node.recovery.cpu_owners import ContainerName, CPUNeed, ListedPod, RunningContainer
from corelane.runtime.base import RuntimeVersion
from corelane.runtime.cri import client, values
from corelane.workload.request import ContainerKind

_LOG = re.compile(r"(?P<pod>[^_]+)_(?P<namespace>[^_]+)_(?P<container>.+)-(?P<id>[0-9a-f]{64})\.log")
_HELP = "give the output of `kubectl get pods -A -o json`"


@dataclass(frozen=True, slots=True)
class PodList:
    """The pods by UID, and notes on those that cannot be read."""

    pods: Mapping[str, ListedPod]
    notes: tuple[str, ...] = ()


def read_pod_list(path: Path) -> PodList:
    """Return the pods in a file. Raises StateFileError for another kind of file; a bad pod is only noted."""
    items, notes = _items(path, files.read_stream(path))
    listed: dict[str, ListedPod] = {}
    for pod in items:
        uid = running_uid(pod)
        try:
            request = pod_requests.request(pod)
            containers = {
                container.name: CPUNeed(
                    request.exclusive_cpus(container),
                    container.kind is ContainerKind.INIT,
                )
                for container in request.containers
            }
            statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
            ids = {
                status.container_id.rpartition("//")[2]: status.name
                for status in statuses
                if status.container_id
            }
            running = frozenset(
                status.container_id.rpartition("//")[2]
                for status in statuses
                if status.state and status.state.running
            )
            listed[uid] = ListedPod(pod.title, pod.ended, containers, ids, running)
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


def logged(logs: str) -> dict[str, ContainerName]:
    """Return names by container id, from the kubelet's links in a directory like /var/log/containers."""
    links = map(_LOG.fullmatch, Directory(logs).names("."))
    return {
        link["id"]: ContainerName(link["namespace"], link["pod"], link["container"]) for link in links if link
    }


_SHARES_OF_CPU: Final = 1024
_MAX_SHARES: Final = 262144
"""The kernel's limit: from 256 CPUs on, shares do not show the request."""


@dataclass(frozen=True, slots=True)
class RuntimeReport:
    """What a runtime reports; `names` and `requests` are by container id."""

    names: Mapping[str, ContainerName] = field(default_factory=dict)
    requests: Mapping[str, int] = field(default_factory=dict)
    """Exclusive CPUs of Guaranteed pods' containers, 0 for the shared pool; where they are known."""
    ready: Mapping[str, str] = field(default_factory=dict)
    """Pods with a ready sandbox: UID to `namespace/name`."""
    running: int = 0
    """Number of running containers."""
    without_cgroup: tuple[RunningContainer, ...] = ()
    """Owners of CPUs that run without a cgroup of their own here, as inside a virtual machine."""
    sandboxes: frozenset[str] = frozenset()
    """Ids of sandboxes, whose cgroups look like containers' and never have exclusive CPUs."""
    notes: tuple[str, ...] = ()


def names_from_runtime(endpoint: str, containers: Sequence[RunningContainer]) -> RuntimeReport:
    """Ask the runtime behind a CRI socket for these containers. Raises CRIError."""
    answers = asyncio.run(_ask(endpoint, {container.id: container.qos for container in containers}))
    pods, listed = answers.pods, answers.containers
    names = {
        container.id: ContainerName(
            pods[container.sandbox].namespace, pods[container.sandbox].name, container.name
        )
        for container in listed
    }
    counts = {ident: _exclusive_cpus(resources) for ident, resources in answers.resources.items()}
    runtime, notes = f"{endpoint} ({answers.runtime.name} {answers.runtime.version})", []
    unknown, count = sum(container.id not in {*names, *pods} for container in containers), len(containers)
    if unknown == count > 0:
        what = f"lists none of the {count} containers in the cgroups; is this the kubelet's runtime?"
        notes.append(f"{runtime} {what}")
    elif unknown:
        notes.append(f"{runtime} does not list {unknown} of {count} containers in the cgroups")
    return RuntimeReport(
        names,
        {ident: count for ident, count in counts.items() if count is not None},
        {pod.uid: f"{pod.namespace}/{pod.name}" for pod in pods.values() if pod.ready},
        sum(container.state == "running" for container in listed),
        tuple(_without_cgroup(containers, answers)),
        frozenset(pods),
        tuple(notes),
    )


@dataclass(frozen=True, slots=True)
class _Answers:
    runtime: RuntimeVersion
    pods: Mapping[str, values.Sandbox]
    containers: Sequence[values.CRIContainer]
    resources: Mapping[str, values.CRIResources | None]
    """By container id: of Guaranteed pods' containers, and of those without a visible cgroup."""


async def _ask(endpoint: str, classes: Mapping[str, str]) -> _Answers:
    """Ask a runtime; `classes` are the QoS classes of containers with a cgroup, "" for Guaranteed."""
    async with client.connect(endpoint) as runtime_client:
        runtime = await runtime_client.version()
        pods = {sandbox.id: sandbox for sandbox in await runtime_client.sandboxes()}
        listed = [one for one in await runtime_client.containers() if one.sandbox in pods and one.name]
        undecided = [one.id for one in listed if one.state == "running" and not classes.get(one.id)]
        resources = {ident: await runtime_client.resources(ident) for ident in undecided}
    return _Answers(runtime, pods, listed, resources)


def _without_cgroup(containers: Sequence[RunningContainer], answers: _Answers) -> Iterator[RunningContainer]:
    """Containers without a readable cgroup whose cpuset has as many CPUs as they request exclusively."""
    seen = {container.id for container in containers}
    for container in answers.containers:
        resources = answers.resources.get(container.id)
        if resources and container.id not in seen:
            try:
                cpus = CPUSet.parse(resources.cpus)
            except CPUSetError:
                continue
            if cpus and _exclusive_cpus(resources) == len(cpus):
                yield RunningContainer(answers.pods[container.sandbox].uid, container.id, cpus)


def _exclusive_cpus(resources: values.CRIResources | None) -> int | None:
    """Of a Guaranteed pod's container: 1024 shares for each CPU, so only whole CPUs give a multiple."""
    if resources is None or not resources.shares or resources.shares >= _MAX_SHARES:
        return None
    cpus, rest = divmod(resources.shares, _SHARES_OF_CPU)
    return 0 if rest else cpus
