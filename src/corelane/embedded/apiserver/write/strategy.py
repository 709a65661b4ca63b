"""Preparation of writes by kind: defaults, and the fields that the server sets or keeps.

Objects are plain dicts. The order of a create is decode, admission that looks at other objects,
`prepare_create`, validation; of an update decode (or patch), `prepare_update`, validation.
Upstream: `pkg/registry/*/strategy.go`.
"""

import base64
import copy
from collections.abc import Callable
from typing import Any

import msgspec

from corelane.embedded.apiserver.codec import wire
from corelane.embedded.apiserver.schema.notation import ListType, MapType, ObjectType, Shape
from corelane.embedded.apiserver.served_kinds import ServedKind
from corelane.embedded.apiserver.stored_objects import Object, copied
from corelane.kube.pod import Pod
from corelane.kube.translate import pod_requests
from corelane.kube.translate.fields import TranslationError

_GENERATED = frozenset({"pods", "poddisruptionbudgets", "priorityclasses"})
_COUNTED = frozenset({"pods", "poddisruptionbudgets"})
_NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
_GRACE_ON_BAD_NODE = 300
_BAD_NODE_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_WITH_RESOURCES = ("containers", "initContainers", "resources")
_GATED = {
    "type": "PodScheduled",
    "status": "False",
    "lastProbeTime": None,
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}
_TERMS = ("preferredDuringSchedulingIgnoredDuringExecution", "requiredDuringSchedulingIgnoredDuringExecution")


def complete(
    kind: ServedKind, obj: Object, *, default_scheduler: str = "", old: Object | None = None
) -> None:
    """Fill in defaults, as upstream's decoder does; a pod keeps the scheduler that it has in `old`."""
    if kind.plural == "pods" and isinstance(obj.get("spec"), dict):
        scheduler = (old or {}).get("spec", {}).get("schedulerName") or default_scheduler
        if scheduler:
            obj["spec"].setdefault("schedulerName", scheduler)
    if kind.plural == "secrets":
        # stringData is for writing only: it goes into data, over what is there
        given = obj.pop("stringData", None)
        if given:
            encoded = {name: base64.b64encode((text or "").encode()).decode() for name, text in given.items()}
            obj["data"] = {**(obj.get("data") or {}), **encoded}
    if not kind.custom:
        fill_defaults(kind.schema[_version(obj)], obj)


def prepare_create(
    kind: ServedKind, obj: Object, *, default_scheduler: str = "", completed: bool = False, now: str = ""
) -> None:
    """Fill in what the server sets, reset what a client cannot set; defaults too unless `completed`.

    `now` is the time of a condition that a new object has.
    """
    if not completed:
        complete(kind, obj, default_scheduler=default_scheduler)
    if kind.plural in _GENERATED or kind.custom:
        obj["metadata"]["generation"] = 1
    preparing = _ON_CREATE.get(kind.plural)
    if preparing:
        preparing(obj)
    if kind.plural == "pods" and obj["spec"].get("schedulingGates"):
        obj["status"]["conditions"] = [{**_GATED, "lastTransitionTime": now or None}]


def prepare_update(
    kind: ServedKind,
    obj: Object,
    old: Object,
    subresource: str = "",
    *,
    completed: bool = False,
    version: str = "",
) -> None:
    """Keep what the update cannot touch (status or spec, metadata), count generations; defaults as above.

    `version` is that of the request, as which a custom resource's contents are compared.
    """
    if not completed:
        complete(kind, obj, old=old)
    meta, before = obj["metadata"], old["metadata"]
    meta.pop("selfLink", None)
    _keep(meta, before, "generation", always=True)
    for name in ("creationTimestamp", "deletionTimestamp"):
        if name in before:
            meta[name] = before[name]
    for name in ("uid", "deletionGracePeriodSeconds"):
        _keep(meta, before, name)
    preparing = _ON_UPDATE.get((kind.plural, subresource))
    if preparing:
        preparing(obj, copied(old))
    counted = kind.plural in _COUNTED and obj["spec"] != old["spec"]
    if kind.custom:
        forms = (wire.convert(kind, form, version or _version(obj)) for form in (obj, old))
        new, stored = ({**form, "metadata": None} for form in forms)
        counted = new != stored
    if counted:
        obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def _version(obj: Object) -> str:
    return str(obj["apiVersion"]).rpartition("/")[2]


def _create_node(node: Object) -> None:
    taints = node["spec"].get("taints") or []
    if not any(is_not_ready(taint) for taint in taints):
        node["spec"]["taints"] = [*taints, dict(_NOT_READY)]


def is_not_ready(taint: Object) -> bool:
    """Whether it is the taint that a new Node has until it is ready."""
    return all(taint.get(name) == _NOT_READY[name] for name in ("key", "effect"))


def _create_namespace(namespace: Object) -> None:
    finalizers = namespace["spec"].get("finalizers") or []
    if "kubernetes" not in finalizers:
        namespace["spec"]["finalizers"] = [*finalizers, "kubernetes"]
    namespace["status"] = {"phase": "Active"}


def _update_namespace(namespace: Object, old: Object) -> None:
    namespace["spec"] = old["spec"]
    namespace["status"] = old["status"]


def _create_budget(budget: Object) -> None:
    budget["status"] = dict.fromkeys(
        ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"), 0
    )


def _keep_status(obj: Object, old: Object) -> None:
    obj["status"] = old["status"]


