"""Binding of pods to nodes, and eviction within disruption budgets.

After kubernetes' `pkg/registry/core/pod/storage` (storage.go, eviction.go). No other request comes between
the steps, so that none is repeated.
"""

from dataclasses import replace

import msgspec

from corelane.embedded.apiserver import api_requests, status_errors
from corelane.embedded.apiserver.api_requests import Target, WriteOptions
from corelane.embedded.apiserver.served_kinds import BINDINGS, BUDGETS, PODS
from corelane.embedded.apiserver.status_errors import StatusCause, StatusError
from corelane.embedded.apiserver.store import server_backend
from corelane.embedded.apiserver.store.server_backend import Backend
from corelane.embedded.apiserver.stored_objects import Object
from corelane.embedded.apiserver.write import admission_plugins, deletion, pipeline
from corelane.embedded.apiserver.write.deletion import DeleteOptions
from corelane.kube.selectors import LabelSelector

MOST_DISRUPTED = 2000
"""Evictions of one budget that its controller may have left to confirm."""

_TOO_MANY = "Cannot evict pod as it would violate the pod's disruption budget."
_SEVERAL = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
_UNREAD = "ignoreStoreReadErrorWithClusterBreakingPotential"
_RETRY_SECONDS = 10


def evict(backend: Backend, target: Target, eviction: Object, options: WriteOptions) -> None:
    """Delete a pod as an Eviction asks, if its budget allows it.

    Raises StatusError: 429 where the budget allows no disruption, 500 where several budgets select the pod.
    """
    meta = eviction.get("metadata") or {}
    pipeline.check_namespace(target, PODS, meta)
    admission_plugins.admit_create(backend, target, eviction)
    if meta.get("name", "") != target.name:
        raise status_errors.bad_request("name in URL does not match name in Eviction object")
    asked = eviction.get("deleteOptions") or {}
    if asked.get(_UNREAD):
        why = "Invalid value: true: can not be set for pod eviction, try after removing the option"
        cause = StatusCause("FieldValueInvalid", why, f"deleteOptions.{_UNREAD}")
        raise status_errors.invalid("Eviction", "policy", target.name, [cause])
    if options.dry_run and asked.get("dryRun") and asked["dryRun"] != ["All"]:
        body = " ".join(asked["dryRun"])
        why = f"Non-matching dry-run options in request and content: [All] and [{body}]"
        raise status_errors.internal(why)
    how, fault = DeleteOptions(dry_run=bool(asked.get("dryRun"))), None
    try:
        how = deletion.read_options(asked)
    except StatusError as error:
        fault = error  # what is wrong with them counts only once the pod is marked
    how = replace(how, dry_run=how.dry_run or options.dry_run)
    pods = replace(target, subresource="")
    pod = backend.find(pods).object()
    phase = (pod.get("status") or {}).get("phase")
    if phase not in {"Pending", "Succeeded", "Failed"} and "deletionTimestamp" not in pod["metadata"]:
        _take_disruption(backend, target.namespace, pod, dry_run=how.dry_run)
    _delete(backend, pods, pod, how, fault)


def _take_disruption(backend: Backend, namespace: str, pod: Object, *, dry_run: bool) -> None:
    """Count the eviction in the pod's budget. Raises StatusError 429, 403 or 500."""
    budgets = _budgets(backend, namespace, pod)
    if len(budgets) > 1:
        raise status_errors.internal(_SEVERAL)
    if not budgets or _may_go_unhealthy(pod, budgets[0]):
        return
    budget = budgets[0]
    name, status = budget["metadata"]["name"], budget["status"]
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        why = f"The disruption budget {name} is still being processed by the server."
        raise _too_many(why, _RETRY_SECONDS)
    if status["disruptionsAllowed"] < 0:
        raise _forbidden(name, "pdb disruptions allowed is negative")
    if len(status.get("disruptedPods") or ()) > MOST_DISRUPTED:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise _forbidden(name, why)
    if status["disruptionsAllowed"] == 0:
        raise _too_many(_reason(name, status))
    if not dry_run:
        _count(budget, pod["metadata"]["name"], backend.timestamp())
        backend.store.put(BUDGETS.stored, f"{namespace}/{budget['metadata']['name']}", budget)


