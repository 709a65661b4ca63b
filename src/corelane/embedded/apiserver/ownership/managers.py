"""The entries of `metadata.managedFields`: who wrote which fields, how, in which version, and when.

Upstream: apimachinery `pkg/util/managedfields` (managedfields, capmanagers).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from corelane.embedded.apiserver.ownership import field_sets, path_elements
from corelane.embedded.apiserver.ownership.field_sets import FieldSet
from corelane.embedded.apiserver.ownership.path_elements import PathElementError
from corelane.embedded.apiserver.status_errors import quoted

APPLY = "Apply"
UPDATE = "Update"
_MOST_UPDATES = 10
_ANCIENT = "ancient-changes"


class ManagedFieldsError(ValueError):
    """Entries are not managed fields; the message is upstream's."""


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
        name = path_elements.member(self.name)[2:]
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


def stored(entries: Iterable[dict[str, Any]] | None) -> Managers:
    """Return the managers of a stored object, whose entries this server wrote."""
    found: Managers = {}
    for entry in entries or ():
        version = entry["apiVersion"]
        who = Manager(
            entry.get("manager", ""),
            entry["operation"],
            version if entry["operation"] == UPDATE else "",
            entry.get("subresource", ""),
        )
        found[who] = Owned(entry.get("fieldsV1") or {}, version, entry.get("time"), entry)
    return found


def read(entries: Iterable[dict[str, Any]]) -> Managers:
    """Return the managers of entries that a client wrote. Raises ManagedFieldsError."""
    found: Managers = {}
    for index, entry in enumerate(entries):
        operation, version = entry.get("operation", ""), entry.get("apiVersion", "")
        if operation not in {APPLY, UPDATE}:
            raise ManagedFieldsError("operation must be `Apply` or `Update`")
        if not version:
            raise ManagedFieldsError("apiVersion must not be empty")
        kind = entry.get("fieldsType", "")
        if not kind:
            raise ManagedFieldsError(f"missing fieldsType in managed fields entry {index}")
        if kind != "FieldsV1":
            raise ManagedFieldsError(f"invalid fieldsType {quoted(kind)} in managed fields entry {index}")
        try:
            fields = field_sets.read(entry.get("fieldsV1"))
        except PathElementError as error:
            raise ManagedFieldsError(f"error decoding set: {error}") from None
        who = Manager(
            entry.get("manager", ""),
            operation,
            version if operation == UPDATE else "",
            entry.get("subresource", ""),
        )
        found[who] = Owned(fields, version, entry.get("time"))
    return found


def written(found: Managers) -> list[dict[str, Any]]:
    """Return the entries of managers, in upstream's order."""
    return [_entry(who, owned) for who, owned in sorted(found.items(), key=_place)]


def _place(pair: tuple[Manager, Owned]) -> tuple[str, ...]:
    who, owned = pair
    return who.operation, owned.time or "", who.name, owned.version, who.subresource


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


def capped(found: Managers) -> Managers:
    """Merge the oldest updates, by version, until no more than ten are left."""
    updates = [who for who in found if who.operation == UPDATE]
    length = len(updates)
    if length <= _MOST_UPDATES:
        return found
    updates.sort(key=lambda who: (found[who].time or "", who.order))
    made, first = dict(found), dict[str, Manager]()
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
        made[bucket] = Owned(merged, version, found[who].time)
        del made[who]  # upstream too: a bucket that is not the oldest entry of its version goes
        length -= 1
    return made
