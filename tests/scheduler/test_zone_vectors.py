"""Verdicts and scores on exporters' zones equal those of scheduler-plugins (903da7d), run on random cases."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any, get_args

import msgspec

from corelane.kube import translate
from corelane.kube.objects import NodeResourceTopology
from corelane.kube.pod import Pod
from corelane.kube.translate import exported_zones
from corelane.node.zones import alignment, scoring
from corelane.node.zones.zone_state import ZonesState, assume
from corelane.scheduler.plugins.node_resources import NodeResourcesFit
from corelane.workload.request import PodRequest
from support.core_lab import CoreLab, binds, conditions, cycle_of

VECTORS = Path(__file__).parent.parent / "data" / "scheduler_plugins_nrt.jsonl.gz"


def cases() -> list[dict[str, Any]]:
    with gzip.open(VECTORS, "rt") as lines:
        return [json.loads(line) for line in lines]


def request(obj: object) -> PodRequest:
    return translate.request(msgspec.convert(obj, Pod))


def state(case: dict[str, Any]) -> ZonesState:
    known = exported_zones.zones_state(msgspec.convert(case["nrt"], NodeResourceTopology))
    for pod in map(request, case["assumed"]):
        known = assume(known, pod.uid, alignment.effective(pod))
    return known


def test_verdicts_and_messages_are_upstreams() -> None:
    verdicts: Counter[str] = Counter()
    for case in cases():
        _, decision = alignment.admit(state(case), request(case["pod"]))
        answer = case["answer"]
        verdicts[answer["verdict"]] += 1
        assert decision.admitted == (answer["verdict"] == "Success"), case
        told = f"cannot align {decision.refusal.values[0]}" if decision.refusal else ""
        assert told == answer.get("message", ""), case
    assert min(verdicts["Success"], verdicts["Unschedulable"]) > 300


def test_scores_are_upstreams() -> None:
    for case in cases():
        known, pod = state(case), request(case["pod"])
        for strategy in get_args(scoring.Strategy):
            ours = scoring.score(known, pod, strategy, case["weights"])
            assert ours == case["answer"]["scores"][strategy], (strategy, case)


def test_pods_go_to_the_node_with_upstreams_best_score() -> None:
    """Of four nodes; those whose totals are too small do not count."""
    differing = best = 0
    for group in zip(*[iter(cases())] * 4, strict=False):
        lab, request_of = CoreLab(), request(group[0]["pod"])
        scores: dict[str, int] = {}
        for number, case in enumerate(group):
            name, known = str(number), state(case)
            lab.recorded(case, case["assumed"], name)
            if alignment.admit(known, request_of)[1].admitted:
                scores[name] = scoring.score(known, request_of, "LeastAllocated")
        pod = msgspec.convert(group[0]["pod"], Pod)
        cycle = cycle_of(pod, lab.core.cluster)
        fitting = [name for name in scores if NodeResourcesFit().filter(cycle, lab.node(name)) is None]
        bound = lab.bound(pod)
        assert bool(bound) == bool(fitting), group
        if len({scores[name] for name in fitting}) > 1:
            differing += 1
            best += scores[bound[0]] == max(scores[name] for name in fitting)
    assert differing > 50
    assert best >= 0.97 * differing


def test_the_whole_scheduler_gives_upstreams_verdicts() -> None:
    """Columns, shapes and canonical states included."""
    for case in cases()[::4]:
        lab = CoreLab()
        lab.recorded(case, case["assumed"])
        done = lab.place(msgspec.convert(case["pod"], Pod))
        told = "".join(condition.message for condition in conditions(done))
        assert bool(binds(done)) == (case["answer"]["verdict"] == "Success"), (told, case)
        assert case["answer"].get("message", "") in told or "Insufficient" in told
