"""Pod logs: options of a log request, and the protocol by which `app` connects the agents.

Texts after kubernetes' `pkg/registry/core/pod/strategy.go` (LogLocation) and `ValidatePodLogOptions`.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from corelane.embedded.apiserver import api_requests, status_errors
from corelane.embedded.apiserver.api_requests import Query
from corelane.embedded.apiserver.http import responses
from corelane.embedded.apiserver.status_errors import StatusCause
from corelane.embedded.apiserver.stored_objects import Object


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The requested part of a container's log; `since_seconds` counts back from now."""

    container: str
    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None
    since_seconds: int | None = None
    since_time: datetime | None = None


class LogUnavailableError(Exception):
    """The node is unreachable or has no such log; the message gives the reason."""


class LogSource(Protocol):
    """Source of the logs of running and ended containers."""

    async def open(self, pod: Mapping[str, Any], options: LogOptions) -> AsyncIterator[bytes]:
        """The bytes of a log; with `follow`, until the container ends or the reader closes the iterator.

        `pod` is the whole object in v1 form. Raises StatusError for an answer of its own, or
        LogUnavailableError.
        """
        ...


def options(query: Query, pod: Object) -> LogOptions:
    """Read and validate the query of a log request. Raises StatusError 400 or 422."""
    log_options = LogOptions(
        container=_container(pod, query.get("container", "")),
        follow=api_requests.flag(query, "follow"),
        previous=api_requests.flag(query, "previous"),
        timestamps=api_requests.flag(query, "timestamps"),
        tail_lines=api_requests.integer(query, "tailLines"),
        limit_bytes=api_requests.integer(query, "limitBytes"),
        since_seconds=api_requests.integer(query, "sinceSeconds"),
        since_time=_moment(query.get("sinceTime", "")),
    )
    faults = []
    rules = (
        ("tailLines", log_options.tail_lines, 0, "must be greater than or equal to 0"),
        ("limitBytes", log_options.limit_bytes, 1, "must be greater than 0"),
        ("sinceSeconds", log_options.since_seconds, 1, "must be greater than 0"),
    )
    for name, value, least, rule in rules:
        if value is not None and value < least:
            faults.append(StatusCause("FieldValueInvalid", f"Invalid value: {value}: {rule}", name))
    if log_options.since_seconds is not None and log_options.since_time is not None:
        why = "Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified"
        faults.append(StatusCause("FieldValueForbidden", why, ""))
    if faults:
        raise status_errors.invalid("PodLogOptions", "", pod["metadata"]["name"], faults)
    return log_options


async def limited(chunks: AsyncIterator[bytes], limit: int) -> AsyncIterator[bytes]:
    """Yield at most `limit` bytes, and close `chunks`."""
    left = limit
    try:
        async for chunk in chunks:
            yield chunk[:left]
            left -= len(chunk)
            if left <= 0:
                return
    finally:
        await responses.close(chunks)


def _moment(text: str) -> datetime | None:
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise status_errors.bad_request(
            f'parsing time "{text}": sinceTime must be RFC 3339, as in 2026-01-02T15:04:05Z'
        )
    return moment


def _container(pod: Object, name: str) -> str:
    spec, pod_name = pod.get("spec") or {}, pod["metadata"]["name"]
    groups = {
        part: [container["name"] for container in spec.get(f"{part}s") or ()]
        for part in ("container", "initContainer", "ephemeralContainer")
    }
    if name:
        if not any(name in names for names in groups.values()):
            raise status_errors.bad_request(f"container {name} is not valid for pod {pod_name}")
        return name
    names = groups["container"]
    if len(names) == 1:
        return str(names[0])
    raise status_errors.bad_request(
        f"a container name must be specified for pod {pod_name}, choose one of: "
        + ", ".join(name for group in groups.values() for name in group)
    )
