"""Rules on updates: immutable fields, one function for each kind."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from corelane.embedded.apiserver.codec import go_rendering
from corelane.embedded.apiserver.formats import MAX_INT32, between
from corelane.embedded.apiserver.schema.core_kinds import EVENT
from corelane.embedded.apiserver.schema.node_kind import NODE_ADDRESS
from corelane.embedded.apiserver.schema.pod_spec import POD_SPEC
from corelane.embedded.apiserver.status_errors import StatusCause
from corelane.embedded.apiserver.validation import causes, kind_rules
from corelane.embedded.apiserver.validation.annotation_rules import APP_ARMOR
from corelane.embedded.apiserver.validation.causes import IMMUTABLE, child, item, unless_equal
from corelane.embedded.apiserver.validation.table_rules import Object, Scope

_POD_MAY_CHANGE = ",".join(
    (
        "`spec.containers[*].image`",
        "`spec.initContainers[*].image`",
        "`spec.activeDeadlineSeconds`",
        "`spec.tolerations` (only additions to existing tolerations)",
        "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
    )
)
_MIRROR = "kubernetes.io/config.mirror"
_FIXED_CONFIG = "field is immutable when `immutable` is set"
_EVENT_FIXED = [
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "reason",
    "type",
    "eventTime",
    "action",
    "related",
    "reportingController",
    "reportingInstance",
]
_ADDITIONS = "only additions are allowed (no mutations or deletions)"


def pod(new: Object, old: Object) -> Iterator[StatusCause]:
    """Upstream: `ValidatePodUpdate`, from where the specification's own rules end."""
    yield from pod_annotations(new, old)
    stop = yield from _images(new["spec"], old["spec"])
    if stop:
        return
    stop = yield from _deadline(new["spec"], old["spec"])
    if stop:
        return
    yield from _tolerations(new["spec"], old["spec"])
    yield from _gates(new["spec"], old["spec"])
    if new["spec"] == old["spec"]:
        return
    changed = _without_allowed_changes(new["spec"], old["spec"])
    if old["spec"].get("schedulingGates"):
        yield from _gated(changed, old["spec"])
    if changed != old["spec"]:
        text = go_rendering.difference(POD_SPEC, old["spec"], changed)
        yield causes.forbidden(
            "spec", f"pod updates may not change fields other than {_POD_MAY_CHANGE}\n{text}"
        )


def pod_annotations(new: Object, old: Object) -> Iterator[StatusCause]:
    after, before = (one["metadata"].get("annotations", {}) for one in (new, old))
    for name in sorted(before.keys() | after.keys()):
        if after.get(name) == before.get(name):
            continue
        where = causes.key("metadata.annotations", name)
        verb = "remove or update" if name in before else "add"
        if name.startswith(APP_ARMOR):
            yield causes.forbidden(where, f"may not {verb} AppArmor annotations")
        if name == _MIRROR:
            yield causes.forbidden(where, f"may not {verb} mirror pod annotation")


def _images(new: Object, old: Object) -> Any:
    for name in ("containers", "initContainers"):
        listed, path = new.get(name) or [], child("spec", name)
        if len(listed) != len(old.get(name) or []):
            yield causes.forbidden(path, "pod updates may not add or remove containers")
            return True
        for index, container in enumerate(listed):
            image, where = container.get("image", ""), child(item(path, index), "image")
            if not image:
                yield causes.required(where)
            if image != image.strip():
                yield causes.invalid(where, image, "must not have leading or trailing whitespace")
    return False


def _deadline(new: Object, old: Object) -> Any:
    after, before = new.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds")
    path = "spec.activeDeadlineSeconds"
    if after is None:
        if before is not None:
            why = "must not update from a positive integer to nil value"
            yield causes.invalid(path, None, why)
        return False
    if not 0 <= after <= MAX_INT32:
        yield causes.invalid(path, after, between(0, MAX_INT32))
        return True
    if before is not None and before < after:
        yield causes.invalid(path, after, "must be less than or equal to previous value")
        return True
    return False


def _tolerations(new: Object, old: Object) -> Iterator[StatusCause]:
    kept = [_timeless(toleration) for toleration in new.get("tolerations", ())]
    if any(_timeless(toleration) not in kept for toleration in old.get("tolerations", ())):
        why = "existing toleration can not be modified except its tolerationSeconds"
        yield causes.forbidden("spec.tolerations", why)


def _timeless(toleration: Object) -> Object:
    return {name: value for name, value in toleration.items() if name != "tolerationSeconds"}


def _gates(new: Object, old: Object) -> Iterator[StatusCause]:
    before = {gate.get("name", "") for gate in old.get("schedulingGates", ())}
    for index, gate in enumerate(new.get("schedulingGates", ())):
        name = gate.get("name", "")
        if name not in before:
            where = child(item("spec.schedulingGates", index), "name")
            why = f"only deletion is allowed, but found new scheduling gate '{name}'"
            yield causes.forbidden(where, why)


def _without_allowed_changes(new: Object, old: Object) -> Object:
    """The new specification with what may change put back."""
    munged = deepcopy(new)
    for name in ("containers", "initContainers"):
        for container, before in zip(munged.get(name) or (), old.get(name) or (), strict=True):
            container["image"] = before.get("image", "")
            if not container["image"]:
                del container["image"]
    for name in ("activeDeadlineSeconds", "schedulingGates", "tolerations"):
        munged.pop(name, None)
        if name in old:
            munged[name] = deepcopy(old[name])
    return munged


