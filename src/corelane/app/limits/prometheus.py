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
    selector = _selector(namespace, pod)
    groups: dict[_Container, dict[tuple[str, ...], _Group]] = {}
    notes: list[str] = []
    for metric, name in COUNTERS.items():
        answer = _query(server, f"{metric}{selector}[{window}]")
        if not answer.data.result and metric in _NEEDED:
            notes.append(_absent(metric))
        notes += (f"{server.url} warns: {text}" for text in answer.warnings)
        for one in answer.data.result:
            of_cpu = _group(groups, one.metric).samples.setdefault(name, {})
            of_cpu[one.metric.get("cpu", _ALL)] = _samples(server, one)
    for metric in _QUOTA:
        for one in _query(server, f"{metric}{selector}").data.result:
            if one.value and (known := _known(groups, one.metric)):
                known.quota[metric] = _number(server, one.value[1])
    now = max((one.last for of in groups.values() for one in of.values()), default=0.0)
    measured = [_measurement(container, of, now) for container, of in sorted(groups.items())]
    return measured, list(dict.fromkeys(notes))


def _samples(server: PrometheusServer, one: Series) -> list[Sample]:
    return [(at, _number(server, text)) for at, text in one.values]


def _whole(of_cpu: Mapping[str, list[Sample]]) -> list[Sample]:
    """A counter's samples: the kubelet has series `total`; a separate cAdvisor may have one per CPU."""
    if _ALL in of_cpu or len(of_cpu) == 1:
        return of_cpu.get(_ALL) or next(iter(of_cpu.values()))
    sums: dict[float, list[float]] = {}
    for at, value in (sample for samples in of_cpu.values() for sample in samples):
        sums.setdefault(at, []).append(value)
    return [(at, sum(values)) for at, values in sorted(sums.items()) if len(values) == len(of_cpu)]


def _selector(namespace: str, pod: str) -> str:
    """Containers only: cAdvisor counts pods and their sandboxes, too, without a name or as POD."""
    parts = ['container!=""', 'container!="POD"']
    if namespace:
        parts.append(f"namespace={_quoted(namespace)}")
    if pod:
        parts.append(f"pod=~{_quoted(pod)}")
    return "{" + ",".join(parts) + "}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _container(labels: Mapping[str, str]) -> _Container:
    node = labels.get("node") or labels.get("instance", "")
    return _Container(labels.get("namespace", ""), labels.get("pod", ""), labels.get("container", ""), node)


def _incarnation(labels: Mapping[str, str]) -> tuple[str, ...]:
    """A restarted container has another id; two jobs may scrape the same one."""
    return labels.get("id", ""), labels.get("name", ""), labels.get("job", ""), labels.get("instance", "")


def _group(groups: dict[_Container, dict[tuple[str, ...], _Group]], labels: Mapping[str, str]) -> _Group:
    return groups.setdefault(_container(labels), {}).setdefault(_incarnation(labels), _Group())


def _known(
    groups: dict[_Container, dict[tuple[str, ...], _Group]], labels: Mapping[str, str]
) -> _Group | None:
    return groups.get(_container(labels), {}).get(_incarnation(labels))


def _measurement(
    container: _Container, incarnations: dict[tuple[str, ...], _Group], now: float
) -> Measurement:
    """Only the latest incarnation counts. `now` is the newest sample of all."""
    latest = max(incarnations.values(), key=lambda group: (group.last, len(group.samples)))
    samples = {name: _whole(of_cpu) for name, of_cpu in latest.samples.items()}
    rates = rates_of_series(samples, _quota(latest.quota))
    if isinstance(rates, Unusable):
        return Measurement(rates, *container)
    notes, remarks = [*rates.notes], [*rates.remarks]
    if len({key[:2] for key in incarnations}) > 1:
        remarks.append("restarted within the window: only its latest run is counted")
    if silent := max(silence(one, now) for one in samples.values()):
        notes.append(f"no sample for the last {silent:.0f} s: it ended, or its node is not scraped")
    return Measurement(replace(rates, notes=tuple(notes), remarks=tuple(remarks)), *container)


def _quota(values: Mapping[str, float]) -> Quota:
    amount, period = (values.get(metric) for metric in _QUOTA)
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
    body = _body(server, _request(server, text))
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


def _request(server: PrometheusServer, text: str) -> urllib.request.Request:
    if not _is_address(server.url):
        raise PrometheusError(f"{server.url!r} is not an address: write it as http://prometheus:9090")
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
    if server.token:
        headers["Authorization"] = f"Bearer {server.token}"
    url = server.url.rstrip("/") + "/api/v1/query"
    form = urllib.parse.urlencode({"query": text}).encode()
    return urllib.request.Request(url, data=form, headers=headers)  # noqa: S310 - the scheme was checked


def _is_address(url: str) -> bool:
    """Whether this is an HTTP address; urllib would open file: and ftp: as well."""
    try:
        parts = urllib.parse.urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follow no redirect: the token is for the given address only."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _body(server: PrometheusServer, request: urllib.request.Request) -> bytes:
    opener = urllib.request.build_opener(_NoRedirect)
    deadline = time.monotonic() + server.timeout_seconds
    try:
        with opener.open(request, timeout=server.timeout_seconds) as response:
            return _read(server, response, deadline)
    except urllib.error.HTTPError as error:
        raise PrometheusError(f"{server.url}: {_refused(error)}") from None
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
        why = getattr(error, "reason", None) or error
        raise PrometheusError(f"{server.url}: {_cause(why)}: {_hint(why)}") from None


def _read(server: PrometheusServer, response: http.client.HTTPResponse, deadline: float) -> bytes:
    """Read the whole answer, in bounded time and memory."""
    pieces, size = [], 0
    while piece := response.read1(_PIECE):
        pieces.append(piece)
        size += len(piece)
        if size > _LARGEST:
            raise PrometheusError(
                f"{server.url}: the answer is larger than {_LARGEST >> 20} MiB: "
                "choose a namespace, or a shorter window"
            )
        if time.monotonic() > deadline:
            raise PrometheusError(
                f"{server.url}: the answer took longer than {server.timeout_seconds:g} s: "
                "choose a namespace, or a shorter window"
            )
    return b"".join(pieces)


def _cause(why: Any) -> str:
    """A system's error without its number; what TLS says as it is."""
    plain = isinstance(why, OSError) and not isinstance(why, ssl.SSLError)
    return (why.strerror if plain else "") or str(why)


def _hint(why: Any) -> str:
    if isinstance(why, ssl.SSLCertVerificationError):
        return "set SSL_CERT_FILE to a file with the CA that signed it"
    return "is this Prometheus' address?"


_HINTS: Final = {
    401: ": a token is required (--bearer-token-file), or another one",
    403: ": this token may not query it",
}


def _refused(error: urllib.error.HTTPError) -> str:
    with error:
        if 300 <= error.code < 400:
            where = error.headers.get("Location", "nowhere")[:_SHOWN]
            return f"HTTP {error.code}: redirects to {where!r}: give the address of Prometheus itself"
        return f"HTTP {error.code}: {_error_text(error.read(_SHOWN * 8))}{_HINTS.get(error.code, '')}"


def _error_text(body: bytes) -> str:
    """The error in a refusal, from Prometheus' JSON or the text of a proxy."""
    try:
        answer = msgspec.json.decode(body, type=_Answer)
        return answer.error or answer.status
    except (ValueError, RecursionError):
        return " ".join(body.decode(errors="replace").split())[:_SHOWN] or "no reason given"
