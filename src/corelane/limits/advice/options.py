"""The options for one container: each a change with its forecast effect, risk, patch and consequences."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from corelane.kernel import cfs
from corelane.limits.advice import changes, effects
from corelane.limits.advice.changes import NewResources, Patch, Risk, RiskLevel, Weight
from corelane.limits.advice.effects import Fit, LimitChange, LoadShape, Range, Tail
from corelane.limits.advice.subjects import NodeOccupancy, Subject
from corelane.limits.lint import findings
from corelane.limits.lint.policy import Policy
from corelane.limits.measure import Latency, Measurement

_GOOD, _FAIR = 0.001, 0.01
"""Parts of CPU demand: a smaller loss is not noticeable, or costs little (see measure.throttling)."""
_MOST, _NEARLY_ALL = 0.75, 0.95
"""Parts of the shapes that explain a measurement."""
_MARGIN: Final = 0.05
"""CPUs by which a measured width may be off before it counts as one more."""
_HOW_TO_BURST: Final = (
    "Kubernetes has no field for it: Koordinator's agent sets it from the annotation; by hand, write {} to "
    "the container's cpu.max.burst (v1: cpu.cfs_burst_us) after every restart; Linux 5.14 and later"
)
_BEFORE_1_33: Final = (
    "older kubelets: cpuCFSQuota: false for the whole node, or CRI-O's annotation cpu-quota.crio.io: disable"
)

_LIFTED: Final = (
    "for exclusive CPUs the kubelet lifts the quota (gate DisableCPUQuotaWithExclusiveCPUs: on by "
    "default since 1.33, always in 1.37), and so do corelane's nodes"
)


class OptionKind(StrEnum):
    """Kinds of changes."""

    DROP_LIMIT = "drop-limit"
    RAISE_LIMIT = "raise-limit"
    ADD_BURST = "add-burst"
    SET_THREADS = "set-threads"
    WHOLE_CPUS = "whole-cpus"
    LIFT_QUOTA = "lift-quota"
    RAISE_REQUEST = "raise-request"


@dataclass(frozen=True, slots=True)
class Effect:
    """A forecast: throttled and used ms a second, how long a stop may last in ms, and the p99.

    Without `throttled`, or a `tail`, `no_throttled` and `no_tail` are the reason and what to collect.
    """

    throttled: Range | None
    used: Range
    stop: Range
    tail: Tail | None = None
    no_tail: str = ""
    no_throttled: str = ""


@dataclass(frozen=True, slots=True)
class Option:
    """One change. `deviation` is how it violates the policy; `recommended` marks the best one.

    `limit` is the new one in CPUs, `request` that in milliCPU, where that is the change.
    """

    kind: OptionKind
    title: str
    effect: Effect
    risk: Risk
    consequences: tuple[str, ...]
    patch: Patch | None = None
    deviation: str = ""
    recommended: bool = False
    limit: float | None = None
    request: int | None = None


@dataclass(frozen=True, slots=True)
class AdviceCase:
    """The facts from which options are made."""

    subject: Subject
    measured: Measurement
    fit: Fit
    nodes: Sequence[NodeOccupancy]
    policy: Policy
    weight: Weight = cfs.pod_weight

    @property
    def limit(self) -> float:
        """The limit that is enforced, in CPUs."""
        return self.fit.quota / self.fit.period


def options(case: AdviceCase) -> tuple[Option, ...]:
    """Return every sensible option, the recommended one first."""
    if case.subject.exclusive:
        count = case.subject.exclusive
        cpus = findings.many(count, "exclusive CPU")
        effect = _effect(case, LimitChange(None, threads=count))
        made = [
            Option(
                OptionKind.LIFT_QUOTA,
                f"keep limit = request; lift the quota of its {cpus} on the node",
                effect,
                Risk(RiskLevel.NONE, "its CPUs are exclusive"),
                (
                    "without the limit the pod is no longer Guaranteed and loses its exclusive CPUs",
                    _LIFTED,
                    _BEFORE_1_33,
                    changes.qos_text(case.subject, case.subject.qos),
                ),
            )
        ]
    elif case.subject.exclusive_siblings:
        made = [option for option in (_raise(case), _burst(case), _threads(case)) if option]
    else:
        makers = (_drop, _raise, _burst, _threads, _whole)
        made = [option for make in makers if (option := make(case))]
    # The best is the first that complies with the policy; where limits are allowed, risk to others counts.
    second = (OptionKind.ADD_BURST, OptionKind.WHOLE_CPUS)
    fits = [option for option in made if not option.deviation and option.kind not in second]
    if case.policy.cpu_limit == "allowed" and not case.subject.exclusive:
        fits.sort(key=lambda option: list(RiskLevel).index(option.risk.level) > 1)
    if case.subject.batch and case.policy.batch_cpu_limit == "allowed":
        fits = [option for option in fits if option.kind is not OptionKind.DROP_LIMIT] or fits
    marked = [replace(option, recommended=option is next(iter(fits), None)) for option in made]
    return tuple(sorted(marked, key=lambda option: not option.recommended))


def _effect(case: AdviceCase, change: LimitChange) -> Effect:
    return effect_of(change, case.fit, case.measured.latency)


def effect_of(change: LimitChange, fit: Fit, latency: Latency | None) -> Effect:
    """Forecast a change of what was measured."""
    forecast = effects.forecast(fit, change)
    tail, no_tail = effects.tail(fit, forecast, latency)
    no_throttled = "" if forecast.throttled else effects.THROTTLED.collect
    stop = effects.longest_stop(fit, change)
    return Effect(forecast.throttled, forecast.used, stop, tail, no_tail, no_throttled)


def _drop(case: AdviceCase) -> Option | None:
    subject = case.subject
    effect = _effect(case, LimitChange(None))
    request = subject.request or _observed(case)
    change: dict[str, Any] = {"limits": {"cpu": None}, "requests": {"cpu": findings.cpus(request)}}
    new = NewResources(request, 0, subject.memory_request, subject.memory_limit)
    return Option(
        OptionKind.DROP_LIMIT,
        "drop the CPU limit" if subject.request else f"drop the CPU limit, request {findings.cpus(request)}",
        effect,
        _risk(case, None, request),
        (*_does(subject, new, case.fit.used, effect), *_unseen_limit(case)),
        changes.container_patch(subject, {"resources": change}),
        "the policy requires a CPU limit equal to the request"
        if case.policy.cpu_limit == "equal-to-request"
        else "",
    )


def _unseen_limit(case: AdviceCase) -> Iterator[str]:
    """Software that sizes itself by the limit counts the node's CPUs once there is none."""
    subject = case.subject
    if subject.follows_limit:
        yield (
            f"{', '.join(subject.follows_limit)} is set from limits.cpu, which without a limit is the node's "
            "CPU count: set it from requests.cpu, or to a number"
        )
    elif subject.threads is None:
        yield (
            "runtimes that size themselves by the limit (JVM, Go 1.25, .NET) then start threads for all of "
            "the node's CPUs: set the number of threads"
        )


