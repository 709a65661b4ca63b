"""An object in its namespace: amounts after defaulting, QoS class, exclusive CPUs, cost of its quota."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

from corelane import workload
from corelane.kernel import cfs
from corelane.limits.lint.idle import SOON_S
from corelane.limits.lint.located import Amount, ManifestResources, at, items, nano_units, text
from corelane.limits.lint.manifests import ManifestContainer, ManifestObject
from corelane.limits.lint.policy import Policy
from corelane.workload import PodQOS
from corelane.workload.request import ContainerKind, QOSClass, qos_class

_COUNTED: Final = ("cpu", "memory")


@dataclass(frozen=True, slots=True)
class RangeDefault:
    """Amounts from a LimitRange for a container without its own: nano-units, 0 for nothing."""

    request: int = 0
    limit: int = 0
    range: str = ""


@dataclass(frozen=True, slots=True)
class PodContext:
    """An object, the policy, and the other objects of its namespace in the same input.

    `ranges` is by resource, `others` by kind.
    """

    object: ManifestObject
    policy: Policy = field(default_factory=Policy)
    ranges: Mapping[str, RangeDefault] = field(default_factory=dict)
    others: Mapping[str, Sequence[ManifestObject]] = field(default_factory=dict)

    def of_kind(self, kind: str) -> Sequence[ManifestObject]:
        """The other objects of a kind."""
        return self.others.get(kind, ())


@dataclass(frozen=True, slots=True)
class EffectiveAmounts:
    """Request and limit in nano-units as the pod is admitted, 0 for none; `origin` of the limit."""

    request: int
    limit: int
    origin: str = ""
    """The LimitRange that set the limit; empty where the manifest did."""
    written: Amount | None = None

    @property
    def request_milli(self) -> int:
        return -(-self.request // 10**6)

    @property
    def limit_milli(self) -> int:
        return -(-self.limit // 10**6)


def containers(context: PodContext) -> tuple[ManifestContainer, ...]:
    """The containers of the object's pod, init containers first."""
    return context.object.pod.containers if context.object.pod else ()


def effective(context: PodContext, own: ManifestResources, resource: str) -> EffectiveAmounts:
    """A container's request and limit after defaulting.

    A limit becomes the missing request first (`SetDefaults_Pod`); then the LimitRange fills the rest.
    """
    default = context.ranges.get(resource, RangeDefault())
    written = own.limits.get(resource)
    limit = own.limit(resource) if written else default.limit
    request = own.request(resource) if written or resource in own.requests else default.request
    return EffectiveAmounts(request, limit, "" if written else default.range, written)


def amounts_of(context: PodContext, resource: str) -> Iterator[tuple[ManifestContainer, EffectiveAmounts]]:
    """Every container, init containers first, with its amounts of a resource after defaulting."""
    return ((each, effective(context, each.resources, resource)) for each in containers(context))


def qos(context: PodContext, without_cpu_limit: ManifestContainer | None = None) -> QOSClass:
    """The QoS class of the pod, also as it would be without a container's CPU limit."""
    pod = context.object.pod
    if pod and pod.resources:
        level = pod.resources
        requests, limits = ({name: of(name) for name in _COUNTED} for of in (level.request, level.limit))
        return qos_class([(requests, {name: limit for name, limit in limits.items() if limit})], of_pod=True)
    parts = [(each, *requests_and_limits(context, each)) for each in containers(context)]
    return qos_class(
        (requests, limits | {"cpu": 0} if each is without_cpu_limit else limits)
        for each, requests, limits in parts
    )


def requests_and_limits(
    context: PodContext, container: ManifestContainer
) -> tuple[dict[str, int], dict[str, int]]:
    """A container's CPU and memory in nano-units, after defaulting."""
    amounts = {name: effective(context, container.resources, name) for name in _COUNTED}
    requests = {name: amount.request for name, amount in amounts.items()}
    return requests, {name: amount.limit for name, amount in amounts.items()}


def exclusive_cpus(context: PodContext, container: ManifestContainer) -> int:
    """Exclusive CPUs that a static CPU manager, or Koordinator, gives the container; 0 for none.

    Koordinator's labels are a request by themselves; the CPU manager's policy is the nodes', and the policy's
    `exclusive_cpus` states it.
    None in a pod with pod-level resources, as the kubelet's gate PodLevelResourceManagers is off by default.
    Containers of an LSE or LSR pod have the CPUs of the whole pod in common, if these are an integer.
    """
    if _koordinator_binds(context):
        return workload.integer_cpus(pod_request(context, "cpu"), unit=10**9)
    if not context.policy.exclusive_cpus:
        return 0
    request = effective(context, container.resources, "cpu").request
    pod_level = bool(context.object.pod and context.object.pod.resources)
    return workload.exclusive_cpus(qos(context), request, unit=10**9, has_pod_level=pod_level)


def pod_exclusive_cpus(context: PodContext) -> int:
    """Exclusive CPUs of the whole pod once its init containers have ended."""
    counts = [exclusive_cpus(context, each) for each in main_containers(context)]
    return max(counts, default=0) if _koordinator_binds(context) else sum(counts)


def pod_request(context: PodContext, resource: str) -> int:
    """Return the scheduler's reservation for the whole pod, in nano-units: the most requested at once."""
    pod = context.object.pod
    of_pod = pod.resources.request(resource) if pod and pod.resources else 0
    return of_pod or workload.peak(
        (each.kind, amounts.request) for each, amounts in amounts_of(context, resource)
    )


