"""One handler for each verb and subresource; `answer` selects it by the request's target.

Checks come in upstream's order: route, method, content type, Accept, options, body, and only then the object.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import msgspec
from aiohttp import web
from multidict import MultiMapping

from corelane.embedded.apiserver import api_requests, status_errors
from corelane.embedded.apiserver.api_requests import Query, Target, WriteOptions
from corelane.embedded.apiserver.codec import request_bodies, server_tables, wire
from corelane.embedded.apiserver.codec.json_and_yaml import ReadError
from corelane.embedded.apiserver.http import auth, pod_logs, responses
from corelane.embedded.apiserver.http.auth import ANONYMOUS, User
from corelane.embedded.apiserver.http.responses import Reply, Stream
from corelane.embedded.apiserver.schema.notation import DELETE_OPTIONS
from corelane.embedded.apiserver.served_kinds import BINDINGS, EVICTIONS, PODS, REVIEWS, ServedKind
from corelane.embedded.apiserver.status_errors import StatusError
from corelane.embedded.apiserver.store import lists_and_watches, server_backend
from corelane.embedded.apiserver.store.lists_and_watches import WatchStream
from corelane.embedded.apiserver.store.server_backend import Backend
from corelane.embedded.apiserver.stored_objects import Object
from corelane.embedded.apiserver.write import deletion, patching, pipeline, pod_subresources

MAX_BODY = 3 * 1024 * 1024
_DELETES_AT_ONCE = 50
_SHOWN_DELETED = {"Pod", "Namespace"}
"""Kinds of which a deletion is answered with the object's last state."""
_ENCODED_AT_ONCE = 500
_READS = {"GET", "HEAD"}
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a request from this process."""

    data: bytes = b""

    async def iter_any(self) -> AsyncIterator[bytes]:
        if self.data:
            yield self.data


@dataclass(frozen=True, slots=True)
class LocalRequest:
    """A request from this process; `path` is decoded."""

    method: str
    path: str
    query: MultiMapping[str]
    headers: Mapping[str, str]
    content: Body
    host: str = "localhost"

    @property
    def content_length(self) -> int:
        return len(self.content.data)


Request: TypeAlias = web.BaseRequest | LocalRequest
"""A request whose body is not read yet."""


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
        form = responses.representation(self.accept)
        include = self.query.get("includeObject") or "Metadata"
        if form.form == "Table" and include not in server_tables.INCLUDE:
            raise status_errors.bad_request(
                f"includeObject: got {include}, expected {', '.join(server_tables.INCLUDE)}"
            )
        return wire.View(self.kind, self.target.version, form, include)


async def read_body(call: Call) -> bytes:
    """Return the whole body. Raises StatusError 413 past MAX_BODY."""
    too_large = f"Request entity too large: limit is {MAX_BODY}"
    if (call.request.content_length or 0) > MAX_BODY:
        raise status_errors.too_large(too_large)
    body = bytearray()
    async for chunk in call.request.content.iter_any():
        body += chunk
        if len(body) > MAX_BODY:
            raise status_errors.too_large(too_large)
    return bytes(body)


def _readable(media: str, body: bytes, prefix: str) -> tuple[str, bytes]:
    """The body as JSON or YAML, which protobuf is turned into. Raises StatusError 400."""
    if media != responses.PROTOBUF:
        return media, body
    try:
        return wire.JSON, msgspec.json.encode(request_bodies.read_protobuf(body))
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
    media = responses.body_type(call.content_type)
    body = await read_body(call)
    options = write_options(call, options_kind)
    media, body = _readable(media, body, f"the body is not a {kind.kind}: ")
    version = kind.version if kind in {BINDINGS, EVICTIONS} else call.target.version
    obj, warnings = request_bodies.decode(
        kind, version, body, field_validation=options.field_validation, content_type=media
    )
    call.warnings.extend(warnings)
    return options, obj


async def delete_options(call: Call) -> deletion.DeleteOptions:
    """Return the options of a deletion: from the body, else from the query. Raises StatusError."""
    body = await read_body(call)
    if not body:
        return deletion.options_from_query(call.query, call.dry_run)
    media, body = _readable(responses.body_type(call.content_type), body, "")
    return deletion.read_options(request_bodies.options(DELETE_OPTIONS, body, media))


Handler = Callable[[Call], Awaitable[Reply]]


async def answer(context: Context, request: Request, target: Target, user: User) -> Reply:
    """Serve a request for a resource: from what is committed, and a write once it is.

    Raises StatusError, StoreError.
    """
    handler = _route(request.method, target)
    if handler is None or target.kind is None:
        if request.method != "GET" or target.path != _DEFINITIONS or target.verb != "list":
            raise status_errors.no_such_resource()
        # kubectl asks before it reports an unknown kind, and an error would hide that
        meta = {"resourceVersion": str(context.backend.store.revision)}
        empty = {"kind": "CustomResourceDefinitionList", "apiVersion": "apiextensions.k8s.io/v1"}
        return responses.data(msgspec.json.encode({**empty, "metadata": meta, "items": []}))
    call = Call(context, request, target, target.kind, user)
    store = context.backend.store
    try:
        if request.method in _READS:
            store.settle()
        return await handler(call)
    except StatusError as error:
        error.warnings = (*call.warnings, *error.warnings)
        raise
    finally:
        if request.method not in _READS:
            await store.committed()  # a refusal, too, may be due to what is not committed yet


def _route(method: str, target: Target) -> Handler | None:
    """The handler of a request; None where nothing is served. Raises StatusError for a wrong method.

    Custom resources are routed by their verb, as by upstream's `customresource_handler.go`; built-in ones by
    path and method.
    """
    if target.kind is not None and target.kind.custom:
        if target.namespace:
            return None
        if target.subresource:
            raise server_backend.not_found(target)
        if target.verb not in _VERBS:
            raise status_errors.unsupported_verb(target.resource, target.group, target.verb)
        return _VERBS[target.verb]
    allowed = api_requests.methods(target)
    if allowed and method not in allowed:
        raise status_errors.method_not_allowed()
    if not allowed:
        return None
    if target.kind is BINDINGS:
        return bind
    if target.kind in REVIEWS:
        return review
    if target.subresource in _SUBRESOURCES:
        return _SUBRESOURCES[target.subresource]
    if method == "GET":
        return _VERBS.get(target.verb, get)
    if method == "DELETE":
        return delete if target.named else delete_collection
    return {"POST": create, "PUT": update, "PATCH": patch}[method]


async def get(call: Call) -> web.Response:
    view = call.view()
    # resourceVersion is a lower bound, which the store always meets unless it is in the future
    revision = server_backend.parse_revision(call.query.get("resourceVersion", ""))
    if revision > call.backend.store.revision:
        raise status_errors.resource_version_too_large(revision, call.backend.store.revision)
    record = call.backend.find(call.target)
    return responses.data(wire.record_bytes(view, record), view.representation.media)


async def list_(call: Call) -> web.Response:
    view = call.view()
    options = api_requests.list_options(call.query, watch=False)
    page = lists_and_watches.page(call.backend, call.target, options)
    return responses.data(await _many(view, page), view.representation.media)


async def _many(view: wire.View, page: lists_and_watches.ListPage) -> bytes:
    """A long list that must be decoded is written in a thread, so that others are answered meanwhile."""
    if view.plain or len(page.records) <= _ENCODED_AT_ONCE:
        return wire.list_bytes(view, page.records, page.meta)
    return await asyncio.to_thread(wire.list_bytes, view, page.records, page.meta)


async def watch(call: Call) -> Stream:
    view = call.view()
    if view.representation.media == wire.YAML:
        raise status_errors.not_acceptable([wire.JSON])
    options = api_requests.list_options(call.query, watch=True)
    if call.target.named:
        options = replace(options, selection=options.selection.named(call.target.name))
    stream = WatchStream(call.backend, call.target, view, options)
    return Stream(_frames(call.context, stream), view.representation.media)


async def _frames(context: Context, stream: WatchStream) -> AsyncIterator[bytes]:
    """The frames of a watch that the server ends when it stops."""
    context.watches.add(stream)
    try:
        async with aclosing(stream.frames()) as frames:
            async for chunk in frames:
                yield chunk
    finally:
        context.watches.discard(stream)


async def create(call: Call) -> web.Response:
    view = call.view()
    options, obj = await decoded(call, "CreateOptions", call.kind)
    return _written(call, view, pipeline.create(call.backend, call.target, obj, options))


async def update(call: Call) -> web.Response:
    view = call.view()
    _check_named(call)
    options, obj = await decoded(call, "UpdateOptions", call.kind)
    return _written(call, view, pipeline.update(call.backend, call.target, obj, options))


def _check_named(call: Call) -> None:
    """Whether the path names an object: those of custom resources' collections do not. Raises StatusError."""
    if not call.target.named:
        raise status_errors.bad_request("name must be provided")


