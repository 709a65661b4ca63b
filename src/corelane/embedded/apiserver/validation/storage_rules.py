"""Rules on claims, persistent volumes and storage classes (`pkg/apis/core` and `storage`, validation)."""

import posixpath
from collections.abc import Iterable, Iterator

from corelane import names, quantity
from corelane.embedded.apiserver.schema import storage_kinds as tables
from corelane.embedded.apiserver.schema.notation import CORE, TYPES, ObjectType
from corelane.embedded.apiserver.status_errors import StatusCause
from corelane.embedded.apiserver.validation import causes
from corelane.embedded.apiserver.validation.causes import child, item, key
from corelane.embedded.apiserver.validation.table_rules import Object, Scope, rule, walk

_SINGLE_POD = "ReadWriteOncePod"
_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", _SINGLE_POD)
_RECLAIM = ("Delete", "Recycle", "Retain")
_VOLUME_MODES = ("Block", "Filesystem")
_BINDING = ("Immediate", "WaitForFirstConsumer")
_CHECK_ORDER = (
    "hostPath gcePersistentDisk awsElasticBlockStore glusterfs flocker nfs rbd quobyte cephfs iscsi cinder "
    "fc flexVolume azureFile vsphereVolume photonPersistentDisk portworxVolume azureDisk scaleIO local "
    "storageos csi"
)
_SHOWN_AS = {"gcePersistentDisk": "persistentDisk"}
_FORBIDDEN_AS = {"cephfs": "cephFS"}
_MOUNTABLE = (
    "gcePersistentDisk awsElasticBlockStore glusterfs nfs rbd quobyte iscsi cinder cephfs azureFile "
    "vsphereVolume azureDisk photonPersistentDisk"
)
_MOUNT_OPTIONS = "volume.beta.kubernetes.io/mount-options"
_CSI_SECRETS = (
    "controllerPublishSecretRef",
    "controllerExpandSecretRef",
    "nodePublishSecretRef",
    "nodeExpandSecretRef",
)
_LONGEST_DRIVER = 63
_MOST_PARAMETERS = 512
_LARGEST_PARAMETERS = 256 * 1024
_NODE_SELECTOR = TYPES[f"{CORE}NodeSelector"]


def _access_modes(modes: Iterable[str], path: str) -> Iterator[StatusCause]:
    for mode in modes:
        if mode not in _MODES:
            yield causes.not_supported(path, mode, _MODES)
    known = {mode for mode in modes if mode in _MODES}
    if _SINGLE_POD in known and known != {_SINGLE_POD}:
        yield causes.forbidden(path, f"may not use {_SINGLE_POD} with other access modes")


def _class_name(name: str, path: str) -> list[StatusCause]:
    return causes.all_invalid(path, name, names.dns_subdomain(name)) if name else []


def _volume_mode(spec: Object, path: str) -> Iterator[StatusCause]:
    mode = spec.get("volumeMode")
    if mode is not None and mode not in _VOLUME_MODES:
        yield causes.not_supported(child(path, "volumeMode"), mode, _VOLUME_MODES)


# --- claims


@rule("claim-modes-given")
def _claim_modes_given(spec: Object, path: str, _scope: Scope) -> list[StatusCause]:
    if spec.get("accessModes"):
        return []
    return [causes.required(child(path, "accessModes"), "at least 1 access mode is required")]


