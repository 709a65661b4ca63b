"""Rules about CPU limits: what they cost a service, and where one must stay."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from corelane.limits.lint.findings import LintRule, Remark, container_patch, cpus, many, ms, stall
from corelane.limits.lint.located import text
from corelane.limits.lint.manifests import ManifestContainer
from corelane.limits.lint.pod_context import (
    EffectiveAmounts,
    PodContext,
    QuotaCost,
    RangeDefault,
    containers,
    cost_of,
    effective,
    exclusive_cpus,
    held_by_class,
    qos,
    quota_lifted,
)
from corelane.limits.lint.policy import Severity
from corelane.limits.lint.thread_settings import at_once, is_jvm
from corelane.workload import ContainerKind, QOSClass

__all__ = ["RULES", "THREADS_SHOWN"]

THREADS_SHOWN: Final = 4
"""For how many threads the cost is shown where the manifest does not say how many run."""
_HALF_LOST_MS: Final = 50.0


def _cpu_limit(scene: PodContext) -> Iterator[Remark]:
    if held_by_class(scene):
        return
    for container in containers(scene):
        found = effective(scene, container.resources, "cpu")
        if found.written and found.limit and not exclusive_cpus(scene, container) and _unwanted(scene, found):
            yield _limited(scene, container, found)
    yield from _whole_pod(scene)


def _unwanted(scene: PodContext, found: EffectiveAmounts) -> bool:
    """Whether the policy objects to a limit; a batch workload's is only mentioned."""
    wanted = scene.policy.batch_cpu_limit if scene.object.batch else scene.policy.cpu_limit
    if scene.object.batch and wanted == "allowed" and scene.policy.cpu_limit == "never":
        return True
    return wanted == "never" or (wanted == "equal-to-request" and found.limit != found.request)


def _limited(scene: PodContext, container: ManifestContainer, found: EffectiveAmounts) -> Remark:
    assert found.written is not None
    threads = at_once(container.settings) or 0
    costs = _costs(scene, found.limit_milli, threads)
    return Remark(
        found.written.place,
        f"CPU limit {found.written.text} {_about(scene, container)}: {_what_it_does(costs, threads)}",
        _fix(scene, container, found),
        _severity(scene, container, costs),
        container.name,
        costs[-1],
        _patch(scene, container, found),
    )


