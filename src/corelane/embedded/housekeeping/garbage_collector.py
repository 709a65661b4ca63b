"""Deletes what belongs to deleted objects, and completes deletions in the foreground and those that orphan.

After kube-controller-manager's garbage collector: an object goes once none of its owners is left. An owner of
a kind that is not watched counts as present: where it is uncertain, nothing is deleted.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, cast

import msgspec
from msgspec import defstruct, field

from corelane.embedded.housekeeping.work_queue import WorkQueue
from corelane.kube.client import APIError, KubeClient, MalformedObject
from corelane.kube.decode import Malformed, decode_object
from corelane.kube.informer import Informer, ObjectChange
from corelane.kube.meta import API, BareMeta, Object, ObjectMeta, OwnerReference
from corelane.kube.objects import ConfigMap, Lease, NodeResourceTopology, PriorityClass, Secret

FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"
"""Finalizers that the API server sets for a deletion with this propagation policy."""
_SETTLE_SECONDS: Final = 1.0
"""An object with new owners is looked at later: they may be created right after it."""
_RETRY_SECONDS: Final = 0.5
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_NODES_OWN: Final = frozenset((Lease.api, NodeResourceTopology.api))
"""What nodes own is deleted by the node controller."""


@dataclass(frozen=True, slots=True)
class Item:
    """Which object: its kind, namespace (empty for cluster-wide kinds) and name."""

    api: API
    namespace: str
    name: str

    @classmethod
    def of(cls, obj: Object) -> "Item":
        return cls(obj.api, *obj.key)

    @property
    def path(self) -> str:
        """URL path of the object."""
        return self.api.path(self.namespace or None, self.name)

    def __str__(self) -> str:
        return f"{self.api.kind} {'/'.join(filter(None, (self.namespace, self.name)))}"


def waits_for_dependents(meta: ObjectMeta) -> bool:
    """Return whether the object is being deleted in the foreground: after what belongs to it."""
    return bool(meta.deletion_timestamp) and FOREGROUND in meta.finalizers


def orphans_dependents(meta: ObjectMeta) -> bool:
    """Return whether the object is being deleted, and what belongs to it stays."""
    return bool(meta.deletion_timestamp) and ORPHAN in meta.finalizers


class OwnershipGraph:
    """Feed it every change of every kind, in any order of kinds."""

    def __init__(self) -> None:
        self._owners: dict[Item, tuple[OwnerReference, ...]] = {}
        self._dependents: defaultdict[str, set[Item]] = defaultdict(set)
        """By the UID of an owner."""
        self._waiting: dict[str, Item] = {}
        """Owners that wait for their dependents, by UID."""
        self._present: set[str] = set()
        """UIDs of owners that exist."""
        self.deletions = 0
        """How many objects were deleted so far."""

    def dependents(self, uid: str) -> list[Item]:
        """Return what belongs to the object with this UID."""
        return list(self._dependents.get(uid, ()))

    def blocks(self, item: Item, uid: str) -> bool:
        """Return whether a dependent holds back the deletion of its owner (`blockOwnerDeletion`)."""
        return any(owner.uid == uid and owner.block_owner_deletion for owner in self._owners.get(item, ()))

    def is_waiting(self, uid: str) -> bool:
        """Return whether the object with this UID waits for its dependents."""
        return uid in self._waiting

    def waits(self, item: Item) -> bool:
        """Return whether this object waits for its dependents."""
        return item in self._waiting.values()

    def is_present(self, uid: str) -> bool:
        """Return whether the owner is certain to exist; otherwise the API server knows."""
        return uid in self._present

    def confirm(self, uid: str, deletions: int) -> None:
        """Note that the API server has an owner, as read when `deletions` objects had been deleted."""
        if deletions == self.deletions and uid in self._dependents:
            self._present.add(uid)

    def deleted(self, obj: Object) -> Iterator[Item]:
        """Forget a deleted object; yield its dependents, and the owners that wait for it."""
        uid = obj.metadata.uid
        self.deletions += 1
        self._present.discard(uid)
        self._waiting.pop(uid, None)
        yield from self._set_owners(Item.of(obj), ())
        yield from self.dependents(uid)

    def changed(self, obj: Object) -> Iterator[Item]:
        """Take over an object's present state; yield it where its owners or its deletion are new."""
        item, meta = Item.of(obj), obj.metadata
        if self._owners.get(item, ()) != meta.owner_references:
            yield from self._set_owners(item, meta.owner_references)
            yield item
        if waits_for_dependents(meta):
            self._waiting[meta.uid] = item
            yield item
            yield from self.dependents(meta.uid)
        else:
            self._waiting.pop(meta.uid, None)
            if orphans_dependents(meta):
                yield item

    def _set_owners(self, item: Item, owners: tuple[OwnerReference, ...]) -> Iterator[Item]:
        for owner in self._owners.pop(item, ()):
            self._dependents[owner.uid].discard(item)
            if not self._dependents[owner.uid]:
                del self._dependents[owner.uid]
                self._present.discard(owner.uid)
            if owner.uid in self._waiting:
                yield self._waiting[owner.uid]
        for owner in owners:
            self._dependents[owner.uid].add(item)
        if owners:
            self._owners[item] = owners