async def patch(call: Call) -> web.Response:
    media = responses.patch_type(call.content_type, custom=call.kind.custom)
    view = call.view()
    _check_named(call)
    body = await read_body(call)
    if media == patching.APPLY_PATCH:
        options = write_options(call, "PatchOptions", apply=True)
        written = pipeline.apply_object(call.backend, call.target, body, options, call.warnings)
    else:
        options = write_options(call, "PatchOptions")
        written = pipeline.patch_object(call.backend, call.target, media, body, options, call.warnings)
    return _written(call, view, written)


def _written(call: Call, view: wire.View, written: pipeline.WriteResult) -> web.Response:
    code = 201 if written.created else 200
    return responses.data(
        wire.object_bytes(view, written.obj), view.representation.media, code, warnings=call.warnings
    )


async def delete(call: Call) -> web.Response:
    view = call.view()
    options = await delete_options(call)
    deleted = deletion.delete(call.backend, call.target, options)
    code = 202 if not deleted.gone and options.orphan is False else 200
    if deleted.gone and call.kind.kind not in _SHOWN_DELETED:
        details = status_errors.details(
            call.target.name, call.target.group, call.target.resource, deleted.obj["metadata"]["uid"]
        )
        return responses.data(
            wire.body(view.representation, status_errors.success(details=details)), view.representation.media
        )
    return responses.data(wire.object_bytes(view, deleted.obj), view.representation.media, code)


