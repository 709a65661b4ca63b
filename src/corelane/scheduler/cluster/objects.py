"""Objects beside nodes and pods that decide where a pod can run, what bindings take of them, and images."""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from corelane.kube.objects import ContainerImage, Namespace, Service
from corelane.kube.pod import Pod
from corelane.kube.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from corelane.kube.volumes import class_of
from corelane.reasons import Code, Reason
from corelane.scheduler.cluster.volumes import Capacity, Key, VolumeUses

_DENSE_FROM: Final = 64
_NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})
T = TypeVar("T")


class ClusterObjects:
    """Namespaces, services and what is about volumes, by name."""

    def __init__(self) -> None:
        self.namespaces: dict[str, Namespace] = {}
        self.claims: dict[Key, PersistentVolumeClaim] = {}
        self.volumes: dict[str, PersistentVolume] = {}
        self.classes: dict[str, StorageClass] = {}
        self.csi_nodes: dict[str, CSINode] = {}
        self.csi_drivers: dict[str, CSIDriver] = {}
        self.uses = VolumeUses(self)
        """Volumes of CSI drivers on nodes, and how many each node can have."""
        self.services: dict[Key, Service] = {}
        self._services_by_pair: dict[tuple[str, tuple[str, str]], dict[str, Service]] = {}
        """By namespace and one label of the selector."""
        self.unwatched: dict[str, str] = {}
        """Kinds of volumes that cannot be watched, by plural name, and why."""
        self.taken_volumes: dict[str, tuple[Key, str]] = {}
        """Volumes that a binding under way binds to a claim, with the version of the volume it has seen."""
        self.provisioned_claims: dict[Key, tuple[str, str]] = {}
        """Claims for which a binding under way has a volume made for a node, with the claim's version."""
        self._volumes_of_class: dict[str, dict[str, PersistentVolume]] = {}
        self._claims_of_volume: dict[str, set[Key]] = {}
        self._capacities_of_class: dict[str, dict[Key, Capacity]] = {}
        self._class_of_capacity: dict[Key, str] = {}

    def not_watched(self, *more: str) -> Reason | None:
        """Return why pods with claims cannot be judged; None if everything needed, and `more`, is watched."""
        for plural in ("persistentvolumeclaims", "persistentvolumes", "storageclasses", *more):
            if error := self.unwatched.get(plural):
                return Reason(Code.VOLUMES_NOT_WATCHED, (plural, error))
        return None

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        namespace = self.namespaces.get(name)
        return namespace.metadata.labels if namespace else _NO_LABELS

    def put_namespace(self, name: str, new: Namespace | None) -> bool:
        """Replace or remove; return whether labels, or whether it exists, changed."""
        old = self.namespaces.get(name)
        _put(self.namespaces, name, new)
        return (old and old.metadata.labels) != (new and new.metadata.labels)

    def put_claim(self, key: Key, new: PersistentVolumeClaim | None) -> None:
        provisioned = self.provisioned_claims.get(key)
        if provisioned and (new is None or new.metadata.resource_version != provisioned[1]):
            del self.provisioned_claims[key]
        old = self.claims.pop(key, None)
        if old is not None and old.spec.volume_name:
            self._claims_of_volume[old.spec.volume_name].discard(key)
        if new is not None:
            self.claims[key] = new
            if new.spec.volume_name:
                self._claims_of_volume.setdefault(new.spec.volume_name, set()).add(key)
        self.uses.claim_changed(key)

    def put_volume(self, name: str, new: PersistentVolume | None) -> None:
        taken = self.taken_volumes.get(name)
        if taken and (new is None or new.metadata.resource_version != taken[1]):
            del self.taken_volumes[name]
        if old := self.volumes.pop(name, None):
            self._volumes_of_class[class_of(old)].pop(name)
        if new is not None:
            self.volumes[name] = new
            self._volumes_of_class.setdefault(class_of(new), {})[name] = new
        claims = self._claims_of_volume.get(name, set())
        self.uses.volume_changed(name, claims)
        if new is None and not claims:
            self._claims_of_volume.pop(name, None)

    def put_class(self, name: str, new: StorageClass | None) -> None:
        _put(self.classes, name, new)
        self.uses.class_changed(name)

    def put_csi_node(self, name: str, new: CSINode | None) -> None:
        old = self.csi_nodes.get(name)
        _put(self.csi_nodes, name, new)
        self.uses.csi_node_changed(name, old, new)

    def put_csi_driver(self, name: str, new: CSIDriver | None) -> None:
        _put(self.csi_drivers, name, new)

    def put_capacity(self, key: Key, new: CSIStorageCapacity | None) -> None:
        old = self._class_of_capacity.pop(key, None)
        if old is not None:
            del self._capacities_of_class[old][key]
        if new is not None:
            self._class_of_capacity[key] = new.storage_class_name
            self._capacities_of_class.setdefault(new.storage_class_name, {})[key] = Capacity.of(new)

    def put_attachment(self, name: str, new: VolumeAttachment | None) -> None:
        self.uses.attachment_changed(name, new)

    def put_service(self, key: Key, new: Service | None) -> bool:
        """Replace or remove; return whether other pods are selected. Without a selector none are."""
        old = self.services.pop(key, None)
        if old is not None and old.spec.selector:
            del self._services_by_pair[key[0], min(old.spec.selector.items())][key[1]]
        if new is not None:
            self.services[key] = new
            if new.spec.selector:
                pair = key[0], min(new.spec.selector.items())
                self._services_by_pair.setdefault(pair, {})[key[1]] = new
        return (old.spec.selector if old else {}) != (new.spec.selector if new else {})

    # What bindings under way take; a newer version of the object says more, and ends it.

    def take(self, volume: PersistentVolume, claim: PersistentVolumeClaim) -> None:
        """Have a volume count as bound to a claim."""
        self.taken_volumes[volume.metadata.name] = claim.key, volume.metadata.resource_version

    def provision(self, claim: PersistentVolumeClaim, node: str) -> None:
        """Have a volume count as being made for the claim, on a node."""
        self.provisioned_claims[claim.key] = node, claim.metadata.resource_version

    def release(self, claims: Iterable[Key]) -> None:
        """End what a binding has taken for these claims."""
        keys = set(claims)
        for key in keys:
            self.provisioned_claims.pop(key, None)
        for name in [name for name, (key, _) in self.taken_volumes.items() if key in keys]:
            del self.taken_volumes[name]

    def taken_by(self, volume: PersistentVolume) -> Key | None:
        """Return the claim to which a binding under way binds the volume."""
        taken = self.taken_volumes.get(volume.metadata.name)
        return taken[0] if taken else None

    def provisioned_node(self, claim: PersistentVolumeClaim) -> str | None:
        """Return the node for which a binding under way has the claim's volume made."""
        provisioned = self.provisioned_claims.get(claim.key)
        return provisioned[0] if provisioned else None

    def volumes_of_class(self, name: str) -> Mapping[str, PersistentVolume]:
        return self._volumes_of_class.get(name, {})

    def capacities_of_class(self, name: str) -> Iterable[Capacity]:
        """Return what drivers publish about free storage of a class."""
        return self._capacities_of_class.get(name, {}).values()

    def services_of(self, pod: Pod) -> list[Service]:
        """Return the services that select the pod."""
        namespace, labels = pod.metadata.namespace, pod.metadata.labels
        return [
            service
            for pair in labels.items()
            for service in self._services_by_pair.get((namespace, pair), {}).values()
            if service.spec.selector.items() <= labels.items()
        ]


