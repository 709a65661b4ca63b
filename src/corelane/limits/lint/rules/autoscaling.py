"""Rules about HorizontalPodAutoscalers: utilisation is counted against requests and capped by limits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from corelane.limits.lint.bundles import deployed_with
from corelane.limits.lint.findings import Remark, rule
from corelane.limits.lint.manifests import (
    SCALERS,
    ManifestContainer,
    ManifestObject,
    UtilisationTarget,
    other_metrics,
    scaled_workload,
    utilisation_targets,
)
from corelane.limits.lint.pod_context import PodContext, effective, highest_utilisation, main_containers
from corelane.limits.lint.policy import Severity

_CRAMPED: Final = 1.3
"""Where load can at most multiply the replicas by this in one step, scaling lags behind."""


def _scaled(
    context: PodContext,
) -> Iterator[tuple[UtilisationTarget, ManifestObject, list[ManifestContainer]]]:
    """Every CPU target with its workload and the containers that count."""
    scaler = context.object
    if scaler.kind not in SCALERS:
        return
    kind, name = scaled_workload(scaler)
    named = [one for one in context.of_kind(kind) if one.name == name and one.pod and not one.partial]
    for workload in deployed_with(scaler, named):
        counted = list(main_containers(replace(context, object=workload)))
        for target in utilisation_targets(scaler):
            yield target, workload, [one for one in counted if target.container in ("", one.name)]


@rule(
    "hpa-without-request",
    Severity.ERROR,
    "Set requests.cpu on every container, or scale by a ContainerResource metric.",
)
def _without_request(context: PodContext) -> Iterator[Remark]:
    """Scaling by CPU utilisation without requests.

    Utilisation is usage over requests. A single container of the pod without a CPU request, a sidecar too,
    makes the whole metric fail. If the autoscaler has other metrics, these scale up, but nothing scales down.
    """
    more = other_metrics(context.object)
    outcome = "only its other metrics scale up, and nothing scales down" if more else "nothing is scaled"
    for target, workload, counted in _scaled(context):
        there = replace(context, object=workload)
        lacking = [one.name for one in counted if not effective(there, one.resources, "cpu").request]
        added = workload.pod.injected if workload.pod and not target.container else ()
        if not lacking and added:
            yield Remark(
                target.place,
                f"scales {workload.kind}/{workload.name} by CPU utilisation, which counts against requests, "
                f"but {added[0].container} has none, which {added[0].injector} adds: the metric fails, and "
                f"{outcome}",
                f"set the annotation {added[0].annotation}, or use a ContainerResource metric",
                Severity.WARNING,
            )
        if lacking:
            yield Remark(
                target.place,
                f"scales {workload.kind}/{workload.name} by CPU utilisation, which counts against requests, "
                f"but {', '.join(lacking)} has none: the metric fails, and {outcome}",
                "set requests.cpu on every container, sidecars too, or use a ContainerResource metric",
            )


@rule(
    "hpa-capped",
    Severity.WARNING,
    "Drop the CPU limits, or lower the target. Error where the target can never be exceeded.",
)
def _reach(context: PodContext) -> Iterator[Remark]:
    """A utilisation target that limits make unreachable.

    Usage stops at the limit. With limit = request utilisation never exceeds 100 %, so an autoscaler with a
    target of 80 % adds a quarter of the replicas at a time, however high the load. Without limits
    utilisation may exceed 100 %, and scaling is faster. Information where the autoscaler has other metrics,
    which may ask for more replicas (an unreachable target is then a warning).
    """
    more = other_metrics(context.object)
    for target, workload, counted in _scaled(context):
        percent = highest_utilisation(replace(context, object=workload), counted, target.container)
        if percent is None or percent >= target.percent * _CRAMPED:
            continue
        title = f"{workload.kind}/{workload.name}"
        if percent <= target.percent:
            yield Remark(
                target.place,
                f"{title} cannot use more than {percent:.0f} % of its CPU requests within its limits, so "
                f"the target of {target.percent} % is never exceeded and "
                f"{'only its other metrics scale up' if more else 'nothing is scaled up'}",
                "drop the CPU limits, or lower the target",
                Severity.WARNING if more else Severity.ERROR,
            )
        else:
            growth = percent / target.percent - 1
            yield Remark(
                target.place,
                f"limits cap {title} at {percent:.0f} % of its CPU requests: however high the load, one step "
                f"{'by this metric ' if more else ''}adds at most {growth:.0%} replicas to a target of "
                f"{target.percent} %, while the pods are throttled",
                "drop the CPU limits: utilisation then shows the demand, also above 100 %",
                Severity.INFO if more else None,
            )


RULES: Final = (_without_request, _reach)
