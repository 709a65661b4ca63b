"""Rules about a namespace's LimitRanges and ResourceQuotas: what they add to pods, and what they require."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Final

from corelane.limits.lint.findings import Remark, cpus, rule, stall
from corelane.limits.lint.located import Located, at, items, place, text
from corelane.limits.lint.manifests import ManifestContainer, ManifestObject
from corelane.limits.lint.pod_context import PodContext, containers, cost_of, effective, exclusive_cpus
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
            if lack := _lacking(context, container, quota):
                yield Remark(
                    container.resources.place,
                    f"ResourceQuota {quota.name} counts {lack}, so the pod is rejected: this container has "
                    "none",
                    f"set it, or drop {lack} from the quota"
                    if lack == "limits.cpu"
                    else "set requests.cpu to what the container uses under load",
                    container=container.name,
                )


def _lacking(context: PodContext, container: ManifestContainer, quota: ManifestObject) -> str:
    """The quota's CPU key for which a container has no amount."""
    found = effective(context, container.resources, "cpu")
    hard = ("spec", "hard")
    if text(quota.node, *hard, "limits.cpu") and not found.limit:
        return "limits.cpu"
    asks = text(quota.node, *hard, "requests.cpu") or text(quota.node, *hard, "cpu")
    return "requests.cpu" if asks and not found.request else ""


RULES: Final = (_adds_limit, _range_limits, _demands_limits, _refuses)
