"""Volume plugins judge all nodes at once as each alone, and choose volumes as upstream does."""

import random
from collections.abc import Iterable, Mapping

import pytest
from msgspec.structs import replace

from corelane import quantity
from corelane.kube.meta import ObjectMeta
from corelane.kube.objects import Node
from corelane.kube.pod import (
    AWSDisk,
    GCEDisk,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Volume,
)
from corelane.kube.selectors import LabelSelector, LabelSelectorRequirement
from corelane.kube.storage import (
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeStatus,
    VolumeNodeAffinity,
)
from corelane.kube.volumes import reaches
from corelane.scheduler.cluster.nodes import NodeCache
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.framework.plugin import Cycle, Skip
from corelane.scheduler.plugins.volume_binding import VolumeBinding
from corelane.scheduler.plugins.volume_filters import VolumeRestrictions, VolumeZone
from corelane.scheduler.plugins.volume_matching import ClaimOffers
from support import objects, storage_objects
from support.core_lab import cycle_of
from support.plugin_answers import rejections
from support.pods import guaranteed
from support.storage_objects import driver, pod, storage_class, took_over

NODES = 14
HOST = "kubernetes.io/hostname"
ZONES = (
    "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/zone",
    "topology.kubernetes.io/region",
)


def cluster(chance: random.Random) -> NodeCache:
    made = NodeCache()
    for number in range(NODES):
        labels = {HOST: f"n{number}"} if chance.random() < 0.9 else {}
        labels |= {key: f"z{chance.randrange(3)}" for key in ZONES if chance.random() < 0.5}
        made.put_node(f"n{number}", objects.node(f"n{number}", labels=labels))
    for name, provisioner in (("local", "kubernetes.io/no-provisioner"), ("made", "csi"), ("zoned", "csi")):
        zones = ("z0", "z1") if name == "zoned" else ()
        made.objects.put_class(name, storage_class(name, provisioner, *zones))
    if chance.random() < 0.6:
        publish_storage(chance, made)
    for number in range(NODES if chance.random() < 0.5 else 0):
        plugins = ("kubernetes.io/aws-ebs",) if chance.random() < 0.6 else ()
        made.objects.put_csi_node(f"n{number}", took_over(f"n{number}", *plugins))
    return made


def publish_storage(chance: random.Random, made: NodeCache) -> None:
    """Free storage of each class on one node, in a zone, or where some rules hold."""
    made.objects.put_csi_driver("csi", driver("csi", publishes=True))
    for number in range(chance.randrange(12)):
        rules = [
            LabelSelectorRequirement(ZONES[0], "In", ("z0", "z1")),
            LabelSelectorRequirement(ZONES[2], "Exists"),
            LabelSelectorRequirement(ZONES[1], "NotIn", ("z1",)),
            LabelSelectorRequirement(HOST, "DoesNotExist"),
            LabelSelectorRequirement(HOST, "Unknown"),
        ]
        topology = chance.choice(
            (
                LabelSelector({HOST: f"n{chance.randrange(NODES)}"}),
                LabelSelector({ZONES[0]: "z2"}),
                LabelSelector({}, tuple(chance.sample(rules, chance.randrange(3)))),
                None,
            )
        )
        one = CSIStorageCapacity(
            metadata=ObjectMeta(name=f"s{number}", namespace="ns"),
            storage_class_name=chance.choice(("made", "zoned")),
            node_topology=topology,
            capacity=chance.choice(("2Gi", "6Gi", "20Gi", None)),
            maximum_volume_size=chance.choice((None, None, "5Gi")),
        )
        made.objects.put_capacity(one.key, one)


def selector(chance: random.Random) -> NodeSelector | None:
    rules = [
        NodeSelectorRequirement(HOST, "In", (f"n{chance.randrange(NODES)}", f"n{chance.randrange(NODES)}")),
        NodeSelectorRequirement(ZONES[0], "In", (f"z{chance.randrange(4)}",)),
        NodeSelectorRequirement(HOST, "NotIn", (f"n{chance.randrange(NODES)}",)),
        NodeSelectorRequirement(ZONES[2], "Exists"),
        NodeSelectorRequirement("bad key!", "In", ("x",)),
    ]
    weights = (8, 4, 1, 1, 1)
    terms = tuple(
        NodeSelectorTerm(tuple(chance.choices(rules, weights, k=chance.choice((1, 1, 1, 2)))))
        for _ in range(chance.choice((1, 1, 1, 1, 2, 0)))
    )
    return NodeSelector(terms) if chance.random() < 0.95 else None


