"""How long a service's answers take: from a file of percentiles, or a histogram in Prometheus."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from corelane.app.limits.advise_objects import AdviseError
from corelane.limits.advice import Form, Latency

__all__ = ["of_buckets", "of_file"]

_BEYOND: Final = 1e9


def of_file(path: Path) -> Latency:
    """A mapping of percentiles (99, p99 or 0.99) to milliseconds, in YAML or JSON. Raises AdviseError."""
    try:
        tree = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise AdviseError(f"{path}: no YAML: {' '.join(str(error).split())}") from None
    if not isinstance(tree, dict) or not tree:
        raise AdviseError(f"{path}: is no mapping of percentiles to milliseconds, such as p99: 340")
    return Latency({_percentile(path, key): _milliseconds(path, key, value) for key, value in tree.items()})


def _percentile(path: Path, key: Any) -> float:
    try:
        percent = float(str(key).removeprefix("p"))
    except ValueError:
        percent = math.nan
    percent = round(percent * 100, 6) if 0 < percent < 1 else percent
    if not 0 < percent <= 100:
        raise AdviseError(f"{path}: {key!r} is no percentile, such as p99")
    return percent


def _milliseconds(path: Path, key: Any, value: Any) -> float:
    good = isinstance(value, int | float) and not isinstance(value, bool)
    if not good or not 0 <= value < _BEYOND:
        raise AdviseError(f"{path}: {key}: {value!r} is no number of milliseconds")
    return float(value)


def of_buckets(vector: Iterable[tuple[Mapping[str, str], float]], query: str) -> Latency:
    """Percentiles of `sum by (le) (rate(…_bucket[5m]))`, whose buckets are in seconds. Raises AdviseError."""
    buckets: dict[float, float] = {}
    for labels, value in vector:
        try:
            bound = float(labels["le"])
        except (KeyError, ValueError):
            raise AdviseError(
                f"--latency {query!r}: its result has no buckets: write such as "
                "sum by (le) (rate(http_request_duration_seconds_bucket[5m]))"
            ) from None
        if bound in buckets:
            raise AdviseError(f"--latency {query!r}: several series per bucket: put sum by (le) around it")
        buckets[bound] = value
    return Latency(_percentiles(buckets, query), Form.PROMETHEUS)


def _percentiles(buckets: Mapping[float, float], query: str) -> dict[float, float]:
    """As Prometheus' histogram_quantile: linear within a bucket. Raises AdviseError for an empty one."""
    ordered = sorted(buckets.items())
    total = ordered[-1][1] if ordered else 0.0
    if not ordered or not math.isinf(ordered[-1][0]) or not total > 0 or not math.isfinite(total):
        raise AdviseError(f"--latency {query!r}: no histogram, or nothing in it: is the window long enough?")
    found = {}
    for percent in (50.0, 99.0):
        below = (0.0, 0.0)
        for bound, count in ordered:
            if count >= total * percent / 100:
                if math.isinf(bound):
                    break
                part = (total * percent / 100 - below[1]) / (count - below[1]) if count > below[1] else 1.0
                found[percent] = 1000 * (below[0] + (bound - below[0]) * part)
                break
            below = (bound, count)
    return found
