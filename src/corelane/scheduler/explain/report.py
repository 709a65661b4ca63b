"""Records made readable: sentences, the containers' CPUs with the reasons, and the allocator's own terms."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
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
from corelane.node.explain.pod_explanation import Objective
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
    made = history.last
    state = verdict(history)
    return PodDecision(
        history.namespace,
        history.name,
        history.uid,
        Source.RECORDED,
        rfc3339(made.time),
        state,
        message(made),
        scheduler=history.scheduler,
        course=tuple(_course(history)),
        notes=tuple(_notes(made)),
        **parts(made),
    )


def parts(made: Record) -> dict[str, Any]:
    """Return the members of a PodDecision that follow from the attempt alone."""
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
        "containers": tuple(_containers(made.assignments, made.annotations)),
        "objective": _objective(made),
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


def _notes(made: Record) -> Iterator[str]:
    if not made.detailed:
        yield _NOT_COMPARED
    elif made.assignments and made.before is None:
        yield _NO_TERMS
    yield from of_kind(made)


def of_kind(made: Record) -> Iterator[str]:
    """Yield what to know about the answers of the chosen node, by its kind."""
    yield from of_kinds([(made.node, made.kind)])


def of_kinds(nodes: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield the same for many nodes, given by name and kind: one line for each kind, with the first names."""
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


def _containers(assignments: Mapping[str, CPUSet], annotations: Mapping[str, str]) -> Iterator[ContainerCPUs]:
    reasons = translate.placement_reasons(annotations)
    for name in [*assignments, *(name for name in reasons if name not in assignments)]:
        yield ContainerCPUs(name, assignments.get(name, CPUSet()), why=reasons.get(name, ""))


def _objective(made: Record) -> Objective | None:
    if made.before is None or made.request is None or made.before.config.policy != "pools":
        return None
    cpus = CPUSet()
    for some in made.assignments.values():
        cpus |= some
    return pod_explanation.objective(made.before, made.request, cpus) if cpus else None


def _course(history: History) -> Iterator[CourseStep]:
    for time, step, text in history.last.course:
        yield CourseStep(rfc3339(time), step, _STEPS[step].format(text))
    if history.ended:
        yield CourseStep(rfc3339(history.ended), "ended", "the pod ended or was deleted")


def rfc3339(seconds: float) -> str:
    """Return a time in seconds since the epoch as RFC 3339 in UTC, whole seconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
