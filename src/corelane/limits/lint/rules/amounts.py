"""Rules about amounts that the API server rejects, or the kernel cannot enforce."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from corelane.kernel import cfs
from corelane.limits.lint import unrendered
from corelane.limits.lint.findings import Remark, cpus, ms, rule
from corelane.limits.lint.located import Amount, ManifestResources
from corelane.limits.lint.pod_context import PodContext, containers, effective
from corelane.limits.lint.policy import Severity


def _owners(context: PodContext) -> Iterator[tuple[str, ManifestResources]]:
    """Every container with its name, then the pod as a whole."""
    for one in containers(context):
        yield one.name, one.resources
    if context.object.pod and context.object.pod.resources:
        yield "", context.object.pod.resources


@rule("bad-quantity", Severity.ERROR, "Write CPUs as 250m or 2, memory as 512Mi.")
def _bad_quantity(context: PodContext) -> Iterator[Remark]:
    """An amount that is not a quantity.

    The API server rejects the object. None may be negative. CPU amounts finer than 1m, which it rounds up,
    are only information.
    """
    for name, own in _owners(context):
        for part, amounts in (("requests", own.requests), ("limits", own.limits)):
            for resource, amount in amounts.items():
                if amount.nano is None:
                    yield _unreadable(f"{part}.{resource}", amount, name)
                elif resource == "cpu" and amount.nano % 10**6:
                    yield _too_fine(f"{part}.{resource}", amount, name)


def _unreadable(path: str, amount: Amount, container: str) -> Remark:
    fix = unrendered.remedy(amount.text) or "write it as in 250m, 2 or 512Mi"
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
            found = effective(context, own, resource)
            asked = own.requests.get(resource)
            if asked is None or not found.limit or found.request <= found.limit:
                continue
            limit = found.written.text if found.written else cpus(found.limit_milli)
            whose = f"limit {limit}" + (f" from LimitRange {found.origin}" if found.origin else "")
            yield Remark(
                found.written.place if found.written else asked.place,
                f"{resource} {whose} is below the request {asked.text}: the API server rejects the pod",
                "drop the limit" if resource == "cpu" else f"set limits.memory to {asked.text}",
                container=name,
            )


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


RULES: Final = (_bad_quantity, _limit_below_request, _quota_floor)
