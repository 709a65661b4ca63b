"""Rules about a namespace's LimitRanges and ResourceQuotas: what they add to pods, and what they require."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from corelane import quantity, workload
from corelane.limits.lint.findings import Remark, cpus, rule, stall
from corelane.limits.lint.located import Located, Position, at, items, place, text
from corelane.limits.lint.manifests import ManifestContainer, ManifestObject
from corelane.limits.lint.pod_context import (
    PodContext,
    amount,
    containers,
    cost_of,
    effective,
    exclusive_cpus,
    pod_request,
)
from corelane.limits.lint.policy import Severity

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
        yield Remark(
            place(item, key, "cpu"),
            f"{key}.cpu: {written} becomes the CPU limit of every container without one{_named(hit)}",
            _without_limit(item, key),
            cost=cost_of(context, limit, 1) if limit else None,
        )


def _without_limit(item: Located, key: str) -> str:
    """What to drop for containers to have no limit, and what gives them a share.

    A maximum is the default limit where there is no other (`SetDefaults_LimitRangeItem`), and with a maximal
    ratio of limit to request a container without a limit is rejected (LimitRanger).
    """
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
    return f"drop {' and '.join(parts)}; {keep}, which gives a share without a quota"


def _receiving(context: PodContext) -> Iterator[tuple[ManifestObject, ManifestContainer, int]]:
    """The containers in the input with a CPU limit from this LimitRange, and that limit in milliCPU."""
    for other in chain.from_iterable(context.others.values()):
        there = replace(context, object=other)
        for container in containers(there):
            if container.waits:
                continue
            found = effective(there, container.resources, "cpu")
            if found.origin == context.object.name and found.limit and not exclusive_cpus(there, container):
                yield other, container, found.limit_milli


def _named(hit: list[tuple[ManifestObject, ManifestContainer, int]]) -> str:
    if not hit:
        return ""
    names = [f"{one.kind}/{one.name} {container.name}" for one, container, _ in hit[:_SHOWN]]
    rest = f" and {len(hit) - _SHOWN} more" if len(hit) > _SHOWN else ""
    return f"; here: {', '.join(names)}{rest}"


@rule("limit-from-range", Severity.WARNING, "Change the LimitRange.")
def _range_limits(context: PodContext) -> Iterator[Remark]:
    """A container with a CPU limit from a LimitRange.

    The limit is not in the manifest, but it throttles like any other.
    """
    if context.policy.cpu_limit != "never" or context.object.batch:
        return
    for container in containers(context):
        found = effective(context, container.resources, "cpu")
        if not found.origin or not found.limit or container.waits or exclusive_cpus(context, container):
            continue
        cost = cost_of(context, found.limit_milli, 1 if found.limit_milli < 1000 else _SHOWN)
        yield Remark(
            container.resources.place,
            f"no CPU limit here, but LimitRange {found.origin} sets one of {cpus(found.limit_milli)}"
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
                    _supply(lacks),
                    container=container.name,
                )


def _lacking(context: PodContext, container: ManifestContainer, quota: ManifestObject) -> Iterator[str]:
    """The quota's keys of CPU and memory for which a container has no amount."""
    hard = ("spec", "hard")
    for resource in ("cpu", "memory"):
        found = effective(context, container.resources, resource)
        if text(quota.node, *hard, f"limits.{resource}") and not found.limit:
            yield f"limits.{resource}"
        asks = text(quota.node, *hard, f"requests.{resource}") or text(quota.node, *hard, resource)
        if asks and not found.request:
            yield f"requests.{resource}"


_NEEDS: Final = {
    "limits.cpu": "set limits.cpu, or drop it from the quota",
    "limits.memory": "set limits.memory to what it needs at its peak",
    "requests.cpu": "set requests.cpu to what the container uses under load",
    "requests.memory": "set requests.memory to what it needs at its peak",
}


def _supply(lacks: list[str]) -> str:
    return ", and ".join(_NEEDS[one] for one in lacks)


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
    for one in ranges:
        for item in items(one.node, "spec", "limits"):
            kind = text(item, "type")
            for resource in ("cpu", "memory") if kind in ("Container", "Pod") else ():
                for owner in _judged(context, kind, resource):
                    yield from _violations(one.name, kind, resource, item, owner)


@dataclass(frozen=True, slots=True)
class _Judged:
    """Amounts of a container, or of a whole pod (""), in nano-units, 0 for none."""

    container: str
    request: int
    limit: int
    place: Position


def _judged(context: PodContext, kind: str, resource: str) -> Iterator[_Judged]:
    amounts = {one.name: effective(context, one.resources, resource) for one in containers(context)}
    for one in containers(context) if kind == "Container" else ():
        written = one.resources.requests.get(resource) or one.resources.limits.get(resource)
        found = amounts[one.name]
        yield _Judged(one.name, found.request, found.limit, written.place if written else one.resources.place)
    if kind == "Pod" and context.object.pod:
        limits = [(one.kind, amounts[one.name].limit) for one in containers(context)]
        limit = workload.peak(limits) if all(each for _, each in limits) else 0
        yield _Judged("", pod_request(context, resource), limit, context.object.pod.place)


def _violations(name: str, kind: str, resource: str, item: Located, owner: _Judged) -> Iterator[Remark]:
    """The first violation, in the plugin's order: minimum, maximum, ratio."""
    written = {key: text(item, key, resource) for key in ("min", "max", "maxLimitRequestRatio")}
    least, most, ratio = map(amount, written.values())
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
