"""Rules on volumes, their sources, and how the containers of the pod use them."""

from collections.abc import Iterable, Iterator

from corelane import names, quantity
from corelane.embedded.apiserver import formats
from corelane.embedded.apiserver.go_quoting import quoted
from corelane.embedded.apiserver.schema import volume_sources as tables
from corelane.embedded.apiserver.schema.notation import ObjectType
from corelane.embedded.apiserver.status_errors import StatusCause
from corelane.embedded.apiserver.validation import causes
from corelane.embedded.apiserver.validation.causes import above, child, item
from corelane.embedded.apiserver.validation.environment_rules import field_ref, resource_ref
from corelane.embedded.apiserver.validation.table_rules import Object, Scope, check_field, rule, walk

# Upstream looks at the sources in this order: the first one counts, each further one is a fault.
_CHECK_ORDER = (
    "emptyDir hostPath gitRepo gcePersistentDisk awsElasticBlockStore secret nfs iscsi glusterfs flocker "
    "persistentVolumeClaim rbd cinder cephfs quobyte downwardAPI fc flexVolume configMap azureFile "
    "vsphereVolume photonPersistentDisk portworxVolume azureDisk storageos projected scaleIO csi "
    "ephemeral image"
)
SOURCES = _CHECK_ORDER.split()
_SHOWN_AS = {"gcePersistentDisk": "persistentDisk"}
_FILE_PATHS = (
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
)
_CONFLICT = "conflicting duplicate paths"


