"""Rules about CPU requests: the share that a container is guaranteed, and the class that its pod gets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from corelane.limits.lint.findings import LintRule, Remark, container_patch, cpus, many
from corelane.limits.lint.manifests import ManifestContainer
from corelane.limits.lint.pod_context import PodContext, containers, effective, exclusive_cpus, qos
from corelane.limits.lint.policy import Severity
from corelane.workload import ContainerKind, QOSClass

__all__ = ["RULES"]

_CLASSES: Final = {
    QOSClass.BEST_EFFORT: "the pod is BestEffort, first to be evicted",
    QOSClass.BURSTABLE: "the pod is Burstable",
    QOSClass.GUARANTEED: "",
}


def _no_cpu_request(scene: PodContext) -> Iterator[Remark]:
    pod = scene.object.pod
    if scene.policy.cpu_request == "optional" or (pod and pod.resources and "cpu" in pod.resources.requests):
        return
    for container in containers(scene):
        found = effective(scene, container.resources, "cpu")
        if found.request or {"cpu"} & {*container.resources.requests, *container.resources.limits}:
            continue
        init = container.kind is ContainerKind.INIT
        message = (
            "no CPU request: under contention it gets the least share there is (2 shares, as a request of "
            f"2m), and the scheduler reserves nothing for it; {_CLASSES[qos(scene)]}"
        )
        fix = "set resources.requests.cpu to what it uses under load, and no limit"
        level = Severity.INFO if init else None
        yield Remark(container.resources.place, message, fix, level, container.name)


def _zero_request(scene: PodContext) -> Iterator[Remark]:
    for container in containers(scene):
        asked = container.resources.requests.get("cpu")
        if asked is not None and asked.nano == 0:
            message = "a CPU request of 0 reserves nothing and weighs as little as none"
            yield Remark(asked.place, message, "set it to what it uses under load", container=container.name)


def _request_from_limit(scene: PodContext) -> Iterator[Remark]:
    for container in containers(scene):
        limit = container.resources.limits.get("cpu")
        if limit is None or not limit.milli or "cpu" in container.resources.requests:
            continue
        patch = {"requests": {"cpu": limit.text}}
        yield Remark(
            limit.place,
            f"no CPU request of its own: the API server takes the limit, {limit.text}, for it, so the "
            "request would go with the limit, and share and QoS class with it",
            f"write requests.cpu: {limit.text} out",
            container=container.name,
            patch=container_patch(scene.object, container, patch),
        )


def _exclusive_cpus_lost(scene: PodContext) -> Iterator[Remark]:
    """Containers that ask for whole CPUs as if to own them, in a pod that others keep from Guaranteed."""
    if not scene.policy.exclusive_cpus or scene.object.batch or qos(scene) is QOSClass.GUARANTEED:
        return
    if scene.object.pod and scene.object.pod.resources:
        return
    wanting = [one for one in containers(scene) if _wants_cpus(scene, one) and not exclusive_cpus(scene, one)]
    spoiling = [(one, lack) for one in containers(scene) if (lack := _lack(scene, one))]
    for container in wanting:
        others = "; ".join(f"{one.name or 'a container'} {lack}" for one, lack in spoiling)
        count = effective(scene, container.resources, "cpu").request // 10**9
        yield Remark(
            container.resources.limits["cpu"].place,
            f"limit = request = {many(count, 'whole CPU')}, but the pod is Burstable, so no static CPU "
            f"manager gives it CPUs of its own: {others}",
            "give every container of the pod limit = request for CPU and memory; or, if exclusive CPUs are "
            "not wanted, drop the CPU limit",
            container=container.name,
        )


def _wants_cpus(scene: PodContext, container: ManifestContainer) -> bool:
    own = container.resources
    cpu, memory = effective(scene, own, "cpu"), effective(scene, own, "memory")
    alike = bool(cpu.limit and cpu.limit == cpu.request and memory.limit and memory.limit == memory.request)
    return alike and cpu.written is not None and cpu.request % 10**9 == 0


def _lack(scene: PodContext, container: ManifestContainer) -> str:
    """What keeps a container's pod from being Guaranteed; empty where it does not."""
    lacks = []
    for resource in ("cpu", "memory"):
        found = effective(scene, container.resources, resource)
        if not found.limit:
            lacks.append(f"has no {resource} limit")
        elif found.limit != found.request:
            shown = f" ({cpus(found.request_milli)}, {cpus(found.limit_milli)})" if resource == "cpu" else ""
            where = "above" if found.limit > found.request else "below"
            lacks.append(f"has a {resource} limit {where} its request{shown}")
    return " and ".join(lacks)


RULES: Final = (
    LintRule(
        "no-cpu-request",
        Severity.WARNING,
        "no CPU request",
        "The request is the guarantee: the scheduler keeps it free on the node, and as the group's weight "
        "it decides who gets how much when CPUs are contended. Without one the container has the least "
        "weight there is and starves beside any neighbour that has one. A pod without any requests and "
        "limits is BestEffort.",
        "Set resources.requests.cpu to what the container uses under load (a high percentile of its usage).",
        _no_cpu_request,
    ),
    LintRule(
        "zero-cpu-request",
        Severity.WARNING,
        "a CPU request of 0",
        "It counts as a request for the API server, so no default replaces it, but it guarantees nothing.",
        "Set it to what the container uses under load.",
        _zero_request,
    ),
    LintRule(
        "request-from-limit",
        Severity.INFO,
        "a CPU request that only the limit gives",
        "The API server takes a limit for the missing request. Whoever then removes the limit removes the "
        "request too, and with it the guarantee.",
        "Write the request out.",
        _request_from_limit,
    ),
    LintRule(
        "exclusive-cpus-lost",
        Severity.WARNING,
        "whole CPUs asked for in a pod that is not Guaranteed",
        "A static CPU manager gives whole CPUs only to containers of Guaranteed pods, and a pod is "
        "Guaranteed only if all its containers, sidecars and init containers too, have limit = request for "
        "CPU and memory. One sidecar without a memory limit costs the main container its CPUs.",
        "Complete the other containers; or drop the CPU limit if exclusive CPUs are not wanted.",
        _exclusive_cpus_lost,
    ),
)
