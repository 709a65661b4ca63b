"""Records made readable: sentences, the containers' CPUs with the reasons, and the allocator's own terms."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import reduce
from typing import Any, Final

from corelane.cpuset import CPUSet
from corelane.kube import translate
from corelane.node.explain import pod_explanation
from corelane.node.explain.json_values import json_value
from corelane.node.explain.pod_decision import (
    ContainerCPUs,
    CourseStep,
    NodeGroup,
    PodDecision,
    ScoreTerm,
    Source,
    Verdict,
)
from corelane.scheduler.cluster.node_kinds import NodeKind
from corelane.scheduler.explain.record import DecisionRing, Group, History, Record

_STEPS: Final = {
    "claimed": "CPUs claimed on node {0}, binding sent",
    "bound": "the API server accepted the binding",
    "bound-elsewhere": "bound to node {0} by another scheduler; the claim was released",
    "unknown": "the outcome of the binding is unknown, the claim stays: {0}",
    "conflict": "the API server refused the binding with a conflict, the pod is read, the claim stays: {0}",
    "throttled": "the API server postponed the binding, the claim stays: {0}",
    "waits": "the claim stays: {0}",
    "released": "binding failed, the claim was released: {0}",
    "vanished": "the pod was deleted while it was being bound; the claim was released",
    "nominated": "nominated for node {0} of lower priority evicted there",
    "permit-wait": "binding held by Permit plugin {0}",
    "permit-denied": "binding denied in Permit, the claim was released: {0}",
}
_OF_KIND: Final[Mapping[str, str]] = {
    NodeKind.ZONES: (
        "only NUMA zones are published: judged by amounts by NUMA node, without a promise; "
        "the kubelet there may still reject the pod"
    ),
    NodeKind.TOTALS: "no CPU topology is published: judged by totals, without a promise",
    NodeKind.KUBELET_REPLAY: (
        "the kubelet's CPU manager allocates the CPUs; "
        "the scheduler replays its algorithm and writes no CPU ids"
    ),
    NodeKind.DAMAGED: "an invalid CPU topology is published: judged by totals, without a promise",
}
_NAMED: Final = 3
"""Names in a note about several nodes."""
_NOT_COMPARED: Final = (
    "many pods were placed at that time: the scores and the other nodes of this decision were not recorded"
)
_NO_TERMS: Final = "the allocator's own terms are kept for the latest decisions only"


def decisions(ring: DecisionRing, namespace: str, name: str) -> list[dict[str, Any]]:
    """Return for JSON what the ring has of the pods of this name, the latest first; [] for none."""
    return [json_value(decision(one)) for one in ring.of(namespace, name)]


def titles(ring: DecisionRing, count: int = 1000) -> list[dict[str, Any]]:
    """Return for JSON the pods decided on most recently: name, time and verdict."""
    return [
        {
            "namespace": one.namespace,
            "name": one.name,
            "uid": one.uid,
            "time": rfc3339(one.last.time),
            "verdict": verdict(one).value,
            "node": one.last.node,
        }
        for one in ring.latest(count)
    ]


def decision(history: History) -> PodDecision:
    """Return the latest decision about a pod as it was taken."""
    made, notes = history.last, []
    if not made.detailed:
        notes = [_NOT_COMPARED]
    elif made.assignments and made.before is None:
        notes = [_NO_TERMS]
    course = [CourseStep(rfc3339(time), step, _STEPS[step].format(text)) for time, step, text in made.course]
    if history.ended:
        course.append(CourseStep(rfc3339(history.ended), "ended", "the pod ended or was deleted"))
    return PodDecision(
        history.namespace,
        history.name,
        history.uid,
        Source.RECORDED,
        rfc3339(made.time),
        verdict(history),
        message(made),
        scheduler=history.scheduler,
        course=tuple(course),
        notes=(*notes, *of_kinds([(made.node, made.kind)])),
        **parts(made),
    )


def parts(made: Record) -> dict[str, Any]:
    """Return the members of a PodDecision that follow from the attempt alone."""
    reasons, assigned = translate.placement_reasons(made.annotations), made.assignments
    names = [*assigned, *(name for name in reasons if name not in assigned)]
    cpus, objective = reduce(CPUSet.__or__, assigned.values(), CPUSet()), None
    if cpus and made.before is not None and made.request is not None and made.before.config.policy == "pools":
        objective = pod_explanation.objective(made.before, made.request, cpus)
    return {
        "node": made.node,
        "kind": made.kind,
        "nodes": made.nodes,
        "feasible": made.feasible,
        "attempt": made.attempt,
        "sequence": made.number,
        "generation": made.generation,
        "groups": tuple(map(_group, made.groups)),
        "candidates": made.candidates,
        "totals": made.totals,
        "terms": tuple(ScoreTerm(*term) for term in made.terms),
        "containers": tuple(
            ContainerCPUs(name, assigned.get(name, CPUSet()), why=reasons.get(name, "")) for name in names
        ),
        "objective": objective,
    }


def verdict(history: History) -> Verdict:
    """Return what became of a pod."""
    if history.ended:
        return Verdict.ENDED
    if not history.last.node:
        return Verdict.UNSCHEDULABLE
    steps = [step for _, step, _ in history.last.course]
    if steps and steps[-1] == "permit-denied":
        return Verdict.UNSCHEDULABLE
    return Verdict.BOUND if steps and steps[-1].startswith("bound") else Verdict.BINDING


def message(made: Record) -> str:
    """Return the outcome of an attempt in one line."""
    if not made.node:
        return f"0/{made.nodes} nodes are available"
    if not made.detailed:
        return f"node {made.node}"
    return f"node {made.node}: best of {made.feasible} that fit, of {made.nodes} nodes"


def of_kinds(nodes: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield what to know about the answers of nodes, given by name and kind: a line for each kind."""
    names: dict[str, list[str]] = {}
    for name, kind in nodes:
        names.setdefault(kind, []).append(name)
    for kind, text in _OF_KIND.items():
        listed = sorted(names.get(kind, ()))
        if len(listed) == 1:
            yield f"node {listed[0]}: {text}"
        elif listed:
            more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
            yield f"{len(listed)} nodes ({', '.join(listed[:_NAMED])}{more}): {text}"


def _group(group: Group) -> NodeGroup:
    reason = group.reason
    code = reason.reason.code.value if reason else ""
    unknown = f"reasons of {group.plugin} not recorded" if group.plugin else "other reasons"
    message = str(reason) if reason else unknown
    return NodeGroup(group.plugin, code, message, group.count, group.names, group.resolvable)


def rfc3339(seconds: float) -> str:
    """Return a time in seconds since the epoch as RFC 3339 in UTC, whole seconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