def _costs(scene: PodContext, limit_milli: int, threads: int) -> list[QuotaCost]:
    """For the threads that run at once, or for one and for several where nobody knows."""
    several = scene.policy.node_cpus or max(THREADS_SHOWN, 2 * -(-limit_milli // 1000))
    return [cost_of(scene, limit_milli, count) for count in ((threads,) if threads else (1, several))]


def _about(scene: PodContext, container: ManifestContainer) -> str:
    if container.kind is ContainerKind.INIT:
        return "on an init container"
    if scene.object.batch:
        return "on a batch workload"
    sidecar = container.kind is ContainerKind.SIDECAR
    return "on a sidecar, which holds up every request through it" if sidecar else "on a service"


def _what_it_does(costs: list[QuotaCost], threads: int) -> str:
    quota = f"{ms(costs[0].quota_ms)} in every {ms(costs[0].period_ms)}"
    if costs[-1].stall_ms == 0:
        whom = f"the {many(threads, 'thread')} that it runs" if threads else "all CPUs that a node has"
        return (
            f"{quota} is enough for {whom}, so it costs next to nothing; "
            "throttled periods may be counted all the same"
        )
    return f"{quota}; " + "; ".join(stall(cost) for cost in costs if cost.stall_ms > 0)


def _severity(scene: PodContext, container: ManifestContainer, costs: list[QuotaCost]) -> Severity:
    """By the time that is lost for certain, never by how many periods would read throttled."""
    excused = scene.object.batch and scene.policy.batch_cpu_limit == "allowed"
    if excused or container.kind is ContainerKind.INIT or quota_lifted(scene):
        return Severity.INFO
    if costs[-1].stall_ms == 0:
        return Severity.INFO
    return Severity.ERROR if costs[0].stall_ms >= _HALF_LOST_MS else Severity.WARNING


def _fix(scene: PodContext, container: ManifestContainer, found: EffectiveAmounts) -> str:
    if scene.policy.cpu_limit == "equal-to-request":
        amount = _equal(container, found)
        if amount != found.request_milli:
            return f"set requests.cpu and limits.cpu to {cpus(amount)}: whole CPUs, as runtimes round up"
        return f"set limits.cpu to the request, {cpus(amount)}"
    if quota_lifted(scene):
        return "nothing: cpu-quota.crio.io: disable tells the runtime to set no quota"
    parts = [f"remove limits.cpu and keep requests.cpu: {cpus(found.request_milli)}"]
    if "cpu" not in container.resources.requests:
        parts[0] = (
            f"replace limits.cpu by requests.cpu: {cpus(found.request_milli)} (now the limit stands for it)"
        )
    if qos(scene) is QOSClass.GUARANTEED:
        parts.append("the pod then is Burstable, no longer Guaranteed")
    if is_jvm(container.node, container.image) and not container.settings:
        parts.append("the JVM then sees the node's CPUs: set -XX:ActiveProcessorCount")
    if _reads_limit(container):
        parts.append("threads taken from limits.cpu then follow the node's CPUs: take them from requests.cpu")
    return "; ".join([*parts, *_beside(scene)])


def _beside(scene: PodContext) -> Iterator[str]:
    """What else in the namespace has to do with the limit."""
    default = scene.ranges.get("cpu", RangeDefault())
    if default.limit:
        yield f"LimitRange {default.range} would give it another: change that first"
    for quota in scene.of_kind("ResourceQuota"):
        if text(quota.node, "spec", "hard", "limits.cpu"):
            yield f"ResourceQuota {quota.name} refuses pods without one: change that first"
    for scaler in scene.of_kind("HorizontalPodAutoscaler"):
        target = [text(scaler.node, "spec", "scaleTargetRef", key) for key in ("kind", "name")]
        if target == [scene.object.kind, scene.object.name]:
            yield f"utilisation may then pass 100 %, so HorizontalPodAutoscaler {scaler.name} scales sooner"


def _reads_limit(container: ManifestContainer) -> bool:
    return any(one.from_field == "limits.cpu" for one in container.settings)


def _equal(container: ManifestContainer, found: EffectiveAmounts) -> int:
    """What request and limit should both be, in milliCPU: whole, unless it is said how many threads run."""
    return found.request_milli if at_once(container.settings) else -(-found.request_milli // 1000) * 1000


def _patch(scene: PodContext, container: ManifestContainer, found: EffectiveAmounts) -> Any:
    if scene.policy.cpu_limit == "equal-to-request":
        same = {"cpu": cpus(_equal(container, found))}
        return container_patch(scene.object, container, {"requests": same, "limits": same})
    change: dict[str, Any] = {"limits": {"cpu": None}}
    if "cpu" not in container.resources.requests:
        change["requests"] = {"cpu": cpus(found.request_milli)}
    return container_patch(scene.object, container, change)


def _whole_pod(scene: PodContext) -> Iterator[Remark]:
    """A limit of the pod as a whole is one quota for all its containers."""
    pod = scene.object.pod
    limit = pod.resources.limits.get("cpu") if pod and pod.resources else None
    if limit is None or not limit.milli or scene.object.batch or scene.policy.cpu_limit != "never":
        return
    costs = _costs(scene, limit.milli, 0)
    yield Remark(
        limit.place,
        f"CPU limit {limit.text} on the pod as a whole: {_what_it_does(costs, 0)}, whichever container they "
        "are in",
        "remove the pod's limits.cpu and keep its requests.cpu",
        Severity.ERROR if costs[0].stall_ms >= _HALF_LOST_MS else Severity.WARNING,
        cost=costs[-1],
    )


def _keeps_cpus(scene: PodContext) -> Iterator[Remark]:
    """Dropping these limits would lose the CPUs: the one place where the advice is to keep them."""
    owners = held_by_class(scene)
    for container in containers(scene):
        found, whole = effective(scene, container.resources, "cpu"), exclusive_cpus(scene, container)
        if not found.written or not owners:
            continue
        if not whole:
            yield _keeps_class(scene, container, found, owners)
            continue
        yield Remark(
            found.written.place,
            f"limit = request = {many(whole, 'whole CPU')} makes this container one that a static CPU "
            f"manager gives {many(whole, 'CPU')} of its own; without the limit the pod is Burstable and "
            "shares them",
            "keep the limit; the quota goes on the node instead (kubelet 1.33 and later lifts it for "
            "containers with exclusive CPUs: gate DisableCPUQuotaWithExclusiveCPUs; corelane does)",
            container=container.name,
        )


def _keeps_class(
    scene: PodContext, container: ManifestContainer, found: EffectiveAmounts, owners: tuple[str, ...]
) -> Remark:
    """A container beside the one with CPUs of its own: throttled, but its limit keeps the pod Guaranteed."""
    assert found.written is not None
    threads = at_once(container.settings) or 1
    cost = cost_of(scene, found.limit_milli, threads)
    whose = f"{', '.join(owners)} {'has' if len(owners) == 1 else 'have'} CPUs alone"
    return Remark(
        found.written.place,
        f"CPU limit {found.written.text} keeps the pod Guaranteed, and only so {whose}"
        + (f"; it costs: {stall(cost)}" if cost.stall_ms else ""),
        "keep a limit; if this container must not wait, raise its request and limit together",
        container=container.name,
        cost=cost,
    )


def _fractional(scene: PodContext) -> Iterator[Remark]:
    """Runtimes that read the quota round it up; said only where the policy lets limits be at all."""
    if scene.policy.cpu_limit == "never":
        return
    for container in containers(scene):
        found = effective(scene, container.resources, "cpu")
        if not found.limit_milli % 1000 or not found.written or at_once(container.settings) is not None:
            continue
        threads = -(-found.limit_milli // 1000)
        cost = cost_of(scene, found.limit_milli, max(threads, 2))
        yield Remark(
            found.written.place,
            f"CPU limit {found.written.text} is no whole number of CPUs: runtimes that read it (JVM, Go "
            f"1.25, .NET) round up to {many(threads, 'CPU')}, others count the node's; {stall(cost)}",
            "drop the limit, or make it whole and fix the number of threads to it",
            container=container.name,
            cost=cost,
        )


RULES: Final = (
    LintRule(
        "cpu-limit",
        Severity.WARNING,
        "a CPU limit on a service",
        "A limit is a quota of CPU time in every period of 100 ms, shared by all threads of the container. "
        "Threads that run at once use it up together: at 200m, four threads in 5 ms. Then all of them "
        "stand still until the next period, whatever the node has left and however low the average use is. "
        "The more CPUs the node has, the sooner. The request alone already guarantees the container its "
        "share when CPUs are contended. Severity goes by the time that is lost for certain, not by how "
        "many periods read as throttled: error where a single thread, or the threads that the manifest "
        "names, stand still for 50 ms or more of a period; info where the quota is enough for them, on "
        "init containers and on batch workloads.",
        "Remove resources.limits.cpu, keep resources.requests.cpu. Runtimes that size themselves by the "
        "limit (JVM, Go 1.25, .NET) then see the node's CPUs: say how many threads they may run. Whoever "
        "needs the limit, to protect neighbours without requests for instance, says so: # corelane: ignore "
        "cpu-limit REASON.",
        _cpu_limit,
    ),
    LintRule(
        "exclusive-keeps-limit",
        Severity.INFO,
        "a CPU limit that earns exclusive CPUs",
        "A Guaranteed pod's container with a whole number of CPUs gets them alone where the node's CPU "
        "manager is static. Guaranteed means limit = request for every container of the pod, sidecars too, "
        "so dropping any of these limits would lose the CPUs. cpu-limit says nothing of such pods.",
        "Keep them, and have the quota of containers with CPUs of their own lifted on the node. A sidecar "
        "that must not wait gets a larger request and limit. Policy exclusiveCPUs: false says that no node "
        "hands out CPUs.",
        _keeps_cpus,
    ),
    LintRule(
        "fractional-cpu-limit",
        Severity.WARNING,
        "a CPU limit that is no whole number",
        "Runtimes that read the quota start as many threads as it has CPUs, rounded up: 1500m becomes two "
        "threads which together have three quarters of the time they want, 500m one that is stopped half "
        "of the time.",
        "Drop the limit, or use whole CPUs and as many threads. Checked where the policy lets limits be.",
        _fractional,
    ),
)
