"""Rules about a namespace's LimitRanges and ResourceQuotas: what they add to pods, and what they require."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from corelane import quantity
from corelane.limits.lint.bundles import deployed_with
from corelane.limits.lint.findings import Remark, cpus, rule, stall
from corelane.limits.lint.located import Located, Position, at, items, nano_units, place, text
from corelane.limits.lint.manifests import (
    SCALERS,
    ManifestContainer,
    ManifestObject,
    UtilisationTarget,
    other_metrics,
    scaled_workload,
    utilisation_targets,
)
from corelane.limits.lint.pod_context import (
    PodContext,
    amounts_of,
    containers,
    cost_of,
    effective,
    exclusive_cpus,
    highest_utilisation,
    main_containers,
    pod_request,
)
from corelane.limits.lint.policy import Severity
from corelane.workload import peak

_SHOWN: Final = 4


@rule(
    "limitrange-adds-limit",
    Severity.WARNING,
    "Drop default.cpu and max.cpu; defaultRequest.cpu gives a share without a quota.",
)
def _adds_limit(context: PodContext) -> Iterator[Remark]:
    """A LimitRange that adds CPU limits.

    default.cpu, and max.cpu where there is no default, become the limit of every container without one.
    Manifests without limits are then throttled, too.
    """
    if context.object.kind != "LimitRange" or context.policy.cpu_limit == "allowed":
        return
    for item in items(context.object.node, "spec", "limits"):
        key = next((key for key in ("default", "max") if at(item, key, "cpu") is not None), None)
        if text(item, "type") != "Container" or key is None:
            continue
        written, hit = text(item, key, "cpu"), list(_receiving(context))
        limit = max((limit for _, _, limit in hit), default=0)
        # A maximum is the default limit where there is no other (SetDefaults_LimitRangeItem), and with a
        # maximal ratio of limit to request a container without a limit is rejected (LimitRanger).
        most, ratio = text(item, "max", "cpu"), text(item, "maxLimitRequestRatio", "cpu")
        parts = [f"{key}.cpu: {text(item, key, 'cpu')}"]
        if key == "max":
            parts[0] += " (a maximum is a default limit, too)"
        elif most:
            parts.append(f"max.cpu: {most} (which would be the default limit then)")
        if ratio:
            parts.append(f"maxLimitRequestRatio.cpu: {ratio} (which rejects containers without a limit)")
        share = text(item, "defaultRequest", "cpu")
        keep = f"keep defaultRequest.cpu: {share}" if share else "set defaultRequest.cpu"
        named = ", ".join(f"{pod.kind}/{pod.name} {container.name}" for pod, container, _ in hit[:_SHOWN])
        rest = f" and {len(hit) - _SHOWN} more" if len(hit) > _SHOWN else ""
        here = f"; here: {named}{rest}" if hit else ""
        yield Remark(
            place(item, key, "cpu"),
            f"{key}.cpu: {written} becomes the CPU limit of every container without one{here}",
            f"drop {' and '.join(parts)}; {keep}, which gives a share without a quota",
            cost=cost_of(context, limit, 1) if limit else None,
        )


def _receiving(context: PodContext) -> Iterator[tuple[ManifestObject, ManifestContainer, int]]:
    """The containers in the input with a CPU limit from this LimitRange, and that limit in milliCPU."""
    for other in chain.from_iterable(context.others.values()):
        there = replace(context, object=other)
        for container, cpu in amounts_of(there, "cpu"):
            given = cpu.limit and cpu.origin == context.object.name
            if given and not container.waits and not exclusive_cpus(there, container):
                yield other, container, cpu.limit_milli


@rule("limit-from-range", Severity.WARNING, "Change the LimitRange.")
def _range_limits(context: PodContext) -> Iterator[Remark]:
    """A container with a CPU limit from a LimitRange.

    The limit is not in the manifest, but it throttles like any other.
    """
    if context.policy.cpu_limit != "never" or context.object.batch:
        return
    for container, cpu in amounts_of(context, "cpu"):
        if not cpu.origin or not cpu.limit or container.waits or exclusive_cpus(context, container):
            continue
        cost = cost_of(context, cpu.limit_milli, 1 if cpu.limit_milli < 1000 else _SHOWN)
        yield Remark(
            container.resources.place,
            f"no CPU limit here, but LimitRange {cpu.origin} sets one of {cpus(cpu.limit_milli)}"
            + (f": {stall(cost)}" if cost.stall_ms else ""),
            "change the LimitRange (default.cpu, max.cpu): a container cannot opt out",
            container=container.name,
            cost=cost,
        )


@rule("quota-demands-limits", Severity.WARNING, "Put the quota on requests.cpu.")
def _demands_limits(context: PodContext) -> Iterator[Remark]:
    """A ResourceQuota that requires CPU limits.

    A quota on limits.cpu rejects every pod with a container that has none, so limits cannot be dropped.
    """
    if context.object.kind != "ResourceQuota" or context.policy.cpu_limit == "allowed":
        return
    written = text(context.object.node, "spec", "hard", "limits.cpu")
    if written:
        yield Remark(
            place(context.object.node, "spec", "hard", "limits.cpu"),
            f"limits.cpu: {written}: with this quota every container in the namespace must have a CPU "
            "limit, and a pod without one is rejected",
            "limit requests.cpu instead, which the scheduler allocates",
        )


@rule("quota-refuses-pod", Severity.ERROR, "Set the request; for limits.cpu change the quota.")
def _refuses(context: PodContext) -> Iterator[Remark]:
    """A pod that a ResourceQuota rejects.

    The namespace's quota counts an amount that a container does not set, so admission rejects the pod.
    """
    for quota in context.of_kind("ResourceQuota"):
        if at(quota.node, "spec", "scopes") or at(quota.node, "spec", "scopeSelector"):
            continue
        for container in containers(context):
            if lacks := list(_lacking(context, container, quota)):
                yield Remark(
                    container.resources.place,
                    f"ResourceQuota {quota.name} counts {' and '.join(lacks)}, so the pod is rejected: this "
                    f"container has {'none' if len(lacks) == 1 else 'neither'}",
                    ", and ".join(_NEEDS[key] for key in lacks),
                    container=container.name,
                )


def _lacking(context: PodContext, container: ManifestContainer, quota: ManifestObject) -> Iterator[str]:
    """The quota's keys of CPU and memory for which a container has no amount."""
    hard = ("spec", "hard")
    for resource in ("cpu", "memory"):
        amounts = effective(context, container.resources, resource)
        if text(quota.node, *hard, f"limits.{resource}") and not amounts.limit:
            yield f"limits.{resource}"
        asks = text(quota.node, *hard, f"requests.{resource}") or text(quota.node, *hard, resource)
        if asks and not amounts.request:
            yield f"requests.{resource}"


