"""What a changed limit does to a container: throttled and used time, and the 99th percentile of its latency.

A `Fit` has the shapes of load that explain the measurement; `forecast` simulates each under the change. A
range covers the shapes, the chance in a time as long as the measured one, and what the model may be off.
Where the shapes are farther apart than `THROTTLED` or `TAIL` allow there is no range, but the reason and what
to collect.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from corelane.limits.advice.shapes import LimitChange, LoadShape, Seen, Shape, simulated

__all__ = ["Fit", "Forecast", "LimitChange", "LoadShape", "Range", "forecast"]

NOTICED_MS: Final = 10.0
"""Throttled ms a second below which amounts are not told apart: of a hundredth of a CPU."""
_OUTSIDE: Final = 0.12
"""The part of the simulations beyond either end of a range."""
_BUSY: Final = 1.05
"""By so much the model may be off as well for threads that never stop, of which the counters say all."""
_PERCENTILE: Final = 99


@dataclass(frozen=True, slots=True)
class Doubt:
    """How far shapes may be apart, and the model may be off as well: alone, and beside neighbours.

    There, where threads wake and what they get is known less exactly.
    """

    apart: float
    alone: float
    beside: float

    def model(self, fit: Fit) -> float:
        return self.beside if any(shape.weight for shape in fit.sample) else self.alone

    @property
    def collect(self) -> str:
        """What to collect where the shapes are farther apart."""
        return (
            f"the loads that explain the measurement disagree by more than a factor of {self.apart:g}: "
            "measure longer, and give the time and the latency of each request (--latency FILE)"
        )


THROTTLED: Final = Doubt(2.5, 1.15, 1.25)
TAIL: Final = Doubt(3.0, 1.3, 1.4)
"""The p99 is one of the slowest requests: chance moves it more than a total."""


@dataclass(frozen=True, slots=True)
class Range:
    """Lowest and highest possible amount; equal for a point."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Fit:
    """What the container looks like to the model. Times in ms; CPU time in ms a second.

    `cpus` is how many its threads keep busy at once (infinite where unknown), `quota` 0 without a limit.
    `modelled` is what the model shows where `throttled` was measured, in `seconds`. `sample` has the shapes
    that explain the measurement, as often as they are likely, the likeliest first; `requests` whether their
    latency was measured.
    """

    shape: LoadShape
    cpus: float
    used: float
    throttled: float
    quota: float
    period: float
    burst: float = 0.0
    modelled: float = 0.0
    why: str = ""
    wants: float = 0.0
    """CPUs that busy threads may use once no limit stops them: some shared a CPU, or waited for others."""
    sample: tuple[Shape, ...] = ()
    seconds: float = 0.0
    requests: bool = False
    p99: float | None = None
    """The measured one in ms."""
    held_back: bool = False
    """Whether other processes held back the busy threads, too, so that `used` and `throttled` are not all."""

    @property
    def now(self) -> LimitChange:
        """No change."""
        return LimitChange(self.quota / self.period if self.quota else None, self.burst)

    @property
    def likeliest(self) -> Shape | None:
        return self.sample[0] if self.sample else None

    @property
    def rivals(self) -> int:
        """How many other shapes explain the measurement."""
        return max(len(set(self.sample)) - 1, 0)

    @property
    def widest(self) -> float:
        """CPUs that may be busy at once, by any explanation."""
        widths = [float(shape.widest) for shape in self.sample] or [self.cpus]
        return max(self.wants, *widths)


@dataclass(frozen=True, slots=True)
class Forecast:
    """The model's answer: throttled and used ms a second, and the p99 in ms; None where it has no answer."""

    throttled: Range | None
    used: Range
    p99: Range | None = None


