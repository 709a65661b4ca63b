"""NodeVolumeLimits: what counts against the number of volumes that a node can have."""

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from corelane.kube.meta import ObjectMeta
from corelane.kube.pod import (
    AWSDisk,
    AzureDisk,
    CinderDisk,
    EphemeralSource,
    GCEDisk,
    Pod,
    PortworxDisk,
    Volume,
)
from corelane.kube.storage import (
    CSINode,
    CSINodeDriver,
    CSINodeSpec,
    CSISource,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeSpec,
    VolumeAttachment,
    VolumeAttachmentSource,
    VolumeAttachmentSpec,
    VolumeNodeResources,
)
from corelane.reasons import sentence
from corelane.scheduler.cluster.nodes import NodeCache
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.events import (
    ObjectChanged,
    Unwatched,
)
from corelane.scheduler.framework.changes import ChangeKind, ClusterChange
from corelane.scheduler.framework.plugin import Skip
from corelane.scheduler.plugins.volume_filters import NodeVolumeLimits
from support import objects, storage_objects
from support.core_lab import CoreLab, conditions, cycle_of, message, names
from support.plugin_answers import rejections
from support.storage_objects import claim, pod, storage_class

EBS = "ebs.csi.aws.com"
DISK = "disk.example.com"
FULL = "node(s) exceed max volume count"


def csi_node(name: str, **limits: int | None) -> CSINode:
    drivers = tuple(
        CSINodeDriver(driver.replace("_", "."), None if limit is None else VolumeNodeResources(limit))
        for driver, limit in limits.items()
    )
    return CSINode(metadata=ObjectMeta(name=name), spec=CSINodeSpec(drivers))


def limited(count: int | None, driver: str = DISK, name: str = "n1") -> CSINode:
    return csi_node(name, **{driver.replace(".", "_"): count})


def volume(name: str, driver: str = DISK, **spec: Any) -> PersistentVolume:
    source = {} if spec else {"csi": CSISource(driver, f"h-{name}")}
    return storage_objects.volume(name, f"c-{name}", **source, **spec)


def attachment(name: str, node: str, volume: str | None, attacher: str = DISK) -> VolumeAttachment:
    source = VolumeAttachmentSource(volume)
    return VolumeAttachment(metadata=ObjectMeta(name=name), spec=VolumeAttachmentSpec(attacher, node, source))


@dataclass
class Scene:
    """One node with a limit, pods that run there, and a pod to place."""

    says: str
    new: Pod
    limit: CSINode | None = field(default_factory=lambda: limited(2))
    there: tuple[Pod, ...] = ()
    attachments: tuple[VolumeAttachment, ...] = ()
    rejected: str = ""
    claims: tuple[PersistentVolumeClaim, ...] = ()


MADE = tuple(claim(f"c{number}", f"pv{number}") for number in range(5))
"""Claims with volumes of the driver `DISK`."""
PENDING = tuple(claim(f"w{number}") for number in range(4))
AWS = Volume("aws", aws_elastic_block_store=AWSDisk("aws://z1/vol-1"))
OTHER_AWS = Volume("aws2", aws_elastic_block_store=AWSDisk("vol-2"))
EPHEMERAL = Volume("e", ephemeral=EphemeralSource())

