"""Throttling of a cluster's containers from Prometheus: cAdvisor's counters, as raw samples over a window."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from corelane.limits.measure import Quota, Rates, Unusable, series
from corelane.limits.measure.series import Sample

__all__ = ["COUNTERS", "Measured", "PrometheusError", "Server", "Watched", "measure", "vector"]

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
_LARGEST: Final = 1 << 30
_SHOWN: Final = 200
_MANY: Final = 2**63


class PrometheusError(Exception):
    """Prometheus did not answer, or not with what was asked for; the message has the URL."""


@dataclass(frozen=True, slots=True)
class Server:
    """How Prometheus is reached. `token` is sent as a bearer token where there is one."""

    url: str
    token: str = ""
    timeout_seconds: float = 30.0


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


class _Series(msgspec.Struct, frozen=True):
    metric: dict[str, str]
    values: list[tuple[float, str]] = []
    value: tuple[float, str] | None = None


class _Data(msgspec.Struct, frozen=True):
    result: list[_Series] = []


class _Answer(msgspec.Struct, frozen=True):
    status: str = ""
    error: str = ""
    data: _Data = _Data()


Samples = dict[str, list[Sample]]


@dataclass(slots=True)
class _Group:
    """The series of one cgroup, as one job scraped them from one node."""

    samples: Samples = field(default_factory=dict)
    quota: dict[str, float] = field(default_factory=dict)

    @property
    def last(self) -> float:
        return max((samples[-1][0] for samples in self.samples.values() if samples), default=0.0)


def measure(
    server: Server, window: str, namespace: str = "", pod: str = ""
) -> tuple[list[Measured], list[str]]:
    """Every container's rates over the window (`5m`) up to now, and what is to be said of the data.

    `pod` is a regular expression. Raises PrometheusError.
    """
    selector = _selector(namespace, pod)
    groups: dict[Watched, dict[tuple[str, ...], _Group]] = {}
    missing: list[str] = []
    for metric, name in COUNTERS.items():
        result = _query(server, f"{metric}{selector}[{window}]").data.result
        if not result and metric in _NEEDED:
            missing.append(metric)
        for one in result:
            _group(groups, one.metric).samples[name] = [
                (at, _number(server, text)) for at, text in one.values
            ]
    for metric in _QUOTA:
        for one in _query(server, f"{metric}{selector}").data.result:
            if one.value and (known := _known(groups, one.metric)):
                known.quota[metric] = _number(server, one.value[1])
    now = max((one.last for of in groups.values() for one in of.values()), default=0.0)
    found = [_measured(watched, of, now) for watched, of in sorted(groups.items(), key=_by_name)]
    return found, [_absent(metric) for metric in missing]


def _number(server: Server, text: str) -> float:
    """A sample's value, which may be NaN."""
    try:
        return float(text)
    except ValueError:
        raise PrometheusError(f"{server.url}: a sample's value {text[:_SHOWN]!r} is no number") from None


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
    found = series.rates(latest.samples, _quota(latest.quota))
    if isinstance(found, Unusable):
        return Measured(watched, found)
    notes = [*found.notes]
    if len({key[:2] for key in incarnations}) > 1:
        notes.append("started anew within the window: only its latest run is counted")
    if silent := max(series.silence(samples, now) for samples in latest.samples.values()):
        notes.append(f"no sample for the last {silent:.0f} s: it ended, or its node is not scraped")
    return Measured(watched, replace(found, notes=tuple(notes)))


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


def _query(server: Server, query: str) -> _Answer:
    """One instant query. Raises PrometheusError."""
    request = _request(server, query)
    try:
        # The scheme was checked: no file: or ftp: gets here.
        with urllib.request.urlopen(request, timeout=server.timeout_seconds) as response:  # noqa: S310
            body = response.read(_LARGEST)
    except urllib.error.HTTPError as error:
        raise PrometheusError(f"{server.url}: HTTP {error.code}: {_said(error.read(_SHOWN * 8))}") from None
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
        why = getattr(error, "reason", None) or error
        raise PrometheusError(f"{server.url}: {why}: is this Prometheus' address?") from None
    try:
        answer = msgspec.json.decode(body, type=_Answer)
    except msgspec.MsgspecError as error:
        raise PrometheusError(f"{server.url}: this is not Prometheus' answer: {error}") from None
    if answer.status != "success":
        raise PrometheusError(f"{server.url}: {answer.error or answer.status or 'no status'}")
    return answer


def _request(server: Server, query: str) -> urllib.request.Request:
    if not _is_address(server.url):
        raise PrometheusError(f"{server.url!r} is no address: write it as http://prometheus:9090")
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
    if server.token:
        headers["Authorization"] = f"Bearer {server.token}"
    url = server.url.rstrip("/") + "/api/v1/query"
    return urllib.request.Request(  # noqa: S310
        url, data=urllib.parse.urlencode({"query": query}).encode(), headers=headers
    )


def _is_address(url: str) -> bool:
    """Whether it is one of HTTP's; urllib would open file: and ftp: as well."""
    try:
        parts = urllib.parse.urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _said(body: bytes) -> str:
    """The error in a refusal, from Prometheus' JSON or in whatever words a proxy has."""
    try:
        answer = msgspec.json.decode(body, type=_Answer)
        return answer.error or answer.status
    except msgspec.MsgspecError:
        return " ".join(body.decode(errors="replace").split())[:_SHOWN] or "no reason given"


def vector(server: Server, query: str) -> list[tuple[dict[str, str], float]]:
    """The labels and values of any instant query's result. Raises PrometheusError."""
    found = _query(server, query).data.result
    return [(one.metric, _number(server, one.value[1])) for one in found if one.value]
