"""A decision taken again on a cluster's present state, by the same filters, scores and admission."""

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from corelane.kube import keys, translate
from corelane.kube.pod import Pod
from corelane.node.explain.pod_decision import PodDecision, Source, Verdict
from corelane.scheduler.cache import node_kinds
from corelane.scheduler.cache.nodes import NodeInfo
from corelane.scheduler.cache.pods import PodInfo
from corelane.scheduler.explain import nearest as changes
from corelane.scheduler.explain import record, report
from corelane.scheduler.explain.record import Record
from corelane.scheduler.explain.trial import Trial
from corelane.scheduler.framework.plugin import Rejection
from corelane.scheduler.queue import gated
from corelane.workload import PodRequest

_NAMES: Final = 200
"""Node names of each group."""
_RECORDS: Final = frozenset({keys.RESOURCE_STATUS, keys.CONTAINER_CPUSETS, keys.PLACEMENT_REASONS})


def decide(trial: Trial, pod: Pod, now: datetime) -> PodDecision:
    """Return what the scheduler would decide about a pod now; about a bound one, as if it were not bound."""
    info = PodInfo.of(pod)
    gates = filter(None, (gated.answer(info, one) for one in trial.profile.pre_enqueue))
    if gate := next(gates, None):
        return _gated(pod, gate, now)
    with ExitStack() as stack:
        if pod.spec.node_name:
            stack.enter_context(trial.without([pod]))
        unbound = unplaced(pod)
        tried = trial.attempt(unbound)
        made = record.record(now.timestamp(), 0, 0, tried, names=_NAMES)
        if tried.node is not None:
            _add_cpus(made, tried.node, tried.cycle.pod.request)
        nearest = None if tried.node or tried.rejected else changes.nearest(trial, unbound, tried)
        return PodDecision(
            pod.metadata.namespace,
            pod.metadata.name,
            pod.metadata.uid,
            Source.RECOMPUTED,
            report.rfc3339(now.timestamp()),
            Verdict.BOUND if pod.spec.node_name else Verdict.UNSCHEDULABLE,
            report.message(made),
            scheduler=pod.spec.scheduler_name,
            nearest=nearest,
            notes=tuple(_notes(trial, made)),
            **report.parts(made),
        )


def _notes(trial: Trial, made: Record) -> Iterator[str]:
    """Say how the chosen node was judged; for a pod that fits nowhere, how all nodes were."""
    if made.node:
        return report.of_kind(made)
    return report.of_kinds((info.name, info.cpus.kind) for info in trial.cluster.placeable())


def _gated(pod: Pod, gate: Rejection, now: datetime) -> PodDecision:
    meta = pod.metadata
    return PodDecision(
        meta.namespace,
        meta.name,
        meta.uid,
        Source.RECOMPUTED,
        report.rfc3339(now.timestamp()),
        Verdict.NOT_TRIED,
        "; ".join(map(str, gate.reasons)),
        scheduler=pod.spec.scheduler_name,
    )


def unplaced(pod: Pod) -> Pod:
    """Return a bound pod as it was before its binding; another as it is."""
    if not pod.spec.node_name:
        return pod
    kept = {key: text for key, text in pod.metadata.annotations.items() if key not in _RECORDS}
    meta, spec = replace(pod.metadata, annotations=kept), replace(pod.spec, node_name="")
    return replace(pod, metadata=meta, spec=spec)


def _add_cpus(made: Record, node: NodeInfo, request: PodRequest | None) -> None:
    """Admit the pod, and keep the CPUs and why."""
    if request is None or not node.cpus.writes_cpus:
        return
    _, decision = node_kinds.admit(node.state, request)
    made.assignments = decision.assignments
    made.annotations = translate.reasons_annotation(decision.reasons)
