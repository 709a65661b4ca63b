"""Validation: the faults of an object by the tables, and by the rules that a table cannot say."""

from collections.abc import Callable, Iterable
from itertools import chain

from corelane import names
from corelane.embedded.apiserver.served_kinds import ServedKind
from corelane.embedded.apiserver.status_errors import StatusCause
from corelane.embedded.apiserver.stored_objects import Object
from corelane.embedded.apiserver.validation import (
    kind_rules,
    pod_rules,
    pod_update_rules,
    resource_rules,  # noqa: F401 - registers its rules
    table_rules,
)
from corelane.embedded.apiserver.validation.table_rules import Scope, limited, walk

_CORE = frozenset({"pods", "nodes", "namespaces", "configmaps", "secrets", "priorityclasses"})
"""Kinds whose finalizers without a domain can only be Kubernetes' own."""


def create(kind: ServedKind, obj: Object, *, version: str = "") -> list[StatusCause]:
    """Return what is wrong with a prepared object.

    The rules are those of the request's group and version: `kind` may be any that shares the stored form,
    and `version` one other than the object's.
    """
    own = _table(kind, obj, None, version)
    if kind.plural == "pods":
        own = chain(own, pod_rules.create(obj))
    elif kind.stored == "events":
        new = bool(kind.group)
        own = chain(kind_rules.event(obj, new_group=new), kind_rules.new_event(obj) if new else ())
    if _rules_first(kind):
        return limited(own) or limited(_metadata(kind, obj))
    return limited(chain(_metadata(kind, obj), own))


def update(
    kind: ServedKind, obj: Object, old: Object, subresource: str = "", *, version: str = ""
) -> list[StatusCause]:
    """Return what is wrong with a prepared object that is to replace `old`; as `create`."""
    core = kind.plural in _CORE
    metadata = chain(_metadata(kind, obj), kind_rules.update(obj["metadata"], old["metadata"], core=core))
    if kind.stored == "events":
        own = kind_rules.event(obj, new_group=bool(kind.group))
        return limited(chain(metadata, own, kind_rules.changed_event(obj, old) if kind.group else ()))
    rules = _UPDATES.get((kind.plural, subresource))
    whole = () if (kind.plural, subresource) in _PARTS else _table(kind, obj, old, version)
    return limited(chain(metadata, whole, rules(obj, old) if rules else ()))


def _metadata(kind: ServedKind, obj: Object) -> Iterable[StatusCause]:
    name_format = names.dns_label if kind.plural == "namespaces" else names.dns_subdomain
    return kind_rules.create(
        obj["metadata"],
        namespaced=kind.namespaced,
        name_format=names.path_segment if _rules_first(kind) else name_format,
        core=kind.plural in _CORE,
    )


def _rules_first(kind: ServedKind) -> bool:
    """Whether metadata is checked only where nothing else is wrong, and any name will do."""
    return kind.plural == "poddisruptionbudgets" or (kind.plural == "events" and not kind.group)


def _table(kind: ServedKind, obj: Object, old: Object | None, version: str) -> Iterable[StatusCause]:
    """The rules of the kind's table."""
    record = kind.schema[version or str(obj["apiVersion"]).rpartition("/")[2]]
    if kind.custom:
        return table_rules.validate(record, obj, old)
    return walk(record, obj, "", Scope(obj, old))


_PARTS = frozenset(
    {
        ("pods", "status"),
        ("nodes", "status"),
        ("namespaces", "status"),
        ("namespaces", "finalize"),
        ("priorityclasses", ""),
        ("poddisruptionbudgets", "status"),
    }
)
"""Updates that look only at what may change."""
_UPDATES: dict[tuple[str, str], Callable[[Object, Object], Iterable[StatusCause]]] = {
    ("pods", ""): pod_update_rules.pod,
    ("pods", "status"): pod_update_rules.status,
    ("nodes", ""): kind_rules.changed_node,
    ("nodes", "status"): kind_rules.changed_node,
    ("namespaces", "status"): kind_rules.namespace_status,
    ("namespaces", "finalize"): kind_rules.finalized_namespace,
    ("configmaps", ""): kind_rules.changed_config,
    ("secrets", ""): kind_rules.changed_secret,
    ("priorityclasses", ""): kind_rules.changed_priority_class,
    ("poddisruptionbudgets", "status"): kind_rules.budget_status,
}
