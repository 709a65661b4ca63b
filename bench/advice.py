"""Whether predictions hold: loads under a limit in real cgroups, the advice, the advice applied, what came.

Each case of `advice_matrix` runs under its limit, is measured as `limits advise --latency` does, and gets
advice; one of the options is applied and the same requests run again. Stated ranges for throttled time and
p99 are held against that run; coverage, width and refusals are reported together. The seed is fixed before;
what the fit was tuned on has other seeds (100 and above). `make bench-advice` prints tables and writes
build/bench/advice.json.
"""

# ruff: noqa: T201
import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from statistics import median
from typing import Final, TextIO

import advice_lab
import advice_matrix
import report
from advice_lab import Lab, LabError, Observed, Setting
from advice_matrix import CPUS, Case
from report import Row

from corelane.limits.advice import judgement
from corelane.limits.advice.effects import NOTICED_MS, Range
from corelane.limits.advice.judgement import Advice
from corelane.limits.advice.options import Option, OptionKind
from corelane.limits.advice.subjects import Subject
from corelane.limits.lint.policy import Policy
from corelane.limits.measure.requests import RequestLog
from corelane.limits.measure.throttling import Latency, Measurement, Rates

SEED: Final = 1
EACH: Final = 7
SECONDS: Final = 5.3
"""A little more than the 50 periods that advice requires."""
APPLIED: Final = (OptionKind.DROP_LIMIT, OptionKind.RAISE_LIMIT, OptionKind.ADD_BURST)


@dataclass(frozen=True, slots=True)
class Prediction:
    """A stated range, None where there is none, and what was measured before and after."""

    what: str
    stated: Range | None
    before: float
    after: float
    least: float

    @property
    def holds(self) -> bool:
        return self.stated is not None and self.stated.low <= self.after <= self.stated.high

    @property
    def width(self) -> float:
        """Upper over lower end; amounts below `least` count as that."""
        assert self.stated is not None
        return max(self.stated.high, self.least) / max(self.stated.low, self.least)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A case, the option that was applied, and its predictions."""

    case: Case
    option: Option
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
    return next((offered[kind] for kind in turns if kind in offered), None)


def applied(case: Case, option: Option) -> Setting:
    """The container's resources with the option's change."""
    if option.kind is OptionKind.DROP_LIMIT:
        return replace(case.setting, quota_ms=None)
    if option.kind is OptionKind.ADD_BURST:
        return replace(case.setting, burst_ms=case.setting.quota_ms or 0.0)
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
    return (
        Prediction("throttled ms/s", effect.throttled, *throttled, NOTICED_MS),
        Prediction("p99 ms", tail.after if tail else None, *p99, 0.01),
    )


def collect(cases: Sequence[Case], lab: Lab) -> Iterator[tuple[Case, Measurement, Advice]]:
    """Run all cases, then advise on all at once, as many at a time as there are CPUs."""
    measured = []
    for case in cases:
        print(f"{case.name}: limit {case.limit:.2f}", file=sys.stderr)
        run = lab.quiet_run(case.load, case.setting, case.beside, SECONDS)
        if not run.disturbed:
            measured.append((case, measurement(run)))
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for (case, before), advice in zip(measured, pool.map(advise, [m for _, m in measured]), strict=True):
            yield case, before, advice


def verdicts(cases: Sequence[Case], lab: Lab, notes: list[str]) -> Iterator[Verdict]:
    """Apply an option to each case that has one, and run it again."""
    advised = list(collect(cases, lab))
    notes.append(
        f"{len(cases) - len(advised)} of {len(cases)} left out: other processes disturbed each attempt"
    )
    for case, before, advice in advised:
        number = cases.index(case)
        option = chosen(advice, number // len(advice_matrix.CLASSES) + number)
        if option is None:
            notes.append(f"{case.name}: {advice.answer}: {advice.why}")
            continue
        print(f"{case.name}: {option.title}", file=sys.stderr)
        run = lab.quiet_run(case.load, applied(case, option), case.beside, SECONDS)
        if run.disturbed:
            notes.append(f"{case.name}: left out: other processes disturbed each run after the change")
            continue
        verdict = Verdict(case, option, compare(option, before, measurement(run)))
        table([verdict], sys.stderr)
        yield verdict


def table(found: Sequence[Verdict], to: TextIO = sys.stdout) -> None:
    """Print every prediction beside what was measured; as runs end, too, for they may be cut short."""
    if len(found) > 1:
        titles = f"{'case':<28}{'limit':>6}  {'':<2}{'option':<24}{'what':<15}"
        print(f"{titles}{'before':>8}{'stated':>14}{'after':>8}", file=to)
    for verdict in found:
        beside = "n" if verdict.case.beside.threads else ""
        for each in verdict.predictions:
            stated = f"{each.stated.low:.0f}-{each.stated.high:.0f}" if each.stated else "refused"
            missed = "" if each.holds or each.stated is None else "  missed"
            print(
                f"{verdict.case.name:<28}{verdict.case.limit:>6.2f}"
                f"  {beside:<2}{verdict.option.title[:23]:<24}"
                f"{each.what:<15}{each.before:>8.1f}{stated:>14}{each.after:>8.1f}{missed}",
                file=to,
            )


def rows(found: Sequence[Verdict]) -> Iterator[Row]:
    every = [each for verdict in found for each in verdict.predictions]
    yield Row("runs with advice applied", len(found), "", 40, "higher")
    for title, some in (
        ("all", every),
        ("throttled time", [each for each in every if each.what.startswith("throttled")]),
        ("p99", [each for each in every if each.what.startswith("p99")]),
    ):
        yield from _figures(title, some)
    apart = [each for each in every if each.stated and each.stated.high > each.least]
    if apart:
        yield Row(
            "width of ranges that are not none, median", median(each.width for each in apart), "times", 2
        )
    yield from _given(found)


def _figures(title: str, some: Sequence[Prediction]) -> Iterator[Row]:
    stated = [each for each in some if each.stated]
    yield Row(f"{title}: ranges stated", 100 * len(stated) / len(some), "%", 70, "higher")
    if stated:
        held = sum(each.holds for each in stated)
        yield Row(f"{title}: stated ranges that hold", 100 * held / len(stated), "%", 90, "higher")
        yield Row(f"{title}: width, median", median(each.width for each in stated), "times", 2)
        yield Row(f"{title}: width, at most", max(each.width for each in stated), "times", None)


def _given(found: Sequence[Verdict]) -> Iterator[Row]:
    """In each class of load the runs with at least one range, and with a range for the p99."""
    for kind in advice_matrix.CLASSES:
        runs = [verdict.predictions for verdict in found if verdict.case.kind == kind]
        tails = sum(run[1].stated is not None for run in runs)
        if runs:
            yield Row(f"{kind}: runs with a p99 range, of {len(runs)}", tails, "runs", 1, "higher")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--each", type=int, default=EACH, help="cases of every class")
    options = parser.parse_args()
    cases, notes = advice_matrix.matrix(options.seed, options.each), list[str]()
    try:
        with advice_lab.opened(range(CPUS)) as lab:
            found = list(verdicts(cases, lab, notes))
    except (LabError, OSError) as reason:
        print(f"no runs: {reason}")
        return 1
    table(found)
    made = list(rows(found))
    report.show(made, f"seed {options.seed}; {len(cases)} cases", *notes)
    report.keep("advice", made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
