"""Free storage that CSI drivers publish decides where volumes can be made."""

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from corelane.kube import keys
from corelane.kube.meta import ObjectMeta
from corelane.kube.pod import (
    AWSDisk,
    AzureDisk,
    ClaimSource,
    GCEDisk,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    ResourceRequirements,
    Volume,
)
from corelane.kube.selectors import LabelSelector, LabelSelectorRequirement
from corelane.kube.storage import (
    CSIDriver,
    CSIDriverSpec,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeSpec,
    PersistentVolumeStatus,
    StorageClass,
    TopologySelectorLabelRequirement,
    TopologySelectorTerm,
    VolumeNodeAffinity,
)
from corelane.reasons import sentence
from corelane.scheduler.cluster.nodes import NodeCache
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.core import SchedulerCore
from corelane.scheduler.events import (
    ClaimChanged,
    CSIDriverChanged,
    CycleDue,
    NodeChanged,
    PodChanged,
    StorageCapacityChanged,
    StorageClassChanged,
    Unwatched,
)
from corelane.scheduler.framework.changes import ChangeKind, ClusterChange
from corelane.scheduler.framework.plugin import Cycle
from corelane.scheduler.framework.profile import DEFAULT_NAME
from corelane.scheduler.instructions import Bind, SetCondition
from corelane.scheduler.plugins.volume_binding import VolumeBinding
from support import objects
from support.pods import guaranteed

ZONE = "topology.kubernetes.io/zone"
EBS_ZONE = "topology.ebs.csi.aws.com/zone"
FULL = "node(s) did not have enough free storage"
NOTHING = "node(s) didn't find available persistent volumes to bind"
ELSEWHERE = "node(s) didn't match PersistentVolume's node affinity"


def driver(*, publishes: bool | None) -> CSIDriver:
    return CSIDriver(metadata=ObjectMeta(name="disk"), spec=CSIDriverSpec(storage_capacity=publishes))


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


def storage_class(name: str, *zones: str) -> StorageClass:
    rules = (TopologySelectorLabelRequirement(ZONE, zones),)
    return StorageClass(
        metadata=ObjectMeta(name=name),
        provisioner="disk",
        volume_binding_mode="WaitForFirstConsumer",
        allowed_topologies=(TopologySelectorTerm(rules),) if zones else (),
    )


def claim(name: str, size: str | None = "5Gi", of: str = "made", node: str = "") -> PersistentVolumeClaim:
    return PersistentVolumeClaim(
        metadata=ObjectMeta(
            name=name,
            namespace="ns",
            uid=f"u-{name}",
            annotations={keys.SELECTED_NODE: node} if node else {},
        ),
        spec=PersistentVolumeClaimSpec(
            storage_class_name=of,
            resources=ResourceRequirements(requests={} if size is None else {"storage": size}),
        ),
    )


def free_volume(size: str) -> PersistentVolume:
    return PersistentVolume(
        metadata=ObjectMeta(name="pv"),
        spec=PersistentVolumeSpec(capacity={"storage": size}, storage_class_name="made"),
        status=PersistentVolumeStatus(phase="Available"),
    )


def pod(name: str, *claims: str) -> Pod:
    made = tuple(Volume(one, persistent_volume_claim=ClaimSource(one)) for one in claims)
    one = guaranteed(name, "10m")
    return replace(one, spec=replace(one.spec, volumes=made, scheduler_name=DEFAULT_NAME))


def cluster(*others: CSIStorageCapacity | PersistentVolumeClaim, publishes: bool | None = True) -> NodeCache:
    """A node in each of the zones z1 and z2."""
    made = NodeCache()
    for zone in ("z1", "z2"):
        made.put_node(f"n-{zone}", objects.node(f"n-{zone}", labels={ZONE: zone}))
    for one in (storage_class("made"), storage_class("zoned", "z1")):
        made.objects.put_class(one.metadata.name, one)
    made.objects.put_csi_driver("disk", driver(publishes=publishes))
    for one in others:
        if isinstance(one, PersistentVolumeClaim):
            made.objects.put_claim(one.key, one)
        else:
            made.objects.put_capacity(one.key, one)
    return made


def reasons(made: NodeCache, *claims: str) -> dict[str, str]:
    """Why each node cannot have a pod with these claims, asked alone and at once."""
    plugin, cycle = VolumeBinding(), Cycle(PodInfo.of(pod("p", *claims)), cluster=made)
    assert plugin.pre_filter(cycle) is None
    rows, found = made.columns.live_rows(), {}
    for row in rows.tolist():
        node = made.by_row[row]
        assert node is not None
        one = plugin.filter(cycle, node)
        found[node.name] = "; ".join(sentence(each.reason) for each in one.reasons) if one else ""
    passed = plugin.feasible(cycle, made.columns, rows)
    assert passed.tolist() == [not one for one in found.values()]
    grouped = dict.fromkeys(found, "")
    for rejection, some in plugin.rejections(cycle, made.columns, rows):
        for row in some.tolist():
            grouped[made.columns.names[row]] = "; ".join(sentence(one.reason) for one in rejection.reasons)
    assert grouped == found
    return found


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
    assert set(reasons(cluster(claim("c", None)), "c").values()) == {""}


