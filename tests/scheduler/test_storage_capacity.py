"""Free storage that CSI drivers publish decides where volumes can be made."""

from typing import Any

import pytest
from msgspec.structs import replace

from corelane.kube.meta import ObjectMeta
from corelane.kube.pod import (
    AWSDisk,
    AzureDisk,
    GCEDisk,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from corelane.kube.selectors import LabelSelector, LabelSelectorRequirement
from corelane.kube.storage import (
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeStatus,
    VolumeNodeAffinity,
)
from corelane.reasons import sentence
from corelane.scheduler.cluster.nodes import NodeCache
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.events import (
    ObjectChanged,
    SchedulerEvent,
    Unwatched,
)
from corelane.scheduler.framework.changes import ChangeKind, ClusterChange
from corelane.scheduler.plugins.volume_binding import VolumeBinding
from support import objects, storage_objects
from support.core_lab import CoreLab, cycle_of, message
from support.plugin_answers import rejections
from support.storage_objects import ZONE, claim, driver, pod, storage_class, took_over

EBS_ZONE = "topology.ebs.csi.aws.com/zone"
FULL = "node(s) did not have enough free storage"
NOTHING = "node(s) didn't find available persistent volumes to bind"
ELSEWHERE = "node(s) didn't match PersistentVolume's node affinity"


def capacity(
    size: str | None, zone: str | None = "z1", of: str = "made", most: str | None = None, name: str = "s"
) -> CSIStorageCapacity:
    return CSIStorageCapacity(
        metadata=ObjectMeta(name=name, namespace="kube-system"),
        storage_class_name=of,
        node_topology=None if zone is None else LabelSelector({ZONE: zone}),
        capacity=size,
        maximum_volume_size=most,
    )


def cluster(*others: CSIStorageCapacity | PersistentVolumeClaim, publishes: bool | None = True) -> NodeCache:
    """A node in each of the zones z1 and z2."""
    made = NodeCache()
    for zone in ("z1", "z2"):
        made.put_node(f"n-{zone}", objects.node(f"n-{zone}", labels={ZONE: zone}))
    for one in (storage_class("made", "disk"), storage_class("zoned", "disk", "z1")):
        made.objects.put_class(one.metadata.name, one)
    made.objects.put_csi_driver("disk", driver("disk", publishes=publishes))
    for one in others:
        if isinstance(one, PersistentVolumeClaim):
            made.objects.put_claim(one.key, one)
        else:
            made.objects.put_capacity(one.key, one)
    return made


def reasons(made: NodeCache, *claims: str) -> dict[str, str]:
    """Why each node cannot have a pod with these claims."""
    plugin, cycle = VolumeBinding(), cycle_of(pod("p", *claims), made)
    assert plugin.pre_filter(cycle) is None
    fits = dict.fromkeys((node.name for node in made.placeable()), "")
    rejected = rejections(plugin, cycle, made)
    return fits | {
        name: "; ".join(sentence(each.reason) for each in one.reasons) for name, one in rejected.items()
    }


@pytest.mark.parametrize(
    ("published", "z1"),
    [
        ([capacity("10Gi")], ""),
        ([capacity("5Gi")], ""),
        ([capacity("4Gi")], FULL),
        ([capacity("3Gi"), capacity("3Gi", name="t")], FULL),
        ([capacity("1Gi"), capacity("9Gi", name="t")], ""),
        ([capacity("100Gi", most="4Gi")], FULL),
        ([capacity("1Gi", most="8Gi")], ""),
        ([capacity(None)], FULL),
        ([capacity("10Gi", of="other")], FULL),
        ([capacity("10Gi", zone=None)], FULL),
        ([], FULL),
    ],
)
def test_a_volume_is_made_where_one_capacity_has_its_size(
    published: list[CSIStorageCapacity], z1: str
) -> None:
    made = cluster(claim("c"), *published)
    assert reasons(made, "c") == {"n-z1": z1, "n-z2": FULL}


@pytest.mark.parametrize("publishes", [False, None])
def test_drivers_that_publish_nothing_are_not_limited(*, publishes: bool | None) -> None:
    made = cluster(claim("c"), capacity("1Gi"), publishes=publishes)
    assert set(reasons(made, "c").values()) == {""}
    made.objects.put_csi_driver("disk", None)
    assert set(reasons(made, "c").values()) == {""}


def test_a_claim_without_a_size_needs_none() -> None:
    assert set(reasons(cluster(claim("c", size=None)), "c").values()) == {""}


def test_the_first_claim_that_cannot_be_made_decides() -> None:
    made = cluster(claim("c", size="1Gi"), claim("d", of="zoned", size="9Gi"), capacity("9Gi", "z1", "zoned"))
    assert reasons(made, "d") == {"n-z1": "", "n-z2": NOTHING}
    assert reasons(made, "c", "d") == {"n-z1": FULL, "n-z2": FULL}
    made.objects.put_claim(("ns", "c"), claim("c", size="10Gi"))
    assert reasons(made, "c", "d") == {"n-z1": FULL, "n-z2": NOTHING}


def test_a_volume_that_exists_needs_no_storage() -> None:
    made = cluster(claim("c"), claim("d"))
    free = storage_objects.volume(
        "pv", capacity={"storage": "6Gi"}, storage_class_name="made", access_modes=("ReadWriteOnce",)
    )
    made.objects.put_volume("pv", replace(free, status=PersistentVolumeStatus(phase="Available")))
    assert set(reasons(made, "c").values()) == {""}
    assert set(reasons(made, "c", "d").values()) == {FULL}
    made.objects.put_capacity(("kube-system", "s"), capacity("5Gi", "z2"))
    assert reasons(made, "c", "d") == {"n-z1": FULL, "n-z2": ""}


def test_a_claim_with_a_selected_node_needs_storage_there() -> None:
    made = cluster(claim("c", node="n-z1"), capacity("10Gi", "z2"))
    assert reasons(made, "c") == {"n-z1": FULL, "n-z2": NOTHING}
    made.objects.put_capacity(("kube-system", "t"), capacity("10Gi", "z1", name="t"))
    assert reasons(made, "c") == {"n-z1": "", "n-z2": NOTHING}


def test_topology_rules_hold_as_label_selectors() -> None:
    made = cluster(claim("c"))
    rules = (
        LabelSelectorRequirement(ZONE, "NotIn", ("z2",)),
        LabelSelectorRequirement("kubernetes.io/os", "DoesNotExist"),
    )
    one = replace(capacity("9Gi"), node_topology=LabelSelector({}, rules))
    made.objects.put_capacity(one.key, one)
    assert reasons(made, "c") == {"n-z1": "", "n-z2": FULL}
    made.objects.put_capacity(one.key, replace(one, node_topology=LabelSelector()))
    assert set(reasons(made, "c").values()) == {""}
    unknown = LabelSelector({}, (LabelSelectorRequirement(ZONE, "Near", ("z1",)),))
    made.objects.put_capacity(one.key, replace(one, node_topology=unknown))
    assert set(reasons(made, "c").values()) == {FULL}


# Volumes that drivers took over.


def in_tree(selector: NodeSelector | None = None, labels: dict[str, str] | None = None, **spec: Any) -> Any:
    spec = spec or {"aws_elastic_block_store": AWSDisk("vol-1")}
    one = storage_objects.volume("pv", node_affinity=selector and VolumeNodeAffinity(selector), **spec)
    return replace(one, metadata=replace(one.metadata, labels=labels or {}))


def rule(key: str, *values: str) -> NodeSelector:
    return NodeSelector((NodeSelectorTerm((NodeSelectorRequirement(key, "In", values),)),))


@pytest.mark.parametrize(
    ("volume", "expected"),
    [
        (in_tree(rule(ZONE, "z1")), {"old": "", "moved": ELSEWHERE, "both": ""}),
        (in_tree(rule(EBS_ZONE, "z1")), {"old": ELSEWHERE, "moved": ELSEWHERE, "both": ""}),
        (in_tree(labels={ZONE: "z1__z3"}), {"old": "", "moved": ELSEWHERE, "both": ""}),
        (in_tree(labels={ZONE: ""}), {"old": "", "moved": "", "both": ""}),
        (in_tree(rule(ZONE, "z1"), azure_disk=AzureDisk("u")), {"old": "", "moved": "", "both": ""}),
        (in_tree(rule(ZONE, "z1"), gce_persistent_disk=GCEDisk("d")), {"old": "", "moved": "", "both": ""}),
    ],
)
def test_zones_of_a_volume_are_those_of_its_driver_where_that_took_it_over(
    volume: PersistentVolume, expected: dict[str, str]
) -> None:
    """`old` has no driver; `moved` has one, whose zone is z2; `both` has one, whose zone is z1."""
    made = NodeCache()
    labels = {"old": {}, "moved": {EBS_ZONE: "z2"}, "both": {EBS_ZONE: "z1"}}
    for name, own in labels.items():
        made.put_node(name, objects.node(name, labels={ZONE: "z1", **own}))
    for name in ("moved", "both"):
        node = took_over(name, "kubernetes.io/cinder", "kubernetes.io/aws-ebs")
        made.objects.put_csi_node(name, node)
    made.objects.put_volume("pv", volume)
    made.objects.put_claim(("ns", "c"), claim("c", "pv"))
    assert reasons(made, "c") == expected


# In the scheduler.

DRIVER, SMALL = driver("disk", publishes=True), capacity("1Gi")


@pytest.fixture
def lab() -> CoreLab:
    """A claim whose volume has no storage anywhere."""
    lab = CoreLab(objects.node("n1", labels={ZONE: "z1"}))
    lab.tell(ObjectChanged(0, None, storage_class("made", "disk")))
    lab.tell(ObjectChanged(0, None, claim("c")))
    lab.tell(ObjectChanged(0, None, DRIVER))
    lab.tell(ObjectChanged(0, None, SMALL))
    return lab


LESS = capacity("500Mi")


@pytest.mark.parametrize(
    "change",
    [
        ObjectChanged(20, LESS, capacity("5Gi")),
        ObjectChanged(20, None, capacity("5Gi", name="t")),
        ObjectChanged(20, DRIVER, driver("disk", publishes=False)),
        ObjectChanged(20, DRIVER, None),
    ],
    ids=["more", "another", "not published", "no driver"],
)
def test_a_pod_waits_until_there_is_storage(lab: CoreLab, change: SchedulerEvent) -> None:
    assert FULL in message(lab.place(pod("p", "c")))
    lab.tell(ObjectChanged(0, SMALL, LESS))
    assert lab.run(20) == []
    lab.tell(change)
    assert lab.bound(seconds=20) == ["n1"]


@pytest.mark.parametrize("plural", ["csidrivers", "csistoragecapacities"])
def test_the_pod_waits_with_the_reason_where_capacity_cannot_be_watched(lab: CoreLab, plural: str) -> None:
    lab.tell(ObjectChanged(0, DRIVER, None))
    lab.tell(Unwatched(0, plural, "forbidden"))
    assert f"{plural} cannot be watched: forbidden" in message(lab.place(pod("p", "c")))


@pytest.mark.parametrize(
    ("change", "helps"),
    [
        (ClusterChange(ChangeKind.STORAGE_CAPACITY, "", None, capacity("1")), True),
        (ClusterChange(ChangeKind.STORAGE_CAPACITY, "", capacity("1"), capacity("2")), True),
        (ClusterChange(ChangeKind.STORAGE_CAPACITY, "", capacity(None), capacity("2")), True),
        (ClusterChange(ChangeKind.STORAGE_CAPACITY, "", capacity("2"), capacity("2")), False),
        (ClusterChange(ChangeKind.STORAGE_CAPACITY, "", capacity("2"), capacity(None)), False),
        (ClusterChange(ChangeKind.STORAGE_CAPACITY, "", *(capacity(s, most="3") for s in "49")), False),
        (
            ClusterChange(ChangeKind.CSI_DRIVER, "", DRIVER, driver("disk", publishes=None)),
            True,
        ),
        (
            ClusterChange(ChangeKind.CSI_DRIVER, "", driver("disk", publishes=False), DRIVER),
            False,
        ),
        (ClusterChange(ChangeKind.CSI_DRIVER, "", None, DRIVER), False),
    ],
)
def test_hints(change: ClusterChange, *, helps: bool) -> None:
    hint = VolumeBinding().hints()[change.kind]
    assert hint(PodInfo.of(pod("p", "c")), change) is helps
