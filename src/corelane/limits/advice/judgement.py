"""From facts to advice: refuse what data cannot carry, leave alone what costs little, else weigh options."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from corelane.kernel import cfs
from corelane.limits.advice import evidence as data
from corelane.limits.advice import fitting, tails
from corelane.limits.advice.facts import Evidence, Node, Subject
from corelane.limits.advice.fitting import Fit
from corelane.limits.advice.guarantees import Weight
from corelane.limits.advice.options import Case, Option, options
from corelane.limits.lint import Policy
from corelane.limits.measure import Cause, Level, Rates, Unusable, Verdict, judge

__all__ = ["Advice", "Answer", "advise"]

_ABOVE_MS = 20.0
_WAITS = frozenset({Cause.OTHERS, Cause.NEIGHBOURS, Cause.HYPERVISOR, Cause.OWN_THREADS})


class Answer(StrEnum):
    """What it comes to."""

    CHANGE = "change"
    LEAVE = "leave it"
    REFUSED = "no advice"


@dataclass(frozen=True, slots=True)
class Advice:
    """The answer for one container of a workload, why, and the options where there are some."""

    subject: Subject
    evidence: Evidence
    answer: Answer
    why: str
    level: Level = Level.NONE
    fit: Fit | None = None
    options: tuple[Option, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def best(self) -> Option | None:
        return next((one for one in self.options if one.recommended), None)


def advise(
    subject: Subject,
    evidence: Evidence,
    nodes: Sequence[Node] = (),
    policy: Policy | None = None,
    weight: Weight = cfs.pod_weight,
) -> Advice:
    """Say what to do about a container's throttling.

    `weight` is how requests become weights on its nodes (cgroup v2; v1: the identity).
    """
    settings = policy or Policy()
    if why := data.refusal(evidence):
        return Advice(subject, evidence, Answer.REFUSED, why)
    assert not isinstance(evidence.rates, Unusable)
    rates = evidence.rates
    verdict = judge(rates, evidence.around)
    waited = verdict.waited or evidence.waited
    remarks = (*rates.remarks, *_held_back(rates, verdict, waited), *_remarks(subject, rates, settings))
    if rates.above and rates.above >= _ABOVE_MS and not rates.throttled:
        why = f"its pod's limit stops it for {rates.above:.0f} ms/s, not its own: see the pod's row"
        return Advice(subject, evidence, Answer.LEAVE, why, verdict.level, remarks=remarks)
    if not rates.throttled or verdict.level in (Level.NONE, Level.LOW):
        return Advice(
            subject, evidence, Answer.LEAVE, _little(rates, verdict), verdict.level, remarks=remarks
        )
    if not subject.container:
        why = f"{_lost(rates)}; {_OF_POD}"
        return Advice(subject, evidence, Answer.CHANGE, why, verdict.level, remarks=remarks)
    fitted = fitting.fit(rates, subject.threads, evidence.cpus, waited)
    fit = tails.agreeing(fitted, evidence.latency)
    found = options(Case(subject, evidence, fit, nodes, settings, weight))
    if not found:
        why = f"{_lost(rates)}, but nothing that can be changed here is known to help"
        return Advice(subject, evidence, Answer.LEAVE, why, verdict.level, fit, remarks=remarks)
    return Advice(subject, evidence, Answer.CHANGE, _lost(rates), verdict.level, fit, found, remarks)


_OF_POD = (
    "the pod's quota is its containers' limits together: drop or raise one of theirs, and it goes or grows "
    "with it (resources of the pod as a whole: change those)"
)


def _lost(rates: Rates) -> str:
    throttled, lost = rates.throttled or 0.0, rates.lost or 0.0
    return f"throttled for {throttled:.0f} ms/s: {lost:.1%} of the CPU time it wanted is lost"


def _held_back(rates: Rates, verdict: Verdict, waited: float) -> Iterator[str]:
    if waited and rates.throttled:
        yield (
            f"neighbours or the hypervisor hold it back, too, for {waited:.0f} ms/s: that stays, whatever "
            "becomes of its limit"
        )
    elif Cause.OTHERS in verdict.causes and rates.throttled:
        yield f"its limit is not all: it {verdict.why}"


def _little(rates: Rates, verdict: Verdict) -> str:
    if rates.quota.quota_us is None:
        return f"it has no limit{_waits(verdict)}"
    if not rates.throttled:
        return f"nothing is lost to its limit{_waits(verdict)}"
    counted = f"{rates.throttled_periods or 0:.0f} of {rates.periods or 0:.0f} periods read as throttled, but"
    return f"{counted} only {rates.lost or 0.0:.2%} of its CPU time is lost{_waits(verdict)}"


def _waits(verdict: Verdict) -> str:
    if not _WAITS.isdisjoint(verdict.causes):
        return f"; {verdict.why}: no limit is to blame"
    return ""


def _remarks(subject: Subject, rates: Rates, policy: Policy) -> list[str]:
    """What the policy wants besides, whatever was measured."""
    if not subject.known or not subject.container:
        return []
    found = []
    if (
        subject.exclusive
        and ((rates.used or 0.0) + (rates.throttled or 0.0)) / 1000 > subject.exclusive + 0.2
    ):
        found.append(
            f"it ran on more than {subject.exclusive} CPUs, so these are not its own: the CPU manager of its "
            "node is not static (policy exclusiveCPUs: false says so for all nodes)"
        )
    if policy.cpu_request == "required" and not subject.request:
        found.append("policy: it has no CPU request, so nothing is guaranteed to it")
    if policy.memory_limit == "equal-to-request" and subject.memory_limit != subject.memory_request:
        found.append("policy: its memory limit is not its memory request (see limits lint)")
    if rates.quota.quota_us is not None and subject.limit and _differs(subject, rates):
        found.append(
            f"its limit is written as {subject.limit}m, but {(rates.quota.cpus or 0) * 1000:.0f}m is "
            "enforced: it was changed on the node, or the list of pods is old"
        )
    return found


def _differs(subject: Subject, rates: Rates) -> bool:
    enforced = (rates.quota.cpus or 0.0) * 1000
    return abs(enforced - max(subject.limit, 10)) > max(0.02 * enforced, 10)
