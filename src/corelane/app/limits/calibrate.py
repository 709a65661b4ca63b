"""What `corelane limits calibrate` does: experiments in real cgroups, compared with the model."""

from __future__ import annotations

import io
import json
import os
import platform
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from corelane.kernel import cgroup
from corelane.limits.calibration import laboratory
from corelane.limits.calibration.experiments import EXPERIMENTS, Experiment, Kernel, claims, predict
from corelane.limits.calibration.laboratory import CalibrationError, CalibrationRun, Laboratory
from corelane.limits.model.bandwidth import for_kernel
from corelane.limits.model.clock import SECOND
from corelane.view import tables
from corelane.view.limits import calibration as view
from corelane.view.limits.calibration import Calibration, CalibrationRow

Say = Callable[[str], None]
_COARSE = getattr(time, "CLOCK_MONOTONIC_COARSE", 6)
"""A clock that moves by ticks, so that its resolution is 1/HZ (time(7))."""


def calibrate(
    only: str, runs: int, attempts: int, form: str, *, say: Say, progress: Say = lambda _text: None
) -> int:
    """Measure, compare and print; 1 if the model is off where it should not be, 3 if nothing counted.

    Raises CalibrationError, CgroupError and CgroupsUnavailable.
    """
    result = measure(chosen(only), runs, attempts, progress)
    if form == "json":
        tree = {
            "kernel": platform.release(),
            "hz": round(SECOND / kernel().tick_ns),
            "runDelay": view.run_delay_json(result.run_delay),
            "experiments": view.as_json(result.rows),
        }
        say(json.dumps(tree, indent=2, ensure_ascii=False))
    else:
        out = io.StringIO()
        title = f"Linux {platform.release()}, {os.cpu_count()} CPUs: measured / by the model"
        rows = [*view.rows(result.rows), view.run_delay_row(result.run_delay)]
        tables.show(title, view.HEADINGS, rows, tables.console(out))
        say(out.getvalue() + view.summary(result.rows))
    counted = [row for row in result.rows if row.run is not None and row.run.noise.reason is None]
    if not counted:
        return 3
    return int(any(not claim.met for row in counted for claim in row.claims))


def chosen(only: str) -> list[Experiment]:
    """The experiments whose name has the text in it. Raises CalibrationError if none has."""
    found = [one for one in EXPERIMENTS if only in one.name]
    if not found:
        names = "; ".join(one.name for one in EXPERIMENTS)
        raise CalibrationError(f"no experiment has {only!r} in its name; there are {names}")
    return found


def measure(
    experiments: Sequence[Experiment],
    runs: int,
    attempts: int,
    progress: Say = lambda _text: None,
    groups: cgroup.Groups | None = None,
) -> Calibration:
    """Each as often as asked; a disturbed run is tried again, and in the end shown as disturbed.

    First whether run-queue waits contain throttled time, which all that follows depends on. The experiments'
    cgroups are made in `groups`; by default in those found. Raises as `calibrate`.
    """
    cpus = sorted(os.sched_getaffinity(0))
    here = kernel()
    rows = []
    groups = groups or cgroup.find()
    for name in laboratory.sweep(groups):
        progress(f"removed the cgroups of {name}, which was killed")
    with _terminable(), laboratory.opened(groups, laboratory.instance()) as room:
        progress("schedstat run_delay")
        waits = room.measure_run_delay(cpus)
        for experiment in experiments:
            if experiment.cpus > len(cpus):
                why = f"needs {experiment.cpus} CPUs; this process may use {len(cpus)}"
                rows.append(CalibrationRow(experiment, None, None, (), why))
                continue
            for _ in range(runs):
                progress(experiment.name)
                run = _quiet_run(room, experiment, cpus, attempts, progress)
                predicted = predict(experiment, run.measured, here)
                met = tuple(claims(experiment, run.measured, predicted))
                why = f"discarded: {run.noise.reason}" if run.noise.reason else ""
                rows.append(CalibrationRow(experiment, run, predicted, met, why))
    return Calibration(rows, waits)


def _quiet_run(
    room: Laboratory, experiment: Experiment, cpus: Sequence[int], attempts: int, progress: Say
) -> CalibrationRun:
    """The first run that nothing disturbed, or of all the least disturbed."""
    found: list[CalibrationRun] = []
    for _ in range(attempts):
        found.append(room.run(experiment, cpus))
        if found[-1].noise.reason is None:
            return found[-1]
        progress(f"{experiment.name}: discarded, {found[-1].noise.reason}")
    return min(found, key=lambda one: one.noise.share)


def kernel() -> Kernel:
    """This machine's kernel as the model takes it. Raises CalibrationError for one that it does not know."""
    try:
        return Kernel(for_kernel(platform.release()), round(time.clock_getres(_COARSE) * SECOND))
    except ValueError as error:
        raise CalibrationError(str(error)) from None


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM end the process as Ctrl-C does, so that no cgroup is left."""

    def stop(number: int, _frame: Any) -> None:
        raise SystemExit(128 + number)

    old = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, old)
