"""Binding of pods to nodes.

After kubernetes' `pkg/registry/core/pod/storage/storage.go`.
"""

from dataclasses import replace
from typing import Any

from corelane.embedded.apiserver import api_requests, status_errors
from corelane.embedded.apiserver.api_requests import Target, WriteOptions
from corelane.embedded.apiserver.served_kinds import BINDINGS, PODS
from corelane.embedded.apiserver.status_errors import StatusError
from corelane.embedded.apiserver.store import server_backend
from corelane.embedded.apiserver.store.server_backend import Backend
from corelane.embedded.apiserver.stored_objects import Object
from corelane.embedded.apiserver.write import admission_plugins, pipeline


def bind(backend: Backend, target: Target, binding: Object, options: WriteOptions) -> None:
    """Bind a pod to a node and merge the binding's metadata, in one write. Raises StatusError."""
    meta = binding.get("metadata") or {}
    pipeline.check_namespace(target, BINDINGS, meta)
    admission_plugins.admit_create(backend, target, binding)
    if target.name and target.name != meta.get("name", ""):
        raise status_errors.bad_request("name in URL does not match name in Binding object")
    by_subresource = bool(target.name)
    target = replace(target, name=meta.get("name", ""))
    node = _node(binding.get("target") or {})
    pod = backend.find(target).object()
    # a binding that is created as an object of its own loses its uid, as any new object does
    uid = meta.get("uid", "") if by_subresource else ""
    server_backend.check_preconditions(target, pod, uid, meta.get("resourceVersion", ""))
    _check_unbound(target.name, pod)
    if not options.dry_run:
        _assign(pod, node, meta, backend.timestamp())
        backend.store.put(PODS.stored, target.key, pod)


def _node(reference: Object) -> str:
    """The node that a binding's target names. Raises StatusError 500, upstream's code for these."""
    faults = []
    kind, name = reference.get("kind", ""), reference.get("name", "")
    if kind not in {"", "Node"}:
        faults.append(api_requests.unsupported("target.kind", f'"{kind}"', ("Node", "<empty>")))
    if not name:
        faults.append(status_errors.StatusCause("FieldValueRequired", "Required value", "target.name"))
    if faults:
        raise status_errors.internal(status_errors.aggregate(faults))
    return str(name)


def _check_unbound(name: str, pod: Object) -> None:
    spec: dict[str, Any] = pod["spec"]
    if "deletionTimestamp" in pod["metadata"]:
        raise _unbindable(name, f"pod {name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise _unbindable(name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise _unbindable(name, f"pod {name} has non-empty .spec.schedulingGates")


def _unbindable(name: str, why: str) -> StatusError:
    return status_errors.conflict("pods/binding", "", name, why)


def _assign(pod: Object, node: str, meta: Object, now: str) -> None:
    pod["spec"]["nodeName"] = node
    for part in ("labels", "annotations"):
        if meta.get(part):
            pod["metadata"][part] = {**(pod["metadata"].get(part) or {}), **meta[part]}
    state = pod.setdefault("status", {})
    state.pop("nominatedNodeName", None)
    conditions = state.get("conditions") or []
    before = next((c for c in conditions if c.get("type") == "PodScheduled"), None)
    same = before is not None and before.get("status") == "True"
    changed = before.get("lastTransitionTime") if before and same else now
    scheduled = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": changed,
    }
    if before is None:
        state["conditions"] = [*conditions, scheduled]
    else:
        state["conditions"] = [scheduled if one is before else one for one in conditions]
