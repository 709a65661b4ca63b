"""Each plugin on its own against the recorded answers of kube-scheduler's plugin of the same name."""

import gzip
import json
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import numpy as np
import pytest

from corelane.kube.decode import without_nulls
from corelane.kube.objects import Namespace, Node, Service
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
from corelane.scheduler.cluster.nodes import NodeCache
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.framework.plugin import Cycle, Rejection, Skip
from corelane.scheduler.plugins.inter_pod_affinity import InterPodAffinity
from corelane.scheduler.plugins.node_affinity import NodeAffinity
from corelane.scheduler.plugins.node_resources import NodeResourcesFit
from corelane.scheduler.plugins.simple import (
    ImageLocality,
    NodeName,
    NodePorts,
    NodeUnschedulable,
    TaintToleration,
)
from corelane.scheduler.plugins.topology_spread import PodTopologySpread
from corelane.scheduler.plugins.volume_binding import VolumeBinding
from corelane.scheduler.plugins.volume_filters import NodeVolumeLimits, VolumeRestrictions, VolumeZone
from support.kube_scheduler import replay
from support.plugin_answers import rejections, told

PLUGINS = (
    NodeUnschedulable,
    NodeName,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    VolumeRestrictions,
    VolumeBinding,
    VolumeZone,
    PodTopologySpread,
    InterPodAffinity,
)
SCORES = (TaintToleration, NodeAffinity, PodTopologySpread, InterPodAffinity, ImageLocality)
FAMILIES = (
    "node_affinity",
    "taints",
    "resources",
    "ports",
    "inter_pod_affinity",
    "topology_spread",
    "images",
    "volumes",
    "mixed",
)


def read(obj: dict[str, Any], kind: type[Any]) -> Any:
    return msgspec.json.decode(json.dumps(without_nulls(obj)), type=kind)


def cluster(case: dict[str, Any]) -> NodeCache:
    cache = NodeCache()
    of = cache.objects
    kinds = {
        "nodes": (Node, cache.put_node),
        "namespaces": (Namespace, of.put_namespace),
        "claims": (PersistentVolumeClaim, of.put_claim),
        "services": (Service, of.put_service),
        "capacities": (CSIStorageCapacity, of.put_capacity),
        "volumes": (PersistentVolume, of.put_volume),
        "classes": (StorageClass, of.put_class),
        "csi_nodes": (CSINode, of.put_csi_node),
        "csi_drivers": (CSIDriver, of.put_csi_driver),
        "attachments": (VolumeAttachment, of.put_attachment),
    }
    for key, (kind, put) in kinds.items():
        for obj in case.get(key, []):
            one = read(obj, kind)
            put(one.key if key in {"claims", "services", "capacities"} else one.metadata.name, one)
    for obj in case.get("pods", []):
        pod = read(obj, Pod)
        cache.put_pod(pod.spec.node_name, PodInfo.of(pod))
    return cache


def differences(case: dict[str, Any], plugins: Iterable[type[Any]] = PLUGINS) -> Iterator[str]:
    cache, want = cluster(case), case["want"]
    info = PodInfo.of(read(case["pod"], Pod))
    for make in plugins:
        plugin, cycle = make(), Cycle(info, info.shape, cluster=cache)
        first = plugin.pre_filter(cycle) if hasattr(plugin, "pre_filter") else None
        early = want["prefilter"].get(plugin.name, {})
        expected = None if early.get("code", "Success") == "Success" else early
        got = told(first) if isinstance(first, Rejection) else None
        if got != expected:
            yield f"{plugin.name}: prefilter {got}, not {expected}"
        if got or expected:
            continue
        rejected = {} if isinstance(first, Skip) else rejections(plugin, cycle, cache)
        for node in cache.placeable():
            answer = told(rejected.get(node.name))
            expected = _sorted(want["filter"].get(node.name, {}).get(plugin.name))
            if answer != expected and not _left_out(early, node.name, answer):
                yield f"{plugin.name} on {node.name}: {answer}, not {expected}"


def _sorted(answer: dict[str, Any] | None) -> dict[str, Any] | None:
    return answer and answer | {"reasons": sorted(answer["reasons"])}


def _left_out(early: dict[str, Any], node: str, answer: dict[str, Any] | None) -> bool:
    """Nodes that no term names are rejected as kube-scheduler's cycle words it, not its plugin."""
    words = ["node(s) didn't satisfy plugin(s) [NodeAffinity]"]
    return (
        "nodes" in early and node not in early["nodes"] and answer is not None and answer["reasons"] == words
    )