SCENES = [
    Scene("a pod without volumes is not asked about", pod("p")),
    Scene("as many as are allowed", pod("p", "c0", "c1")),
    Scene("one more than is allowed", pod("p", "c0", "c1", "c2"), rejected=FULL),
    Scene("beside those of another pod", pod("p", "c1"), there=(pod("a", "c0"),)),
    Scene(
        "one more than fits beside another pod", pod("p", "c1", "c2"), there=(pod("a", "c0"),), rejected=FULL
    ),
    Scene("a volume that a pod there uses too", pod("p", "c0", "c1"), there=(pod("a", "c0"), pod("b", "c1"))),
    Scene(
        "a volume that two pods share counts once",
        pod("p", "c1"),
        there=(pod("a", "c0"), pod("b", "c0")),
    ),
    Scene(
        "a shared volume on a node beyond its limit",
        pod("p", "c0"),
        limit=limited(1),
        there=(pod("a", "c0", "c1", "c2"),),
    ),
    Scene("a limit of 0", pod("p", "c0"), limit=limited(0), rejected=FULL),
    Scene("a driver without a limit", pod("p", "c0", "c1", "c2"), limit=limited(None)),
    Scene("a limit of another driver", pod("p", "c0", "c1", "c2"), limit=limited(1, EBS)),
    Scene("no CSINode", pod("p", "c0", "c1", "c2"), limit=None),
    Scene("claims that wait for a node count for the provisioner", pod("p", "w0", "w1", "w2"), rejected=FULL),
    Scene("waiting claims beside volumes", pod("p", "w0"), there=(pod("a", "c0", "w1"),), rejected=FULL),
    Scene("a waiting claim that a pod there uses too", pod("p", "w0"), there=(pod("a", "c0", "w0"),)),
    Scene(
        "a claim whose volume is not there counts for its class",
        pod("p", "gone", "c0", "c1"),
        claims=(claim("gone", "no-volume"),),
        rejected=FULL,
    ),
    Scene(
        "a claim of an unknown class is not counted",
        pod("p", "c0", "c1", "lost"),
        claims=(claim("lost", of="no-class"),),
    ),
    Scene("a claim of a pod there that is gone is not counted", pod("p", "c0", "c1"), there=(pod("a", "x"),)),
    Scene(
        "a claim that does not exist",
        pod("p", "x"),
        limit=None,
        rejected='looking up PVC ns/x: persistentvolumeclaim "x" not found',
    ),
    Scene(
        "attached volumes count",
        pod("p", "c0"),
        limit=limited(1),
        attachments=(attachment("a", "n1", "pv1"),),
        rejected=FULL,
    ),
    Scene(
        "volumes attached elsewhere do not",
        pod("p", "c0"),
        limit=limited(1),
        attachments=(attachment("a", "n2", "pv1"),),
    ),
    Scene(
        "attached volumes of pods there count once",
        pod("p", "c1"),
        there=(pod("a", "c0"),),
        attachments=(attachment("a", "n1", "pv0"),),
    ),
    Scene(
        "as upstream, a volume that is attached and has no pod there is new to the node",
        pod("p", "c0"),
        limit=limited(1),
        attachments=(attachment("a", "n1", "pv0"),),
        rejected=FULL,
    ),
    Scene(
        "attachments without an attacher, a volume's name or a known CSI volume are not counted",
        pod("p", "c0"),
        limit=limited(1),
        attachments=(
            attachment("a", "n1", "pv1", ""),
            attachment("b", "n1", None),
            attachment("c", "n1", "no-volume"),
            attachment("d", "n1", "in-tree"),
        ),
    ),
    Scene(
        "an ephemeral claim counts",
        pod("p", EPHEMERAL, "c0", "c1"),
        claims=(claim("p-e", "pv3", owner="p"),),
        rejected=FULL,
    ),
    Scene("an ephemeral claim that waits", pod("p", EPHEMERAL, "c0"), claims=(claim("p-e", owner="p"),)),
    Scene(
        "an ephemeral claim that does not exist",
        pod("p", EPHEMERAL),
        rejected='looking up PVC ns/p-e: persistentvolumeclaim "p-e" not found',
    ),
    Scene(
        "an ephemeral claim of another pod",
        pod("p", EPHEMERAL),
        claims=(claim("p-e", owner="other"),),
        rejected="PVC ns/p-e was not created for pod ns/p (pod is not owner)",
    ),
    Scene(
        "a pod there with a claim of another pod's counts without it",
        pod("p", "c0", "c1"),
        there=(pod("a", EPHEMERAL),),
        claims=(claim("a-e", "pv3", owner="other"),),
    ),
    Scene("volumes that a driver took over", pod("p", AWS), limit=limited(1, EBS)),
    Scene("two of them", pod("p", AWS, OTHER_AWS), limit=limited(1, EBS), rejected=FULL),
    Scene("beside a claim's", pod("p", AWS), limit=limited(1, EBS), there=(pod("a", "t"),), rejected=FULL),
    Scene("the same volume by a claim", pod("p", AWS), limit=limited(0, EBS), there=(pod("a", "same"),)),
    Scene("a class whose plugin a driver took over", pod("p", "in"), limit=limited(0, EBS), rejected=FULL),
    Scene(
        "a class of a plugin that is not counted", pod("p", "file"), limit=limited(0, "file.csi.azure.com")
    ),
    Scene(
        "a volume that the driver cannot name",
        pod("p", Volume("z", azure_disk=AzureDisk("u", "Dedicated"))),
        rejected="volume z: azureDisk kind Dedicated is not served by a CSI driver; use Managed",
    ),
    Scene(
        "a volume that no driver has to name",
        pod("p", Volume("z", azure_disk=AzureDisk("u", "Dedicated"))),
        limit=None,
    ),
]
CLAIMS = (
    *MADE,
    *PENDING,
    claim("t", "in-tree"),
    claim("same", "in-tree-1"),
    claim("in", of="in-tree"),
    claim("file", of="file"),
)
VOLUMES = (
    *(volume(f"pv{number}") for number in range(5)),
    volume("in-tree", aws_elastic_block_store=AWSDisk("vol-9")),
    volume("in-tree-1", aws_elastic_block_store=AWSDisk("vol-1")),
)
CLASSES = (
    storage_class("made", DISK),
    storage_class("in-tree", "kubernetes.io/aws-ebs"),
    storage_class("file", "kubernetes.io/azure-file"),
)


