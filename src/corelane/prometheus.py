"""What the daemons' `/metrics` have in common: a registry, gauges read when scraped, the text format.

prometheus_client counts and renders. The format is version 0.0.4, without the creation times that
kube-apiserver and kube-scheduler do not have either.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeAlias, TypeVar

import prometheus_client
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

MEDIA_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
LabelValues: TypeAlias = tuple[str, ...]
Key = TypeVar("Key", bound=LabelValues)
Gauges: TypeAlias = Callable[[], Iterable[GaugeMetricFamily]]

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


class _Read(Collector):
    def __init__(self, read: Gauges) -> None:
        self._read = read

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield from self._read()
