"""From measurements to advice: refuse what data cannot carry, leave what costs little, else weigh options."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from corelane.kernel import cfs
from corelane.kernel.cpu_time.counters import Rates, Unusable
from corelane.limits.advice import inference, starvation
from corelane.limits.advice.changes import Weight
from corelane.limits.advice.effects import NOTICED_MS, PERCENTILES, Fit, LoadShape
from corelane.limits.advice.inference import FULL, QUICK, Hints, Observed
from corelane.limits.advice.options import AdviceCase, Option, options
from corelane.limits.advice.starvation import Starvation
from corelane.limits.advice.subjects import ClusterSnapshot, NodeOccupancy, Owner, Subject
from corelane.limits.lint.policy import STATIC, Policy
from corelane.limits.measure import CostLevel, DelayCause, Latency, Measurement, ThrottlingVerdict

# The model fitted to a container's counters and latency: threads that never stop, or shapes of load.
#
# Busy throughout, a quota Q for n busy CPUs leaves throttled = n - Q: used plus throttled time is n, and
# less where other processes hold back threads that never pause, as looks at them show. Otherwise, and
# wherever a latency was measured, shapes are sought that show what was measured (see `inference`).


_FULL: Final = 0.95
"""A container that used so much of its quota, throttled in most periods, never stops."""
_MISFIT: Final = 3.0
"""In deviations: where the likeliest shape is farther off in any statistic, it explains nothing."""
_APART: Final = 2.0
_SAMPLE: Final = 32
_PAUSED: Final = 0.01
"""The part of the looks at idle threads below which a container never pauses."""
_CONTENDED: Final = 0.2
"""The part of the CPUs that others must have used to be looked for as neighbours."""
_SATURATED: Final = 0.9
"""The part of the CPUs that is used where neighbours are always ready to run."""
_MOST_PER_SECOND: Final = 1000
"""Requests a second beyond which simulating each would take minutes."""
_LONGEST: Final = {True: 30.0, False: 10.0}
"""Seconds that are simulated at most, with a latency and without one."""


def fit_model(measured: Measurement, rates: Rates, threads: int | None = None) -> Fit:
    """Fit the model to rates with a quota. `threads` run at once by its settings (None: unknown)."""
    used, throttled = rates.used or 0.0, rates.throttled or 0.0
    quota, period = (rates.quota.quota_us or 0) / 1000, rates.quota.period_us / 1000
    requests = bool(_percentiles(measured.latency))
    plain = Fit(
        LoadShape.BUSY,
        (used + throttled) / 1000,
        used,
        throttled,
        quota,
        period,
        rates.quota.burst_us / 1000,
        seconds=min(rates.seconds, _LONGEST[requests]),
        requests=requests,
        p99=_percentiles(measured.latency).get(99),
    )
    cpus = measured.cpus
    if _never_pauses(measured, rates) and not plain.requests:
        wants = _demand(plain, rates, threads, cpus)
        return replace(plain, cpus=used / 1000, wants=wants, held_back=True)
    if _is_busy(rates, plain) and not plain.requests:
        modelled = max(0.0, plain.cpus * 1000 - quota / period * 1000)
        return replace(plain, modelled=modelled, wants=_demand(plain, rates, threads, cpus))
    if used <= 0:
        return _unfitted(plain, threads, cpus)
    hints = Hints(cpus, threads, rates.waiters, _is_contended(measured, rates), _weight(measured, rates))
    matches = inference.candidates(
        _observed(plain, rates, measured), hints, FULL if plain.requests else QUICK
    )
    # The throttled time must be near, too, on average: a large deviation alone explains anything.
    most = math.log(_APART)
    matches = [
        each
        for each in matches
        if abs(math.log((each.match.throttled + NOTICED_MS) / (throttled + NOTICED_MS))) <= most
    ]
    if not matches or matches[0].match.misfit > _MISFIT:
        return _unfitted(plain, threads, cpus)
    best = matches[0]
    return replace(
        plain,
        shape=best.shape.kind,
        cpus=float(best.shape.widest),
        modelled=best.match.throttled,
        sample=inference.sample(matches, _SAMPLE),
    )


def _percentiles(latency: Latency | None) -> Mapping[int, float]:
    """The percentiles that the model has, too."""
    if latency is None or (latency.per_second or 0.0) > _MOST_PER_SECOND:
        return {}
    return {percent: latency.quantiles[percent] for percent in PERCENTILES if percent in latency.quantiles}


def _observed(plain: Fit, rates: Rates, measured: Measurement) -> Observed:
    latency = measured.latency
    return Observed(
        plain.seconds,
        plain.period,
        plain.now,
        plain.used,
        plain.throttled,
        (rates.periods or 0.0) / rates.seconds,
        (rates.throttled_periods or 0.0) / rates.seconds,
        rates.queued,
        latency.per_second if latency and plain.requests else None,
        _percentiles(latency),
        latency.log if latency and plain.requests else None,
    )


def _weight(measured: Measurement, rates: Rates) -> float | None:
    """The weight of neighbours that leave no CPU idle; None where they do, or are not known."""
    beside, cpus = measured.competition, measured.cpus
    if beside is None or not cpus or not _is_contended(measured, rates):
        return None
    busy = (beside.used + (rates.used or 0.0)) >= _SATURATED * 1000 * cpus
    return beside.relative if busy and beside.relative > 0 else None


def _is_contended(measured: Measurement, rates: Rates) -> bool:
    if measured.competition is not None and measured.cpus:
        return measured.competition.used > _CONTENDED * 1000 * measured.cpus
    load = measured.load
    if load is None:
        return measured.waited > 0
    return load.busy - (rates.used or 0.0) > _CONTENDED * 1000 * load.cpus


def _unfitted(plain: Fit, threads: int | None, cpus: int) -> Fit:
    most = min(filter(None, (cpus, threads)), default=math.inf)
    return replace(plain, shape=LoadShape.UNFITTED, cpus=most, why=_UNLIKE)


_UNLIKE: Final = (
    "neither steady load, nor requests at random or in batches, nor clients that wait for answers, nor "
    "requests that threads share show this throttling"
)


def _is_busy(rates: Rates, candidate: Fit) -> bool:
    if not rates.periods or candidate.used < _FULL * candidate.quota / candidate.period * 1000:
        return False
    return (rates.throttled_periods or 0) >= 0.9 * rates.periods


def _never_pauses(measured: Measurement, rates: Rates) -> bool:
    """Whether its threads were seen runnable all the time beside others.

    What they leave it keeps such a container from using up its quota in every period.
    """
    paused = measured.losses.paused if measured.losses else None
    return paused is not None and paused < _PAUSED and _is_contended(measured, rates)


def _demand(candidate: Fit, rates: Rates, threads: int | None, cpus: int) -> float:
    """CPUs that the threads may use. Throttled time is counted once a CPU: waiting threads show more demand.

    Since Linux 6.18 the threads of a throttled group tend to be stacked so (task-based throttling).
    """
    demands = [candidate.cpus, float(threads or 0), (candidate.used + (rates.queued or 0.0)) / 1000]
    return max(candidate.cpus, min(cpus, max(demands)))


MIN_PERIODS: Final = 50
"""Below so many periods the model's own error exceeds its targets (see the calibration)."""
_MIN_ACTIVE: Final = 5
_CPU_SHARES: Final = 1024
_POSSIBLE: Final = 1.05
_ABOVE_MS = 20.0
_WAITS = frozenset({DelayCause.OTHERS, DelayCause.NEIGHBOURS, DelayCause.HYPERVISOR, DelayCause.OWN_THREADS})