async def delete_collection(call: Call) -> web.Response:
    view = call.view()
    asked = api_requests.list_options(call.query, watch=False)
    lists_and_watches.check_selectable(call.kind, call.target.version, asked.selection)
    options = await delete_options(call)
    call.backend.store.settle()
    page = lists_and_watches.page(call.backend, call.target, replace(asked, limit=0))
    for start in range(0, len(page.records), _DELETES_AT_ONCE):
        batch = page.records[start : start + _DELETES_AT_ONCE]
        deletion.delete_records(call.backend, call.target, batch, options)
        await call.backend.store.committed()
        await asyncio.sleep(0)
    return responses.data(await _many(view, page), view.representation.media)


async def bind(call: Call) -> web.Response:
    call.view()
    options, obj = await decoded(call, "CreateOptions", BINDINGS)
    pods = replace(call.target, resource="pods", kind=PODS)
    pod_subresources.bind(call.backend, pods, obj, options)
    return _done(call)


async def evict(call: Call) -> web.Response:
    call.view()
    options, obj = await decoded(call, "CreateOptions", EVICTIONS)
    pod_subresources.evict(call.backend, call.target, obj, options)
    return _done(call)


async def review(call: Call) -> web.Response:
    view = call.view()
    _, obj = await decoded(call, "CreateOptions", call.kind)
    answer = auth.answer_review(call.user, obj, call.backend.timestamp(), call.context.tokens)
    body = wire.body(view.representation, answer)
    return responses.data(body, view.representation.media, 201, warnings=call.warnings)


def _done(call: Call) -> web.Response:
    form = replace(responses.representation(call.accept), form="")
    body = wire.body(form, status_errors.success(code=201))
    return responses.data(body, form.media, 201, warnings=call.warnings)


async def log(call: Call) -> Reply:
    pod = call.backend.find(call.target).object()
    options = pod_logs.options(call.query, pod)
    if not pod["spec"].get("nodeName"):
        return responses.nothing()
    if call.context.log_source is None:
        raise status_errors.not_served("no node of this server serves pod logs")
    try:
        chunks = await call.context.log_source.open(pod, options)
    except pod_logs.LogUnavailableError as error:
        raise StatusError(500, "InternalError", f"Internal error occurred: {error}") from error
    limit = options.limit_bytes
    return Stream(chunks if limit is None else pod_logs.limited(chunks, limit), "text/plain")


async def not_served(call: Call) -> Reply:
    part = f"{call.target.resource}/{call.target.subresource}"
    raise status_errors.not_served(f"{part} is not served by corelane's embedded API server")


_SUBRESOURCES: dict[str, Handler] = {
    "binding": bind,
    "eviction": evict,
    "log": log,
    **dict.fromkeys(("exec", "attach", "portforward", "proxy"), not_served),
}


_VERBS: dict[str, Handler] = {
    "get": get,
    "list": list_,
    "watch": watch,
    "create": create,
    "update": update,
    "patch": patch,
    "delete": delete,
    "deletecollection": delete_collection,
}
