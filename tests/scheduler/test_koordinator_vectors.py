"""Verdicts, allocations, scores and choices on koordlet's nodes equal Koordinator's (a7a1b76b).

Cases are random; the answers were recorded by running the plugin: PreFilter, Filter, Score and Reserve.
"""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from corelane import quantity
from corelane.kube import keys
from corelane.kube.pod import Pod
from corelane.scheduler.cluster.needs import needs_of
from corelane.scheduler.cluster.node_kinds import NodeKind
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.cycle import finalists
from corelane.scheduler.instructions import Bind
from corelane.scheduler.plugins.node_numa_resource import NodeNUMAResource
from corelane.scheduler.plugins.node_resources import CPUPlacement
from support.core_lab import CoreLab, binds, conditions, only_bind

DATA = Path(__file__).parent.parent / "data"
VECTORS = DATA / "koordinator_scheduler.jsonl.gz"
GROUPS = DATA / "koordinator_node_order.jsonl.gz"
"""Pods with up to four nodes each, and the answers for each node."""


def cases(path: Path = VECTORS) -> list[dict[str, Any]]:
    with gzip.open(path, "rt") as lines:
        return [json.loads(line) for line in lines]


def lab_of(*cases: dict[str, Any]) -> CoreLab:
    """Nodes called by their number."""
    lab = CoreLab()
    for number, case in enumerate(cases):
        lab.recorded(case, case["bound"], str(number))
        assert lab.node(str(number)).cpus.kind is NodeKind.KOORDLET, lab.node(str(number)).problem
    return lab


def succeeds(answer: dict[str, Any]) -> bool:
    return answer["verdict"] == "Success" and answer.get("reserve", "Success") == "Success"


def placed(case: dict[str, Any]) -> tuple[Bind | None, str]:
    done = lab_of(case).place(msgspec.convert(case["pod"], Pod))
    return next(iter(binds(done)), None), "".join(one.message for one in conditions(done))


def amounts(status: Any) -> dict[int, dict[str, int]]:
    return {
        part["node"]: {name: quantity.parse(str(text)).nano for name, text in part["resources"].items()}
        for part in status or ()
    }


def test_verdicts_cpus_and_amounts_are_upstreams() -> None:
    verdicts: Counter[str] = Counter()
    for case in cases():
        bound, told = placed(case)
        answer = case["answer"]
        fits = succeeds(answer)
        if answer["verdict"] == "Success" and not fits:
            verdicts["passes Filter, fails in Reserve"] += 1
            if "not enough cpus" in answer.get("message", ""):
                assert bound is None
                assert "not enough cpus available to satisfy request" in told
            # Such a pod may run here, without amounts by NUMA node:
            # docs/reference/scheduler-differences.md.
            continue
        verdicts["fits" if fits else "does not"] += 1
        assert bool(bound) == fits, (told, case)
        if bound is not None:
            status = json.loads(bound.annotations.get(keys.RESOURCE_STATUS, "{}"))
            assert status.get("cpuset", "") == answer.get("cpus", ""), case
            assert amounts(status.get("numaNodeResources")) == amounts(answer.get("numa")), case
    assert min(verdicts["fits"], verdicts["does not"]) > 100


def scored(case: dict[str, Any], pod: Any, plugin: NodeNUMAResource) -> tuple[float, float, bool]:
    """The plugin's score of one node, its score over columns, and whether a NUMA policy holds."""
    lab = lab_of(case)
    cluster, node = lab.core.cluster, lab.node("0")
    cycle, _, _ = finalists.begin(lab.core.profile, cluster, PodInfo.of(msgspec.convert(pod, Pod)))
    assert CPUPlacement().filter(cycle, node) is None
    columns = cluster.columns
    over_columns = plugin.scores(cycle, columns, np.array([node.row]))
    demand = needs_of(node.canonical, cycle.shape).demand
    assert demand is not None
    return plugin.score(cycle, node), float(over_columns[0]), bool(demand.numa)


def test_scores_are_upstreams() -> None:
    """Over columns too; with a NUMA policy these are estimates."""
    near = []
    for case in cases():
        if succeeds(case["answer"]) and case["answer"].get("stage") != "Skip":
            score, over_columns, aligned = scored(case, case["pod"], NodeNUMAResource())
            assert score == case["answer"]["score"], case
            assert aligned or over_columns == score, case
            near.append(over_columns == score)
    assert len(near) > 200
    assert sum(near) > 0.85 * len(near)


def test_pods_go_to_the_node_with_upstreams_best_score() -> None:
    others = []
    for number, group in enumerate(cases(GROUPS)):
        bound = only_bind(lab_of(*group["nodes"]).place(msgspec.convert(group["pod"], Pod)))
        answers = [case["answer"] for case in group["nodes"]]
        best = max(answer["score"] for answer in answers if succeeds(answer))
        chosen = answers[int(bound.node)]
        assert succeeds(chosen), group
        if chosen["score"] < best:
            others.append((number, best - chosen["score"]))
    assert len(others) <= 2, others


def test_scores_of_most_allocated_are_upstreams() -> None:
    plugin = NodeNUMAResource.of(scoringStrategy={"type": "MostAllocated"})
    count = 0
    for group in cases(GROUPS):
        for case in group["nodes"]:
            if succeeds(case["answer"]):
                score, over_columns, aligned = scored(case, group["pod"], plugin)
                assert score == case["answer"]["mostAllocated"], case
                assert aligned or over_columns == score, case
                count += 1
    assert count > 200