class Answer(StrEnum):
    """The kind of advice."""

    CHANGE = "change"
    LEAVE = "leave it"
    REFUSED = "no advice"


@dataclass(frozen=True, slots=True)
class Advice:
    """The answer for one container of a workload, the reason, and the options where there are some."""

    subject: Subject
    measured: Measurement
    answer: Answer
    why: str
    level: CostLevel = CostLevel.NONE
    fit: Fit | None = None
    options: tuple[Option, ...] = ()
    remarks: tuple[str, ...] = ()
    starved: Starvation | None = None
    """CPU time that other processes withhold from it; None where that is little, or unknown."""

    @property
    def best(self) -> Option | None:
        return next((option for option in self.options if option.recommended), None)


Replicas = tuple[tuple[Owner, str], list[Measurement]]
"""A workload and the name of its container, with what was measured of each replica."""


def workloads(measurements: Iterable[Measurement], snapshot: ClusterSnapshot) -> list[Replicas]:
    """Group measurements by workload and container: the replicas of a container have the same settings."""
    groups: dict[tuple[Owner, str], list[Measurement]] = {}
    for each in measurements:
        groups.setdefault((snapshot.owner(*each.pod_key), each.container), []).append(each)
    return sorted(groups.items(), key=lambda group: group[0])


def advise_workload(
    group: Replicas,
    snapshot: ClusterSnapshot,
    latency: Latency | None = None,
    weight: Weight = cfs.pod_weight,
) -> Advice:
    """Advise on a container by the replica that lost most, of those whose data can carry advice."""
    (_, container), replicas = group
    policy = snapshot.policy
    rated = [each.rates.throttled or 0.0 for each in replicas if isinstance(each.rates, Rates)]
    measured = [
        replace(
            each,
            cpus=each.cpus or snapshot.cpus(each.pod_key) or policy.node_cpus,
            latency=latency,
            replicas=len(replicas),
            throttled_replicas=tuple(sorted(rated, reverse=True)),
        )
        for each in replicas
    ]
    usable = [each for each in measured if not refusal(each)]
    worst = max(usable or measured, key=_lost_share)
    subject = snapshot.subject(*worst.pod_key, container)
    nodes = snapshot.nodes(dict.fromkeys(each.pod_key for each in replicas))
    return advise(subject, worst, nodes, policy, weight, dict(snapshot.names()))