def forecast(fit: Fit, change: LimitChange) -> Forecast:
    """Forecast a change by every explanation that holds."""
    if fit.shape is LoadShape.BUSY:
        return _of_busy(fit, change)
    if fit.shape is LoadShape.UNFITTED:
        return _of_anything(fit, change)
    runs = reruns(fit, change)
    unlimited = change.limit is None
    tails = _spread([run.latency.get(_PERCENTILE, 0.0) for run in runs])
    return Forecast(
        Range(0.0, 0.0)
        if unlimited
        else _throttled(_spread([run.throttled for run in runs]), THROTTLED.model(fit)),
        _spread([run.used for run in runs]),
        _agreed(_no_later(tails, fit, change), TAIL.model(fit), TAIL.apart) if fit.requests else None,
    )


def _no_later(tails: Range, fit: Fit, change: LimitChange) -> Range:
    """Alone on its CPUs a container answers no later with more CPU time than with less."""
    relaxed = change.threads is None and (change.limit is None or change.burst >= fit.burst)
    relaxed = relaxed and (change.limit is None or change.limit >= (fit.now.limit or 0.0))
    if fit.p99 is None or not relaxed or any(shape.weight for shape in fit.sample):
        return tails
    return Range(min(tails.low, fit.p99), min(tails.high, fit.p99))


def reruns(fit: Fit, change: LimitChange) -> list[Seen]:
    """Simulate every shape of the sample under a change, each with a seed of its own."""
    return [
        simulated(shape, change, fit.period, fit.seconds, _FIRST_SEED + number)
        for number, shape in enumerate(fit.sample)
    ]


_FIRST_SEED: Final = 1000
"""Not those of the fit, whose chance is the measured one's."""


def _spread(values: Sequence[float]) -> Range:
    ordered = sorted(values)
    last = len(ordered) - 1
    return Range(ordered[round(_OUTSIDE * last)], ordered[round((1 - _OUTSIDE) * last)])


def _throttled(spread: Range, off: float) -> Range | None:
    """Amounts too small to be noticed are not told apart from none."""
    low = spread.low if spread.low >= NOTICED_MS else 0.0
    found = _agreed(Range(low, max(spread.high, NOTICED_MS / off)), off, THROTTLED.apart, NOTICED_MS)
    return found and Range(found.low, max(found.high, NOTICED_MS))


def _agreed(spread: Range, off: float, apart: float, least: float = 0.01) -> Range | None:
    """The range with what the model may be off (`off` times); None where its ends are too far apart.

    Amounts under `least` count as that.
    """
    if max(spread.high, least) > apart * max(spread.low, least):
        return None
    return Range(spread.low / off, spread.high * off)


def _of_busy(fit: Fit, change: LimitChange) -> Forecast:
    """Threads that never stop use up the quota in every period: a burst never saves anything for them."""
    most = min(max(fit.cpus, fit.wants), change.threads or math.inf)
    least = min(fit.cpus, most)
    if change.weight != 1.0:  # what their neighbours leave them was not fitted
        return Forecast(None if change.limit else Range(0.0, 0.0), Range(fit.used, most * 1000))
    limit = most if change.limit is None else min(change.limit, most)
    low, high = (
        0.0 if change.limit is None else max(0.0, width - change.limit) * 1000 for width in (least, most)
    )
    if fit.held_back:
        low = _beside_others(fit, change, most)
    off = THROTTLED.beside if fit.held_back else _BUSY
    throttled = Range(0.0, 0.0) if not high else _throttled(Range(low, high), off)
    return Forecast(throttled, Range(min(fit.used, limit * 1000), limit * 1000))


def _beside_others(fit: Fit, change: LimitChange, busy: float) -> float:
    """Throttled ms a second of threads that never stop, if others take as much of their CPUs as before.

    What they had of the time in which they were not throttled gives how long a quota lasts.
    """
    if change.limit is None or change.threads or fit.now.limit is None:
        return 0.0
    return max(0.0, busy * 1000 - change.limit / fit.now.limit * (busy * 1000 - fit.throttled))


def _of_anything(fit: Fit, change: LimitChange) -> Forecast:
    """Without a fit it is certain that no limit, or one of all CPUs, does not throttle."""
    used = Range(fit.used, fit.used + fit.throttled)
    wide = change.limit is None or change.limit >= min(fit.cpus, change.threads or fit.cpus)
    return Forecast(Range(0.0, 0.0) if wide else None, used)
