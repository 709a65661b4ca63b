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
from msgspec.structs import replace

from corelane import quantity
from corelane.kube import keys
from corelane.kube.objects import Node, NodeResourceTopology
from corelane.kube.pod import Pod
from corelane.scheduler.cluster.needs import needs_of
from corelane.scheduler.cluster.node_kinds import NodeKind
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.core import SchedulerCore
from corelane.scheduler.cycle import finalists
from corelane.scheduler.events import CycleDue, NodeChanged, PodChanged, TopologyChanged
from corelane.scheduler.instructions import Bind, SetCondition
from corelane.scheduler.plugins import default
from corelane.scheduler.plugins.cpus import CPUPlacement
from corelane.scheduler.plugins.node_numa_resource import NodeNUMAResource

DATA = Path(__file__).parent.parent / "data"
VECTORS = DATA / "koordinator_scheduler.jsonl.gz"
GROUPS = DATA / "koordinator_node_order.jsonl.gz"
"""Pods with up to four nodes each, and the answers for each node."""


def cases(path: Path = VECTORS) -> list[dict[str, Any]]:
    with gzip.open(path, "rt") as lines:
        return [json.loads(line) for line in lines]


def add_node(core: SchedulerCore, case: dict[str, Any], name: str = "n") -> None:
    node, nrt = msgspec.convert(case["node"], Node), msgspec.convert(case["nrt"], NodeResourceTopology)
    core.handle(NodeChanged(0, None, replace(node, metadata=replace(node.metadata, name=name))))
    core.handle(TopologyChanged(0, None, replace(nrt, metadata=replace(nrt.metadata, name=name))))
    for other in case["bound"]:
        pod = msgspec.convert(other, Pod)
        unique = f"{name}-{pod.metadata.uid}"
        meta = replace(pod.metadata, name=unique, uid=unique)
        core.handle(PodChanged(0, None, replace(pod, metadata=meta, spec=replace(pod.spec, node_name=name))))
    info = core.cluster.get(name)
    assert info is not None
    assert info.cpus.kind is NodeKind.KOORDLET, info.problem


def core_of(case: dict[str, Any]) -> SchedulerCore:
    core = SchedulerCore()
    add_node(core, case)
    return core


def pod_of(case: dict[str, Any], core: SchedulerCore) -> Pod:
    pod = msgspec.convert(case["pod"], Pod)
    return replace(pod, spec=replace(pod.spec, scheduler_name=core.name))


def succeeds(answer: dict[str, Any]) -> bool:
    return answer["verdict"] == "Success" and answer.get("reserve", "Success") == "Success"


def placed(case: dict[str, Any]) -> tuple[Bind | None, str]:
    core = core_of(case)
    core.handle(PodChanged(0, None, pod_of(case, core)))
    done = core.handle(CycleDue(0))
    bound = next((one for one in done if isinstance(one, Bind)), None)
    return bound, next((one.message for one in done if isinstance(one, SetCondition)), "")


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


def test_no_pod_is_placed_where_too_few_cpus_are_left() -> None:
    for case in cases():
        answer = case["answer"]
        if answer["verdict"] == "Success" and "not enough cpus" in answer.get("message", ""):
            bound, told = placed(case)
            assert bound is None
            assert "not enough cpus available to satisfy request" in told


def scored(
    core: SchedulerCore, pod: Pod, name: str, plugin: NodeNUMAResource | None = None
) -> tuple[float, float, bool]:
    """The plugin's score of one node, its score over columns, and whether a NUMA policy holds."""
    cycle, _, _ = finalists.begin(default.profile(), core.cluster, PodInfo.of(pod))
    node = core.cluster.get(name)
    assert node is not None
    assert CPUPlacement().filter(cycle, node) is None
    plugin, columns = plugin or NodeNUMAResource(), core.cluster.columns
    over_columns = plugin.scores(cycle, columns, np.array([node.row]))
    demand = needs_of(node.canonical, cycle.shape).demand
    assert demand is not None
    return plugin.score(cycle, node), float(over_columns[0]), bool(demand.numa)


def test_scores_are_upstreams() -> None:
    """Over columns too; with a NUMA policy these are estimates."""
    near = []
    for case in cases():
        if succeeds(case["answer"]) and case["answer"].get("stage") != "Skip":
            core = core_of(case)
            score, over_columns, aligned = scored(core, pod_of(case, core), "n")
            assert score == case["answer"]["score"], case
            assert aligned or over_columns == score, case
            near.append(over_columns == score)
    assert len(near) > 200
    assert sum(near) > 0.85 * len(near)


def test_pods_go_to_the_node_with_upstreams_best_score() -> None:
    others = []
    for number, group in enumerate(cases(GROUPS)):
        core = SchedulerCore()
        for index, case in enumerate(group["nodes"]):
            add_node(core, case, str(index))
        core.handle(PodChanged(0, None, pod_of(group, core)))
        bound = next(one for one in core.handle(CycleDue(0)) if isinstance(one, Bind))
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
                core = core_of(case)
                score, over_columns, aligned = scored(core, pod_of(group, core), "n", plugin)
                assert score == case["answer"]["mostAllocated"], case
                assert aligned or over_columns == score, case
                count += 1
    assert count > 200
