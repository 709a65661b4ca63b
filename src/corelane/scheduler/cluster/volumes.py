"""How many volumes of each CSI driver a node has, by row: those of its pods, and those attached to it.

Theory of operation. A volume counts once for a node, however many pods use it. Which volume a claim means
changes while its pod runs: first it is one that is to be made, then the one that was. So the pods of each
claim are known, and the claims and attachments of each volume; a changed object makes these count anew.

Upstream: `filterAttachableVolumes` and `getCSIDriverInfo` of nodevolumelimits (1.36). A volume that is not
made yet is one of the class's provisioner, named after its claim.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from corelane import quantity
from corelane.kube.meta import WireQuantity
from corelane.kube.pod import Pod, Volume
from corelane.kube.storage import (
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from corelane.kube.volumes import (
    MIGRATED,
    NOT_COUNTED,
    VolumeID,
    class_of,
    inline_id,
    may_be_limited,
    plugin_of,
    volume_id,
)
from corelane.quantity import QuantityError
from corelane.scheduler.cluster.columns import Rows
from corelane.scheduler.cluster.labels import Rules, rules_of
from corelane.scheduler.cluster.pods import PodInfo

Key: TypeAlias = tuple[str, str]
"""Namespace and name."""


class VolumeObjects(Protocol):
    """What decides which volume a claim means, and how many a node can have: `ClusterObjects`."""

    claims: dict[Key, PersistentVolumeClaim]
    volumes: dict[str, PersistentVolume]
    classes: dict[str, StorageClass]
    csi_nodes: dict[str, CSINode]


@dataclass(frozen=True, slots=True)
class PodClaim:
    """Namespace and name of a claim, and whether it is made for the pod alone."""

    key: Key
    ephemeral: bool = False


def claim_of(pod: Pod, volume: Volume) -> PodClaim | None:
    """Return the claim of one of the pod's volumes."""
    if volume.persistent_volume_claim is not None:
        return PodClaim((pod.metadata.namespace, volume.persistent_volume_claim.claim_name))
    if volume.ephemeral is not None:
        return PodClaim((pod.metadata.namespace, f"{pod.metadata.name}-{volume.name}"), ephemeral=True)
    return None


def pod_claims(pod: Pod) -> Iterator[PodClaim]:
    """Yield the claims of the pod's volumes, in their order."""
    return filter(None, (claim_of(pod, volume) for volume in pod.spec.volumes))


def is_owned(pod: Pod, claim: PersistentVolumeClaim) -> bool:
    """Return whether the claim was made for an ephemeral volume of this pod."""
    owners = claim.metadata.owner_references
    return any(owner.controller and owner.uid == pod.metadata.uid for owner in owners)


def claim_volume(claim: PersistentVolumeClaim, objects: VolumeObjects) -> VolumeID | None:
    """Return the volume of a claim, made or to be made; None for one that no CSI driver serves."""
    volume = objects.volumes.get(claim.spec.volume_name) if claim.spec.volume_name else None
    if volume is None:
        storage = objects.classes.get(class_of(claim))
        if storage is None or not storage.provisioner or storage.provisioner in NOT_COUNTED:
            return None
        migrated = MIGRATED.get(storage.provisioner)
        return migrated.driver if migrated else storage.provisioner, "\0" + "/".join(claim.key)
    named = volume_id(volume)
    return named if named is not None and all(named) else None


def volumes_on_node(pod: Pod, objects: VolumeObjects) -> set[VolumeID]:
    """Return the volumes of a pod that has a node, as far as its claims are known.

    A volume that its driver cannot name counts as one of its own; kube-scheduler fails there.
    """
    volumes: set[VolumeID | None] = set()
    for volume in pod.spec.volumes:
        of = claim_of(pod, volume)
        if of is None:
            volumes.add(_inline(pod, volume))
        elif (claim := objects.claims.get(of.key)) and (not of.ephemeral or is_owned(pod, claim)):
            volumes.add(claim_volume(claim, objects))
    return {one for one in volumes if one is not None}


def _inline(pod: Pod, volume: Volume) -> VolumeID | None:
    try:
        return inline_id(volume)
    except ValueError:
        return MIGRATED[plugin_of(volume)].driver, f"\0{pod.metadata.uid}/{volume.name}"


Numbers: TypeAlias = NDArray[np.int32]
NO_LIMIT: Final = np.iinfo(np.int32).max
_NO_NUMBERS: Final = np.zeros(0, np.int32)


@dataclass(slots=True)
class _User:
    """A pod on a node, and its volumes as they are counted."""

    info: PodInfo
    row: int
    volumes: set[VolumeID]


