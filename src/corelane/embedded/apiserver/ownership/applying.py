"""Server-side apply: the applied fields are merged into the live object, those applied no longer go.

Upstream: structured-merge-diff `merge` (Apply), apimachinery `pkg/util/managedfields`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from corelane.embedded.apiserver import status_errors
from corelane.embedded.apiserver.ownership import field_sets, managed_fields, merging, typed_values
from corelane.embedded.apiserver.ownership.field_sets import FieldSet, Path, html_escaped
from corelane.embedded.apiserver.ownership.managed_fields import (
    APPLY,
    STRIPPED,
    Changes,
    ConversionError,
    Manager,
    Managers,
    Owned,
    Resource,
)
from corelane.embedded.apiserver.ownership.merging import same
from corelane.embedded.apiserver.ownership.typed_values import ListItemError, TypedValueError
from corelane.embedded.apiserver.status_errors import StatusCause, StatusError, details
from corelane.embedded.apiserver.stored_objects import Object

_BEFORE = "before-first-apply"
ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
_KUBECTL = "kubectl"
_MOST_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Applied:
    """The object after an apply, in the resource's version and without defaults, and its managers.

    `obj` None says that nothing changed but, perhaps, its owners.
    """

    obj: Object | None
    managers: Managers


@dataclass(frozen=True, slots=True)
class Applier:
    """The writer of an apply: its name, whether it takes what others own, and the time."""

    name: str
    force: bool
    now: str


class ApplyConflictError(Exception):
    """Other managers own fields that an apply would change."""

    def __init__(self, clashes: Mapping[Manager, FieldSet]) -> None:
        super().__init__("apply conflict")
        self.clashes = clashes

    def paths(self) -> list[tuple[Manager, Path]]:
        """Return the fields in conflict, by manager."""
        ordered = sorted(self.clashes, key=lambda manager: manager.order)
        return [(manager, path) for manager in ordered for path in field_sets.paths(self.clashes[manager])]

    def status(self) -> StatusError:
        """Return the answer 409, which names each manager and field."""
        conflicts = [(manager, field_sets.shown(path)) for manager, path in self.paths()]
        causes = [
            StatusCause("FieldManagerConflict", f"conflict with {manager}", path)
            for manager, path in conflicts
        ]
        return StatusError(409, "Conflict", _message(conflicts), details(causes=causes))


def _message(conflicts: list[tuple[Manager, str]]) -> str:
    if len(conflicts) == 1:
        manager, path = conflicts[0]
        return f"Apply failed with 1 conflict: conflict with {manager}: {path}"
    lines: list[str] = []
    for manager in dict.fromkeys(manager for manager, _ in conflicts):
        lines.append(f"conflicts with {manager}:")
        lines += [f"- {path}" for other, path in conflicts if other == manager]
    return f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)


def apply(resource: Resource, live: Object, config: Object, applier: Applier) -> Applied:
    """Apply `config` to `live`, which is in the resource's version (`Resource.empty` for a new object).

    kubectl takes from others what its own client-side apply had written. Raises ApplyConflictError where
    others own what would change, StatusError 500 for a `config` that is not of the type.
    """
    try:
        applied = _applied(resource, live, config, applier)
    except ApplyConflictError as error:
        if applier.name != _KUBECTL:
            raise
        # conflicts are left with fields that the annotation does not have as they are
        allowed = _last_applied_fields(resource, live)
        clashes = {who: field_sets.difference(fields, allowed) for who, fields in error.clashes.items()}
        left = {who: fields for who, fields in clashes.items() if fields}
        if left:
            raise ApplyConflictError(left) from None
        applied = _applied(resource, live, config, replace(applier, force=True))
    return _annotated(applied, live, config) if applier.name == _KUBECTL else applied


def _applied(resource: Resource, live: Object, config: Object, applier: Applier) -> Applied:
    try:
        typed_values.check(resource.type, config)
    except TypedValueError as error:
        why = f"failed to create typed patch object ({described(config)}): {error}"
        raise status_errors.internal(why) from None
    managers = managed_fields.stored_managers(live.get("metadata", {}).get("managedFields"))
    live = managed_fields.without_managers(live)
    if not managers:
        empty = resource.empty()
        managers = managed_fields.update(resource, empty, live, {}, _BEFORE, applier.now)
    try:
        managers = managed_fields.reconcile(resource, managers, live)
        return _apply(resource, live, config, managers, applier)
    except ConversionError as error:
        raise status_errors.internal(str(error)) from None


def described(obj: Object) -> str:
    """Name an object as upstream's messages do: `namespace/name; group/version, Kind=kind`."""
    meta = obj.get("metadata")
    names = [meta.get(name) if isinstance(meta, dict) else "" for name in ("namespace", "name")]
    namespace, name = (text if isinstance(text, str) else "" for text in names)
    return f"{namespace}/{name}; {gvk(obj)}"


def gvk(obj: Object) -> str:
    """Write an object's group, version and kind as upstream does."""
    version, kind = (
        obj.get(name) if isinstance(obj.get(name), str) else "" for name in ("apiVersion", "kind")
    )
    if not version or str(version).count("/") > 1:
        return "/, Kind="
    group, _, number = str(version).rpartition("/")
    return f"{group}/{number}, Kind={kind}"


