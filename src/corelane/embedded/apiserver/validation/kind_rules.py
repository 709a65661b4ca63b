"""Rules on metadata, the same for every kind, and on kinds other than pods.

Those on metadata are apimachinery's (`pkg/api/validation/objectmeta.go`).
"""

import base64
from collections.abc import Callable, Iterator

from corelane import names
from corelane.embedded.apiserver.schema.notation import CORE, OBJECT_META, TYPES
from corelane.embedded.apiserver.status_errors import StatusCause
from corelane.embedded.apiserver.stored_objects import Object
from corelane.embedded.apiserver.validation import causes
from corelane.embedded.apiserver.validation.causes import child, item, unless_equal
from corelane.embedded.apiserver.validation.resource_rules import amount
from corelane.embedded.apiserver.validation.table_rules import Scope, rule, walk

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
_LARGEST_DATA = 1024 * 1024
_HIGHEST_USER_PRIORITY = 1_000_000_000
_SYSTEM_CLASSES = {
    "system-node-critical": 2 * _HIGHEST_USER_PRIORITY + 1000,
    "system-cluster-critical": 2 * _HIGHEST_USER_PRIORITY,
}
_SECRET_KEYS = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
_FIXED_CONFIG = "must not change once `immutable` is set"
_EVENT_LIMITS = {"reportingInstance": 128, "action": 128, "reason": 128}
_LONGEST_NOTE = 1024
_EVENT_FIXED = (
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "type",
    "eventTime",
    "action",
    "related",
    "reportingController",
    "reportingInstance",
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
    space, path = meta.get("namespace", ""), child(PATH, "namespace")
    if namespaced:
        yield from (
            causes.all_invalid(path, space, names.dns_label(space)) if space else [causes.required(path)]
        )
    elif space:
        yield causes.forbidden(path, "not allowed on this type")
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


# --- nodes


@rule("taints")
def _taints(node: Object, _path: str, scope: Scope) -> Iterator[StatusCause]:
    """Upstream's faults name metadata here."""
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(node.get("spec", {}).get("taints", ())):
        where = item("metadata.taints", index)
        yield from walk(TYPES[f"{CORE}Taint"], taint, where, scope)
        pair = taint.get("key", ""), taint.get("effect", "")
        if pair in seen:
            yield causes.duplicate(where, taint)
        seen.add(pair)


@rule("node-resources")
def _node_resources(node: Object, _path: str, _scope: Scope) -> Iterator[StatusCause]:
    for column in ("capacity", "allocatable"):
        for name, text in node.get("status", {}).get(column, {}).items():
            yield from amount(name, text, child("status", column, name))


def changed_node(new: Object, old: Object) -> Iterator[StatusCause]:
    """Check that what identifies a node stays."""
    yield from _node_resources(new, "", Scope(new))
    yield from _taints(new, "", Scope(new))
    after, before = new["spec"], old["spec"]
    for name, empty in (("podCIDRs", []), ("providerID", "")):
        if before.get(name, empty) not in (empty, after.get(name, empty)):
            yield causes.forbidden(child("spec", name), "must not change once it is set")


# --- namespaces


@rule("finalizers")
def _finalizers(namespace: Object, _path: str, _scope: Scope) -> Iterator[StatusCause]:
    for name in namespace.get("spec", {}).get("finalizers", ()):
        yield from causes.all_invalid("spec.finalizers", name, names.qualified_name(name))
        yield from finalizer(name, "spec.finalizers")


def namespace_status(new: Object, _old: Object) -> Iterator[StatusCause]:
    phase = new.get("status", {}).get("phase", "")
    expected = "Terminating" if new["metadata"].get("deletionTimestamp") else "Active"
    if phase != expected:
        yield causes.invalid("status.Phase", phase, f"must be {expected}, by metadata.deletionTimestamp")


def finalized_namespace(new: Object, _old: Object) -> Iterator[StatusCause]:
    for index, name in enumerate(new.get("spec", {}).get("finalizers", ())):
        where = item("spec.finalizers", index)
        yield from causes.all_invalid(where, name, names.qualified_name(name))
        yield from finalizer(name, where)


# --- config maps and secrets


@rule("config-data")
def _config_data(config: Object, _path: str, scope: Scope) -> Iterator[StatusCause]:
    data, binary = config.get("data", {}), config.get("binaryData", {})
    for name in data.keys() & binary.keys():
        yield causes.invalid(item("data", name), name, "must not be in binaryData, too")
    size = sum(len(text.encode()) for text in data.values()) + _decoded_size(binary)
    if size > _LARGEST_DATA:
        yield causes.too_long("", _LARGEST_DATA)


@rule("secret-data")
def _secret_data(secret: Object, _path: str, _scope: Scope) -> Iterator[StatusCause]:
    data, kind = secret.get("data") or {}, secret.get("type", "")
    if _decoded_size(data) > _LARGEST_DATA:
        yield causes.too_long("data", _LARGEST_DATA)
    missing = [name for name in _SECRET_KEYS.get(kind, ()) if name not in data]
    if kind == "kubernetes.io/basic-auth" and not {"username", "password"} & data.keys():
        missing = ["username", "password"]
    yield from (causes.required(item("data", name)) for name in missing)


def _decoded_size(data: Object) -> int:
    return sum(len(base64.b64decode(text or "")) for text in data.values())


def changed_config(new: Object, old: Object) -> Iterator[StatusCause]:
    if not old.get("immutable"):
        return
    if not new.get("immutable"):
        yield causes.forbidden("immutable", _FIXED_CONFIG)
    for name in ("data", "binaryData"):
        if (new.get(name) or {}) != (old.get(name) or {}):
            yield causes.forbidden(name, _FIXED_CONFIG)


def changed_secret(new: Object, old: Object) -> Iterator[StatusCause]:
    yield from unless_equal("type", new.get("type", ""), old.get("type", ""))
    yield from changed_config(new, old)


# --- priority classes


@rule("priority-value")
def _priority_value(klass: Object, _path: str, _scope: Scope) -> Iterator[StatusCause]:
    name, value = klass["metadata"].get("name", ""), klass.get("value", 0)
    if not name.startswith("system-"):
        if value > _HIGHEST_USER_PRIORITY:
            yield causes.forbidden("value", f"must be at most {_HIGHEST_USER_PRIORITY}")
    elif _SYSTEM_CLASSES.get(name) != value or klass.get("globalDefault"):
        yield causes.forbidden(
            "metadata.name", "names with the prefix system- are reserved for system classes"
        )


def changed_priority_class(new: Object, old: Object) -> Iterator[StatusCause]:
    if new.get("value", 0) != old.get("value", 0):
        yield causes.forbidden("value", causes.IMMUTABLE)
    yield from unless_equal("preemptionPolicy", new.get("preemptionPolicy"), old.get("preemptionPolicy"))


# --- events, in stored form; the two groups name the reporter differently


def event(obj: Object, *, new_group: bool) -> Iterator[StatusCause]:
    """Check what every write of an event must satisfy."""
    where, space = obj.get("involvedObject", {}).get("namespace", ""), obj["metadata"].get("namespace", "")
    dated = bool(obj.get("eventTime"))
    spaces = {where} if where else {"default", "kube-system"} if dated else {"", "default"}
    if space not in spaces and not (where and dated):
        yield causes.invalid("involvedObject.namespace", where, "must be the event's namespace")
    if dated:
        reporter = "reportingController" if new_group else "reportingComponent"
        controller = obj.get("reportingComponent", "")
        if not controller:
            yield causes.required(reporter)
        yield from causes.all_invalid(reporter, controller, names.qualified_name(controller))
        for name, limit in _EVENT_LIMITS.items():
            if not obj.get(name):
                yield causes.required(name)
            yield from _within(obj, name, limit)
        yield from _within(obj, "message", _LONGEST_NOTE)
    yield from causes.all_invalid("namespace", space, names.dns_subdomain(space))


def _within(obj: Object, name: str, limit: int) -> Iterator[StatusCause]:
    if len(obj.get(name, "").encode()) > limit:
        yield causes.invalid(name, obj[name], f"must be at most {limit} bytes")


def new_event(obj: Object) -> Iterator[StatusCause]:
    """Check what an event created through events.k8s.io must satisfy as well."""
    yield from _series(obj)
    if not obj.get("eventTime"):
        yield causes.required("eventTime")
    if obj.get("type") not in {"Normal", "Warning"}:
        yield causes.invalid("type", obj.get("type", ""), "must be Normal or Warning")
    for name in ("firstTimestamp", "lastTimestamp", "count", "source"):
        if obj.get(name):
            yield causes.invalid(name, obj[name], "must not be set")


def changed_event(new: Object, old: Object) -> Iterator[StatusCause]:
    """Through events.k8s.io only the series of an event changes."""
    if new.get("series") != old.get("series"):
        yield from _series(new)
    for name in _EVENT_FIXED:
        stored = "reportingComponent" if name == "reportingController" else name
        yield from unless_equal(name, new.get(stored), old.get(stored))


def _series(obj: Object) -> Iterator[StatusCause]:
    series = obj.get("series")
    if series is not None and series.get("count", 0) < 2:
        yield causes.invalid("series.count", series.get("count", 0), "must be at least 2")
    if series is not None and not series.get("lastObservedTime"):
        yield causes.required("series.lastObservedTime")


# --- disruption budgets


@rule("one-number")
def _one_number(spec: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    if "minAvailable" in spec and "maxUnavailable" in spec:
        yield causes.invalid(path, spec, "minAvailable and maxUnavailable exclude each other")


def budget_status(budget: Object, _old: Object) -> Iterator[StatusCause]:
    status, seen = budget.get("status", {}), set()
    yield from walk(TYPES["io.k8s.api.policy.v1.PodDisruptionBudgetStatus"], status, "status", Scope(budget))
    for index, condition in enumerate(status.get("conditions", ())):
        name = condition.get("type", "")
        if name in seen:
            yield causes.duplicate(child(item("status.conditions", index), "type"), name)
        seen.add(name)
