"""One request for a resource: its target, options and body, as handlers read them."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import msgspec
from multidict import MultiMapping

from corelane.embedded.apiserver import api_requests, status_errors
from corelane.embedded.apiserver.api_requests import Query, Target, WriteOptions
from corelane.embedded.apiserver.codec import envelope, protobuf_reading, wire
from corelane.embedded.apiserver.codec.json_reading import ReadError
from corelane.embedded.apiserver.http import negotiation, pod_logs
from corelane.embedded.apiserver.http.auth import ANONYMOUS, User
from corelane.embedded.apiserver.print import server_tables
from corelane.embedded.apiserver.schema.object_meta import DELETE_OPTIONS
from corelane.embedded.apiserver.served_kinds import BINDINGS, EVICTIONS, ServedKind
from corelane.embedded.apiserver.store.server_backend import Backend
from corelane.embedded.apiserver.store.watches import WatchStream
from corelane.embedded.apiserver.stored_objects import Object
from corelane.embedded.apiserver.write import deletion

MAX_BODY = 3 * 1024 * 1024


class Chunks(Protocol):
    """A body that is read as it comes."""

    def iter_any(self) -> AsyncIterator[bytes]: ...


class Request(Protocol):
    """A request whose body is not read yet; `path` is decoded."""

    @property
    def method(self) -> str: ...

    @property
    def path(self) -> str: ...

    @property
    def host(self) -> str: ...

    @property
    def query(self) -> MultiMapping[str]: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def content_length(self) -> int | None: ...

    @property
    def content(self) -> Chunks: ...


@dataclass(slots=True)
class Context:
    """State that all requests share."""

    backend: Backend
    log_source: pod_logs.LogSource | None = None
    tokens: Mapping[str, User] = field(default_factory=dict)
    watches: set[WatchStream] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Call:
    """One request for a resource."""

    context: Context
    request: Request
    target: Target
    kind: ServedKind
    user: User = ANONYMOUS
    warnings: list[str] = field(default_factory=list)
    """Warnings so far, sent with the answer whether the request succeeds or not."""

    @property
    def backend(self) -> Backend:
        return self.context.backend

    @property
    def query(self) -> Query:
        return self.request.query

    @property
    def accept(self) -> str | None:
        return self.request.headers.get("Accept")

    @property
    def content_type(self) -> str | None:
        return self.request.headers.get("Content-Type")

    @property
    def dry_run(self) -> list[str]:
        return self.request.query.getall("dryRun", [])

    def view(self) -> wire.View:
        wanted = negotiation.representation(self.accept)
        include = self.query.get("includeObject") or "Metadata"
        if wanted.form == "Table" and include not in server_tables.INCLUDE:
            raise status_errors.bad_request(
                f"includeObject: got {include}, expected {', '.join(server_tables.INCLUDE)}"
            )
        return wire.View(self.kind, self.target.version, wanted, include)


async def read_body(call: Call) -> bytes:
    """Return the whole body. Raises StatusError 413 past MAX_BODY."""
    too_large = f"Request entity too large: limit is {MAX_BODY}"
    if (call.request.content_length or 0) > MAX_BODY:
        raise status_errors.too_large(too_large)
    found = bytearray()
    async for chunk in call.request.content.iter_any():
        found += chunk
        if len(found) > MAX_BODY:
            raise status_errors.too_large(too_large)
    return bytes(found)


def _readable(media: str, body: bytes, prefix: str) -> tuple[str, bytes]:
    """The body as JSON or YAML, which protobuf is turned into. Raises StatusError 400."""
    if media != negotiation.PROTOBUF:
        return media, body
    try:
        return wire.JSON, msgspec.json.encode(protobuf_reading.read(body))
    except ReadError as error:
        raise status_errors.bad_request(f"{prefix}{error}") from None


def write_options(call: Call, kind: str, *, apply: bool = False) -> WriteOptions:
    """Return the options of a write, of this `kind` in messages. Raises StatusError."""
    agent = call.request.headers.get("User-Agent", "")
    return api_requests.write_options(call.query, kind, call.dry_run, apply=apply, user_agent=agent)


async def decoded(call: Call, options_kind: str, kind: ServedKind) -> tuple[WriteOptions, Object]:
    """Return options and object of a request; wrong fields of the object become warnings.

    Raises StatusError.
    """
    media = negotiation.body_type(call.content_type)
    body = await read_body(call)
    options = write_options(call, options_kind)
    media, body = _readable(media, body, f"the body is not a {kind.kind}: ")
    version = kind.version if kind in {BINDINGS, EVICTIONS} else call.target.version
    obj, warnings = envelope.decode(
        kind, version, body, field_validation=options.field_validation, content_type=media
    )
    call.warnings.extend(warnings)
    return options, obj


async def delete_options(call: Call) -> deletion.DeleteOptions:
    """Return the options of a deletion: from the body, else from the query. Raises StatusError."""
    body = await read_body(call)
    if not body:
        return deletion.options_from_query(call.query, call.dry_run)
    media, body = _readable(negotiation.body_type(call.content_type), body, "")
    return deletion.read_options(envelope.options(DELETE_OPTIONS, body, media))