_NEEDS: Final = {
    "limits.cpu": "set limits.cpu, or drop it from the quota",
    "limits.memory": "set limits.memory to what it needs at its peak",
    "requests.cpu": "set requests.cpu to what the container uses under load",
    "requests.memory": "set requests.memory to what it needs at its peak",
}


@rule(
    "limitrange-refuses-pod",
    Severity.ERROR,
    "Write an amount that the LimitRange admits, or change the LimitRange.",
)
def _range_refuses(context: PodContext) -> Iterator[Remark]:
    """A pod that a LimitRange rejects.

    Its minimum, maximum or ratio of limit to request rejects the pod at admission (the LimitRanger plugin).
    With a maximum a container must have a limit, and with a ratio a request, too.
    """
    ranges = () if context.object.partial or not containers(context) else context.of_kind("LimitRange")
    for limit_range in ranges:
        for item in items(limit_range.node, "spec", "limits"):
            kind = text(item, "type")
            for resource in ("cpu", "memory") if kind in ("Container", "Pod") else ():
                for owner in _judged(context, kind, resource):
                    yield from _violations(limit_range.name, kind, resource, item, owner)


@dataclass(frozen=True, slots=True)
class _Judged:
    """Amounts of a container, or of a whole pod (""), in nano-units, 0 for none."""

    container: str
    request: int
    limit: int
    place: Position


