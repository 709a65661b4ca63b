"""Counters, gauges and histograms in Prometheus' text format (version 0.0.4)."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
Labels: TypeAlias = tuple[str, ...]


def exponential(first: float, factor: float, count: int) -> tuple[float, ...]:
    """Return the upper bounds of buckets, as client_golang's ExponentialBuckets."""
    return tuple(first * factor**number for number in range(count))


class Metric:
    """A family of values by labels; `name` is the whole name."""

    kind = ""

    def __init__(self, name: str, help: str, labels: Iterable[str] = ()) -> None:  # noqa: A002 - Prometheus' word
        self.name = name
        self.help = help
        self.labels = tuple(labels)

    def lines(self) -> Iterator[str]:
        """Yield the family's lines."""
        yield f"# HELP {self.name} {_escaped(self.help)}"
        yield f"# TYPE {self.name} {self.kind}"
        yield from self.samples()

    def samples(self) -> Iterator[str]:
        """Yield a line for each value."""
        raise NotImplementedError

    def _sample(self, values: Labels, value: float, suffix: str = "", **more: str) -> str:
        pairs = [*zip(self.labels, values, strict=True), *more.items()]
        text = ",".join(f'{name}="{_quoted(label)}"' for name, label in pairs)
        return (
            f"{self.name}{suffix}{{{text}}} {_number(value)}"
            if text
            else (f"{self.name}{suffix} {_number(value)}")
        )


class Counter(Metric):
    """A number that only grows. Without labels it starts at 0, else with its first increase."""

    kind = "counter"

    def __init__(self, name: str, help: str, labels: Iterable[str] = ()) -> None:  # noqa: A002
        super().__init__(name, help, labels)
        self._values: dict[Labels, float] = {} if self.labels else {(): 0.0}

    def inc(self, *labels: str, by: float = 1.0) -> None:
        self._values[labels] = self._values.get(labels, 0.0) + by

    def samples(self) -> Iterator[str]:
        for labels, value in self._values.items():
            yield self._sample(labels, value)


class Gauge(Metric):
    """Values that are read when they are asked for: `read` returns them by labels."""

    kind = "gauge"

    def __init__(
        self,
        name: str,
        help: str,  # noqa: A002
        read: Callable[[], Mapping[Labels, float]],
        labels: Iterable[str] = (),
    ) -> None:
        super().__init__(name, help, labels)
        self._read = read

    def samples(self) -> Iterator[str]:
        for labels, value in self._read().items():
            yield self._sample(labels, value)


class ReadCounter(Gauge):
    """A counter that something else keeps."""

    kind = "counter"


class Histogram(Metric):
    """Numbers of observations up to each of the `buckets`' upper bounds."""

    kind = "histogram"

    def __init__(self, name: str, help: str, buckets: Iterable[float], labels: Iterable[str] = ()) -> None:  # noqa: A002
        super().__init__(name, help, labels)
        self.buckets = tuple(buckets)
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}
        if not self.labels:
            self._start(())

    def observe(self, value: float, *labels: str) -> None:
        if labels not in self._counts:
            self._start(labels)
        self._counts[labels][bisect_left(self.buckets, value)] += 1
        self._sums[labels] += value

    def _start(self, labels: Labels) -> None:
        self._counts[labels] = [0] * (len(self.buckets) + 1)
        self._sums[labels] = 0.0

    def samples(self) -> Iterator[str]:
        for labels, counts in self._counts.items():
            total = 0
            for bound, count in zip((*self.buckets, float("inf")), counts, strict=True):
                total += count
                yield self._sample(labels, total, "_bucket", le=_number(bound))
            yield self._sample(labels, self._sums[labels], "_sum")
            yield self._sample(labels, total, "_count")


def text(metrics: Iterable[Metric]) -> str:
    """Return all families as one text."""
    return "\n".join([line for metric in metrics for line in metric.lines()] + [""])


def _number(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    return str(int(value)) if value == int(value) else f"{value:.15g}"


def _quoted(label: str) -> str:
    return label.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