def _apply(resource: Resource, live: Object, config: Object, managers: Managers, applier: Applier) -> Applied:
    kind, who = resource.type, managed_fields.manager(applier.name, APPLY, "", resource.subresource)
    try:
        merged = merging.merge(kind, live, config)
    except ListItemError as error:
        raise status_errors.internal(f"failed to merge config: {error}") from None
    before = managers.get(who)
    fields = field_sets.difference(typed_values.fields_of(kind, config), resource.reset, deep=True)
    managers = {**managers, who: Owned(fields, resource.api_version, before.time if before else None)}
    if before and before.fields:
        merged = _prune(resource, merged, managers, before)
    changes = Changes(resource, live, merged)
    clashes = changes.conflicts(managers, who)
    if clashes and not applier.force:
        raise ApplyConflictError(clashes)
    managers = changes.taken_from(managers, clashes, who)
    # what nobody owns is taken from the applier, and the time noted if anything changed
    obj = None if same(live, merged) else merged
    own = managers.get(who)
    if own is None:
        return Applied(obj, managers)
    fields = field_sets.difference(own.fields, STRIPPED)
    rest = {manager: owned for manager, owned in managers.items() if manager != who}
    if fields:
        rest[who] = Owned(fields, own.version, own.time if obj is None else applier.now)
    return Applied(obj, rest)


# --- removal of what is applied no longer


def _prune(resource: Resource, merged: Object, managers: Managers, last: Owned) -> Object:
    """Return the merged object without the fields that were applied last time and that nobody owns now."""
    at = resource.at(last.version)
    if at is None:
        return merged
    try:
        whole = at.converted(merged)
        pruned = merging.remove(at.type, whole, merging.with_named_fields(at.type, last.fields))
        pruned = _with_owned(at, whole, pruned, managers)
        # put back what was removed only because it lay below a removed item, and was never applied
        kind = at.type
        fields = merging.with_named_fields(kind, typed_values.fields_of(kind, pruned))
        all_fields = merging.with_named_fields(kind, typed_values.fields_of(kind, whole))
        applied = merging.with_named_fields(kind, last.fields)
        gone = field_sets.intersection(field_sets.difference(all_fields, fields), applied)
        return resource.converted(merging.remove(kind, whole, gone))
    except ConversionError as error:
        raise ConversionError(f"failed to prune fields: {error}") from None


def _with_owned(at: Resource, whole: Object, pruned: Object, managers: Managers) -> Object:
    """Put back what any manager owns, first in the version of the removal."""
    owned: dict[str, FieldSet] = {}
    for entry in managers.values():
        owned[entry.version] = field_sets.union(owned.get(entry.version, {}), entry.fields)
    for version in sorted(owned, key=lambda version: version != at.api_version):
        other = at.at(version)
        if other is None:
            continue
        kind = other.type
        whole = other.converted(whole)
        pruned = other.converted(pruned)
        fields = field_sets.union(
            merging.with_named_fields(kind, typed_values.fields_of(kind, pruned)),
            merging.with_named_fields(kind, owned[version]),
        )
        all_fields = merging.with_named_fields(kind, typed_values.fields_of(kind, whole))
        pruned = merging.remove(kind, whole, field_sets.difference(all_fields, fields))
    return at.converted(pruned)


# --- objects of kubectl's client-side apply, which its server-side apply takes over


def _last_applied_fields(resource: Resource, live: Object) -> FieldSet:
    """Return the fields of the annotation that are as in `live`."""
    text = _annotation(live)
    if not text:
        return {}
    try:
        last = msgspec.json.decode(text.encode(), type=dict[str, Any])
        if last.get("apiVersion") != resource.api_version or not last.get("kind"):
            return {}
        typed_values.check(resource.type, last)
    except (msgspec.DecodeError, TypedValueError):
        return {}
    change = merging.compare(resource.type, last, live)
    fields = typed_values.fields_of(resource.type, last)
    for part in (change.modified, change.added, change.removed):
        fields = field_sets.difference(fields, part)
    return fields


def _annotation(obj: Object) -> str:
    text = (obj.get("metadata", {}).get("annotations") or {}).get(ANNOTATION)
    return text if isinstance(text, str) else ""


def _annotated(applied: Applied, live: Object, config: Object) -> Applied:
    """Keep the annotation, where there is one, in step with what is applied."""
    obj = applied.obj if applied.obj is not None else live
    if not _annotation(obj):
        return applied
    annotations = {**obj["metadata"]["annotations"], ANNOTATION: _written(config)}
    if sum(len(name.encode()) + len(value.encode()) for name, value in annotations.items()) > _MOST_BYTES:
        del annotations[ANNOTATION]
    return replace(applied, obj={**obj, "metadata": {**obj["metadata"], "annotations": annotations}})


def _written(config: Object) -> str:
    """Return an applied object as the annotation has it: JSON with sorted keys, without the annotation."""
    meta = dict(config.get("metadata") or {})
    if isinstance(meta.get("annotations"), dict):
        meta["annotations"] = {name: text for name, text in meta["annotations"].items() if name != ANNOTATION}
    text = msgspec.json.encode({**config, "metadata": meta}, order="sorted").decode()
    return html_escaped(text) + "\n"
