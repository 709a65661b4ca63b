"""How well the model of CPU limits agrees: with worked examples, published tables, and this machine's kernel.

Errors are in percent of the reference. The rows of this kernel come from runs in real cgroups, which need
root and a quiet machine: disturbed runs are tried again, and left out with a note if they stay so.
`make bench-limits` prints a table and writes build/bench/limits.json.
"""

# ruff: noqa: T201
import argparse
import os
import platform
import sys
import tracemalloc
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from statistics import median
from time import process_time

import precedence
import report
from report import Row

from corelane.app.limits import calibrate
from corelane.kernel.cgroup import CgroupError, CgroupsUnavailable
from corelane.kernel.cgroup_tree import Groups
from corelane.limits.calibration import laboratory
from corelane.limits.calibration.experiments import Experiment
from corelane.limits.calibration.laboratory import CalibrationError
from corelane.limits.calibration.workers import WorkerError
from corelane.limits.model import studies
from corelane.limits.model.bandwidth import CFSLimit, for_kernel
from corelane.limits.model.clock import MS, SECOND
from corelane.limits.model.scenario import (
    ContainerResult,
    Scenario,
    ScenarioContainer,
    ScenarioPod,
    SimulatedMachine,
    SimulationResult,
    run,
)
from corelane.limits.model.workloads import Bursts, Duration, Spin, Workload

SEEDS = range(1, 9)
POST = "the document's table"
HAND = "worked by hand"
KERNEL = f"Linux {platform.release()} on this machine"
ATTEMPTS = 12


def error(name: str, value: float, published: float, most: float, unit: str, reference: str) -> Iterator[Row]:
    """The figure itself, and how far it is off."""
    yield Row(name, value, unit, None, "lower", reference, published)
    yield Row(f"{name}, error", 100 * abs(value / published - 1), "%", most, "lower", reference, published)


# The document's small examples.


def small(workload: Workload, cpus: int, phase_ms: int = 0, seconds: float = 0.999) -> ContainerResult:
    app = ScenarioContainer("app", (workload,), limit=CFSLimit(20 * MS), pinned=True, phase_ns=phase_ms * MS)
    machine = SimulatedMachine(cpus, tick_ns=0)
    return run(
        Scenario("", "", machine, (ScenarioPod("pod", (app,)),), seconds=seconds, warmup_seconds=0)
    ).results[0]


def examples() -> Iterator[Row]:
    burst = Bursts(Duration(70 * MS), every_ns=SECOND)

    def exact(name: str, value: float, expected: float, unit: str) -> Row:
        return Row(
            f"{name}: {expected:g} {unit}, off by", abs(value - expected), unit, 0.0, "lower", HAND, expected
        )

    one, four = small(Spin(), 1).stat, small(Spin(), 4).stat
    yield exact("200m on one CPU, throttled in a second", one.throttled_ns / MS, 9 * 80, "ms")
    yield exact("200m on four CPUs, throttled in a second", four.throttled_ns / MS, 9 * 4 * 95, "ms")
    yield exact("70 ms at 20 per 100, at worst", small(burst, 1).latency[100] / MS, 310, "ms")
    yield exact(
        "70 ms at 20 per 100, first refill after 60", small(burst, 1, 60).latency[100] / MS, 270, "ms"
    )
    stat = small(burst, 1, seconds=1).stat
    yield exact("70 ms at 20 per 100, of the limit", 100 * stat.usage_ns / (200 * MS), 35, "%")
    yield exact("70 ms at 20 per 100, throttled of four periods", stat.nr_throttled, 3, "periods")
    yield exact("request of 100m on a full CPU gets", weighted(), 100, "m")


