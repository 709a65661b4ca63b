"""Validation by the tables: the faults of an object, in the order and the words of upstream."""

from collections.abc import Iterable
from itertools import chain
from typing import Any

from corelane import names
from corelane.embedded.apiserver.schema.pod_spec import POD_SPEC
from corelane.embedded.apiserver.served_kinds import ServedKind
from corelane.embedded.apiserver.status_errors import StatusCause
from corelane.embedded.apiserver.validation import (  # noqa: F401 - most only for the rules that they register
    annotation_rules,
    container_rules,
    custom_rules,
    disruption_rules,
    environment_rules,
    kind_rules,
    metadata_rules,
    pod_rules,
    pod_status_rules,
    resource_rules,
    scheduling_rules,
    secret_rules,
    security_rules,
    update_rules,
    value_rules,
    volume_rules,
    windows_rules,
)
from corelane.embedded.apiserver.validation.table_rules import Scope, limited, walk

Object = dict[str, Any]

# Kinds whose finalizers upstream looks at more closely.
_CORE = frozenset(
    {
        "pods",
        "nodes",
        "namespaces",
        "configmaps",
        "secrets",
        "priorityclasses",
    }
)
_SPEC_ONLY = frozenset({"pods"})


def create(kind: ServedKind, obj: Object, *, version: str = "") -> list[StatusCause]:
    """Return what is wrong with a prepared object, in upstream's order.

    The rules are those of the request's group and version: `kind` may be any that shares the stored form,
    and `version` one other than the object's.
    """
    version = version or _version(obj)
    if kind.stored == "events":
        return _event(kind, obj)
    if kind.kind == "PodDisruptionBudget":
        return _budget(kind, obj, version)
    more = (
        chain(pod_rules.create(obj), annotation_rules.agree_with_fields(obj)) if kind.plural == "pods" else ()
    )
    return limited(chain(_metadata(kind, obj), _own_rules(kind, obj, None, version), more))


def update(
    kind: ServedKind, obj: Object, old: Object, subresource: str = "", *, version: str = ""
) -> list[StatusCause]:
    """Return what is wrong with a prepared object that is to replace `old`; as `create`."""
    version = version or _version(obj)
    common = metadata_rules.update(obj["metadata"], old["metadata"], core=False)
    own = _UPDATES.get((kind.plural, subresource), _update)
    return limited(chain(_any_metadata(kind, obj), common, own(kind, obj, old, version)))


def _version(obj: Object) -> str:
    return str(obj["apiVersion"]).rpartition("/")[2]


def _metadata(kind: ServedKind, obj: Object) -> Iterable[StatusCause]:
    name_format = names.dns_label if kind.plural == "namespaces" else names.dns_subdomain
    core = kind.plural in _CORE
    return metadata_rules.create(
        obj["metadata"], namespaced=kind.namespaced, name_format=name_format, core=core
    )


def _any_metadata(kind: ServedKind, obj: Object) -> Iterable[StatusCause]:
    """The rules that all kinds have."""
    return metadata_rules.create(
        obj["metadata"], namespaced=kind.namespaced, name_format=names.path_segment, core=False
    )


def _own_rules(kind: ServedKind, obj: Object, old: Object | None, version: str) -> Iterable[StatusCause]:
    """The rules of the kind's table."""
    record = kind.schema[version]
    if kind.custom:
        return custom_rules.validate(record, obj, old)
    if kind.plural in _SPEC_ONLY:
        return _pod_rules(obj, old)
    return walk(record, obj, "", Scope(obj, old)) if record.order else ()


def _pod_rules(obj: Object, old: Object | None) -> Iterable[StatusCause]:
    scope = Scope(obj, old)
    return chain(
        annotation_rules.rules(obj), walk(POD_SPEC, obj["spec"], "spec", scope), pod_rules.whole(obj)
    )


def _changed(kind: ServedKind, obj: Object, old: Object) -> Iterable[StatusCause]:
    return metadata_rules.update(obj["metadata"], old["metadata"], core=kind.plural in _CORE)


def _update(kind: ServedKind, obj: Object, old: Object, version: str) -> Iterable[StatusCause]:
    """Custom resources and leases: the metadata's rules, then the table's."""
    return chain(_changed(kind, obj, old), _own_rules(kind, obj, old, version))


