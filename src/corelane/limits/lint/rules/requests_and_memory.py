"""Rules about CPU requests: the guaranteed share of a container, and the QoS class of its pod."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from corelane import workload
from corelane.limits.lint.findings import Remark, container_patch, cpus, many, rule
from corelane.limits.lint.manifests import ManifestContainer
from corelane.limits.lint.pod_context import (
    PodContext,
    containers,
    effective,
    ends_soon,
    exclusive_cpus,
    has_priority,
    is_node_critical,
    pod_request,
    qos,
    requests_and_limits,
    runs_alone,
)
from corelane.limits.lint.policy import Severity
from corelane.workload.request import ContainerKind, QOSClass, qos_class

_EVICTED: Final = ", first to be evicted"
_CLASSES: Final = {
    QOSClass.BEST_EFFORT: f"; the pod is BestEffort{_EVICTED}",
    QOSClass.BURSTABLE: "; the pod is Burstable",
    QOSClass.GUARANTEED: "",
}


@rule(
    "no-cpu-request",
    Severity.WARNING,
    "Set resources.requests.cpu to what the container uses under load (a high percentile of its usage).",
)
def _no_cpu_request(context: PodContext) -> Iterator[Remark]:
    """No CPU request.

    The request is the guarantee: the scheduler reserves it on the node, and as the cgroup's weight it decides
    the shares when CPUs are contended. Without one the container has the smallest weight and starves beside
    any container with a request. A pod without any requests and limits is BestEffort, and evicted
    first unless it has a priority. An init container that runs alone has the
    share and the reservation of the whole pod, so it needs no request of its own, and is not reported beside
    a container whose request it will have.
    """
    pod = context.object.pod
    if context.policy.cpu_request == "optional" or (
        pod and pod.resources and "cpu" in pod.resources.requests
    ):
        return
    reserved = pod_request(context, "cpu")
    where = "beside busy containers of its pod" if reserved else "under contention"
    class_text = _CLASSES[qos(context)] if pod and pod.whole else ""
    if has_priority(context):
        class_text = class_text.removesuffix(_EVICTED)
    lacking = [container for container in containers(context) if _lacks_request(context, container)]
    lasting = any(each.kind is not ContainerKind.INIT for each in lacking)
    for container in lacking:
        if (reserved or lasting) and runs_alone(context, container):
            continue
        init = container.kind is ContainerKind.INIT
        message = (
            f"no CPU request: {where} it gets the smallest share (2 shares, as a request of 2m), and the "
            f"scheduler reserves nothing for it{class_text}"
        )
        fix = "set resources.requests.cpu to what it uses under load, and no limit"
        level = Severity.INFO if init else None
        yield Remark(container.resources.place, message, fix, level, container.name)


def _lacks_request(context: PodContext, container: ManifestContainer) -> bool:
    """Whether a container that works has neither a CPU request nor anything that becomes one."""
    own = container.resources
    written = "cpu" in own.requests or "cpu" in own.limits
    return not (container.waits or written or effective(context, own, "cpu").request)


@rule("zero-cpu-request", Severity.WARNING, "Set it to what the container uses under load.")
def _zero_request(context: PodContext) -> Iterator[Remark]:
    """A CPU request of 0.

    It counts as a request for the API server, so no default replaces it, but it guarantees nothing.
    """
    for container in containers(context):
        asked = container.resources.requests.get("cpu")
        if asked is not None and asked.nano == 0:
            message = "a CPU request of 0 reserves nothing and has the smallest weight, as no request"
            yield Remark(asked.place, message, "set it to what it uses under load", container=container.name)


@rule("request-from-limit", Severity.INFO, "Set the request.")
def _request_from_limit(context: PodContext) -> Iterator[Remark]:
    """A CPU request that follows from the limit only.

    The API server uses the limit as the missing request. Removing the limit then removes the request and the
    guarantee, too.
    """
    pod = context.object.pod
    whole = pod is not None and pod.whole and qos(context) is QOSClass.GUARANTEED
    for container in containers(context):
        limit = container.resources.limits.get("cpu")
        if limit is None or not limit.milli or "cpu" in container.resources.requests:
            continue
        patch = {"requests": {"cpu": limit.text}}
        # Whether the pod is Guaranteed for certain, and only with this limit.
        by_limit = whole and qos(context, without_cpu_limit=container) is not QOSClass.GUARANTEED
        changed = "share and QoS class" if by_limit else "the share"
        yield Remark(
            limit.place,
            f"no CPU request: the API server uses the limit, {limit.text}, so removing the limit removes the "
            f"request, too, and changes {changed}",
            f"set requests.cpu: {limit.text}",
            container=container.name,
            patch=container_patch(context.object, container, patch),
        )


@rule(
    "exclusive-cpus-lost",
    Severity.WARNING,
    "Complete the other containers; or drop the CPU limit if no exclusive CPUs are needed.",
)
def _exclusive_cpus_lost(context: PodContext) -> Iterator[Remark]:
    """Integer limit = request in a pod that is not Guaranteed.

    A static CPU manager gives exclusive CPUs only to containers of Guaranteed pods, and a pod is Guaranteed
    only if all its containers, sidecars and init containers too, have limit = request for CPU and memory. One
    sidecar without a memory limit costs the main container its CPUs.
    """
    # Containers with integer limit = request in a pod that other containers keep from Guaranteed.
    if not context.policy.exclusive_cpus or context.object.batch or qos(context) is QOSClass.GUARANTEED:
        return
    if context.object.pod and context.object.pod.resources:
        return
    wanting = [
        own for own in containers(context) if _wants_cpus(context, own) and not exclusive_cpus(context, own)
    ]
    spoiling = [(container, lack) for container in containers(context) if (lack := _lack(context, container))]
    for container in wanting:
        others = "; ".join(f"{other.name or 'a container'} {lack}" for other, lack in spoiling)
        count = effective(context, container.resources, "cpu").request // 10**9
        yield Remark(
            container.resources.limits["cpu"].place,
            f"limit = request = {many(count, 'CPU')}, but the pod is Burstable, so a static CPU manager "
            f"gives it no exclusive CPUs: {others}",
            "give every container of the pod limit = request for CPU and memory; or, if no "
            "exclusive CPUs are needed, drop the CPU limit",
            container=container.name,
        )


def _wants_cpus(context: PodContext, container: ManifestContainer) -> bool:
    requests, limits = requests_and_limits(context, container)
    alone = workload.exclusive_cpus(qos_class([(requests, limits)]), requests["cpu"], unit=10**9)
    return alone > 0 and "cpu" in container.resources.limits


def _lack(context: PodContext, container: ManifestContainer) -> str:
    """Return what keeps a container's pod from being Guaranteed; empty where it does not."""
    lacks = []
    for resource in ("cpu", "memory"):
        amounts = effective(context, container.resources, resource)
        if not amounts.limit:
            lacks.append(f"has no {resource} limit")
        elif amounts.limit != amounts.request:
            milli = f" ({cpus(amounts.request_milli)}, {cpus(amounts.limit_milli)})"
            shown = milli if resource == "cpu" else ""
            where = "above" if amounts.limit > amounts.request else "below"
            lacks.append(f"has a {resource} limit {where} its request{shown}")
    return " and ".join(lacks)