def _scores(case: dict[str, Any]) -> Iterator[str]:
    cache, info = cluster(case), PodInfo.of(read(case["pod"], Pod))
    nodes = [cache.get(name) for name in case["want"]["feasible"]]
    if len(nodes) < 2:
        return  # kube-scheduler does not score a single node.
    for make in SCORES:
        plugin, cycle = make(), Cycle(info, info.shape, cluster=cache)
        expected = case["want"]["scores"].get(plugin.name)
        skipped = hasattr(plugin, "pre_score") and isinstance(plugin.pre_score(cycle, nodes), Skip)
        if skipped:
            if expected and len(set(expected.values())) > 1:
                yield f"{plugin.name}: skipped, not {expected}"
            continue
        scores = np.array([plugin.score(cycle, node) for node in nodes])
        rows = np.array([node.row for node in nodes], np.intp)
        if (
            hasattr(plugin, "scores")
            and plugin.scores(cycle, cache.columns, rows).tolist() != scores.tolist()
        ):
            yield f"{plugin.name}: scores {plugin.scores(cycle, cache.columns, rows)}, one by one {scores}"
        if hasattr(plugin, "normalize"):
            scores = plugin.normalize(cycle, scores)
        got = {node.name: int(score) for node, score in zip(nodes, scores.tolist(), strict=True)}
        if expected is not None and got != expected:
            yield f"{plugin.name}: scores {got}, not {expected}"
        if expected is None and len(set(got.values())) > 1:
            yield f"{plugin.name}: scores {got}, but kube-scheduler skips"
    yield from _scores_of_amounts(case, cache, info)


def _scores_of_amounts(case: dict[str, Any], cache: NodeCache, info: PodInfo) -> Iterator[str]:
    """kube-scheduler rounds down by resource and in the end: less than a point and a half in all.

    It does not look at pod-level requests of the pod to be placed, though its filter does.
    """
    if "resources" in case["pod"]["spec"]:
        return
    plugin, cycle = NodeResourcesFit(), Cycle(info, info.shape, cluster=cache)
    cache.settle()
    for name, expected in case["want"]["scores"][plugin.name].items():
        node = cache.get(name)
        assert node is not None
        score = plugin.score(cycle, node)
        if not -1e-9 <= score - expected < 1.5:
            yield f"{plugin.name} on {name}: {score}, not {expected}"
        (column,) = plugin.scores(cycle, cache.columns, np.array([node.row], np.intp))
        (kind,) = cache.columns.kinds.of(cache.columns, [node.row])
        if not np.allclose((column, plugin.score_of_kind(cycle, kind)), score):
            yield f"{plugin.name} on {name}: {column} over columns, not {score}"


@pytest.mark.parametrize("family", FAMILIES)
def test_plugins_answer_as_kube_schedulers(family: str) -> None:
    wrong = []
    for case in replay.recorded(replay.FILE, family):
        wrong += [f"{case['name']}: {one}" for one in (*differences(case), *_scores(case))]
    assert wrong == []


def limits() -> list[dict[str, Any]]:
    """Numbers of volumes, and free storage."""
    with gzip.open(replay.FILE.with_name("kube_scheduler_volume_limits.jsonl.gz"), "rt") as lines:
        return [json.loads(line) for line in lines][1:]


@pytest.mark.parametrize("part", range(8))
def test_volume_limits_and_free_storage_are_kube_schedulers(part: int) -> None:
    wrong = []
    for case in limits()[part::8]:
        by_node: dict[str, dict[str, Any]] = {node["metadata"]["name"]: {} for node in case["nodes"]}
        for plugin, answers in case["want"]["filter"].items():
            for node, answer in answers.items():
                by_node[node][plugin] = answer
        case["want"]["filter"] = by_node
        wrong += [f"{case['name']}: {one}" for one in differences(case, (NodeVolumeLimits, VolumeBinding))]
    assert wrong == []


def test_the_record_of_volume_limits_has_each_kind_of_answer() -> None:
    of_plugins = [of_plugin for case in limits() for of_plugin in case["want"]["filter"].values()]
    answers = [answer for of_plugin in of_plugins for answer in of_plugin.values()]
    reasons = {reason for answer in answers for reason in answer["reasons"]}
    assert "node(s) exceed max volume count" in reasons
    assert "node(s) did not have enough free storage" in reasons
    assert "node(s) didn't match PersistentVolume's node affinity" in reasons
    assert any(one.startswith("looking up PVC") for one in reasons)
