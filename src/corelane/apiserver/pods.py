"""What upstream's pod strategy and admission do to a pod beside defaulting: tolerations, labels, status."""

from __future__ import annotations

from typing import Any

from corelane.apiserver import amounts
from corelane.apiserver.validation.pod import each_container
from corelane.apiserver.validation.pod_annotations import APP_ARMOR, app_armor_profile

Object = dict[str, Any]

_GRACE_ON_BAD_NODE = 300
_BAD_NODE_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_GATED = {
    "type": "PodScheduled",
    "status": "False",
    "lastProbeTime": None,
    "lastTransitionTime": None,
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}
_TERMS = ("preferredDuringSchedulingIgnoredDuringExecution", "requiredDuringSchedulingIgnoredDuringExecution")


def prepare_create(pod: Object) -> None:
    """A new pod is Pending and has its quality-of-service class; selectors get its own label values."""
    qos = pod.get("status", {}).get("qosClass") or amounts.qos_class(pod)
    pod["status"] = {"phase": "Pending", "qosClass": qos}
    if pod["spec"].get("schedulingGates"):
        pod["status"]["conditions"] = [dict(_GATED)]
    _merge_label_keys(pod)
    _take_app_armor_from_annotations(pod)


def tolerate_bad_nodes(pod: Object) -> None:
    """Five minutes on a node that is not ready or reachable (admission plugin DefaultTolerationSeconds)."""
    tolerations = pod["spec"].get("tolerations") or []
    missing = [key for key in _BAD_NODE_TAINTS if not any(_tolerates(one, key) for one in tolerations)]
    added: list[Object] = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _GRACE_ON_BAD_NODE}
        for key in missing
    ]
    if added:
        pod["spec"]["tolerations"] = [*tolerations, *added]


def _tolerates(toleration: Object, key: str) -> bool:
    return toleration.get("key", "") in {key, ""} and toleration.get("effect", "") in {"NoExecute", ""}


def prepare_update(pod: Object, old: Object) -> None:
    """The status stays, priority stays where it was left out, and a changed spec counts one generation."""
    for name in ("priority", "preemptionPolicy"):
        if name not in pod["spec"] and name in old["spec"]:
            pod["spec"][name] = old["spec"][name]
    tolerate_bad_nodes(pod)
    pod["status"] = old["status"]


def prepare_status(pod: Object, old: Object) -> None:
    """Through /status only the status changes, and it keeps its class and observed generations."""
    pod["spec"] = old["spec"]
    _keep(pod["metadata"], old["metadata"], "ownerReferences", always=True)
    _keep(pod["status"], old["status"], "qosClass")
    _keep(pod["status"], old["status"], "observedGeneration")
    before: dict[str, list[Object]] = {}
    for condition in old["status"].get("conditions", ()):
        before.setdefault(condition["type"], []).append(condition)
    for condition in pod["status"].get("conditions", ()):
        known = before.get(condition["type"])
        if known:
            _keep(condition, known.pop(0), "observedGeneration")


def _keep(new: Object, old: Object, name: str, *, always: bool = False) -> None:
    if always:
        new.pop(name, None)
    if not new.get(name) and name in old:
        new[name] = old[name]


def _merge_label_keys(pod: Object) -> None:
    """KEP-3633, KEP-3243: `matchLabelKeys` become expressions of the selector, with the pod's own values."""
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


def _label_key_terms(spec: Object) -> list[Object]:
    terms: list[Object] = []
    affinity = spec.get("affinity", {})
    for side in ("podAffinity", "podAntiAffinity"):
        for column in _TERMS:
            listed = affinity.get(side, {}).get(column, ())
            terms += [term.get("podAffinityTerm", term) for term in listed]
    return [*terms, *spec.get("topologySpreadConstraints", ())]


def _take_app_armor_from_annotations(pod: Object) -> None:
    """Before v1.30 profiles were annotations: what they say goes into fields that say nothing."""
    found = pod["metadata"].get("annotations", {})
    if pod["spec"].get("os", {}).get("name") == "windows":
        return
    whole = pod["spec"].get("securityContext", {}).get("appArmorProfile")
    for container, _ in each_container(pod["spec"], "spec"):
        profile = app_armor_profile(found.get(APP_ARMOR + container.get("name", ""), ""))
        own = container.get("securityContext", {})
        if profile and "appArmorProfile" not in own and profile != whole:
            container["securityContext"] = {**own, "appArmorProfile": profile}