def weighted() -> float:
    kernel = for_kernel("6.6")
    requests = (100, 6, 200, 694)
    pods = tuple(
        ScenarioPod(f"p{milli}", (ScenarioContainer("c", (Spin(1),), milli * 125),)) for milli in requests
    )  # times 125, so that shares are whole numbers
    seconds = 1000 * kernel.base_slice_ns / SECOND
    found = run(Scenario("", "", SimulatedMachine(1, 0), pods, kernel, seconds, warmup_seconds=0)).results[0]
    # A slice ends at the next whole nanosecond, a millionth of it late.
    return round(found.stat.usage_ns * 1000 / (seconds * SECOND), 3)


# The document's tables.


def seeds(scenario: Scenario) -> list[SimulationResult]:
    with ProcessPoolExecutor(max(min(os.cpu_count() or 1, len(SEEDS)), 1)) as pool:
        return list(pool.map(run, [scenario] * len(SEEDS), SEEDS))


def middle(outcomes: Sequence[SimulationResult], percent: int | None = None) -> float:
    """The median over seeds of throughput, or of a percentile in ms (100: the maximum)."""
    results = [outcome.results[0] for outcome in outcomes]
    return median(one.per_second if percent is None else one.latency[percent] / MS for one in results)


NGINX_TARGETS = {"2 CPUs": (5.0, 5.0), "96 CPUs": (15.0, 30.0)}


def nginx() -> Iterator[Row]:
    for case in studies.NGINX.cases:
        outcomes = seeds(case.scenario)
        name = f"nginx 100m, {case.label}"
        if not case.published:
            yield Row(f"{name}, requests/s", middle(outcomes), "1/s", None)
            yield from (Row(f"{name}, p{p}", middle(outcomes, p), "ms", None) for p in (50, 90, 95, 99))
        else:
            rate, percentile = NGINX_TARGETS[case.label]
            yield from error(
                f"{name}, requests/s", middle(outcomes), case.published["requests/s"], rate, "1/s", POST
            )
            for p in (50, 95, 99):
                published = case.published[f"p{p} ms"]
                yield from error(f"{name}, p{p}", middle(outcomes, p), published, percentile, "ms", POST)
            known = {"96 CPUs": (400.0, 12_000.0)}.get(case.label, (None, None))
            yield Row(
                f"{name}, p90 (published: over)", middle(outcomes, 90), "ms", None, "lower", POST, known[0]
            )
        top = None if not case.published or case.label != "96 CPUs" else 12_000.0
        yield Row(f"{name}, maximum", middle(outcomes, 100), "ms", None, "lower", POST if top else "", top)


def neighbours() -> Iterator[Row]:
    found = []
    for case in studies.NEIGHBOURS.cases:
        results = [
            [one.per_second for one in outcome.results if one.path.startswith("web-")]
            for outcome in seeds(case.scenario)
        ]
        found.append(median(sum(rates) / len(rates) for rates in results))
        yield from error(
            f"neighbours, {case.label}", found[-1], case.published["requests/s"], 10, "1/s", POST
        )
    yield Row("neighbours, the first two apart", 100 * abs(found[0] / found[1] - 1), "%", 5)
    ordered = float(max(found[:2]) < found[2] < found[3])
    yield Row("neighbours, third above the first two, fourth above it", ordered, "", 1, "higher")


# What it costs.


def speed() -> Iterator[Row]:
    scenario = studies.nginx(96)
    begun = process_time()
    run(scenario)
    yield Row("simulating 120 s of nginx on 96 CPUs, one core", process_time() - begun, "s", 5)
    short, long = (peak(replace(scenario, seconds=seconds)) for seconds in (5.0, 20.0))
    yield Row("memory at its most, 20 s against 5 s", long / short, "times", 1.25)


def peak(scenario: Scenario) -> int:
    tracemalloc.start()
    try:
        run(scenario)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# This machine's kernel.


