"""Managed fields after a create, an update or a patch: the writer owns what changed, the others lose it.

Upstream: structured-merge-diff `merge` (Update), apimachinery `pkg/util/managedfields`.
"""

from collections.abc import Iterable
from collections.abc import Mapping as AnyMapping
from dataclasses import dataclass
from typing import Any

from corelane.embedded.apiserver.codec import conversion, decoding, wire
from corelane.embedded.apiserver.ownership import (
    comparison,
    field_sets,
    managers,
    merge_types,
    merging,
    typed_values,
)
from corelane.embedded.apiserver.ownership.comparison import Comparison
from corelane.embedded.apiserver.ownership.field_sets import LEAF, FieldSet
from corelane.embedded.apiserver.ownership.managers import (
    UPDATE,
    ManagedFieldsError,
    Manager,
    Managers,
    Owned,
)
from corelane.embedded.apiserver.ownership.merge_types import Mapping
from corelane.embedded.apiserver.ownership.typed_values import ListItemError, TypedValueError
from corelane.embedded.apiserver.served_kinds import ServedKind

Object = dict[str, Any]
Entries = list[dict[str, Any]]

_SERVER_FIELDS = (
    "name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation", "managedFields",
    "resourceVersion",
)  # fmt: skip
STRIPPED: FieldSet = {
    "f:apiVersion": LEAF,
    "f:kind": LEAF,
    "f:metadata": {field_sets.SELF: LEAF} | {f"f:{name}": LEAF for name in _SERVER_FIELDS},
}
"""Fields that nobody owns."""
_STATUS: FieldSet = {"f:status": LEAF}
_SPEC: FieldSet = {"f:spec": LEAF}
_POD_STATUS: FieldSet = {
    "f:spec": LEAF,
    "f:metadata": {"f:deletionTimestamp": LEAF, "f:ownerReferences": LEAF},
}


class ConversionError(ValueError):
    """An object cannot be written in another version; the message is upstream's."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource in the version of a request, and the subresource that the request writes."""

    kind: ServedKind
    version: str
    subresource: str = ""

    @property
    def api_version(self) -> str:
        return self.kind.api_version(self.version)

    @property
    def type(self) -> Mapping:
        return merge_types.of(self.kind.schema[self.version])

    @property
    def reset(self) -> FieldSet:
        """Fields that a write of this resource cannot change (strategies' `GetResetFields`)."""
        if "status" not in self.kind.subresources:
            return {}
        if self.subresource != "status":
            return _STATUS
        return _POD_STATUS if self.kind.plural == "pods" else _SPEC

    def empty(self) -> Object:
        """Return what upstream takes for the object before its creation."""
        made = {"kind": self.kind.kind, "apiVersion": self.api_version}
        return made if self.kind.custom else {**decoding.zero(self.kind.schema[self.version]), **made}

    def at(self, api_version: str) -> "Resource | None":
        """Return the same resource in another version of its group, None where it is not served there.

        Raises ConversionError for a custom resource, whose converter refuses such a version.
        """
        group, _, version = api_version.rpartition("/")
        if group != self.kind.group or version not in self.kind.versions:
            if self.kind.custom:
                raise ConversionError(f"request to convert CR to an invalid group/version: {api_version}")
            return None
        return self if version == self.version else Resource(self.kind, version, self.subresource)

    def view(self, obj: AnyMapping[str, Any]) -> Object:
        """Return a stored object in the resource's group and version."""
        return wire.typed(self.kind, self.version, conversion.convert(self.kind, dict(obj), self.version))

    def converted(self, obj: Object) -> Object:
        """Return an object of another version in this one, with all its fields.

        Raises ConversionError for a field that this version does not have.
        """
        if obj.get("apiVersion") == self.api_version:
            return obj
        made = {**obj, "apiVersion": self.api_version}
        try:
            typed_values.check(self.type, made)
        except TypedValueError as error:
            raise ConversionError(str(error)) from None
        return made


def created(resource: Resource, obj: Object, writer: str, now: str) -> Entries:
    """Return the entries of a new object; `obj` has its defaults, in the resource's version."""
    try:
        return managers.written(update(resource, resource.empty(), obj, {}, writer, now))
    except ListItemError:
        return []


def updated(resource: Resource, live: Object, obj: Object, writer: str, now: str) -> Entries:
    """Return the entries of an object after a write of `obj`, whose own entries a client may have changed.

    `live` is the object before it; both are in the resource's version, with defaults.
    """
    known = live["metadata"].get("managedFields")
    given = None if resource.subresource else obj["metadata"].get("managedFields")
    if given is not None and (not given or given == [{}]):
        return []
    found = _given(given) if given and given != known else {}
    foreign, found = bool(found), found or managers.stored(known)
    if not found:
        return []
    try:
        found = reconcile(resource, found) if foreign else found
        return managers.written(update(resource, live, obj, found, writer, now))
    except (ListItemError, ConversionError):
        return []


