"""Numbers of volumes and free storage against the recorded answers of kube-scheduler's plugins."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corelane.kube.objects import Node
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
from corelane.reasons import sentence
from corelane.scheduler.cluster.nodes import NodeCache
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.framework.plugin import Cycle, Rejection, Skip
from corelane.scheduler.plugins.node_volume_limits import NodeVolumeLimits
from corelane.scheduler.plugins.volume_binding import VolumeBinding
from support.kube_scheduler.replay import _read

FILE = Path(__file__).parents[1] / "data/kube_scheduler_volume_limits.jsonl.gz"
PLUGINS = (NodeVolumeLimits, VolumeBinding)


def recorded() -> list[dict[str, Any]]:
    with gzip.open(FILE, "rt") as lines:
        return [json.loads(line) for line in lines][1:]


def cluster(case: dict[str, Any]) -> NodeCache:
    made = NodeCache()
    for obj in case["nodes"]:
        made.put_node(obj["metadata"]["name"], _read(obj, Node))
    for obj in case.get("pods", []):
        one = _read(obj, Pod)
        made.put_pod(one.spec.node_name, PodInfo.of(one))
    by_key = (
        ("claims", PersistentVolumeClaim, made.objects.put_claim),
        ("capacities", CSIStorageCapacity, made.objects.put_capacity),
    )
    for name, kind, put in by_key:
        for obj in case.get(name, []):
            found = _read(obj, kind)
            put(found.key, found)
    by_name = (
        ("volumes", PersistentVolume, made.objects.put_volume),
        ("classes", StorageClass, made.objects.put_class),
        ("csi_nodes", CSINode, made.objects.put_csi_node),
        ("csi_drivers", CSIDriver, made.objects.put_csi_driver),
        ("attachments", VolumeAttachment, made.objects.put_attachment),
    )
    for name, kind, put in by_name:
        for obj in case.get(name, []):
            found = _read(obj, kind)
            put(found.metadata.name, found)
    return made


def told(rejection: Rejection | None) -> dict[str, Any] | None:
    if rejection is None:
        return None
    code = "Unschedulable" if rejection.resolvable else "UnschedulableAndUnresolvable"
    return {"code": code, "reasons": [sentence(one.reason) for one in rejection.reasons]}


def differences(case: dict[str, Any]) -> Iterator[str]:
    made, info, want = cluster(case), PodInfo.of(_read(case["pod"], Pod)), case["want"]
    for make in PLUGINS:
        plugin, cycle = make(), Cycle(info, cluster=made)
        first, early = plugin.pre_filter(cycle), want["prefilter"].get(plugin.name)
        if isinstance(first, Skip) or early is not None:
            answer = {"code": "Skip", "reasons": []} if isinstance(first, Skip) else told(first)
            if answer != early:
                yield f"{case['name']} {plugin.name}: {answer}, not {early}"
            continue
        assert first is None
        answers = want["filter"][plugin.name]
        for node in made.placeable():
            expected = answers.get(node.name)
            if expected is not None and expected["code"] == "Error":
                continue  # The attempt fails there; see the deliberate differences.
            answer = told(plugin.filter(cycle, node))
            if answer != expected:
                yield f"{case['name']} {plugin.name} on {node.name}: {answer}, not {expected}"
        rows = made.columns.live_rows()
        alone = [plugin.filter(cycle, made.node(made.columns.names[row])) is None for row in rows.tolist()]
        if not np.array_equal(plugin.feasible(cycle, made.columns, rows), alone):
            yield f"{case['name']} {plugin.name}: other answers over columns"


@pytest.mark.parametrize("part", range(8))
def test_answers_are_kube_schedulers(part: int) -> None:
    listed = [line for case in recorded()[part::8] for line in differences(case)]
    assert not listed, listed[:5]


def test_the_record_has_each_kind_of_answer() -> None:
    reasons = {
        reason
        for case in recorded()
        for answers in case["want"]["filter"].values()
        for one in answers.values()
        for reason in one["reasons"]
    }
    assert "node(s) exceed max volume count" in reasons
    assert "node(s) did not have enough free storage" in reasons
    assert "node(s) didn't match PersistentVolume's node affinity" in reasons
    assert any(one.startswith("looking up PVC") for one in reasons)
