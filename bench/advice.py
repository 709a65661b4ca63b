"""Whether predictions hold: loads under a limit in real cgroups, the advice, the advice applied, what came.

Each case of `advice_matrix` runs under its limit, is measured as `limits advise --latency` does, and gets
advice; one of the options is applied and the same requests run again. Stated ranges for throttled time and
p99 are held against that run; coverage, width and refusals are reported together. A case without an option
is a refusal of both. The seed is fixed before; what the fit was tuned on has other seeds (1, and 100 and
above). Cases run in rounds of one of every class; a round's fits are computed in child processes while
nothing is measured. `make bench-advice` prints as it goes and writes build/bench/advice.json after every
round: what was reached counts when it is interrupted.
"""

# ruff: noqa: T201
import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

import advice_lab
import advice_matrix
import report
from advice_lab import Lab, LabError, Observed, Setting
from advice_matrix import CPUS, Case
from report import Row

from corelane.kernel.cpu_time.counters import Rates
from corelane.limits.advice import judgement
from corelane.limits.advice.effects import NOTICED_MS, Range
from corelane.limits.advice.judgement import Advice
from corelane.limits.advice.options import Option, OptionKind
from corelane.limits.advice.subjects import Subject
from corelane.limits.lint.policy import Policy
from corelane.limits.measure import Latency, Measurement, RequestLog

SEED: Final = 2
EACH: Final = 7
SECONDS: Final = 5.3
"""A little more than the 50 periods that advice requires."""
APPLIED: Final = (OptionKind.DROP_LIMIT, OptionKind.RAISE_LIMIT, OptionKind.ADD_BURST)
"""In turns; a larger request where none of them is offered."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """A stated range, None where there is none, and what was measured before and after."""

    what: str
    stated: Range | None
    before: float
    after: float | None
    least: float
    certain: bool = False
    """Without a limit nothing is throttled: true without a fit."""

    @property
    def holds(self) -> bool:
        if self.stated is None or self.after is None:
            return False
        return self.stated.low <= self.after <= self.stated.high

    @property
    def width(self) -> float:
        """Upper over lower end; amounts below `least` count as that."""
        assert self.stated is not None
        return max(self.stated.high, self.least) / max(self.stated.low, self.least)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A case, the option that was applied, None without any, and its predictions."""

    case: Case
    option: Option | None
    predictions: tuple[Prediction, ...]


def measurement(run: Observed) -> Measurement:
    """What `limits advise` has: counters of the node, and the requests of an access log."""
    begin = advice_lab.WARMUP_SECONDS
    log = RequestLog(
        run.seconds,
        tuple(int((at - begin) * 1e9) for at, _ in run.latencies),
        tuple(took for _, took in run.latencies),
    )
    return replace(run.measured, latency=Latency.of_log(log))


def advise(measured: Measurement) -> Advice:
    """Advise as the command does, for a policy that allows limits, with all options."""
    return judgement.advise(Subject("", "", "bench", "subject"), measured, (), Policy(cpu_limit="allowed"))


def chosen(advice: Advice, number: int) -> Option | None:
    """The kinds of options take turns over the cases; the next one where a kind is not offered."""
    offered = {option.kind: option for option in advice.options}
    turns = (APPLIED[(number + step) % len(APPLIED)] for step in range(len(APPLIED)))
    return next((offered[kind] for kind in (*turns, OptionKind.RAISE_REQUEST) if kind in offered), None)


def applied(case: Case, option: Option) -> Setting:
    """The container's resources with the option's change."""
    if option.kind is OptionKind.DROP_LIMIT:
        return replace(case.setting, quota_ms=None)
    if option.kind is OptionKind.ADD_BURST:
        return replace(case.setting, burst_ms=case.setting.quota_ms or 0.0)
    if option.request is not None:
        return replace(case.setting, request=option.request)
    assert option.limit is not None
    return replace(case.setting, quota_ms=100 * option.limit)


def compare(option: Option, before: Measurement, after: Measurement) -> tuple[Prediction, ...]:
    assert isinstance(before.rates, Rates)
    assert isinstance(after.rates, Rates)
    assert before.latency is not None
    assert after.latency is not None
    effect, tail = option.effect, option.effect.tail
    throttled = before.rates.throttled or 0.0, after.rates.throttled or 0.0
    p99 = before.latency.quantiles[99.0], after.latency.quantiles[99.0]
    certain = option.kind is OptionKind.DROP_LIMIT
    return (
        Prediction(_THROTTLED, effect.throttled, *throttled, NOTICED_MS, certain),
        Prediction(_P99, tail.after if tail else None, *p99, _LEAST_P99),
    )


_THROTTLED, _P99, _LEAST_P99 = "throttled ms/s", "p99 ms", 0.01


def refused(before: Measurement) -> tuple[Prediction, ...]:
    """What is counted where no option is offered."""
    assert isinstance(before.rates, Rates)
    assert before.latency is not None
    return (
        Prediction(_THROTTLED, None, before.rates.throttled or 0.0, None, NOTICED_MS),
        Prediction(_P99, None, before.latency.quantiles[99.0], None, _LEAST_P99),
    )


