"""Each plugin on its own against the recorded answers of kube-scheduler's plugin of the same name."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from corelane.kube.decode import without_nulls
from corelane.kube.objects import Namespace, Node, Service
from corelane.kube.pod import Pod
from corelane.kube.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from corelane.reasons import sentence
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
from corelane.scheduler.plugins.volume_restrictions import VolumeRestrictions
from corelane.scheduler.plugins.volume_zone import VolumeZone
from support.kube_scheduler import replay

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
    for obj in case["nodes"]:
        cache.put_node(obj["metadata"]["name"], read(obj, Node))
    for obj in case.get("namespaces", []):
        cache.objects.put_namespace(obj["metadata"]["name"], read(obj, Namespace))
    for key, kind, put in (
        ("claims", PersistentVolumeClaim, cache.objects.put_claim),
        ("services", Service, cache.objects.put_service),
    ):
        for obj in case.get(key, []):
            one = read(obj, kind)
            put(one.key, one)
    for obj in case.get("volumes", []):
        cache.objects.put_volume(obj["metadata"]["name"], read(obj, PersistentVolume))
    for obj in case.get("classes", []):
        cache.objects.put_class(obj["metadata"]["name"], read(obj, StorageClass))
    for obj in case.get("pods", []):
        pod = read(obj, Pod)
        cache.put_pod(pod.spec.node_name, PodInfo.of(pod))
    return cache


def told(rejection: Rejection | None) -> dict[str, Any] | None:
    if rejection is None:
        return None
    code = "Unschedulable" if rejection.resolvable else "UnschedulableAndUnresolvable"
    return {"code": code, "reasons": sorted(sentence(one.reason) for one in rejection.reasons)}


def differences(case: dict[str, Any]) -> Iterator[str]:
    cache, want = cluster(case), case["want"]
    info = PodInfo.of(read(case["pod"], Pod))
    for make in PLUGINS:
        plugin, cycle = make(), Cycle(info, cluster=cache)
        first = plugin.pre_filter(cycle) if hasattr(plugin, "pre_filter") else None
        early = want["prefilter"].get(plugin.name, {})
        expected = None if early.get("code", "Success") == "Success" else early
        got = told(first) if isinstance(first, Rejection) else None
        if got != expected:
            yield f"{plugin.name}: prefilter {got}, not {expected}"
        if got or expected:
            continue
        for node in cache.placeable():
            answer = None if isinstance(first, Skip) else told(plugin.filter(cycle, node))
            expected = _sorted(want["filter"].get(node.name, {}).get(plugin.name))
            if answer != expected and not _left_out(early, node.name, answer):
                yield f"{plugin.name} on {node.name}: {answer}, not {expected}"
        if not isinstance(first, Skip) and hasattr(plugin, "feasible"):
            yield from _vectorised(plugin, cycle, cache)
    yield from _scores(case, cache, info)


def _sorted(answer: dict[str, Any] | None) -> dict[str, Any] | None:
    """Amounts that a node lacks come in the order of a Go map."""
    return answer and answer | {"reasons": sorted(answer["reasons"])}


def _left_out(early: dict[str, Any], node: str, answer: dict[str, Any] | None) -> bool:
    """Nodes that no term names are rejected as kube-scheduler's cycle words it, not its plugin."""
    words = ["node(s) didn't satisfy plugin(s) [NodeAffinity]"]
    return (
        "nodes" in early and node not in early["nodes"] and answer is not None and answer["reasons"] == words
    )


def _vectorised(plugin: Any, cycle: Cycle, cache: NodeCache) -> Iterator[str]:
    nodes = list(cache.placeable())
    rows = np.array([node.row for node in nodes], np.intp)
    one_by_one = [plugin.filter(cycle, node) for node in nodes]
    feasible = plugin.feasible(cycle, cache.columns, rows).tolist()
    if feasible != [answer is None for answer in one_by_one]:
        yield f"{plugin.name}: feasible {feasible}, one by one {one_by_one}"
    if not hasattr(plugin, "rejections"):
        return
    rejected = rows[~np.array(feasible, np.bool_)]
    groups = plugin.rejections(cycle, cache.columns, rejected)
    grouped = {row: rejection for rejection, of in groups for row in of.tolist()}
    if grouped != {node.row: answer for node, answer in zip(nodes, one_by_one, strict=True) if answer}:
        yield f"{plugin.name}: grouped {grouped}, one by one {one_by_one}"


def _scores(case: dict[str, Any], cache: NodeCache, info: PodInfo) -> Iterator[str]:
    nodes = [cache.get(name) for name in case["want"]["feasible"]]
    if len(nodes) < 2:
        return  # kube-scheduler does not score a single node.
    for make in SCORES:
        plugin, cycle = make(), Cycle(info, cluster=cache)
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
    plugin, cycle = NodeResourcesFit(), Cycle(info, cluster=cache)
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


def wrong(family: str, path: Path) -> list[str]:
    found = []
    for case in replay.recorded(path, family):
        found += [f"{case['name']}: {one}" for one in differences(case)]
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_plugins_answer_as_kube_schedulers(family: str) -> None:
    assert wrong(family, replay.FILE) == []