def runs_alone(context: PodContext, container: ManifestContainer) -> bool:
    """Whether an init container has the pod to itself, with no sidecar started before it.

    Then all that the pod reserves is there for it, and the weight of the pod's cgroup is its own: shares are
    divided level by level, and it is the only one that runs on its level.
    """
    if container.kind is not ContainerKind.INIT:
        return False
    before = takewhile(lambda each: each is not container, containers(context))
    return all(each.kind is ContainerKind.INIT for each in before)


def exclusive_by_class(context: PodContext) -> tuple[str, ...]:
    """Containers with exclusive CPUs that depend on limit = request in every container of the pod."""
    if qos(context) is not QOSClass.GUARANTEED or _koordinator_binds(context):
        return ()
    return tuple(each.name for each in containers(context) if exclusive_cpus(context, each))


def _koordinator_binds(context: PodContext) -> bool:
    return context.object.koordinator_class in {PodQOS.LSE, PodQOS.LSR}


_CRITICAL: Final = {"system-cluster-critical": 2 * 10**9, "system-node-critical": 2 * 10**9 + 1000}


def priority(context: PodContext) -> int:
    """The pod's priority as far as the object says it: its number, or that of a system class; else 0.

    From 2,000,000,000 the kubelet does not evict it (`types.IsCriticalPod`); from 2,000,001,000 its processes
    are among the last that the kernel kills (`types.IsNodeCriticalPod`, an `oom_score_adj` of -997).
    """
    pod = context.object.pod
    spec = at(pod.node, "spec") if pod else None
    number = text(spec, "priority")
    if number.isdecimal():
        return int(number[:12])
    return _CRITICAL.get(text(spec, "priorityClassName"), 0)


def has_priority(context: PodContext) -> bool:
    """Whether the pod has a priority, as far as the object says: the kubelet evicts those below it first."""
    pod = context.object.pod
    named = text(at(pod.node, "spec"), "priorityClassName") if pod else ""
    return bool(named) or priority(context) > 0


def is_node_critical(context: PodContext) -> bool:
    """Whether the kernel kills the pod's processes last."""
    return priority(context) >= _CRITICAL["system-node-critical"]


def ends_soon(context: PodContext, container: ManifestContainer) -> bool:
    """Whether a deadline of ten minutes or less, `timeout`'s or the Job's, ends the container."""
    job = at(context.object.node, *(("spec", "jobTemplate") if context.object.kind == "CronJob" else ()))
    of_pod = at(context.object.pod.node, "spec") if context.object.pod else None
    deadlines = (text(node, "activeDeadlineSeconds") for node in (at(job, "spec"), of_pod))
    seconds = [int(each[:12]) for each in deadlines if each.isdecimal()]
    return container.ends_soon or any(each <= SOON_S for each in seconds)


def quota_lifted(context: PodContext) -> bool:
    """Whether the runtime sets no quota (CRI-O's high-performance handler)."""
    pod = context.object.pod
    annotation = pod.annotations.get("cpu-quota.crio.io") if pod else None
    return annotation is not None and text(annotation.value) == "disable"


def cost_of(context: PodContext, limit_milli: int, threads: int) -> QuotaCost:
    """Return what a limit costs `threads` busy threads under the policy's period."""
    period = context.policy.cfs_period_us
    return quota_cost(cfs.quota_us(limit_milli, period), period, threads)


def range_default(ranges: Iterable[ManifestObject], resource: str) -> RangeDefault:
    """Combine several LimitRanges.

    A maximum is the default limit where there is none, a default limit the default request, and else the
    minimum (`SetDefaults_LimitRangeItem`). The first LimitRange with amounts wins.
    """
    for limit_range in ranges:
        for item in items(limit_range.node, "spec", "limits"):
            if text(item, "type") == "Container":
                keys = ("default", "max", "defaultRequest", "min")
                default, most, request, least = (nano_units(text(item, key, resource)) for key in keys)
                limit = default or most
                request = request or limit or least
                if limit or request:
                    return RangeDefault(request, limit, limit_range.name)
    return RangeDefault()


def main_containers(context: PodContext) -> Iterator[ManifestContainer]:
    """Containers that run as long as the pod: app containers and sidecars."""
    return (container for container in containers(context) if container.kind is not ContainerKind.INIT)


def highest_utilisation(
    context: PodContext, counted: Sequence[ManifestContainer], container: str = ""
) -> float | None:
    """The most that these containers can use, in percent of their CPU requests.

    None without limits, and for a whole pod (no `container`) to which others add containers.
    """
    if not container and not (context.object.pod and context.object.pod.whole):
        return None
    amounts = [effective(context, own.resources, "cpu") for own in counted]
    if not amounts or not all(own.limit and own.request for own in amounts):
        return None
    return 100 * sum(own.limit for own in amounts) / sum(own.request for own in amounts)


# What a quota costs, in closed form. n threads use a quota Q up after Q/n and then wait for the next period P
# (kernel documentation, sched-bwc). Slices and ticks, which shift this by a few ms, are the model's.


@dataclass(frozen=True, slots=True)
class QuotaCost:
    """The most that `threads` that run at once lose to a quota.

    `stall_ms` is how long they are stopped in every period, `lost_ms_per_s` the CPU time that they lose in
    every second, summed over them.
    """

    threads: int
    quota_ms: float
    period_ms: float
    stall_ms: float
    lost_ms_per_s: float

    @property
    def after_ms(self) -> float:
        """Time in the period at which they have used the quota up."""
        return min(self.quota_ms / self.threads, self.period_ms)


def quota_cost(quota_us: int, period_us: int, threads: int) -> QuotaCost:
    """The cost of a quota to `threads` (at least 1) busy threads."""
    quota, period = quota_us / 1000, period_us / 1000
    lost = max(0.0, threads * period - quota)
    return QuotaCost(threads, quota, period, lost / threads, lost / period * 1000)