def keep_times(obj: Object, old: Object) -> None:
    """Take over the times of the managed fields from `old` if nothing else differs."""
    new, before = obj["metadata"].get("managedFields"), old["metadata"].get("managedFields")
    if not new or not before or new == before or len(new) != len(before):
        return
    if not _equal(new, before, "time") or any(obj[n] != old.get(n) for n in obj if n != "metadata"):
        return
    if len(obj) == len(old) and _equal([obj["metadata"]], [old["metadata"]], "managedFields"):
        obj["metadata"]["managedFields"] = before


def _equal(some: Entries, others: Entries, but: str) -> bool:
    """Whether objects are equal but for one member."""
    pairs = zip(some, others, strict=True)
    return all({**one, but: None} == {**other, but: None} for one, other in pairs)


def _given(entries: Iterable[dict[str, Any]]) -> Managers:
    """Return the managers that a client wrote; none where they cannot be read."""
    try:
        return managers.read(entries)
    except ManagedFieldsError:
        return {}


def reconcile(resource: Resource, found: Managers, live: Object | None = None) -> Managers:
    """Return the managers of versions that are served, their fields as today's types own them.

    Raises ConversionError where `live` cannot be written in one of the versions.
    """
    made: Managers = {}
    for who, owned in found.items():
        at = resource.at(owned.version)
        if at is not None:
            if live:
                at.converted(live)
            fields = merging.reconciled(at.type, owned.fields)
            made[who] = owned if fields == owned.fields else owned.with_fields(fields)
    return made


def update(resource: Resource, live: Object, obj: Object, found: Managers, writer: str, now: str) -> Managers:
    """Return the managers after an update.

    Raises ListItemError for values that do not fit their types, ConversionError for an object that cannot
    be written in the version of one of the managers.
    """
    found = {who: owned for who, owned in found.items() if resource.at(owned.version)}
    changes = Changes(resource, live, obj)
    own = changes.own
    if own:
        written = field_sets.union(own.modified, own.added)
        written = field_sets.difference(written, STRIPPED)
        found = changes.taken_from(found, changes.conflicts(found))
        if written:
            who = managers.manager(writer, UPDATE, resource.api_version, resource.subresource)
            before = found.get(who)
            fields = field_sets.union(written, before.fields) if before else written
            found = {**found, who: Owned(fields, resource.api_version, now)}
    return managers.capped(found)


def without_managers(obj: Object) -> Object:
    """Return the object as its managers own it: without the managed fields themselves."""
    if "managedFields" not in obj.get("metadata", {}):
        return obj
    return {**obj, "metadata": {n: part for n, part in obj["metadata"].items() if n != "managedFields"}}


class Changes:
    """The difference of two states of an object, in each apiVersion that a manager uses."""

    def __init__(self, resource: Resource, live: Object, obj: Object) -> None:
        self._resource, self._live, self._obj = resource, without_managers(live), without_managers(obj)
        self._found: dict[str, Comparison | None] = {}
        own = self.at(resource.api_version)
        assert own is not None
        self.own = own

    def at(self, api_version: str) -> Comparison | None:
        """Return the difference less what the resource resets, None in a version that is not served."""
        if api_version not in self._found:
            self._found[api_version] = self._compared(self._resource.at(api_version))
        return self._found[api_version]

    def _compared(self, at: Resource | None) -> Comparison | None:
        if at is None:
            return None
        return comparison.compare(at.type, self._written(at, "old"), self._written(at, "new")).less(at.reset)

    def _written(self, at: Resource, which: str) -> Object:
        try:
            return at.converted(self._live if which == "old" else self._obj)
        except ConversionError as error:
            raise ConversionError(f"failed to convert {which} object: {error}") from None

    def conflicts(self, found: Managers, but: Manager | None = None) -> dict[Manager, FieldSet]:
        """Return the fields of managers, other than `but`, that change or come anew."""
        clashes = {}
        for who, owned in found.items():
            change = None if who == but else self.at(owned.version)
            if change and (clash := field_sets.intersection(owned.fields, change.written)):
                clashes[who] = clash
        return clashes

    def taken_from(
        self, found: Managers, clashes: dict[Manager, FieldSet], but: Manager | None = None
    ) -> Managers:
        """Return the managers without what they lose: to the writer, by removal, with their version."""
        made: Managers = {}
        for who, owned in found.items():
            fields = owned.fields
            if who != but:
                change = self.at(owned.version)
                if change is None:
                    continue
                fields = field_sets.difference(fields, clashes.get(who, {}))
                fields = field_sets.difference(fields, change.removed)
            if fields:
                made[who] = owned.with_fields(fields)
        return made
