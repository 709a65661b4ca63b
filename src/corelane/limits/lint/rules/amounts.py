"""Rules about amounts that the API server rejects, or the kernel cannot enforce."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from corelane.kernel import cfs
from corelane.limits.lint import yaml_documents
from corelane.limits.lint.findings import Remark, cpus, ms, rule
from corelane.limits.lint.located import Amount, ManifestResources
from corelane.limits.lint.pod_context import PodContext, amounts_of, containers, effective, pod_request
from corelane.limits.lint.policy import Severity


def _owners(context: PodContext) -> Iterator[tuple[str, ManifestResources]]:
    """Every container with its name, then the pod as a whole."""
    for container in containers(context):
        yield container.name, container.resources
    if context.object.pod and context.object.pod.resources:
        yield "", context.object.pod.resources


@rule("bad-quantity", Severity.ERROR, "Write CPUs as 250m or 2, memory as 512Mi.")
def _bad_quantity(context: PodContext) -> Iterator[Remark]:
    """An amount that is not a quantity, or cannot be meant.

    The API server rejects the object. None may be negative. It takes memory in thousandths of a byte (200m),
    CPUs in units of memory (10Mi are 10,485,760 CPUs) and memory without a unit (512 bytes), with which no
    container starts or no node fits. CPU amounts finer than 1m, which it rounds up, are only information.
    """
    for name, own in _owners(context):
        for part, amounts in (("requests", own.requests), ("limits", own.limits)):
            for resource, amount in amounts.items():
                if amount.nano is None:
                    yield _unreadable(f"{part}.{resource}", amount, name)
                elif resource == "cpu" and amount.nano % 10**6:
                    yield _too_fine(f"{part}.{resource}", amount, name)


def _unreadable(path: str, amount: Amount, container: str) -> Remark:
    if amount.meant:
        message = f"{path} {amount.text!r} is {amount.error}"
        return Remark(amount.place, message, f"write {amount.meant}, if that is meant", container=container)
    fix = yaml_documents.remedy(amount.text) or "write it as in 250m, 2 or 512Mi"
    return Remark(
        amount.place, f"{path} {amount.text!r} is not an amount: {amount.error}", fix, container=container
    )


def _too_fine(path: str, amount: Amount, container: str) -> Remark:
    # Pods and pod templates: SetDefaults_ResourceList in pkg/apis/core/v1/defaults.go.
    rounded = cpus(amount.milli)
    message = f"{path} {amount.text!r} is finer than 1m of a CPU: the API server rounds it up to {rounded}"
    return Remark(amount.place, message, f"write {rounded}", Severity.INFO, container)


@rule(
    "limit-below-request", Severity.ERROR, "Drop the CPU limit; make the memory limit equal to the request."
)
def _limit_below_request(context: PodContext) -> Iterator[Remark]:
    """A limit below the request.

    The API server rejects a pod that requests more than it may use. A LimitRange's default can be that limit,
    although the manifest sets none.
    """
    for name, own in _owners(context):
        for resource in ("cpu", "memory"):
            amounts = effective(context, own, resource)
            asked = own.requests.get(resource)
            if asked is None or not amounts.limit or amounts.request <= amounts.limit:
                continue
            limit = amounts.written.text if amounts.written else cpus(amounts.limit_milli)
            title, fix = f"limit {limit}", f"set limits.{resource} to {asked.text}"
            if amounts.origin:
                title += f" from LimitRange {amounts.origin}"
                other = f"or change LimitRange {amounts.origin}, which sets a limit"
                fix = f"set limits.{resource}: {asked.text} here, {other}"
            elif resource == "cpu":
                fix = "drop the limit"
            yield Remark(
                amounts.written.place if amounts.written else asked.place,
                f"{resource} {title} is below the request {asked.text}: the API server rejects the pod",
                fix,
                container=name,
            )


@rule("no-node-fits", Severity.ERROR, "Lower the request, or name a larger node with --node-cpus.")
def _no_node_fits(context: PodContext) -> Iterator[Remark]:
    """More CPUs requested than the largest node has.

    No node can run the pod, so it stays pending. Only judged where the policy says how many CPUs the largest
    node has (nodeCPUs, --node-cpus).
    """
    most, pod = context.policy.node_cpus, context.object.pod
    if not most or pod is None:
        return
    over = [each for each in amounts_of(context, "cpu") if each[1].request_milli > most * 1000]
    for container, amounts in over:
        asked = container.resources.requests.get("cpu") or container.resources.limits.get("cpu")
        yield Remark(
            asked.place if asked else container.resources.place,
            f"{cpus(amounts.request_milli)} CPUs requested, {most} on the largest node: no node can run it",
            "lower requests.cpu",
            container=container.name,
        )
    total = -(-pod_request(context, "cpu") // 10**6)
    if not over and total > most * 1000:
        message = f"{cpus(total)} CPUs requested by the whole pod, {most} on the largest node"
        yield Remark(pod.place, f"{message}: no node can run it", "lower the requests, or split the pod")


@rule("quota-floor", Severity.WARNING, "Drop the limit, or write what the container gets.")
def _quota_floor(context: PodContext) -> Iterator[Remark]:
    """A CPU limit that becomes less than 1 ms of quota.

    The kernel accepts no quota under 1 ms. With periods of 100 ms that is 10m; with shorter periods
    (cpuCFSQuotaPeriod) it is more: 200m at 5 ms. The kubelet rounds up to it without a message.
    """
    period = context.policy.cfs_period_us
    floor = cfs.MIN_QUOTA_US * 1000 // period
    for name, own in _owners(context):
        limit = own.limits.get("cpu")
        if limit is None or not 0 < limit.milli < floor:
            continue
        asked = limit.milli * period / 1e6
        yield Remark(
            limit.place,
            f"limit {limit.text} is {ms(asked)} in a period of {ms(period / 1000)}: the kernel's smallest "
            f"quota is 1 ms, so the container gets up to {cpus(floor)} of a CPU, in slices of 1 ms",
            f"drop the limit, or give at least {cpus(floor)}",
            container=name,
        )


RULES: Final = (_bad_quantity, _no_node_fits, _limit_below_request, _quota_floor)