def _judged(context: PodContext, kind: str, resource: str) -> Iterator[_Judged]:
    for container, amounts in amounts_of(context, resource) if kind == "Container" else ():
        own = container.resources
        written = own.requests.get(resource) or own.limits.get(resource)
        here = written.place if written else own.place
        yield _Judged(container.name, amounts.request, amounts.limit, here)
    if kind == "Pod" and context.object.pod:
        limits = [(container.kind, amounts.limit) for container, amounts in amounts_of(context, resource)]
        limit = peak(limits) if all(each for _, each in limits) else 0
        yield _Judged("", pod_request(context, resource), limit, context.object.pod.place)


def _violations(name: str, kind: str, resource: str, item: Located, owner: _Judged) -> Iterator[Remark]:
    """The first violation, in the plugin's order: minimum, maximum, ratio."""
    written = {key: text(item, key, resource) for key in ("min", "max", "maxLimitRequestRatio")}
    least, most, ratio = map(nano_units, written.values())
    most_ratio = written["maxLimitRequestRatio"]
    whose = "this container" if kind == "Container" else "this pod"
    request, limit = (_shown(resource, nano) for nano in (owner.request, owner.limit))
    too_small, too_large = (
        f"minimum {resource} is {written['min']}",
        f"maximum {resource} is {written['max']}",
    )
    no_ratio = not owner.request or not owner.limit or owner.limit * 10**9 > ratio * owner.request
    faults = (
        (least and owner.request < least, f"{too_small}, {request} requested"),
        (least and 0 < owner.limit < least, f"{too_small}, the limit is {limit}"),
        (most and owner.limit > most, f"{too_large}, the limit is {limit}"),
        (most and not owner.limit, f"{too_large}, and {whose} has no limit"),
        (most and owner.request > most, f"{too_large}, {request} requested"),
        (
            ratio and no_ratio,
            f"limit {limit} and request {request} of {resource}, a ratio above {most_ratio}",
        ),
    )
    if fault := next((words for holds, words in faults if holds), ""):
        named = (("at least", written["min"]), ("at most", written["max"]))
        bounds = " and ".join(f"{which} {bound}" for which, bound in named if bound)
        fix = f"write request and limit of {bounds}" if bounds else "lower the limit, or raise the request"
        yield Remark(
            owner.place, f"LimitRange {name} rejects {whose}: {fault}", fix, container=owner.container
        )


def _shown(resource: str, nano: int) -> str:
    if not nano or resource == "cpu":
        return cpus(-(-nano // 10**6)) if nano else "nothing"
    return str(quantity.of_value(nano // 10**9, quantity.BINARY_SI))


RULES: Final = (_adds_limit, _range_limits, _demands_limits, _refuses, _range_refuses)


_CRAMPED: Final = 1.3
"""Largest growth of the replicas in one step with which scaling lags behind."""


def _scaled(
    context: PodContext,
) -> Iterator[tuple[UtilisationTarget, ManifestObject, list[ManifestContainer]]]:
    """Every CPU target with its workload and the containers that count."""
    scaler = context.object
    if scaler.kind not in SCALERS:
        return
    kind, name = scaled_workload(scaler)
    same = (each for each in context.of_kind(kind) if each.name == name)
    for workload in deployed_with(scaler, [each for each in same if each.pod and not each.partial]):
        together = list(main_containers(replace(context, object=workload)))
        for target in utilisation_targets(scaler):
            counted = [own for own in together if target.container in ("", own.name)]
            yield target, workload, counted


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
        lacking = [own.name for own in counted if not effective(there, own.resources, "cpu").request]
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


AUTOSCALING_RULES: Final = (_without_request, _reach)
