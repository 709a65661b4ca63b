"""Names and CPU requests of a node's containers from its container runtime, for lack of a list of pods."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from corelane.cpuset import CPUSet, CPUSetError
from corelane.node.recovery.cpu_owners import ContainerName, RunningContainer
from corelane.runtime.cri import client, values

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


def request(endpoint: str, containers: Sequence[RunningContainer]) -> RuntimeReport:
    """Ask the runtime behind a CRI socket for these containers. Raises CRIError."""
    return asyncio.run(_request(endpoint, containers))


@dataclass(frozen=True, slots=True)
class _Answers:
    runtime: values.RuntimeVersion
    pods: Mapping[str, values.Sandbox]
    containers: Sequence[values.CRIContainer]
    resources: Mapping[str, values.CRIResources | None]
    """By container id: of Guaranteed pods' containers, and of those without a visible cgroup."""


async def _request(endpoint: str, containers: Sequence[RunningContainer]) -> RuntimeReport:
    classes = {container.id: container.qos for container in containers}
    async with client.connect(endpoint) as runtime_client:
        runtime = await runtime_client.version()
        pods = {sandbox.id: sandbox for sandbox in await runtime_client.sandboxes()}
        listed = [one for one in await runtime_client.containers() if one.sandbox in pods and one.name]
        undecided = [one.id for one in listed if one.state == "running" and not classes.get(one.id)]
        resources = {ident: await runtime_client.resources(ident) for ident in undecided}
    return _report(endpoint, containers, _Answers(runtime, pods, listed, resources))


def _report(endpoint: str, containers: Sequence[RunningContainer], answers: _Answers) -> RuntimeReport:
    pods, listed = answers.pods, answers.containers
    names = {
        one.id: ContainerName(pods[one.sandbox].namespace, pods[one.sandbox].name, one.name) for one in listed
    }
    counts = {ident: _exclusive_cpus(resources) for ident, resources in answers.resources.items()}
    runtime = f"{endpoint} ({answers.runtime.name} {answers.runtime.version})"
    return RuntimeReport(
        names,
        {ident: count for ident, count in counts.items() if count is not None},
        {one.uid: f"{one.namespace}/{one.name}" for one in pods.values() if one.ready},
        sum(one.state == "running" for one in listed),
        tuple(_without_cgroup(containers, answers)),
        frozenset(pods),
        tuple(_unlisted(runtime, containers, {*names, *pods})),
    )


def _without_cgroup(containers: Sequence[RunningContainer], answers: _Answers) -> Iterator[RunningContainer]:
    """Containers without a readable cgroup whose cpuset has as many CPUs as they request exclusively."""
    seen = {container.id for container in containers}
    for one in answers.containers:
        resources = answers.resources.get(one.id)
        cpus = _cpus(resources) if resources and one.id not in seen else CPUSet()
        if cpus and _exclusive_cpus(resources) == len(cpus):
            yield RunningContainer(answers.pods[one.sandbox].uid, one.id, cpus)


def _cpus(resources: values.CRIResources) -> CPUSet:
    try:
        return CPUSet.parse(resources.cpus)
    except CPUSetError:
        return CPUSet()


def _exclusive_cpus(resources: values.CRIResources | None) -> int | None:
    """Of a Guaranteed pod's container: 1024 shares for each CPU, so only whole CPUs give a multiple."""
    if resources is None or not resources.shares or resources.shares >= _MAX_SHARES:
        return None
    cpus, rest = divmod(resources.shares, _SHARES_OF_CPU)
    return 0 if rest else cpus


def _unlisted(runtime: str, containers: Sequence[RunningContainer], listed: Iterable[str]) -> list[str]:
    ids = set(listed)
    unknown = sum(container.id not in ids for container in containers)
    if not unknown:
        return []
    if unknown == len(containers):
        return [
            f"{runtime} lists none of the {unknown} containers in the cgroups; is this the kubelet's runtime?"
        ]
    return [f"{runtime} does not list {unknown} of {len(containers)} containers in the cgroups"]
