"""Throttling measured: rates between two readings, the causes of delay, and how much throttling costs.

Severity is the time lost per second of work and the queueing it causes, never the share of periods that
count as throttled: at a quota that just suffices half of them do, with a thousandth of the time lost.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from statistics import median
from typing import Any, Final

from corelane.kernel.cpu_time.competitors import Competition
from corelane.kernel.cpu_time.counters import CPULoad, Quota, Rates, Unusable
from corelane.kernel.cpu_time.threads import Losses

_KEPT_UP: Final = 0.8
"""The part of the requests that is answered in their time where no queue grows."""


@dataclass(frozen=True, slots=True)
class RequestLog:
    """Every answered request of a time: when it was sent, in ns from the begin, and how long it took, in ms.

    `seconds` is the time in which they were sent; answers may come later.
    """

    seconds: float
    moments: tuple[int, ...]
    took: tuple[float, ...]

    def percentile(self, percent: float) -> float:
        """Return the latency that `percent` of all do not exceed (nearest rank)."""
        return sorted(self.took)[max(math.ceil(len(self.took) * percent / 100) - 1, 0)]

    @property
    def mean(self) -> float:
        return sum(self.took) / len(self.took)

    @property
    def answered(self) -> int:
        """Number of requests answered in the time in which they were sent: few of a queue that grows."""
        return sum(end <= self.seconds * 1000 for end in self._ends())

    @property
    def falls_behind(self) -> bool:
        """Whether so many are answered later that their queue grows."""
        return self.answered < _KEPT_UP * len(self.took)

    @property
    def in_flight(self) -> int:
        """The most requests that were waiting for their answers at once."""
        most = now = 0
        for _, step in self._steps():
            now += step
            most = max(most, now)
        return most

    @property
    def crowding(self) -> float:
        """Number of others that a request meets, as a part of the average number.

        About 1 where requests come at random, more in batches, less where clients wait for their answers.
        """
        now, met = 0, 0
        for _, step in self._steps():
            met += now if step > 0 else 0
            now += step
        until = self.seconds * 1000
        waited = (
            min(end, until) - moment / 1e6 for moment, end in zip(self.moments, self._ends(), strict=True)
        )
        average = sum(waited) / until
        return met / len(self.took) / average

    def _steps(self) -> list[tuple[float, int]]:
        begins = [(moment / 1e6, 1) for moment in self.moments]
        return sorted([*begins, *((end, -1) for end in self._ends())])

    def _ends(self) -> list[float]:
        return [moment / 1e6 + took for moment, took in zip(self.moments, self.took, strict=True)]


@dataclass(frozen=True, slots=True)
class Latency:
    """A service's measured latency: percentile (50, 99) to milliseconds.

    `per_second` is how many requests it answers, `log` all of them, where these are known.
    """

    quantiles: Mapping[float, float]
    per_second: float | None = None
    log: RequestLog | None = None

    @staticmethod
    def of_log(log: RequestLog) -> Latency:
        """The latency of recorded requests.

        Requests in flight at the end stand for those of before the begin, unless their queue grows.
        """
        quantiles = {
            percent: log.percentile(percent) for percent in (10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0)
        }
        count = log.answered if log.falls_behind else len(log.took)
        return Latency(quantiles, per_second=count / log.seconds, log=log)


@dataclass(frozen=True, slots=True)
class Measurement:
    """One container's rates, or why there are none. `container` is empty for a pod as a whole.

    `cpus` is how many it may run on, `threads` how many it has, 0 where unknown; `load` that of its CPUs
    where it was measured; `waited` for how long other processes or the hypervisor delayed it, in ms a
    second, where a record has it. One replica may stand for several.
    """

    rates: Rates | Unusable
    namespace: str = ""
    pod: str = ""
    container: str = ""
    node: str = ""
    id: str = ""
    """The runtime's id of the container, or the pod's UID, where only that is known."""
    cpus: int = 0
    threads: int = 0
    notes: tuple[str, ...] = ()
    load: CPULoad | None = None
    waited: float = 0.0
    latency: Latency | None = None
    competition: Competition | None = None
    """The cgroups that compete for its CPUs, with their weights; None where they were not read."""
    request: int | None = None
    """Its CPU request in milliCPU, where the source of the measurement has it."""
    losses: Losses | None = None
    """Time for which it was held back, by cause; None where that was not measured."""
    replicas: int = 1
    throttled_replicas: tuple[float, ...] = ()
    """Throttled milliseconds a second of every replica, the worst first."""

    @property
    def pod_key(self) -> tuple[str, str]:
        """Namespace and name of its pod; a cgroup that is given by its directory has neither."""
        return self.namespace or ("default" if self.pod else ""), self.pod

    @property
    def verdict(self) -> ThrottlingVerdict | None:
        """Judge what delays the container; None without rates."""
        if not isinstance(self.rates, Rates):
            return None
        return judge(self.rates, self.load, self.losses, self.competition)


# What delays a container, and what that costs.

_LOW, _MEDIUM, _HIGH = 0.001, 0.01, 0.1
"""Parts of CPU demand; below the first the loss is not noticeable."""
_STALL_MS: Final = 10.0
_WAIT_MS: Final = 20.0
"""Milliseconds a second of waiting that need an explanation."""
_CERTAIN: Final = 2.0
"""Standard errors that a wait must exceed."""


class CostLevel(StrEnum):
    """Cost of throttling, and of waiting for other processes."""

    NONE = "none"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class DelayCause(StrEnum):
    """Causes for which a container waits. The values are part of the JSON output."""

    NOTHING = "nothing"
    LIMIT = "limit"
    LIMIT_ABOVE = "limit above"
    NEIGHBOURS = "neighbours"
    OWN_THREADS = "own threads"
    HYPERVISOR = "hypervisor"
    SCHEDULING = "scheduling"
    OTHERS = "neighbours or own threads"
    UNKNOWN = "unknown"


_FOREIGN: Final = (DelayCause.LIMIT_ABOVE, DelayCause.NEIGHBOURS, DelayCause.HYPERVISOR)
"""Causes beside its own limit for which the container cannot help waiting."""


@dataclass(frozen=True, slots=True)
class ThrottlingVerdict:
    """The causes of delay, the worst first; what they cost; and the reason, in words.

    `level` is by what was lost to limits, other processes and the hypervisor, `of_limit` by what was lost to
    the container's own limit alone. `waited` is for how long other processes or the hypervisor delayed it, in
    ms a second.
    """

    causes: tuple[DelayCause, ...]
    level: CostLevel
    why: str
    waited: float = 0.0
    of_limit: CostLevel = CostLevel.NONE


def judge(
    rates: Rates,
    load: CPULoad | None = None,
    losses: Losses | None = None,
    competition: Competition | None = None,
) -> ThrottlingVerdict:
    """Find what delays a container. Without `losses` neighbours and own threads are indistinguishable."""
    if rates.throttled is None and rates.waiting is None and rates.queued is None:
        why = "neither throttling nor waiting is counted"
        return ThrottlingVerdict((DelayCause.UNKNOWN,), CostLevel.NONE, why)
    delays = sorted(_delays(rates, load, losses, competition), key=lambda delay: -delay[1])
    causes = tuple(cause for cause, _, _ in delays) or (DelayCause.NOTHING,)
    waited = losses.neighbours + losses.hypervisor if losses else 0.0
    why = "; ".join(why for _, _, why in delays) or "no significant wait"
    of_limit = _level(rates)
    waits = sum(amount for cause, amount, _ in delays if cause in _FOREIGN)
    lost = waits / ((rates.used or 0.0) + (rates.throttled or 0.0) + waits) if waits else 0.0
    level = max(of_limit, _level_of(lost), key=list(CostLevel).index)
    return ThrottlingVerdict(causes, level, why, waited, of_limit)


def _level(rates: Rates) -> CostLevel:
    """By the part of CPU demand that was lost, and by how long a stop lasts."""
    lost = (rates.throttled or 0.0) / 1000 if rates.lost is None else rates.lost
    return _level_of(lost, _LOW if (rates.stall_ms or 0.0) >= _STALL_MS else _MEDIUM)


def _level_of(lost: float, medium: float = _MEDIUM) -> CostLevel:
    if lost >= _HIGH:
        return CostLevel.HIGH
    return CostLevel.MEDIUM if lost >= medium else CostLevel.LOW if lost > 0 else CostLevel.NONE


Delay = tuple[DelayCause, float, str]
"""A cause, its milliseconds a second, and the sentence about it."""


def _cpus(count: int) -> str:
    return "1 CPU" if count == 1 else f"{count} CPUs"


def _delays(
    rates: Rates, load: CPULoad | None, losses: Losses | None, competition: Competition | None
) -> Iterator[Delay]:
    if rates.throttled and _level(rates) is not CostLevel.LOW:
        share = "" if rates.lost is None else f", {rates.lost:.1%} of CPU demand"
        held = losses.limit if losses else rates.throttled
        yield DelayCause.LIMIT, held, f"throttled {rates.throttled:.0f} ms/s{share}"
    if rates.above and rates.above >= _WAIT_MS:
        held = losses.above if losses else rates.above
        yield DelayCause.LIMIT_ABOVE, held, f"throttled {rates.above:.0f} ms/s by the pod's limit"
    if losses is None:
        # At least so much waiting throttling does not explain. It is part of both measures, but counted once
        # for each CPU, while pressure is wall time and run queues count every thread.
        throttled, waited = (rates.throttled or 0.0) + (rates.above or 0.0), 0.0
        if rates.waiting is not None:
            waited = rates.waiting - min(throttled, 1000.0)
        elif rates.queued is not None:
            waited = rates.queued - throttled
        if waited >= _WAIT_MS:
            yield DelayCause.OTHERS, waited, f"waits {waited:.0f} ms/s for a CPU beyond throttling"
        return
    least = max(_WAIT_MS, _CERTAIN * losses.error)
    if losses.neighbours >= least:
        others = "other processes run"
        if load is not None:
            used = max(0.0, load.busy - (rates.used or 0.0))
            others = f"other processes use {used:.0f} ms/s of its {_cpus(load.cpus)}"
            for most in competition.competitors[:1] if competition else ():
                others += f", most {most.title}: {most.used:.0f} ms/s at {most.relative:.3g} times its weight"
        why = f"waits {losses.neighbours:.0f} ms/s for a CPU while {others}"
        yield DelayCause.NEIGHBOURS, losses.neighbours, why
    if losses.own >= least:
        cpus = f" on {_cpus(load.cpus)}" if load else ""
        why = f"its own threads wait {losses.own:.0f} ms/s for each other{cpus}"
        yield DelayCause.OWN_THREADS, losses.own, why
    if losses.hypervisor >= least:
        amount = f"{load.steal:.0f} ms/s" if load else "some"
        why = f"waits {losses.hypervisor:.0f} ms/s for a CPU while the hypervisor takes {amount} of its CPUs"
        yield DelayCause.HYPERVISOR, losses.hypervisor, why
    if losses.scheduling >= least:
        why = f"its threads wait {losses.scheduling:.0f} ms/s before they start on, or move to, an idle CPU"
        yield DelayCause.SCHEDULING, losses.scheduling, why


Sample = tuple[float, float]
"""Unix seconds and the counter's value."""
_GAP: Final = 2.5
"""A gap is so many times the usual distance between samples."""
_SMALL: Final = 0.1
"""So much of the time may be a gap: counters went on meanwhile."""
_TIMES: Final = {
    "used": "usage",
    **{name: name for name in ("throttled", "burst", "waiting", "stalled", "queued")},
}
_COUNTS: Final = ("periods", "throttled_periods", "bursts")


