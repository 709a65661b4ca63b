"""The options for one container: each a change with its predicted effect, risk, patch and consequences."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from corelane.kernel import cfs
from corelane.limits.advice import consequences, fitting, guarantees, patches, tails, threadcounts
from corelane.limits.advice.consequences import Wanted
from corelane.limits.advice.facts import Evidence, Node, Range, Subject
from corelane.limits.advice.fitting import Change, Fit, Shape
from corelane.limits.advice.guarantees import Risk, Weight
from corelane.limits.advice.patches import Patch
from corelane.limits.advice.tails import Tail
from corelane.limits.lint import Policy
from corelane.workload import QOSClass

__all__ = ["Case", "Effect", "Kind", "Option", "options"]

_GOOD, _FAIR = 0.001, 0.01
"""Of the CPU time that is wanted: losing less goes unnoticed, or costs little (see measure.verdict)."""
_MARGIN: Final = 0.05
"""CPUs by which a measured width may be off before it counts as one more."""
_HOW_TO_BURST: Final = (
    "Kubernetes has no field for it: Koordinator's agent sets it by the annotation; by hand it is {} in the "
    "container's cpu.max.burst (v1: cpu.cfs_burst_us), until it restarts; Linux 5.14 and later"
)
_BEFORE_1_33: Final = (
    "older kubelets: cpuCFSQuota: false for the whole node, or CRI-O's annotation cpu-quota.crio.io: disable"
)


class Kind(StrEnum):
    """What can be changed."""

    DROP_LIMIT = "drop-limit"
    RAISE_LIMIT = "raise-limit"
    ADD_BURST = "add-burst"
    SET_THREADS = "set-threads"
    WHOLE_CPUS = "whole-cpus"
    LIFT_QUOTA = "lift-quota"


@dataclass(frozen=True, slots=True)
class Effect:
    """What is predicted: throttled and used ms a second, how long a stop may last in ms, and the p99.

    Where there is no `tail`, `no_tail` says why and what to collect.
    """

    throttled: Range
    used: Range
    stop: Range
    tail: Tail | None = None
    no_tail: str = ""


@dataclass(frozen=True, slots=True)
class Option:
    """One change. `deviation` names what the policy has against it; `recommended` is the one to take."""

    kind: Kind
    title: str
    effect: Effect
    risk: Risk
    consequences: tuple[str, ...]
    patch: Patch | None = None
    deviation: str = ""
    recommended: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """All that is known when options are made."""

    subject: Subject
    evidence: Evidence
    fit: Fit
    nodes: Sequence[Node]
    policy: Policy
    weight: Weight = cfs.pod_weight

    @property
    def limit(self) -> float:
        """The limit that is enforced, in CPUs."""
        return self.fit.quota / self.fit.period


def options(case: Case) -> tuple[Option, ...]:
    """Every option that makes sense, the recommended one first."""
    if case.subject.exclusive:
        found = [_lift(case)]
    elif case.subject.held:
        found = [one for one in (_raise(case), _burst(case), _threads(case)) if one]
    else:
        makers = (_drop, _raise, _burst, _threads, _whole)
        found = [one for make in makers if (one := make(case))]
    best = _best(case, found)
    marked = [replace(one, recommended=one is best) for one in found]
    return tuple(sorted(marked, key=lambda one: not one.recommended))


def _best(case: Case, found: Sequence[Option]) -> Option | None:
    """The first that the policy has nothing against; where limits are allowed, others' safety counts."""
    fits = [one for one in found if not one.deviation and one.kind not in (Kind.ADD_BURST, Kind.WHOLE_CPUS)]
    careful = case.policy.cpu_limit == "allowed" and not case.subject.exclusive
    if careful:
        fits.sort(key=lambda one: list(guarantees.Danger).index(one.risk.danger) > 1)
    if case.subject.batch and case.policy.batch_cpu_limit == "allowed":
        fits = [one for one in fits if one.kind is not Kind.DROP_LIMIT] or fits
    return next(iter(fits), None)


def _effect(case: Case, change: Change) -> Effect:
    found = fitting.outcome(case.fit, change)
    what, why = tails.tail(case.fit, change, case.evidence)
    return Effect(found.throttled, found.used, tails.stop(case.fit, change), what, why)


def _drop(case: Case) -> Option | None:
    subject = case.subject
    effect = _effect(case, Change(None))
    request = subject.request or _observed(case)
    change: dict[str, Any] = {"limits": {"cpu": None}, "requests": {"cpu": patches.cpus(request)}}
    wanted = Wanted(request, 0, subject.memory_request, subject.memory_limit)
    return Option(
        Kind.DROP_LIMIT,
        "drop the CPU limit" if subject.request else f"drop the CPU limit, request {patches.cpus(request)}",
        effect,
        _risk(case, None, request),
        (*_does(case, wanted, effect), *_unseen_limit(case)),
        patches.container(subject, {"resources": change}),
        _against_drop(case),
    )