def with_pods(made: NodeCache, pods: tuple[Pod, ...], node: str) -> None:
    for one in pods:
        made.put_pod(node, PodInfo.of(replace(one, spec=replace(one.spec, node_name=node))))


def cluster(scene: Scene) -> NodeCache:
    made = NodeCache()
    made.put_node("n1", objects.node("n1"))
    for one in CLASSES:
        made.objects.put_class(one.metadata.name, one)
    for one in (*CLAIMS, *scene.claims):
        made.objects.put_claim(one.key, one)
    for one in VOLUMES:
        made.objects.put_volume(one.metadata.name, one)
    made.objects.put_csi_node("n1", scene.limit)
    for one in scene.attachments:
        made.objects.put_attachment(one.metadata.name, one)
    with_pods(made, scene.there, "n1")
    return made


def verdicts(made: NodeCache, new: Pod) -> dict[str, str]:
    """Each node's first reason; "" where the pod fits."""
    plugin, cycle = NodeVolumeLimits(), cycle_of(new, made)
    fits = dict.fromkeys((made.columns.names[row] for row in made.columns.live_rows().tolist()), "")
    if isinstance(plugin.pre_filter(cycle), Skip):
        return fits
    rejected = rejections(plugin, cycle, made)
    return fits | {name: sentence(one.reasons[0].reason) for name, one in rejected.items()}


@pytest.mark.parametrize("scene", SCENES, ids=[scene.says for scene in SCENES])
def test_volumes_count(scene: Scene) -> None:
    assert verdicts(cluster(scene), scene.new) == {"n1": scene.rejected}


@pytest.mark.parametrize(
    ("disk", "driver", "handle"),
    [
        (AWS, EBS, "vol-1"),
        (Volume(cinder=CinderDisk("c")), "cinder.csi.openstack.org", "c"),
        (Volume(portworx_volume=PortworxDisk("x")), "pxd.portworx.com", "x"),
        (Volume(azure_disk=AzureDisk("uri", "Managed")), "disk.csi.azure.com", "uri"),
        (
            Volume(gce_persistent_disk=GCEDisk("d")),
            "pd.csi.storage.gke.io",
            "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d",
        ),
    ],
)
def test_each_plugin_that_a_driver_took_over_counts_for_that_driver(
    disk: Volume, driver: str, handle: str
) -> None:
    made = cluster(Scene("", pod("p"), limited(1, driver)))
    new = pod("p", disk)
    assert verdicts(made, new) == {"n1": ""}
    made.objects.put_volume(
        "x", replace(volume("x"), spec=PersistentVolumeSpec(csi=CSISource(driver, handle)))
    )
    made.objects.put_claim(("ns", "x"), claim("x", "x"))
    made.objects.put_csi_node("n1", limited(0, driver))
    assert verdicts(made, new) == {"n1": FULL}
    with_pods(made, (pod("a", "x"),), "n1")
    assert verdicts(made, new) == {"n1": ""}, "the same volume is there already"