@dataclass(frozen=True, slots=True)
class Growth:
    """Growth of a counter between its first and last sample, over restarts, and what is missing."""

    amount: float
    seconds: float
    resets: int
    gap_seconds: float
    """The longest time without a sample, 0 where samples are regular."""


def growth(samples: Sequence[Sample]) -> Growth | Unusable:
    """Return a counter's growth. A value below the previous one is a restart from 0, as in Prometheus."""
    finite = [(at, value) for at, value in samples if math.isfinite(value)]
    if len(finite) < 2:
        return Unusable(
            f"{len(finite) or 'no'} sample{'s' * (len(finite) != 1)} only: at least 2 are required for a rate"
        )
    steps = [(b - a, y - x, y) for (a, x), (b, y) in pairwise(finite)]
    amount = sum(after if grown < 0 else grown for _, grown, after in steps)
    distances = [distance for distance, _, _ in steps]
    longest, usual = max(distances), median(distances)
    if usual <= 0:
        return Unusable("samples out of order")
    gap = longest if longest > _GAP * usual else 0.0
    return Growth(amount, sum(distances), sum(grown < 0 for _, grown, _ in steps), gap)


def silence(samples: Sequence[Sample], now: float) -> float:
    """Seconds up to `now` in which samples are missing; 0 where the next is not yet due."""
    if len(samples) < 2:
        return 0.0
    usual = median(b - a for (a, _), (b, _) in pairwise(samples))
    late = now - samples[-1][0]
    return late if late > _GAP * usual else 0.0