def _against_drop(case: Case) -> str:
    if case.policy.cpu_limit == "equal-to-request":
        return "the policy wants a CPU limit equal to the request"
    return ""


def _unseen_limit(case: Case) -> Iterator[str]:
    """Software that sizes itself by the limit finds the node's CPUs once there is none."""
    subject = case.subject
    if subject.follows_limit:
        yield (
            f"{', '.join(subject.follows_limit)} comes from limits.cpu, which then is the node's CPUs: "
            "take it from requests.cpu, or write the number"
        )
    elif subject.threads is None:
        yield (
            "what sizes itself by the limit (JVM, Go 1.25, .NET) then starts threads for all of the node's "
            "CPUs: say how many it may run"
        )


def _raise(case: Case) -> Option | None:
    """To the smallest limit under which next to nothing is lost."""
    limit = _enough(case)
    if limit is None:
        return None
    subject, milli = case.subject, math.ceil(limit * 1000)
    both = bool(subject.held) or case.policy.cpu_limit == "equal-to-request"
    request = milli if both else subject.request or _observed(case)
    amounts: dict[str, Any] = {"limits": {"cpu": patches.cpus(milli)}}
    if request != subject.request:
        amounts["requests"] = {"cpu": patches.cpus(request)}
    effect = _effect(case, Change(limit))
    wanted = Wanted(request, milli, subject.memory_request, subject.memory_limit, _keeps(subject))
    same = consequences.qos(subject, wanted) is subject.qos
    return Option(
        Kind.RAISE_LIMIT,
        f"raise request and limit to {patches.cpus(milli)}"
        if both
        else f"raise the limit to {patches.cpus(milli)}",
        effect,
        _risk(case, limit, request),
        (*_does(case, wanted, effect), *_own_cpu(subject, milli)),
        patches.container(subject, {"resources": amounts}, resize=same),
        _against_limit(case),
    )


def _risk(case: Case, limit: float | None, request: int) -> Risk:
    """To others, of what it may take then, and of what it requests where that is more than now."""
    now = case.subject.request
    full = guarantees.crowded(case.nodes, request, now)
    return full or guarantees.unlimited(case.nodes, limit, case.weight, now)


def _own_cpu(subject: Subject, milli: int) -> Iterator[str]:
    """Beside a container with exclusive CPUs a whole number is one that gets them, too."""
    if subject.held and milli % 1000 == 0:
        count = milli // 1000
        whose = "a CPU" if count == 1 else f"{count} CPUs"
        yield f"as a whole number it gets {whose} of its own, too, where the CPU manager is static"


def _keeps(subject: Subject) -> bool:
    return subject.qos is QOSClass.GUARANTEED


def _against_limit(case: Case) -> str:
    """The default policy knows no CPU limit but one that exclusive CPUs hang on."""
    subject, policy = case.subject, case.policy
    if subject.held or policy.cpu_limit != "never" or (subject.batch and policy.batch_cpu_limit == "allowed"):
        return ""
    return (
        "it keeps a CPU limit, which the policy is against: for who means to protect others without requests"
    )


def _enough(case: Case) -> float | None:
    """The smallest limit in CPUs that loses next to nothing; None where the data do not say."""
    one = case.fit
    if one.shape is Shape.UNFITTED:
        return None if math.isinf(one.cpus) else float(math.ceil(one.cpus))
    if one.shape is Shape.BUSY:
        most = math.ceil(one.widest - _MARGIN)
        return float(max(most, 1)) if most > case.limit else None
    low, high = case.limit, one.widest
    while high - low > 0.1:
        middle = (low + high) / 2
        if _is_enough(one, middle):
            high = middle
        else:
            low = middle
    return math.ceil(high * 10) / 10


def _is_enough(one: Fit, limit: float) -> bool:
    """By what explains the counters best next to nothing is lost, and little by anything else that does."""
    change = Change(limit, one.burst)
    if fitting.outcome(replace(one, rivals=()), change).throttled.high > _GOOD * one.used:
        return False
    return fitting.outcome(one, change).throttled.high <= _FAIR * one.used


def _burst(case: Case) -> Option | None:
    """As much as the kernel takes beside the quota: it helps work that pauses, never work that does not."""
    one = case.fit
    if one.shape is Shape.BUSY or one.burst >= one.quota:
        return None
    effect = _effect(case, Change(case.limit, one.quota))
    quota = round(one.quota * 1000)
    policy = json.dumps({"policy": "cpuBurstOnly", "cpuBurstPercent": 100}, separators=(",", ":"))
    return Option(
        Kind.ADD_BURST,
        f"add a burst of {one.quota:g} ms, as much as the quota",
        effect,
        _risk(case, 2 * case.limit, case.subject.request),
        (
            _HOW_TO_BURST.format(quota),
            consequences.qos_text(case.subject, case.subject.qos),
        ),
        patches.annotation(case.subject, "koordinator.sh/cpuBurst", policy),
        _against_limit(case),
    )