def test_a_rejection_says_driver_and_numbers() -> None:
    made = cluster(Scene("", pod("p"), there=(pod("a", "c0", "c1"),)))
    cycle = cycle_of(pod("p", "c2"), made)
    plugin = NodeVolumeLimits()
    assert plugin.pre_filter(cycle) is None
    found = plugin.filter(cycle, made.node("n1"))
    assert found is not None and found.resolvable
    expected = f"{FULL}: CSI driver {DISK}: 2 of 2 volumes in use, 1 more requested"
    assert str(found.reasons[0]) == expected


# Counts by row, kept through all changes.


class Changing:
    """Nodes, pods, claims, volumes, classes, limits and attachments that come, change and go at random."""

    def __init__(self, seed: int) -> None:
        self.random, self.made = random.Random(seed), NodeCache()
        for number in range(4):
            self.made.put_node(f"n{number}", objects.node(f"n{number}"))
            self.made.objects.put_csi_node(f"n{number}", csi_node(f"n{number}", a=number, b=1))

    def step(self) -> None:
        chance, made = self.random, self.made
        number, node = chance.randrange(5), f"n{chance.randrange(4)}"
        there = chance.random() < 0.75
        match chance.randrange(9):
            case 0:
                made.put_node(node, objects.node(node) if there else None)
            case 1:
                limits = {"a": chance.choice((None, 0, 1, 2, 3)), "b": chance.choice((None, 1, 4))}
                made.objects.put_csi_node(node, csi_node(node, **limits) if there else None)
            case 2:
                one = volume(f"pv{number}", chance.choice("ab"))
                made.objects.put_volume(f"pv{number}", one if there else None)
            case 3 | 4:
                bound = chance.choice(("", f"pv{number}", f"pv{chance.randrange(5)}"))
                one = claim(f"c{number}", bound, chance.choice(("ca", "cb", "none")))
                made.objects.put_claim(one.key, one if there else None)
            case 5:
                name = chance.choice("ab")
                made.objects.put_class(f"c{name}", storage_class(f"c{name}", name) if there else None)
            case 6:
                one = attachment(f"at{number}", node, f"pv{chance.randrange(5)}", chance.choice("ab"))
                made.objects.put_attachment(f"at{number}", one if there else None)
            case _:
                self._pod(number, node, there=there)

    def _pod(self, number: int, node: str, *, there: bool) -> None:
        if there:
            claims = [f"c{self.random.randrange(5)}" for _ in range(self.random.randrange(1, 4))]
            self.made.put_pod(node, PodInfo.of(pod(f"p{number}", *claims, node=node)))
        else:
            self.made.drop_pod(f"uid-p{number}")


def test_counts_are_those_of_the_objects_after_any_changes() -> None:
    judged = rejected = 0
    for seed in range(30):
        changing = Changing(seed)
        for _ in range(100):
            changing.step()
            names = [f"c{changing.random.randrange(5)}" for _ in range(changing.random.randrange(1, 4))]
            found = verdicts(changing.made, pod("new", *names))
            judged, rejected = judged + len(found), rejected + sum(one == FULL for one in found.values())
    assert judged > 5 * rejected > 500


def test_nothing_is_kept_of_pods_and_attachments_that_are_gone() -> None:
    scene = Scene(
        "", pod("p"), there=(pod("a", "c0", "w0", AWS),), attachments=(attachment("a", "n1", "pv1"),)
    )
    made = cluster(scene)
    uses = made.objects.uses
    made.drop_pod("uid-a")
    made.objects.put_attachment("a", None)
    assert not (uses._rows or uses._users or uses._users_of_claim)
    assert not (uses._attachments or uses._attachments_of_node or uses._attachments_of_volume)
    assert not any(map(np.any, uses._used.values()))


# In the scheduler.


LIMIT = limited(1)
THERE = pod("there", "c0", node="n1")


@pytest.fixture
def lab() -> CoreLab:
    """A node that can have one volume, which a pod there has."""
    lab = CoreLab()
    for listed in (*CLASSES, *CLAIMS, *VOLUMES):
        lab.tell(ObjectChanged(0, None, listed))
    lab.has("n1")
    lab.tell(ObjectChanged(0, None, LIMIT))
    lab.seen(THERE)
    return lab


