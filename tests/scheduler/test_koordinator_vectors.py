"""Verdicts and allocations on koordlet's nodes equal those of Koordinator's NodeNUMAResource (a7a1b76b).

Cases are random; the answers were recorded by running the plugin: PreFilter, Filter, Score and Reserve.
"""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from corelane import quantity
from corelane.kube import keys
from corelane.kube.objects import Node, NodeResourceTopology
from corelane.kube.pod import Pod
from corelane.scheduler.cache.node_kinds import NodeKind
from corelane.scheduler.events import CycleDue, NodeChanged, PodChanged, TopologyChanged
from corelane.scheduler.instructions import Bind, SetCondition
from corelane.scheduler.scheduling import SchedulerCore

VECTORS = Path(__file__).parent.parent / "data" / "koordinator_scheduler.jsonl.gz"


def cases() -> list[dict[str, Any]]:
    with gzip.open(VECTORS, "rt") as lines:
        return [json.loads(line) for line in lines]


def core_of(case: dict[str, Any]) -> SchedulerCore:
    core = SchedulerCore()
    core.handle(NodeChanged(0, None, msgspec.convert(case["node"], Node)))
    core.handle(TopologyChanged(0, None, msgspec.convert(case["nrt"], NodeResourceTopology)))
    for other in case["bound"]:
        core.handle(PodChanged(0, None, msgspec.convert(other, Pod)))
    node = core.cluster.get("n")
    assert node is not None
    assert node.cpus.kind is NodeKind.KOORDLET, node.problem
    return core


def placed(case: dict[str, Any]) -> tuple[Bind | None, str]:
    core = core_of(case)
    pod = msgspec.convert(case["pod"], Pod)
    core.handle(PodChanged(0, None, replace(pod, spec=replace(pod.spec, scheduler_name=core.name))))
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
        fits = answer["verdict"] == "Success" and answer.get("reserve", "Success") == "Success"
        if answer["verdict"] == "Success" and not fits:
            verdicts["passes Filter, fails in Reserve"] += 1
            continue  # Such a pod may run here, without amounts by NUMA node; see docs/scheduler.md.
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
