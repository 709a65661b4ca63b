"""What `corelane limits advise` reads beside measurements: Kubernetes objects, and a service's latency."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from corelane import input_files
from corelane.app.state import files
from corelane.limits import measure
from corelane.limits.advice.subjects import ClusterSnapshot
from corelane.limits.lint import manifests, yaml_documents
from corelane.limits.lint.located import Located, located
from corelane.limits.lint.yaml_documents import YAMLDocument
from corelane.limits.measure import Latency, RequestLog
from corelane.settings import load_yaml

_SERVED: Final = (
    "/api/v1/pods",
    "/api/v1/nodes",
    "/apis/apps/v1/replicasets",
    "/apis/batch/v1/jobs",
    "/apis/autoscaling/v2/horizontalpodautoscalers",
)
_LARGEST_MS: Final = 1e9


class AdviseError(ValueError):
    """Input that cannot be used for advice; the message names it, and what to do."""


# Objects: pods, nodes, autoscalers, and what owns the pods.


def read_objects(path: Path, snapshot: ClusterSnapshot) -> None:
    """Add the objects in a file. Raises AdviseError if it has no pods, StateFileError if it is unreadable."""
    content = files.read_stream(path)
    objects = [each for root in _roots(path, content) for each in manifests.objects(root, str(path))]
    if not any(each.kind == "Pod" for each in objects):
        raise AdviseError(
            f"{path}: has no pods: give the output of kubectl get pods,nodes,hpa,replicasets -A -o json"
        )
    for each in objects:
        for own in each.pod.containers if each.kind == "Pod" and each.pod else ():
            for part, amounts in (("requests", own.resources.requests), ("limits", own.resources.limits)):
                for name, amount in amounts.items():
                    if amount.error:
                        title = f"pod {each.namespace or 'default'}/{each.name}: container {own.name}"
                        raise AdviseError(f"{path}: {title}: {part}.{name}: {amount.text!r}: {amount.error}")
    snapshot.add(objects)


def _roots(path: Path, content: bytes) -> Iterator[Located]:
    try:
        yield located(json.loads(content))
        return
    except (ValueError, RecursionError):
        pass
    try:
        documents = yaml_documents.read(content.decode())
    except UnicodeDecodeError:
        raise AdviseError(f"{path}: neither JSON nor YAML: not UTF-8 text") from None
    for document in documents:
        if not isinstance(document, YAMLDocument):
            raise AdviseError(f"{path}:{document.line}:{document.column}: {document.message}")
        yield document.root


def fetch_objects(kubeconfig: Path | None, snapshot: ClusterSnapshot) -> list[str]:
    """Add the objects of an API server, and return what it does not serve.

    Raises the client's errors if it does not serve pods.
    """
    from corelane.kube.apierrors import APIError
    from corelane.kube.client import KubeClient

    async def fetch() -> list[str]:
        client, notes = KubeClient.connect(kubeconfig), []
        try:
            for path in _SERVED:
                try:
                    snapshot.add(manifests.objects(located(await client.read_tree(path)), path))
                except APIError as error:
                    if path == _SERVED[0]:
                        raise
                    notes.append(f"{path.rpartition('/')[2]} are not served: {error}")
        finally:
            await client.close()
        return notes

    return asyncio.run(fetch())


# Latency: a file of percentiles, or a histogram in Prometheus.


def read_latency(path: Path) -> Latency:
    """Read a service's latency. Raises AdviseError.

    Either a line for each request, when it was sent in seconds and how long it took in milliseconds; or a
    mapping, YAML or JSON, of percentiles (99, p99 or 0.99) to milliseconds, and of `requestsPerSecond`.
    """
    try:
        text = input_files.read(path, input_files.OBJECTS_BYTES).decode()
        first = next((line for line in text.splitlines() if _is_content(line)), "")
        if len(first.split()) == 2 and ":" not in first:
            return Latency.of_log(_request_log(path, text))
        tree = load_yaml(text.encode())
    except AdviseError:
        raise
    except OSError as error:
        raise AdviseError(
            f"--latency {path}: {error.strerror}: name a file of requests or percentiles"
        ) from None
    except UnicodeDecodeError as error:
        raise AdviseError(f"{path}: not UTF-8 text: {error}") from None
    except ValueError as error:
        raise AdviseError(f"{path}: {error}") from None
    if not isinstance(tree, dict) or not tree:
        raise AdviseError(
            f"{path}: is neither a mapping of percentiles to milliseconds, such as p99: 340, nor a line for "
            "each request, such as 1732374000.25 34.5 (seconds when sent, milliseconds)"
        )
    rate = tree.pop(_RATE, None)
    if rate is not None and not (_is_amount(rate) and rate > 0):
        raise AdviseError(f"{path}: {_RATE}: {rate!r} is not a number of requests a second")
    quantiles = {}
    for key, value in tree.items():
        try:
            percent = float(str(key).removeprefix("p"))
        except ValueError:
            percent = math.nan
        percent = round(percent * 100, 6) if 0 < percent < 1 else percent
        if not 0 < percent <= 100:
            raise AdviseError(f"{path}: {key!r} is not a percentile, such as p99")
        if not _is_amount(value) or not 0 <= value < _LARGEST_MS:
            raise AdviseError(f"{path}: {key}: {value!r} is not a number of milliseconds")
        quantiles[percent] = float(value)
    for (lower, shorter), (higher, longer) in pairwise(sorted(quantiles.items())):
        if longer < shorter:
            raise AdviseError(f"{path}: p{higher:g}: {longer:g} ms is less than p{lower:g}: {shorter:g} ms")
    return Latency(quantiles, per_second=rate)


def check_time(path: Path, log: RequestLog, seconds: float) -> None:
    """Refuse a log of a time unlike the measured `seconds`: mostly of moments in ms. Raises AdviseError."""
    if not seconds / _UNLIKE < log.seconds < seconds * _UNLIKE:
        raise AdviseError(
            f"{path}: requests were sent in {log.seconds:g} s, but {seconds:g} s were measured: give the "
            "time of each request in seconds, from the measured time"
        )


_UNLIKE: Final = 100
"""Times the measured time: more than what an access log may be longer or shorter, less than a thousand."""
_RATE: Final = "requestsPerSecond"
_FEWEST_REQUESTS: Final = 100
"""A 99th percentile of fewer is the largest value, which says little."""


def _is_content(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _request_log(path: Path, text: str) -> RequestLog:
    requests = []
    for number, line in enumerate(text.splitlines(), 1):
        if not _is_content(line):
            continue
        try:
            at, took = map(float, line.split())
        except ValueError:
            at = took = math.nan
        if not (math.isfinite(at) and 0 <= took < _LARGEST_MS):
            raise AdviseError(
                f"{path}:{number}: {line.strip()[:60]!r} is not the time of a request in seconds and its "
                "latency in milliseconds, such as 1732374000.25 34.5"
            )
        requests.append((at, took))
    requests.sort()
    if len(requests) < _FEWEST_REQUESTS:
        raise AdviseError(
            f"{path}: {len(requests)} requests; a 99th percentile requires at least {_FEWEST_REQUESTS}"
        )
    begin, end = requests[0][0], requests[-1][0]
    if end <= begin:
        raise AdviseError(f"{path}: all requests were sent at {begin:g}: give the time of each, in seconds")
    # The time after the last request is on average that between two.
    seconds = (end - begin) * len(requests) / (len(requests) - 1)
    moments = tuple(int((at - begin) * 1e9) for at, _ in requests)
    return RequestLog(seconds, moments, tuple(took for _, took in requests))


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def latency_of_buckets(vector: Iterable[tuple[Mapping[str, str], float]], query: str) -> Latency:
    """Percentiles of `sum by (le) (rate(…_bucket[5m]))`, whose buckets are in seconds. Raises AdviseError."""
    buckets: dict[float, float] = {}
    for labels, value in vector:
        try:
            bound = float(labels["le"])
        except (KeyError, ValueError):
            raise AdviseError(
                f"--latency {query!r}: the result has no buckets: write such as "
                "sum by (le) (rate(http_request_duration_seconds_bucket[5m]))"
            ) from None
        if bound in buckets:
            raise AdviseError(f"--latency {query!r}: several series per bucket: put sum by (le) around it")
        buckets[bound] = value
    try:
        quantiles = measure.histogram_quantiles(buckets, (10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0))
    except ValueError as error:
        raise AdviseError(f"--latency {query!r}: {error}: is the window long enough?") from None
    milliseconds = {percent: 1000 * seconds for percent, seconds in quantiles.items()}
    rate = buckets[math.inf] if "rate(" in query else None
    return Latency(milliseconds, rate)
