"""Which objects belong to which, by their owner references; plain values in and out, no I/O.

Only objects with owners, and owners whose deletion waits for them, are kept. Every change answers which
objects are to be looked at.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from corelane.kube.meta import API, Object, ObjectMeta, OwnerReference

FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"
"""Finalizers that the API server sets for a deletion with this propagation policy."""


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