class Bench:
    """Runs cases round by round; `verdicts` and `notes` grow meanwhile."""

    def __init__(self, cases: Sequence[Case], lab: Lab, pool: ProcessPoolExecutor) -> None:
        self.verdicts, self.notes = list[Verdict](), list[str]()
        self._cases, self._lab, self._pool = cases, lab, pool

    def run(self) -> Iterator[None]:
        """Yield after every round."""
        size = len(advice_matrix.CLASSES)
        for first in range(0, len(self._cases), size):
            before = list(self._before(self._cases[first : first + size]))
            advised = self._pool.map(advise, [measured for _, measured in before])
            for (case, measured), advice in list(zip(before, advised, strict=True)):
                self._apply(case, measured, advice)
            yield

    def _before(self, cases: Sequence[Case]) -> Iterator[tuple[Case, Measurement]]:
        for case in cases:
            run = self._lab.quiet_run(case.load, case.setting, case.beside, SECONDS)
            if run.disturbed:
                self.notes.append(f"{case.name}: left out: disturbed before the change ({run.late:.1%} late)")
            else:
                yield case, measurement(run)

    def _apply(self, case: Case, before: Measurement, advice: Advice) -> None:
        number = self._cases.index(case)
        option = chosen(advice, number // len(advice_matrix.CLASSES) + number)
        if option is None:
            self.notes.append(f"{case.name}: no option: {advice.answer}: {advice.why}")
            verdict = Verdict(case, None, refused(before))
        else:
            run = self._lab.quiet_run(case.load, applied(case, option), case.beside, SECONDS)
            if run.disturbed:
                self.notes.append(f"{case.name}: left out: disturbed after the change ({run.late:.1%} late)")
                return
            verdict = Verdict(case, option, compare(option, before, measurement(run)))
        self.verdicts.append(verdict)
        table([verdict])


def _titles() -> None:
    titles = f"{'case':<28}{'limit':>6}  {'':<2}{'option':<24}{'what':<15}"
    print(f"{titles}{'before':>8}{'stated':>14}{'after':>8}", flush=True)


def table(found: Sequence[Verdict]) -> None:
    """Print every prediction beside what was measured; `n` marks neighbours."""
    for verdict in found:
        beside, title = "n" if verdict.case.beside.threads else "", "no option"
        if verdict.option:
            title = verdict.option.title[:23]
        for each in verdict.predictions:
            stated = f"{each.stated.low:.0f}-{each.stated.high:.0f}" if each.stated else "refused"
            after = "" if each.after is None else f"{each.after:.1f}"
            missed = "" if each.holds or each.stated is None else "  missed"
            print(
                f"{verdict.case.name:<28}{verdict.case.limit:>6.2f}  {beside:<2}{title:<24}"
                f"{each.what:<15}{each.before:>8.1f}{stated:>14}{after:>8}{missed}",
                flush=True,
            )


def rows(found: Sequence[Verdict]) -> Iterator[Row]:
    every = [each for verdict in found for each in verdict.predictions]
    throttled = [each for each in every if each.what == _THROTTLED]
    yield Row("runs that count", len(found), "", 40, "higher")
    yield from _figures("all", every)
    yield from _figures("throttled time", throttled)
    certain = sum(each.certain and each.stated is not None for each in throttled)
    yield Row("throttled time: ranges that are certain (no limit: 0-0)", certain, "ranges", None)
    yield from _figures("throttled time, a limit left", [each for each in throttled if not each.certain])
    yield from _figures("p99", [each for each in every if each.what == _P99])
    yield from _given(found)


def _figures(title: str, some: Sequence[Prediction]) -> Iterator[Row]:
    if not some:
        return
    stated = [each for each in some if each.stated]
    yield Row(f"{title}: ranges stated, of {len(some)}", 100 * len(stated) / len(some), "%", 70, "higher")
    if stated:
        held = sum(each.holds for each in stated)
        yield Row(f"{title}: stated ranges that hold", 100 * held / len(stated), "%", 90, "higher")
        yield Row(f"{title}: width, median", median(each.width for each in stated), "times", 2)
        yield Row(f"{title}: width, at most", max(each.width for each in stated), "times", None)


def _given(found: Sequence[Verdict]) -> Iterator[Row]:
    """In each class of load the runs with a range for the p99, and for throttled time under a limit."""
    for kind in advice_matrix.CLASSES:
        runs = [verdict.predictions for verdict in found if verdict.case.kind == kind]
        for what in (_THROTTLED, _P99):
            some = [each for run in runs for each in run if each.what == what and not each.certain]
            if some:
                given = sum(each.stated is not None for each in some)
                yield Row(f"{kind}: ranges for {what}, of {len(some)}", given, "runs", 1, "higher")


def _child() -> None:
    """Fits leave Ctrl-C to the parent, and the CPUs to whatever else wants them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(10)


def finish(bench: Bench, seed: int, begin: float, ended: str) -> None:
    made = list(rows(bench.verdicts))
    minutes = (time.monotonic() - begin) / 60
    report.show(made, f"seed {seed}; {minutes:.1f} minutes; {ended}", *bench.notes)
    report.keep("advice", made)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--each", type=int, default=EACH, help="cases of every class")
    options = parser.parse_args()
    begin, cases = time.monotonic(), advice_matrix.matrix(options.seed, options.each)
    bench: Bench | None = None
    ended = "interrupted"
    with ProcessPoolExecutor(os.cpu_count(), initializer=_child) as pool:
        pool.submit(int).result()  # the children start in this process's cgroup, before anything is measured
        try:
            with advice_lab.opened(range(CPUS)) as lab:
                bench = Bench(cases, lab, pool)
                _titles()
                for _ in bench.run():
                    with suppress(OSError):
                        report.keep("advice", list(rows(bench.verdicts)))
                ended = f"all {len(cases)} cases"
        except (LabError, OSError) as reason:
            ended = f"ended early: {reason}"
        except (KeyboardInterrupt, SystemExit):
            pool.shutdown(wait=False, cancel_futures=True)
        if bench is None or not bench.verdicts:
            print(f"no runs: {ended}")
            return 1
        finish(bench, options.seed, begin, ended)
    return 0 if ended.startswith("all") else 1


if __name__ == "__main__":
    sys.exit(main())