def _threads(case: Case) -> Option | None:
    """As many as whole CPUs in the limit: who runs at once no longer uses it up before the period ends."""
    count, one = max(int(case.limit), 1), case.fit
    running = case.subject.threads or (max(one.cpus, one.wants) if math.isfinite(one.cpus) else None)
    if running is None or count >= running - _MARGIN:
        return None
    effect = _effect(case, Change(case.limit, one.burst, count))
    what, how = threadcounts.patch(case.subject, count)
    wanted = _as_is(case.subject)
    return Option(
        Kind.SET_THREADS,
        f"run {count} thread{'s' * (count != 1)}: {what}",
        effect,
        guarantees.none("it takes no more than now"),
        (*_does(case, wanted, effect), *_slower(case, count)),
        how,
        _against_limit(case),
    )


def _slower(case: Case, count: int) -> Iterator[str]:
    if case.limit < count:
        yield (
            f"a single thread still uses up {patches.cpus(round(case.limit * 1000))} in "
            f"{case.fit.quota:g} ms of every {case.fit.period:g} ms"
        )
    yield "work that its threads shared takes longer by itself, but is no longer stopped together"


def _as_is(subject: Subject) -> Wanted:
    same = Wanted(subject.request, subject.limit, subject.memory_request, subject.memory_limit)
    return replace(same, others_complete=subject.qos is QOSClass.GUARANTEED)


def _whole(case: Case) -> Option | None:
    """CPUs of its own: limit = request, whole, the pod Guaranteed; then the node lifts the quota."""
    subject, one = case.subject, case.fit
    if not case.policy.exclusive_cpus or subject.init or subject.whole_pod or math.isinf(one.cpus):
        return None
    wide = one.widest if one.shape in (Shape.BUSY, Shape.UNFITTED) else max(one.used / 1000, case.limit)
    count = max(math.ceil(wide - _MARGIN), 1)
    cpus = str(count)
    memory = subject.memory_limit or subject.memory_request
    amounts: dict[str, Any] = {"requests": {"cpu": cpus}, "limits": {"cpu": cpus}}
    if memory:
        amounts["requests"]["memory"] = amounts["limits"]["memory"] = str(memory)
    wanted = Wanted(1000 * count, 1000 * count, memory, memory, others_complete=True)
    return Option(
        Kind.WHOLE_CPUS,
        f"ask for {count} whole CPU{'s' * (count != 1)} and pin: limit = request = {count}",
        _effect(case, Change(None, threads=count)),
        guarantees.exclusive(case.nodes, count, subject.request),
        (
            *_does(case, wanted, _effect(case, Change(None, threads=count))),
            *_needs(subject, memory),
            *_lifted_by(),
            f"run {count} thread{'s' * (count != 1)}: more only wait for each other",
        ),
        patches.container(subject, {"resources": amounts}),
    )


def _needs(subject: Subject, memory: int) -> Iterator[str]:
    if not memory:
        yield "a memory request and an equal limit are needed, too"
    if subject.incomplete:
        names = ", ".join(subject.incomplete)
        yield f"{names} must have limit = request for CPU and memory as well, or no CPUs are its own"
    yield "the node's CPU manager must be static (or corelane's), or nothing is pinned"


def _lifted_by() -> Iterator[str]:
    yield (
        "on its own CPUs the quota is lifted by the kubelet (gate DisableCPUQuotaWithExclusiveCPUs: on by "
        "default since 1.33, always in 1.37) and by corelane's nodes"
    )


def _lift(case: Case) -> Option:
    """Its limit stays, or its CPUs are lost; who enforces it is the node."""
    count = case.subject.exclusive
    effect = _effect(case, Change(None, threads=count))
    return Option(
        Kind.LIFT_QUOTA,
        f"keep limit = request; have the quota of its {count} own CPU{'s' * (count != 1)} lifted on the node",
        effect,
        guarantees.own_cpus(),
        (
            "without the limit the pod is no longer Guaranteed and loses its CPUs",
            *_lifted_by(),
            _BEFORE_1_33,
            consequences.qos_text(case.subject, case.subject.qos),
        ),
    )


def _does(case: Case, wanted: Wanted, effect: Effect) -> Iterator[str]:
    if not case.subject.known:
        return
    yield consequences.qos_text(case.subject, consequences.qos(case.subject, wanted))
    yield from consequences.utilisation(case.subject, wanted.request, case.fit.used, effect.used)


def _observed(case: Case) -> int:
    """A request where there is none: what it uses, and a fifth more, in steps of 10m."""
    return max(math.ceil(case.fit.used * 1.2 / 10) * 10, 10)
