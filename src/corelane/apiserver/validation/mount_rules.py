"""Rules on how containers use the volumes of their pod."""

from collections.abc import Iterator

from corelane.apiserver.status_errors import Cause
from corelane.apiserver.validation import causes, formats
from corelane.apiserver.validation.causes import above, child, item
from corelane.apiserver.validation.table_rules import Object, Scope, rule


@rule("volume-mounts")
def _volume_mounts(container: Object, path: str, scope: Scope) -> Iterator[Cause]:
    path = child(path, "volumeMounts")
    devices = {one.get("name", ""): one.get("devicePath", "") for one in container.get("volumeDevices", ())}
    points: set[str] = set()
    taken = set(devices.values())
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
        if point in taken:
            why = "must not already exist as a path in volumeDevices"
            yield causes.invalid(child(where, "mountPath"), point, why)
        yield from _mount_options(mount, where, container)


def _mount_options(mount: Object, path: str, container: Object) -> Iterator[Cause]:
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


def _propagation(mount: Object, path: str, container: Object) -> Iterator[Cause]:
    mode, modes = mount.get("mountPropagation"), ("Bidirectional", "HostToContainer", "None")
    if mode is None:
        return
    if mode not in modes:
        yield causes.not_supported(path, mode, modes)
    if mode == "Bidirectional" and not container.get("securityContext", {}).get("privileged"):
        why = "Bidirectional mount propagation is available only to privileged containers"
        yield causes.forbidden(path, why)


def _recursive_read_only(mount: Object, path: str) -> Iterator[Cause]:
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


@rule("volume-devices")
def _volume_devices(container: Object, path: str, scope: Scope) -> Iterator[Cause]:
    path = child(path, "volumeDevices")
    mounts = {one.get("name", ""): one.get("mountPath", "") for one in container.get("volumeMounts", ())}
    names: set[str] = set()
    points: set[str] = set()
    taken = set(mounts.values())
    for index, device in enumerate(container.get("volumeDevices", ())):
        where, name, point = item(path, index), device.get("name", ""), device.get("devicePath", "")
        yield from _device_name(name, child(where, "name"), scope, names)
        yield from _device_path(point, child(where, "devicePath"), points)
        if name in mounts:
            yield causes.invalid(child(where, "name"), name, "must not already exist in volumeMounts")
        if point in taken:
            why = "must not already exist as a path in volumeMounts"
            yield causes.invalid(child(where, "devicePath"), point, why)
        names.add(name)


def _device_name(name: str, path: str, scope: Scope, names: set[str]) -> Iterator[Cause]:
    volume = scope.volumes.get(name)
    if not name:
        yield causes.required(path)
    elif name in names:
        yield causes.invalid(path, name, "must be unique")
    if volume is None:
        yield causes.not_found(path, name)
    elif not {"persistentVolumeClaim", "ephemeral"} & volume.keys():
        kinds = "PersistentVolumeClaim or Ephemeral"
        yield causes.invalid(path, name, f"can only use volume source type of {kinds} for block mode")


def _device_path(point: str, path: str, points: set[str]) -> Iterator[Cause]:
    if not point:
        yield causes.required(path)
    if point in points:
        yield causes.invalid(path, point, "must be unique")
    if formats.no_backsteps(point):
        yield causes.invalid(path, point, "can not contain backsteps ('..')")
    else:
        points.add(point)