def _lost_share(measured: Measurement) -> tuple[float, float]:
    """By throttling, and by other processes."""
    if not isinstance(measured.rates, Rates):
        return -1.0, 0.0
    return measured.rates.lost or 0.0, measured.losses.neighbours if measured.losses else 0.0


def advise(
    subject: Subject,
    measured: Measurement,
    nodes: Sequence[NodeOccupancy] = (),
    policy: Policy | None = None,
    weight: Weight = cfs.pod_weight,
    names: starvation.Names | None = None,
) -> Advice:
    """Advise on a container's throttling, and on its request where other processes hold it back.

    `weight` is how requests become weights on its nodes (cgroup v2; v1: the identity); `names` are those of
    containers and pods by id.
    """
    settings = policy or STATIC
    rates, verdict = measured.rates, measured.verdict
    if (why := refusal(measured)) or isinstance(rates, Unusable) or verdict is None:
        return Advice(subject, measured, Answer.REFUSED, why)
    waited = verdict.waited or measured.waited
    remarks = (*rates.remarks, *_other_delays(rates, verdict, waited), *_remarks(subject, rates, settings))

    starved = _starved(subject, measured, weight, names or {})

    def answer(answer: Answer, why: str, fit: Fit | None = None, choices: tuple[Option, ...] = ()) -> Advice:
        return Advice(subject, measured, answer, why, verdict.level, fit, choices, remarks, starved)

    if rates.above and rates.above >= _ABOVE_MS and not rates.throttled:
        by_pod = (
            f"throttled {rates.above:.0f} ms/s by the pod's limit, not by its own: see the row of the pod"
        )
        return answer(Answer.LEAVE, by_pod)

    def raised(fit: Fit | None) -> Option | None:
        return starvation.option(subject, starved, measured, fit, nodes) if starved else None

    def exclusive() -> Option | None:
        allowed = starved and settings.exclusive_cpus
        return starvation.exclusive(subject, starved, nodes) if starved and allowed else None

    if not rates.throttled or verdict.of_limit in (CostLevel.NONE, CostLevel.LOW):
        if starved and starved.request:
            # Without a limit and a latency another weight changes nothing that could be forecast.
            forecast = rates.quota.quota_us is not None or measured.latency is not None
            fit = fit_model(measured, rates, subject.threads) if forecast else None
            choices = [replace(option, recommended=True) for option in filter(None, [raised(fit)])]
            choices += filter(None, [exclusive()])
            return answer(Answer.CHANGE, starvation.why(starved), fit, tuple(choices))
        if starved:
            return answer(Answer.LEAVE, f"{starvation.why(starved)}: {starved.why}")
        return answer(Answer.LEAVE, _little(rates, verdict))
    if not subject.container:
        return answer(Answer.CHANGE, f"{_lost(rates)}; {_OF_POD}")
    fit = fit_model(measured, rates, subject.threads)
    case = AdviceCase(subject, measured, fit, nodes, settings, weight)
    of_limit, of_waits = options(case), raised(fit)
    largest_first = starved is not None and starved.waited > rates.throttled
    why = f"{starvation.why(starved)}; {_lost(rates)}" if starved and largest_first else _lost(rates)
    if of_waits and largest_first:
        rest = (replace(option, recommended=False) for option in of_limit)
        every: tuple[Option, ...] = (replace(of_waits, recommended=True), *rest)
    else:
        every = (*of_limit, *filter(None, [of_waits]))
    if not every:
        return answer(Answer.LEAVE, f"{why}, but no available change is known to help", fit)
    return answer(Answer.CHANGE, why, fit, every)


def _starved(
    subject: Subject, measured: Measurement, weight: Weight, names: starvation.Names
) -> Starvation | None:
    """Return what other processes withhold from a container that shares its CPUs with them."""
    if subject.exclusive or not subject.container:
        return None
    request = measured.request
    if subject.listed:
        request = None if subject.pod_level else subject.request
    starved = starvation.find(measured, request, unified=weight(_CPU_SHARES) != _CPU_SHARES)
    return starvation.named(starved, names) if starved else None


_OF_POD = (
    "the pod's quota is the sum of its containers' limits: drop or raise one of theirs (with pod-level "
    "resources: change those)"
)


