"""Throttling of a cluster's containers from Prometheus: cAdvisor's counters, as raw samples over a window.

Below: Prometheus' HTTP interface, instant queries only; every error is one line with the URL.
"""

from __future__ import annotations

import http.client
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from corelane import input_files
from corelane.kernel.cpu_time.counters import Quota, Unusable
from corelane.limits.measure import Measurement, Sample, rates_of_series, silence

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
"""cAdvisor's names to ours; only newer or specially configured cAdvisors have the last five."""
_QUOTA: Final = ("container_spec_cpu_quota", "container_spec_cpu_period")
_NEEDED: Final = tuple(COUNTERS)[:4]
_ABSENT: Final = {
    _NEEDED[0]: "are the kubelets' /metrics/cadvisor scraped, and kept by relabelling?",
}
_DROPPED: Final = "no container in it has a CPU limit, or it is dropped"
_ALL: Final = "total"
_MANY: Final = 2**63
_LARGEST: Final = 1 << 28
_PIECE: Final = 1 << 20
_SHOWN: Final = 200


class _Container(NamedTuple):
    """Which container: cAdvisor's labels, those of a node's scrape included."""

    namespace: str
    pod: str
    container: str
    node: str


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
    server: PrometheusServer, window: str, namespace: str = "", pod: str = ""
) -> tuple[list[Measurement], list[str]]:
    """Return every container's rates over the window (`5m`) up to now, and notes on the data.

    `pod` is a regular expression. Raises PrometheusError.
    """
    # cAdvisor counts pods and their sandboxes, too, without a name or as POD.
    parts = ['container!=""', 'container!="POD"']
    if namespace:
        parts.append(f"namespace={_quoted(namespace)}")
    if pod:
        parts.append(f"pod=~{_quoted(pod)}")
    selector = "{" + ",".join(parts) + "}"
    groups: dict[_Container, dict[tuple[str, ...], _Group]] = {}
    notes: list[str] = []
    for metric, name in COUNTERS.items():
        answer = _query(server, f"{metric}{selector}[{window}]")
        if not answer.data.result and metric in _NEEDED:
            notes.append(f"Prometheus has no {metric} for this selection: {_ABSENT.get(metric, _DROPPED)}")
        notes += (f"{server.url} warns: {text}" for text in answer.warnings)
        for one in answer.data.result:
            incarnations = groups.setdefault(_container(one.metric), {})
            group = incarnations.setdefault(_incarnation(one.metric), _Group())
            samples = [(at, _number(server, text)) for at, text in one.values]
            group.samples.setdefault(name, {})[one.metric.get("cpu", _ALL)] = samples
    for metric in _QUOTA:
        for one in _query(server, f"{metric}{selector}").data.result:
            if one.value and (known := groups.get(_container(one.metric), {}).get(_incarnation(one.metric))):
                known.quota[metric] = _number(server, one.value[1])
    now = max((one.last for of in groups.values() for one in of.values()), default=0.0)
    measured = [_measurement(container, of, now) for container, of in sorted(groups.items())]
    return measured, list(dict.fromkeys(notes))


def _whole(of_cpu: Mapping[str, list[Sample]]) -> list[Sample]:
    """A counter's samples: the kubelet has series `total`; a separate cAdvisor may have one per CPU."""
    if _ALL in of_cpu or len(of_cpu) == 1:
        return of_cpu.get(_ALL) or next(iter(of_cpu.values()))
    sums: dict[float, list[float]] = {}
    for at, value in (sample for samples in of_cpu.values() for sample in samples):
        sums.setdefault(at, []).append(value)
    return [(at, sum(values)) for at, values in sorted(sums.items()) if len(values) == len(of_cpu)]


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _container(labels: Mapping[str, str]) -> _Container:
    node = labels.get("node") or labels.get("instance", "")
    return _Container(labels.get("namespace", ""), labels.get("pod", ""), labels.get("container", ""), node)


def _incarnation(labels: Mapping[str, str]) -> tuple[str, ...]:
    """A restarted container has another id; two jobs may scrape the same one."""
    return labels.get("id", ""), labels.get("name", ""), labels.get("job", ""), labels.get("instance", "")


def _measurement(
    container: _Container, incarnations: dict[tuple[str, ...], _Group], now: float
) -> Measurement:
    """Only the latest incarnation counts. `now` is the newest sample of all."""
    latest = max(incarnations.values(), key=lambda group: (group.last, len(group.samples)))
    samples = {name: _whole(of_cpu) for name, of_cpu in latest.samples.items()}
    amount, period = (latest.quota.get(metric, 0.0) for metric in _QUOTA)
    limited = 0 < amount < _MANY and 0 < period < _MANY
    rates = rates_of_series(samples, Quota(int(amount), int(period)) if limited else Quota())
    if isinstance(rates, Unusable):
        return Measurement(rates, *container)
    notes, remarks = [*rates.notes], [*rates.remarks]
    if len({key[:2] for key in incarnations}) > 1:
        remarks.append("restarted within the window: only its latest run is counted")
    if silent := max(silence(one, now) for one in samples.values()):
        notes.append(f"no sample for the last {silent:.0f} s: it ended, or its node is not scraped")
    return Measurement(replace(rates, notes=tuple(notes), remarks=tuple(remarks)), *container)