RULES: Final = (_no_cpu_request, _zero_request, _request_from_limit, _exclusive_cpus_lost)


@rule(
    "memory-limit-missing",
    Severity.WARNING,
    "Set limits.memory and requests.memory alike, at what the container needs at its peak.",
)
def _missing(context: PodContext) -> Iterator[Remark]:
    """No memory limit.

    Memory cannot be reclaimed as CPU time can. Without a limit one leak ends in the node's out-of-memory
    killer, which may choose another pod. A limit at the request is right only where the request
    is the peak: without a limit containers often use more. Information on init containers, and on what a
    deadline (activeDeadlineSeconds, or the program timeout) ends within ten minutes.
    """
    level = context.object.pod.resources if context.object.pod else None
    if context.policy.memory_limit == "optional" or (level and "memory" in level.limits):
        return
    for container in containers(context):
        own = container.resources
        if container.waits or container.prepares:
            continue
        if "memory" in own.limits or effective(context, own, "memory").limit:
            continue
        asked = own.requests.get("memory")
        now = f" (it requests {asked.text})" if asked else ""
        both = context.policy.memory_limit == "equal-to-request"
        what = "requests.memory and limits.memory" if both else "limits.memory"
        yield Remark(
            asked.place if asked else own.place,
            "no memory limit: a leak takes the node's memory, and the kernel may then kill any pod",
            f"set {what} to what it needs at its peak{now}",
            Severity.INFO if container.kind is ContainerKind.INIT or ends_soon(context, container) else None,
            container.name,
        )


@rule(
    "memory-limit-not-request", Severity.WARNING, "Make them equal, at what the container needs at its peak."
)
def _not_request(context: PodContext) -> Iterator[Remark]:
    """A memory limit above the request.

    The scheduler counts the request only. If several containers use the memory between request and limit at
    once, the node runs out, and those furthest above their requests are killed. CPU time is reclaimed at
    once, so requests without limits are safe there. Information on init containers and on what a deadline
    ends within ten minutes, and nothing where the pod reserves as much as the limit for its other containers.
    """
    if context.policy.memory_limit != "equal-to-request":
        return
    reserved = pod_request(context, "memory")
    spared = is_node_critical(context)
    victims = "others are killed" if spared else "this container is among the first killed"
    for container in containers(context):
        asked, limit = (
            part.get("memory") for part in (container.resources.requests, container.resources.limits)
        )
        if asked is None or limit is None or not asked.nano or not limit.nano or limit.nano <= asked.nano:
            continue
        if container.waits or (runs_alone(context, container) and limit.nano <= reserved):
            continue
        yield Remark(
            limit.place,
            f"memory limit {limit.text} above the request {asked.text}: the difference is not "
            f"reserved, and when the node runs short {victims}",
            f"set both to what it needs: {limit.text}, if it uses the limit",
            Severity.INFO if container.kind is ContainerKind.INIT or ends_soon(context, container) else None,
            container.name,
            patch=container_patch(context.object, container, {"requests": {"memory": limit.text}}),
        )


MEMORY_RULES: Final = (_missing, _not_request)
