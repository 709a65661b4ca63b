"""The objects of a whole cluster: read once from its API server, saved to one file, and loaded again.

The file is a List as `kubectl get -o json` writes it, of the fields that corelane reads, with the time of
reading and the kinds that could not be read beside the items.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from msgspec import Raw

from corelane.kube import agent_leases, keys, translate
from corelane.kube.agent_leases import Agents
from corelane.kube.apierrors import APIError
from corelane.kube.client import KubeClient
from corelane.kube.decode import UNDECODABLE, Malformed, decode_object
from corelane.kube.meta import Object, Wire
from corelane.kube.objects import (
    Lease,
    Namespace,
    Node,
    NodeResourceTopology,
    NodeResourceTopologyV1Alpha1,
    PodDisruptionBudget,
    Service,
)
from corelane.kube.pod import Pod
from corelane.kube.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from corelane.kube.translate.crane import CraneTopology

T = TypeVar("T", bound=Object)

OTHERS: Final[tuple[type[Object], ...]] = (
    Namespace,
    PersistentVolumeClaim,
    PersistentVolume,
    StorageClass,
    Service,
    CSINode,
    CSIDriver,
    CSIStorageCapacity,
    VolumeAttachment,
    CraneTopology,
    PodDisruptionBudget,
)
"""Kinds beside nodes, pods and agents that a scheduler reads."""


class ClusterFileError(ValueError):
    """A file does not hold a cluster's objects; the message names the file and the fault."""


class Unread(Wire, frozen=True):
    """A kind (its plural name) of which no object could be read, and why."""

    plural: str
    error: str


@dataclass(frozen=True, slots=True)
class ClusterObjects:
    """Objects of a cluster, as they were read at one time."""

    read_at: datetime
    nodes: tuple[Node, ...] = ()
    topologies: tuple[NodeResourceTopology, ...] = ()
    pods: tuple[Pod, ...] = ()
    leases: tuple[Lease, ...] = ()
    """Leases of the nodes' agents."""
    others: tuple[Object, ...] = ()
    """Objects of the kinds in `OTHERS`."""
    unread: tuple[Unread, ...] = ()

    @property
    def alive(self) -> tuple[Pod, ...]:
        """The pods that have not ended."""
        return tuple(pod for pod in self.pods if not pod.ended)

    @property
    def agents(self) -> Agents:
        """The nodes' agents, judged at the time of reading; none where their Leases could not be read."""
        if any(one.plural == Lease.api.plural for one in self.unread):
            return Agents()
        leased = (one.metadata.name for one in self.topologies if translate.is_leased(one))
        return agent_leases.judged(leased, self.leases, self.read_at)


async def read(client: KubeClient, others: Iterable[type[Object]] = OTHERS) -> ClusterObjects:
    """Read nodes, topologies, pods, the agents' Leases, and objects of the other kinds.

    Raises APIError where nodes, topologies or pods cannot be read.
    """
    at = datetime.now(UTC)
    unread: list[Unread] = []
    agents = {"namespace": keys.AGENT_NAMESPACE, "label_selector": keys.AGENT_SELECTOR}
    (nodes, topologies, pods, leases), more = await asyncio.gather(
        asyncio.gather(
            client.list(Node),
            _topologies(client),
            client.list(Pod),
            _listed(client, Lease, unread, **agents),
        ),
        asyncio.gather(*(_listed(client, kind, unread) for kind in others)),
    )
    found = tuple(chain.from_iterable(more))
    return ClusterObjects(at, nodes.items, topologies, pods.items, leases, found, tuple(unread))


async def _topologies(client: KubeClient) -> tuple[NodeResourceTopology, ...]:
    """List NodeResourceTopologies in the newest version served; none where the kind is not defined."""
    for kind in (NodeResourceTopology, NodeResourceTopologyV1Alpha1):
        try:
            return (await client.list(kind)).items
        except APIError as error:
            if error.code != 404:
                raise
    return ()


async def _listed(client: KubeClient, kind: type[T], unread: list[Unread], **where: str) -> tuple[T, ...]:
    try:
        return (await client.list(kind, **where)).items  # type: ignore[arg-type]
    except APIError as error:
        if not (error.code == 404 and kind.api.optional):
            unread.append(Unread(kind.api.plural, str(error)))
        return ()


# Files.

_ALL: Final[tuple[type[Object], ...]] = (
    *(Node, NodeResourceTopology, NodeResourceTopologyV1Alpha1, Pod, Lease),
    *OTHERS,
)
_KINDS: Final = {(kind.api.api_version, kind.api.kind): kind for kind in _ALL}


class _Typed(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""


class _File(_Typed, frozen=True, kw_only=True):
    read_at: datetime
    unread: tuple[Unread, ...] = ()
    items: tuple[Raw, ...] = ()


def save(cluster: ClusterObjects, path: Path) -> None:
    """Write a cluster's objects to a file, which is readable by its owner alone if new. Raises OSError."""
    parts = (cluster.nodes, cluster.topologies, cluster.pods, cluster.leases, cluster.others)
    items = tuple(map(_item, chain.from_iterable(parts)))
    file = _File(api_version="v1", kind="List", read_at=cluster.read_at, unread=cluster.unread, items=items)
    path.touch(mode=0o600)
    path.write_bytes(msgspec.json.encode(file))


def _item(one: Object) -> Raw:
    typed = {"apiVersion": one.api.api_version, "kind": one.api.kind}
    return Raw(msgspec.json.encode(typed | msgspec.json.decode(msgspec.json.encode(one))))


def load(path: Path) -> ClusterObjects:
    """Return the objects of a file; kinds that are not known here are left out.

    Raises OSError, and ClusterFileError for a file that `save` has not written.
    """
    try:
        file = msgspec.json.decode(path.read_bytes(), type=_File)
        objects = [one for raw in file.items if (one := _object(raw)) is not None]
    except UNDECODABLE as error:
        raise ClusterFileError(f"{path}: not a file of a cluster's objects: {error}") from error

    def of(*kinds: type[T]) -> tuple[T, ...]:
        return tuple(one for one in objects if isinstance(one, kinds))

    return ClusterObjects(
        file.read_at, of(Node), of(NodeResourceTopology), of(Pod), of(Lease), of(*OTHERS), file.unread
    )


def _object(raw: Raw) -> Object | None:
    typed = msgspec.json.decode(raw, type=_Typed)
    kind = _KINDS.get((typed.api_version, typed.kind))
    decoded = decode_object(kind, raw) if kind else None
    if isinstance(decoded, Malformed):
        raise ValueError(str(decoded))
    return decoded
