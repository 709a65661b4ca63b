"""Names and intent of a node's containers from its container runtime, where no list of pods is at hand."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from corelane.app.state_cgroups import Group
from corelane.app.state_pods import Name
from corelane.runtime import cri

__all__ = ["Told", "ask"]

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
    sandboxes: frozenset[str] = frozenset()
    """Ids of sandboxes, whose cgroups look like containers' and never own a CPU."""
    notes: tuple[str, ...] = ()


def ask(endpoint: str, groups: Sequence[Group]) -> Told:
    """What the runtime behind a CRI socket knows of these containers. Raises CRIError."""
    return asyncio.run(_ask(endpoint, groups))


async def _ask(endpoint: str, groups: Sequence[Group]) -> Told:
    async with cri.connect(endpoint) as client:
        runtime = await client.version()
        sandboxes, containers = await client.sandboxes(), await client.containers()
        pods = {sandbox.id: sandbox for sandbox in sandboxes}
        names = {
            one.id: Name(pods[one.sandbox].namespace, pods[one.sandbox].name, one.name)
            for one in containers
            if one.sandbox in pods and one.name
        }
        guaranteed = [group.id for group in groups if not group.qos and group.id in names]
        resources = {ident: await client.resources(ident) for ident in guaranteed}
    return Told(
        names,
        {ident: count for ident, found in resources.items() if (count := _count(found)) is not None},
        {sandbox.uid: f"{sandbox.namespace}/{sandbox.name}" for sandbox in sandboxes if sandbox.ready},
        sum(one.state == "running" for one in containers),
        frozenset(pods),
        tuple(_strangers(f"{endpoint} ({runtime.name} {runtime.version})", groups, {*names, *pods})),
    )


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
