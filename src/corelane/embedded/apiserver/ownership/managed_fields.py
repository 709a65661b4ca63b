"""The entries of `metadata.managedFields`: who wrote which fields, how, in which version, and when.

After a create, an update or a patch the writer owns what changed, and the others lose it.
Upstream: structured-merge-diff `merge` (Update), apimachinery `pkg/util/managedfields` (managedfields,
capmanagers).
"""

from collections.abc import Iterable
from collections.abc import Mapping as AnyMapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from corelane.embedded.apiserver.codec import decoding, wire
from corelane.embedded.apiserver.ownership import field_sets, merging, typed_values
from corelane.embedded.apiserver.ownership.field_sets import LEAF, FieldSet, PathElementError
from corelane.embedded.apiserver.ownership.merging import Comparison
from corelane.embedded.apiserver.ownership.typed_values import ListItemError, Mapping, TypedValueError
from corelane.embedded.apiserver.served_kinds import ServedKind
from corelane.embedded.apiserver.status_errors import quoted
from corelane.embedded.apiserver.stored_objects import Object

APPLY = "Apply"
UPDATE = "Update"
_MOST_UPDATES = 10
_ANCIENT = "ancient-changes"
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


@dataclass(frozen=True, slots=True)
class Manager:
    """Identity of an entry. Updates of one program in two versions are two managers, applies are one."""

    name: str
    operation: str
    version: str
    """The apiVersion of updates, "" of applies."""
    subresource: str = ""

    @property
    def order(self) -> str:
        """The text by which upstream sorts managers: their identity as JSON."""
        version = f',"apiVersion":"{self.version}"' if self.version else ""
        part = f',"subresource":"{self.subresource}"' if self.subresource else ""
        name = field_sets.member_element(self.name)[2:]
        return f'{{"manager":{name},"operation":"{self.operation}"{version}{part}}}'

    def __str__(self) -> str:
        """The manager as messages name it."""
        text = quoted(self.name)
        if self.subresource:
            text = f"{text} with subresource {quoted(self.subresource)}"
        return f"{text} using {self.version}" if self.operation == UPDATE else text


@dataclass(frozen=True, slots=True)
class Owned:
    """The fields of a manager: in which apiVersion they are named, and when they were last written.

    `entry` is the entry of the stored object that says so, where there is one.
    """

    fields: FieldSet
    version: str
    time: str | None = None
    entry: dict[str, Any] | None = field(default=None, compare=False)

    def with_fields(self, fields: FieldSet) -> "Owned":
        return self if fields is self.fields else Owned(fields, self.version, self.time)


Managers: TypeAlias = dict[Manager, Owned]


def manager(name: str, operation: str, version: str, subresource: str = "") -> Manager:
    return Manager(name or "unknown", operation, version if operation == UPDATE else "", subresource)


def stored_managers(entries: Iterable[dict[str, Any]] | None) -> Managers:
    """Return the managers of a stored object, whose entries this server wrote."""
    return {
        _writer(entry): Owned(entry.get("fieldsV1") or {}, entry["apiVersion"], entry.get("time"), entry)
        for entry in entries or ()
    }


def read_managers(entries: Iterable[dict[str, Any]]) -> Managers:
    """Return the managers of entries that a client wrote; none where an entry cannot be read."""
    managers: Managers = {}
    for entry in entries:
        version, form = entry.get("apiVersion", ""), entry.get("fieldsType")
        if entry.get("operation") not in {APPLY, UPDATE} or not version or form != "FieldsV1":
            return {}
        try:
            fields = field_sets.read(entry.get("fieldsV1"))
        except PathElementError:
            return {}
        managers[_writer(entry)] = Owned(fields, version, entry.get("time"))
    return managers


def _writer(entry: dict[str, Any]) -> Manager:
    version = entry["apiVersion"] if entry["operation"] == UPDATE else ""
    return Manager(entry.get("manager", ""), entry["operation"], version, entry.get("subresource", ""))


def written_entries(managers: Managers) -> list[dict[str, Any]]:
    """Return the entries of managers, in upstream's order."""

    def place(pair: tuple[Manager, Owned]) -> tuple[str, ...]:
        who, owned = pair
        return who.operation, owned.time or "", who.name, owned.version, who.subresource

    return [_entry(*pair) for pair in sorted(managers.items(), key=place)]


def _entry(who: Manager, owned: Owned) -> dict[str, Any]:
    if owned.entry:
        return owned.entry
    entry: dict[str, Any] = {"manager": who.name, "operation": who.operation, "apiVersion": owned.version}
    if owned.time:
        entry["time"] = owned.time
    entry["fieldsType"] = "FieldsV1"
    entry["fieldsV1"] = field_sets.ordered(owned.fields)
    if who.subresource:
        entry["subresource"] = who.subresource
    return {key: value for key, value in entry.items() if value != ""}