@dataclass(slots=True)
class _Attachment:
    """A VolumeAttachment, and the volume that it is counted as."""

    node: str
    attacher: str
    volume: str
    counted: VolumeID | None = None


@dataclass(slots=True)
class _Use:
    """What one volume is on one node for."""

    pods: int = 0
    attachments: int = 0


@dataclass(slots=True)
class DriverCounts:
    """Volumes of a driver by row: used ones, those that a pod would add, and the most that are allowed."""

    driver: str
    used: Numbers
    new: Numbers
    limit: Numbers
    exceeded: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        more = self.used.astype(np.int64) + self.new
        self.exceeded = (self.new > 0) & (more > self.limit)


class VolumeUses:
    """See the theory of operation."""

    def __init__(self, objects: VolumeObjects) -> None:
        self._objects = objects
        self._users: dict[str, _User] = {}
        self._users_of_claim: dict[Key, set[str]] = {}
        self._attachments: dict[str, _Attachment] = {}
        self._attachments_of_node: dict[str, set[str]] = {}
        self._attachments_of_volume: dict[str, set[str]] = {}
        self._rows: dict[VolumeID, dict[int, _Use]] = {}
        self._used: dict[str, Numbers] = {}
        """Driver to number of volumes by row."""
        self._limits: dict[str, Numbers] = {}
        self._row_of: dict[str, int] = {}

    # Nodes.

    def node_added(self, name: str, row: int) -> None:
        """Count what is known of a node from now on, at its row."""
        self._row_of[name] = row
        self._limit(self._objects.csi_nodes.get(name), row, limited=True)
        for one in self._attached_to(name):
            self._count(one.counted, row, attachments=1)

    def node_removed(self, name: str) -> None:
        """Free the row of a node; it has no pods any more."""
        row = self._row_of.pop(name)
        self._limit(self._objects.csi_nodes.get(name), row, limited=False)
        for one in self._attached_to(name):
            self._count(one.counted, row, attachments=-1)

    def csi_node_changed(self, name: str, old: CSINode | None, new: CSINode | None) -> None:
        """Hold a node to other limits."""
        row = self._row_of.get(name)
        if row is not None:
            self._limit(old, row, limited=False)
            self._limit(new, row, limited=True)

    def _limit(self, node: CSINode | None, row: int, *, limited: bool) -> None:
        for driver, limit in node.limits.items() if node is not None else ():
            numbers = _up_to(row, self._limits.get(driver, _NO_NUMBERS), NO_LIMIT)
            numbers[row] = min(limit, NO_LIMIT) if limited else NO_LIMIT
            self._limits[driver] = numbers

    # Pods.

    def put(self, info: PodInfo, row: int) -> None:
        """Count a pod's volumes at a row; the pod is counted nowhere yet."""
        if not any(map(may_be_limited, info.pod.spec.volumes)):
            return
        user = self._users[info.uid] = _User(info, row, volumes_on_node(info.pod, self._objects))
        for one in pod_claims(info.pod):
            self._users_of_claim.setdefault(one.key, set()).add(info.uid)
        for volume in user.volumes:
            self._count(volume, row, pods=1)

    def drop(self, uid: str) -> None:
        """Count a pod's volumes no longer."""
        user = self._users.pop(uid, None)
        if user is None:
            return
        for one in pod_claims(user.info.pod):
            users = self._users_of_claim.get(one.key)
            if users is not None:
                users.discard(uid)
                if not users:
                    del self._users_of_claim[one.key]
        for volume in user.volumes:
            self._count(volume, user.row, pods=-1)

    def claim_changed(self, key: Key) -> None:
        """Count the claim's volume anew."""
        for uid in self._users_of_claim.get(key, ()):
            user = self._users[uid]
            before, user.volumes = user.volumes, volumes_on_node(user.info.pod, self._objects)
            for volume in user.volumes - before:
                self._count(volume, user.row, pods=1)
            for volume in before - user.volumes:
                self._count(volume, user.row, pods=-1)

    def class_changed(self, name: str) -> None:
        """Count volumes that are to be made anew: a class came or went."""
        claims, volumes = self._objects.claims, self._objects.volumes
        for key in self._users_of_claim:
            claim = claims.get(key)
            if claim is not None and claim.spec.volume_name not in volumes and class_of(claim) == name:
                self.claim_changed(key)

    # Attachments.

    def attachment_changed(self, name: str, new: VolumeAttachment | None) -> None:
        """Count an attachment on its node."""
        self._detach(name)
        volume = new.spec.source.persistent_volume_name if new is not None else None
        if new is None or not new.spec.attacher or volume is None:
            return
        one = self._attachments[name] = _Attachment(new.spec.node_name, new.spec.attacher, volume)
        self._attachments_of_node.setdefault(one.node, set()).add(name)
        self._attachments_of_volume.setdefault(volume, set()).add(name)
        self._attach(one)

    def volume_changed(self, name: str, claims: Iterable[Key]) -> None:
        """Count a volume anew, for the claims that are bound to it, and where it is attached."""
        for key in claims:
            self.claim_changed(key)
        for attachment in self._attachments_of_volume.get(name, ()):
            self._attach(self._attachments[attachment])

    def _attach(self, one: _Attachment) -> None:
        volume, row = self._objects.volumes.get(one.volume), self._row_of.get(one.node)
        source = volume.spec.csi if volume is not None else None
        before, one.counted = one.counted, (one.attacher, source.volume_handle) if source else None
        if row is not None and before != one.counted:
            self._count(one.counted, row, attachments=1)
            self._count(before, row, attachments=-1)

    def _detach(self, name: str) -> None:
        one = self._attachments.pop(name, None)
        if one is None:
            return
        _discard(self._attachments_of_node, one.node, name)
        _discard(self._attachments_of_volume, one.volume, name)
        row = self._row_of.get(one.node)
        if row is not None:
            self._count(one.counted, row, attachments=-1)

    def _attached_to(self, node: str) -> Iterator[_Attachment]:
        return (self._attachments[name] for name in self._attachments_of_node.get(node, ()))

    # Counts.

    def _count(self, volume: VolumeID | None, row: int, pods: int = 0, attachments: int = 0) -> None:
        if volume is None:
            return
        rows = self._rows.setdefault(volume, {})
        use = rows.get(row)
        if use is None:
            use = rows[row] = _Use()
            self._add(volume[0], row, 1)
        use.pods += pods
        use.attachments += attachments
        if not use.pods and not use.attachments:
            del rows[row]
            self._add(volume[0], row, -1)
            if not rows:
                del self._rows[volume]

    def _add(self, driver: str, row: int, number: int) -> None:
        numbers = self._used[driver] = _up_to(row, self._used.get(driver, _NO_NUMBERS), 0)
        numbers[row] += number

    # Questions.

    def attached(self, node: str) -> set[VolumeID]:
        """Return the volumes that are attached to a node."""
        return {one.counted for one in self._attached_to(node) if one.counted is not None}

    def counts(self, added: Iterable[VolumeID], rows: Rows) -> Iterator[DriverCounts]:
        """Yield what limited drivers of these volumes have on the rows, in the order of their names.

        A volume is not new to a node where a pod uses it; one that is only attached there is, as upstream.
        """
        volumes: dict[str, list[VolumeID]] = {}
        for volume in added:
            volumes.setdefault(volume[0], []).append(volume)
        for driver in sorted(volumes.keys() & self._limits.keys()):
            used, limit = self._used.get(driver, _NO_NUMBERS), self._limits[driver]
            most = int(rows.max(initial=0))
            new = np.full(most + 1, len(volumes[driver]), np.int32)
            for volume in volumes[driver]:
                users = [row for row, use in self._rows.get(volume, {}).items() if use.pods and row <= most]
                new[users] -= 1
            limits = _up_to(most, limit, NO_LIMIT)[rows]
            yield DriverCounts(driver, _up_to(most, used, 0)[rows], new[rows], limits)