def _keep_spec(obj: Object, old: Object) -> None:
    obj["spec"] = old["spec"]


# --- defaults by the tables


def fill_defaults(record: ObjectType, obj: dict[str, Any]) -> None:
    """Set what is absent and has a default, everywhere in a decoded object. Twice is the same as once."""
    for row in record:
        if row.default is not None and row.name not in obj:
            value = row.default(obj) if callable(row.default) else copy.deepcopy(row.default)
            if value not in ("", None) or row.presence == "opt":
                obj[row.name] = value
        if obj.get(row.name) is not None:
            _inside(row.shape, obj[row.name])
    for filler in record.defaults:
        filler(obj)


def _inside(shape: Shape, value: Any) -> None:
    if isinstance(shape, ObjectType):
        fill_defaults(shape, value)
    elif isinstance(shape, ListType) and isinstance(shape.item, ObjectType):
        for item in value:
            fill_defaults(shape.item, item)
    elif isinstance(shape, MapType) and isinstance(shape.value, ObjectType):
        for item in value.values():
            fill_defaults(shape.value, item)


# --- pods


def _create_pod(pod: Object) -> None:
    """A new pod is Pending and has its quality-of-service class; selectors get its own label values."""
    tolerate_bad_nodes(pod)
    qos = pod.get("status", {}).get("qosClass") or _qos_class(pod["spec"])
    pod["status"] = {"phase": "Pending", "qosClass": qos}
    # KEP-3633, KEP-3243: matchLabelKeys become expressions of the selector, with the pod's own values
    labels = pod["metadata"].get("labels", {})
    for term in _label_key_terms(pod["spec"]):
        selector = term.get("labelSelector")
        if selector is None:
            continue
        named = [("In", key) for key in term.get("matchLabelKeys", ())]
        named += [("NotIn", key) for key in term.get("mismatchLabelKeys", ())]
        more = [{"key": key, "operator": op, "values": [labels[key]]} for op, key in named if key in labels]
        if more:
            selector["matchExpressions"] = [*selector.get("matchExpressions", ()), *more]


def _qos_class(spec: Object) -> str:
    resources = {name: spec[name] for name in _WITH_RESOURCES if spec.get(name) is not None}
    try:
        return pod_requests.qos(msgspec.convert({"spec": resources}, Pod)).value
    except TranslationError:
        return ""  # an amount that validation refuses


def tolerate_bad_nodes(pod: Object) -> None:
    """Five minutes on a node that is not ready or reachable (admission plugin DefaultTolerationSeconds)."""
    tolerations = pod["spec"].get("tolerations") or []
    missing = [
        key
        for key in _BAD_NODE_TAINTS
        if not any(
            toleration.get("key", "") in {key, ""} and toleration.get("effect", "") in {"NoExecute", ""}
            for toleration in tolerations
        )
    ]
    added: list[Object] = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _GRACE_ON_BAD_NODE}
        for key in missing
    ]
    if added:
        pod["spec"]["tolerations"] = [*tolerations, *added]


def _update_pod(pod: Object, old: Object) -> None:
    """The status stays, priority stays where it was left out, and a changed spec counts one generation."""
    for name in ("priority", "preemptionPolicy"):
        if name not in pod["spec"] and name in old["spec"]:
            pod["spec"][name] = old["spec"][name]
    tolerate_bad_nodes(pod)
    pod["status"] = old["status"]


def _update_pod_status(pod: Object, old: Object) -> None:
    """Through /status only the status changes, and it keeps its class and observed generations."""
    pod["spec"] = old["spec"]
    _keep(pod["metadata"], old["metadata"], "ownerReferences", always=True)
    _keep(pod["status"], old["status"], "qosClass")
    _keep(pod["status"], old["status"], "observedGeneration")
    before: dict[str, list[Object]] = {}
    for condition in old["status"].get("conditions", ()):
        before.setdefault(condition["type"], []).append(condition)
    for condition in pod["status"].get("conditions", ()):
        present = before.get(condition["type"])
        if present:
            _keep(condition, present.pop(0), "observedGeneration")


def _keep(new: Object, old: Object, name: str, *, always: bool = False) -> None:
    if always:
        new.pop(name, None)
    if not new.get(name) and name in old:
        new[name] = old[name]


def _label_key_terms(spec: Object) -> list[Object]:
    terms: list[Object] = []
    affinity = spec.get("affinity", {})
    for side in ("podAffinity", "podAntiAffinity"):
        for column in _TERMS:
            listed = affinity.get(side, {}).get(column, ())
            terms += [term.get("podAffinityTerm", term) for term in listed]
    return [*terms, *spec.get("topologySpreadConstraints", ())]


_ON_CREATE: dict[str, Callable[[Object], None]] = {
    "pods": _create_pod,
    "nodes": _create_node,
    "namespaces": _create_namespace,
    "poddisruptionbudgets": _create_budget,
}
_ON_UPDATE: dict[tuple[str, str], Callable[[Object, Object], None]] = {
    ("pods", ""): _update_pod,
    ("pods", "status"): _update_pod_status,
    ("nodes", ""): _keep_status,
    ("nodes", "status"): _keep_spec,
    ("namespaces", ""): _update_namespace,
    ("namespaces", "status"): _keep_spec,
    ("namespaces", "finalize"): _keep_status,
    ("poddisruptionbudgets", ""): _keep_status,
    ("poddisruptionbudgets", "status"): _keep_spec,
}
