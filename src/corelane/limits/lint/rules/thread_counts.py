"""Rules about threads: more of them than the quota feeds, or as many as the node has CPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from corelane.limits.lint.findings import LintRule, Remark, cpus, many, stall
from corelane.limits.lint.manifests import ManifestContainer
from corelane.limits.lint.pod_context import (
    PodContext,
    containers,
    cost_of,
    effective,
    exclusive_cpus,
    quota_lifted,
)
from corelane.limits.lint.policy import Severity
from corelane.limits.lint.thread_settings import ThreadSetting, at_once, counts_node_cpus
from corelane.workload import ContainerKind

__all__ = ["RULES"]

_HALF_LOST_MS: Final = 50.0
_NODE_CPUS: Final = 16


def _limited(scene: PodContext) -> Iterator[tuple[ManifestContainer, int]]:
    """Containers that a quota holds, with the limit in milliCPU."""
    if quota_lifted(scene):
        return
    for container in containers(scene):
        limit = effective(scene, container.resources, "cpu").limit_milli
        if limit and container.kind is not ContainerKind.INIT:
            yield container, limit


def _over_limit(scene: PodContext) -> Iterator[Remark]:
    for container, limit in _limited(scene):
        threads, fed = at_once(container.settings) or 0, -(-limit // 1000)
        if threads <= fed:
            continue
        cost = cost_of(scene, limit, threads)
        largest = max(_counted(container), key=lambda one: one.count or 0)
        level = Severity.ERROR if cost.stall_ms >= _HALF_LOST_MS else Severity.WARNING
        yield Remark(
            largest.place,
            f"{_listed(container)}: {many(threads, 'thread')} on a limit of {cpus(limit)}: {stall(cost)}",
            f"run no more than {many(fed, 'thread')} at once, or drop the limit",
            Severity.INFO if scene.object.batch else level,
            container.name,
            cost,
        )


def _counted(container: ManifestContainer) -> list[ThreadSetting]:
    return [one for one in container.settings if one.valid and one.count]


def _listed(container: ManifestContainer) -> str:
    return ", ".join(f"{one.name}={one.count}" for one in _counted(container))


def _from_node(scene: PodContext) -> Iterator[Remark]:
    for container, limit in _limited(scene):
        known = counts_node_cpus(container.image)
        if known is None or at_once(container.settings) is not None or exclusive_cpus(scene, container):
            continue
        node_cpus = scene.policy.node_cpus or _NODE_CPUS
        cost = cost_of(scene, limit, node_cpus)
        yield Remark(
            container.resources.limits["cpu"].place
            if "cpu" in container.resources.limits
            else container.place,
            f"{known.what}, whatever the limit of {cpus(limit)}: on a node of {node_cpus} CPUs "
            f"{stall(cost)}; the larger the node, the worse",
            f"{known.remedy}; and drop the limit",
            Severity.INFO if scene.object.batch else None,
            container.name,
            cost,
        )


def _follow_limit(scene: PodContext) -> Iterator[Remark]:
    for container in containers(scene):
        if effective(scene, container.resources, "cpu").limit:
            continue
        for one in container.settings:
            if one.from_field != "limits.cpu" or one.count is not None:
                continue
            yield Remark(
                one.place,
                f"{one.name} comes from limits.cpu, but there is no CPU limit: it becomes the CPUs of the "
                "node",
                "take it from requests.cpu, or write the number",
                container=container.name,
            )


def _unusable(scene: PodContext) -> Iterator[Remark]:
    for container in containers(scene):
        for one in container.settings:
            if not one.valid:
                yield Remark(
                    one.place,
                    f"{one.name}={one.written!r} is no number of threads: it is ignored, and the node's "
                    "CPUs count",
                    "write a whole number from 1 on",
                    container=container.name,
                )


RULES: Final = (
    LintRule(
        "threads-over-limit",
        Severity.WARNING,
        "more threads than the limit feeds",
        "Threads that run at once share one quota: n threads at a limit of L CPUs have L/n of the time "
        "they want, and stand still together for the rest of each period. Locks held and replies half sent "
        "wait with them. Seen are GOMAXPROCS, OMP_NUM_THREADS and its kin, -XX:ActiveProcessorCount, "
        "WEB_CONCURRENCY, workers and threads of gunicorn and uvicorn, worker_processes of nginx; "
        "processes are multiplied by their threads.",
        "As many threads as whole CPUs in the limit; or no limit.",
        _over_limit,
    ),
    LintRule(
        "threads-from-node",
        Severity.WARNING,
        "a limit on software that starts a thread for every CPU of the node",
        "nginx, PyTorch, TensorFlow and others count the node's CPUs, not the quota. The same pod is then "
        "fine on a small node and loses two thirds of its throughput on a large one.",
        "Fix the number of threads or workers, and drop the limit. nodeCPUs in the policy says how large "
        "nodes are.",
        _from_node,
    ),
    LintRule(
        "threads-follow-limit",
        Severity.WARNING,
        "threads taken from a limit that is not there",
        "A resourceFieldRef to limits.cpu gives the node's allocatable CPUs where no limit is set: on a "
        "large node far more threads than was meant.",
        "Take it from requests.cpu (rounded up to whole CPUs), or write the number.",
        _follow_limit,
    ),
    LintRule(
        "bad-thread-count",
        Severity.WARNING,
        "a thread setting that is no number",
        "Runtimes ignore what they cannot read, without a word, and count the node's CPUs.",
        "Write a whole number; GOMAXPROCS=500m means nothing.",
        _unusable,
    ),
)
