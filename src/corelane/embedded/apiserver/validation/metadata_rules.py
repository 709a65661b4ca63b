"""Rules on metadata, the same for every kind (apimachinery's `pkg/api/validation/objectmeta.go`)."""

from collections.abc import Callable, Iterator

from corelane import names
from corelane.embedded.apiserver.schema.object_meta import OBJECT_META
from corelane.embedded.apiserver.status_errors import StatusCause
from corelane.embedded.apiserver.validation import causes
from corelane.embedded.apiserver.validation.causes import child, item, unless_equal
from corelane.embedded.apiserver.validation.table_rules import Object, Scope, rule, walk

PATH = "metadata"
_LARGEST_ANNOTATIONS = 256 * 1024
_STANDARD_FINALIZERS = {"kubernetes", "orphan", "foregroundDeletion"}
_FIXED = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)


def create(
    meta: Object, *, namespaced: bool, name_format: Callable[[str], list[str]], core: bool
) -> Iterator[StatusCause]:
    """The faults of a new object's metadata; `core` kinds have known finalizers only."""
    name, prefix = meta.get("name", ""), meta.get("generateName", "")
    if prefix:
        yield from causes.all_invalid(
            child(PATH, "generateName"), prefix, name_format(names.name_prefix(prefix))
        )
    if not name:
        yield causes.required(child(PATH, "name"), "name or generateName is required")
    else:
        yield from causes.all_invalid(child(PATH, "name"), name, name_format(name))
    yield from _namespace(meta.get("namespace", ""), namespaced=namespaced)
    yield from _common(meta, core=core)
    path, finalizers = child(PATH, "finalizers"), meta.get("finalizers", ())
    for finalizer in finalizers:
        yield from causes.all_invalid(path, finalizer, names.qualified_name(finalizer))
    if {"orphan", "foregroundDeletion"} <= set(finalizers):
        yield causes.invalid(path, finalizers, "orphan and foregroundDeletion exclude each other")


def update(new: Object, old: Object, *, core: bool) -> Iterator[StatusCause]:
    """The faults of metadata that is to replace `old`."""
    extra = set(new.get("finalizers", ())) - set(old.get("finalizers", ()))
    if old.get("deletionTimestamp") and extra:
        why = f"no finalizer can be added to an object under deletion: {', '.join(sorted(extra))}"
        yield causes.forbidden(child(PATH, "finalizers"), why)
    if not new.get("resourceVersion"):
        yield causes.invalid(child(PATH, "resourceVersion"), "", "must be specified for an update")
    for name in _FIXED:
        yield from unless_equal(child(PATH, name), new.get(name), old.get(name))
    yield from _common(new, core=core)


@rule("labels")
def labels(value: dict[str, str], path: str, _scope: Scope | None = None) -> list[StatusCause]:
    """The faults of the keys and values of labels; they name the map."""
    faults: list[StatusCause] = []
    for name, text in value.items():
        faults += causes.all_invalid(path, name, names.qualified_name(name))
        faults += causes.all_invalid(path, text, names.label_value(text))
    return faults


def finalizer(name: str, path: str) -> list[StatusCause]:
    """Finalizers without a domain are Kubernetes' own."""
    if "/" in name or name in _STANDARD_FINALIZERS:
        return []
    return [causes.invalid(path, name, "must be a standard finalizer or have a domain")]


def _namespace(name: str, *, namespaced: bool) -> list[StatusCause]:
    path = child(PATH, "namespace")
    if not namespaced:
        return [causes.forbidden(path, "not allowed on this type")] if name else []
    return causes.all_invalid(path, name, names.dns_label(name)) if name else [causes.required(path)]


def _common(meta: Object, *, core: bool) -> Iterator[StatusCause]:
    yield from walk(OBJECT_META, meta, PATH, Scope(meta))
    path, annotations = child(PATH, "annotations"), meta.get("annotations", {})
    for name in annotations:
        yield from causes.all_invalid(path, name, names.qualified_name(name.lower()))
    if (
        sum(len(name.encode()) + len(text.encode()) for name, text in annotations.items())
        > _LARGEST_ANNOTATIONS
    ):
        yield causes.too_long(path, _LARGEST_ANNOTATIONS)
    yield from _owners(meta.get("ownerReferences", ()), child(PATH, "ownerReferences"))
    if core:
        for index, name in enumerate(meta.get("finalizers", ())):
            yield from finalizer(name, item(child(PATH, "finalizers"), index))


def _owners(owners: list[Object], path: str) -> Iterator[StatusCause]:
    for owner in owners:
        version = owner.get("apiVersion", "")
        if not version or version.endswith("/") or version.count("/") > 1:
            yield causes.invalid(child(path, "apiVersion"), version, "must be a version or GROUP/VERSION")
        for name in ("kind", "name", "uid"):
            if not owner.get(name):
                yield causes.invalid(child(path, name), "", "must not be empty")
        if (version, owner.get("kind")) == ("v1", "Event"):
            yield causes.invalid(path, owner, "an Event cannot be an owner")
    if sum(bool(owner.get("controller")) for owner in owners) > 1:
        yield causes.invalid(path, owners, "only one owner can have controller set to true")
