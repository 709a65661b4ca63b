"""Deletion: grace periods, finalizers, preconditions, whole collections, and namespaces in two steps.

After apiserver's `pkg/registry/rest/delete.go` and `pkg/registry/generic/registry/store.go` (Delete), and the
strategies of pods and namespaces.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from corelane.embedded.apiserver import api_requests, status_errors
from corelane.embedded.apiserver.api_requests import Query, Target
from corelane.embedded.apiserver.codec import wire
from corelane.embedded.apiserver.served_kinds import ServedKind
from corelane.embedded.apiserver.status_errors import StatusCause
from corelane.embedded.apiserver.store import server_backend
from corelane.embedded.apiserver.store.server_backend import Backend, rfc3339
from corelane.embedded.apiserver.stored_objects import Object, StoreChange, StoredObject
from corelane.embedded.apiserver.write import admission_plugins

_POLICIES = ("Foreground", "Background", "Orphan")
_ORPHAN, _FOREGROUND = "orphan", "foregroundDeletion"


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """Options of a DELETE; `grace` in seconds."""

    grace: int | None = None
    uid: str = ""
    resource_version: str = ""
    propagation: str = ""
    orphan: bool | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class DeleteResult:
    """Outcome of a deletion: the object's last state, and whether it is removed."""

    obj: Object
    gone: bool


def options_from_query(query: Query, dry_run: list[str]) -> DeleteOptions:
    """Options given as query parameters. Raises StatusError."""
    orphan = api_requests.flag(query, "orphanDependents") if "orphanDependents" in query else None
    document: dict[str, Any] = {
        "gracePeriodSeconds": api_requests.integer(query, "gracePeriodSeconds"),
        "propagationPolicy": query.get("propagationPolicy"),
        "orphanDependents": orphan,
        "dryRun": dry_run,
    }
    return read_options({key: value for key, value in document.items() if value is not None})


def read_options(given: Mapping[str, Any]) -> DeleteOptions:
    """Options of a decoded DeleteOptions object. Raises StatusError 422."""
    policy, faults = given.get("propagationPolicy"), []
    if policy is not None and given.get("orphanDependents") is not None:
        why = f'Invalid value: "{policy}": orphanDependents and deletionPropagation cannot be both set'
        faults.append(StatusCause("FieldValueInvalid", why, "propagationPolicy"))
    if policy is not None and policy not in _POLICIES:
        faults.append(api_requests.unsupported("propagationPolicy", f'"{policy}"', (*_POLICIES, "nil")))
    faults += api_requests.dry_run_faults(given.get("dryRun") or [])
    if faults:
        raise status_errors.invalid("DeleteOptions", "meta.k8s.io", "", faults)
    conditions = given.get("preconditions") or {}
    grace = given.get("gracePeriodSeconds")
    return DeleteOptions(
        grace=1 if grace is not None and grace < 0 else grace,
        uid=conditions.get("uid") or "",
        resource_version=conditions.get("resourceVersion") or "",
        propagation=policy or "",
        orphan=given.get("orphanDependents"),
        dry_run=bool(given.get("dryRun")),
    )


def delete(backend: Backend, target: Target, options: DeleteOptions) -> DeleteResult:
    """Delete one object, or begin its deletion. Raises StatusError."""
    admission_plugins.admit_delete(target)
    return _delete_any(backend, target, options)


def _delete_any(backend: Backend, target: Target, options: DeleteOptions) -> DeleteResult:
    obj = backend.find(target).object()
    if target.resource == "namespaces" and not target.subresource:
        # first it is Terminating; it goes only when the finalizers in its spec are gone
        kind = server_backend.kind_of(target)
        check_preconditions(kind, obj, options)
        meta = obj["metadata"]
        if "deletionTimestamp" in meta:
            if (obj.get("spec") or {}).get("finalizers"):
                return DeleteResult(obj, gone=False)
            return _delete(backend, target, obj, options)
        meta["deletionTimestamp"] = backend.timestamp()
        obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
        _set_finalizers(meta, options)
        if not options.dry_run:
            backend.store.put(kind.stored, target.key, obj)
        return DeleteResult(obj, gone=False)
    return _delete(backend, target, obj, options)


def delete_records(
    backend: Backend, target: Target, records: Iterable[StoredObject], options: DeleteOptions
) -> None:
    """Delete each object of a collection; one that no longer exists is skipped."""
    for record in records:
        name = record.key.rpartition("/")[2]
        namespace = record.key.rpartition("/")[0]
        try:
            _delete_any(backend, replace(target, name=name, namespace=namespace), options)
        except status_errors.StatusError as error:
            if error.code != 404:
                raise