def test_the_first_claim_that_cannot_be_made_decides() -> None:
    made = cluster(claim("c", "1Gi"), claim("d", "9Gi", "zoned"), capacity("9Gi", "z1", "zoned"))
    assert reasons(made, "d") == {"n-z1": "", "n-z2": NOTHING}
    assert reasons(made, "c", "d") == {"n-z1": FULL, "n-z2": FULL}
    made.objects.put_claim(("ns", "c"), claim("c", "10Gi"))
    assert reasons(made, "c", "d") == {"n-z1": FULL, "n-z2": NOTHING}


def test_a_volume_that_exists_needs_no_storage() -> None:
    made = cluster(claim("c"), claim("d"))
    made.objects.put_volume("pv", free_volume("6Gi"))
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
    return PersistentVolume(
        metadata=ObjectMeta(name="pv", labels=labels or {}),
        spec=PersistentVolumeSpec(
            node_affinity=VolumeNodeAffinity(selector) if selector else None,
            **(spec or {"aws_elastic_block_store": AWSDisk("vol-1")}),
        ),
    )


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
    annotations = {keys.MIGRATED_PLUGINS: "kubernetes.io/cinder,kubernetes.io/aws-ebs"}
    for name in ("moved", "both"):
        made.objects.put_csi_node(name, CSINode(metadata=ObjectMeta(name=name, annotations=annotations)))
    made.objects.put_volume("pv", volume)
    bound = claim("c")
    metadata = replace(bound.metadata, annotations={keys.BIND_COMPLETED: "yes"})
    made.objects.put_claim(
        bound.key, replace(bound, metadata=metadata, spec=replace(bound.spec, volume_name="pv"))
    )
    assert reasons(made, "c") == expected


# In the scheduler.


class Story:
    """A pod whose claim's volume has no storage anywhere."""

    def __init__(self) -> None:
        self.core, self.now = SchedulerCore(), 0.0
        self.driver, self.capacity = driver(publishes=True), capacity("1Gi")
        self.core.handle(StorageClassChanged(0, None, storage_class("made")))
        self.core.handle(ClaimChanged(0, None, claim("c")))
        self.core.handle(NodeChanged(0, None, objects.node("n1", labels={ZONE: "z1"})))
        self.core.handle(CSIDriverChanged(0, None, self.driver))
        self.core.handle(StorageCapacityChanged(0, None, self.capacity))

    def waits(self) -> str:
        self.core.handle(PodChanged(self.now, None, pod("p", "c")))
        return "; ".join(one.message for one in self.run() if isinstance(one, SetCondition))

    def run(self) -> Iterator[Any]:
        self.now += 20
        while self.core.ready(self.now):
            yield from self.core.handle(CycleDue(self.now))

    def bound(self) -> list[str]:
        return [one.node for one in self.run() if isinstance(one, Bind)]


@pytest.mark.parametrize("what", ["more", "another", "not published", "no driver"])
def test_a_pod_waits_until_there_is_storage(what: str) -> None:
    story = Story()
    assert FULL in story.waits()
    less = capacity("500Mi")
    story.core.handle(StorageCapacityChanged(story.now, story.capacity, less))
    assert list(story.run()) == []
    match what:
        case "more":
            story.core.handle(StorageCapacityChanged(story.now, less, capacity("5Gi")))
        case "another":
            story.core.handle(StorageCapacityChanged(story.now, None, capacity("5Gi", name="t")))
        case "not published":
            story.core.handle(CSIDriverChanged(story.now, story.driver, driver(publishes=False)))
        case "no driver":
            story.core.handle(CSIDriverChanged(story.now, story.driver, None))
    assert story.bound() == ["n1"]


@pytest.mark.parametrize("plural", ["csidrivers", "csistoragecapacities"])
def test_the_pod_waits_with_the_reason_where_capacity_cannot_be_watched(plural: str) -> None:
    story = Story()
    story.core.handle(CSIDriverChanged(0, story.driver, None))
    story.core.handle(Unwatched(0, plural, "forbidden"))
    assert f"{plural} cannot be watched: forbidden" in story.waits()


@pytest.mark.parametrize(
    ("change", "helps"),
    [
        (ClusterChange(ChangeKind.STORAGE_CAPACITY, "", None, capacity("1")), True),
        (ClusterChange(ChangeKind.STORAGE_CAPACITY, "", capacity("1"), capacity("2")), True),
        (ClusterChange(ChangeKind.STORAGE_CAPACITY, "", capacity(None), capacity("2")), True),
        (ClusterChange(ChangeKind.STORAGE_CAPACITY, "", capacity("2"), capacity("2")), False),
        (ClusterChange(ChangeKind.STORAGE_CAPACITY, "", capacity("2"), capacity(None)), False),
        (
            ClusterChange(ChangeKind.STORAGE_CAPACITY, "", capacity("9", most="3"), capacity("99", most="3")),
            False,
        ),
        (ClusterChange(ChangeKind.CSI_DRIVER, "", driver(publishes=True), driver(publishes=None)), True),
        (ClusterChange(ChangeKind.CSI_DRIVER, "", driver(publishes=False), driver(publishes=True)), False),
        (ClusterChange(ChangeKind.CSI_DRIVER, "", None, driver(publishes=True)), False),
    ],
)
def test_hints(change: ClusterChange, *, helps: bool) -> None:
    hint = VolumeBinding().hints()[change.kind]
    assert hint(PodInfo.of(pod("p", "c")), change) is helps