def capped_managers(managers: Managers) -> Managers:
    """Merge the oldest updates, by version, until no more than ten are left."""
    updates = [who for who in managers if who.operation == UPDATE]
    length = len(updates)
    if length <= _MOST_UPDATES:
        return managers
    updates.sort(key=lambda who: (managers[who].time or "", who.order))
    made, first = dict(managers), dict[str, Manager]()
    for who in updates:
        if length <= _MOST_UPDATES:
            break
        version = made[who].version
        if version not in first:
            first[version] = who
            continue
        bucket = manager(_ANCIENT, UPDATE, version)
        if bucket not in made:
            made[bucket] = made.pop(first[version])
        merged = field_sets.union(made[who].fields, made[bucket].fields)
        made[bucket] = Owned(merged, version, managers[who].time)
        del made[who]  # upstream too: a bucket that is not the oldest entry of its version goes
        length -= 1
    return made


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
        return typed_values.merge_type(self.kind.schema[self.version])

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
        return wire.typed(self.kind, self.version, wire.convert(self.kind, dict(obj), self.version))

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
        return written_entries(update(resource, resource.empty(), obj, {}, writer, now))
    except ListItemError:
        return []


def updated(resource: Resource, live: Object, obj: Object, writer: str, now: str) -> Entries:
    """Return the entries of an object after a write of `obj`, whose own entries a client may have changed.

    `live` is the object before it; both are in the resource's version, with defaults.
    """
    present = live["metadata"].get("managedFields")
    given = None if resource.subresource else obj["metadata"].get("managedFields")
    if given is not None and (not given or given == [{}]):
        return []
    managers = read_managers(given) if given and given != present else {}
    foreign, managers = bool(managers), managers or stored_managers(present)
    if not managers:
        return []
    try:
        managers = reconcile(resource, managers) if foreign else managers
        return written_entries(update(resource, live, obj, managers, writer, now))
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
    return all({**left, but: None} == {**right, but: None} for left, right in pairs)


def reconcile(resource: Resource, managers: Managers, live: Object | None = None) -> Managers:
    """Return the managers of versions that are served, their fields as today's types own them.

    Raises ConversionError where `live` cannot be written in one of the versions.
    """
    made: Managers = {}
    for who, owned in managers.items():
        at = resource.at(owned.version)
        if at is not None:
            if live:
                at.converted(live)
            fields = merging.reconciled(at.type, owned.fields)
            made[who] = owned if fields == owned.fields else owned.with_fields(fields)
    return made


def update(
    resource: Resource, live: Object, obj: Object, managers: Managers, writer: str, now: str
) -> Managers:
    """Return the managers after an update.

    Raises ListItemError for values that do not fit their types, ConversionError for an object that cannot
    be written in the version of one of the managers.
    """
    managers = {who: owned for who, owned in managers.items() if resource.at(owned.version)}
    changes = Changes(resource, live, obj)
    own = changes.own
    if own:
        written = field_sets.union(own.modified, own.added)
        written = field_sets.difference(written, STRIPPED)
        managers = changes.taken_from(managers, changes.conflicts(managers))
        if written:
            who = manager(writer, UPDATE, resource.api_version, resource.subresource)
            before = managers.get(who)
            fields = field_sets.union(written, before.fields) if before else written
            managers = {**managers, who: Owned(fields, resource.api_version, now)}
    return capped_managers(managers)


def without_managers(obj: Object) -> Object:
    """Return the object as its managers own it: without the managed fields themselves."""
    if "managedFields" not in obj.get("metadata", {}):
        return obj
    return {**obj, "metadata": {n: part for n, part in obj["metadata"].items() if n != "managedFields"}}


class Changes:
    """The difference of two states of an object, in each apiVersion that a manager uses."""

    def __init__(self, resource: Resource, live: Object, obj: Object) -> None:
        self._resource, self._live, self._obj = resource, without_managers(live), without_managers(obj)
        self._by_version: dict[str, Comparison | None] = {}
        own = self.at(resource.api_version)
        assert own is not None
        self.own = own

    def at(self, api_version: str) -> Comparison | None:
        """Return the difference less what the resource resets, None in a version that is not served."""
        if api_version not in self._by_version:
            at, difference = self._resource.at(api_version), None
            if at is not None:
                whole = merging.compare(at.type, at.converted(self._live), at.converted(self._obj))
                difference = whole.less(at.reset)
            self._by_version[api_version] = difference
        return self._by_version[api_version]

    def conflicts(self, managers: Managers, but: Manager | None = None) -> dict[Manager, FieldSet]:
        """Return the fields of managers, other than `but`, that change or come anew."""
        clashes = {}
        for who, owned in managers.items():
            change = None if who == but else self.at(owned.version)
            if change and (clash := field_sets.intersection(owned.fields, change.written)):
                clashes[who] = clash
        return clashes

    def taken_from(
        self, managers: Managers, clashes: dict[Manager, FieldSet], but: Manager | None = None
    ) -> Managers:
        """Return the managers without what they lose: to the writer, by removal, with their version."""
        made: Managers = {}
        for who, owned in managers.items():
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