def _delete(backend: Backend, target: Target, obj: Object, options: DeleteOptions) -> DeleteResult:
    kind = wire.stored_kind(server_backend.kind_of(target))
    check_preconditions(kind, obj, options)
    before = {**obj, "metadata": dict(obj["metadata"])}
    grace = _begin(obj, options, backend.now()) if kind.kind == "Pod" else None
    if grace is not None and grace < 0:
        return DeleteResult(obj, gone=False)
    meta = obj["metadata"]
    _set_finalizers(meta, options)
    held = bool(meta.get("finalizers"))
    if grace is None and held:
        if "deletionTimestamp" not in meta:
            if meta.get("generation"):
                meta["generation"] += 1
            meta["deletionTimestamp"] = backend.timestamp()
        meta["deletionGracePeriodSeconds"] = 0
    gone = not held and not grace
    if not options.dry_run:
        # a pod's last state is written before it goes, as upstream does, so that watchers see both
        changes = [StoreChange(kind.stored, target.key, obj)] if obj != before else []
        if gone:
            changes.append(StoreChange(kind.stored, target.key, None))
        events = backend.store.write(changes)
        if gone:
            meta["resourceVersion"] = str(events[-1].revision)
    return DeleteResult(obj, gone)


def check_preconditions(kind: ServedKind, obj: Object, options: DeleteOptions) -> None:
    """Check that the object is the one that was to be deleted. Raises StatusError 409."""
    meta = obj["metadata"]
    pairs = (
        ("UID", options.uid, meta["uid"], "deleted and then recreated"),
        ("ResourceVersion", options.resource_version, meta["resourceVersion"], "modified"),
    )
    for name, expected, actual, event in pairs:
        if expected and expected != actual:
            why = (
                f"the {name} in the precondition ({expected}) does not match the {name} in record "
                f"({actual}). The object might have been {event}"
            )
            raise status_errors.conflict(kind.kind, kind.group, meta["name"], why)


_PENDING = -1
_LONGEST_GRACE = 2**32
"""Seconds, 136 years. The API takes 64 bits; kube-apiserver's time of deletion overflows at 292 years."""


def _begin(pod: Object, options: DeleteOptions, now: datetime) -> int:
    """Begin the deletion of a pod, or shorten its grace period; return the seconds that are left to it.

    `_PENDING` stands for a deletion that is under way and asks for no longer. After `rest.BeforeDelete`.
    """
    meta = pod["metadata"]
    if "deletionTimestamp" not in meta:
        grace = _grace(pod, options)
        if meta.get("generation"):
            meta["generation"] += 1
        meta["deletionTimestamp"] = rfc3339(now + timedelta(seconds=grace))
        meta["deletionGracePeriodSeconds"] = grace
        return grace
    running = meta.get("deletionGracePeriodSeconds") or 0
    if not running:
        return 0
    if options.grace is None or options.grace >= running:
        return _PENDING
    # the new grace counts from the time the deletion began; a graceful end is never due in the past
    grace = options.grace
    due = datetime.fromisoformat(meta["deletionTimestamp"]) + timedelta(seconds=grace - running)
    if due < now:
        due, grace = now, min(grace, 1)
    meta |= {"deletionTimestamp": rfc3339(due), "deletionGracePeriodSeconds": grace}
    return grace


def _grace(pod: Object, options: DeleteOptions) -> int:
    """Seconds that a new deletion gives a pod; one that does not run gets none."""
    spec, phase = pod.get("spec") or {}, (pod.get("status") or {}).get("phase")
    grace = options.grace if options.grace is not None else spec.get("terminationGracePeriodSeconds", 0)
    if not spec.get("nodeName") or phase in {"Succeeded", "Failed"}:
        return 0
    return 1 if grace < 0 else min(int(grace), _LONGEST_GRACE)


def _set_finalizers(meta: Object, options: DeleteOptions) -> None:
    """Set the finalizers that tell a garbage collector how to handle dependents."""
    requested = {
        _ORPHAN: options.propagation == "Orphan" or options.orphan is True,
        _FOREGROUND: options.propagation == "Foreground",
    }
    unsaid = not options.propagation and options.orphan is None
    current = meta.get("finalizers") or []
    finalizers = [name for name in current if name not in requested or unsaid]
    finalizers += [name for name, asked in requested.items() if asked]
    if finalizers:
        meta["finalizers"] = finalizers
    else:
        meta.pop("finalizers", None)
