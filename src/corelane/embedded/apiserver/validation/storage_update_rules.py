"""Rules on updates of claims, persistent volumes and storage classes: what is fixed once it was written."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from corelane import names, quantity
from corelane.embedded.apiserver.codec import go_rendering
from corelane.embedded.apiserver.schema.storage_kinds import CLAIM_SPEC, VOLUME_NODE_AFFINITY, VOLUME_SOURCE
from corelane.embedded.apiserver.status_errors import StatusCause
from corelane.embedded.apiserver.validation import causes
from corelane.embedded.apiserver.validation.causes import child, key, unless_equal
from corelane.embedded.apiserver.validation.resource_rules import is_native
from corelane.embedded.apiserver.validation.table_rules import Object
from corelane.kube import keys

_RENAMED = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
}
_RESIZE_STATUSES = (
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
)
_FIXED_CLAIM = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound "
    "claims"
)
_ATTRIBUTES = "spec.volumeAttributesClassName"


# --- claims


def claim(new: Object, old: Object) -> Iterator[StatusCause]:
    """Upstream: `ValidatePersistentVolumeClaimUpdate`, from where the rules of a new claim end."""
    after, before = deepcopy(new["spec"]), deepcopy(old["spec"])
    if not before.get("volumeName"):
        _copy(before, after, "volumeName")
    yield from _claim_class(new, old, after)
    bound = new.get("status", {}).get("phase") == "Bound"
    if bound:
        _keep_size(after, before)
        _copy(after, before, "volumeAttributesClassName")
    if after != before:
        text = go_rendering.difference(CLAIM_SPEC, before, after)
        yield causes.forbidden("spec", f"{_FIXED_CLAIM}\n{text}")
    yield from _claim_size(new, old)
    yield from unless_equal("volumeMode", new["spec"].get("volumeMode"), old["spec"].get("volumeMode"))
    yield from _claim_attributes(new["spec"], old)


def _copy(to: Object, source: Object, name: str) -> None:
    to.pop(name, None)
    if name in source:
        to[name] = source[name]


def _claim_class(new: Object, old: Object, after: Object) -> Iterator[StatusCause]:
    """The class may be named once: by the field where it was in the annotation or nowhere."""
    was, now = (one["metadata"].get("annotations", {}).get(keys.STORAGE_CLASS) for one in (old, new))
    before, name = old["spec"].get("storageClassName"), new["spec"].get("storageClassName")
    if was is not None and before is None and name == was and now in {None, was}:
        after.pop("storageClassName", None)
        return
    where = child("metadata.annotations", keys.STORAGE_CLASS)
    yield from unless_equal(where, now or "", was or "")
    if name is not None and before is None and was in {None, name}:
        after.pop("storageClassName", None)


def _keep_size(after: Object, before: Object) -> None:
    if after["resources"].get("requests"):
        size = before["resources"].get("requests", {}).get("storage", "0")
        after["resources"]["requests"]["storage"] = size


def _claim_size(new: Object, old: Object) -> Iterator[StatusCause]:
    """A claim may shrink again, while it is larger than the volume has become."""
    now, was = (_storage(one["spec"].get("resources", {}).get("requests")) for one in (new, old))
    if now < was and now <= _storage(old.get("status", {}).get("capacity")):
        where = "spec.resources.requests.storage"
        yield causes.forbidden(where, "field can not be less than status.capacity")


def _storage(amounts: dict[str, str] | None) -> int:
    return quantity.parse((amounts or {}).get("storage", "0")).nano


def _claim_attributes(new: Object, old: Object) -> Iterator[StatusCause]:
    name = new.get("volumeAttributesClassName")
    applied = old.get("status", {}).get("currentVolumeAttributesClassName") is not None
    if not applied or name == old["spec"].get("volumeAttributesClassName") or name:
        return
    value = "nil" if name is None else "empty string"
    why = f"update to {value} is forbidden when status.currentVolumeAttributesClassName is not nil"
    yield causes.forbidden(_ATTRIBUTES, why)


def claim_status(new: Object) -> Iterator[StatusCause]:
    """Upstream: `ValidatePersistentVolumeClaimStatusUpdate`."""
    if not new["spec"].get("accessModes"):
        yield causes.required("Spec.accessModes")
    status = new.get("status", {})
    for name in sorted(status.get("capacity", ())):
        yield from _not_negative(status["capacity"][name], key("status.capacity", name))
    path = "status.allocatedResourceStatuses"
    for name, state in sorted(status.get("allocatedResourceStatuses", {}).items()):
        yield from _resource_name(name, path)
        if state not in _RESIZE_STATUSES:
            yield causes.not_supported(path, name, _RESIZE_STATUSES)
    path = "status.allocatedResources"
    for name, amount in sorted(status.get("allocatedResources", {}).items()):
        faults = _resource_name(name, path)
        yield from faults or _not_negative(amount, key(path, name))


def _not_negative(amount: str, path: str) -> Iterator[StatusCause]:
    value = quantity.parse(amount).value
    if value < 0:
        yield causes.invalid(path, value, "must be a valid resource quantity")


def _resource_name(name: str, path: str) -> list[StatusCause]:
    faults = causes.all_invalid(path, name, names.qualified_name(name))
    if not faults and is_native(name) and name != "storage":
        return [causes.not_supported(path, name, ("storage",))]
    return faults


# --- persistent volumes


def volume(new: Object, old: Object) -> Iterator[StatusCause]:
    """Upstream: `ValidatePersistentVolumeUpdate`, from where the rules of a new volume end."""
    after, before = _source(new), _source(old)
    if "controllerExpandSecretRef" not in before.get("csi", {"controllerExpandSecretRef": 0}):
        after.get("csi", {}).pop("controllerExpandSecretRef", None)
    if after != before:
        text = go_rendering.difference(VOLUME_SOURCE, before, after)
        why = f"spec.persistentvolumesource is immutable after creation\n{text}"
        yield causes.forbidden("spec.persistentvolumesource", why)
    yield from unless_equal("volumeMode", new["spec"].get("volumeMode"), old["spec"].get("volumeMode"))
    yield from _affinity(new["spec"].get("nodeAffinity"), old["spec"].get("nodeAffinity"))
    name, was = (one["spec"].get("volumeAttributesClassName") for one in (new, old))
    if name is None and was is not None:
        yield causes.forbidden(_ATTRIBUTES, "update from non-nil value to nil is forbidden")


def _source(obj: Object) -> Object:
    return {name: deepcopy(value) for name, value in obj["spec"].items() if name in VOLUME_SOURCE.fields}


def _affinity(new: Object | None, old: Object | None) -> Iterator[StatusCause]:
    """Once there is one it stays, but for labels that go by their present name."""
    if old is None or (new is not None and _renamed(old, new)):
        return
    shown = None if new is None else go_rendering.rendered(VOLUME_NODE_AFFINITY, new)
    why = f"{causes.IMMUTABLE}, except for updating from beta label to GA"
    yield causes.invalid("nodeAffinity", shown, why)


def _renamed(old: Any, new: Any) -> bool:
    """Whether both are the same, but for keys of requirements that were renamed."""
    if isinstance(old, dict) and isinstance(new, dict):
        if old.keys() != new.keys():
            return False
        return all(
            _renamed(old[name], new[name]) or _RENAMED.get(_key(old, name), "") == new[name] for name in old
        )
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_renamed, old, new))
    return bool(old == new)


def _key(requirement: Object, name: str) -> str:
    return str(requirement["key"]) if name == "key" else ""


# --- storage classes


def storage_class(new: Object, old: Object) -> Iterator[StatusCause]:
    """Upstream: `ValidateStorageClassUpdate`, from where the rules on metadata end."""
    parameters = (_ordered(one.get("parameters")) for one in (new, old))
    yield from unless_equal("parameters", *parameters)
    for name in ("provisioner", "reclaimPolicy", "volumeBindingMode"):
        yield from unless_equal(name, new.get(name), old.get(name))


def _ordered(entries: dict[str, str] | None) -> dict[str, str] | None:
    """As Go shows a map."""
    return None if entries is None else dict(sorted(entries.items()))