def rates_of_series(series: Mapping[str, Sequence[Sample]], quota: Quota | None = None) -> Rates | Unusable:
    """Rates from counters in seconds (`usage`, `throttled`, …) and in periods, each over its own samples.

    A rate without a series is None; without any series the result is unusable.
    """
    grown = {name: growth(samples) for name, samples in series.items() if samples}
    usable = {name: each for name, each in grown.items() if isinstance(each, Growth)}
    if not usable:
        bad = next((each for each in grown.values() if isinstance(each, Unusable)), None)
        return bad or Unusable("no series")
    seconds = max(each.seconds for each in usable.values())
    times: dict[str, Any] = {
        name: 1000 * usable[counter].amount / usable[counter].seconds
        for name, counter in _TIMES.items()
        if counter in usable
    }
    counts: dict[str, Any] = {name: usable[name].amount for name in _COUNTS if name in usable}
    gap = max(each.gap_seconds for each in usable.values())
    gaps = (f"no samples for {gap:.0f} s: counters are averaged over the gap",) if gap else ()
    small = gap <= _SMALL * seconds
    return Rates(
        seconds,
        **times,
        **counts,
        quota=quota or Quota(),
        notes=(*_notes(grown, usable), *(() if small else gaps)),
        remarks=gaps if small else (),
    )