def _update_pod(kind: ServedKind, obj: Object, old: Object, version: str) -> Iterable[StatusCause]:
    whole = chain(_metadata(kind, obj), _own_rules(kind, obj, old, version))
    return chain(_changed(kind, obj, old), whole, update_rules.pod(obj, old))


def _update_pod_status(kind: ServedKind, obj: Object, old: Object, version: str) -> Iterable[StatusCause]:
    return chain(_changed(kind, obj, old), pod_status_rules.update(obj, old))


def _update_node(kind: ServedKind, obj: Object, old: Object, version: str) -> Iterable[StatusCause]:
    return chain(
        _metadata(kind, obj),
        _own_rules(kind, obj, old, version),
        _update_node_status(kind, obj, old, version),
    )


def _update_node_status(kind: ServedKind, obj: Object, old: Object, version: str) -> Iterable[StatusCause]:
    return chain(_changed(kind, obj, old), update_rules.node(obj, old, Scope(obj, old)))


def _update_namespace(kind: ServedKind, obj: Object, old: Object, version: str) -> Iterable[StatusCause]:
    return chain(_metadata(kind, obj), _own_rules(kind, obj, old, version), _changed(kind, obj, old))


def _update_namespace_status(
    kind: ServedKind, obj: Object, old: Object, version: str
) -> Iterable[StatusCause]:
    return chain(_changed(kind, obj, old), update_rules.namespace_status(obj))


def _finalize_namespace(kind: ServedKind, obj: Object, old: Object, version: str) -> Iterable[StatusCause]:
    return chain(_changed(kind, obj, old), update_rules.namespace_finalize(obj))


def _update_config_map(kind: ServedKind, obj: Object, old: Object, version: str) -> Iterable[StatusCause]:
    whole = chain(_metadata(kind, obj), _own_rules(kind, obj, old, version))
    return chain(_changed(kind, obj, old), update_rules.config_map(obj, old), whole)


def _update_secret(kind: ServedKind, obj: Object, old: Object, version: str) -> Iterable[StatusCause]:
    whole = chain(_metadata(kind, obj), _own_rules(kind, obj, old, version))
    return chain(_changed(kind, obj, old), secret_rules.update(obj, old), whole)


def _update_priority_class(kind: ServedKind, obj: Object, old: Object, version: str) -> Iterable[StatusCause]:
    return chain(_changed(kind, obj, old), update_rules.priority_class(obj, old))


def _event(kind: ServedKind, obj: Object) -> list[StatusCause]:
    """Events of the core group have no rules on metadata but those that all kinds have, which come last."""
    if not kind.group:
        return limited(kind_rules.event(obj, new_group=False)) or limited(_any_metadata(kind, obj))
    rules = kind_rules.event(obj, new_group=True), _metadata(kind, obj), kind_rules.new_event(obj)
    return limited(chain(*rules))


def _budget(kind: ServedKind, obj: Object, version: str) -> list[StatusCause]:
    """A budget's metadata has only the rules that all kinds have, and they come after its own."""
    return limited(_own_rules(kind, obj, None, version)) or limited(_any_metadata(kind, obj))


def _update_budget(kind: ServedKind, obj: Object, old: Object, version: str) -> Iterable[StatusCause]:
    return _own_rules(kind, obj, old, version)


def _update_budget_status(kind: ServedKind, obj: Object, old: Object, version: str) -> Iterable[StatusCause]:
    return disruption_rules.status(obj)


def _update_event(kind: ServedKind, obj: Object, old: Object, version: str) -> Iterable[StatusCause]:
    if not kind.group:
        return kind_rules.event(obj, new_group=False)
    return chain(
        kind_rules.event(obj, new_group=True), _changed(kind, obj, old), update_rules.event(obj, old)
    )


_UPDATES = {
    ("pods", ""): _update_pod,
    ("pods", "status"): _update_pod_status,
    ("nodes", ""): _update_node,
    ("nodes", "status"): _update_node_status,
    ("namespaces", ""): _update_namespace,
    ("namespaces", "status"): _update_namespace_status,
    ("namespaces", "finalize"): _finalize_namespace,
    ("configmaps", ""): _update_config_map,
    ("secrets", ""): _update_secret,
    ("priorityclasses", ""): _update_priority_class,
    ("events", ""): _update_event,
    ("poddisruptionbudgets", ""): _update_budget,
    ("poddisruptionbudgets", "status"): _update_budget_status,
}
