"""`/metrics`: requests by verb and resource under kube-apiserver's names, what is stored, and the process.

Counted as requests end; what is read from elsewhere is read when metrics are scraped.
"""

import os
import resource
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from corelane.apiserver.api_requests import Query, Target
from corelane.apiserver.openapi.discovery import KUBERNETES_VERSION

MEDIA = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (
    0.005,
    0.025,
    0.05,
    0.1,
    0.2,
    0.4,
    0.6,
    0.8,
    1,
    1.25,
    1.5,
    2,
    3,
    4,
    5,
    6,
    8,
    10,
    15,
    20,
    30,
    45,
    60,
)
"""Upper bounds of durations in seconds, upstream's."""
_VERBS = {"create": "POST", "update": "PUT"}
_MUTATING = {"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"}
_DOCUMENTS = {"api", "apis", "openapi", "version", "healthz", "livez", "readyz", "metrics"}

Labels = tuple[tuple[str, str], ...]
Sample = tuple[str, Labels, float]


@dataclass(slots=True)
class _Durations:
    """A histogram; `counts` has one more than `BUCKETS`, for what took longer."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds

    def samples(self, name: str, labels: Labels) -> Iterator[Sample]:
        passed = 0
        for bound, count in zip((*BUCKETS, None), self.counts, strict=True):
            passed += count
            shown = "+Inf" if bound is None else f"{bound:g}"
            yield f"{name}_bucket", (*labels, ("le", shown)), passed
        yield f"{name}_sum", labels, self.total
        yield f"{name}_count", labels, passed


class RequestMetrics:
    """Requests that ended, and those under way."""

    def __init__(self) -> None:
        self._totals: dict[Labels, int] = {}
        self._durations: dict[Labels, _Durations] = {}
        self._inflight = {"mutating": 0, "readOnly": 0}

    def begin(self, target: Target) -> None:
        self._count(target, 1)

    def end(self, target: Target, query: Query, content_type: str, code: int, seconds: float) -> None:
        """Record a request's answer."""
        self._count(target, -1)
        labels = request_labels(target, query, content_type)
        if labels:
            counted = (*labels, ("code", str(code)))
            self._totals[counted] = self._totals.get(counted, 0) + 1
            self._durations.setdefault(labels, _Durations()).add(seconds)

    def _count(self, target: Target, change: int) -> None:
        if target.verb != "watch":
            kind = "mutating" if verb_of(target, "") in _MUTATING else "readOnly"
            self._inflight[kind] += change

    def samples(self) -> Iterator[tuple[str, str, str, Iterable[Sample]]]:
        """Name, type, help and samples of each family."""
        name = "apiserver_request_total"
        totals = [(name, labels, float(count)) for labels, count in self._totals.items()]
        yield name, "counter", "Requests by verb, resource and code.", totals
        name = "apiserver_request_duration_seconds"
        pairs = self._durations.items()
        yield (
            name,
            "histogram",
            "Time from a request's head to the end of its answer.",
            [sample for labels, found in pairs for sample in found.samples(name, labels)],
        )
        name = "apiserver_current_inflight_requests"
        running = [(name, (("request_kind", kind),), float(n)) for kind, n in self._inflight.items()]
        yield name, "gauge", "Requests that are being answered, watches aside.", running


def verb_of(target: Target, content_type: str) -> str:
    """Upstream's name of a verb in metrics."""
    if target.verb == "patch" and content_type.startswith("application/apply-patch"):
        return "APPLY"
    return _VERBS.get(target.verb, target.verb.upper())


def request_labels(target: Target, query: Query, content_type: str) -> Labels:
    """A request's labels; none for paths that are not served, whose number has no bound."""
    part = target.subresource
    if target.kind is None:
        root = target.path.split("/")[1:2]
        if target.is_resource or not root or root[0] not in _DOCUMENTS or target.verb != "get":
            return ()
        part = f"/{root[0]}"
    scope = "resource" if target.name else "namespace" if target.namespace else "cluster"
    return (
        ("component", "apiserver"),
        ("dry_run", "All" if query.get("dryRun") == "All" else ""),
        ("group", target.group),
        ("resource", target.resource),
        ("scope", scope if target.kind else ""),
        ("subresource", part),
        ("verb", verb_of(target, content_type)),
        ("version", target.version),
    )


def text(requests: RequestMetrics, watches: int, objects: Mapping[str, int]) -> str:
    """All metrics in Prometheus' text format; `objects` counts what is stored by resource."""
    families = [*requests.samples(), *_server(watches, objects), *_process()]
    return "".join(line for family in families for line in _lines(*family))


def _server(watches: int, objects: Mapping[str, int]) -> Iterator[tuple[str, str, str, Iterable[Sample]]]:
    name = "apiserver_longrunning_requests"
    yield name, "gauge", "Open watches.", [(name, (("verb", "WATCH"),), watches)]
    name = "apiserver_storage_objects"
    stored = [(name, (("resource", one),), float(count)) for one, count in sorted(objects.items())]
    yield name, "gauge", "Stored objects by resource.", stored
    name = "kubernetes_build_info"
    version = (("git_version", f"v{KUBERNETES_VERSION}"),)
    yield name, "gauge", "The Kubernetes version whose API is served.", [(name, version, 1)]


def _process() -> Iterator[tuple[str, str, str, Iterable[Sample]]]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    yield _one(
        "process_cpu_seconds_total", "counter", "CPU time of the process.", usage.ru_utime + usage.ru_stime
    )
    size, resident, *_ = map(int, Path("/proc/self/statm").read_text().split())
    page = os.sysconf("SC_PAGE_SIZE")
    yield _one("process_virtual_memory_bytes", "gauge", "Virtual memory of the process.", size * page)
    yield _one("process_resident_memory_bytes", "gauge", "Resident memory of the process.", resident * page)
    opened = sum(1 for _ in Path("/proc/self/fd").iterdir())
    yield _one("process_open_fds", "gauge", "Open file descriptors.", opened)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    yield _one("process_max_fds", "gauge", "Limit of open file descriptors.", limit)
    yield _one("process_start_time_seconds", "gauge", "Start of the process, in Unix time.", _started())


def _started() -> float:
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    since_boot = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return round(time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + since_boot, 2)


def _one(name: str, kind: str, described: str, value: float) -> tuple[str, str, str, Iterable[Sample]]:
    return name, kind, described, [(name, (), value)]


def _lines(name: str, kind: str, described: str, samples: Iterable[Sample]) -> Iterator[str]:
    yield f"# HELP {name} {described}\n# TYPE {name} {kind}\n"
    for sample, labels, value in samples:
        shown = ",".join(f'{key}="{_escaped(part)}"' for key, part in labels)
        yield f"{sample}{{{shown}}} {_number(value)}\n" if shown else f"{sample} {_number(value)}\n"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