def _up_to(row: int, numbers: Numbers, fill: int) -> Numbers:
    """Return numbers that go up to a row: the same ones, or longer ones, filled with `fill`."""
    if row < len(numbers):
        return numbers
    longer = np.full(2 * (row + 1), fill, np.int32)
    longer[: len(numbers)] = numbers
    return longer


def _discard(sets: dict[str, set[str]], key: str, one: str) -> None:
    sets[key].discard(one)
    if not sets[key]:
        del sets[key]


@dataclass(frozen=True, slots=True)
class Capacity:
    """The size of the largest volume that can be made, in bytes, and what the labels of its nodes must be.

    None where nothing is said of the size; where no node has access, or the selector is invalid.
    """

    largest: int | None
    rules: Rules | None

    @classmethod
    def of(cls, published: CSIStorageCapacity) -> "Capacity":
        try:
            rules = rules_of(published.node_topology)
        except ValueError:
            rules = None
        return cls(largest(published), rules)


def largest(published: CSIStorageCapacity) -> int | None:
    """Return the size of the largest volume that can be made, in bytes; None where nothing is said of it."""
    size = published.maximum_volume_size
    return amount(published.capacity if size is None else size)


@lru_cache(4096)
def amount(wire: WireQuantity | None) -> int | None:
    """Return bytes; None for an absent or invalid amount."""
    try:
        return None if wire is None else quantity.value(str(wire))
    except QuantityError:
        return None