def metadata_of(kind: type[Object]) -> type[Object]:
    """Return a kind of which only the metadata is read."""
    metadata = ("metadata", ObjectMeta, field(default_factory=BareMeta))
    name, namespace = f"_{kind.__name__}", {"api": kind.api}
    return cast(
        "type[Object]", defstruct(name, [metadata], bases=(Object,), namespace=namespace, frozen=True)
    )


class _Owner(Enum):
    """State of an owner: not there, waiting for its dependents to go, or there."""

    ABSENT = auto()
    WAITING = auto()
    PRESENT = auto()


class GarbageCollector:
    """Give `changed` every change of the kinds in `watched`; `run` it once all of them are listed."""

    def __init__(
        self,
        client: KubeClient,
        watched: Iterable[type[Object]],
        *,
        failed: Callable[[str, Exception], None] = lambda _what, _error: None,
    ) -> None:
        """`watched`: kinds that others watch; `failed` is a report."""
        self._client = client
        self._failed = failed
        self._graph = OwnershipGraph()
        self._queue: WorkQueue[Item] = WorkQueue()
        own = [metadata_of(kind) for kind in (ConfigMap, Secret, PriorityClass)]
        self.informers: tuple[Informer[Any], ...] = tuple(
            Informer(client, kind, handler=self.changed) for kind in own
        )
        self._apis = {(kind.api.group, kind.api.kind): kind.api for kind in (*watched, *own)}

    async def run(self) -> None:
        """Work until cancelled."""
        await self._queue.run(self._reconcile)

    def changed(self, change: ObjectChange[Any]) -> None:
        """Note a change, and look at the objects that it concerns."""
        obj = change.new
        if obj is None:
            assert change.old is not None
            for item in self._graph.deleted(change.old):
                self._queue.add(item)
        elif obj.api not in _NODES_OWN or not (
            bool(obj.metadata.owner_references)
            and all(owner.kind == "Node" for owner in obj.metadata.owner_references)
        ):
            wait = 0.0 if obj.metadata.deletion_timestamp else _SETTLE_SECONDS
            for item in self._graph.changed(obj):
                self._queue.add(item, wait)

    async def _reconcile(self, item: Item) -> None:
        try:
            await self._look_at(item)
        except APIError as error:
            if error.code == _NOT_FOUND:
                return
            if error.code != _CONFLICT:
                self._failed(f"garbage collection of {item}", error)
            self._queue.add(item, _RETRY_SECONDS)

    async def _look_at(self, item: Item) -> None:
        meta = await self._read(item)
        if waits_for_dependents(meta):
            await self._end_in_foreground(item, meta)
        elif orphans_dependents(meta):
            for dependent in self._graph.dependents(meta.uid):
                await self._remove_owners(dependent, {meta.uid})
            await self._remove_finalizer(item, meta, ORPHAN)
        elif meta.owner_references and not meta.deletion_timestamp:
            await self._judge(item, meta)

    async def _end_in_foreground(self, item: Item, meta: ObjectMeta) -> None:
        """Have the dependents deleted; once none holds the deletion back, remove the finalizer."""
        dependents = self._graph.dependents(meta.uid)
        for dependent in dependents:
            self._queue.add(dependent)
        if not any(self._graph.blocks(dependent, meta.uid) for dependent in dependents):
            await self._remove_finalizer(item, meta, FOREGROUND)

    async def _judge(self, item: Item, meta: ObjectMeta) -> None:
        """Delete an object without an owner that stays; else remove the references to those that go."""
        states = [(owner, await self._state(owner, item)) for owner in meta.owner_references]
        going = {owner.uid for owner, state in states if state is not _Owner.PRESENT}
        if len(going) < len({owner.uid for owner, _ in states}):
            if going:
                await self._remove_owners(item, going)
            return
        waiting = any(state is _Owner.WAITING for _, state in states)
        await self._delete(item, meta, self._policy(meta, in_foreground=waiting))

    def _policy(self, meta: ObjectMeta, *, in_foreground: bool) -> str:
        """Propagation of a dependent's deletion. One that waits itself is no reason: it may be a circle."""
        if ORPHAN in meta.finalizers:
            return "Orphan"
        held = any(not self._graph.waits(item) for item in self._graph.dependents(meta.uid))
        return "Foreground" if FOREGROUND in meta.finalizers or (in_foreground and held) else "Background"

    async def _state(self, owner: OwnerReference, item: Item) -> _Owner:
        api = self._apis.get((owner.api_version.rpartition("/")[0], owner.kind))
        if api is None or (api.namespaced and not item.namespace):
            return _Owner.PRESENT
        if self._graph.is_waiting(owner.uid):
            return _Owner.WAITING
        if self._graph.is_present(owner.uid):
            return _Owner.PRESENT
        # the API server knows: what was watched may be older than the reference
        deletions = self._graph.deletions
        try:
            meta = await self._read(Item(api, item.namespace if api.namespaced else "", owner.name))
        except APIError as error:
            if error.code != _NOT_FOUND:
                raise
            return _Owner.ABSENT
        if meta.uid != owner.uid:
            return _Owner.ABSENT
        if waits_for_dependents(meta):
            return _Owner.WAITING
        self._graph.confirm(owner.uid, deletions)
        return _Owner.PRESENT

    # Requests.

    async def _read(self, item: Item) -> ObjectMeta:
        read = decode_object(Object, await self._client.raw("GET", item.path))
        if isinstance(read, Malformed):
            raise MalformedObject(str(read))
        return read.metadata

    async def _delete(self, item: Item, meta: ObjectMeta, policy: str) -> None:
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": policy,
            "preconditions": {"uid": meta.uid, "resourceVersion": meta.resource_version},
        }
        await self._client.raw("DELETE", item.path, body=msgspec.json.encode(options))

    async def _remove_owners(self, item: Item, uids: Collection[str]) -> None:
        """Remove references from an object; one that is gone needs none removed."""
        try:
            meta = (await self._client.read_tree(item.path))["metadata"]
            owners = [owner for owner in meta.get("ownerReferences", ()) if owner["uid"] not in uids]
            await self._patch(item, meta["uid"], meta["resourceVersion"], ownerReferences=owners or None)
        except APIError as error:
            if error.code != _NOT_FOUND:
                raise

    async def _remove_finalizer(self, item: Item, meta: ObjectMeta, finalizer: str) -> None:
        remaining = [name for name in meta.finalizers if name != finalizer]
        await self._patch(item, meta.uid, meta.resource_version, finalizers=remaining or None)

    async def _patch(self, item: Item, uid: str, version: str, **metadata: object) -> None:
        body = {"metadata": {"uid": uid, "resourceVersion": version, **metadata}}
        kind = "application/merge-patch+json"
        await self._client.raw("PATCH", item.path, body=msgspec.json.encode(body), content_type=kind)