def vector(server: PrometheusServer, query: str) -> list[tuple[dict[str, str], float]]:
    """Return the labels and values of an instant query's result. Raises PrometheusError."""
    result = _query(server, query).data.result
    return [(each.metric, _number(server, each.value[1])) for each in result if each.value]


# The HTTP interface.


class PrometheusError(Exception):
    """Prometheus did not answer, or not with a result; the message has the URL."""


@dataclass(frozen=True, slots=True)
class PrometheusServer:
    """How Prometheus is reached. `token` is sent as a bearer token where there is one."""

    url: str
    token: str = ""
    timeout_seconds: float = 30.0
    """For a query as a whole, however slowly its answer comes."""


class Series(msgspec.Struct, frozen=True):
    """A series of a result: samples over time, or the one sample of an instant."""

    metric: dict[str, str]
    values: list[tuple[float, str]] = []
    value: tuple[float, str] | None = None


class _Data(msgspec.Struct, frozen=True):
    result: list[Series] = []


class _Answer(msgspec.Struct, frozen=True):
    """An answer. With `warnings` the result may be partial (Thanos, remote reads)."""

    status: str = ""
    error: str = ""
    data: _Data = _Data()
    warnings: list[str] = []


def _query(server: PrometheusServer, text: str) -> _Answer:
    """Send an instant query. Raises PrometheusError."""
    try:  # urllib would open file: and ftp: as well
        parts = urllib.parse.urlsplit(server.url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise PrometheusError(f"{server.url!r} is not an address: write it as http://prometheus:9090")
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
    if server.token:
        headers["Authorization"] = f"Bearer {server.token}"
    url, form = f"{server.url.rstrip('/')}/api/v1/query", urllib.parse.urlencode({"query": text}).encode()
    request = urllib.request.Request(url, data=form, headers=headers)  # noqa: S310 - the scheme was checked
    body = _body(server, request)
    try:
        answer = msgspec.json.decode(body, type=_Answer)
    except (ValueError, RecursionError) as error:
        raise PrometheusError(f"{server.url}: not an answer of Prometheus: {error}") from None
    if answer.status != "success":
        raise PrometheusError(f"{server.url}: {answer.error or answer.status or 'no status'}")
    return answer


def _number(server: PrometheusServer, text: str) -> float:
    """Parse a sample's value, which may be NaN. Raises PrometheusError."""
    try:
        return float(text)
    except ValueError:
        raise PrometheusError(f"{server.url}: a sample's value {text[:_SHOWN]!r} is not a number") from None


def bearer(path: Path | None) -> str:
    """Read the token in a file, if one is given. Raises OSError; PrometheusError for an invalid token."""
    if path is None:
        return ""
    found = input_files.read(path).strip()
    if not found or not all(0x20 < byte < 0x7F for byte in found):
        raise PrometheusError(f"{path}: holds no token: expected one word of printable ASCII")
    return found.decode()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follow no redirect: the token is for the given address only."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _body(server: PrometheusServer, request: urllib.request.Request) -> bytes:
    opener = urllib.request.build_opener(_NoRedirect)
    deadline = time.monotonic() + server.timeout_seconds
    try:
        with opener.open(request, timeout=server.timeout_seconds) as response:
            pieces, size = [], 0
            while piece := response.read1(_PIECE):
                pieces.append(piece)
                size += len(piece)
                too_much = size > _LARGEST and f"is larger than {_LARGEST >> 20} MiB"
                too_long = time.monotonic() > deadline and f"took longer than {server.timeout_seconds:g} s"
                if what := too_much or too_long:
                    remedy = "choose a namespace, or a shorter window"
                    raise PrometheusError(f"{server.url}: the answer {what}: {remedy}")
            return b"".join(pieces)
    except urllib.error.HTTPError as error:
        raise PrometheusError(f"{server.url}: {_refused(error)}") from None
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
        why = getattr(error, "reason", None) or error
        # A system's error without its number; what TLS says as it is.
        plain = why if isinstance(why, OSError) and not isinstance(why, ssl.SSLError) else None
        cause = (plain and plain.strerror) or str(why)
        hint = "is this Prometheus' address?"
        if isinstance(why, ssl.SSLCertVerificationError):
            hint = "set SSL_CERT_FILE to a file with the CA that signed it"
        raise PrometheusError(f"{server.url}: {cause}: {hint}") from None


_HINTS: Final = {
    401: ": a token is required (--bearer-token-file), or another one",
    403: ": this token may not query it",
}


def _refused(error: urllib.error.HTTPError) -> str:
    with error:
        if 300 <= error.code < 400:
            where = error.headers.get("Location", "nowhere")[:_SHOWN]
            return f"HTTP {error.code}: redirects to {where!r}: give the address of Prometheus itself"
        body = error.read(_SHOWN * 8)
        try:  # Prometheus' JSON, or the text of a proxy
            answer = msgspec.json.decode(body, type=_Answer)
            text = answer.error or answer.status
        except (ValueError, RecursionError):
            text = " ".join(body.decode(errors="replace").split())[:_SHOWN] or "no reason given"
        return f"HTTP {error.code}: {text}{_HINTS.get(error.code, '')}"