def kernel(chosen: Sequence[Experiment]) -> Iterator[Row]:
    try:
        with precedence.groups() as groups:
            calibration = calibrate.measure(
                chosen, 1, ATTEMPTS, lambda text: print(text, file=sys.stderr), groups
            )
            nested = list(nested_starts(groups))
    except (CgroupsUnavailable, CgroupError, CalibrationError, WorkerError, OSError) as reason:
        print(f"no rows of this kernel: {reason}")
        return
    found = calibration.rows
    print(calibration.run_delay.text)
    for row in found:
        if row.run is None or row.note:
            print(f"{row.experiment.name}: {row.note}")
            continue
        for claim in row.claims:
            yield Row(
                f"{row.experiment.name}, {claim.name} off",
                claim.value,
                claim.unit,
                claim.most,
                "lower",
                KERNEL,
            )
        if row.predicted is not None and row.predicted.spread_ms is not None and row.experiment.run_ms:
            least, most = row.predicted.spread_ms
            print(
                f"{row.experiment.name}: no phase measured; throttled {least:.0f} to {most:.0f} ms by phase"
            )
    counted = [row for row in found if row.run is not None and not row.note]
    yield Row("experiments that count", len(counted), f"of {len(found)}", None, "higher")
    yield from nested


STARTS = 40
TICK_MS_PER_SECOND = 40.0
"""A tick of 4 ms in each of ten periods: how far a released thread may be delayed where other load runs."""


def nested_starts(groups: Groups) -> Iterator[Row]:
    """Throttled time of a container and its pod, both limited to 200m, over starts on this kernel."""
    experiment = Experiment(1, 20, pod_quota_ms=20, seconds=1.5)
    cpus = sorted(os.sched_getaffinity(0))[-1:]
    with laboratory.opened(groups, laboratory.instance()) as room:
        runs = [room.start_nested(experiment, cpus) for _ in range(STARTS)]
    container = ScenarioContainer("app", (Spin(1),), 200, CFSLimit(20 * MS), pinned=True)
    pod = ScenarioPod("pod", (container,), CFSLimit(20 * MS))
    scenario = Scenario("", "", SimulatedMachine(1, calibrate.kernel().tick_ns), (pod,), seconds=2)
    found = [run(studies.at_phase(scenario, number)) for number in range(studies.PHASES)]
    of_model = [[one.results[0].stat, one.pods["pod"]] for one in found]
    for level, path in enumerate(("container", "pod")):
        seen = [counted[level].throttled_ms / seconds for *counted, seconds in runs]
        said = [stats[level].throttled_ns / MS / scenario.seconds for stats in of_model]
        name = f"200m in 200m, {path}"
        yield Row(f"{name}, least of {STARTS} starts", min(seen), "ms/s", None, "lower", "model", min(said))
        yield Row(f"{name}, most", max(seen), "ms/s", None, "lower", "model", max(said))
        yield Row(f"{name}, model in the kernel's range", inside(said, seen), "%", 90, "higher", KERNEL)
        yield Row(f"{name}, kernel in the model's range", inside(seen, said), "%", 100, "higher", KERNEL)


def inside(values: Sequence[float], others: Sequence[float]) -> float:
    """Return the percentage of values between the least and the greatest of others, give or take a tick."""
    low, high = min(others) - TICK_MS_PER_SECOND, max(others) + TICK_MS_PER_SECOND
    return 100 * sum(low <= value <= high for value in values) / len(values)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--no-kernel", action="store_true", help="leave the runs in real cgroups out")
    what.add_argument(
        "--only",
        action="append",
        metavar="TEXT",
        help="only experiments with this text in their names",
    )
    options = parser.parse_args()
    rows = [] if options.only else [*examples(), *speed(), *nginx(), *neighbours()]
    if not options.no_kernel:
        rows += kernel(_experiments(options.only or [""]))
    report.show(rows)
    report.keep("limits", rows)
    return 0


def _experiments(texts: Sequence[str]) -> tuple[Experiment, ...]:
    """Return those whose name has one of the texts, each once, in their order."""
    found = {one.name for text in texts for one in calibrate.chosen(text)}
    return tuple(one for one in calibrate.chosen("") if one.name in found)


if __name__ == "__main__":
    sys.exit(main())
