"""Rules on metadata, the same for every kind (apimachinery's `pkg/api/validation/objectmeta.go`)."""

from collections.abc import Callable, Iterator

from corelane import names
from corelane.embedded.apiserver.go_quoting import quoted
from corelane.embedded.apiserver.status_errors import StatusCause
from corelane.embedded.apiserver.validation import causes
from corelane.embedded.apiserver.validation.causes import child, item, unless_equal
from corelane.embedded.apiserver.validation.table_rules import Object
from corelane.embedded.apiserver.validation.value_rules import labels

PATH = "metadata"
_LARGEST_ANNOTATIONS = 256 * 1024
_STANDARD_FINALIZERS = {"kubernetes", "orphan", "foregroundDeletion"}
_UNQUALIFIED = "name is neither a standard finalizer name nor is it fully qualified"


def create(
    meta: Object, *, namespaced: bool, name_format: Callable[[str], list[str]], core: bool
) -> Iterator[StatusCause]:
    """The faults of a new object's metadata. `core` kinds have their finalizers looked at more closely."""
    name, prefix = meta.get("name", ""), meta.get("generateName", "")
    if prefix:
        faults = name_format(names.name_prefix(prefix))
        yield from causes.all_invalid(child(PATH, "generateName"), prefix, faults)
    if not name:
        yield causes.required(child(PATH, "name"), "name or generateName is required")
    else:
        yield from causes.all_invalid(child(PATH, "name"), name, name_format(name))
    yield from _namespace(meta.get("namespace", ""), namespaced=namespaced)
    if meta.get("generation", 0) < 0:
        yield causes.invalid(child(PATH, "generation"), meta["generation"], causes.NEGATIVE)
    yield from _common(meta)
    yield from _finalizers(meta.get("finalizers", []))
    yield from _managed_fields(meta)
    if core:
        yield from standard_finalizers(meta)


def update(new: Object, old: Object, *, core: bool) -> Iterator[StatusCause]:
    """The faults of metadata that is to replace `old`."""
    if old.get("deletionTimestamp"):
        extra = sorted(set(new.get("finalizers", ())) - set(old.get("finalizers", ())))
        if extra:
            shown = "[]string{" + ", ".join(map(quoted, extra)) + "}"
            why = "no new finalizers can be added if the object is being deleted, found new finalizers "
            yield causes.forbidden(child(PATH, "finalizers"), why + shown)
    if not new.get("resourceVersion"):
        yield causes.invalid(child(PATH, "resourceVersion"), "", "must be specified for an update")
    for name in ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp"):
        yield from unless_equal(child(PATH, name), new.get(name), old.get(name))
    grace = "deletionGracePeriodSeconds"
    yield from unless_equal(child(PATH, grace), new.get(grace), old.get(grace))
    yield from _common(new)
    yield from _managed_fields(new)
    if core:
        yield from standard_finalizers(new)


def _namespace(name: str, *, namespaced: bool) -> list[StatusCause]:
    path = child(PATH, "namespace")
    if not namespaced:
        return [causes.forbidden(path, "not allowed on this type")] if name else []
    if not name:
        return [causes.required(path)]
    return causes.all_invalid(path, name, names.dns_label(name))


def _common(meta: Object) -> Iterator[StatusCause]:
    yield from labels(meta.get("labels", {}), child(PATH, "labels"))
    yield from _annotations(meta.get("annotations", {}), child(PATH, "annotations"))
    yield from _owners(meta.get("ownerReferences", []), child(PATH, "ownerReferences"))


def _annotations(annotations: dict[str, str], path: str) -> Iterator[StatusCause]:
    for name in annotations:
        yield from causes.all_invalid(path, name, names.qualified_name(name.lower()))
    size = sum(len(name.encode()) + len(text.encode()) for name, text in annotations.items())
    if size > _LARGEST_ANNOTATIONS:
        yield causes.too_long(path, _LARGEST_ANNOTATIONS)


def _owners(owners: list[Object], path: str) -> Iterator[StatusCause]:
    controller = ""
    for owner in owners:
        yield from _owner(owner, path)
        if not owner.get("controller"):
            continue
        name = f"{owner.get('kind', '')}/{owner.get('name', '')}"
        if controller:
            why = 'Only one reference can have Controller set to true. Found "true" in references for '
            yield causes.invalid(path, owners, f"{why}{controller} and {name}")
        else:
            controller = name


def _owner(owner: Object, path: str) -> Iterator[StatusCause]:
    group, _, version = owner.get("apiVersion", "").rpartition("/")
    if not version or "/" in group:
        yield causes.invalid(
            child(path, "apiVersion"), owner.get("apiVersion", ""), "version must not be empty"
        )
    for name in ("kind", "name", "uid"):
        if not owner.get(name):
            yield causes.invalid(child(path, name), "", "must not be empty")
    if (group, version, owner.get("kind")) == ("", "v1", "Event"):
        yield causes.invalid(path, owner, "/v1, Kind=Event is disallowed from being an owner")


def _finalizers(finalizers: list[str]) -> Iterator[StatusCause]:
    path = child(PATH, "finalizers")
    for name in finalizers:
        yield from causes.all_invalid(path, name, names.qualified_name(name))
    if {"orphan", "foregroundDeletion"} <= set(finalizers):
        yield causes.invalid(path, finalizers, "finalizer orphan and foregroundDeletion cannot be both set")


def standard_finalizers(meta: Object) -> Iterator[StatusCause]:
    for index, name in enumerate(meta.get("finalizers", ())):
        yield from kube_finalizer(name, item(child(PATH, "finalizers"), index))


def kube_finalizer(name: str, path: str) -> list[StatusCause]:
    """Finalizers without a domain are Kubernetes' own."""
    if "/" in name or name in _STANDARD_FINALIZERS:
        return []
    return [causes.invalid(path, name, _UNQUALIFIED)]


def _managed_fields(meta: Object) -> Iterator[StatusCause]:
    for index, entry in enumerate(meta.get("managedFields", ())):
        path = item(child(PATH, "managedFields"), index)
        operation = entry.get("operation", "")
        if operation not in {"Apply", "Update"}:
            yield causes.invalid(child(path, "operation"), operation, "must be `Apply` or `Update`")
        kind = entry.get("fieldsType", "")
        if kind not in {"", "FieldsV1"}:
            yield causes.invalid(child(path, "fieldsType"), kind, "must be `FieldsV1`")
