"""The cells of disruption budgets, claims, persistent volumes and storage classes, but for their ages."""

from collections.abc import Iterable, Mapping
from typing import Any

from corelane.kube import keys

Object = Mapping[str, Any]

UNSET = "<unset>"
_DEFAULT_CLASS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _part(obj: Object, name: str) -> Object:
    found = obj.get(name)
    return found if isinstance(found, Mapping) else {}


def _annotations(obj: Object) -> Object:
    return _part(_part(obj, "metadata"), "annotations")


def _phase(obj: Object) -> str:
    if _part(obj, "metadata").get("deletionTimestamp"):
        return "Terminating"
    return str(_part(obj, "status").get("phase") or "")


def access_modes(modes: Iterable[str]) -> str:
    """Return access modes in the short form of kubectl: `RWO,ROX`."""
    given = set(modes)
    return ",".join(short for mode, short in _MODES.items() if mode in given)


def _class(obj: Object) -> str:
    spec = _part(obj, "spec")
    return str(_annotations(obj).get(keys.STORAGE_CLASS, spec.get("storageClassName") or ""))


def budget(obj: Object) -> list[Any]:
    """Name, minimum available, maximum unavailable, allowed disruptions."""
    spec = _part(obj, "spec")
    numbers = [str(spec.get(name, "N/A")) for name in ("minAvailable", "maxUnavailable")]
    allowed = _part(obj, "status").get("disruptionsAllowed") or 0
    return [_part(obj, "metadata").get("name"), *numbers, allowed]


def claim(obj: Object) -> tuple[list[Any], list[Any]]:
    """The cells before the age, and those after it."""
    spec, status = _part(obj, "spec"), _part(obj, "status")
    volume = spec.get("volumeName") or ""
    capacity = modes = ""
    if volume:
        capacity = str(_part(status, "capacity").get("storage", "0"))
        modes = access_modes(status.get("accessModes") or ())
    attributes = spec.get("volumeAttributesClassName", UNSET)
    before = [_part(obj, "metadata").get("name"), _phase(obj), volume, capacity, modes]
    return [*before, _class(obj), attributes], [spec.get("volumeMode", UNSET)]


def volume(obj: Object) -> tuple[list[Any], list[Any]]:
    """The cells before the age, and those after it."""
    spec = _part(obj, "spec")
    reference = spec.get("claimRef")
    owner = f"{reference.get('namespace', '')}/{reference.get('name', '')}" if reference else ""
    before = [
        _part(obj, "metadata").get("name"),
        str(_part(spec, "capacity").get("storage", "0")),
        access_modes(spec.get("accessModes") or ()),
        spec.get("persistentVolumeReclaimPolicy") or "",
        _phase(obj),
        owner,
        _class(obj),
        spec.get("volumeAttributesClassName", UNSET),
        _part(obj, "status").get("reason") or "",
    ]
    return before, [spec.get("volumeMode", UNSET)]


def storage_class(obj: Object) -> list[Any]:
    """Name, provisioner, reclaim policy, binding mode, whether volumes may grow."""
    default = any(_annotations(obj).get(name) == "true" for name in _DEFAULT_CLASS)
    name = _part(obj, "metadata").get("name")
    return [
        f"{name} (default)" if default else name,
        obj.get("provisioner") or "",
        obj.get("reclaimPolicy", "Delete"),
        obj.get("volumeBindingMode", "Immediate"),
        bool(obj.get("allowVolumeExpansion")),
    ]
