"""Rules about memory: a limit always, and equal to the request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from corelane.limits.lint.findings import Remark, container_patch, rule
from corelane.limits.lint.pod_context import (
    PodContext,
    containers,
    effective,
    ends_soon,
    is_node_critical,
    pod_request,
    runs_alone,
)
from corelane.limits.lint.policy import Severity
from corelane.workload.request import ContainerKind


def _pod_says(context: PodContext) -> bool:
    """Whether the pod as a whole has a memory limit, which then applies to all its containers."""
    pod = context.object.pod
    return bool(pod and pod.resources and "memory" in pod.resources.limits)


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
    if context.policy.memory_limit == "optional" or _pod_says(context):
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


RULES: Final = (_missing, _not_request)