def volume(chance: random.Random, number: int) -> PersistentVolume:
    labels = {ZONES[chance.randrange(3)]: chance.choice(("z0", "z1__z2"))} if chance.random() < 0.3 else {}
    one = storage_objects.volume(
        f"v{number}",
        f"c{chance.randrange(4)}" if chance.random() < 0.15 else "",
        capacity={"storage": chance.choice(("1Gi", "5Gi", "9Gi", "9Gi"))},
        access_modes=("ReadWriteOnce",),
        storage_class_name=chance.choice(("local", "local", "made")),
        node_affinity=VolumeNodeAffinity(required=selector(chance)),
        aws_elastic_block_store=AWSDisk("vol-1") if chance.random() < 0.3 else None,
    )
    meta = replace(one.metadata, labels=labels, resource_version="1")
    status = PersistentVolumeStatus(phase=chance.choice(("Available", "Available", "Available", "Bound")))
    return replace(one, metadata=meta, status=status)


def claim(chance: random.Random, number: int, volumes: int) -> PersistentVolumeClaim:
    bound = f"v{chance.randrange(volumes + 1)}" if chance.random() < 0.4 else ""
    return storage_objects.claim(
        f"c{number}",
        bound,
        chance.choice(("local", "local", "local", "zoned", "made")),
        size=chance.choice(("1Gi", "4Gi", "8Gi")),
        node=f"n{chance.randrange(NODES)}" if not bound and chance.random() < 0.15 else "",
    )


def disk(chance: random.Random) -> Volume:
    return Volume(gce_persistent_disk=GCEDisk(pd_name=f"d{chance.randrange(3)}", read_only=False))


@pytest.mark.parametrize("seed", range(60))
def test_all_nodes_at_once_are_judged_as_each_alone(seed: int) -> None:
    chance = random.Random(seed)
    nodes, volumes = cluster(chance), chance.randrange(1, 25)
    for number in range(volumes):
        nodes.objects.put_volume(f"v{number}", volume(chance, number))
    for number in range(4):
        one = claim(chance, number, volumes)
        nodes.objects.put_claim(one.key, one)
    for number in range(6):
        name = f"n{chance.randrange(NODES)}"
        nodes.put_pod(name, PodInfo.of(pod(f"p{number}", disk(chance), node=name)))
    compared = 0
    for number in range(12):
        names = chance.sample(range(4), chance.randrange(1, 4))
        more = (disk(chance),) if chance.random() < 0.5 else ()
        info = PodInfo.of(pod(f"new{number}", *(f"c{one}" for one in names), *more))
        for plugin in (VolumeBinding(), VolumeZone(), VolumeRestrictions()):
            cycle = Cycle(info, info.shape, cluster=nodes)
            if plugin.pre_filter(cycle) is None:
                compared += 1
                rejections(plugin, cycle, nodes)
    assert compared


def upstream(
    volumes: Iterable[PersistentVolume], mine: PersistentVolumeClaim, node: Node, chosen: Mapping[str, object]
) -> PersistentVolume | None:
    """`FindMatchingVolume` one volume after the other."""
    least, best = quantity.value(str(mine.spec.resources.requests["storage"])), None
    for one in volumes:
        size = quantity.value(str(one.spec.capacity["storage"]))
        reference = one.spec.claim_ref
        for_it = reference is not None and (reference.namespace, reference.name) == mine.key
        if one.metadata.name in chosen or size < least or (reference is not None and not for_it):
            continue
        if one.spec.storage_class_name != mine.spec.storage_class_name:
            continue
        if for_it:
            return one if reaches(one, node) else None
        if one.status.phase == "Available" and reaches(one, node):
            key = size, one.metadata.name
            best = min(best, (*key, one)) if best else (*key, one)
    return best[2] if best else None


@pytest.mark.parametrize("seed", range(30))
def test_each_node_gets_the_smallest_volume_that_reaches_it(seed: int) -> None:
    chance = random.Random(seed)
    nodes = cluster(chance)
    volumes = [volume(chance, number) for number in range(25)]
    for one in volumes:
        nodes.objects.put_volume(one.metadata.name, one)
    for number in range(4):
        mine = claim(chance, number, 0)
        offers = ClaimOffers(nodes.objects).of(mine)
        chosen = {one.metadata.name: one for one in chance.sample(volumes, 5)}
        alone = []
        for info in nodes.placeable():
            assert info.node is not None
            alone.append(offers.on(info.node, {}) is not None)
            for without in ({}, chosen):
                found = offers.on(info.node, without)
                assert found is upstream(volumes, mine, info.node, without)
        live = nodes.columns.live_rows()
        assert offers.reached(nodes.columns, live).tolist() == alone


def test_a_pod_without_such_volumes_is_skipped() -> None:
    cycle = cycle_of(guaranteed("plain", "1"), cluster(random.Random(1)))
    for plugin in (VolumeBinding(), VolumeZone(), VolumeRestrictions()):
        assert isinstance(plugin.pre_filter(cycle), Skip)
    assert not cycle.state