def _notes(grown: Mapping[str, Growth | Unusable], usable: Mapping[str, Growth]) -> Iterator[str]:
    if resets := max(each.resets for each in usable.values()):
        yield f"restarted {resets} time{'s' * (resets != 1)}: the last counts before each are lost"
    if missing := sorted(name for name, each in grown.items() if isinstance(each, Unusable)):
        yield f"too few samples of {', '.join(missing)}"


def histogram_quantiles(buckets: Mapping[float, float], percents: Iterable[float]) -> dict[float, float]:
    """Percentiles of cumulative counts by upper bound, as Prometheus' histogram_quantile: linear in a bucket.

    A percentile in the last bucket, which has no upper bound, is left out. Raises ValueError without samples.
    """
    ordered = sorted(buckets.items())
    total = ordered[-1][1] if ordered else 0.0
    if not ordered or not math.isinf(ordered[-1][0]) or not total > 0 or not math.isfinite(total):
        raise ValueError("not a histogram, or an empty one")
    quantiles = {}
    for percent in percents:
        rank = total * percent / 100
        below = (0.0, 0.0)
        for bound, count in ordered:
            if count >= rank:
                if not math.isinf(bound):
                    part = (rank - below[1]) / (count - below[1]) if count > below[1] else 1.0
                    quantiles[percent] = below[0] + (bound - below[0]) * part
                break
            below = (bound, count)
    return quantiles
