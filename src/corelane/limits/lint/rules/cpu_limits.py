"""Rules about CPU limits: what they cost a service, and where one must stay."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from corelane.limits.lint.bundles import deployed_with
from corelane.limits.lint.findings import Remark, container_patch, cpus, many, ms, rule, stall
from corelane.limits.lint.located import text
from corelane.limits.lint.manifests import (
    ManifestContainer,
    scaled_workload,
    utilisation_targets,
)
from corelane.limits.lint.pod_context import (
    EffectiveAmounts,
    PodContext,
    QuotaCost,
    RangeDefault,
    amounts_of,
    cost_of,
    exclusive_by_class,
    exclusive_cpus,
    highest_utilisation,
    main_containers,
    qos,
    quota_lifted,
)
from corelane.limits.lint.policy import Severity
from corelane.limits.lint.thread_settings import at_once, is_jvm
from corelane.workload.request import ContainerKind, QOSClass

THREADS_SHOWN: Final = 4
"""For how many threads the cost is shown where the manifest does not set the number."""
_LARGEST_USUAL_NODE: Final = 128
"""CPUs of a node on which threads of an unknown number are thought to run."""
_HALF_LOST_MS: Final = 50.0


@rule(
    "cpu-limit",
    Severity.WARNING,
    "Remove resources.limits.cpu, keep resources.requests.cpu. Runtimes that size themselves by the "
    "limit (JVM, Go 1.25, .NET) then count the node's CPUs: set the number of threads. Where a limit is "
    "needed, for instance to protect pods without requests, add # corelane: ignore cpu-limit REASON.",
)
def _cpu_limit(context: PodContext) -> Iterator[Remark]:
    """A CPU limit on a service.

    A limit is a quota of CPU time in every period of 100 ms, shared by all threads of the container. Threads
    that run at once use it up together: at 200m, four threads in 5 ms. Then all of them are stopped until the
    next period, however many CPUs are idle and however low the average use is. The more CPUs the node has,
    the sooner. The request alone already guarantees the container its share when CPUs are contended. Severity
    goes by the time that is lost for certain, not by how many periods count as throttled: error where a
    single thread, or the threads that the manifest names, are stopped for 50 ms or more of a period; info
    where the quota is enough for them, on init containers and on batch workloads.
    """
    if exclusive_by_class(context):
        return
    for container, amounts in amounts_of(context, "cpu"):
        if (
            amounts.written
            and amounts.limit
            and not container.waits
            and not exclusive_cpus(context, container)
            and _unwanted(context, amounts)
        ):
            yield _limited(context, container, amounts)
    yield from _whole_pod(context)


def _unwanted(context: PodContext, amounts: EffectiveAmounts) -> bool:
    """Whether the policy objects to a limit; a batch workload's is only mentioned."""
    choice = context.policy.batch_cpu_limit if context.object.batch else context.policy.cpu_limit
    if context.object.batch and choice == "allowed" and context.policy.cpu_limit == "never":
        return True
    return choice == "never" or (choice == "equal-to-request" and amounts.limit != amounts.request)


def _limited(context: PodContext, container: ManifestContainer, amounts: EffectiveAmounts) -> Remark:
    assert amounts.written is not None
    threads = at_once(container.settings) or 0
    costs = _costs(context, amounts.limit_milli, threads)
    return Remark(
        amounts.written.place,
        f"CPU limit {amounts.written.text} {_about(context, container)}: {_what_it_does(costs, threads)}",
        _fix(context, container, amounts),
        _severity(context, container, costs),
        container.name,
        costs[-1],
        _patch(context, container, amounts),
    )