def _put(objects: dict[str, T], name: str, new: T | None) -> None:
    """Replace an object, or remove it."""
    if new is None:
        objects.pop(name, None)
    else:
        objects[name] = new


class _Holders:
    """The nodes that list an image under the same names: sizes in bytes by row."""

    __slots__ = ("count", "few", "many")

    def __init__(self) -> None:
        self.count = 0
        self.few: dict[int, int] = {}
        self.many: NDArray[np.float64] | None = None

    def put(self, row: int, size: int) -> None:
        """Set the size on a node that did not list the image before."""
        self.count += 1
        if self.many is None and len(self.few) < _DENSE_FROM:
            self.few[row] = size
            return
        self.many = self.dense(row + 1)
        self.many[row] = size
        self.few = {}

    def drop(self, row: int) -> None:
        self.count -= 1
        if self.many is None:
            self.few.pop(row, None)
        else:
            self.many[row] = 0

    def dense(self, rows: int) -> NDArray[np.float64]:
        """Return sizes for at least that many rows, 0 where the image is absent."""
        if self.many is not None and len(self.many) >= rows:
            return self.many
        dense = np.zeros(max(rows, max(self.few, default=0) + 1))
        if self.many is not None:
            dense = np.zeros(2 * rows)
            dense[: len(self.many)] = self.many
        for row, size in self.few.items():
            dense[row] = size
        return dense


class ImageIndex:
    """Sizes of images by name and row."""

    def __init__(self) -> None:
        self._of_row: dict[int, tuple[ContainerImage, ...]] = {}
        self._images: dict[tuple[str, ...], _Holders] = {}
        self.by_name: dict[str, list[_Holders]] = {}

    def put(self, row: int, images: tuple[ContainerImage, ...]) -> None:
        """Set the images of a node."""
        old = self._of_row.get(row, ())
        if old == images:
            return
        for image in old:
            self._drop(row, image)
        for image in images:
            holders = self._images.get(image.names)
            if holders is None:
                holders = self._images[image.names] = _Holders()
                for name in image.names:
                    self.by_name.setdefault(name, []).append(holders)
            holders.put(row, image.size_bytes)
        self._of_row[row] = images

    def _drop(self, row: int, image: ContainerImage) -> None:
        holders = self._images[image.names]
        holders.drop(row)
        if holders.count:
            return
        del self._images[image.names]
        for name in image.names:
            self.by_name[name] = [one for one in self.by_name[name] if one is not holders]
            if not self.by_name[name]:
                del self.by_name[name]

    def nodes(self, name: str) -> int:
        """Return how many nodes have the image."""
        return sum(holders.count for holders in self._held(name))

    def sizes(self, name: str, capacity: int) -> NDArray[np.float64]:
        """Return the image's size on each row, 0 where it is absent."""
        total = np.zeros(capacity)
        for holders in self._held(name):
            dense = holders.dense(capacity)[:capacity]
            total[: len(dense)] += dense
        return total

    def _held(self, name: str) -> Iterator[_Holders]:
        return iter(self.by_name.get(name, ()))
