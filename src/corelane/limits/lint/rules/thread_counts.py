"""Rules about thread counts: more threads than the quota serves, or as many as the node has CPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from corelane.limits.lint.findings import Remark, cpus, many, rule, stall
from corelane.limits.lint.located import pairs
from corelane.limits.lint.manifests import ManifestContainer
from corelane.limits.lint.pod_context import (
    PodContext,
    amounts_of,
    containers,
    cost_of,
    exclusive_cpus,
    quota_lifted,
)
from corelane.limits.lint.policy import Severity
from corelane.limits.lint.thread_settings import (
    ThreadSetting,
    at_once,
    counts_node_cpus,
    own_entrypoint,
    readable_variable,
)
from corelane.workload.request import ContainerKind

_ACCELERATOR: Final = re.compile(r"gpu|tpu|nvidia|gaudi|neuron")
_HALF_LOST_MS: Final = 50.0
_NODE_CPUS: Final = 16
_OWN_DEFAULT: Final = "GOMAXPROCS"
"""Set to the node's CPUs it changes nothing, and idle threads of Go cost nothing."""


def _on_accelerator(container: ManifestContainer) -> bool:
    """Whether a device (nvidia.com/gpu, google.com/tpu) does the work, so that CPU pools are hardly busy."""
    limits = pairs(container.node, "resources", "limits")
    return any("/" in name and _ACCELERATOR.search(name) for name, _ in limits)


def _limited(context: PodContext) -> Iterator[tuple[ManifestContainer, int]]:
    """Containers with a quota, and the limit in milliCPU."""
    if quota_lifted(context):
        return
    for container, amounts in amounts_of(context, "cpu"):
        if amounts.limit_milli and container.kind is not ContainerKind.INIT:
            yield container, amounts.limit_milli


@rule("threads-over-limit", Severity.WARNING, "As many threads as whole CPUs in the limit; or no limit.")
def _over_limit(context: PodContext) -> Iterator[Remark]:
    """More threads than the limit serves.

    Threads that run at once share one quota: n threads at a limit of L CPUs get L/n of their demand, and are
    stopped together for the rest of each period, with the locks they hold and the replies half sent. Detected
    are GOMAXPROCS, OMP_NUM_THREADS and its kin, WEB_CONCURRENCY, workers and threads of gunicorn and uvicorn,
    worker_processes of nginx (processes are multiplied by their threads), and in any variable or argument the
    JVM's -XX:ActiveProcessorCount, -XX:ParallelGCThreads, -XX:ConcGCThreads, -Xgcthreads and the parallelism
    of its common ForkJoinPool and of virtual threads. Threads of a collector stop in every collection.
    """
    for container, limit in _limited(context):
        parts = [setting.count or 0 for setting in _counted(container) if setting.partial]
        threads, fed = max(at_once(container.settings) or 0, *parts, 0), -(-limit // 1000)
        if threads <= fed:
            continue
        cost = cost_of(context, limit, threads)
        listed = ", ".join(f"{setting.name}={setting.count}" for setting in _counted(container))
        largest = max(_counted(container), key=lambda setting: setting.count or 0)
        level = Severity.ERROR if cost.stall_ms >= _HALF_LOST_MS else Severity.WARNING
        yield Remark(
            largest.place,
            f"{listed}: {many(threads, 'thread')} on a limit of {cpus(limit)}: {stall(cost)}",
            f"run no more than {many(fed, 'thread')} at once, or drop the limit",
            Severity.INFO if context.object.batch else level,
            container.name,
            cost,
        )


def _counted(container: ManifestContainer) -> list[ThreadSetting]:
    return [setting for setting in container.settings if setting.valid and setting.count]


@rule(
    "threads-from-node",
    Severity.WARNING,
    "Fix the number of threads or workers, and drop the limit. nodeCPUs in the policy is the size of "
    "the nodes.",
)
def _from_node(context: PodContext) -> Iterator[Remark]:
    """A limit on software that starts a thread for every CPU of the node.

    nginx, PyTorch, TensorFlow and others count the node's CPUs, not the quota. The same pod is then fine on a
    small node and loses two thirds of its throughput on a large one. Not reported is what reads its limit:
    Istio's proxy from 1.18, or with ISTIO_CPU_LIMIT; Envoy from 1.37; nginx's official image with its
    autotune variable; the JVM from 10, Go from 1.25 or with automaxprocs, .NET from 5.
    """
    for container, limit in _limited(context):
        software = counts_node_cpus(container.image, container.node)
        if software is None or at_once(container.settings) is not None or exclusive_cpus(context, container):
            continue
        node_cpus = context.policy.node_cpus or _NODE_CPUS
        cost = cost_of(context, limit, node_cpus)
        if not cost.stall_ms:
            continue
        fix = f"{software.remedy}, and drop the limit"
        variable = readable_variable(software, container.image)
        if variable and own_entrypoint(container.node):
            fix += f"; if the limit has to stay, set {variable}, which reads it (official image)"
        yield Remark(
            container.resources.limits["cpu"].place
            if "cpu" in container.resources.limits
            else container.place,
            f"{software.what}, whatever the limit of {cpus(limit)}: on a node of {node_cpus} CPUs "
            f"{stall(cost)}; the larger the node, the worse",
            fix,
            Severity.INFO if context.object.batch or _on_accelerator(container) else None,
            container.name,
            cost,
        )


@rule(
    "threads-follow-limit",
    Severity.WARNING,
    "Set it from requests.cpu (rounded up to an integer), or to a number.",
)
def _follow_limit(context: PodContext) -> Iterator[Remark]:
    """A thread count set from a missing limit.

    A resourceFieldRef to limits.cpu gives the node's allocatable CPUs where no limit is set: on a large node
    far more threads than intended. Information for GOMAXPROCS, as Go takes that number by itself, too.
    """
    for container, amounts in amounts_of(context, "cpu"):
        for setting in () if amounts.limit else container.settings:
            if setting.from_field != "limits.cpu" or setting.count is not None:
                continue
            own = setting.name == _OWN_DEFAULT
            yield Remark(
                setting.place,
                f"{setting.name} is set from limits.cpu, but there is no CPU limit: it becomes the CPU count "
                "of the node" + (", as without the variable" if own else ""),
                "set a number, if the node's CPUs are too many"
                if own
                else "set it from requests.cpu, or to a number",
                Severity.INFO if own else None,
                container.name,
            )


@rule("bad-thread-count", Severity.WARNING, "Write an integer; GOMAXPROCS=500m is invalid.")
def _unusable(context: PodContext) -> Iterator[Remark]:
    """A thread setting that is not a number.

    Runtimes ignore an invalid value without a message, and count the node's CPUs.
    """
    for container in containers(context):
        for setting in container.settings:
            if not setting.valid:
                yield Remark(
                    setting.place,
                    f"{setting.name}={setting.written!r} is not a number of threads: it is ignored, and the "
                    "node's CPUs count",
                    "write an integer from 1 up",
                    container=container.name,
                )


RULES: Final = (_over_limit, _from_node, _follow_limit, _unusable)