WAITING = pod("p", "c1")


@pytest.mark.parametrize("what", ["limit", "no limit", "no CSINode", "pod", "attachment", "node"])
def test_a_pod_waits_until_a_node_can_have_its_volumes(lab: CoreLab, what: str) -> None:
    attached = attachment("at", "n1", "pv0")
    lab.tell(ObjectChanged(0, None, attached))
    assert FULL in message(lab.place(WAITING))
    assert lab.bound(seconds=20) == []
    match what:
        case "limit":
            lab.tell(ObjectChanged(lab.now, LIMIT, limited(2)))
        case "no limit":
            lab.tell(ObjectChanged(lab.now, LIMIT, limited(None)))
        case "no CSINode":
            lab.tell(ObjectChanged(lab.now, LIMIT, None))
        case "pod" | "attachment":
            lab.delete(THERE)
            assert lab.bound(seconds=20) == [], "the volume is attached"
            lab.tell(ObjectChanged(lab.now, attached, None))
        case "node":
            lab.has("n2")
    assert lab.bound(seconds=20) == ["n2" if what == "node" else "n1"]


def test_heartbeats_of_a_csinode_wake_no_pod(lab: CoreLab) -> None:
    lab.place(WAITING)
    for new in (LIMIT, limited(0)):
        lab.tell(ObjectChanged(lab.now, LIMIT, new))
        assert lab.run(20) == []


def test_the_pod_waits_with_the_reason_where_limits_cannot_be_watched(lab: CoreLab) -> None:
    lab.tell(Unwatched(0, "csinodes", "forbidden"))
    assert "csinodes cannot be watched: forbidden" in message(lab.place(WAITING))
    lab.tell(Unwatched(lab.now, "csinodes", ""))
    lab.tell(ObjectChanged(lab.now, LIMIT, limited(3)))
    assert lab.bound(seconds=20) == ["n1"]


def test_what_is_claimed_counts_before_its_binding(lab: CoreLab) -> None:
    lab.tell(ObjectChanged(0, LIMIT, limited(2)))
    done = lab.place(WAITING, pod("q", "c2"))
    assert names(done) == ["p"]
    assert [condition.pod.metadata.name for condition in conditions(done)] == ["q"]


@pytest.mark.parametrize(
    ("change", "helps"),
    [
        (ClusterChange(ChangeKind.CSI_NODE, "", None, limited(1)), True),
        (ClusterChange(ChangeKind.CSI_NODE, "", limited(1), limited(2)), True),
        (ClusterChange(ChangeKind.CSI_NODE, "", limited(1, EBS), limited(1)), True),
        (ClusterChange(ChangeKind.CSI_NODE, "", limited(2), limited(2)), False),
        (ClusterChange(ChangeKind.CSI_NODE, "", limited(2), limited(1)), False),
        (ClusterChange(ChangeKind.POD_REMOVED, "", PodInfo.of(pod("a"))), False),
        (ClusterChange(ChangeKind.POD_REMOVED, "", PodInfo.of(pod("a", "c0"))), True),
        (ClusterChange(ChangeKind.POD_REMOVED, "", PodInfo.of(pod("a", AWS))), True),
        (ClusterChange(ChangeKind.CLAIM, "", None, claim("c0")), True),
        (ClusterChange(ChangeKind.CLAIM, "", None, claim("c1")), False),
        (ClusterChange(ChangeKind.VOLUME, "", None, volume("0")), True),
        (ClusterChange(ChangeKind.VOLUME, "", volume("0"), volume("0")), False),
        (ClusterChange(ChangeKind.VOLUME_ATTACHMENT, "", None, attachment("a", "n1", "pv0")), False),
        (ClusterChange(ChangeKind.VOLUME_ATTACHMENT, "", attachment("a", "n1", "pv0"), None), True),
    ],
)
def test_hints(change: ClusterChange, *, helps: bool) -> None:
    hint = NodeVolumeLimits().hints()[change.kind]
    assert hint(PodInfo.of(pod("p", "c0")), change) is helps
