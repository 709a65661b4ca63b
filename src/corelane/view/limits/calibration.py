"""Experiments compared with the model: as rows of a table, and as JSON with stable keys."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from corelane.limits.calibration import noise
from corelane.limits.calibration.experiments import Experiment, Figures, ModelCheck, Prediction
from corelane.limits.calibration.laboratory import CalibrationRun
from corelane.limits.calibration.noise import RunDelay
from corelane.node.explain.json_values import json_value

HEADINGS = (
    "experiment",
    "periods",
    "throttled",
    "CPU ms",
    "throttled ms",
    "error: CPU",
    "throttled",
    "tolerance",
    "verdict",
)


@dataclass(frozen=True, slots=True)
class CalibrationRow:
    """A run beside the model's; None where it could not be done. `note` says why it does not count."""

    experiment: Experiment
    run: CalibrationRun | None
    predicted: Prediction | None
    claims: tuple[ModelCheck, ...]
    note: str


@dataclass(frozen=True, slots=True)
class Calibration:
    """Every run, and whether run-queue waits contain throttled time."""

    rows: list[CalibrationRow]
    run_delay: RunDelay


def run_delay_row(delay: RunDelay) -> tuple[str, ...]:
    """Whether waits contain throttled time, as the last row of the table: the model is not part of it."""
    title = f"schedstat run_delay, {noise.RUN_DELAY_EXPERIMENT.name}"
    throttled = f"{delay.throttled_ms:.0f} / -"
    return (title, "- / -", "- / -", "- / -", throttled, "-", "-", "a finding", delay.text)


def run_delay_json(delay: RunDelay) -> dict[str, Any]:
    return {
        "includesThrottledTime": delay.includes_throttled,
        "share": None if delay.share is None else round(delay.share, 3),
        "throttledMs": round(delay.throttled_ms, 1),
    }


def rows(calibrated: Sequence[CalibrationRow]) -> Iterator[tuple[str, ...]]:
    """A row for each experiment, and below one with a nested limit another for the pod; no cell is empty."""
    for row in calibrated:
        if row.run is None or row.predicted is None:
            yield (row.experiment.name, *["-"] * (len(HEADINGS) - 2), row.note)
            continue
        measured, predicted = row.run.measured, row.predicted
        shown = [f"{claim.most:.3g} {claim.unit}" for claim in row.claims if claim.unit]
        yield (
            row.experiment.name,
            *_cells(measured.figures, predicted.figures, predicted.spread_ms),
            ", ".join(shown if len(shown) > 1 else [*shown, "by phase"]),
            verdict(row),
        )
        if measured.pod is not None and predicted.pod is not None:
            cells = _cells(measured.pod, predicted.pod, predicted.pod_spread_ms)
            yield "  its pod", *cells, "as above", "as above"


def _cells(seen: Figures, said: Figures, spread: tuple[float, float] | None) -> tuple[str, ...]:
    return (
        f"{seen.periods} / {said.periods}",
        f"{seen.throttled} / {said.throttled}",
        f"{seen.use_ms:.0f} / {said.use_ms:.0f}",
        f"{seen.throttled_ms:.0f} / {said.throttled_ms:.0f}{_spread(spread)}",
        _error(said.use_ms, seen.use_ms),
        _error(said.throttled_ms, seen.throttled_ms),
    )


def verdict(row: CalibrationRow) -> str:
    if row.note:
        return row.note
    wrong = (claim for claim in row.claims if not claim.met)
    missed = [f"{claim.name} off by {claim.value:.1f} {claim.unit}".rstrip() for claim in wrong]
    return "; ".join(missed) or "ok"


def summary(calibrated: Sequence[CalibrationRow]) -> str:
    """Say how many runs count, and in how many of these the model is off."""
    counted = [row for row in calibrated if row.run is not None and not row.note]
    wrong = sum(any(not claim.met for claim in row.claims) for row in counted)
    text = f"{len(counted)} of {len(calibrated)} runs count; the model is off in {wrong} of them"
    if len(counted) < len(calibrated):
        text += ". Other load changes what is measured: repeat on a quiet machine"
    return text


def as_json(calibrated: Sequence[CalibrationRow]) -> list[dict[str, Any]]:
    return [
        {
            "name": row.experiment.name,
            "kind": row.experiment.kind,
            **json_value(row.experiment, {"run_ms": "", "every_ms": ""}),
            "measured": asdict(row.run.measured.figures) if row.run else None,
            "model": asdict(row.predicted.figures) if row.predicted else None,
            "phaseMs": _ms(row.run.measured.phase_ns) if row.run else None,
            "spreadMs": row.predicted.spread_ms if row.predicted else None,
            "podMeasured": asdict(row.run.measured.pod) if row.run and row.run.measured.pod else None,
            "podModel": asdict(row.predicted.pod) if row.predicted and row.predicted.pod else None,
            "podPhaseMs": _ms(row.run.measured.pod_phase_ns) if row.run else None,
            "podSpreadMs": row.predicted.pod_spread_ms if row.predicted else None,
            "foreignMs": round(row.run.noise.foreign_ms, 1) if row.run else None,
            "stealMs": row.run.noise.steal_ms if row.run else None,
            "waitedMs": row.run.noise.waited_ms if row.run else None,
            "counts": row.run is not None and not row.note,
            "claims": [{**asdict(claim), "met": claim.met} for claim in row.claims],
            "verdict": verdict(row),
        }
        for row in calibrated
    ]


def _ms(ns: int | None) -> float | None:
    return None if ns is None else ns / 1e6


def _spread(bounds: tuple[float, float] | None) -> str:
    if bounds is None or bounds[1] - bounds[0] < 1:
        return ""
    return f" ({bounds[0]:.0f}-{bounds[1]:.0f})"


def _error(said: float, seen: float) -> str:
    """The model's error in percent, or in ms of what is less than 1 ms."""
    return f"{100 * (said - seen) / seen:+.1f} %" if seen >= 1 else f"{said - seen:+.1f} ms"
