"""Rules about CPU burst and quota periods: Koordinator's annotations and the kubelet's configuration."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from corelane import durations
from corelane.limits.lint.findings import Remark, rule
from corelane.limits.lint.located import Position, place, text
from corelane.limits.lint.pod_context import PodContext, amounts_of
from corelane.limits.lint.policy import Severity

_ANNOTATION: Final = "koordinator.sh/cpuBurst"
_CONFIG: Final = "cpu-burst-config"
_POLICIES: Final = ("none", "cpuBurstOnly", "cfsQuotaBurstOnly", "auto")
_BURSTING: Final = ("cpuBurstOnly", "auto")
_FIELDS: Final = {"cpuBurstPercent": 0, "cfsQuotaBurstPercent": 100, "cfsQuotaBurstPeriodSeconds": -1}
"""Numbers with the least value that means something."""
_DEFAULT_PERCENT: Final = 1000
_USUAL_US: Final = 100_000
_SHORT_US: Final = 10_000


@rule(
    "cpu-burst",
    Severity.ERROR,
    'Use {"policy":"cpuBurstOnly","cpuBurstPercent":100} at most; better, drop the limit.',
)
def _burst(context: PodContext) -> Iterator[Remark]:
    """A CPU burst annotation that cannot work.

    Koordinator writes the burst to the kernel, which accepts none above the quota (EINVAL): 1000 %, the
    default once a policy is on, never works on a mainline kernel. Invalid JSON and unknown policies are
    ignored.
    """
    pod = context.object.pod
    member = pod.annotations.get(_ANNOTATION) if pod else None
    if member is None:
        return
    yield from _values(_tree(text(member.value)), _ANNOTATION, member.place)
    if not any(amounts.limit for _, amounts in amounts_of(context, "cpu")):
        yield Remark(
            member.place,
            f"{_ANNOTATION} on a pod without CPU limits: there is no quota to burst beyond",
            "drop the annotation",
            Severity.INFO,
        )


@rule("cpu-burst-config", Severity.ERROR, "As cpu-burst.")
def _cluster_burst(context: PodContext) -> Iterator[Remark]:
    """A cluster's CPU burst configuration that cannot work.

    As cpu-burst, for cpu-burst-config in Koordinator's slo-controller-config: it applies to every pod.
    """
    if context.object.kind != "ConfigMap" or not (written := text(context.object.node, "data", _CONFIG)):
        return
    here = place(context.object.node, "data", _CONFIG)
    tree = _tree(written)
    if tree is None:
        yield from _values(None, _CONFIG, here)
        return
    parts = [("clusterStrategy", tree.get("clusterStrategy"))]
    nodes = tree.get("nodeStrategies")
    of_nodes = nodes if isinstance(nodes, list) else ()
    parts += [(f"nodeStrategies[{i}]", strategy) for i, strategy in enumerate(of_nodes)]
    for name, part in parts:
        if isinstance(part, dict):
            yield from _values(part, f"{_CONFIG}: {name}", here)


def _tree(written: str) -> dict[str, Any] | None:
    """A JSON object; None where it is none."""
    try:
        tree = json.loads(written)
    except (ValueError, RecursionError):
        return None
    return tree if isinstance(tree, dict) else None


def _values(tree: dict[str, Any] | None, name: str, here: Position) -> Iterator[Remark]:
    if tree is None:
        message = f"{name} is not a JSON object, so it is ignored"
        yield Remark(here, message, 'write it as {"policy":"cpuBurstOnly","cpuBurstPercent":100}')
        return
    policy = tree.get("policy", "none")
    if policy not in _POLICIES:
        yield Remark(here, f"{name}: policy {policy!r} does not exist", f"use one of {', '.join(_POLICIES)}")
    for field, least in _FIELDS.items():
        value = tree.get(field, least)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            yield Remark(
                here, f"{name}: {field} {value!r} is not an integer from {least} up", "correct or drop it"
            )
    percent = tree.get("cpuBurstPercent", _DEFAULT_PERCENT)
    if policy in _BURSTING and isinstance(percent, int) and percent > 100:
        by_default = "cpuBurstPercent" not in tree
        how = "without cpuBurstPercent, which then is 1000 %," if by_default else f"cpuBurstPercent {percent}"
        yield Remark(
            here,
            f"{name}: {how} requests a burst above the quota, which the Linux kernel rejects (EINVAL): no "
            "burst at all",
            "set cpuBurstPercent to at most 100 (patched kernels, such as Alibaba Cloud Linux, accept more)",
        )


@rule("cfs-period", Severity.ERROR, "Keep 100ms; against throttling drop limits rather than shorten periods.")
def _period(context: PodContext) -> Iterator[Remark]:
    """A quota period that the kubelet or the kernel rejects.

    cpuCFSQuotaPeriod must lie between 1ms and 1s, and needs a feature gate unless it is 100ms. Quotas are
    checked at the scheduler's tick, so periods below 10 ms lose several percent (a warning).
    """
    node, key = context.object.node, "cpuCFSQuotaPeriod"
    written = text(node, key)
    if context.object.kind != "KubeletConfiguration" or not written:
        return
    here = place(node, key)
    try:
        period: float | None = durations.parse(written) / 1000
    except durations.DurationError:
        period = None
    if period is None or not 1_000 <= period <= 1_000_000:
        yield Remark(
            here,
            f"{key} {written!r} is not a duration from 1ms to 1s: the kubelet does not start",
            "use 100ms, the default, or another value in this range",
        )
    elif period != _USUAL_US and text(node, "featureGates", "CustomCPUCFSQuotaPeriod").lower() != "true":
        yield Remark(
            here,
            f"{key} {written} needs the feature gate CustomCPUCFSQuotaPeriod: the kubelet does not start",
            "set featureGates.CustomCPUCFSQuotaPeriod: true, or drop the period",
        )
    elif period < _SHORT_US:
        yield Remark(
            here,
            f"{key} {written}: a quota is checked at ticks of 1 to 4 ms, so in periods this short "
            "containers lose several percent even at quotas that just suffice, and no limit is below "
            f"{1000 / period:.2g} CPUs",
            "use 10ms or more",
            Severity.WARNING,
        )


@rule("cfs-quota-off", Severity.INFO, "Nothing, if intended.")
def _quota_off(context: PodContext) -> Iterator[Remark]:
    """A kubelet that enforces no CPU limit.

    With cpuCFSQuota: false no container is throttled or capped.
    """
    # With cpuCFSQuota: false no limit throttles, whatever manifests have.
    node = context.object.node
    off = text(node, "cpuCFSQuota").lower() in ("false", "no", "off")
    if context.object.kind == "KubeletConfiguration" and off:
        yield Remark(
            place(node, "cpuCFSQuota"),
            "cpuCFSQuota: false: no CPU limit is enforced on this node",
            "nothing, if intended; requests still share the CPUs",
        )


RULES: Final = (_burst, _cluster_burst, _period, _quota_off)
