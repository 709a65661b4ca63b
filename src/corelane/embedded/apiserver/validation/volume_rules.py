"""Rules on the volumes of a pod, and on how its containers use them."""

from collections.abc import Iterator

from corelane.embedded.apiserver.schema.container_spec import VOLUME_DEVICE, VOLUME_MOUNT
from corelane.embedded.apiserver.schema.volume_sources import VOLUME
from corelane.embedded.apiserver.status_errors import StatusCause
from corelane.embedded.apiserver.validation import causes
from corelane.embedded.apiserver.validation.causes import child, item, shown
from corelane.embedded.apiserver.validation.table_rules import Object, Scope, rule, walk

SOURCES = tuple(name for name in VOLUME.fields if name != "name")
_NO_CLAIMS = (
    "this API server serves no PersistentVolumeClaims; use an emptyDir volume, or a cluster with storage"
)


@rule("volumes")
def _volumes(volumes: list[Object], path: str, scope: Scope) -> Iterator[StatusCause]:
    """Check volumes, and note those without a fault, which containers may use."""
    for index, volume in enumerate(volumes):
        where, name = item(path, index), volume.get("name", "")
        faults = list(walk(VOLUME, volume, where, scope))
        if name in scope.volumes:
            faults.append(causes.duplicate(child(where, "name"), name))
        if not faults:
            scope.volumes[name] = volume
        yield from faults


@rule("volume-source")
def _volume_source(volume: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    given = [name for name in SOURCES if name in volume]
    if not given:
        yield causes.required(path, "must specify a volume type")
    for name in given[1:]:
        yield causes.forbidden(child(path, name), "may not specify more than 1 volume type")
    if scope.old is None:
        yield from _claim(volume, path)


def _claim(volume: Object, path: str) -> Iterator[StatusCause]:
    """Refuse claims in new pods; pods stored by versions that served claims stay as they are."""
    if "persistentVolumeClaim" in volume:
        name = volume["persistentVolumeClaim"].get("claimName", "")
        text = f"claim {shown(name)} is unavailable: {_NO_CLAIMS}"
        yield causes.forbidden(child(path, "persistentVolumeClaim"), text)
    if "ephemeral" in volume:
        yield causes.forbidden(child(path, "ephemeral"), f"no claim is created for the volume: {_NO_CLAIMS}")


@rule("volume-mounts")
def _volume_mounts(container: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    points: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts", ())):
        where, point = item(child(path, "volumeMounts"), index), mount.get("mountPath", "")
        yield from walk(VOLUME_MOUNT, mount, where, scope)
        yield from _volume_exists(mount, where, scope)
        if point in points:
            yield causes.invalid(child(where, "mountPath"), point, "must be unique")
        points.add(point)


@rule("volume-devices")
def _volume_devices(container: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    """Check block devices: only claims have them."""
    for index, device in enumerate(container.get("volumeDevices", ())):
        where, name = item(child(path, "volumeDevices"), index), device.get("name", "")
        yield from walk(VOLUME_DEVICE, device, where, scope)
        yield from _volume_exists(device, where, scope)
        if name in scope.volumes and scope.old is None:
            yield causes.invalid(
                child(where, "name"), name, f"the volume is not a block device: {_NO_CLAIMS}"
            )


def _volume_exists(use: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    name = use.get("name", "")
    if name not in scope.volumes:
        yield causes.not_found(child(path, "name"), name)
