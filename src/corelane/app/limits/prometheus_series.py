"""Throttling of a cluster's containers from Prometheus: cAdvisor's counters, as raw samples over a window."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from corelane.app.limits import prometheus
from corelane.app.limits.prometheus import Series, Server
from corelane.limits.measure import Quota, Rates, Unusable, series
from corelane.limits.measure.series import Sample

__all__ = ["COUNTERS", "Measured", "Watched", "measure", "vector"]

COUNTERS: Final[Mapping[str, str]] = {
    "container_cpu_usage_seconds_total": "usage",
    "container_cpu_cfs_throttled_seconds_total": "throttled",
    "container_cpu_cfs_periods_total": "periods",
    "container_cpu_cfs_throttled_periods_total": "throttled_periods",
    "container_cpu_cfs_burst_seconds_total": "burst",
    "container_cpu_cfs_burst_periods_total": "bursts",
    "container_pressure_cpu_waiting_seconds_total": "waiting",
    "container_pressure_cpu_stalled_seconds_total": "stalled",
    "container_cpu_schedstat_runqueue_seconds_total": "queued",
}
"""cAdvisor's names to ours; the last five only come from newer or specially configured ones."""
_QUOTA: Final = ("container_spec_cpu_quota", "container_spec_cpu_period")
_NEEDED: Final = tuple(COUNTERS)[:4]
_ALL: Final = "total"
_MANY: Final = 2**63


@dataclass(frozen=True, slots=True)
class Watched:
    """Which container: cAdvisor's labels, those of a node's scrape included."""

    namespace: str
    pod: str
    container: str
    node: str = ""


@dataclass(frozen=True, slots=True)
class Measured:
    """A container's rates, or why there are none."""

    watched: Watched
    rates: Rates | Unusable


@dataclass(slots=True)
class _Group:
    """The series of one cgroup, as one job scraped them from one node: by counter, then by CPU."""

    samples: dict[str, dict[str, list[Sample]]] = field(default_factory=dict)
    quota: dict[str, float] = field(default_factory=dict)

    @property
    def last(self) -> float:
        found = (samples[-1][0] for of_cpu in self.samples.values() for samples in of_cpu.values() if samples)
        return max(found, default=0.0)


def measure(
    server: Server, window: str, namespace: str = "", pod: str = ""
) -> tuple[list[Measured], list[str]]:
    """Every container's rates over the window (`5m`) up to now, and what is to be said of the data.

    `pod` is a regular expression. Raises PrometheusError.
    """
    selector = _selector(namespace, pod)
    groups: dict[Watched, dict[tuple[str, ...], _Group]] = {}
    notes: list[str] = []
    for metric, name in COUNTERS.items():
        answer = prometheus.query(server, f"{metric}{selector}[{window}]")
        if not answer.data.result and metric in _NEEDED:
            notes.append(_absent(metric))
        notes += (f"{server.url} warns: {text}" for text in answer.warnings)
        for one in answer.data.result:
            of_cpu = _group(groups, one.metric).samples.setdefault(name, {})
            of_cpu[one.metric.get("cpu", _ALL)] = _samples(server, one)
    for metric in _QUOTA:
        for one in prometheus.query(server, f"{metric}{selector}").data.result:
            if one.value and (known := _known(groups, one.metric)):
                known.quota[metric] = prometheus.number(server, one.value[1])
    now = max((one.last for of in groups.values() for one in of.values()), default=0.0)
    found = [_measured(watched, of, now) for watched, of in sorted(groups.items(), key=_by_name)]
    return found, list(dict.fromkeys(notes))


def _samples(server: Server, one: Series) -> list[Sample]:
    return [(at, prometheus.number(server, text)) for at, text in one.values]


def _whole(of_cpu: Mapping[str, list[Sample]]) -> list[Sample]:
    """A counter's samples: the kubelet's say `total`; a cAdvisor of its own may have one series a CPU."""
    if _ALL in of_cpu or len(of_cpu) == 1:
        return of_cpu.get(_ALL) or next(iter(of_cpu.values()))
    sums: dict[float, list[float]] = {}
    for at, value in (sample for samples in of_cpu.values() for sample in samples):
        sums.setdefault(at, []).append(value)
    return [(at, sum(values)) for at, values in sorted(sums.items()) if len(values) == len(of_cpu)]


def _by_name(item: tuple[Watched, Any]) -> tuple[str, str, str, str]:
    one = item[0]
    return one.namespace, one.pod, one.container, one.node


def _selector(namespace: str, pod: str) -> str:
    """Containers only: cAdvisor counts pods and their sandboxes as well, without a name or as POD."""
    parts = ['container!=""', 'container!="POD"']
    if namespace:
        parts.append(f"namespace={_quoted(namespace)}")
    if pod:
        parts.append(f"pod=~{_quoted(pod)}")
    return "{" + ",".join(parts) + "}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _watched(labels: Mapping[str, str]) -> Watched:
    node = labels.get("node") or labels.get("instance", "")
    return Watched(labels.get("namespace", ""), labels.get("pod", ""), labels.get("container", ""), node)


def _incarnation(labels: Mapping[str, str]) -> tuple[str, ...]:
    """A restarted container has another id; two jobs may scrape the same one."""
    return labels.get("id", ""), labels.get("name", ""), labels.get("job", ""), labels.get("instance", "")


def _group(groups: dict[Watched, dict[tuple[str, ...], _Group]], labels: Mapping[str, str]) -> _Group:
    return groups.setdefault(_watched(labels), {}).setdefault(_incarnation(labels), _Group())


def _known(groups: dict[Watched, dict[tuple[str, ...], _Group]], labels: Mapping[str, str]) -> _Group | None:
    return groups.get(_watched(labels), {}).get(_incarnation(labels))


def _measured(watched: Watched, incarnations: dict[tuple[str, ...], _Group], now: float) -> Measured:
    """The latest incarnation counts; what an earlier one did is over. `now` is the newest sample of all."""
    latest = max(incarnations.values(), key=lambda group: (group.last, len(group.samples)))
    samples = {name: _whole(of_cpu) for name, of_cpu in latest.samples.items()}
    found = series.rates(samples, _quota(latest.quota))
    if isinstance(found, Unusable):
        return Measured(watched, found)
    notes, remarks = [*found.notes], [*found.remarks]
    if len({key[:2] for key in incarnations}) > 1:
        remarks.append("started anew within the window: only its latest run is counted")
    if silent := max(series.silence(one, now) for one in samples.values()):
        notes.append(f"no sample for the last {silent:.0f} s: it ended, or its node is not scraped")
    return Measured(watched, replace(found, notes=tuple(notes), remarks=tuple(remarks)))


def _quota(found: Mapping[str, float]) -> Quota:
    amount, period = (found.get(metric) for metric in _QUOTA)
    if not amount or not period or not (0 < amount < _MANY and 0 < period < _MANY):
        return Quota()
    return Quota(int(amount), int(period))


def _absent(metric: str) -> str:
    if metric == "container_cpu_usage_seconds_total":
        return (
            f"Prometheus has no {metric} for this selection: are the kubelets' /metrics/cadvisor scraped, "
            "and kept by relabelling?"
        )
    return (
        f"Prometheus has no {metric} for this selection: no container in it has a CPU limit, or it is dropped"
    )


def vector(server: Server, query: str) -> list[tuple[dict[str, str], float]]:
    """The labels and values of any instant query's result. Raises PrometheusError."""
    found: Iterable[Series] = prometheus.query(server, query).data.result
    return [(one.metric, prometheus.number(server, one.value[1])) for one in found if one.value]