def _lost(rates: Rates) -> str:
    return f"throttled {rates.throttled or 0.0:.0f} ms/s: {rates.lost or 0.0:.1%} of CPU demand is lost"


def _other_delays(rates: Rates, verdict: ThrottlingVerdict, waited: float) -> Iterator[str]:
    if waited and rates.throttled:
        yield (
            f"other processes or the hypervisor delay it {waited:.0f} ms/s, too: no change of the limit "
            "affects that"
        )
    elif DelayCause.OTHERS in verdict.causes and rates.throttled:
        yield f"the limit is not the only cause: {verdict.why}"


def _little(rates: Rates, verdict: ThrottlingVerdict) -> str:
    waits = "" if _WAITS.isdisjoint(verdict.causes) else f"; {verdict.why}: not caused by a limit"
    if rates.quota.quota_us is None:
        return f"no CPU limit{waits}"
    if not rates.throttled:
        return f"no CPU time lost to the limit{waits}"
    counted = f"{rates.throttled_periods or 0:.0f} of {rates.periods or 0:.0f} periods count as throttled"
    return f"{counted}, but only {rates.lost or 0.0:.2%} of CPU demand is lost{waits}"


def _remarks(subject: Subject, rates: Rates, policy: Policy) -> Iterator[str]:
    """Yield what violates the policy, or the manifest, independent of throttling."""
    if not subject.listed or not subject.container:
        return
    demand = ((rates.used or 0.0) + (rates.throttled or 0.0)) / 1000
    if subject.exclusive and demand > subject.exclusive + 0.2:
        cpus = "CPU, so this is" if subject.exclusive == 1 else "CPUs, so these are"
        yield (
            f"used more than {subject.exclusive} {cpus} not exclusive: the CPU manager of its "
            "node is not static (policy exclusiveCPUs: false states that for all nodes)"
        )
    if policy.cpu_request == "required" and not subject.request:
        yield "policy: no CPU request, so no CPU time is guaranteed"
    if policy.memory_limit == "equal-to-request" and subject.memory_limit != subject.memory_request:
        yield "policy: memory limit and memory request differ (see corelane limits lint)"
    enforced = (rates.quota.cpus or 0.0) * 1000
    changed = abs(enforced - max(subject.limit, 10)) > max(0.02 * enforced, 10)
    if rates.quota.quota_us is not None and subject.limit and changed:
        yield (
            f"the manifest's limit is {subject.limit}m, {enforced:.0f}m is enforced: "
            "it was changed on the node, or the list of pods is outdated"
        )


# Whether a measurement can carry advice.


def refusal(measured: Measurement) -> str:
    """Return why no advice is possible, and what to collect instead; empty where it is possible."""
    rates, cpus = measured.rates, measured.cpus
    if isinstance(rates, Unusable):
        return f"{rates.why}: measure again"
    if measured.notes or rates.notes:
        return f"{'; '.join([*measured.notes, *rates.notes])}: measure again over a time without that"
    if rates.used is None:
        return "CPU time is not counted: enable cpuacct, or scrape container_cpu_usage_seconds_total"
    if rates.throttled is None and rates.quota.quota_us is not None:
        return "throttled time is not counted: scrape container_cpu_cfs_throttled_seconds_total"
    if rates.throttled and rates.quota.quota_us is None:
        return "throttled, but its quota is unknown: scrape container_spec_cpu_quota and …_period"
    if rates.throttled and (rates.periods is None or rates.throttled_periods is None):
        return "periods are not counted: scrape container_cpu_cfs_periods_total, …_throttled_periods_total"
    period, periods = rates.quota.period_us / 1e6, rates.periods or 0
    if rates.seconds < MIN_PERIODS * period:
        return (
            f"measured for {rates.seconds:.3g} s ({rates.seconds / period:.0f} periods), at least "
            f"{MIN_PERIODS} periods ({MIN_PERIODS * period:.3g} s) are required: measure longer"
        )
    if rates.throttled and periods < _MIN_ACTIVE:
        return f"active in {periods:.0f} periods, at least {_MIN_ACTIVE} are required: measure longer"
    # Counters of one container cannot exceed the CPUs that it may run on.
    demand = (rates.used + (rates.throttled or 0.0)) / 1000
    if cpus and demand > cpus * _POSSIBLE + 0.2:
        own = "1 CPU" if cpus == 1 else f"{cpus} CPUs"
        return (
            f"used plus throttled time is {demand:.3g} s a second, more than its {own}: the counters "
            "are not of one container, or the number of CPUs is wrong"
        )
    throttled = rates.throttled_periods or 0
    if throttled > periods * _POSSIBLE + 1:
        return f"{throttled:.0f} of {periods:.0f} periods throttled: the counters do not belong together"
    return ""