def _costs(context: PodContext, limit_milli: int, threads: int) -> list[QuotaCost]:
    """For the threads that run at once, or for one and for several where unknown."""
    several = context.policy.node_cpus or min(
        max(THREADS_SHOWN, 2 * -(-limit_milli // 1000)), _LARGEST_USUAL_NODE
    )
    return [cost_of(context, limit_milli, count) for count in ((threads,) if threads else (1, several))]


def _about(context: PodContext, container: ManifestContainer) -> str:
    if container.kind is ContainerKind.INIT:
        return "on an init container"
    if context.object.batch:
        return "on a batch workload"
    sidecar = container.kind is ContainerKind.SIDECAR
    return "on a sidecar, which delays every request through it" if sidecar else "on a service"


def _what_it_does(costs: list[QuotaCost], threads: int) -> str:
    quota = f"{ms(costs[0].quota_ms)} in every {ms(costs[0].period_ms)}"
    if costs[-1].stall_ms == 0:
        whom = f"its {many(threads, 'thread')}" if threads else f"all of {many(costs[-1].threads, 'CPU')}"
        return f"{quota} is enough for {whom}: negligible cost, although periods may count as throttled"
    return f"{quota}; " + "; ".join(stall(cost) for cost in costs if cost.stall_ms > 0)


def _severity(context: PodContext, container: ManifestContainer, costs: list[QuotaCost]) -> Severity:
    """By the time that is lost for certain, never by how many periods count as throttled."""
    excused = context.object.batch and context.policy.batch_cpu_limit == "allowed"
    if excused or container.kind is ContainerKind.INIT or quota_lifted(context):
        return Severity.INFO
    if costs[-1].stall_ms == 0:
        return Severity.INFO
    return Severity.ERROR if costs[0].stall_ms >= _HALF_LOST_MS else Severity.WARNING


def _fix(context: PodContext, container: ManifestContainer, amounts: EffectiveAmounts) -> str:
    if context.policy.cpu_limit == "equal-to-request":
        amount = _equal(container, amounts)
        if amount != amounts.request_milli:
            return f"set requests.cpu and limits.cpu to {cpus(amount)}: an integer, as runtimes round up"
        return f"set limits.cpu to the request, {cpus(amount)}"
    if quota_lifted(context):
        return "nothing: cpu-quota.crio.io: disable tells the runtime to set no quota"
    parts = [f"remove limits.cpu and keep requests.cpu: {cpus(amounts.request_milli)}"]
    if _elsewhere(context, container):
        parts[0] = "remove limits.cpu; where nothing else sets requests.cpu, set that"
    elif "cpu" not in container.resources.requests:
        parts[0] = (
            f"replace limits.cpu by requests.cpu: {cpus(amounts.request_milli)} (now the request follows "
            "from the limit)"
        )
    after = qos(context, without_cpu_limit=container)
    whole = context.object.pod is not None and context.object.pod.whole
    if whole and after is not QOSClass.GUARANTEED and qos(context) is QOSClass.GUARANTEED:
        parts.append(f"the pod is then {after}, no longer Guaranteed")
    if is_jvm(container.node, container.image) and at_once(container.settings) is None:
        parts.append("the JVM then counts the node's CPUs: set -XX:ActiveProcessorCount")
    if any(setting.from_field == "limits.cpu" for setting in container.settings):
        parts.append("thread counts set from limits.cpu then are the node's CPUs: set them from requests.cpu")
    return "; ".join([*parts, *_beside(context, container)])


def _elsewhere(context: PodContext, container: ManifestContainer) -> bool:
    """Whether the request, absent here, may stand in what is patched, or come from an operator."""
    return context.object.partial and "cpu" not in container.resources.requests


def _beside(context: PodContext, container: ManifestContainer) -> Iterator[str]:
    """Other objects of the namespace that depend on a container's limit."""
    default = context.ranges.get("cpu", RangeDefault())
    if default.limit:
        yield f"LimitRange {default.range} would set another limit: change that first"
    for quota in context.of_kind("ResourceQuota"):
        if text(quota.node, "spec", "hard", "limits.cpu"):
            yield f"ResourceQuota {quota.name} rejects pods without a limit: change that first"
    for scaler in deployed_with(context.object, context.of_kind("HorizontalPodAutoscaler")):
        if scaled_workload(scaler) == (context.object.kind, context.object.name):
            together = list(main_containers(context))
            for target in utilisation_targets(scaler):
                counted = [other for other in together if target.container in ("", other.name)]
                percent = highest_utilisation(context, counted, target.container)
                if container in counted and percent is not None:
                    sooner = f"HorizontalPodAutoscaler {scaler.name} scales sooner"
                    yield f"utilisation may then exceed {percent:.0f} %, so {sooner}"


def _equal(container: ManifestContainer, amounts: EffectiveAmounts) -> int:
    """Return the request and limit to set, in milliCPU: whole CPUs, unless the number of threads is set."""
    return amounts.request_milli if at_once(container.settings) else -(-amounts.request_milli // 1000) * 1000


def _patch(context: PodContext, container: ManifestContainer, amounts: EffectiveAmounts) -> Any:
    if context.policy.cpu_limit == "equal-to-request":
        same = {"cpu": cpus(_equal(container, amounts))}
        return container_patch(context.object, container, {"requests": same, "limits": same})
    change: dict[str, Any] = {"limits": {"cpu": None}}
    if "cpu" not in container.resources.requests and not _elsewhere(context, container):
        change["requests"] = {"cpu": cpus(amounts.request_milli)}
    return container_patch(context.object, container, change)


def _whole_pod(context: PodContext) -> Iterator[Remark]:
    """A limit of the pod as a whole is one quota for all its containers."""
    pod = context.object.pod
    limit = pod.resources.limits.get("cpu") if pod and pod.resources else None
    if limit is None or not limit.milli or context.object.batch or context.policy.cpu_limit != "never":
        return
    costs = _costs(context, limit.milli, 0)
    yield Remark(
        limit.place,
        f"CPU limit {limit.text} on the pod as a whole: {_what_it_does(costs, 0)}, in any of its containers",
        "remove the pod's limits.cpu and keep its requests.cpu",
        Severity.ERROR if costs[0].stall_ms >= _HALF_LOST_MS else Severity.WARNING,
        cost=costs[-1],
    )


@rule(
    "exclusive-keeps-limit",
    Severity.INFO,
    "Keep them, and lift the quota of containers with exclusive CPUs on the node. A throttled sidecar "
    "gets a larger request and limit. Reported with policy exclusiveCPUs: true (--exclusive-cpus), and on "
    "pods of Koordinator's classes LSE and LSR.",
)
def _keeps_cpus(context: PodContext) -> Iterator[Remark]:
    """A CPU limit that exclusive CPUs depend on.

    A Guaranteed pod's container with an integer CPU request gets exclusive CPUs where the node's CPU manager
    is static. Guaranteed means limit = request for every container of the pod, sidecars too, so dropping any
    of these limits would lose the CPUs. cpu-limit does not report such pods.
    """
    # Dropping these limits would lose exclusive CPUs: the one case where the fix is to keep them.
    owners = exclusive_by_class(context)
    for container, amounts in amounts_of(context, "cpu"):
        whole = exclusive_cpus(context, container)
        if not amounts.written or not owners:
            continue
        if not whole:
            # It is throttled, but its limit keeps the pod Guaranteed.
            cost = cost_of(context, amounts.limit_milli, at_once(container.settings) or 1)
            yield Remark(
                amounts.written.place,
                f"CPU limit {amounts.written.text} keeps the pod Guaranteed, which the exclusive CPUs of "
                f"{', '.join(owners)} depend on{_if_added(context)}"
                + (f"; it costs: {stall(cost)}" if cost.stall_ms else ""),
                "keep a limit; if throttling delays this container, raise its request and limit together",
                container=container.name,
                cost=cost,
            )
            continue
        yield Remark(
            amounts.written.place,
            f"limit = request = {many(whole, 'CPU')}: a static CPU manager gives this container "
            f"{many(whole, 'exclusive CPU')}{_if_added(context)}; without the limit the pod is Burstable and "
            "runs in the shared pool",
            "keep the limit, and lift the quota on the node (kubelet 1.33 and later does so for containers "
            "with exclusive CPUs: gate DisableCPUQuotaWithExclusiveCPUs; so does corelane)",
            container=container.name,
        )


def _if_added(context: PodContext) -> str:
    """The condition on containers that the manifest does not show."""
    pod = context.object.pod
    if pod is None or pod.whole:
        return ""
    return " if every container added to the pod has limit = request, too"


@rule(
    "fractional-cpu-limit",
    Severity.WARNING,
    "Drop the limit, or use an integer and as many threads. Checked where the policy allows limits.",
)
def _fractional(context: PodContext) -> Iterator[Remark]:
    """A CPU limit that is not an integer.

    Runtimes that read the quota start as many threads as it has CPUs, rounded up: 1500m becomes two threads
    which together get three quarters of their demand, 500m one that is stopped half of the time.
    """
    # Runtimes that read the quota round it up; checked only where the policy allows limits.
    if context.policy.cpu_limit == "never":
        return
    for container, amounts in amounts_of(context, "cpu"):
        if not amounts.limit_milli % 1000 or not amounts.written or at_once(container.settings) is not None:
            continue
        threads = -(-amounts.limit_milli // 1000)
        cost = cost_of(context, amounts.limit_milli, max(threads, 2))
        yield Remark(
            amounts.written.place,
            f"CPU limit {amounts.written.text} is not an integer: runtimes that read it (JVM, Go "
            f"1.25, .NET) round up to {many(threads, 'CPU')}, others count the node's; {stall(cost)}",
            "drop the limit, or make it an integer and set the number of threads to it",
            container=container.name,
            cost=cost,
        )


RULES: Final = (_cpu_limit, _keeps_cpus, _fractional)