def _budgets(backend: Backend, namespace: str, pod: Object) -> list[Object]:
    """Return the budgets that select a pod: without a selector none does, with an empty one each."""
    labels, selected = pod["metadata"].get("labels") or {}, []
    for record in backend.store.find(BUDGETS.stored, f"{namespace}/"):
        budget = record.object()
        selector = budget["spec"].get("selector")
        if selector is not None and msgspec.convert(selector, LabelSelector).compiled().matches(labels):
            selected.append(budget)
    return selected


def _may_go_unhealthy(pod: Object, budget: Object) -> bool:
    """Whether a pod that is not ready may be evicted without being counted."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    if any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions):
        return False
    status = budget["status"]
    enough: bool = status["currentHealthy"] >= status["desiredHealthy"] > 0
    return enough or budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow"


def _forbidden(name: str, why: str) -> StatusError:
    return status_errors.forbidden("poddisruptionbudget", "policy", name, why)


def _too_many(why: str, seconds: int = 0) -> StatusError:
    details = status_errors.details(causes=[StatusCause("DisruptionBudget", why)], retry_after=seconds)
    headers = {"Retry-After": str(seconds)} if seconds else {}
    return StatusError(429, "TooManyRequests", _TOO_MANY, details, headers)


def _reason(name: str, status: Object) -> str:
    condition = _condition(status, "DisruptionAllowed")
    denied = condition.get("status") == "False" and condition.get("message")
    reason = condition.get("reason", "")
    text = f"The disruption budget {name} does not allow evicting pods currently"
    if denied and reason == "SyncFailed":
        return f"{text} because it failed sync: {denied}"
    if status["currentHealthy"] <= status["desiredHealthy"]:
        healthy, desired = status["currentHealthy"], status["desiredHealthy"]
        return f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
    return f"{text} ({reason}): {denied}" if denied else text


def _condition(status: Object, kind: str) -> Object:
    conditions = status.get("conditions") or ()
    return next((condition for condition in conditions if condition.get("type") == kind), {})


def _count(budget: Object, pod: str, now: str) -> None:
    status = budget["status"]
    status["disruptionsAllowed"] -= 1
    status["disruptedPods"] = {**(status.get("disruptedPods") or {}), pod: now}
    if status["disruptionsAllowed"] == 0:
        denied = {
            "type": "DisruptionAllowed",
            "status": "False",
            "observedGeneration": status.get("observedGeneration", 0),
            "reason": "InsufficientPods",
            "message": "",
        }
        _set_condition(status, {name: value for name, value in denied.items() if value != 0}, now)


def _set_condition(status: Object, condition: Object, now: str) -> bool:
    """Set a condition in its place; the time is that of the last change of its status. False if unchanged."""
    conditions = status.get("conditions") or []
    before = _condition(status, condition["type"])
    same = before.get("status") == condition["status"]
    made = {**condition, "lastTransitionTime": before.get("lastTransitionTime") if same else now}
    if made == before:
        return False
    if before:
        status["conditions"] = [made if item is before else item for item in conditions]
    else:
        status["conditions"] = [*conditions, made]
    return True


def _delete(
    backend: Backend, target: Target, pod: Object, how: DeleteOptions, fault: StatusError | None
) -> None:
    """Delete the pod, marked as disrupted. Raises StatusError 409 where it is not the one asked for."""
    deletion.check_preconditions(PODS, pod, how)
    if not how.dry_run:
        disrupted = {
            "type": "DisruptionTarget",
            "status": "True",
            "lastProbeTime": None,
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
        }
        if _set_condition(pod.setdefault("status", {}), disrupted, backend.timestamp()):
            backend.store.put(PODS.stored, target.key, pod)
        # The mark, which is part of the eviction, gave the pod another version.
        how = replace(how, resource_version="")
    if fault:
        raise fault
    deletion.delete(backend, target, how)


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
    name, spec = target.name, pod["spec"]
    if "deletionTimestamp" in pod["metadata"]:
        raise _unbindable(name, f"pod {name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise _unbindable(name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise _unbindable(name, f"pod {name} has non-empty .spec.schedulingGates")
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


def _unbindable(name: str, why: str) -> StatusError:
    return status_errors.conflict("pods/binding", "", name, why)


def _assign(pod: Object, node: str, meta: Object, now: str) -> None:
    pod["spec"]["nodeName"] = node
    for part in ("labels", "annotations"):
        if meta.get(part):
            pod["metadata"][part] = {**(pod["metadata"].get(part) or {}), **meta[part]}
    state = pod.setdefault("status", {})
    state.pop("nominatedNodeName", None)
    _set_condition(state, {"type": "PodScheduled", "status": "True", "lastProbeTime": None}, now)
