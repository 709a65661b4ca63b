"""Rules about memory: a limit always, and equal to the request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from corelane.limits.lint.findings import Remark, container_patch, rule
from corelane.limits.lint.pod_context import PodContext, containers, effective
from corelane.limits.lint.policy import Severity
from corelane.workload import ContainerKind


def _pod_says(context: PodContext) -> bool:
    """Whether the pod as a whole has a memory limit, which then applies to all its containers."""
    pod = context.object.pod
    return bool(pod and pod.resources and "memory" in pod.resources.limits)


@rule("memory-limit-missing", Severity.WARNING, "Set limits.memory equal to requests.memory.")
def _missing(context: PodContext) -> Iterator[Remark]:
    """No memory limit.

    Memory cannot be reclaimed as CPU time can. Without a limit one leak ends in the node's out-of-memory
    killer, which may choose another pod.
    """
    if context.policy.memory_limit == "optional" or _pod_says(context):
        return
    for container in containers(context):
        own = container.resources
        if "memory" in own.limits or effective(context, own, "memory").limit:
            continue
        asked = own.requests.get("memory")
        size = asked.text if asked else ""
        yield Remark(
            asked.place if asked else own.place,
            "no memory limit: a leak takes the node's memory, and the kernel may then kill any pod",
            f"set limits.memory: {size}, its request"
            if size
            else "set requests.memory and limits.memory alike",
            Severity.INFO if container.kind is ContainerKind.INIT else None,
            container.name,
            patch=container_patch(context.object, container, {"limits": {"memory": size}}) if size else None,
        )


@rule(
    "memory-limit-not-request", Severity.WARNING, "Make them equal, at what the container needs at its peak."
)
def _not_request(context: PodContext) -> Iterator[Remark]:
    """A memory limit above the request.

    The scheduler counts the request only. If several containers use the memory between request and limit at
    once, the node runs out, and those furthest above their requests are killed. CPU time is reclaimed at
    once, so requests without limits are safe there.
    """
    if context.policy.memory_limit != "equal-to-request":
        return
    for container in containers(context):
        asked, limit = (
            part.get("memory") for part in (container.resources.requests, container.resources.limits)
        )
        if asked is None or limit is None or not asked.nano or not limit.nano or limit.nano <= asked.nano:
            continue
        yield Remark(
            limit.place,
            f"memory limit {limit.text} above the request {asked.text}: the difference is not "
            "reserved, and when the node runs short this container is among the first killed",
            f"set both to what it needs: {limit.text}, if it uses the limit",
            container=container.name,
            patch=container_patch(context.object, container, {"requests": {"memory": limit.text}}),
        )


RULES: Final = (_missing, _not_request)
