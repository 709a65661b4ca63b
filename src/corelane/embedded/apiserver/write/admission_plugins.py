"""Admission that needs to look at other objects: namespaces' lifecycle and priority classes.

What needs only the object itself (tolerations, taints, labels) is part of the strategy.
"""

from typing import Any

from corelane.embedded.apiserver import served_kinds, status_errors
from corelane.embedded.apiserver.api_requests import Target
from corelane.embedded.apiserver.status_errors import StatusCause, StatusError
from corelane.embedded.apiserver.store.server_backend import Backend
from corelane.embedded.apiserver.stored_objects import Object

IMMORTAL = frozenset({"default", "kube-system", "kube-public"})
SYSTEM_CLASSES = frozenset({"system-node-critical", "system-cluster-critical"})
_NAMESPACES = served_kinds.NAMESPACES.stored
_CLASSES = served_kinds.PRIORITY_CLASSES.stored


def admit_create(backend: Backend, target: Target, obj: Object) -> None:
    """Check and complete an object about to be created. Raises StatusError 403 or 404."""
    meta = obj.get("metadata") or {}
    if target.namespace and target.kind and target.kind.namespaced:
        record = backend.store.get(_NAMESPACES, target.namespace)
        if record is None:
            raise status_errors.not_found("namespaces", "", target.namespace)
        if record.fields.get("status.phase") == "Terminating":
            text = f"namespace {target.namespace} is being terminated"
            why = (
                f"unable to create new content in namespace {target.namespace} because it is being terminated"
            )
            cause = StatusCause("NamespaceTerminating", text, "metadata.namespace")
            raise _refuse(target, target.name or meta.get("name", ""), why, (cause,))
    if target.resource == "pods" and not target.subresource:
        _set_priority(backend, target, obj)


def validate_create(backend: Backend, target: Target, obj: Object) -> None:
    """Check a new object once its own fields are valid. Raises StatusError 403 or 422."""
    spec = obj["spec"] if target.resource == "pods" and not target.subresource else {}
    if "overhead" in spec and "runtimeClassName" not in spec:
        # KEP 688: overhead is a runtime class's; the scheduler would reserve CPUs that nothing uses
        why = "spec.overhead is set without spec.runtimeClassName; remove it"
        cause = StatusCause("FieldValueForbidden", why, "spec.overhead")
        raise _refuse(target, obj["metadata"].get("name", ""), why, (cause,))
    if target.resource == "priorityclasses":
        _check_default_class(backend, target, obj)


def validate_update(backend: Backend, target: Target, obj: Object, old: Object) -> None:
    """Check an update once its own fields are valid. Raises StatusError 403 or 422."""
    if target.resource == "priorityclasses":
        _check_default_class(backend, target, obj)


def admit_delete(target: Target) -> None:
    """Check whether an object may be deleted. Raises StatusError 403."""
    if target.resource == "namespaces" and target.name in IMMORTAL:
        raise _refuse(target, target.name, "this namespace may not be deleted")
    if target.resource == "priorityclasses" and target.name in SYSTEM_CLASSES:
        raise _refuse(target, target.name, "this is a system priority class and cannot be deleted")


def _refuse(target: Target, name: str, why: str, causes: tuple[StatusCause, ...] = ()) -> StatusError:
    return status_errors.forbidden(target.resource, target.group, name, why, causes)


def _set_priority(backend: Backend, target: Target, pod: Object) -> None:
    """KEP 268: the class named, or the default one, gives the pod its priority."""
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return
    name, value, policy = _priority(backend, target, pod)
    given = spec.get("priority")
    if given is not None and given != value:
        raise _refuse(
            target,
            pod["metadata"].get("name", ""),
            (
                f"the integer value of priority ({given}) must not be provided in pod spec; "
                f"priority admission controller computed {value} from the given PriorityClass name"
            ),
        )
    if name:
        spec["priorityClassName"] = name
    spec["priority"] = value
    given_policy = spec.get("preemptionPolicy")
    if given_policy and given_policy != policy:
        why = (
            f"the string value of PreemptionPolicy ({given_policy}) must not be provided in pod spec; "
            f"priority admission controller computed {policy} from the given PriorityClass name"
        )
        raise _refuse(target, pod["metadata"].get("name", ""), why)
    spec["preemptionPolicy"] = policy


def _priority(backend: Backend, target: Target, pod: Object) -> tuple[str, int, str]:
    name = pod["spec"].get("priorityClassName", "")
    if not name:
        default = _default_class(backend)
        return _of_class(default) if default else ("", 0, "PreemptLowerPriority")
    record = backend.store.get(_CLASSES, name)
    if record is None:
        why = f"no PriorityClass with name {name} was found"
        raise _refuse(target, pod["metadata"].get("name", ""), why)
    return _of_class(record.object())


def _of_class(priority_class: Object) -> tuple[str, int, str]:
    return (
        priority_class["metadata"]["name"],
        priority_class["value"],
        priority_class.get("preemptionPolicy", "PreemptLowerPriority"),
    )


def _default_class(backend: Backend) -> Object | None:
    """The class marked as the default; of several (from a race) the lowest wins, as upstream."""
    classes = (record.object() for record in backend.store.find(_CLASSES))
    marked: list[dict[str, Any]] = [item for item in classes if item.get("globalDefault")]
    return min(marked, key=lambda item: int(item["value"]), default=None)


def _check_default_class(backend: Backend, target: Target, obj: Object) -> None:
    if not obj.get("globalDefault"):
        return
    other = _default_class(backend)
    name = obj["metadata"].get("name", "")
    if other and other["metadata"]["name"] != name:
        taken = other["metadata"]["name"]
        why = f"PriorityClass {taken} is already marked as default. Only one default can exist"
        raise _refuse(target, name, why)
