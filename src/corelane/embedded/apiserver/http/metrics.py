"""`/metrics`: requests by verb and resource under kube-apiserver's names, what is stored, and the process.

Counted as requests end; what is read from elsewhere is read when metrics are scraped.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily

from corelane import prometheus
from corelane.embedded.apiserver.api_requests import Query, Target
from corelane.embedded.apiserver.openapi.discovery import KUBERNETES_VERSION

BUCKETS: Final = (
    *(0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5),
    *(2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0),
)
"""Upper bounds of durations in seconds, upstream's."""
_LABELS: Final = ("component", "dry_run", "group", "resource", "scope", "subresource", "verb", "version")
_VERBS = {"create": "POST", "update": "PUT"}
_MUTATING = {"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"}
_DOCUMENTS = {"api", "apis", "openapi", "version", "healthz", "livez", "readyz", "metrics"}


class RequestMetrics:
    """Requests that ended, and those under way."""

    def __init__(self) -> None:
        self._watches, self._stored = 0, dict[str, int]()
        self._registry = prometheus.registry(self._gauges)
        self._totals = Counter(
            "apiserver_request_total",
            "Requests by verb, resource and code.",
            (*_LABELS, "code"),
            registry=self._registry,
        )
        self._durations = Histogram(
            "apiserver_request_duration_seconds",
            "Time from a request's head to the end of its answer.",
            _LABELS,
            buckets=BUCKETS,
            registry=self._registry,
        )
        self._inflight = Gauge(
            "apiserver_current_inflight_requests",
            "Requests that are being answered, watches aside.",
            ("request_kind",),
            registry=self._registry,
        )

    def begin(self, target: Target) -> None:
        self._count(target, 1)

    def end(self, target: Target, query: Query, content_type: str, code: int, seconds: float) -> None:
        """Record a request's answer."""
        self._count(target, -1)
        labels = request_labels(target, query, content_type)
        if labels:
            self._totals.labels(*labels, code).inc()
            self._durations.labels(*labels).observe(seconds)

    def text(self, watches: int, objects: Mapping[str, int]) -> bytes:
        """All metrics in Prometheus' text format; `objects` counts what is stored by resource."""
        self._watches, self._stored = watches, dict(objects)
        return prometheus.text(self._registry)

    def _count(self, target: Target, change: int) -> None:
        if target.verb != "watch":
            kind = "mutating" if verb_of(target, "") in _MUTATING else "readOnly"
            self._inflight.labels(kind).inc(change)

    def _gauges(self) -> Iterator[GaugeMetricFamily]:
        name = "apiserver_longrunning_requests"
        yield prometheus.gauge(name, "Open watches.", ("verb",), {("WATCH",): self._watches})
        stored = {(resource,): count for resource, count in sorted(self._stored.items())}
        name = "apiserver_storage_objects"
        yield prometheus.gauge(name, "Stored objects by resource.", ("resource",), stored)
        name, version = "kubernetes_build_info", {(f"v{KUBERNETES_VERSION}",): 1}
        yield prometheus.gauge(name, "The Kubernetes version whose API is served.", ("git_version",), version)


def verb_of(target: Target, content_type: str) -> str:
    """Upstream's name of a verb in metrics."""
    if target.verb == "patch" and content_type.startswith("application/apply-patch"):
        return "APPLY"
    return _VERBS.get(target.verb, target.verb.upper())


def request_labels(target: Target, query: Query, content_type: str) -> tuple[str, ...]:
    """A request's labels; none for paths that are not served, whose number has no bound."""
    part = target.subresource
    if target.kind is None:
        root = target.path.split("/")[1:2]
        if target.is_resource or not root or root[0] not in _DOCUMENTS or target.verb != "get":
            return ()
        part = f"/{root[0]}"
    scope = "resource" if target.name else "namespace" if target.namespace else "cluster"
    return (
        "apiserver",
        "All" if query.get("dryRun") == "All" else "",
        target.group,
        target.resource,
        scope if target.kind else "",
        part,
        verb_of(target, content_type),
        target.version,
    )