def _gated(munged: Object, old: Object) -> Iterator[StatusCause]:
    """KEP-3838: while a pod is gated its node selection may be narrowed."""
    after, before = munged.get("nodeSelector", {}), old.get("nodeSelector", {})
    if any(after.get(name) != value for name, value in before.items()):
        why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        yield causes.invalid("spec.nodeSelector", after, why)
    _put_back(munged, old, "nodeSelector")
    yield from _gated_affinity(munged, old)


def _gated_affinity(munged: Object, old: Object) -> Iterator[StatusCause]:
    path = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    before, after = _node_terms(old), _node_terms(munged)
    if before and len(before) != len(after):
        why = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        yield causes.invalid(path, after, why)
    elif before:
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            if not _only_adds(other, one):
                yield causes.invalid(item(path, index), other, _ADDITIONS)
    affinity = munged.setdefault("affinity", {})
    _put_back(affinity, old.get("affinity", {}), "nodeAffinity")
    if not affinity and not old.get("affinity"):
        _put_back(munged, old, "affinity")


def _node_terms(spec: Object) -> list[Object]:
    node = spec.get("affinity", {}).get("nodeAffinity", {})
    required = node.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    return list(required.get("nodeSelectorTerms") or ())


def _only_adds(new: Object, old: Object) -> bool:
    columns = ("matchExpressions", "matchFields")
    if not any(old.get(name) for name in columns):
        return not any(new.get(name) for name in columns)
    return all(new.get(name, [])[: len(old.get(name, []))] == old.get(name, []) for name in columns)


def _put_back(munged: Object, old: Object, name: str) -> None:
    munged.pop(name, None)
    if name in old:
        munged[name] = deepcopy(old[name])


def node(new: Object, old: Object, scope: Scope) -> Iterator[StatusCause]:
    """Upstream: `ValidateNodeUpdate`."""
    yield from kind_rules.node_resources(new, "", scope)
    yield from kind_rules.declared_features(new, "", scope)
    seen: set[tuple[str, str]] = set()
    for index, address in enumerate(new.get("status", {}).get("addresses", ())):
        same = address.get("type", ""), address.get("address", "")
        if same in seen:
            shown = go_rendering.rendered(NODE_ADDRESS, address)
            yield causes.duplicate(item("status.addresses", index), shown)
        seen.add(same)
    yield from _node_identity(new["spec"], old["spec"])
    yield from kind_rules.taints(new, "", scope)
    if new["spec"].get("externalID", "") != old["spec"].get("externalID", ""):
        yield causes.forbidden("spec.externalID", "may not be updated")


def _node_identity(new: Object, old: Object) -> Iterator[StatusCause]:
    before, after = old.get("podCIDRs", []), new.get("podCIDRs", [])
    changed = sum(one != other for one, other in zip(before, after, strict=False))
    if before and len(before) != len(after):
        changed = 1
    for _ in range(changed):
        why = 'node updates may not change podCIDR except from "" to valid'
        yield causes.forbidden("spec.podCIDRs", why)
    if old.get("providerID") and old["providerID"] != new.get("providerID"):
        why = 'node updates may not change providerID except from "" to valid'
        yield causes.forbidden("spec.providerID", why)


def config_map(new: Object, old: Object) -> Iterator[StatusCause]:
    if not old.get("immutable"):
        return
    if not new.get("immutable"):
        yield causes.forbidden("immutable", _FIXED_CONFIG)
    for name in ("data", "binaryData"):
        if new.get(name, {}) != old.get(name, {}):
            yield causes.forbidden(name, _FIXED_CONFIG)


def priority_class(new: Object, old: Object) -> Iterator[StatusCause]:
    if new.get("value", 0) != old.get("value", 0):
        yield causes.forbidden("value", "may not be changed in an update.")
    yield from unless_equal("preemptionPolicy", new.get("preemptionPolicy"), old.get("preemptionPolicy"))


def namespace_status(new: Object) -> Iterator[StatusCause]:
    phase = new.get("status", {}).get("phase", "")
    ending = bool(new["metadata"].get("deletionTimestamp"))
    wanted = "Terminating" if ending else "Active"
    if phase != wanted:
        why = f"may only be '{wanted}' if `deletionTimestamp` is {'not ' if ending else ''}empty"
        yield causes.invalid("status.Phase", phase, why)


def namespace_finalize(new: Object) -> Iterator[StatusCause]:
    for index, name in enumerate(new.get("spec", {}).get("finalizers", ())):
        yield from kind_rules.finalizer(name, item("spec.finalizers", index))


def event(new: Object, old: Object) -> Iterator[StatusCause]:
    """Through events.k8s.io only the series of an event changes."""
    if new.get("series") != old.get("series"):
        yield from kind_rules.event_series(new)
    for name in _EVENT_FIXED:
        row = EVENT.fields["reportingComponent" if name == "reportingController" else name]
        if new.get(row.name) != old.get(row.name):
            yield causes.invalid(name, go_rendering.field(row, new.get(row.name)), IMMUTABLE)
