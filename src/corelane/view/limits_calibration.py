"""Experiments compared with the model: as rows of a table, and as JSON with stable keys."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from corelane.limits.calibration.experiments import Experiment, ModelCheck, Prediction
from corelane.limits.calibration.laboratory import CalibrationRun
from corelane.node.explain.json_values import json_value

HEADINGS = (
    "experiment",
    "periods",
    "throttled",
    "CPU ms",
    "throttled ms",
    "error: CPU",
    "throttled",
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


def rows(found: Sequence[CalibrationRow]) -> Iterator[tuple[str, ...]]:
    for row in found:
        if row.run is None or row.predicted is None:
            yield (row.experiment.name, "", "", "", "", "", "", row.note)
            continue
        seen, said = row.run.measured.figures, row.predicted.figures
        yield (
            row.experiment.name,
            f"{seen.periods} / {said.periods}",
            f"{seen.throttled} / {said.throttled}",
            f"{seen.use_ms:.0f} / {said.use_ms:.0f}",
            f"{seen.throttled_ms:.0f} / {said.throttled_ms:.0f}{_spread(row.predicted)}",
            _error(said.use_ms, seen.use_ms),
            _error(said.throttled_ms, seen.throttled_ms),
            verdict(row),
        )


def verdict(row: CalibrationRow) -> str:
    if row.note:
        return row.note
    missed = [f"{one.name} off by {one.value:.1f} {one.unit}".rstrip() for one in row.claims if not one.met]
    return "; ".join(missed) or "ok"


def summary(found: Sequence[CalibrationRow]) -> str:
    """How many runs count, and in how many of these the model is off."""
    counted = [row for row in found if row.run is not None and not row.note]
    wrong = sum(any(not one.met for one in row.claims) for row in counted)
    text = f"{len(counted)} of {len(found)} runs count; the model is off in {wrong} of them"
    if len(counted) < len(found):
        text += ". Other load changes what is measured: repeat on a quiet machine"
    return text


def as_json(found: Sequence[CalibrationRow]) -> list[dict[str, Any]]:
    return [
        {
            "name": row.experiment.name,
            "kind": row.experiment.kind,
            **json_value(row.experiment, {"run_ms": "", "every_ms": ""}),
            "measured": asdict(row.run.measured.figures) if row.run else None,
            "model": asdict(row.predicted.figures) if row.predicted else None,
            "phaseMs": _phase(row.run),
            "spreadMs": row.predicted.spread_ms if row.predicted else None,
            "foreignMs": round(row.run.noise.foreign_ms, 1) if row.run else None,
            "stealMs": row.run.noise.steal_ms if row.run else None,
            "waitedMs": row.run.noise.waited_ms if row.run else None,
            "counts": row.run is not None and not row.note,
            "claims": [{**asdict(one), "met": one.met} for one in row.claims],
            "verdict": verdict(row),
        }
        for row in found
    ]


def _phase(run: CalibrationRun | None) -> float | None:
    return None if run is None or run.measured.phase_ns is None else run.measured.phase_ns / 1e6


def _spread(predicted: Prediction) -> str:
    if predicted.spread_ms is None or predicted.spread_ms[1] - predicted.spread_ms[0] < 1:
        return ""
    return f" ({predicted.spread_ms[0]:.0f}-{predicted.spread_ms[1]:.0f})"


def _error(said: float, seen: float) -> str:
    if max(said, seen) < 1:
        return ""
    return f"{100 * (said - seen) / seen:+.1f} %" if seen >= 1 else "-"