@rule("volume-source")
def _volume_source(volume: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    given = [name for name in SOURCES if name in volume]
    for index, name in enumerate(given):
        if index:
            yield causes.forbidden(child(path, name), "may not specify more than 1 volume type")
            continue
        shape = tables.VOLUME.fields[name].shape
        assert isinstance(shape, ObjectType)
        yield from walk(shape, volume[name], child(path, _SHOWN_AS.get(name, name)), scope)
    if not given:
        yield causes.required(path, "must specify a volume type")
    limit = volume.get("emptyDir", {}).get("sizeLimit", "0")
    if quantity.parse(limit).nano < 0:
        where = child(path, "emptyDir", "sizeLimit")
        yield causes.forbidden(where, "SizeLimit field must be a valid resource quantity")


@rule("host-path")
def _host_path(source: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    """Without a path its type is not looked at."""
    for name in ("path", "type") if source.get("path") else ("path",):
        yield from check_field(tables.HOST_PATH.fields[name], source, path, scope)


@rule("volumes")
def _volumes(spec: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    """Also finds out which volumes containers may use: those without a fault."""
    for index, volume in enumerate(spec.get("volumes", ())):
        where, name = item(child(path, "volumes"), index), volume.get("name", "")
        found = [*walk(tables.VOLUME, volume, where, scope), *_made_claim(volume, where, scope)]
        if not name:
            found.append(causes.required(child(where, "name")))
        else:
            found += causes.all_invalid(child(where, "name"), name, names.dns_label(name))
        if name in scope.volumes:
            found.append(causes.duplicate(child(where, "name"), name))
        if not found:
            scope.volumes[name] = volume
        yield from found
        yield from _own_claim(volume, where, scope)


def _made_claim(volume: Object, path: str, scope: Scope) -> list[StatusCause]:
    """Check the name of the claim that is made for the volume."""
    pod, name = scope.root["metadata"].get("name", ""), volume.get("name", "")
    if _source(volume) != "ephemeral" or not pod or not name:
        return []
    made = f"{pod}-{name}"
    faults = [f"PVC name {quoted(made)}: {fault}" for fault in names.dns_subdomain(made)]
    return causes.all_invalid(child(path, "name"), name, faults)


def _source(volume: Object) -> str:
    return next((name for name in SOURCES if name in volume), "")


def _own_claim(volume: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    pod, claim = scope.root["metadata"].get("name", ""), volume.get("persistentVolumeClaim", {})
    name = claim.get("claimName", "")
    made = {f"{pod}-{one.get('name', '')}" for one in scope.spec["volumes"] if "ephemeral" in one}
    if pod and name in made:
        why = "must not reference a PVC that gets created for an ephemeral volume"
        yield causes.invalid(child(path, "persistentVolumeClaim", "claimName"), name, why)


@rule("downward-items")
def _downward_items(source: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    """Upstream's faults here name the source, not the item."""
    for file in source.get("items", ()):
        yield from walk(tables.DOWNWARD_API_VOLUME_FILE, file, path, scope)


@rule("downward-source")
def _downward_source(file: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    if "fieldRef" in file:
        yield from field_ref(file["fieldRef"], child(path, "fieldRef"), _FILE_PATHS)
        if "resourceFieldRef" in file:
            why = "fieldRef and resourceFieldRef can not be specified simultaneously"
            yield causes.invalid(path, "resource", why)
    elif "resourceFieldRef" in file:
        yield from resource_ref(file["resourceFieldRef"], child(path, "resourceFieldRef"), volume=True)
    else:
        yield causes.required(path, "one of fieldRef and resourceFieldRef is required")


@rule("projections")
def _projections(source: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    paths: set[str] = set()
    for index, projection in enumerate(source.get("sources") or ()):
        where = item(child(path, "sources"), index)
        for name in ("secret", "configMap"):
            if name in projection:
                yield from _projected_keys(projection[name], path, child(where, name), scope, paths)
        if "downwardAPI" in projection:
            yield from _projected_files(
                projection["downwardAPI"], path, child(where, "downwardAPI"), scope, paths
            )
        if "serviceAccountToken" in projection:
            yield from _token(projection["serviceAccountToken"], path, child(where, "serviceAccountToken"))
        if len(projection) > 1:
            yield causes.forbidden(where, "may not specify more than 1 volume type per source")


def _projected_keys(
    source: Object, path: str, where: str, scope: Scope, paths: set[str]
) -> Iterator[StatusCause]:
    name = source.get("name", "")
    if not name:
        yield causes.required(child(where, "name"))
    for index, entry in enumerate(source.get("items", ())):
        yield from walk(tables.KEY_TO_PATH, entry, item(child(where, "items"), index), scope)
        yield from _taken(entry.get("path", ""), name, path, paths)


def _projected_files(
    source: Object, path: str, where: str, scope: Scope, paths: set[str]
) -> Iterator[StatusCause]:
    for file in source.get("items", ()):
        yield from walk(tables.DOWNWARD_API_VOLUME_FILE, file, where, scope)
        yield from _taken(file.get("path", ""), file.get("path", ""), path, paths)


def _taken(target: str, shown: str, path: str, paths: set[str]) -> Iterator[StatusCause]:
    if target and target in paths:
        yield causes.invalid(path, shown, _CONFLICT)
    paths.add(target)


def _token(source: Object, path: str, where: str) -> Iterator[StatusCause]:
    seconds, target = source.get("expirationSeconds", 0), source.get("path", "")
    if seconds < 600:
        why = "may not specify a duration less than 10 minutes"
        yield causes.invalid(child(where, "expirationSeconds"), seconds, why)
    if seconds > 1 << 32:
        why = "may not specify a duration larger than 2^32 seconds"
        yield causes.invalid(child(where, "expirationSeconds"), seconds, why)
    if not target:
        yield causes.required(child(path, "path"))
    else:
        yield from causes.all_invalid(child(path, "path"), target, formats.local_path(target))


# --- how containers use the volumes of their pod


@rule("volume-mounts")
def _volume_mounts(container: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    path = child(path, "volumeMounts")
    points: set[str] = set()
    devices = _paths_by_name(container.get("volumeDevices", ()), "devicePath")
    for index, mount in enumerate(container.get("volumeMounts", ())):
        where, name, point = item(path, index), mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            yield causes.required(child(where, "name"))
        if name not in scope.volumes:
            yield causes.not_found(child(where, "name"), name)
        if not point:
            yield causes.required(child(where, "mountPath"))
        if point in points:
            yield causes.invalid(child(where, "mountPath"), point, "must be unique")
        points.add(point)
        if name in devices:
            yield causes.invalid(child(where, "name"), name, "must not already exist in volumeDevices")
        if point in devices.values():
            why = "must not already exist as a path in volumeDevices"
            yield causes.invalid(child(where, "mountPath"), point, why)
        yield from _mount_options(mount, where, container)


def _paths_by_name(used: Iterable[Object], path: str) -> dict[str, str]:
    """Return the path of each volume in the container; of a volume that is used twice, the last."""
    return {one.get("name", ""): one.get(path, "") for one in used}


@rule("volume-devices")
def _volume_devices(container: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    """Check block devices (`ValidateVolumeDevices`): only claims have them."""
    mounts = _paths_by_name(container.get("volumeMounts", ()), "mountPath")
    names: set[str] = set()
    paths: set[str] = set()
    for index, device in enumerate(container.get("volumeDevices", ())):
        where = item(child(path, "volumeDevices"), index)
        name, target = device.get("name", ""), device.get("devicePath", "")
        yield from _device_name(name, child(where, "name"), names, scope)
        yield from _device_path(target, child(where, "devicePath"), paths)
        if name in mounts:
            yield causes.invalid(child(where, "name"), name, "must not already exist in volumeMounts")
        if target in mounts.values():
            why = "must not already exist as a path in volumeMounts"
            yield causes.invalid(child(where, "devicePath"), target, why)


def _device_name(name: str, path: str, names: set[str], scope: Scope) -> Iterator[StatusCause]:
    volume = scope.volumes.get(name)
    if not name:
        yield causes.required(path)
    if name and name in names:
        yield causes.invalid(path, name, "must be unique")
    names.add(name)
    if volume is None:
        yield causes.not_found(path, name)
    elif "persistentVolumeClaim" not in volume and "ephemeral" not in volume:
        why = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
        yield causes.invalid(path, name, why)


def _device_path(target: str, path: str, paths: set[str]) -> Iterator[StatusCause]:
    if not target:
        yield causes.required(path)
    if target in paths:
        yield causes.invalid(path, target, "must be unique")
    if ".." in target.split("/"):
        yield causes.invalid(path, target, "can not contain backsteps ('..')")
    else:
        paths.add(target)


def _mount_options(mount: Object, path: str, container: Object) -> Iterator[StatusCause]:
    """Upstream's faults here name the list, not the mount."""
    listed, sub, expression = above(path), mount.get("subPath", ""), mount.get("subPathExpr", "")
    if sub:
        yield from causes.all_invalid(child(listed, "subPath"), sub, formats.relative_path(sub))
    if expression:
        if sub:
            where = child(path, "subPathExpr")
            yield causes.invalid(where, expression, "subPathExpr and subPath are mutually exclusive")
        where = child(listed, "subPathExpr")
        yield from causes.all_invalid(where, expression, formats.relative_path(expression))
    yield from _propagation(mount, child(listed, "mountPropagation"), container)
    yield from _recursive_read_only(mount, child(listed, "recursiveReadOnly"))


def _propagation(mount: Object, path: str, container: Object) -> Iterator[StatusCause]:
    mode, modes = mount.get("mountPropagation"), ("Bidirectional", "HostToContainer", "None")
    if mode is None:
        return
    if mode not in modes:
        yield causes.not_supported(path, mode, modes)
    if mode == "Bidirectional" and not container.get("securityContext", {}).get("privileged"):
        why = "Bidirectional mount propagation is available only to privileged containers"
        yield causes.forbidden(path, why)


def _recursive_read_only(mount: Object, path: str) -> Iterator[StatusCause]:
    mode, modes = mount.get("recursiveReadOnly"), ("Disabled", "Enabled", "IfPossible")
    if mode in {None, "Disabled"}:
        return
    if mode not in modes:
        yield causes.not_supported(path, mode, modes)
        return
    if not mount.get("readOnly"):
        yield causes.forbidden(path, "may only be specified when readOnly is true")
    if mount.get("mountPropagation", "None") != "None":
        why = "may only be specified when mountPropagation is None or not specified"
        yield causes.forbidden(path, why)
