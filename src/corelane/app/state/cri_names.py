"""Names and intent of a node's containers from its container runtime, where no list of pods is at hand."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from corelane.app.state.cgroups import Group
from corelane.app.state.pod_lists import Name
from corelane.cpuset import CPUSet, CPUSetError
from corelane.runtime import cri

__all__ = ["Told", "request"]

_SHARES_OF_CPU: Final = 1024
_MOST_SHARES: Final = 262144
"""The kernel's limit: from 256 CPUs on shares tell nothing more."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a runtime told; `names` and `needs` are by container id."""

    names: Mapping[str, Name] = field(default_factory=dict)
    needs: Mapping[str, int] = field(default_factory=dict)
    """How many CPUs alone a Guaranteed pod's container asked for, 0 for a share; where that is known."""
    alive: Mapping[str, str] = field(default_factory=dict)
    """The pods with a running sandbox: UID to `namespace/name`."""
    running: int = 0
    """How many containers run."""
    unseen: tuple[Group, ...] = ()
    """Owners that run without a cgroup of their own here, as inside a virtual machine."""
    sandboxes: frozenset[str] = frozenset()
    """Ids of sandboxes, whose cgroups look like containers' and never own a CPU."""
    notes: tuple[str, ...] = ()


def request(endpoint: str, groups: Sequence[Group]) -> Told:
    """What the runtime behind a CRI socket knows of these containers. Raises CRIError."""
    return asyncio.run(_ask(endpoint, groups))


@dataclass(frozen=True, slots=True)
class _Answers:
    runtime: cri.Runtime
    pods: Mapping[str, cri.Sandbox]
    containers: Sequence[cri.Container]
    resources: Mapping[str, cri.Resources | None]
    """By container id: of Guaranteed pods' containers, and of those whose cgroup is not to be seen."""


async def _ask(endpoint: str, groups: Sequence[Group]) -> Told:
    classes = {group.id: group.qos for group in groups}
    async with cri.connect(endpoint) as client:
        runtime = await client.version()
        pods = {sandbox.id: sandbox for sandbox in await client.sandboxes()}
        containers = [one for one in await client.containers() if one.sandbox in pods and one.name]
        unsure = [one.id for one in containers if one.state == "running" and not classes.get(one.id)]
        resources = {ident: await client.resources(ident) for ident in unsure}
    return _told(endpoint, groups, _Answers(runtime, pods, containers, resources))


def _told(endpoint: str, groups: Sequence[Group], answers: _Answers) -> Told:
    pods, containers = answers.pods, answers.containers
    names = {
        one.id: Name(pods[one.sandbox].namespace, pods[one.sandbox].name, one.name) for one in containers
    }
    counts = {ident: _count(found) for ident, found in answers.resources.items()}
    runtime = f"{endpoint} ({answers.runtime.name} {answers.runtime.version})"
    return Told(
        names,
        {ident: count for ident, count in counts.items() if count is not None},
        {one.uid: f"{one.namespace}/{one.name}" for one in pods.values() if one.ready},
        sum(one.state == "running" for one in containers),
        tuple(_unseen(groups, answers)),
        frozenset(pods),
        tuple(_strangers(runtime, groups, {*names, *pods})),
    )


def _unseen(groups: Sequence[Group], answers: _Answers) -> Iterator[Group]:
    """Who runs on just as many CPUs as it asked for alone, and has no cgroup that could be read."""
    seen = {group.id for group in groups}
    for one in answers.containers:
        resources = answers.resources.get(one.id)
        cpus = _cpus(resources) if resources and one.id not in seen else CPUSet()
        if cpus and _count(resources) == len(cpus):
            yield Group(answers.pods[one.sandbox].uid, one.id, cpus)


def _cpus(found: cri.Resources) -> CPUSet:
    try:
        return CPUSet.parse(found.cpus)
    except CPUSetError:
        return CPUSet()


def _count(found: cri.Resources | None) -> int | None:
    """Of a Guaranteed pod's container: 1024 shares for each CPU, so that only whole CPUs give a multiple."""
    if found is None or not found.shares or found.shares >= _MOST_SHARES:
        return None
    cpus, rest = divmod(found.shares, _SHARES_OF_CPU)
    return 0 if rest else cpus


def _strangers(runtime: str, groups: Sequence[Group], known: Iterable[str]) -> list[str]:
    unknown = [group for group in groups if group.id not in set(known)]
    if not unknown:
        return []
    if len(unknown) == len(groups):
        return [f"{runtime} knows none of the containers in the cgroups: is this the kubelet's runtime?"]
    return [f"{runtime} does not know {len(unknown)} of {len(groups)} containers in the cgroups"]