@rule("claim-spec")
def _claim_spec(spec: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    """Upstream: `ValidatePersistentVolumeClaimSpec`, from the access modes on."""
    yield from _access_modes(spec.get("accessModes", ()), child(path, "accessModes"))
    where = key(child(path, "resources"), "storage")
    size = spec.get("resources", {}).get("requests", {}).get("storage")
    if size is None:
        yield causes.required(where)
    elif quantity.parse(size).nano <= 0:
        yield causes.invalid(where, size, "must be greater than zero")
    yield from _class_name(spec.get("storageClassName", ""), child(path, "storageClassName"))
    yield from _volume_mode(spec, path)
    for name in ("dataSource", "dataSourceRef"):
        if name in spec:
            yield from _data_source(spec[name], child(path, name), scope)
    yield from _both_sources(spec, path)
    attributes = child(path, "volumeAttributesClassName")
    yield from _class_name(spec.get("volumeAttributesClassName", ""), attributes)


def _both_sources(spec: Object, path: str) -> Iterator[StatusCause]:
    """Upstream shows an empty object in place of the source."""
    if "dataSource" not in spec or "dataSourceRef" not in spec:
        return
    if spec["dataSourceRef"].get("namespace"):
        yield causes.invalid(path, {}, "may not be specified when dataSourceRef.namespace is specified")
    elif spec["dataSource"] != spec["dataSourceRef"]:
        yield causes.invalid(path, {}, "must match dataSourceRef")


def _data_source(source: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    """A claim that had an API group before, however wrong, may keep one."""
    for name in ("name", "kind"):
        if not source.get(name):
            yield causes.required(child(path, name))
    group, kind = source.get("apiGroup") or "", source.get("kind", "")
    if not group and kind != "PersistentVolumeClaim":
        why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        yield causes.invalid(path, kind, why)
    before = (scope.old or {}).get("spec", {})
    if group and not any(before.get(name, {}).get("apiGroup") for name in ("dataSource", "dataSourceRef")):
        yield from causes.all_invalid(child(path, "apiGroup"), group, names.dns_subdomain(group))
    namespace = source.get("namespace", "")
    if namespace:
        yield from causes.all_invalid(child(path, "namespace"), namespace, names.dns_label(namespace))


# --- persistent volumes


@rule("volume-spec")
def _volume_spec(spec: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    """Upstream: `ValidatePersistentVolumeSpec`."""
    modes = child(path, "accessModes")
    if not spec.get("accessModes"):
        yield causes.required(modes)
    yield from _access_modes(spec.get("accessModes", ()), modes)
    yield from _capacity(spec.get("capacity", {}), child(path, "capacity"))
    policy = spec.get("persistentVolumeReclaimPolicy", "")
    where = child(path, "persistentVolumeReclaimPolicy")
    if policy and policy not in _RECLAIM:
        yield causes.not_supported(where, policy, _RECLAIM)
    yield from _node_affinity(spec.get("nodeAffinity"), child(path, "nodeAffinity"), scope)
    yield from _sources(spec, path, scope)
    if policy == "Recycle" and _is_root(spec.get("hostPath", {}).get("path", "")):
        yield causes.forbidden(where, "may not be 'recycle' for a hostPath mount of '/'")
    yield from _class_name(spec.get("storageClassName", ""), child(path, "storageClassName"))
    yield from _volume_mode(spec, path)
    yield from _attributes_class(spec, path)


def _is_root(path: str) -> bool:
    return bool(path) and posixpath.normpath(f"//{path}" if path.startswith("/") else path) in {"/", "//"}


def _capacity(capacity: dict[str, str], path: str) -> Iterator[StatusCause]:
    if not capacity:
        yield causes.required(path)
    if set(capacity) != {"storage"}:
        yield causes.not_supported(path, dict(sorted(capacity.items())) or None, ("storage",))
    for name in sorted(capacity):
        amount = quantity.parse(capacity[name])
        if amount.value < 0:
            yield causes.invalid(key(path, name), amount.value, "must be a valid resource quantity")
        if amount.nano <= 0:
            yield causes.invalid(key(path, name), capacity[name], "must be greater than zero")


def _node_affinity(affinity: Object | None, path: str, scope: Scope) -> Iterator[StatusCause]:
    if affinity is None:
        return
    where = child(path, "required")
    if "required" in affinity:
        yield from walk(_NODE_SELECTOR, affinity["required"], where, scope)
    else:
        yield causes.required(where, "must specify required node constraints")


def _sources(spec: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    """The first source counts, each further one is a fault; upstream looks at them in this order."""
    given = [name for name in _CHECK_ORDER.split() if name in spec]
    for index, name in enumerate(given):
        if index and name != "flexVolume":
            why = "may not specify more than 1 volume type"
            yield causes.forbidden(child(path, _FORBIDDEN_AS.get(name, name)), why)
            continue
        shape = tables.VOLUME_SOURCE.fields[name].shape
        assert isinstance(shape, ObjectType)
        yield from walk(shape, spec[name], child(path, _SHOWN_AS.get(name, name)), scope)
        if name == "local" and "nodeAffinity" not in spec:
            yield causes.required(child(path, "nodeAffinity"), "Local volume requires node affinity")
    if not given:
        yield causes.required(path, "must specify a volume type")


def _attributes_class(spec: Object, path: str) -> Iterator[StatusCause]:
    name, where = spec.get("volumeAttributesClassName"), child(path, "volumeAttributesClassName")
    if name is None:
        return
    if not name:
        yield causes.required(where, "an empty string is disallowed")
    yield from _class_name(name, where)
    if "csi" not in spec:
        why = "has to be specified when using volumeAttributesClassName"
        yield causes.required(child(path, "csi"), why)


@rule("csi-driver")
def _csi_driver(source: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    driver, where = source.get("driver", ""), child(path, "driver")
    if not driver:
        yield causes.required(where)
        return
    if len(driver.encode()) > _LONGEST_DRIVER:
        yield causes.too_long(where, _LONGEST_DRIVER)
    yield from causes.all_invalid(where, driver, names.dns_subdomain(driver.lower()))


@rule("csi-secrets")
def _csi_secrets(source: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    for name in _CSI_SECRETS:
        if name in source:
            yield from _secret(source[name], child(path, name))


def _secret(reference: Object, path: str) -> Iterator[StatusCause]:
    for name, check in (("name", names.dns_subdomain), ("namespace", names.dns_label)):
        value, where = reference.get(name, ""), child(path, name)
        if value:
            yield from causes.all_invalid(where, value, check(value))
        else:
            yield causes.required(where)


@rule("mount-options")
def _mount_options(volume: Object, _path: str, _scope: Scope) -> Iterator[StatusCause]:
    spec, annotations = volume.get("spec", {}), volume["metadata"].get("annotations", {})
    if _MOUNT_OPTIONS in annotations and not any(name in spec for name in _MOUNTABLE.split()):
        where = child("metadata.annotations", _MOUNT_OPTIONS)
        yield causes.forbidden(where, "may not specify mount options for this volume type")


# --- storage classes


@rule("storage-class")
def _storage_class(obj: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    """Upstream: `ValidateStorageClass`, but for the metadata."""
    provisioner = obj.get("provisioner", "")
    if provisioner:
        faults = names.qualified_name(provisioner.lower())
        yield from causes.all_invalid("provisioner", provisioner.lower(), faults)
    else:
        yield causes.required("provisioner")
    yield from _parameters(obj.get("parameters", {}))
    policy, mode = obj.get("reclaimPolicy"), obj.get("volumeBindingMode")
    if policy and policy not in {"Delete", "Retain"}:
        yield causes.not_supported("reclaimPolicy", policy, ("Delete", "Retain"))
    if mode is not None and mode not in _BINDING:
        yield causes.not_supported("volumeBindingMode", mode, _BINDING)
    yield from _topologies(obj.get("allowedTopologies", ()))


def _parameters(parameters: dict[str, str]) -> Iterator[StatusCause]:
    if len(parameters) > _MOST_PARAMETERS:
        yield causes.too_long("parameters", _MOST_PARAMETERS)
        return
    if "" in parameters:
        yield causes.invalid("parameters", "", "field can not be empty.")
    if sum(len(f"{name}{text}".encode()) for name, text in parameters.items()) > _LARGEST_PARAMETERS:
        yield causes.too_long("parameters", _LARGEST_PARAMETERS)


def _topologies(terms: Iterable[Object]) -> Iterator[StatusCause]:
    # Upstream begins with as many terms without labels as there are terms: each one of these is a fault.
    terms = list(terms)
    seen: list[dict[str, set[str]]] = [{} for _ in terms]
    for index, term in enumerate(terms):
        where = child(item("allowedTopologies", index), "matchLabelExpressions")
        values: dict[str, set[str]] = {}
        for number, requirement in enumerate(term.get("matchLabelExpressions", ())):
            spot, name = item(where, number), requirement.get("key", "")
            yield from _topology_label(requirement, spot)
            if name in values:
                yield causes.duplicate(child(spot, "key"), name)
            values[name] = set(requirement.get("values") or ())
        for _ in range(seen.count(values)):
            yield causes.duplicate(where, "")
        seen.append(values)


def _topology_label(requirement: Object, path: str) -> Iterator[StatusCause]:
    values, where = requirement.get("values") or (), child(path, "values")
    if not values:
        yield causes.required(where)
    seen: set[str] = set()
    for index, value in enumerate(values):
        if value in seen:
            yield causes.duplicate(item(where, index), value)
        seen.add(value)
    name = requirement.get("key", "")
    yield from causes.all_invalid(child(path, "key"), name, names.qualified_name(name))
