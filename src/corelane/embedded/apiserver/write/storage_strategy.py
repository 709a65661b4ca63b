"""Preparation of claims and persistent volumes (`pkg/registry/core/persistentvolume*/strategy.go`)."""

from corelane.embedded.apiserver.stored_objects import Object

_FINALIZERS = {
    "persistentvolumeclaims": "kubernetes.io/pvc-protection",
    "persistentvolumes": "kubernetes.io/pv-protection",
}
_SOURCES = {("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot")}


def create_claim(claim: Object) -> None:
    """Make a claim Pending, and say twice where its data is from."""
    claim["status"] = {"phase": "Pending"}
    _align_data_sources(claim["spec"], None)


def update_claim(claim: Object, old: Object) -> None:
    """Keep the status, and say twice where the data is from."""
    claim["status"] = old["status"]
    _align_data_sources(claim["spec"], old["spec"])


def _align_data_sources(spec: Object, old: Object | None) -> None:
    """KEP-1495: the two fields have the same contents; of the older one only two kinds count."""
    if "dataSourceRef" not in (old or {}):
        _drop_other_namespace(spec)
    in_use = old is not None and ("dataSource" in old or "dataSourceRef" in old)
    if not in_use and "dataSourceRef" not in spec and not _is_legacy_source(spec.get("dataSource")):
        spec.pop("dataSource", None)
    for name, other in (("dataSource", "dataSourceRef"), ("dataSourceRef", "dataSource")):
        if name in spec and other not in spec:
            spec[other] = dict(spec[name])


def _drop_other_namespace(spec: Object) -> None:
    """A claim's data comes from its own namespace: the feature CrossNamespaceVolumeDataSource is off."""
    if spec.get("dataSourceRef", {}).get("namespace"):
        del spec["dataSourceRef"]


def _is_legacy_source(source: Object | None) -> bool:
    return source is not None and (source.get("apiGroup") or "", source.get("kind", "")) in _SOURCES


def create_volume(volume: Object) -> None:
    """Make a volume Pending, from the time of its creation on."""
    since = volume["metadata"].get("creationTimestamp")
    volume["status"] = {"phase": "Pending", "lastPhaseTransitionTime": since}


def stamp_phase(status: Object, old: Object, now: str) -> None:
    """Set when the phase changed, unless the client does."""
    name = "lastPhaseTransitionTime"
    same = status.get("phase") == old.get("phase")
    if same and name not in status and name in old:
        status[name] = old[name]
    if not same and status.get(name) in {None, old.get(name)}:
        status[name] = now


def protect(resource: str, meta: Object) -> None:
    """Add the finalizer that keeps what is in use (admission plugin StorageObjectInUseProtection)."""
    finalizer = _FINALIZERS.get(resource)
    if finalizer and finalizer not in meta.get("finalizers", ()):
        meta["finalizers"] = [*meta.get("finalizers", ()), finalizer]