def _raise(case: AdviceCase) -> Option | None:
    """Raise the limit to the smallest one with a loss that is not noticeable."""
    limit = _enough(case)
    if limit is None:
        return None
    subject, milli = case.subject, math.ceil(limit * 1000)
    both = bool(subject.exclusive_siblings) or case.policy.cpu_limit == "equal-to-request"
    request = milli if both else subject.request or _observed(case)
    amounts: dict[str, Any] = {"limits": {"cpu": findings.cpus(milli)}}
    if request != subject.request:
        amounts["requests"] = {"cpu": findings.cpus(request)}
    effect = _effect(case, LimitChange(limit))
    new = NewResources(request, milli, subject.memory_request, subject.memory_limit)
    same = subject.listed and changes.qos_after(subject, new) is subject.qos
    exclusive_too = []
    if subject.exclusive_siblings and milli % 1000 == 0:
        cpus = findings.many(milli // 1000, "exclusive CPU")
        exclusive_too = [f"with an integer request it gets {cpus}, too, where the CPU manager is static"]
    return Option(
        OptionKind.RAISE_LIMIT,
        f"raise {'request and' if both else 'the'} limit to {findings.cpus(milli)}",
        effect,
        _risk(case, limit, request),
        (*_does(subject, new, case.fit.used, effect), *exclusive_too),
        changes.container_patch(subject, {"resources": amounts}, resize=same),
        _against_limit(case),
        limit=limit,
    )


def _risk(case: AdviceCase, limit: float | None, request: int) -> Risk:
    """To other pods, by the CPU time that it may use then, and by a larger request."""
    now = case.subject.request
    full = changes.crowded_risk(case.nodes, request, now)
    return full or changes.unlimited_risk(case.nodes, limit, case.weight, now)


def _against_limit(case: AdviceCase) -> str:
    """The default policy allows no CPU limit but one that exclusive CPUs depend on."""
    subject, policy = case.subject, case.policy
    if (
        subject.exclusive_siblings
        or policy.cpu_limit != "never"
        or (subject.batch and policy.batch_cpu_limit == "allowed")
    ):
        return ""
    return "a CPU limit violates the policy; it is of use to protect other pods without requests"


def _enough(case: AdviceCase) -> float | None:
    """The smallest limit in CPUs with a loss that is not noticeable; None where the data cannot tell."""
    fit = case.fit
    if fit.shape is LoadShape.UNFITTED:
        return None if math.isinf(fit.cpus) else float(math.ceil(fit.cpus))
    if fit.shape is LoadShape.BUSY:
        most = math.ceil(fit.widest - _MARGIN)
        return float(max(most, 1)) if most > case.limit else None
    low, high = case.limit, fit.widest
    while high - low > 0.1:
        middle = (low + high) / 2
        runs = effects.reruns(fit, LimitChange(middle, fit.burst))
        losses = sorted(run.throttled for run in runs)
        # Not noticeable by most of the shapes that explain the measurement, and little by nearly all.
        if _at(losses, _MOST) <= _GOOD * fit.used and _at(losses, _NEARLY_ALL) <= _FAIR * fit.used:
            high = middle
        else:
            low = middle
    return math.ceil(high * 10) / 10


def _at(ordered: Sequence[float], part: float) -> float:
    return ordered[round(part * (len(ordered) - 1))]


def _burst(case: AdviceCase) -> Option | None:
    """Add the largest burst that the kernel takes: it helps work with pauses, never work without."""
    fit = case.fit
    if fit.shape is LoadShape.BUSY or fit.burst >= fit.quota:
        return None
    effect = _effect(case, LimitChange(case.limit, fit.quota))
    quota = round(fit.quota * 1000)
    policy = json.dumps({"policy": "cpuBurstOnly", "cpuBurstPercent": 100}, separators=(",", ":"))
    return Option(
        OptionKind.ADD_BURST,
        f"add a burst of {fit.quota:g} ms, equal to the quota",
        effect,
        _risk(case, 2 * case.limit, case.subject.request),
        (
            _HOW_TO_BURST.format(quota),
            changes.qos_text(case.subject, case.subject.qos),
        ),
        changes.annotation_patch(case.subject, "koordinator.sh/cpuBurst", policy),
        _against_limit(case),
    )


def _threads(case: AdviceCase) -> Option | None:
    """Run as many threads as whole CPUs in the limit: these do not use it up before the period ends."""
    subject, count, fit = case.subject, max(int(case.limit), 1), case.fit
    running = subject.threads or (max(fit.cpus, fit.wants) if math.isfinite(fit.cpus) else None)
    if running is not None and case.measured.threads:
        running = min(running, case.measured.threads)
    if running is None or count >= running - _MARGIN:
        return None
    effect = _effect(case, LimitChange(case.limit, fit.burst, count))
    what, how = changes.threads_patch(subject, count)
    same = NewResources(subject.request, subject.limit, subject.memory_request, subject.memory_limit)
    slower = []
    if case.limit < count:
        quota = findings.cpus(round(case.limit * 1000))
        after = f"{fit.quota:g} ms of every {fit.period:g} ms"
        slower = [f"a single thread still uses up the quota of {quota} after {after}"]
    return Option(
        OptionKind.SET_THREADS,
        f"run {findings.many(count, 'thread')}: {what}",
        effect,
        Risk(RiskLevel.NONE, "it uses no more CPU time than now"),
        (
            *_does(subject, same, fit.used, effect),
            *slower,
            "work shared by its threads takes longer, but the threads are no longer stopped together",
        ),
        how,
        _against_limit(case),
    )


def _whole(case: AdviceCase) -> Option | None:
    """Exclusive CPUs; then the node lifts the quota."""
    subject, fit = case.subject, case.fit
    if not case.policy.exclusive_cpus or subject.init or subject.pod_level or math.isinf(fit.cpus):
        return None
    wide = (
        fit.widest if fit.shape in (LoadShape.BUSY, LoadShape.UNFITTED) else max(fit.used / 1000, case.limit)
    )
    count = max(math.ceil(wide - _MARGIN), 1)
    effect = _effect(case, LimitChange(None, threads=count))
    whole = exclusive(subject, count, effect, case.nodes, fit.used)
    threads = f"run {findings.many(count, 'thread')}: more would only wait for each other"
    return replace(whole, consequences=(*whole.consequences, threads))


def exclusive(
    subject: Subject, count: int, effect: Effect, nodes: Sequence[NodeOccupancy], used: float | None = None
) -> Option:
    """Request exclusive CPUs: limit = request, an integer, the pod Guaranteed.

    With `used`, the container's use in ms a second, the consequences name what its autoscalers read.
    """
    memory = subject.memory_limit or subject.memory_request
    amounts = {"cpu": str(count)} | ({"memory": str(memory)} if memory else {})
    new = NewResources(1000 * count, 1000 * count, memory, memory, others_complete=True)
    consequences = list(_does(subject, new, used, effect))
    if not memory:
        consequences.append("also requires a memory request and an equal limit")
    if subject.incomplete_siblings:
        names = ", ".join(subject.incomplete_siblings)
        consequences.append(
            f"{names} must have limit = request for CPU and memory as well, or no CPU is exclusive"
        )
    return Option(
        OptionKind.WHOLE_CPUS,
        f"request {findings.many(count, 'exclusive CPU')}: limit = request = {count}",
        effect,
        changes.exclusive_risk(nodes, count, subject.request),
        (
            *consequences,
            "the node's CPU manager must be static (or corelane's), or no CPU is exclusive",
            _LIFTED,
        ),
        changes.container_patch(subject, {"resources": {"requests": amounts, "limits": amounts}}),
    )


def _does(subject: Subject, new: NewResources, used: float | None, effect: Effect) -> Iterator[str]:
    if subject.listed:
        yield changes.qos_text(subject, changes.qos_after(subject, new))
        if used is not None:
            yield from changes.utilisation(subject, new.request, used, effect.used)


def _observed(case: AdviceCase) -> int:
    """A request where there is none: used time plus a fifth, in steps of 10m."""
    return max(math.ceil(case.fit.used * 1.2 / 10) * 10, 10)
