"""What the daemons' `/metrics` have in common: a registry, gauges read when scraped, the text format.

prometheus_client counts and renders. The format is version 0.0.4, without the creation times that
kube-apiserver and kube-scheduler do not have either.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Final, TypeAlias, TypeVar

import prometheus_client
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

MEDIA_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
LabelValues: TypeAlias = tuple[str, ...]
Key = TypeVar("Key", bound=LabelValues)
Gauges: TypeAlias = Callable[[], Iterable[Metric]]

prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]


def registry(read: Gauges) -> CollectorRegistry:
    """Return a registry with metrics of the process, and the gauges that `read` returns at each scrape."""
    made = CollectorRegistry()
    prometheus_client.ProcessCollector(registry=made)
    made.register(_Read(read))
    return made


def gauge(
    name: str, description: str, labels: Iterable[str], values: Mapping[Key, float]
) -> GaugeMetricFamily:
    """Return a gauge with values by the values of its labels."""
    family = GaugeMetricFamily(name, description, labels=tuple(labels))
    for label_values, value in values.items():
        family.add_metric(label_values, value)
    return family


def text(metrics: CollectorRegistry) -> bytes:
    """Return all metrics in Prometheus' text format."""
    return prometheus_client.generate_latest(metrics)


class FrequentHistogram(Collector):
    """A histogram for what happens many times a pod: observed in a quarter of prometheus_client's time.

    It has no locks: one thread observes and scrapes.
    """

    def __init__(
        self,
        name: str,
        description: str,
        labels: Iterable[str],
        *,
        buckets: Iterable[float],
        registry: CollectorRegistry,
    ) -> None:
        """`buckets` are upper bounds, in order, without infinity."""
        self._name, self._description, self._labels = name, description, tuple(labels)
        self._bounds = tuple(buckets)
        self._bucket_names = tuple(map(floatToGoString, (*self._bounds, float("inf"))))
        self._series: dict[LabelValues, Observations] = {}
        registry.register(self)

    def labels(self, *values: str) -> "Observations":
        series = self._series.get(values)
        if series is None:
            series = self._series[values] = Observations(self._bounds)
        return series

    def describe(self) -> Iterator[HistogramMetricFamily]:
        yield HistogramMetricFamily(self._name, self._description, labels=self._labels)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        (family,) = self.describe()
        for labels, series in self._series.items():
            buckets = zip(self._bucket_names, accumulate(series.counts), strict=True)
            family.add_metric(labels, tuple(buckets), series.sum)
        yield family


class Observations:
    """One series of a `FrequentHistogram`."""

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds, self.counts, self.sum = bounds, [0] * (len(bounds) + 1), 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self._bounds, value)] += 1
        self.sum += value


class _Read(Collector):
    def __init__(self, read: Gauges) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        yield from self._read()
